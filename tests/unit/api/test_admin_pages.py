"""`/ui/admin/files`, `/ui/admin/models` and `/ui/admin/configuration` (guarantee §13.16)."""

import csv
import io
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.loading import load_settings
from gateway.core.config.settings import Settings
from gateway.inspection.settings_in_force import HIDDEN_VALUE, address, settings_in_force
from gateway.operations.command_arguments import parser
from gateway.operations.config_command import config
from gateway.operations.screen import CommandCall
from tests.support.answers import Json, ok, user
from tests.support.factory import GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.web_page import PageClient, Visits, checked

ADMIN, BOTH, VIEWER, OTHER = "sk-sees-all-1234", "sk-both-of-ops-1", "sk-looks-at-acme", "sk-user-of-acme1"
KEYS = [
    {"key": ADMIN, "tenant": "ops", "name": "looks alone", "roles": ["admin"]},
    {"key": BOTH, "tenant": "ops", "name": "operations", "roles": ["admin", "user"]},
    {"key": VIEWER, "tenant": "acme", "roles": ["viewer"]},
    {"key": OTHER, "tenant": "acme", "roles": ["user"]},
]
FILES = "/ui/admin/files"
SCRIPT = "<script>alert(1)</script>"
SECRETS = ("sk-secret-of-model", "secret-password", "hunter2", "sk-very-hidden")


def settings_of_gateway(upstream: MockUpstream) -> dict[str, Any]:
    base = upstream.base_url
    return {
        "auth": {"keys": KEYS},
        "files": {"max_bytes": 200_000},
        "conversation": {"retention_days": 30},
        "prompt_profiles": {"core": f"You are helpful. {SCRIPT}"},
        "model_list": [
            {
                "model_name": "priced",
                "litellm_params": {
                    "model": "openai/priced-1",
                    "api_base": base.replace("://", "://user:secret-password@"),
                    "api_key": SECRETS[0],
                    "order": 2,
                },
                "model_info": {
                    "input_cost_per_token": 1e-06,
                    "output_cost_per_token": 2.5e-06,
                    "input_cost_per_token_above_200k_tokens": 2e-06,
                    "max_input_tokens": 300_000,
                },
            },
            {"model_name": "gpt-4o", "litellm_params": {"model": "openai/gpt-4o", "api_base": base, "api_key": "sk-x"}},
            {
                "model_name": "unknown",
                "litellm_params": {"model": "openai/nobody-knows", "api_base": base, "api_key": "sk-x"},
            },
        ],
    }


gateway = shared_gateway(settings_of_gateway)


def upload(
    client: PageClient, content: bytes = b"Rivers are wet.", name: str = "notes.txt", last: Any = (), **fields: str
) -> httpx.Response:
    """A form with a file, as a browser sends it: the token stands in front of the file."""
    sent = {"csrf": client.token(FILES), "purpose": "user_data", "expires": "", **fields}
    parts: list[Any] = [(each, (None, value)) for each, value in sent.items() if each not in last]
    parts += [("file", (name, content, "text/plain"))]
    parts += [(each, (None, sent[each])) for each in last]
    headers = {"origin": "null", "sec-fetch-site": "same-origin"}
    return client.client.post(FILES, files=parts, headers=headers)


def files_of(gateway: GatewayProcess, key: str) -> list[Json]:
    found: list[Json] = gateway.get("/files", key=key).json()["data"]
    return found


