"""The login at the page by an identity provider, as a browser goes through it, and attacks on it (guarantee §12.18)."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from tests.support.answers import Json, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.support.postgres import Postgres
from tests.support.web_page import PageClient, checked

ADMIN, VIEWER = "gw-admin-key-1", "gw-viewer-key-2"
KEYS: list[Json] = [
    {"key": ADMIN, "tenant": "ops", "roles": ["user", "admin"]},
    {"key": VIEWER, "tenant": "acme", "roles": ["user", "viewer"]},
]
BASE = "https://gateway.example"
CALLBACK, LIST = "/ui/login/callback", "/ui/conversations"
ACROSS = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
"""With which a browser comes back from the provider."""


def oidc(provider: OidcProvider, **more: Any) -> Json:
    return {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "redirect_url": BASE + CALLBACK,
        "label": "Acme",
        "claims": {"tenant": "org", "roles": "groups"},
        "roles": {"staff": ["user", "viewer"], "operators": "admin", "makers": "user"},
        **more,
    }


@pytest.fixture(scope="module")
def module_provider() -> Iterator[OidcProvider]:
    with OidcProvider() as running:
        yield running


@pytest.fixture(scope="module")
def module_gated(module_start_gateway: GatewayFactory, module_provider: OidcProvider) -> GatewayProcess:
    return module_start_gateway({"auth": {"keys": KEYS, "oidc": oidc(module_provider)}})


@pytest.fixture
def provider(module_provider: OidcProvider) -> OidcProvider:
    module_provider.person = {"sub": "ann", "name": "Ann Example", "groups": ["staff"], "org": "acme"}
    module_provider.changed, module_provider.sign = {}, module_provider.signed
    module_provider.tells_issuer = True
    return module_provider


@pytest.fixture
def gated(module_gated: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    return module_gated


@pytest.fixture
def browser(gated: GatewayProcess) -> Iterator[PageClient]:
    with PageClient(gated.url) as opened:
        yield opened


def begun(browser: PageClient, to: str = LIST) -> str:
    """Follows the link of the login's page; the provider's address."""
    links = checked(browser.get(f"/ui/login?{urlencode({'next': to})}")).links
    link = next(each for each in links if each.startswith("/ui/login/begin"))
    answer = browser.get(link)
    assert answer.status_code == 303, answer.text
    assert "SameSite=Lax" in answer.headers["set-cookie"]
    return str(answer.headers["location"])


def at_provider(address: str) -> str:
    """Logs in there: where the provider sends the browser then, in the gateway."""
    answer = httpx.get(address, trust_env=False)
    back = urlsplit(answer.headers["location"])
    assert f"{back.scheme}://{back.netloc}{back.path}" == BASE + CALLBACK
    return f"{back.path}?{back.query}"


def signed_in(browser: PageClient, to: str = LIST) -> httpx.Response:
    """The whole way; the answer with the session's cookie."""
    return browser.get(at_provider(begun(browser, to)), **ACROSS)


def with_parameter(path: str, **changed: str | None) -> str:
    query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
    query |= {name: value for name, value in changed.items() if value is not None}
    return f"{urlsplit(path).path}?{urlencode({k: v for k, v in query.items() if changed.get(k, '') is not None})}"


def is_out(browser: PageClient) -> bool:
    return browser.get(LIST).status_code == 303


def asked(gateway: GatewayProcess, key: str, text: str) -> None:
    body = {"model": "small", "messages": [user(text)]}
    assert gateway.post("/chat/completions", json=body, key=key).status_code == 200


def test_s12_18_a_person_logs_in_looks_and_logs_out(
    gated: GatewayProcess, browser: PageClient, provider: OidcProvider
) -> None:
    """Roles and tenant are those of the claims; the trail has who it was."""
    asked(gated, VIEWER, "what acme asks")
    asked(gated, ADMIN, "what ops asks")
    answer = signed_in(browser, "/ui/health")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/health"), answer.text
    session = next(each for each in answer.headers.get_list("set-cookie") if each.startswith("gateway_ui="))
    assert "Path=/ui; Max-Age=43200; HttpOnly; SameSite=Strict" in session
    page = browser.page(LIST)
    assert ("what acme asks" in page.text, "what ops asks" in page.text) == (True, False)
    assert "Ann Example" in page.text
    again = browser.get(LIST, cookie="", **ACROSS)
    assert again.status_code == 200, "a browser that comes by another site's link asks once more"
    events = gated.get("/gateway/trail", params={"order": "desc", "after": 10**9, "limit": 20}, key=ADMIN).json()[
        "data"
    ]
    login = next(each for each in events if each["action"] == "ui.login")
    assert (login["actor_name"], login["actor"][:4], login["ok"]) == ("Ann Example", "sub_", True)
    kept = dict(browser.client.cookies)
    assert browser.post("/ui/logout", {"csrf": browser.token(LIST)}).status_code == 303
    browser.client.cookies.update(kept)
    assert is_out(browser)


