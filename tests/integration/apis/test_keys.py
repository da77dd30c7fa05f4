"""Keys made at runtime, from outside: who may make them, what they open, and when they end (guarantee §12.1, §12.2)."""

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, PermissionDeniedError

from tests.support.answers import Json, refusal, status, user
from tests.support.described import check
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.postgres import Postgres
from tests.support.process import free_port, wait_until
from tests.support.raw import SSE_HEAD, End
from tests.support.web_page import PageClient

ROOT, PLAIN = "gw-root-key-1", "gw-plain-key-2"
UNUSED: Json = {"spent_usd": dict.fromkeys(("day", "week", "month", "total"), 0.0), "last_used_on": None}
WITHIN = 5.0
"""Seconds in which a revocation holds everywhere."""


class Pair:
    """Two gateways on one PostgreSQL, with a cache that is down."""

    def __init__(self, url: str, one: GatewayProcess, two: GatewayProcess) -> None:
        self.url, self.one, self.two = url, one, two


@pytest.fixture(scope="module")
def module_pair(postgres: Postgres, module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> Pair:
    url = postgres.new_database()
    config: Json = {
        "storage": {"url": url},
        "cache": {"url": f"redis://127.0.0.1:{free_port()}/0"},
        "auth": {
            "keys": [
                {"key": ROOT, "tenant": "ops", "name": "root", "roles": ["admin"]},
                {"key": PLAIN, "tenant": "ops"},
            ]
        },
        "upstream": {"api_base": module_upstream.base_url, "api_key": "sk-operator", "unlisted": "relay"},
    }
    return Pair(url, module_start_gateway(config), module_start_gateway(config))


@pytest.fixture
def pair(module_pair: Pair, upstream: MockUpstream) -> Pair:
    return module_pair


@pytest.fixture
def one(pair: Pair) -> GatewayProcess:
    return pair.one


def made(gateway: GatewayProcess, **fields: Any) -> Json:
    """A new key, as its maker sees it."""
    return answered(gateway, "POST", "", {"tenant": "acme", **fields})


def answered(gateway: GatewayProcess, method: str, path: str, body: Json | None = None, key: str = ROOT) -> Json:
    got = asked(gateway, method, path, body, key)
    assert got.status_code == 200, got.text
    assert got.headers["cache-control"] == "no-store"
    found: Json = got.json()
    return found


def asked(gateway: GatewayProcess, method: str, path: str, body: Json | None = None, key: str = ROOT) -> httpx.Response:
    return gateway.request(method, f"/gateway/keys{path}", json=body, key=key)


def test_s12_1_a_key_is_made_shown_once_and_asks(pair: Pair, make_client: ClientFactory) -> None:
    """On whichever replica; by the official SDK; what is read of it later has no key."""
    key = made(pair.one, name="Ann's", owner="ann", project="search", budgets=[{"usd": 5, "period": "day"}])
    assert key["key"].startswith("sk-gw-")
    assert key["id"].startswith("key_")
    assert (key["tenant"], key["roles"], key["hint"]) == ("acme", ["user"], key["key"][-4:])
    answer = make_client(pair.two, key["key"]).chat.completions.create(model="gpt-4o", messages=[user("hi")])
    assert answer.choices[0].message.content
    own = answered(pair.two, "GET", "/self", key=key["key"])
    read = answered(pair.two, "GET", f"/{key['id']}")
    assert own == read
    assert read | UNUSED == {name: value for name, value in key.items() if name != "key"}
    listed = answered(pair.one, "GET", "?tenant=acme&owner=ann")
    assert read in listed["data"]
    assert key["key"] not in str(listed)
    by = "group_by[]=api_key_id&group_by[]=project_id"
    costs = pair.one.get(f"/organization/costs?start_time={int(time.time()) - 3600}&{by}", key=ROOT).json()
    results = [result for bucket in costs["data"] for result in bucket["results"]]
    assert ("search", key["id"]) in {(each["project_id"], each["api_key_id"]) for each in results}


def test_s12_2_revoked_on_one_it_is_refused_on_the_other(
    pair: Pair, make_client: ClientFactory, upstream: MockUpstream
) -> None:
    """Within five seconds, with the cache down; at once where it was revoked. Nobody is told that it ever counted."""
    key = made(pair.one)
    assert status(pair.one, key["key"]) == status(pair.two, key["key"]) == 200
    assert answered(pair.one, "DELETE", f"/{key['id']}")["revoked_at"] is not None
    assert status(pair.one, key["key"]) == 401
    wait_until(lambda: status(pair.two, key["key"]) == 401, "the other replica refuses it", timeout=WITHIN)
    before = len(upstream.chats)
    with pytest.raises(AuthenticationError) as refused:
        make_client(pair.two, key["key"]).chat.completions.create(model="gpt-4o", messages=[user("hi")])
    with pytest.raises(AuthenticationError) as unknown:
        make_client(pair.two, "sk-gw-" + "x" * 43).chat.completions.create(model="gpt-4o", messages=[user("hi")])
    assert refused.value.body == unknown.value.body
    assert len(upstream.chats) == before
    ids = [each["id"] for each in answered(pair.one, "GET", "?tenant=acme&limit=100")["data"]]
    with_revoked = answered(pair.one, "GET", "?tenant=acme&limit=100&include_revoked=true")["data"]
    assert key["id"] not in ids
    assert key["id"] in [each["id"] for each in with_revoked]


ENDINGS = ("revoked", "rotated", "expired")
STREAMS: list[tuple[str, Json]] = [
    ("/chat/completions", {"messages": [user("hi")]}),
    ("/responses", {"input": "hi"}),
    ("/messages", {"messages": [user("hi")], "max_tokens": 9}),
    ("/completions", {"prompt": "hi"}),
]


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.in_turn("how")
def test_s12_2_a_keys_streams_end_with_it(pair: Pair, postgres: Postgres, upstream: MockUpstream, how: str) -> None:
    """In each API and relayed, on the replica where it was done and on the other, within five seconds; upstream's calls
    too. Those of another key go on. No bill says that the client left."""
    upstream.routes["POST /v1/completions"] = Reply(raw=[SSE_HEAD, b"9\r\ndata: {}\n\r\n", End.HANG])
    upstream.handler = lambda _: Reply(text="one two three", stall_after=2)
    in_a_moment = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    key = made(pair.one, **({"expires_at": in_a_moment} if how == "expired" else {}))
    other = made(pair.one)["key"]
    ends: dict[str, tuple[float, bytes]] = {}

    def ask(gateway: GatewayProcess, path: str, body: Json, token: str, name: str) -> None:
        raw = b""
        asked_body = {"model": "gpt-4o", "stream": True, **body}
        client = gateway.http(token)
        with client, suppress(httpx.HTTPError), client.stream("POST", path, json=asked_body) as got:
            for piece in got.iter_raw():
                raw += piece
        ends[name] = time.monotonic(), raw

    asked_ = [(gateway, *each, key["key"]) for gateway in (pair.one, pair.two) for each in STREAMS]
    asked_.append((pair.two, *STREAMS[0], other))
    threads = [Thread(target=ask, args=(*each, f"{n}"), daemon=True) for n, each in enumerate(asked_)]
    for each in threads:
        each.start()
    wait_until(lambda: upstream.in_flight == len(threads), "all are answered")
    if how == "revoked":
        answered(pair.one, "DELETE", f"/{key['id']}")
    elif how == "rotated":
        answered(pair.one, "POST", f"/{key['id']}/rotate", {})
    began = time.monotonic()
    wait_until(lambda: len(ends) == len(threads) - 1, "its streams end", timeout=2 * WITHIN)
    late = 3 if how == "expired" else 0
    assert max(at for at, _ in ends.values()) - began < WITHIN + late
    wait_until(lambda: upstream.in_flight == 1, "upstream is left")
    for _, raw in ends.values():
        assert b"does not count any more" in raw
        assert b"[DONE]" not in raw
    upstream.release()
    threads[-1].join(10)
    assert b"[DONE]" in ends[f"{len(threads) - 1}"][1]
    billed = f"SELECT error_code FROM ledger WHERE key_id = '{key['id']}'"
    wait_until(lambda: len(postgres.query(pair.url, billed)) == len(threads) - 1, "the bills")
    assert {row["error_code"] for row in postgres.query(pair.url, billed)} == {"invalid_api_key"}


def test_s12_2_a_replay_ends_with_its_key(one: GatewayProcess, upstream: MockUpstream) -> None:
    """It is a stream that asks models again and again: none once the key is revoked."""
    key = made(one)
    said: Json = {"model": "gpt-4o", "context": {"session": "replayed"}}
    with one.http(key["key"]) as client:
        for text in ("one", "two"):
            found = client.post("/chat/completions", json={**said, "messages": [user(text)]}).json()
        upstream.reply(text="anew it is", stall_after=2)
        with client.stream("POST", f"/conversations/{found['conversation']['id']}/replay", json={}) as replay:
            lines = replay.iter_lines()
            while "delta" not in next(lines):
                pass
            answered(one, "DELETE", f"/{key['id']}")
            assert any("does not count any more" in line for line in lines)
    wait_until(lambda: upstream.in_flight == 0, "upstream is left")
    assert len(upstream.chats) == 3


def test_s12_2_a_rotated_key_counts_for_its_grace(pair: Pair) -> None:
    key = made(pair.one)
    new = answered(pair.one, "POST", f"/{key['id']}/rotate", {"grace_seconds": 600})
    assert new["id"] == key["id"]
    assert new["key"] != key["key"]
    assert status(pair.two, key["key"]) == status(pair.two, new["key"]) == 200
    newest = answered(pair.one, "POST", f"/{key['id']}/rotate", {})
    seen = [status(pair.one, each["key"]) for each in (key, new, newest)]
    assert seen == [401, 401, 200]
    wait_until(lambda: status(pair.two, new["key"]) == 401, "the other replica refuses it", timeout=WITHIN)


def test_s12_1_what_is_said_of_a_key_is_checked_and_changed(one: GatewayProcess) -> None:
    """Errors name the field; null takes it back to its default; what the configuration says stays."""
    wrong: list[tuple[Json, str]] = [
        ({"nmae": "x"}, "nmae"),
        ({"budgets": [{"usd": -1}]}, "budgets[0].usd"),
        ({"budgets": [{"usd": 1e-13}]}, "budgets[0].usd"),
        ({"budgets": [{"usd": 1, "period": "year"}]}, "budgets[0].period"),
        ({"limits": {"rpm": 0}}, "limits.rpm"),
        ({"limits": {"rpm": True}}, "limits.rpm"),
        ({"roles": ["root"]}, "roles[0]"),
        ({"roles": []}, "roles"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-12:00"}, "expires_at"),
        ({"context": {"mode": "fast"}}, "context.mode"),
        ({"name": "a\u0000b"}, "name"),
        ({"tenant": "a b"}, "tenant"),
        ({"retention_days": 1e300}, "retention_days"),
        ({"retention_days": True}, "retention_days"),
        ({"file_bytes": True}, "file_bytes"),
    ]
    key = made(one, name="a", limits={"rpm": 5}, models=["gpt-*"])
    for body, param in wrong:
        for path in ("", f"/{key['id']}"):
            got = asked(one, "POST", path, body)
            assert refusal(got)[::2] == (400, param), got.text
            assert "must must" not in got.text
    assert answered(one, "GET", f"/{key['id']}") == {name: value for name, value in key.items() if name != "key"}
    after = answered(one, "POST", f"/{key['id']}", {"name": "b", "models": None})
    assert (after["name"], after["models"], after["limits"]["rpm"]) == ("b", [], 5)
    assert refusal(asked(one, "POST", f"/{key['id']}/rotate", {"grace_seconds": 604_801}))[2] == "grace_seconds"
    configured = [each for each in answered(one, "GET", "?limit=100")["data"] if each["source"] == "configuration"]
    assert {each["name"] for each in configured} == {"root", None}
    for method, path in (("POST", ""), ("POST", "/rotate"), ("DELETE", "")):
        got = asked(one, method, f"/{configured[0]['id']}{path}", {} if method == "POST" else None)
        assert refusal(got)[:2] == (409, "key_not_changeable")
        assert configured[0]["id"] in got.text
    assert refusal(asked(one, "GET", "/key_nobodys"))[:2] == (404, "key_not_found")
    assert refusal(asked(one, "GET", "?after=key_nobodys"))[2] == "after"


def test_s12_1_keys_are_listed_in_pages(one: GatewayProcess) -> None:
    """Those of the configuration behind the others, each once."""
    mine = [made(one, tenant="pages")["id"] for _ in range(3)]
    seen: list[str] = []
    after = ""
    while True:
        page = answered(one, "GET", f"?limit=2{after}")
        seen += [each["id"] for each in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert len(seen) == len(set(seen))
    assert [each for each in seen if each in mine] == mine[::-1]


def test_s12_1_a_key_asks_the_models_that_it_names(
    one: GatewayProcess, make_client: ClientFactory, upstream: MockUpstream
) -> None:
    """In each API, relayed bodies and paths, dry runs and internal models; before anything is paid. What is not served
    at all stays a 404."""
    key = made(one, models=["small", "emb-*"])["key"]
    assert status(one, key, "small") == 200
    listed = [each.id for each in make_client(one, key).models.list()]
    assert listed == ["small"]
    before = len(upstream.chats)
    with pytest.raises(PermissionDeniedError) as refused:
        make_client(one, key).chat.completions.create(model="gpt-4o", messages=[user("hi")])
    assert refused.value.code == "model_not_allowed"
    said = {"messages": [user("hi")], "max_tokens": 9}
    internal = {"context": {"models": {"summarizer": "gpt-4o"}}}
    tries: list[tuple[str, Json]] = [
        ("/chat/completions", {"model": "gpt-4o", "context": {"dry_run": True}, **said}),
        ("/chat/completions", {"model": "small", **internal, **said}),
        ("/responses", {"model": "gpt-4o", "input": "hi"}),
        ("/responses/input_tokens", {"model": "gpt-4o", "input": "hi"}),
        ("/messages", {"model": "gpt-4o", **said}),
        ("/messages/count_tokens", {"model": "gpt-4o", **said}),
        ("/embeddings", {"model": "gpt-4o", "input": "hi"}),
        ("/embeddings", {"model": "unlisted", "input": "hi"}),
    ]
    with one.http(key) as client:
        for path, body in tries:
            got = client.post(path, json=body)
            assert got.status_code == 403, (path, got.text)
        assert client.get("/models/gpt-4o").status_code == 403
        relayed = client.post("/embeddings", content=b'{"model": "gpt-4o", "model": "emb-1", "input": "hi"}')
        assert relayed.status_code == 200, relayed.text
        assert upstream.last.raw.count(b'"model"') == 1, "as it was understood"
        assert client.post("/embeddings", json={"input": "hi"}).status_code == 400
    assert len(upstream.chats) == before


def test_s12_1_a_keys_defaults_of_context_hold_where_requests_say_nothing(one: GatewayProcess) -> None:
    key = made(one, context={"mode": "off"})["key"]
    body: Json = {"model": "small", "messages": [user("hi")]}
    with one.http(key) as client:
        chats = client.post("/chat/completions", json=body).json()
        own = client.post("/chat/completions", json={**body, "context": {"mode": "simple"}}).json()
        by_header = client.post("/chat/completions", json=body, headers={"x-context-mode": "simple"}).json()
        response = client.post("/responses", json={"model": "small", "input": "hi"}).json()
        message = client.post("/messages", json={**body, "max_tokens": 9}).json()
    counted = [each["response_metadata"]["context_utilization"]["tokens_used"] for each in (chats, response, message)]
    assert counted == [None, None, None], "mode off counts nothing"
    for each in (own, by_header):
        assert each["response_metadata"]["context_utilization"]["tokens_used"]


def test_s12_2_a_runtime_key_logs_in_and_its_session_ends_with_it(pair: Pair) -> None:
    """On the replica that did not revoke it, too: the page asks for each request."""
    key = made(pair.one, roles=["viewer"])
    with PageClient(pair.two.url) as browser:
        assert browser.log_in(key["key"]).headers["location"] == "/ui"
        assert browser.get("/ui/conversations").status_code == 200
        answered(pair.one, "DELETE", f"/{key['id']}")
        assert browser.get("/ui/conversations").status_code == 303
    with PageClient(pair.one.url) as browser:
        assert browser.log_in(key["key"]).status_code == 401


def test_s12_2_what_a_page_asks_ends_with_the_key_that_is_logged_in(pair: Pair, upstream: MockUpstream) -> None:
    """A stream of the page has no key of its own to be looked at; that of the session counts."""
    key = made(pair.one, roles=["user", "viewer"])
    upstream.reply(text="one two three", stall_after=2)
    with PageClient(pair.two.url) as browser:
        browser.log_in(key["key"])
        sent = {"csrf": browser.token("/ui/try"), "model": "gpt-4o", "message": "Count."}
        form = [(name, (None, value)) for name, value in sent.items()]
        with browser.client.stream("POST", "/ui/try", files=form, headers={"accept": "text/event-stream"}) as shown:
            lines = shown.iter_lines()
            assert "one" in next(lines)
            answered(pair.one, "DELETE", f"/{key['id']}")
            assert any("does not count any more" in line for line in lines)
    wait_until(lambda: upstream.in_flight == 0, "upstream is left")


def test_s12_1_a_key_of_ours_never_goes_upstream(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Where clients' own keys are relayed, too, in whichever place it stands."""
    key = "sk-gw-" + "k" * 43
    body: Json = {"model": "gpt-4o", "messages": [user("hi")], "max_tokens": 9}
    for name in ("authorization", "x-api-key", "api-key", "x-other", "openai-organization"):
        for path in ("/chat/completions", "/messages", "/files", "/embeddings"):
            value = f"Bearer {key}" if name == "authorization" else key
            own_key_gateway.post(f"{path}?key={key}&other={key}", json=body, headers={name: value}, key=None)
    assert own_key_gateway.post("/chat/completions", json=body, key=key).status_code == 401
    assert own_key_gateway.get("/gateway/nothing", key=key).status_code == 404
    for record in upstream.requests:
        assert key not in f"{record.path} {record.headers}".lower()


def test_s12_1_keys_are_as_described(one: GatewayProcess) -> None:
    with httpx.Client(trust_env=False) as client:
        described = client.get(f"{one.url}/openapi.json").json()
    key = made(one, context={"mode": "simple"}, budgets=[{"usd": 0.5}], expires_at="2099-01-01T00:00:00Z")
    check(described, "NewKey", key)
    check(described, "Key", answered(one, "GET", f"/{key['id']}"))
    check(described, "Keys", answered(one, "GET", ""))
    check(described, "NewKey", answered(one, "POST", f"/{key['id']}/rotate", {}))


def test_s12_1_the_page_and_mcp_keep_to_the_key(one: GatewayProcess, upstream: MockUpstream) -> None:
    """What is asked on the page is asked with the key that is logged in: its models are all that it may ask there."""
    key = made(one, roles=["user", "viewer"], models=["small"])
    before = len(upstream.chats)
    with PageClient(one.url) as browser:
        browser.log_in(key["key"])
        seen = {}
        for model in ("gpt-4o", "small"):
            fields = {"csrf": browser.token("/ui/try"), "model": model, "message": "hi"}
            parts = [(name, (None, value)) for name, value in fields.items()]
            seen[model] = browser.client.post("/ui/try", files=parts).status_code
    assert seen == {"gpt-4o": 403, "small": 200}
    assert len(upstream.chats) == before + 1
    told = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"accept": "application/json, text/event-stream"}
    assert one.post(f"{one.url}/mcp", json=told, headers=headers, key=key["key"]).status_code != 401
    answered(one, "DELETE", f"/{key['id']}")
    assert one.post(f"{one.url}/mcp", json=told, headers=headers, key=key["key"]).status_code == 401
