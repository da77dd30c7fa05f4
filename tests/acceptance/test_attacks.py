"""Attacks on keys, roles and tenants: what was found in gateways for models in 2025 and 2026, tried on this one
(guarantee §8, §12.1, §12.2). Each test names the fault, and the advisory where there is one.
"""

import json
import re
from typing import Any

import httpx

from tests.support.answers import Json, ok, user
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.sockets import RawClient, get, post

ROOT, RED, BLUE = "gw-root-key-of-ops", "gw-red-house-key", "gw-blue-house-key"
OPERATORS = "sk-upstream"
CHAT: Json = {"model": "small", "messages": [user("hi")], "max_tokens": 9}
BYTES = json.dumps(CHAT).encode()
OPEN_TO_ALL = {"/", "/openapi.json", "/health/live", "/health/ready", "/api/v1/health"}
"""Paths that tell nothing of anybody."""
FORGED: tuple[dict[str, str], ...] = (
    {},
    {"host": "gateway/health/live?"},
    {"host": "127.0.0.1/health/live#"},
    {"x-original-url": "/health/live", "x-rewrite-url": "/health/live"},
    {"x-http-method-override": "OPTIONS"},
    {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1"},
    {"x-forwarded-user": "root", "x-gateway-tenant": "ops", "x-tenant": "ops", "x-user-id": "admin"},
)


def settings_of_attacked(_: MockUpstream) -> dict[str, Any]:
    keys = [
        {"key": ROOT, "tenant": "ops", "roles": ["admin", "user"]},
        {"key": RED, "tenant": "red", "project": "reds"},
        {"key": BLUE, "tenant": "blue"},
    ]
    return {"auth": {"keys": keys}, "server": {"metrics": "key"}}


attacked = shared_gateway(settings_of_attacked)
"""A gateway with keys of two tenants, and one of an administrator."""


def made(gateway: GatewayProcess, **fields: Any) -> Json:
    return asked(gateway, "POST", "/gateway/keys", {"tenant": "red", **fields}, ROOT).json()  # type: ignore[no-any-return]


def asked(
    gateway: GatewayProcess, method: str, path: str, body: Json | None = None, key: str | None = RED, **headers: str
) -> httpx.Response:
    return gateway.request(method, path, json=body, headers=headers, key=key)


def status(gateway: GatewayProcess, key: str | None) -> int:
    return asked(gateway, "POST", "/chat/completions", CHAT, key).status_code


def test_s12_1_a_key_that_shares_its_beginning_with_one_that_was_just_used(
    attacked: GatewayProcess, upstream: MockUpstream
) -> None:
    """Caches by a prefix of the token (CVE-2026-35030); truncated, case-changed, padded, doubled and encoded keys. Each
    is a 401 in the same words, whatever of it is right."""
    key = made(attacked)["key"]
    assert status(attacked, key) == 200, "it is kept in the process now"
    fullwidth = key.replace("s", "\N{FULLWIDTH LATIN SMALL LETTER S}", 1).encode().decode("latin-1")
    nearly = [key[:20] + "x" * (len(key) - 20), key[:-1] + ("A" if key[-1] != "A" else "B"), key[:-1], key + "x"]
    nearly += [key.swapcase(), key.upper(), f'"{key}"', f"{key},{key}", f"{key} {key}", f"Bearer {key}", fullwidth]
    nearly += [f"{key}\xa0", f"\x85{key}", f"{key}%20", key.replace("-", "%2D"), f"{key};", f"{key}=", key[:6]]
    nearly += [f"{RED}\xa0", RED.upper(), RED[:-1], f"\x85{RED}", RED[:8]]
    before = len(upstream.requests)
    told = set()
    with RawClient(attacked) as client:
        for each in nearly:
            for field in (f"authorization: Bearer {each}", f"x-api-key: {each}"):
                answer = client.ask(post(BYTES, field))
                assert answer.status == 401, field
                told.add(answer.error["message"])
    assert told == {"This API key is not known here. Send one as 'Authorization: Bearer KEY'."}
    for each in (f"{key}\0", f"\0{key}", f"{key}\r\nx-api-key: {key[:9]}\0"):
        with RawClient(attacked) as client:
            assert client.ask(post(BYTES, f"authorization: Bearer {each}")).status == 400
    assert len(upstream.requests) == before
    assert status(attacked, key) == 200


def test_s12_1_sql_in_a_key(attacked: GatewayProcess, upstream: MockUpstream) -> None:
    """A key that becomes part of a query (CVE-2026-42208): it is a 401, in whichever header, and changes nothing."""
    keys = asked(attacked, "GET", "/gateway/keys?limit=100&include_revoked=true", key=ROOT).json()
    injected = ["' OR '1'='1", "x'; DROP TABLE api_keys; --", "' UNION SELECT digest FROM api_keys --", "%", "_" * 49]
    injected += [f"sk-gw-{each:A<43}" for each in ("' OR 1=1 --", "'||'", "%", "_", "\\")]
    for each in injected:
        assert status(attacked, each) == 401, each
        assert asked(attacked, "POST", "/chat/completions", CHAT, None, **{"x-api-key": each}).status_code == 401, each
        for path in (f"/gateway/keys?owner={each}", f"/gateway/keys?tenant={each}"):
            assert asked(attacked, "GET", path.replace("%", "%25"), key=ROOT).json()["data"] == [], each
    assert asked(attacked, "GET", "/gateway/keys?limit=100&include_revoked=true", key=ROOT).json() == keys
    assert not upstream.requests


def _described(gateway: GatewayProcess) -> list[tuple[str, str]]:
    paths = gateway.get(f"{gateway.url}/openapi.json", key=None).json()["paths"]
    calls = [(method.upper(), path) for path, methods in paths.items() for method in methods if path not in OPEN_TO_ALL]
    return [(method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in calls if method in METHODS]


METHODS = ("GET", "POST", "DELETE")


def test_s8_no_path_answers_without_a_key_that_counts(attacked: GatewayProcess, upstream: MockUpstream) -> None:
    """Endpoints that somebody forgot to guard; a refusal that ends as a default identity; a `Host` or another header
    by which the guard sees another path (CVE-2026-48710). Every described path, and paths that are relayed."""
    key = made(attacked)
    asked(attacked, "DELETE", f"/gateway/keys/{key['id']}", key=ROOT)
    expired = made(attacked, expires_at="2020-01-01T00:00:00Z")["key"]
    calls = [*_described(attacked), ("GET", "/v1/files"), ("POST", "/v1/embeddings"), ("POST", "/v1/batches")]
    assert len(calls) > 40
    fields = [[f"{name}: {value}" for name, value in headers.items()] for headers in FORGED]
    tokens = [[], ["authorization: Bearer"], ["authorization: Basic cm9vdDpyb290"], ["authorization: Bearer null"]]
    tokens += [[f"authorization: Bearer {each}"] for each in ("anonymous", "unknown", "ops", expired, key["key"])]
    seen: set[tuple[str, str, int]] = set()
    with RawClient(attacked) as client:
        for method, path in calls:
            for more in [*((token, []) for token in tokens), *(([], forged) for forged in fields)]:
                lines = [f"{method} {path} HTTP/1.1", *(line for part in more for line in part), "content-length: 2"]
                host = [] if any(line.startswith("host:") for line in lines) else ["host: 127.0.0.1"]
                answer = client.ask("\r\n".join([*lines, *host, "", ""]).encode() + b"{}")
                if answer.status not in (401, 403, 404) or (answer.status != 401 and not path.startswith("/ui")):
                    seen.add((method, path, answer.status))
    assert not {each for each in seen if not _asks_for_a_login(*each)}
    assert not upstream.requests


def _asks_for_a_login(method: str, path: str, code: int) -> bool:
    """Whether it is the page, which sends to its login."""
    return path.startswith("/ui") and (code == 303 or path.startswith("/ui/login"))


def test_s8_two_keys_in_one_request_are_none(attacked: GatewayProcess, upstream: MockUpstream) -> None:
    """What stands in front may look at the other `Authorization`: two that differ are refused, two alike are one."""
    with RawClient(attacked) as client:
        for name, red, blue in (
            ("authorization", f"Bearer {RED}", f"Bearer {BLUE}"),
            ("authorization", f"Bearer {RED}", "Basic eDp5"),
            ("x-api-key", RED, BLUE),
        ):
            for first, second in ((red, blue), (blue, red)):
                answer = client.ask(post(BYTES, f"{name}: {first}", f"{name}: {second}"))
                assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
            assert client.ask(post(BYTES, f"{name}: {red}", f"{name}: {red}")).status == 200
        for field in (f"authorization_: Bearer {RED}", f"x_api_key: {RED}", f"x-authorization: Bearer {RED}"):
            assert client.ask(post(BYTES, field)).status == 401, "no other name is that header"
    assert len(upstream.chats) == 3


FIELDS: Json = {
    "allowed_routes": ["/*"],
    "user_role": "proxy_admin",
    "roles": ["admin"],
    "tenant": "ops",
    "team_id": "ops",
    "key_alias": "root",
    "permissions": {"admin": True},
    "metadata": {"user_api_key": "x", "user_api_key_user_id": "root", "user_api_key_team_id": "ops", "tenant": "ops"},
    "litellm_metadata": {"user_api_key_auth": {"user_role": "proxy_admin"}},
    "proxy_server_request": {"headers": {"authorization": f"Bearer {ROOT}"}},
}


def test_s12_1_no_field_of_a_request_makes_another_of_its_sender(attacked: GatewayProcess) -> None:
    """Roles and routes that a client gives itself (CVE-2026-47101, CVE-2026-47102): whose a bill is, and what a key
    may do, is what its maker said."""
    made_one = made(attacked, project="own")
    key, key_id = made_one["key"], made_one["id"]
    headers = {"x-tenant": "ops", "x-litellm-user-role": "proxy_admin", "openai-project": "ops", "x-key-id": "root"}
    answer = ok(asked(attacked, "POST", "/chat/completions", {**CHAT, **FIELDS}, key, **headers))
    request_id = answer["response_metadata"]["request_id"]
    assert asked(attacked, "GET", f"/chat/completions/{request_id}", key=RED).status_code == 200, "it is red's"
    assert asked(attacked, "GET", f"/chat/completions/{request_id}", key=ROOT).status_code == 404
    for method, path in (
        ("POST", "/gateway/keys"),
        ("POST", f"/gateway/keys/{key_id}"),
        ("POST", f"/gateway/keys/{key_id}/rotate"),
        ("DELETE", f"/gateway/keys/{key_id}"),
        ("GET", f"/gateway/keys/{key_id}"),
        ("GET", "/gateway/trail"),
        ("GET", "/gateway/trail/export"),
        ("POST", "/gateway/keys/self"),
        ("DELETE", "/gateway/keys/self"),
    ):
        found = asked(attacked, method, path, FIELDS if method == "POST" else None, key, **headers)
        assert found.status_code in (403, 404, 405), (method, path)
    own = asked(attacked, "GET", "/gateway/keys/self", key=key).json()
    assert (own["roles"], own["tenant"], own["project"]) == (["user"], "red", "own")


MANAGEMENT = [
    *("/key/generate", "/key/update", "/key/info", "/user/new", "/user/update", "/user/bulk_update", "/team/new"),
    *("/prompts/test", "/mcp-rest/test/connection", "/mcp-rest/test/tools/list", "/guardrails/test_custom_code"),
    *(
        "/config/update",
        "/model/new",
        "/model/info",
        "/spend/logs",
        "/global/spend",
        "/cache/flushall",
        "/sso/callback",
    ),
    *("/api/user/login", "/api/channel/", "/api/token/", "/api/setup", "/api/config", "/api/providers", "/admin"),
    *(
        "/v1/proxy/chat/completions",
        "/config",
        "/routes",
        "/debug/asyncio-tasks",
        "/.env",
        "/..%2f.env",
        "/static/../.env",
    ),
]


def test_s12_1_what_other_gateways_manage_themselves_by_is_not_there(
    attacked: GatewayProcess, upstream: MockUpstream
) -> None:
    """Templates rendered for whoever sends one (CVE-2026-42203), commands run for a test (CVE-2026-42271), code of a
    guardrail (CVE-2026-40217), proxies past the checks: no such path is served or relayed, to nobody."""
    body: Json = {
        "template": "{{ cycler.__init__.__globals__ }}",
        "prompt": "{{7919*7907}}",
        "command": "touch",
        "args": ["/tmp/x"],
        "code": "import os",
        "model": "small",
        "messages": [user("hi")],
    }
    for path in MANAGEMENT:
        for key in (None, RED, ROOT):
            for method in ("GET", "POST"):
                for base in (attacked.url, attacked.base_url):
                    sent = body if method == "POST" else None
                    found = asked(attacked, method, f"{base}{path}", sent, key)
                    assert found.status_code in (401, 404), (method, base + path, found.text)
    assert not upstream.requests


def test_s2_templates_in_what_a_client_says_are_text(attacked: GatewayProcess, upstream: MockUpstream) -> None:
    """Whatever is rendered for a client runs in the gateway (CVE-2026-1868, CVE-2026-42203): nothing is."""
    counted = "{{7919*7907}} ${7919*7907} <%= 7919*7907 %> #{7919*7907}"
    evil = counted + " {% import os %} {0.__class__} %(x)s $(id) `id` {{ config }}"
    body: Json = {
        **CHAT,
        "messages": [{"role": "system", "content": evil}, user(evil)],
        "user": evil[:60],
        "attachments": [{"content": evil, "title": evil[:40], "source": evil[:40]}],
    }
    answer = ok(asked(attacked, "POST", "/chat/completions", body))
    sent = upstream.last.body["messages"]
    assert sent[0]["content"] == evil
    assert sent[-1]["content"].endswith(evil)
    assert "62615533" not in upstream.last.raw.decode()
    conversation = answer["conversation"]["id"]
    items = asked(attacked, "GET", f"/conversations/{conversation}/items").text
    assert json.dumps(evil)[1:-1] in items
    assert "62615533" not in items.replace(conversation, "")


def test_s7_4_no_key_stands_in_log_or_error(attacked: GatewayProcess, upstream: MockUpstream) -> None:
    """Keys in the log, also where a client put them in a wrong place, or an upstream says them again."""
    key = made(attacked)["key"]
    lost = "sk-somebody-else-0123456789"
    asked(attacked, "POST", f"/chat/completions?api_key={key}&key={lost}", {**CHAT, "api_key": lost}, key)
    asked(attacked, "POST", f"/embeddings?api_key={key}", {"model": "small", "input": "x", "api_key": lost}, key)
    asked(attacked, "POST", "/chat/completions", {**CHAT, "api_base": f"http://{lost}"}, lost, cookie=f"session={key}")
    upstream.reply(status=401, json={"error": {"message": f"Incorrect API key provided: {OPERATORS}"}})
    refused = asked(attacked, "POST", "/chat/completions", CHAT, key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (502, "upstream_auth")
    assert OPERATORS not in refused.text
    log = attacked.log_text()
    assert '"event":"request"' in log.replace('": "', '":"')
    for secret in (key, lost, ROOT, RED, BLUE, OPERATORS):
        assert secret not in log


def test_s8_every_id_of_another_tenant_is_as_one_that_is_not_there(
    attacked: GatewayProcess, upstream: MockUpstream
) -> None:
    """Lookups that forget whose an id is: conversations with all below them, completions, responses, documents, things
    that are remembered, turns, replays. Blue gets the same for an id of red's and for one of nobody's."""
    chat = {**CHAT, "memory": {"remember": [{"type": "file", "id": "f1", "name": "the will"}]}, "user": "ann"}
    answer = asked(attacked, "POST", "/chat/completions", {**chat, "attachments": [{"content": "the cat"}]}).json()
    response = asked(attacked, "POST", "/responses", {"model": "small", "input": "hello"}).json()
    own: dict[str, str] = {"conversation_id": answer["conversation"]["id"], "completion_id": answer["id"]}
    own["response_id"] = response["id"]
    at = f"/conversations/{own['conversation_id']}"
    for name, path in (("item_id", "items"), ("attachment_id", "attachments"), ("memory_id", "memory")):
        own[name] = asked(attacked, "GET", f"{at}/{path}").json()["data"][0]["id"]
    own["number"] = "1"
    paths = attacked.get(f"{attacked.url}/openapi.json", key=None).json()["paths"]
    tried = 0
    for path, methods in paths.items():
        names = re.findall(r"\{([^}]*)\}", path)
        if not names or not set(names) <= own.keys() or not path.startswith("/v1/"):
            continue
        for method in (each.upper() for each in methods if each in ("get", "post", "delete")):
            sent: Json | None = {"from_turn": 1, "items": [], "metadata": {}} if method == "POST" else None
            theirs = path.removeprefix("/v1").format(**own)
            nobodys = path.removeprefix("/v1").format(**{**{n: f"{own[n][:5]}none" for n in own}, "number": "1"})
            found, none = (asked(attacked, method, each, sent, BLUE) for each in (theirs, nobodys))
            assert found.status_code == none.status_code, (method, path)
            assert found.status_code in (400, 404), (method, path, found.text)
            for name, value in own.items():
                assert value not in found.text.replace(theirs, "") or name == "number" or found.status_code == 404
            tried += 1
    assert tried >= 25
    before = len(upstream.chats)
    for body in (
        {"model": "small", "input": "more", "previous_response_id": own["response_id"]},
        {"model": "small", "input": "more", "conversation": own["conversation_id"]},
    ):
        nobody = {name: re.sub(r"_.*", "_none", value) for name, value in body.items()}
        got, none = (
            asked(attacked, "POST", "/responses", body, BLUE),
            asked(attacked, "POST", "/responses", nobody, BLUE),
        )
        assert got.status_code == none.status_code
        assert got.status_code in (400, 404)
    assert len(upstream.chats) == before
    assert asked(attacked, "GET", at).status_code == 200


def test_s8_what_is_brought_from_elsewhere_takes_nobodys_place(
    attacked: GatewayProcess, upstream: MockUpstream
) -> None:
    """An export that names another tenant's conversation, a compaction item that was sealed for another, a report that
    asks for another's key: what comes of it is the sender's own, or nothing."""
    told = asked(attacked, "POST", "/chat/completions", {**CHAT, "messages": [user("the cat inherits")]}).json()
    at = f"/conversations/{told['conversation']['id']}"
    export = asked(attacked, "GET", f"{at}/export").text
    before = asked(attacked, "GET", f"{at}/items").json()
    forged = export.replace("the cat inherits", "blue inherits")
    found = attacked.post("/conversations/import", content=forged, key=BLUE)
    assert found.status_code == 200, found.text
    assert told["conversation"]["id"] not in [each["id"] for each in map(json.loads, found.text.splitlines())]
    assert asked(attacked, "GET", f"{at}/items").json() == before
    assert asked(attacked, "GET", at, key=BLUE).status_code == 404
    whole: Json = {"model": "small", "input": [user("the cat inherits")]}
    sealed = asked(attacked, "POST", "/responses/compact", whole).json()
    items = [each for each in sealed["output"] if each["type"] == "compaction"]
    assert items
    sent = len(upstream.chats)
    got = asked(attacked, "POST", "/responses", {"model": "small", "input": [*items, user("and?")]}, BLUE)
    assert got.status_code == 400, got.text
    assert len(upstream.chats) == sent
    own = asked(attacked, "GET", "/gateway/keys/self", key=RED).json()["id"]
    for query in (f"api_key_ids[]={own}", "project_ids[]=reds", "group_by[]=api_key_id"):
        costs = asked(attacked, "GET", f"/organization/costs?start_time=1700000000&limit=1&{query}", key=BLUE)
        assert own not in costs.text.replace(query, "")
        assert "reds" not in costs.text


def test_s12_1_a_key_id_opens_nothing(attacked: GatewayProcess, upstream: MockUpstream) -> None:
    """What reports name (ids, hints, digests of tenants) is no credential, nor is what others are called."""
    key = made(attacked)
    reported = [key["id"], key["id"].removeprefix("key_"), key["hint"], f"sk-gw-{key['id']}", "red", "ops", "anonymous"]
    for each in reported:
        assert status(attacked, each) == 401
    with RawClient(attacked) as client:
        answer = client.ask(get("/v1/gateway/keys/" + key["id"], f"authorization: Bearer {RED}"))
    assert answer.status == 403
    assert not upstream.requests
