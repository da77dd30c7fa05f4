"""Requests found again: how they failed, one list of all, its filters, its search and its CSV (guarantee §13.15)."""

import csv
import io
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa

from gateway.core.config.settings import StorageSettings
from gateway.core.types.turn import LedgerEntry
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.sqlite import open_transactions
from tests.support.answers import Json, user
from tests.support.command import gateway_command
from tests.support.described import check, closed
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.web_page import PageClient, checked

WORDS = "The server had an error with 'heliotrope'."
ERROR: Json = {"error": {"message": WORDS, "type": "server_error", "param": None, "code": "server_error"}}
QUOTED = json.dumps(ERROR).encode()


@pytest.fixture
def gateway(start_gateway: GatewayFactory, storage_url: str) -> GatewayProcess:
    return start_gateway({"storage": {"url": storage_url}, "routing": {"retries": 1}})


async def stored(url: str) -> list[LedgerEntry]:
    """The bills, in the order in which their requests came."""
    transactions = open_transactions(StorageSettings(url=url))
    try:
        query = sa.select(schema.ledger).order_by(schema.ledger.c.created_at)
        found = await transactions.run(lambda connection: connection.execute(query).all())
        return [rows.entry_of(row) for row in found]
    finally:
        await transactions.close()


def ask(gateway: GatewayProcess, text: str, key: str | None = "sk-test", **more: Any) -> Any:
    return gateway.post("/chat/completions", json={"model": "small", "messages": [user(text)], **more}, key=key)


async def test_s13_15_a_failure_is_kept_with_each_try_and_the_upstreams_own_words(
    gateway: GatewayProcess, storage_url: str, upstream: MockUpstream
) -> None:
    """Also of a request that was answered by a later try. Words of an upstream may quote what was said: they are not
    kept where nothing is stored, and go with the conversation."""
    for status in (500, 503, 500):
        upstream.reply(status=status, body=QUOTED)
    failed = ask(gateway, "The lamp.")
    answered = ask(gateway, "The ferry.")
    for _ in range(2):
        upstream.reply(status=500, body=QUOTED)
    ask(gateway, "The harbour.", None, store=False)
    assert (failed.status_code, answered.status_code) == (503, 200)
    entries = await stored(storage_url)
    first_id = entries[0].request_id
    first, second, unstored = [each.failure for each in entries]
    assert first is not None
    assert second is not None
    assert unstored is not None
    assert (first.status, first.message) == (503, WORDS)
    assert [(each.status, each.message) for each in first.tries] == [(500, WORDS), (503, WORDS)]
    assert all(each.route == "openai/small" for each in first.tries)
    times = [each.at_ms for each in first.tries]
    assert None not in times
    assert times == sorted(times, key=int)  # type: ignore[arg-type]
    assert (second.status, second.message, len(second.tries)) == (None, None, 1)
    assert (unstored.status, unstored.message, [each.message for each in unstored.tries]) == (500, None, [None, None])
    told = [line for line in gateway.log_lines() if line.get("tries")]
    assert len(told) == 3
    assert [each["status"] for each in told[0]["tries"]] == [500, 503]
    assert "heliotrope" not in gateway.log_text()
    with PageClient(gateway.url) as browser:
        shown = browser.page(f"/ui/requests/{first_id}").text
        assert f"HTTP 503: {WORDS}" in shown
        assert shown.count("openai/small") >= 2
        overview = browser.get("/ui").text
        assert '<th scope="row"><span class="muted">no key</span>' in overview, "no filter finds requests without a key"
    told_by = gateway_command("show", "--config", str(gateway.config_path), first_id, directory=gateway.directory)
    assert f"HTTP 503: {WORDS}" in told_by.stdout
    assert told_by.stdout.count("openai/small, failed within") == 2
    conversation = failed.headers["x-conversation-id"]
    assert gateway.delete(f"/conversations/{conversation}").status_code == 200
    assert (await stored(storage_url))[0].failure is None


ADMIN, VIEWER, USER = "gw-admin-key-1", "gw-viewer-key-2", "gw-user-key-33"
HOSTILE = '=HYPERLINK("http://evil.example") <script>alert(1)</script> \u202e'


@pytest.fixture
def team(start_gateway: GatewayFactory, storage_url: str) -> GatewayProcess:
    keys: list[Json] = [
        {"key": ADMIN, "tenant": "ops", "roles": ["user", "admin"]},
        {"key": VIEWER, "tenant": "acme", "roles": ["user", "viewer"]},
        {"key": USER, "tenant": "acme", "name": "Uma", "budgets": [{"usd": 1e-6, "hard": False}]},
    ]
    return start_gateway({"storage": {"url": storage_url}, "auth": {"keys": keys}})


def listed(browser: PageClient, search: str = "") -> str:
    return browser.page(f"/ui/requests{search}").text