@pytest.mark.parametrize(
    ("claims", "sees", "status"),
    [
        ({"groups": ["operators"]}, (True, True), 303),
        ({"groups": "staff other"}, (True, False), 303),
        ({"groups": ["staff"], "org": "blue"}, (False, False), 303),
        ({"groups": ["makers"]}, None, 403),
        ({"groups": ["admin", "viewer"]}, None, 403),
        ({"groups": None}, None, 403),
        ({"org": None}, None, 403),
        ({"org": "../acme"}, None, 403),
    ],
)
def test_s12_18_roles_and_tenant_are_what_the_claims_say(
    gated: GatewayProcess,
    browser: PageClient,
    provider: OidcProvider,
    claims: Json,
    sees: tuple[bool, bool] | None,
    status: int,
) -> None:
    asked(gated, VIEWER, "what acme asks")
    asked(gated, ADMIN, "what ops asks")
    provider.person = {**provider.person, **claims}
    answer = signed_in(browser)
    assert answer.status_code == status, answer.text
    if sees is None:
        assert is_out(browser)
        return
    text = browser.page(LIST).text
    assert ("what acme asks" in text, "what ops asks" in text) == sees


def test_s12_18_a_login_of_another_browser_is_refused(
    gated: GatewayProcess, browser: PageClient, provider: OidcProvider
) -> None:
    """State that is missing, wrong, another's, or whose answer is sent to a browser that began nothing."""
    back = at_provider(begun(browser))
    with PageClient(gated.url) as victim:
        assert victim.get(back, **ACROSS).status_code == 403
        theirs = at_provider(begun(victim))
        for name, path in {
            "missing": with_parameter(back, state=None),
            "empty": with_parameter(back, state=""),
            "wrong": with_parameter(back, state="e30.00"),
            "odd": with_parameter(back, state="\xe9.\xe9"),
            "another's": with_parameter(back, state=parse_qs(urlsplit(theirs).query)["state"][0]),
            "no code": with_parameter(back, code=None),
            "an error": with_parameter(back, code=None, error="access_denied"),
        }.items():
            assert browser.get(path, **ACROSS).status_code == 403, name
            assert is_out(browser), name
        assert victim.get(with_parameter(theirs, code="of-nobody"), **ACROSS).status_code == 403
        assert is_out(victim)
    assert browser.get(back, **ACROSS).status_code == 303


def test_s12_18_a_code_counts_once(gated: GatewayProcess, browser: PageClient, provider: OidcProvider) -> None:
    """Also where the browser still has the cookie of the login."""
    back = at_provider(begun(browser))
    cookies = dict(browser.client.cookies)
    assert browser.get(back, **ACROSS).status_code == 303
    assert browser.get(back, **ACROSS).status_code == 403
    with PageClient(gated.url) as thief:
        thief.client.cookies.update(cookies)
        assert thief.get(back, **ACROSS).status_code == 403
        assert is_out(thief)


def test_s12_18_a_code_of_another_login_is_refused(browser: PageClient, provider: OidcProvider) -> None:
    """Code injection: its verifier and nonce are another's."""
    mine, other = at_provider(begun(browser)), at_provider(begun(browser))
    code = parse_qs(urlsplit(other).query)["code"][0]
    assert browser.get(with_parameter(mine, code=code), **ACROSS).status_code == 403
    assert is_out(browser)


@pytest.mark.parametrize(
    "changed",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": [CLIENT_ID, "another-client"]},
        {"aud": [CLIENT_ID, "another-client"], "azp": "another-client"},
        {"azp": "another-client"},
        {"iss": "https://evil.example"},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"iat": None},
        {"sub": None},
    ],
    ids=str,
)
def test_s12_18_an_id_token_that_does_not_hold_is_refused(
    browser: PageClient, provider: OidcProvider, changed: Json
) -> None:
    provider.changed = changed
    assert signed_in(browser).status_code == 403
    assert is_out(browser)


