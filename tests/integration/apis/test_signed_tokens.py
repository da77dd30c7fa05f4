"""Tokens that an identity provider signs, as bearers of the API (guarantee §12.17)."""

import json
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from gateway.core.config.setting_sections import AuthSettings
from gateway.core.config.settings import Settings
from gateway.operations.check import check_issuers
from tests.support.answers import Json, ok, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.oidc_provider import OidcProvider, encoded, encoded_part
from tests.support.process import wait_until, within_a_minute

KEY, ADMIN = "gw-plain-key-1", "gw-admin-key-2"
ROLES = {"staff": "user", "leads": ["user", "viewer"], "operators": ["user", "admin"]}
CLAIMS = {"tenant": "org", "roles": "realm_access.roles", "project": "team", "models": "may_ask", "user": "email"}
STAFF: Json = {
    "org": "acme",
    "team": "search",
    "email": "ann@acme.example",
    "may_ask": ["small", "gpt-4o*"],
    "realm_access": {"roles": ["staff", "elsewhere"]},
}


def jwt_settings(provider: OidcProvider, **more: Any) -> Json:
    return {"issuer": provider.issuer, "audience": "gateway-api", "claims": CLAIMS, "roles": ROLES, **more}


@pytest.fixture(scope="module")
def module_provider() -> Iterator[OidcProvider]:
    with OidcProvider() as running:
        yield running


@pytest.fixture
def provider(module_provider: OidcProvider) -> OidcProvider:
    module_provider.is_broken = False
    module_provider.asked.clear()
    return module_provider


@pytest.fixture(scope="module")
def module_gated(module_start_gateway: GatewayFactory, module_provider: OidcProvider) -> GatewayProcess:
    keys = [{"key": KEY, "tenant": "acme"}, {"key": ADMIN, "tenant": "ops", "roles": ["user", "admin"]}]
    return module_start_gateway({"auth": {"keys": keys, "jwt": jwt_settings(module_provider)}})