def test_s13_18_requests_are_found_by_filters_and_names_and_each_viewer_sees_its_tenant(
    team: GatewayProcess, upstream: MockUpstream
) -> None:
    """What somebody wrote is text on the page and no formula in the file; a failure says status and code."""
    answered = ask(team, "The heliotrope lamp.", USER, user="ann").json()
    ask(team, HOSTILE, USER, user="=1+1")
    upstream.reply(status=429, body=QUOTED)
    ask(team, "The ferry.", USER, user="ann")
    theirs = ask(team, "What ops asks.", ADMIN).json()["response_metadata"]["request_id"]
    name = answered["response_metadata"]["request_id"]
    with PageClient(team.url) as browser:
        browser.log_in(VIEWER)
        everything = listed(browser)
        assert "The heliotrope lamp." in everything
        assert "429 server_error" in everything
        assert "What ops asks." not in everything
        assert theirs not in everything
        assert "<script>alert" not in browser.get("/ui/requests").text
        for search, found in {
            "?text=HELIOTROPE": ["The heliotrope lamp."],
            "?status=failed": ["The ferry."],
            "?http_status=429": ["The ferry."],
            "?http_status=200&user=ann": ["The heliotrope lamp."],
            "?user=ann&sort=-cost&min_cost=0.0000001": ["The heliotrope lamp."],
            "?min_ms=100000": [],
            "?since=1h&endpoint=chat&model=small": ["The heliotrope lamp.", "The ferry."],
            "?until=1h": [],
            f"?conversation={answered['conversation']['id']}": ["The heliotrope lamp."],
            "?text=ops": [],
        }.items():
            text = listed(browser, search)
            assert [each for each in ("The heliotrope lamp.", "The ferry.") if each in text] == found, search
        bad_ones = ["min_cost=much", "status=odd", "since=soon", "older=x", "sort=name", "min_ms=-1", "model=%00"]
        bad_ones += (
            "min_cost=1e9999999",
            "max_saved=-1e99999999",
            "http_status=99",
            "http_status=600",
            "http_status=99999999999",
        )
        for bad in (f"?{each}" for each in bad_ones):
            refused = browser.get(f"/ui/requests{bad}")
            assert refused.status_code == 400, bad
            checked(refused)
        for query, place in {
            name: f"/ui/requests/{name}",
            answered["id"]: f"/ui/requests/{name}",
            answered["conversation"]["id"]: f"/ui/conversations/{answered['conversation']['id']}",
            "ann": "/ui/requests?user=ann",
            "small": "/ui/requests?model=small",
            theirs: f"/ui/requests?text={theirs}",
            "ferry": "/ui/requests?text=ferry",
            "": "/ui/requests",
        }.items():
            assert browser.client.get("/ui/search", params={"q": query}).headers["location"] == place, query
        file = browser.get("/ui/requests.csv?endpoint=chat")
        lines = list(csv.DictReader(io.StringIO(file.text, newline="")))
        assert len(lines) == 3
        assert {line["tenant"] for line in lines} == {"acme"}
        assert lines[1]["user"] == "'=1+1"
        assert lines[1]["question"].startswith("'=HYPERLINK")
        assert [line["http_status"] for line in lines] == ["429", "200", "200"]
        by_cost = browser.get("/ui/requests.csv?endpoint=chat&sort=cost")
        assert by_cost.text == file.text, "in the order of time, as the cost of a failure is not known"
        assert "Download as CSV, by time" in listed(browser, "?sort=cost")
        head = browser.client.head("/ui/requests.csv")
        assert (head.status_code, head.content, head.headers.get("content-length")) == (200, b"", None)
        overview = browser.page("/ui")
        assert "/ui/requests?since=today&status=failed" in overview.links
        words = " ".join(overview.text.split())
        assert "Failed requests 1 of 3 requests today" in words
        assert re.search(r"Budget of key key_\w+ \(Uma\)", words)
    with PageClient(team.url) as browser:
        browser.log_in(ADMIN)
        assert "What ops asks." in listed(browser)
        assert "The heliotrope lamp." in listed(browser)
    command = ("requests", "--config", str(team.config_path), "--tenant", "acme", "--csv", "--endpoint", "chat")
    by_shell = gateway_command(*command, directory=team.directory)
    assert by_shell.returncode == 0, by_shell.stderr
    told = list(csv.DictReader(io.StringIO(by_shell.stdout, newline="")))
    assert [line["id"] for line in told] == [line["id"] for line in lines]
    assert [line["cost"] for line in told] == [line["cost"] for line in lines]
    sorted_by_cost = gateway_command(*command, "--sort", "cost", directory=team.directory)
    assert "requests without a known value are left out" in sorted_by_cost.stderr
    audited = gateway_command(
        "audit", "--config", str(team.config_path), "--csv", "--tenant", "acme", directory=team.directory
    )
    bills = {row["request_id"]: row for row in csv.DictReader(io.StringIO(audited.stdout, newline=""))}
    assert {line["id"]: line["cost"] for line in lines} == {name: row["total_cost"] for name, row in bills.items()}
    unusable = gateway_command(
        "requests", "--config", str(team.config_path), "--min-cost", "much", directory=team.directory
    )
    assert (unusable.returncode, "--min-cost: must be an amount" in unusable.stderr) == (2, True)