def test_s12_18_an_id_token_that_the_provider_did_not_sign_is_refused(
    browser: PageClient, provider: OidcProvider
) -> None:
    with OidcProvider() as stranger:
        stranger.kid, stranger.keys = provider.kid, {provider.kid: stranger.keys[stranger.kid]}
        for sign in (
            lambda claims: provider.forged(claims, "none"),
            lambda claims: provider.forged(claims, "HS256"),
            stranger.signed,
        ):
            provider.sign = sign
            assert signed_in(browser).status_code == 403
            assert is_out(browser)


def test_s12_18_answers_of_another_provider_are_refused(browser: PageClient, provider: OidcProvider) -> None:
    """Mix-up: by the parameter `iss` (RFC 9207), wanted where the provider says that it tells it."""
    back = at_provider(begun(browser))
    assert browser.get(with_parameter(back, iss="https://evil.example"), **ACROSS).status_code == 403
    assert browser.get(with_parameter(back, iss=None), **ACROSS).status_code == 403
    assert is_out(browser)


@pytest.mark.parametrize("to", ["//evil.example", "/ui/login"])
def test_s12_18_a_login_leads_to_the_page_alone(browser: PageClient, provider: OidcProvider, to: str) -> None:
    answer = browser.get(f"/ui/login/begin?{urlencode({'next': to})}")
    back = browser.get(at_provider(answer.headers["location"]), **ACROSS)
    assert (back.status_code, back.headers["location"]) == (303, "/ui")


def test_s12_18_a_session_is_made_by_the_login_and_cannot_be_changed(
    gated: GatewayProcess, browser: PageClient, provider: OidcProvider
) -> None:
    """A cookie that was set before is not adopted, and what a session carries counts as it was signed in."""
    planted = "planted-by-somebody-else"
    browser.client.cookies.set("gateway_ui", planted, path="/ui")
    answer = signed_in(browser)
    session = next(each for each in answer.headers.get_list("set-cookie") if each.startswith("gateway_ui="))
    value = session.partition(";")[0].partition("=")[2]
    assert planted not in value
    with PageClient(gated.url) as thief:
        assert thief.get(LIST, cookie=f"gateway_ui={planted}").status_code == 303
        assert thief.get(LIST, cookie=f"gateway_ui={value}").status_code == 200
        token, _, carried = value.partition(".")
        for changed in (token, f"{token}.", f"{token}.{carried}x", f"{token}.e30", f"x{token}.{carried}"):
            assert thief.get(LIST, cookie=f"gateway_ui={changed}").status_code == 303, changed


def test_s12_18_who_may_ask_asks_by_the_page_as_who_it_is(
    gated: GatewayProcess, browser: PageClient, provider: OidcProvider
) -> None:
    """By tenant and user; and *Log out everywhere* ends the sessions of that person alone."""
    provider.person = {**provider.person, "sub": "uma", "org": "blue"}
    assert signed_in(browser).status_code == 303
    fields = {"csrf": browser.token("/ui/try"), "model": "small", "message": "what uma asks"}
    parts = [(name, (None, value)) for name, value in fields.items()]
    answer = browser.client.post("/ui/try", files=parts)
    assert answer.status_code == 200, answer.text
    assert "what uma asks" in browser.page(LIST).text
    query: dict[str, int | str] = {"start_time": int(time.time()) - 3600, "group_by": "user_id"}
    days = gated.get("/organization/usage/completions", params=query, key=ADMIN).json()["data"]
    assert "uma" in {each["user_id"] for day in days for each in day["results"]}
    with PageClient(gated.url) as second, PageClient(gated.url) as other:
        assert signed_in(second).status_code == 303
        provider.person = {**provider.person, "sub": "bob"}
        assert signed_in(other).status_code == 303
        second.post("/ui/logout", {"csrf": second.token(LIST), "everywhere": "1"})
        assert [is_out(each) for each in (browser, second, other)] == [True, True, False]


def test_s12_18_a_session_ends_in_time_and_with_what_its_claims_meant(
    start_gateway: GatewayFactory, provider: OidcProvider
) -> None:
    """By its stored time; and where an operator changes what claims mean, or takes the provider out."""
    auth: Json = {"keys": KEYS, "oidc": oidc(provider)}
    gateway = start_gateway({"auth": auth, "server": {"ui_session_hours": 3 / 3600}})
    with PageClient(gateway.url) as browser:
        cookie = _session(signed_in(browser))
        assert browser.get(LIST, cookie=cookie).status_code == 200
        time.sleep(3.1)
        assert browser.get(LIST, cookie=cookie).status_code == 303
    config = {**(gateway.config or {}), "server": {}}
    for changed in (oidc(provider, roles={"operators": "admin", "staff": "user"}), None):
        gateway.config = {**config, "auth": auth}
        gateway.restart()
        with PageClient(gateway.url) as browser:
            cookie = _session(signed_in(browser))
            assert browser.get(LIST, cookie=cookie).status_code == 200
            gateway.config = {**config, "auth": {"keys": KEYS, **({"oidc": changed} if changed else {})}}
            gateway.restart()
            assert browser.get(LIST, cookie=cookie).status_code == 303


