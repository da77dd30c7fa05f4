"""Who may look at the page `/ui`, from outside (guarantee §13.2)."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.app import create_app
from gateway.core.config.settings import Settings
from tests.support.answers import Json, chat, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.web_page import SECURE_HEADERS, PageClient, WebPage, checked

ADMIN, VIEWER, USER, LOOKER = "gw-admin-key-1", "gw-viewer-key-2", "gw-user-key-33", "gw-looker-key-4"
KEYS: list[Json] = [
    {"key": ADMIN, "tenant": "ops", "name": "Ada <b>", "roles": ["user", "admin"]},
    {"key": VIEWER, "tenant": "alice", "roles": ["user", "viewer"]},
    {"key": USER, "tenant": "alice"},
    {"key": LOOKER, "tenant": "bob", "roles": ["viewer"]},
]
PAGES = ["/ui/requests", "/ui/conversations", "/ui/health"]


@pytest.fixture
def browser(guarded: GatewayProcess) -> Iterator[PageClient]:
    with PageClient(guarded.url) as opened:
        yield opened


def ask(gateway: GatewayProcess, key: str | None, text: str) -> str:
    """The conversation of a question."""
    return str(chat(gateway, user(text), key=key, model="small")["conversation"]["id"])


def test_s13_2_the_page_shows_each_viewer_what_is_theirs(guarded: GatewayProcess) -> None:
    """§13.2: an admin sees all tenants, a viewer its own alone, whatever is looked for; nobody else sees anything."""
    mine, theirs = ask(guarded, USER, "what alice asks"), ask(guarded, ADMIN, "what ops asks")
    seen = {}
    for key in (ADMIN, VIEWER, LOOKER):
        with PageClient(guarded.url) as browser:
            assert browser.log_in(key).headers["location"] == "/ui"
            pages = [browser.page("/ui"), browser.page("/ui/requests"), browser.page("/ui/conversations")]
            pages += [
                browser.page(f"/ui/requests?conversation={theirs}"),
                browser.page(f"/ui/conversations?id={theirs}"),
            ]
            pages += [browser.page("/ui/conversations?text=ops")]
            seen[key] = "".join("".join(page.links) + page.text for page in pages)
            health = browser.page("/ui/health").text
            assert ("Calibration" in health, "page logins" in health) == (key == ADMIN, key == ADMIN)
    links = [f"/ui/conversations/{each}" for each in (mine, theirs)]  # its id alone is said back where it is looked for
    assert [link in seen[ADMIN] for link in links] == [True, True]
    assert [link in seen[VIEWER] for link in links] == [True, False]
    assert "what ops asks" not in seen[VIEWER]
    assert "/ui/conversations/conv_" not in seen[LOOKER], "its tenant asked nothing"
    with PageClient(guarded.url) as browser:
        refused = browser.log_in(USER)
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
        assert "viewer" in checked(refused).text
        assert browser.log_in("gw-unknown-key").status_code == 401
        assert browser.get(PAGES[0]).status_code == 303


@pytest.mark.parametrize("path", ["/ui", "/ui/", *PAGES, "/ui/conversations/conv_x?a=b"])
def test_s13_2_without_a_session_every_page_leads_to_the_login(browser: PageClient, path: str) -> None:
    for cookie in ("", "gateway_ui=unknown", "gateway_ui=", "gateway_ui=é"):
        answer = browser.get(path, cookie=cookie)
        if path.startswith("/ui/conversations/") and answer.status_code == 404:
            continue  # as long as there is no such page
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"].startswith("/ui/login")
        assert {name: answer.headers.get(name) for name in SECURE_HEADERS} == SECURE_HEADERS
    shown = browser.get("/ui/login?next=/ui/health")
    assert 'value="/ui/health"' in shown.text
    checked(shown)
    part = browser.get(path, hx_request="true")
    assert part.status_code in (401, 404)
    assert browser.get(path, authorization=f"Bearer {ADMIN}").status_code in (303, 404), "keys are for the API"


def test_s13_2_the_cookie_is_for_the_page_alone(browser: PageClient, guarded: GatewayProcess) -> None:
    """HttpOnly, SameSite=Strict, path `/ui`, expiring; over TLS `Secure` and under a name that only TLS can set."""
    begun = browser.log_in(VIEWER)
    assert begun.status_code == 303
    kept = begun.headers.get_list("set-cookie")[0]
    name, _, rest = kept.partition("=")
    assert name == "gateway_ui"
    assert rest.partition("; ")[2] == "Path=/ui; Max-Age=43200; HttpOnly; SameSite=Strict"
    assert len(rest.partition(";")[0]) >= 40
    assert VIEWER not in begun.text + str(begun.headers)
    with PageClient(guarded.url, {"x-forwarded-proto": "https"}) as secure:
        opened = secure.get("/ui/login")
        login = opened.headers["set-cookie"].partition(";")[0]
        fields = {"csrf": WebPage(opened.text).tokens[0], "key": VIEWER}
        over_tls = secure.post("/ui/login", fields, cookie=login).headers.get_list("set-cookie")[0]
        assert over_tls.startswith("__Secure-gateway_ui=")
        assert over_tls.endswith("; Path=/ui; Max-Age=43200; HttpOnly; SameSite=Strict; Secure")
        plain = over_tls.partition(";")[0].replace("__Secure-", "")
        assert secure.get(PAGES[0], cookie=plain).status_code == 303
        assert secure.get(PAGES[0], cookie=over_tls.partition(";")[0]).status_code == 200
    assert VIEWER not in guarded.log_text()


def test_s13_2_a_session_is_revoked(guarded: GatewayProcess) -> None:
    """By logout this one, by "everywhere" all of its key; those of other keys stay."""
    one, two, three, other = (PageClient(guarded.url) for _ in range(4))
    for browser in (one, two, three):
        assert browser.log_in(VIEWER).status_code == 303
    assert other.log_in(ADMIN).status_code == 303
    kept = dict(one.client.cookies)
    left = one.post("/ui/logout", {"csrf": one.token(PAGES[0])})
    assert (left.status_code, left.headers["location"]) == (303, "/ui/login")
    one.client.cookies.update(kept)
    assert one.get(PAGES[0]).status_code == 303, "the cookie is worth nothing, wherever it was kept"
    assert two.get(PAGES[0]).status_code == 200
    two.post("/ui/logout", {"csrf": two.token(PAGES[0]), "everywhere": "1"})
    assert [each.get(PAGES[0]).status_code for each in (two, three, other)] == [303, 303, 200]
    for each in (one, two, three, other):
        each.client.close()


def test_s13_2_a_session_expires_and_keys_change_at_once(start_gateway: GatewayFactory) -> None:
    """By its stored time; a key that is gone takes its sessions along, and its roles count as they are now."""
    gateway = start_gateway({"auth": {"keys": KEYS}})
    browser = PageClient(gateway.url)
    browser.log_in(VIEWER)
    ask(gateway, ADMIN, "of ops")
    assert "of ops" not in browser.page(PAGES[1]).text
    gateway.config = {**(gateway.config or {}), "auth": {"keys": [{**KEYS[1], "roles": ["admin"]}, KEYS[0]]}}
    gateway.restart()
    assert "of ops" in browser.page(PAGES[1]).text
    for keys in ([{**KEYS[1], "roles": ["user"]}, KEYS[0]], [KEYS[0]]):
        gateway.config = {**gateway.config, "auth": {"keys": keys}}
        gateway.restart()
        assert browser.get(PAGES[0]).status_code == 303
    gateway.config = {**gateway.config, "auth": {"keys": KEYS}}
    gateway.restart()
    assert browser.get(PAGES[0]).status_code == 200
    with sqlite3.connect(gateway.directory / "gateway.db") as database:
        assert database.execute("UPDATE ui_sessions SET expires_at = '2026-01-01 00:00:00.000000'").rowcount == 1
        (digest,) = database.execute("SELECT digest FROM ui_sessions").fetchone()
    database.close()
    assert str(browser.client.cookies["gateway_ui"]).encode() not in digest
    assert browser.get(PAGES[0]).status_code == 303
    browser.client.close()


def test_s13_2_a_form_is_of_its_session(guarded: GatewayProcess) -> None:
    """Without its token, with a wrong one, or that of another session nothing is changed."""
    mine, other, nobody = (PageClient(guarded.url) for _ in range(3))
    mine.log_in(VIEWER)
    other.log_in(VIEWER)
    for token in (None, "", "0" * 64, other.token(PAGES[0]), nobody.token("/ui/login"), "é"):
        refused = mine.post("/ui/logout", {} if token is None else {"csrf": token})
        assert refused.status_code == 403, token
        checked(refused)
    assert mine.get(PAGES[0]).status_code == 200
    for fields in ({"key": VIEWER}, {"key": VIEWER, "csrf": mine.token(PAGES[0])}):
        assert nobody.post("/ui/login", fields).status_code == 403, "nobody is logged in by another page's form"
    token = nobody.token("/ui/login")
    foreign = [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "", "origin": "https://evil.example"},
        {"sec_fetch_site": "", "origin": guarded.url.replace("127.0.0.1", "localhost")},
    ]
    for headers in foreign:
        assert nobody.post("/ui/login", {"key": VIEWER, "csrf": token}, **headers).status_code == 403
    json = nobody.client.post("/ui/login", json={"key": VIEWER, "csrf": token})
    assert json.status_code == 415
    own = {"sec_fetch_site": "", "origin": guarded.url}
    assert nobody.post("/ui/login", {"key": VIEWER, "csrf": token}, **own).status_code == 303
    for each in (mine, other, nobody):
        each.client.close()


def test_s13_2_no_key_in_an_address(browser: PageClient) -> None:
    for name in ("key", "api_key", "token", "password"):
        refused = browser.get(f"/ui/login?{name}={ADMIN}")
        assert refused.status_code == 400
        assert ADMIN not in checked(refused).text
        assert browser.get(f"/ui/conversations?{name}={ADMIN}").status_code == 303


def test_s13_2_a_login_leads_to_the_page_alone(browser: PageClient) -> None:
    assert browser.log_in(VIEWER, "/ui//evil.example").headers["location"] == "/ui"


def test_s13_2_guessing_is_limited(start_gateway: GatewayFactory) -> None:
    """Ten unknown keys a minute; then a known one is refused, too, so nobody learns which it was."""
    gateway = start_gateway({"auth": {"keys": KEYS}})
    with PageClient(gateway.url) as browser:
        token = browser.token("/ui/login")
        said = [browser.post("/ui/login", {"key": f"gw-guess-{n}", "csrf": token}).status_code for n in range(10)]
        assert said == [401] * 10
        refused = browser.post("/ui/login", {"key": ADMIN, "csrf": token})
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        checked(refused)


def test_s13_2_without_keys_on_loopback_alone(one_gateway: GatewayProcess) -> None:
    """Open to this machine's browser; not to a foreign name that leads here, nor by way of a proxy, nor to a page of
    another site. What is refused is a path like any other that is not there."""
    port = one_gateway.port
    ask(one_gateway, "sk-one", "asked by one")
    with PageClient(one_gateway.url) as browser:
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "LOCALHOST", "127.8.9.1"):
            assert browser.get(PAGES[0], host=host).status_code == 200, host
        assert "asked by one" in browser.page(PAGES[1]).text
        assert browser.get("/ui/login").headers["location"] == "/ui"
        unknown = browser.get("/nothing")
        refused = [browser.get(path, host="rebound.example") for path in ("/ui", *PAGES, "/ui/static/ui.css", "/ui/x")]
        refused += [browser.get(PAGES[0], host=host) for host in ("127.0.0.1.evil.example", "[", "", "10.0.0.1")]
        refused += [browser.get(PAGES[0], **{name: "10.0.0.7"}) for name in ("x_forwarded_for", "forwarded", "via")]
        for answer in refused:
            assert (answer.status_code, answer.json()) == (unknown.status_code, unknown.json())
        for foreign in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}):
            assert browser.get(PAGES[0], **foreign).status_code == 403
        followed = browser.get(PAGES[0], sec_fetch_site="cross-site", sec_fetch_mode="navigate")
        assert followed.status_code == 200


def test_s13_2_what_cors_allows_is_the_api(start_gateway: GatewayFactory) -> None:
    """Origins that may call the API may not read the page, whose browser is let in without a key."""
    gateway = start_gateway({"server": {"cors_origins": ["*"]}})
    with PageClient(gateway.url) as browser:
        for origin in ("https://app.example", "null"):
            assert browser.get("/v1/models", origin=origin).headers["access-control-allow-origin"] == "*"
            refused = browser.get(PAGES[0], origin=origin)
            assert refused.status_code == 403
            assert "First question" not in refused.text
        assert browser.get(PAGES[0]).status_code == 200


def test_s13_2_a_bill_names_its_key_and_project(start_gateway: GatewayFactory) -> None:
    """The id of a key is its keyed hash, whether it is configured or a client's own; then it is the tenant, too."""
    keyed = start_gateway({"auth": {"keys": [{**KEYS[2], "project": "search"}, KEYS[0]]}})
    for key in (USER, ADMIN):
        ask(keyed, key, "hello")
    own = start_gateway()
    ask(own, "sk-own-token", "hello")
    found = [row for gateway in (keyed, own) for row in bills(gateway)]
    assert [(tenant, project) for tenant, _, project in found[:2]] == [("alice", "search"), ("ops", None)]
    assert all(key.startswith("key_") and len(key) == 44 for _, key, _ in found)
    assert len({key for _, key, _ in found}) == 3
    assert found[2][0] == found[2][1]
    assert not {USER, ADMIN} & set(str(found).split("'"))