def test_s13_18_the_api_lists_what_the_page_does_for_whom_the_page_would(
    team: GatewayProcess, upstream: MockUpstream
) -> None:
    for text in ("The lamp.", "The ferry.", "The harbour."):
        ask(team, text, USER, user="ann")
    upstream.reply(status=429, body=QUOTED)
    ask(team, "The quay.", USER)
    ask(team, "What ops asks.", ADMIN)

    def got(search: str = "", key: str | None = VIEWER, expected: int = 200) -> Json:
        answer = team.get(f"/gateway/requests{search}", key=key)
        assert answer.status_code == expected, answer.text
        found: Json = answer.json()
        return found

    described = closed(team.get(f"{team.url}/openapi.json", key=None).json())
    everything = got()
    check(described, "Requests", everything)
    assert [each["question"] for each in everything["data"]] == ["The quay.", "The harbour.", "The ferry.", "The lamp."]
    by_shell = gateway_command(
        *("requests", "--config", str(team.config_path), "--json", "--tenant", "acme"), directory=team.directory
    )
    assert json.loads(by_shell.stdout)["data"] == everything["data"]
    assert [each["http_status"] for each in got("?status=failed")["data"]] == [429]
    assert [each["question"] for each in got("?user=ann&text=FERRY&since=1h")["data"]] == ["The ferry."]
    pages: list[list[str]] = []
    place = ""
    while len(pages) < 9:
        page = got(f"?limit=2&sort=-latency{place}")
        pages.append([each["id"] for each in page["data"]])
        if not page["has_more"]:
            break
        place = f"&older={page['older']}"
    assert sorted(each for page in pages for each in page) == sorted(each["id"] for each in everything["data"])
    assert [each["id"] for each in got(f"?limit=2&sort=-latency&newer={page['newer']}")["data"]] == pages[0]
    assert len(got(key=ADMIN)["data"]) == 5
    assert [each["question"] for each in got("?tenant=ops", key=ADMIN)["data"]] == ["What ops asks."]
    assert got("?tenant=ops") == {"object": "list", "data": [], "has_more": False, "older": None, "newer": None}
    for bad in (
        "min_cost=much",
        "max_cost=1e9999999",
        "status=odd",
        "older=x",
        "sort=name",
        "colour=red",
        "limit=0",
        "limit=101",
    ):
        assert got(f"?{bad}", expected=400)["error"]["param"] == bad.partition("=")[0]
    got(key=USER, expected=403)
    got(key=None, expected=401)
    seen = team.get("/gateway/trail?action=requests.seen&order=desc", key=ADMIN).json()["data"]
    assert {"parameters": ["since", "text", "user"]} in [each["details"] for each in seen], "and not what they say"


def test_s13_18_without_keys_the_api_lists_requests_where_the_page_would(gateway: GatewayProcess) -> None:
    ask(gateway, "The lamp.")
    for headers, expected in (
        ({}, 200),
        ({"host": "evil.example"}, 403),
        ({"x-forwarded-for": "10.0.0.9"}, 403),
        ({"origin": "http://evil.example"}, 403),
    ):
        answer = gateway.get("/gateway/requests", headers=headers)
        assert answer.status_code == expected, headers