def test_s12_18_claims_may_come_of_the_userinfo_endpoint(start_gateway: GatewayFactory, provider: OidcProvider) -> None:
    """What the id token says counts before it, and what is told of somebody else is nothing."""
    gateway = start_gateway({"auth": {"keys": KEYS, "oidc": oidc(provider, userinfo=True)}})
    provider.person = {"sub": "ann", "org": "acme"}
    for told, status in (
        ({"sub": "ann", "groups": ["staff"], "org": "blue"}, 303),
        ({"sub": "bob", "groups": ["operators"]}, 403),
        ({"groups": ["operators"]}, 403),
        ({"sub": "ann"}, 403),
        ({}, 403),
    ):
        provider.userinfo = told
        with PageClient(gateway.url) as browser:
            assert signed_in(browser).status_code == status, told
            if status == 303:
                assert "Sees only acme" in browser.page(LIST).text
            else:
                assert is_out(browser)
    events = gateway.get("/gateway/trail", params={"limit": 100}, key=ADMIN).json()["data"]
    logins = [each for each in events if each["action"] == "ui.login"]
    assert len({each["actor"] for each in logins}) == 1, "who is refused by claims is named as who is let in"
    assert "holds no claims" in logins[-1]["details"]["reason"]


def test_s12_18_a_login_that_one_replica_began_ends_at_another(
    start_gateway: GatewayFactory, provider: OidcProvider, postgres: Postgres
) -> None:
    config = {"auth": {"keys": KEYS, "oidc": oidc(provider)}, "storage": {"url": postgres.new_database()}}
    one, other = start_gateway(config), start_gateway(config)
    with PageClient(one.url) as here, PageClient(other.url) as there:
        back = at_provider(begun(here))
        there.client.cookies.update(here.client.cookies)
        cookie = _session(there.get(back, **ACROSS))
        assert [each.get(LIST, cookie=cookie).status_code for each in (here, there)] == [200, 200]


def test_s12_18_a_provider_whose_list_of_methods_is_none_is_asked_by_the_standards(
    start_gateway: GatewayFactory,
) -> None:
    """OpenID Connect Discovery: by name and password, where no list says otherwise."""
    with OidcProvider() as provider:
        provider.metadata_changed = {"token_endpoint_auth_methods_supported": 5}
        gateway = start_gateway({"auth": {"keys": KEYS, "oidc": oidc(provider)}})
        with PageClient(gateway.url) as browser:
            assert signed_in(browser).status_code == 303


def test_s12_18_without_its_provider_keys_log_in_all_the_same(start_gateway: GatewayFactory) -> None:
    with OidcProvider() as provider:
        gateway = start_gateway({"auth": {"keys": KEYS, "oidc": oidc(provider)}})
    with PageClient(gateway.url) as browser:
        away = browser.get("/ui/login/begin")
        assert away.status_code == 503
        assert "identity provider" in checked(away).text
        assert browser.log_in(VIEWER).status_code == 303
        assert browser.get(LIST).status_code == 200


def test_s12_18_failed_logins_keep_nobody_out_and_do_not_fill_the_trail(
    start_gateway: GatewayFactory, provider: OidcProvider
) -> None:
    gateway = start_gateway({"auth": {"keys": KEYS, "oidc": oidc(provider)}})
    with PageClient(gateway.url) as browser:
        found = [browser.get(f"{CALLBACK}?state=a.b&code=c", **ACROSS).status_code for _ in range(14)]
        assert found == [403] * 14
        assert signed_in(browser).status_code == 303
    events = gateway.get("/gateway/trail", params={"limit": 100}, key=ADMIN).json()["data"]
    logins = [each for each in events if each["action"] == "ui.login"]
    assert [each["ok"] for each in logins] == [False] * 10 + [True]
    why = "This login was not begun in this browser, or too long ago. Begin it again."
    assert logins[0]["details"]["reason"] == why
    assert sum(each.get("reason") == why for each in gateway.log_lines()) == 14


def _session(answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    return next(each for each in answer.headers.get_list("set-cookie") if each.startswith("gateway_ui=")).partition(
        ";"
    )[0]