def test_s13_16_a_file_is_uploaded_read_and_deleted_on_the_page(gateway: GatewayProcess, visit: Visits) -> None:
    """By the functions of the API: it is there for the same key, and its end is in the trail."""
    client = visit(BOTH)
    added = upload(client, expires="3600")
    assert added.status_code == 303, added.text
    one = added.headers["location"]
    file_id = one.rpartition("/")[2]
    (file,) = [each for each in files_of(gateway, BOTH) if each["id"] == file_id]
    assert (file["filename"], file["bytes"], file["purpose"]) == ("notes.txt", 15, "user_data")
    assert file["expires_at"] - file["created_at"] == 3600
    wait_until(lambda: "ready" in client.page(one).text, "the file is read")
    assert file_id in client.get(FILES).text
    path = f"{one}/delete"
    unsure = client.post(path, {"csrf": client.token(one)})
    assert (unsure.status_code, "confirm" in unsure.text) == (400, True)
    assert client.post(path, {"csrf": client.token(one), "confirm": "1"}).status_code == 303
    assert client.get(one).status_code == 404
    assert file_id not in str(files_of(gateway, BOTH))
    events = gateway.get("/gateway/trail?limit=100&order=desc", key=BOTH).json()["data"]
    (event,) = [each for each in events if each["object_id"] == file_id and each["action"] == "file.deleted"]
    assert event["actor_name"] == "operations"


def test_files_of_all_tenants_are_listed_by_pages(gateway: GatewayProcess, visit: Visits) -> None:
    client = visit(ADMIN)
    for number in range(52):
        sent = {"file": (f"{SCRIPT}-{number}.txt", b"x", "text/plain")}
        assert gateway.post("/files", files=sent, data={"purpose": "batch"}, key=OTHER).status_code == 200
    first = client.page(f"{FILES}?tenant=acme")
    (further,) = {link for link in first.links if "after=" in link}
    second = client.page(further)
    assert SCRIPT not in client.get(FILES).text
    assert len(re.findall(r"-\d+\.txt", first.text)) == 50
    assert f"{SCRIPT}-0.txt" in second.text
    assert client.get(f"{FILES}?after=file-none").status_code == 404
    assert client.get(f"{FILES}?tenant=a%00b").status_code == 400
    assert client.get(f"{FILES}?tenant={'t' * 200}").status_code == 400
    assert client.get(f"{FILES}/file-none").status_code == 404


@pytest.mark.parametrize("token", ["", "0" * 64])
@pytest.mark.parametrize("last", [(), ("csrf",)])
def test_s13_16_a_file_without_the_forms_token_is_not_kept(
    gateway: GatewayProcess, visit: Visits, token: str, last: tuple[str, ...]
) -> None:
    client = visit(BOTH)
    before = files_of(gateway, BOTH)
    assert upload(client, csrf=token, last=last).status_code == 403
    assert upload(client, b"", csrf=token, last=last).status_code == 403
    if last:  # a token that comes behind the file comes too late
        assert upload(client, last=last).status_code == 403
    assert files_of(gateway, BOTH) == before


def test_s13_16_who_may_not_ask_uploads_nothing(gateway: GatewayProcess, visit: Visits) -> None:
    """As at the API: an administrator without the role `user` has nothing of its own to keep."""
    assert 'type="file"' not in visit(ADMIN).get(FILES).text
    assert upload(visit(ADMIN)).status_code == 403
    viewer = visit(VIEWER)
    for path in (FILES, "/ui/admin/models", "/ui/admin/configuration"):
        assert viewer.get(path).status_code == 403
    theirs = gateway.post("/files", files={"file": ("a.txt", b"x")}, data={"purpose": "batch"}, key=OTHER).json()["id"]
    token = viewer.token("/ui/conversations")
    assert viewer.post(f"{FILES}/{theirs}/delete", {"csrf": token, "confirm": "1"}).status_code == 403
    assert any(each["id"] == theirs for each in files_of(gateway, OTHER))


@pytest.mark.parametrize(
    ("content", "fields", "status", "says"),
    [
        (b"x" * 200_001, {}, 413, "files.max_bytes"),
        (b"x", {"purpose": "fun"}, 400, "purpose must be one of"),
        (b"x", {"expires": "60"}, 400, "expires must be one of"),
        (b"x", {"colour": "red"}, 400, "colour is not known"),
    ],
)
def test_what_is_wrong_with_an_upload_is_told(
    visit: Visits, content: bytes, fields: dict[str, str], status: int, says: str
) -> None:
    client = visit(BOTH)
    refused = upload(client, content, **fields)
    assert refused.status_code == status
    assert says in refused.text
    checked(refused)
    csrf = {"x-csrf-token": client.token(FILES), "accept": "application/json"}
    parts: list[Any] = [
        *((name, (None, value)) for name, value in {"purpose": "batch", **fields}.items()),
        ("file", ("a", content)),
    ]
    told = client.client.post(FILES, files=parts, headers=csrf)
    assert (told.status_code, says in told.json()["error"]["message"]) == (status, True)