@pytest.fixture
def gated(module_gated: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    return module_gated


def ask(gateway: GatewayProcess, token: str | None, model: str = "small", **body: Any) -> httpx.Response:
    return gateway.post("/chat/completions", json={"model": model, "messages": [user("hello")], **body}, key=token)


def signed(header: Json, claims: Json, key: Any) -> str:
    """A token with headers that a library would not write."""
    text = f"{encoded_part(header)}.{encoded_part(claims)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # EdDSA is what issuers still write
        signature = JWSRegistry(algorithms=[header["alg"]]).get_alg(header["alg"]).sign(text.encode(), key)
    return f"{text}.{encoded(signature)}"


def refused(answer: httpx.Response, status: int) -> Json:
    assert answer.status_code == status, answer.text
    error: Json = answer.json()["error"]
    return error


def test_s12_17_a_token_says_whose_its_requests_are_in_each_api(
    gated: GatewayProcess, provider: OidcProvider, upstream: MockUpstream
) -> None:
    """Tenant, project, user and allowed models are the token's, in the three APIs; nothing of it goes upstream."""
    token = provider.token(**STAFF)
    chat = gated.post(
        "/chat/completions", json={"model": "small", "messages": [user("hi")], "user": "mallory"}, key=token
    )
    response = gated.post("/responses", json={"model": "small", "input": "hi", "user": "mallory"}, key=token)
    by_key = {"x-api-key": token, "authorization": ""}
    message = {"model": "small", "max_tokens": 50, "messages": [user("hi")]}
    said = gated.post("/messages", json=message, headers=by_key, key=token)
    for answer in (chat, response, said):
        assert answer.status_code == 200, answer.text
    assert token not in json.dumps([(each.headers, each.body) for each in upstream.requests], default=str)
    query: dict[str, int | str] = {"start_time": int(time.time()) - 3600, "group_by": "user_id"}
    costs = gated.get("/organization/usage/completions", params=query, key=ADMIN).json()
    query["group_by"] = "project_id"
    projects = gated.get("/organization/usage/completions", params=query, key=ADMIN).json()
    users = {each["user_id"]: each["num_model_requests"] for day in costs["data"] for each in day["results"]}
    assert users["ann@acme.example"] >= 3
    assert "mallory" not in users
    assert "search" in {each["project_id"] for day in projects["data"] for each in day["results"]}
    assert refused(ask(gated, token, "bench"), 403)["code"] == "model_not_allowed"
    own = gated.get("/gateway/keys/self", key=token).json()
    assert (own["source"], own["tenant"], own["roles"]) == ("token", "acme", ["user"])
    assert gated.get("/gateway/keys", key=token).status_code == 403


def test_s12_17_a_tokens_user_notes_and_reads_of_nobody_else(gated: GatewayProcess, provider: OidcProvider) -> None:
    """Whatever `user` a request for the memory names."""
    conversation = ask(gated, provider.token(**STAFF)).json()["conversation"]["id"]
    bob = provider.token(**{**STAFF, "email": "bob@acme.example", "sub": "bob"})
    noted = {
        "remember": [{"type": "fact", "id": "basel", "name": "Basel"}],
        "scope": "user",
        "user": "ann@acme.example",
    }
    made = gated.post(f"/conversations/{conversation}/memory", json=noted, key=bob)
    assert made.status_code == 200, made.text
    found = gated.get("/memory", params={"user": "ann@acme.example", "query": "Basel"}, key=bob)
    assert [each["name"] for each in found.json()["data"]] == ["Basel"]
    with gated.http(provider.token(**STAFF)) as client:
        assert client.get("/memory", params={"user": "bob@acme.example", "query": "Basel"}).json()["data"] == []


def test_s12_17_a_tokens_user_sees_and_deletes_no_other_users_memory(
    gated: GatewayProcess, provider: OidcProvider
) -> None:
    """Nor where a request names none; what conversations of the tenant are about is there as for a key."""
    conversation = ask(gated, provider.token(**STAFF)).json()["conversation"]["id"]
    bob = provider.token(**{**STAFF, "email": "bob@acme.example", "sub": "bob"})
    noted = {"remember": [{"type": "fact", "id": "ulm", "name": "Ulm"}], "scope": "user"}
    with gated.http(bob) as client:
        assert client.post(f"/conversations/{conversation}/memory", json=noted).status_code == 200
        both = client.get("/memory", params={"type": "fact"}).json()["data"]
        assert {each["scope"] for each in both} >= {"user", "conversation"}
        (of_bob,) = (each["id"] for each in both if each["scope"] == "user" and each["thing_id"] == "ulm")
        assert of_bob in {each["id"] for each in client.get("/memory", params={"query": "Ulm"}).json()["data"]}
        assert client.get(f"/memory/{of_bob}").status_code == 200
    with gated.http(provider.token(**STAFF)) as client:
        for query in ({}, {"query": "Ulm"}, {"query": "fact"}):
            found = client.get("/memory", params=query).json()["data"]
            assert [each["scope"] for each in found if each["thing_id"] == "ulm"] == ["conversation"]
        searching = {"name": "search_conversations", "arguments": {"query": "Ulm"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": searching}
        accepts = {"accept": "application/json, text/event-stream"}
        searched = client.post(f"{gated.url}/mcp", json=message, headers=accepts).json()["result"]["structuredContent"]
        assert [each["scope"] for each in searched["things"] if each["thing_id"] == "ulm"] == ["conversation"]
        assert refused(client.get(f"/memory/{of_bob}"), 404)["code"] == "memory_not_found"
        assert refused(client.delete(f"/memory/{of_bob}"), 404)["code"] == "memory_not_found"
    assert gated.delete(f"/memory/{of_bob}", key=bob).status_code == 200


def test_s12_17_relayed_calls_have_the_operators_key_and_the_tokens_user(
    gated: GatewayProcess, provider: OidcProvider, upstream: MockUpstream
) -> None:
    token = provider.token(**{**STAFF, "email": "eve@acme.example"})
    body = {"model": "small", "input": "hi", "user": "mallory"}
    assert gated.post("/embeddings", json=body, key=token).status_code == 200
    assert (
        refused(gated.post("/embeddings", json={**body, "model": "bench"}, key=token), 403)["code"]
        == "model_not_allowed"
    )
    sent = next(each for each in upstream.requests if each.path.endswith("/embeddings"))
    assert sent.headers["authorization"] == "Bearer sk-upstream"
    assert token not in str(sent.headers) + sent.raw.decode()
    query: dict[str, int | str] = {"start_time": int(time.time()) - 3600, "group_by": "user_id"}

    def told() -> set[str]:
        days = gated.get("/organization/usage/embeddings", params=query, key=ADMIN).json()["data"]
        return {each["user_id"] for day in days for each in day["results"]}

    wait_until(lambda: "eve@acme.example" in told(), "the bill")
    assert "mallory" not in told()


def test_s12_17_the_user_of_a_token_parts_conversations_that_nobody_named(
    gated: GatewayProcess, provider: OidcProvider
) -> None:
    """Two people of a tenant who said the same do not continue each other's, whatever `user` they send."""
    ann, bob = (provider.token(**{**STAFF, "email": name}) for name in ("ann@acme.example", "bob@acme.example"))
    question = [user("a question that both ask")]
    first = gated.post("/chat/completions", json={"model": "small", "messages": question}, key=ann).json()
    said = [*question, first["choices"][0]["message"], user("and on")]
    body = {"model": "small", "messages": said, "user": "ann@acme.example"}
    found = {}
    for name, token in (("ann", ann), ("bob", bob)):
        found[name] = gated.post("/chat/completions", json=body, key=token).json()["conversation"]["id"]
    assert found["ann"] == first["conversation"]["id"] != found["bob"]


def test_s12_17_limits_of_keys_hold_for_each_subject(start_gateway: GatewayFactory, provider: OidcProvider) -> None:
    limits = {"keys": {"limits": {"rpm": 1}}}
    gateway = start_gateway({"auth": {"jwt": jwt_settings(provider)}, "limits": limits})
    within_a_minute()
    found = [ask(gateway, provider.token(**STAFF, sub=name)).status_code for name in ("ann", "bob", "ann")]
    assert found == [200, 200, 429]


async def test_s12_17_check_says_whether_issuers_can_be_asked(provider: OidcProvider) -> None:
    auth = AuthSettings.model_validate({"jwt": jwt_settings(provider)})
    (found,) = [each async for each in check_issuers(Settings(auth=auth))]
    assert (found.name, found.ok, "1 key " in found.text) == ("auth.jwt", True, True)
    provider.is_broken = True
    (found,) = [each async for each in check_issuers(Settings(auth=auth))]
    assert (found.ok, "500" in found.text) == (False, True)


def test_s12_17_tenants_of_tokens_are_kept_apart_and_share_with_their_keys(
    gated: GatewayProcess, provider: OidcProvider
) -> None:
    mine, theirs = provider.token(**STAFF), provider.token(**{**STAFF, "org": "blue"}, sub="bob")
    found = ask(gated, mine).json()["conversation"]["id"]
    seen = {}
    for name, token in (("own", mine), ("tenant's key", KEY), ("other", theirs)):
        seen[name] = gated.get(f"/conversations/{found}", key=token).status_code
    assert seen == {"own": 200, "tenant's key": 200, "other": 404}


def test_s12_17_an_administrators_token_acts_by_its_subject_in_the_trail(
    gated: GatewayProcess, provider: OidcProvider
) -> None:
    token = provider.token(**{**STAFF, "org": "ops", "realm_access": {"roles": ["operators"]}}, name="Olga")
    made = ok(gated.post("/gateway/keys", json={"tenant": "acme"}, key=token))
    events = gated.get("/gateway/trail", params={"order": "desc", "after": 10**9, "limit": 5}, key=token).json()["data"]
    own = gated.get("/gateway/keys/self", key=token).json()["id"]
    found = next(each for each in events if each["object_id"] == made["id"])
    assert (found["actor_name"], found["actor"]) == ("Olga", own)
    assert own.startswith("sub_")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": int(time.time()) - 3600}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": int(time.time()) + 3600}, "nbf"),
        ({"iat": int(time.time()) + 3600}, "iat"),
        ({"aud": "another"}, "aud"),
        ({"aud": ["another", "third"]}, "aud"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "sub"),
        ({"exp": "soon"}, "exp"),
        ({"groups": [f"group {number:08}" for number in range(1000)]}, "longer"),
    ],
)
def test_s12_17_a_token_whose_claims_do_not_hold_is_refused(
    gated: GatewayProcess, provider: OidcProvider, upstream: MockUpstream, claims: Json, why: str
) -> None:
    error = refused(ask(gated, provider.token(**{**STAFF, **claims})), 401)
    assert error["code"] == "invalid_api_key"
    assert why in error["message"]
    assert not upstream.requests


