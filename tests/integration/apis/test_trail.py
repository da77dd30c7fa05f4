"""The trail from outside: who saw, exported, imported and deleted what, and that it is checked (§12.12, §12.13)."""

import csv
import io
import json
import subprocess
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from tests.support.answers import Json, chat, ok, user
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.web_page import PageClient

ADMIN, VIEWER, USER, BRIEF = "gw-admin-key-1", "gw-viewer-key-2", "gw-user-key-33", "gw-brief-key-4"
KEYS: list[Json] = [
    {"key": ADMIN, "tenant": "ops", "name": "Ada", "roles": ["user", "admin"]},
    {"key": VIEWER, "tenant": "acme", "name": "Vi", "roles": ["user", "viewer"]},
    {"key": USER, "tenant": "acme", "owner": "uma@acme.example"},
    {"key": BRIEF, "tenant": "acme", "retention_days": 2e-5},
]
SECRET_WORDS = "the launch code is heliotrope"


def ask(gateway: GatewayProcess, key: str | None = USER) -> Json:
    return chat(gateway, user(SECRET_WORDS), key=key, model="small")


def events(gateway: GatewayProcess, after: int = 0, **query: Any) -> list[Json]:
    answer = ok(gateway.get("/gateway/trail", params={"after": after, "limit": 100, **query}, key=ADMIN))
    found: list[Json] = answer["data"]
    return found


def latest(gateway: GatewayProcess) -> int:
    found = events(gateway, order="desc", after=10**9, limit=1)
    return int(found[0]["number"]) if found else 0


def told(found: list[Json]) -> list[tuple[Any, ...]]:
    return [(each["actor_name"], each["action"], each["object_id"], each["tenant"]) for each in found]


def trail(gateway: GatewayProcess, kind: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    named = ("trail", kind, "--config", str(gateway.config_path), *arguments)
    return gateway_command(*named, directory=gateway.directory)


def test_s12_12_page_views_are_told_by_who_looked(guarded: GatewayProcess) -> None:
    answer = ask(guarded)
    conversation, request = answer["conversation"]["id"], answer["response_metadata"]["request_id"]
    other = ask(guarded)
    before = latest(guarded)
    with PageClient(guarded.url) as browser:
        browser.log_in(ADMIN)
        browser.get("/ui/conversations?text=heliotrope")
        browser.get(f"/ui/conversations/{conversation}")
        browser.get(f"/ui/requests/{request}")
        browser.get(f"/ui/requests/{request}/text?of=question")
        browser.get(f"/ui/compare?a={request}&b={other['id']}")
        assert browser.get(f"/ui/compare?a={request}&b=req_unknown").status_code == 404
        browser.get("/ui/compare")
        browser.get("/ui/health")
        for _ in range(3):
            browser.get("/ui/conversations", hx_request="true")
    with PageClient(guarded.url) as browser:
        browser.log_in(VIEWER)
        browser.get(f"/ui/conversations/{conversation}")
        assert browser.get("/ui/conversations/conv_unknown").status_code == 404
    with PageClient(guarded.url) as browser:
        assert browser.log_in(USER).status_code == 403
        assert browser.log_in("gw-nobodys-key").status_code == 401
    found = events(guarded, before)
    ids = {each["actor_name"]: each["actor"] for each in found}
    assert told(found) == [
        ("Ada", "ui.login", ids["Ada"], None),
        ("Ada", "conversations.seen", None, None),
        ("Ada", "conversation.seen", conversation, None),
        ("Ada", "request.seen", request, None),
        ("Ada", "request.text_seen", request, None),
        ("Ada", "request.seen", request, None),
        ("Ada", "request.seen", other["response_metadata"]["request_id"], None),
        ("Ada", "conversations.seen", None, None),
        ("Vi", "ui.login", ids["Vi"], None),
        ("Vi", "conversation.seen", conversation, "acme"),
        ("uma@acme.example", "ui.login", None, None),
        (None, "ui.login", None, None),
    ]
    assert [each["number"] for each in found] == list(range(before + 1, before + 13))
    assert [each["ok"] for each in found] == [True] * 10 + [False] * 2
    assert found[-1]["actor"] == "unknown"
    assert found[1]["details"] == {"parameters": ["text"]}
    assert found[4]["details"] == {"of": "question"}
    assert "heliotrope" not in str(found)


def test_s12_12_deletions_exports_and_imports_are_told_whoever_does_them(guarded: GatewayProcess) -> None:
    answer, other = ask(guarded), ask(guarded)
    conversation = answer["conversation"]["id"]
    before = latest(guarded)
    with guarded.http(USER) as client:
        exported = client.get(f"/conversations/{conversation}/export")
        imported = client.post("/conversations/import", content=exported.content).json()["id"]
        items = client.get(f"/conversations/{imported}/items").json()["data"]
        noted = client.post(f"/conversations/{conversation}/memory", json={"type": "lamp", "id": "7", "name": "Lamp"})
        memory = noted.json()["data"][0]["id"]
        paths = [
            f"/conversations/{imported}/items/{items[0]['id']}",
            f"/conversations/{imported}/items",
            f"/conversations/{conversation}/memory/{memory}",
            f"/chat/completions/{answer['id']}",
            f"/conversations/{conversation}",
        ]
        assert [client.delete(path).status_code for path in paths] == [200] * 5
        assert client.delete(f"/conversations/{conversation}").status_code == 404
    assert guarded.delete(f"/responses/{other['id']}", key=VIEWER).status_code == 200
    found = events(guarded, before)
    uma = "uma@acme.example"
    assert told(found) == [
        (uma, "conversation.exported", conversation, "acme"),
        (uma, "conversation.imported", imported, "acme"),
        (uma, "item.deleted", items[0]["id"], "acme"),
        (uma, "conversation.emptied", imported, "acme"),
        (uma, "memory.deleted", memory, "acme"),
        (uma, "completion.deleted", found[5]["object_id"], "acme"),
        (uma, "conversation.deleted", conversation, "acme"),
        ("Vi", "completion.deleted", found[7]["object_id"], "acme"),
    ]
    assert found[2]["details"] == {"conversation": imported}
    assert "heliotrope" not in str(found)


def test_s12_12_figures_of_all_tenants_and_the_trail_itself(guarded: GatewayProcess) -> None:
    before = latest(guarded)
    assert guarded.get("/organization/costs", params={"start_time": 1793491200}, key=ADMIN).status_code == 200
    lines = guarded.get("/gateway/trail/export", params={"after": before, "since": "1793491200"}, key=ADMIN)
    assert guarded.get("/organization/costs", params={"start_time": 1793491200}, key=VIEWER).status_code == 200
    for path in ("/gateway/trail", "/gateway/trail/export"):
        assert guarded.get(path, key=VIEWER).status_code == 403
    found = events(guarded, before)
    assert told(found) == [("Ada", "organization.seen", "costs", None), ("Ada", "trail.exported", None, None)]
    assert found[1]["details"] == {"after": before, "since": "1793491200"}
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in lines.text.splitlines()] == found