def test_no_file_was_chosen(visit: Visits) -> None:
    """Browsers send one without a name then."""
    client = visit(BOTH)
    fields = {'name="csrf"': client.token(FILES), 'name="purpose"': "batch", 'name="file"; filename=""': ""}
    parts = (f"--x\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n" for name, value in fields.items())
    headers = {"content-type": "multipart/form-data; boundary=x"}
    refused = client.client.post(FILES, content=("".join(parts) + "--x--\r\n").encode(), headers=headers)
    assert (refused.status_code, "file is required" in refused.text) == (400, True)


def test_the_script_is_told_where_the_file_is(visit: Visits) -> None:
    client = visit(BOTH)
    csrf = {"x-csrf-token": client.token(FILES), "accept": "application/json"}
    parts: Any = [("purpose", (None, "user_data")), ("file", ("a.txt", b"abc"))]
    told = ok(client.client.post(FILES, files=parts, headers=csrf))
    assert client.get(told["location"]).status_code == 200


def test_s13_16_without_keys_files_of_clients_without_a_key_are_kept_and_deleted(start_gateway: GatewayFactory) -> None:
    """Those of clients with a token of their own are not this machine's to delete."""
    here = start_gateway({"files": {"serve": "on"}})
    with PageClient(here.url) as client, httpx.Client(base_url=here.base_url) as api:
        one = upload(client).headers["location"]
        assert api.get(f"/files/{one.rpartition('/')[2]}").status_code == 200
        assert client.post(f"{one}/delete", {"csrf": client.token(one), "confirm": "1"}).status_code == 303
        bearer = {"authorization": "Bearer sk-somebodys"}
        sent = api.post("/files", files={"file": ("a.txt", b"x")}, data={"purpose": "batch"}, headers=bearer)
        theirs = f"{FILES}/{sent.json()['id']}"
        assert client.post(f"{theirs}/delete", {"csrf": client.token(theirs), "confirm": "1"}).status_code == 403
        assert client.get(theirs).status_code == 200


def test_s13_16_where_files_are_the_upstreams_none_is_kept_here(one_gateway: GatewayProcess) -> None:
    with PageClient(one_gateway.url) as client:
        assert "files.serve" in client.page(FILES).text
        headers = {"x-csrf-token": client.token("/ui/try")}
        parts: Any = [("purpose", (None, "batch")), ("file", ("a.txt", b"x"))]
        assert client.client.post(FILES, files=parts, headers=headers).status_code == 403


def test_models_tell_prices_windows_and_health(gateway: GatewayProcess, visit: Visits, upstream: MockUpstream) -> None:
    body = {"model": "gpt-4o", "messages": [user("hi")]}
    assert gateway.post("/chat/completions", json=body, key=OTHER).status_code == 200
    answer = visit(ADMIN).get("/ui/admin/models")
    checked(answer)
    sections = re.split(r'<section class="card deployment"', answer.text)[1:]
    texts = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", each)) for each in sections]
    priced, mapped, unknown = texts
    assert "from the configuration" in priced
    assert re.search(r"input 1 1M tokens all", priced)
    assert re.search(r"input 2 1M tokens prompts above 200,000 tokens", priced)
    assert re.search(r"output 2.5 1M tokens", priced)
    assert "300,000" in priced
    assert "Order 2" in priced
    assert re.search(r"\.json:\d+", priced) or re.search(r"\.yaml:\d+", priced)
    assert "not asked yet" in priced
    assert "from LiteLLM's price map" in mapped.replace("&#39;", "'")
    assert "healthy" in mapped
    assert "No price is known" in unknown
    assert not [each for each in SECRETS if each in answer.text]
    upstream.reply(status=401)
    gateway.post("/chat/completions", json={"model": "unknown", "messages": [user("hi")]}, key=OTHER)
    shown = re.sub(r"<[^>]+>", " ", visit(ADMIN).get("/ui/admin/models").text)
    assert "in cooldown" in shown
    assert "Tried again in" in shown