def test_s12_17_a_token_that_the_issuer_did_not_sign_is_refused(
    gated: GatewayProcess, provider: OidcProvider, upstream: MockUpstream
) -> None:
    """Unsigned, signed by HMAC with the public key, by a stranger's key under the issuer's id, altered, cut."""
    good = provider.token(**STAFF)
    claims = {"iss": provider.issuer, "aud": "gateway-api", "sub": "ann", "exp": int(time.time()) + 300, **STAFF}
    stranger = RSAKey.generate_key(2048, {"kid": provider.kid})
    curve = ECKey.generate_key("P-256", {"kid": provider.kid})
    head, body, signature = good.split(".")
    other = provider.token(**{**STAFF, "org": "blue"}).split(".")[1]
    forged = {
        "none": provider.forged(claims, "none"),
        "None": provider.forged(claims, "None"),
        "HS256": provider.forged(claims, "HS256"),
        "a stranger's": jwt.encode({"alg": "RS256", "kid": provider.kid}, claims, stranger),
        "another kind of key": jwt.encode({"alg": "ES256", "kid": provider.kid}, claims, curve),
        "an extension that is critical": signed(
            {"alg": "RS256", "kid": provider.kid, "crit": ["x"], "x": 1}, claims, provider.keys[provider.kid]
        ),
        "a key that it brings": jwt.encode({"alg": "RS256", "jwk": stranger.as_dict(private=False)}, claims, stranger),
        "altered": f"{head}.{other}.{signature}",
        "unsigned": f"{head}.{body}.",
        "cut": good[:-8],
        "no JSON": "a.b.c",
        "dots": "..",
        "huge": f"{'a' * 20_000}.b.c",
    }
    for name, token in forged.items():
        assert refused(ask(gated, token), 401)["code"] == "invalid_api_key", name
    assert not upstream.requests
    assert ask(gated, good).status_code == 200