@pytest.mark.parametrize(
    "query",
    [{"after": "x"}, {"limit": "0"}, {"action": "a b"}, {"actor": ""}, {"since": "yesterday"}, {"until": "9" * 15}],
)
def test_s12_12_a_parameter_that_breaks_its_rule_is_named(guarded: GatewayProcess, query: Json) -> None:
    answer = guarded.get("/gateway/trail", params=query, key=ADMIN)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(query)))


@pytest.mark.chaos
def test_s12_12_commands_are_told_by_the_systems_user_and_the_chain_is_checked(guarded: GatewayProcess) -> None:
    conversation = ask(guarded)["conversation"]["id"]
    before = latest(guarded)
    for arguments in (("export", conversation), ("purge", "--older-than", "2020-01-01"), ("purge", "--user", "ann")):
        done = gateway_command(
            arguments[0], "--config", str(guarded.config_path), *arguments[1:], directory=guarded.directory
        )
        assert done.returncode == 0, done.stderr
    exported = trail(guarded, "export", "--after", str(before))
    found = [json.loads(line) for line in exported.stdout.splitlines()]
    assert [(each["actor"], each["action"]) for each in found] == [
        (None, "conversation.exported"),
        (None, "trail.exported"),
    ], "what deleted nothing is not told"
    assert all(each["actor_name"] for each in found)
    last = found[-1]
    good = trail(guarded, "verify")
    assert (good.returncode, f"the last is {last['number']} {last['digest']}" in good.stdout) == (0, True), good.stdout
    named = ("--from", str(last["number"]), "--digest", last["digest"])
    assert trail(guarded, "verify", *named).stdout.startswith("1 event holds")
    missing = trail(guarded, "verify", "--from", str(last["number"] + 1), "--digest", last["digest"])
    assert (missing.returncode, "it is missing" in missing.stdout) == (1, True)
    assert trail(guarded, "verify", "--from", "1").returncode == 2
    listed = trail(guarded, "list", "--limit", "2")
    assert "trail.exported" in listed.stdout


def test_s12_12_what_cannot_be_recorded_is_not_shown_and_not_done(start_gateway: GatewayFactory) -> None:
    gateway = start_gateway({"auth": {"keys": KEYS}})
    conversation = ask(gateway)["conversation"]["id"]
    with PageClient(gateway.url) as browser:
        browser.log_in(ADMIN)
        engine = sa.create_engine(f"sqlite:///{gateway.directory}/gateway.db")
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE admin_events RENAME TO put_aside"))
        page = browser.get(f"/ui/conversations/{conversation}")
        assert page.status_code == 503
        assert "heliotrope" not in page.text
        assert browser.get("/ui/health").status_code == 200
        assert gateway.delete(f"/conversations/{conversation}", key=USER).status_code == 503
        assert gateway.get(f"/conversations/{conversation}", key=USER).status_code == 200
        assert gateway.get(f"/conversations/{conversation}/export", key=USER).status_code == 503
        assert ask(gateway)["conversation"]["id"], "chats have nothing to do with it"
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE put_aside RENAME TO admin_events"))
        engine.dispose()
        assert browser.get(f"/ui/conversations/{conversation}").status_code == 200


def test_s12_12_without_keys_the_page_is_told_as_local(one_gateway: GatewayProcess) -> None:
    conversation = ask(one_gateway, None)["conversation"]["id"]
    httpx.get(f"{one_gateway.url}/ui/conversations/{conversation}").raise_for_status()
    assert one_gateway.delete(f"/conversations/{conversation}", key=None).status_code == 200
    assert one_gateway.get("/gateway/trail", key=None).status_code == 403
    found = json.loads(trail(one_gateway, "list", "--json").stdout)["data"]
    assert [(each["actor"], each["action"], each["object_id"]) for each in found[-2:]] == [
        ("local", "conversation.seen", conversation),
        ("anonymous", "conversation.deleted", conversation),
    ]
    rows = list(csv.DictReader(io.StringIO(trail(one_gateway, "list", "--csv").stdout)))
    assert [(row["number"], row["action"]) for row in rows] == [(str(each["number"]), each["action"]) for each in found]
    assert json.loads(rows[-1]["details"]) == found[-1]["details"]