def test_s13_16_the_configuration_is_shown_without_its_secrets(gateway: GatewayProcess, visit: Visits) -> None:
    answer = visit(ADMIN).get("/ui/admin/configuration")
    checked(answer)
    assert not [each for each in (*SECRETS, *(key["key"] for key in KEYS), SCRIPT) if str(each) in answer.text]
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))
    assert "30.0 days after the last message" in text
    assert "not encrypted" in text
    assert re.search(r"conversation\.retention_days 30\.0 \S+:\d+", text)
    assert "server.receive_timeout 60.0 default" in text
    assert "You are helpful. &lt;script&gt;" in answer.text


CONFIG = """\
storage:
  url: postgresql+asyncpg://me:secret-password@db/x?password=hunter2
upstream:
  api_key: os.environ/UPSTREAM
include: [more.yaml]
auth:
  mode: keys
"""
MORE = """\
server:
  port: 9000

files:
  s3:
    bucket: b
    secret_key: file://{secret}
model_list:
- {{model_name: a, litellm_params: {{model: openai/a, api_key: sk-very-hidden}}}}
- model_name: b
  litellm_params: {{model: openai/b}}
"""


def test_s13_16_each_setting_tells_where_it_comes_from(tmp_path: Path) -> None:
    """File and line, also of an included one; a reference behind its line; a name of the environment; the command."""
    secret = tmp_path / "secret"
    secret.write_text("sk-very-hidden")
    main, more = tmp_path / "config.yaml", tmp_path / "more.yaml"
    main.write_text(CONFIG)
    more.write_text(MORE.format(secret=secret))
    environ = {"UPSTREAM": "sk-very-hidden", "GATEWAY_SERVER_HOST": "localhost", "REDIS_URL": "redis://:hunter2@h/0"}
    settings = load_settings(str(main), environ, {"server.port": 9001})
    rows = {each.name: each for part in settings_in_force(settings).values() for each in part}
    origins = {
        "storage.url": f"{main}:2",
        "upstream.api_key": f"{main}:4, os.environ/UPSTREAM",
        "auth.mode": f"{main}:7",
        "server.port": "command line",
        "server.host": "environment: GATEWAY_SERVER_HOST",
        "cache.url": "environment: REDIS_URL",
        "files.s3": f"{more}:5, file://{secret}",
        "server.workers": "default",
    }
    assert {name: rows[name].origin for name in origins} == origins
    assert settings.origins["model_list[1]"] == f"{more}:10"
    assert rows["upstream.api_key"].value == HIDDEN_VALUE
    assert rows["storage.url"].value == "postgresql+asyncpg://…@db/x?password=…"
    assert rows["cache.url"].value == "redis://…@h/0"
    shown = str(rows)
    assert not [each for each in SECRETS if each in shown]
    assert {section for section in rows if section.startswith("prompt_profiles")} == set()