@cache
def rsa_key() -> RSAKey:
    """One for all algorithms that take it: it is long in the making."""
    return RSAKey.generate_key(2048)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"])
def test_s12_17_each_algorithm_that_can_be_set_holds(
    start_gateway: GatewayFactory, tmp_path: Path, algorithm: str
) -> None:
    """The key's own `alg` counts, too; and what is not set is refused."""
    curve = {"ES256": "P-256", "ES384": "P-384"}.get(algorithm)
    key: Any = ECKey.generate_key(curve) if curve else OKPKey.generate_key("Ed25519")
    if not algorithm.startswith("E"):
        key = rsa_key()
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [{**key.as_dict(private=False), "kid": "one"}]}))
    settings = {"issuer": "https://login.example", "audience": ["a", "b"], "tenant": "acme", "jwks_file": str(file)}
    gateway = start_gateway({"auth": {"jwt": {**settings, "algorithms": [algorithm]}}})
    claims = {"iss": "https://login.example", "aud": ["b", "c"], "sub": "ann", "exp": int(time.time()) + 300}
    for header in ({"kid": "one"}, {}):
        token = signed({"alg": algorithm, **header, "client": "of a proxy", "x5c": ["a" * 2000]}, claims, key)
        assert ask(gateway, token).status_code == 200
    gateway.config = {**(gateway.config or {}), "auth": {"jwt": {**settings, "algorithms": ["RS384"]}}}
    gateway.restart()
    assert "alg" in refused(ask(gateway, token), 401)["message"]