def test_s13_18_a_refused_request_has_no_bill_and_is_found_all_the_same(
    team: GatewayProcess, upstream: MockUpstream
) -> None:
    """By the overview and by its id, without what it said; nobody sees another tenant's, or those without a key."""
    ids = [
        ask(team, "The heliotrope.", USER, context={"mode": "odd"}).headers["x-request-id"],
        ask(team, "The lamp.", ADMIN, context={"mode": "odd"}).headers["x-request-id"],
        ask(team, "The ferry.", "gw-of-nobody").headers["x-request-id"],
    ]
    said: Json = {"model": "small", "messages": [user("The heliotrope.")], "context": {"mode": "odd"}}
    for path, body in (
        ("/messages", {**said, "max_tokens": 9}),
        ("/responses", {"model": "small", "input": "The heliotrope.", "context": {"mode": "odd"}}),
        ("/compress", said),
    ):
        ids.append(team.post(path, json=body, key=USER).headers["x-request-id"])
    upstream.reply(status=400, body=QUOTED)
    ask(team, "The harbour.", USER)
    with PageClient(team.url) as browser:
        browser.log_in(VIEWER)
        assert "/ui/refused" in browser.page("/ui").links
        shown = browser.page("/ui/refused").text
        assert [each in shown for each in ids] == [True, False, False, True, True, True]
        assert "400" in shown
        assert "context.mode" in shown
        assert "Uma" in shown
        assert "heliotrope" not in shown
        assert browser.client.get("/ui/search", params={"q": ids[0]}).headers["location"] == f"/ui/refused#{ids[0]}"
        assert "/ui/requests?text=" in browser.client.get("/ui/search", params={"q": ids[1]}).headers["location"]
    with PageClient(team.url) as browser:
        browser.log_in(ADMIN)
        assert all(each in browser.page("/ui/refused").text for each in ids)
    (line,) = [each for each in team.log_lines() if each.get("request_id") == ids[0]]
    assert (line["error_code"], line["tenant"], line["key_id"][:4]) == ("invalid_value", "acme", "key_")
    others = [
        team.post("/files", key=USER),
        team.delete("/conversations/conv_none", key=USER),
        team.get("/gateway/keys/self", key=USER),
    ]
    for each in (*ids[3:], *(other.headers["x-request-id"] for other in others)):
        assert team.logged(each)["key_id"] == line["key_id"], "whichever endpoint it was"


LOOKS, POOR = "gw-looks-alone-4", "gw-poor-key-5555"


def test_s13_10_a_replay_is_paid_once_by_who_confirms_it_and_may_ask(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """With its price before, by the key's own rights and budget, and in the trail."""
    keys: list[Json] = [
        {"key": ADMIN, "tenant": "ops", "roles": ["user", "admin"]},
        {"key": VIEWER, "tenant": "acme", "roles": ["user", "viewer"], "models": ["small", "gpt-4o"]},
        {"key": LOOKS, "tenant": "acme", "roles": ["viewer"]},
        {"key": POOR, "tenant": "acme", "roles": ["user", "viewer"], "budgets": [{"usd": 1e-9}]},
    ]
    team = start_gateway({"auth": {"keys": keys}})
    answered = ask(team, "The lamp.", VIEWER).json()
    name = answered["response_metadata"]["request_id"]
    here = f"/ui/requests/{name}"

    def dry(browser: PageClient, model: str) -> str:
        return browser.post(f"{here}/replay", {"csrf": browser.token(here), "model": model}).text

    def paid(browser: PageClient, page: str, **changed: str | None) -> Any:
        fields = dict(re.findall(r'name="(csrf|model|attempt)" value="([^"]*)"', page.split("replay-paid")[-1]))
        fields |= {"confirm": "1"} | {name: each for name, each in changed.items() if each is not None}
        fields = {name: each for name, each in fields.items() if name not in changed or changed[name] is not None}
        return browser.post(f"{here}/replay-paid", fields)

    with PageClient(team.url) as browser:
        browser.log_in(VIEWER)
        asked = len(upstream.chats)
        page = dry(browser, "gpt-4o")
        assert "It costs" in page
        assert len(upstream.chats) == asked
        for wrong in ({"confirm": None}, {"attempt": "x"}, {"csrf": "0" * 64}, {"model": "nobody"}):
            assert paid(browser, page, **wrong).status_code in (400, 403, 404), wrong
        assert len(upstream.chats) == asked
        done = paid(browser, page)
        assert done.status_code == 303, done.text
        compared = parse_qs(urlsplit(done.headers["location"]).query)
        assert compared["a"] == [name]
        assert len(upstream.chats_of("gpt-4o")) == 1
        shown = browser.page(done.headers["location"])
        assert "gpt-4o" in shown.text
        again = paid(browser, page)
        assert again.headers["location"] == f"/ui/conversations/{answered['conversation']['id']}"
        assert len(upstream.chats) == asked + 1, "sent twice, it asks once"
        bill = team.get("/gateway/requests?limit=1", key=VIEWER).json()["data"][0]
        assert (bill["id"], bill["model"], bill["tenant"]) == (compared["b"][0], "gpt-4o", "acme")
        assert "It costs" not in dry(browser, "bench"), "a model that the key may not ask"
    for key, word in ((LOOKS, "no role"), (ADMIN, "Only keys of tenant acme")):
        with PageClient(team.url) as browser:
            browser.log_in(key)
            told = dry(browser, "gpt-4o")
            assert word in told
            assert paid(browser, page, csrf=browser.token(here)).status_code == 403
    with PageClient(team.url) as browser:
        browser.log_in(POOR)
        assert paid(browser, dry(browser, "gpt-4o")).status_code == 429
    assert len(upstream.chats) == asked + 1
    seen = team.get("/gateway/trail?action=request.replayed", key=ADMIN).json()["data"]
    assert {(each["object_id"], each["details"]["model"]) for each in seen} == {(name, "gpt-4o")}