def test_s13_16_a_reference_to_a_vault_is_shown_without_its_password() -> None:
    reference = "vault://me:hunter2@vault.internal/gateway"
    settings = Settings().model_copy(update={"origins": {"upstream.api_key": f"config.yaml:4, {reference}"}})
    rows = {each.name: each.origin for each in settings_in_force(settings)["upstream"]}
    assert rows["upstream.api_key"] == "config.yaml:4, vault://…@vault.internal/gateway"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:hun/ter2@h/0", "redis://…@h/0"),
        ("redis://me:a@hun?ter2#@h/0", "redis://…@h/0"),
        ("https://me:a?token=hunter2@h/v1", "https://…"),
        ("https://h/v1?api_key=hunter2@b&region=eu", "https://…"),
        ("https://h/v1?api_key=hunter2&region=eu", "https://h/v1?api_key=…&region=eu"),
        ("postgresql://h/db?sslpassword=hunter2&passfile=/hunter2&ssl=require",
         "postgresql://h/db?sslpassword=…&passfile=…&ssl=require"),
        ("redis://:hun ter2@h/0", "redis://…@h/0"),
        ("rediss://me:hun\nter2@h/0", "rediss://…@h/0"),
        ("https://h/v1?api_key=a hunter2", "https://h/v1?api_key=…"),
        ("https://h/v1?sv=1&sig=hunter2&code=hunter2", "https://h/v1?sv=1&sig=…&code=…"),
        ("https://h/v1#access_token=hunter2", "https://h/v1#access_token=…"),
        ("write to me@example.org", "write to me@example.org"),
    ],
)  # fmt: skip
def test_s13_16_an_address_is_shown_without_whatever_password(text: str, shown: str) -> None:
    assert address(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hun/ter2@db/x", "postgresql+asyncpg://…@db/x"),
        ("postgresql://me:hun?t#er2@db/x?sslpassword=hunter2", "postgresql+asyncpg://…@db/x?sslpassword=…"),
        ("postgresql://db/x?user=me&password=hun@ter2", "postgresql+asyncpg://db/x?password=…&user=me"),
        ("sqlite:///here.db", "sqlite:///here.db"),
    ],
)
def test_s13_16_a_databases_password_may_hold_any_sign(url: str, shown: str) -> None:
    settings = Settings.model_validate({"storage": {"url": url}})
    assert next(each.value for each in settings_in_force(settings)["storage"] if each.name == "storage.url") == shown


def test_settings_that_were_litellms_say_so(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("general_settings: {master_key: sk-very-hidden}\nmodel_list: []\n")
    settings = load_settings(str(file), {})
    rows = {each.name: each for part in settings_in_force(settings).values() for each in part}
    assert "LiteLLM" in rows["auth.keys"].origin
    assert "sk-very-hidden" not in str(rows)


def test_s13_16_the_command_shows_what_the_page_does(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sk-very-hidden")
    main, more = tmp_path / "config.yaml", tmp_path / "more.yaml"
    main.write_text(f"{CONFIG}prompt_profiles: {{core: Be brief.}}\n")
    more.write_text(MORE.format(secret=secret))
    environ = {"UPSTREAM": "sk-very-hidden", "REDIS_URL": "redis://:hunter2@h/0"}
    settings = load_settings(str(main), environ)

    def run(*words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        options = parser().parse_args(["config", *words])
        status = config(CommandCall(settings, options, SystemClock(), {}, out, err))
        assert not [each for each in SECRETS if each in out.getvalue()]
        return status, out.getvalue(), err.getvalue()

    of_page = [each for part in settings_in_force(settings).values() for each in part]
    records = json.loads(run("--all", "--json")[1])["data"]
    assert [
        each for each in records if each["name"].partition("[")[0] not in ("model_list", "prompt_profiles.core")
    ] == [asdict(each) for each in of_page]
    assert [each["value"] for each in records if each["name"] == "prompt_profiles.core"] == ["9 characters"]
    status, text, err = run()
    assert (status, "more settings have their defaults" in err) == (0, True)
    rows = [line.split(None, 1)[0] for line in text.splitlines()[1:]]
    set_there = {each.name for each in of_page if not each.is_default} | {"prompt_profiles.core"}
    assert set(rows) == set_there | {f"model_list[{number}]" for number in range(len(settings.model_list))}
    assert "cache.url environment: REDIS_URL redis://…@h/0" in re.sub(" +", " ", text)
    assert [line["name"] for line in csv.DictReader(io.StringIO(run("server.port", "--csv")[1]))] == ["server.port"]
    models = [each["name"] for each in json.loads(run("model_list", "--json")[1])["data"]]
    assert models == [f"model_list[{number}]" for number in range(len(settings.model_list))]
    assert run("sever")[::2] == (1, "sever: there is no such setting. Did you mean 'server'?\n")