def test_s12_17_what_a_claim_does_not_say_is_never_everything(gated: GatewayProcess, provider: OidcProvider) -> None:
    """No tenant, no role, no models: a 403 that says so."""
    without: list[tuple[Json, str]] = [
        ({"org": None}, "org"),
        ({"org": "a b/../c"}, "org"),
        ({"org": ["acme"]}, "org"),
        ({"may_ask": None}, "may_ask"),
        ({"may_ask": []}, "may_ask"),
        ({"realm_access": {"roles": ["elsewhere"]}}, "role"),
        ({"realm_access": {"roles": ["admin"]}}, "role"),
        ({"realm_access": None}, "role"),
        ({"email": None}, "email"),
        ({"email_verified": False}, "verified"),
        ({"team": None}, "project"),
    ]
    for changed, why in without:
        error = refused(ask(gated, provider.token(**{**STAFF, **changed})), 403)
        assert (error["code"], why in error["message"]) == ("permission_denied", True), (changed, error)


def test_s12_17_keys_are_asked_once_and_once_more_when_they_rotate(
    start_gateway: GatewayFactory, module_provider: OidcProvider
) -> None:
    """An unknown kid asks the issuer again, but not once for each token that names one."""
    with OidcProvider() as provider:
        gateway = start_gateway({"auth": {"jwt": jwt_settings(provider)}})
        for _ in range(3):
            assert ask(gateway, provider.token(**STAFF)).status_code == 200
        assert provider.asked == ["/.well-known/openid-configuration", "/jwks"]
        before = provider.token(**STAFF)
        provider.rotate()
        assert ask(gateway, provider.token(**STAFF)).status_code == 200
        assert refused(ask(gateway, before), 401), "its key is published no more"
        assert provider.asked.count("/jwks") == 2
        stranger = RSAKey.generate_key(2048)
        for number in range(5):
            token = jwt.encode({"alg": "RS256", "kid": f"no-{number}"}, {"iss": provider.issuer}, stranger)
            assert refused(ask(gateway, token), 401)
        assert provider.asked.count("/jwks") == 2
        provider.is_broken = True
        assert ask(gateway, provider.token(**STAFF)).status_code == 200, "what is known holds"


def test_s12_17_without_its_provider_a_token_is_a_503_and_keys_count(start_gateway: GatewayFactory) -> None:
    with OidcProvider() as provider:
        token, settings = provider.token(**STAFF), jwt_settings(provider)
        gateway = start_gateway({"auth": {"keys": [{"key": KEY, "tenant": "acme"}], "jwt": settings}})
        provider.metadata_changed = {"issuer": "https://another.example"}
        assert refused(ask(gateway, token), 503)["code"] == "identity_provider_unavailable"
    assert refused(ask(gateway, token), 503)["code"] == "identity_provider_unavailable"
    assert ask(gateway, KEY).status_code == 200
    assert refused(ask(gateway, "a-key-of-nobody"), 401)


def test_s12_17_keys_of_the_issuer_may_stand_in_a_file(start_gateway: GatewayFactory, tmp_path: Path) -> None:
    """Shared secrets in it are none: nobody can sign by one."""
    with OidcProvider() as provider:
        listed = provider.jwks()
        listed["keys"] += [{"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}, 7]
        file = tmp_path / "jwks.json"
        file.write_text(json.dumps(listed))
        settings = {**jwt_settings(provider, jwks_file=str(file)), "tenant": "acme", "claims": {}, "roles": {}}
        gateway = start_gateway({"auth": {"jwt": settings}})
        assert ask(gateway, provider.token(), "gpt-4o").status_code == 200
        assert refused(ask(gateway, provider.token(exp=1)), 401)
        assert not provider.asked


@pytest.mark.chaos
def test_s12_17_a_stream_goes_on_where_its_token_expires_meanwhile(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """The token counted when the request came; the next request needs another."""
    with OidcProvider() as provider:
        gateway = start_gateway({"auth": {"jwt": {**jwt_settings(provider), "leeway": 0}}})
        assert ask(gateway, provider.token(**STAFF)).status_code == 200
        upstream.reply(text="a long answer", chunk_delay=0.8)
        token = provider.token(**STAFF, exp=int(time.time()) + 2)
        assert "[DONE]" in ask(gateway, token, stream=True).text
        assert "expired" in refused(ask(gateway, token), 401)["message"]