def bills(gateway: GatewayProcess) -> list[tuple[str, str, str | None]]:
    database = sqlite3.connect(gateway.directory / "gateway.db")
    found = database.execute("SELECT tenant, key_id, project FROM ledger ORDER BY created_at").fetchall()
    days = set(database.execute("SELECT tenant, key_id, project FROM usage_days"))
    database.close()
    assert days == set(found), "as in the sums"
    return found


@pytest.mark.parametrize(
    ("server", "headers"),
    [
        ({"host": "0.0.0.0"}, {}),
        ({"host": "::"}, {}),
        ({"host": "192.0.2.1"}, {}),
        ({"host": "127.0.0.1", "ui": "off"}, {}),
        ({"host": "127.0.0.1"}, {"host": "gateway.example"}),
    ],
)
async def test_s13_2_beyond_loopback_there_is_no_page_without_keys(
    tmp_path: Path, server: dict[str, str], headers: dict[str, str]
) -> None:
    """404 in OpenAI's shape, whatever the browser says of itself."""
    settings = Settings.model_validate({"server": server, "storage": {"url": f"sqlite:///{tmp_path}/gateway.db"}})
    transport = httpx.ASGITransport(app=create_app(settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        for path in ("/ui", "/ui/", "/ui/login", "/ui/conversations", "/ui/static/ui.css"):
            answer = await client.get(path, headers=headers)
            assert answer.status_code == 404, path
            assert answer.json()["error"]["message"] == "There is nothing at this path."
