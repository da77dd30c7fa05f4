"""`/ui/admin/keys`: who may change keys there, and that the API has what is changed (§12.1, §12.2, §13.16)."""

import re
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, status, user
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until
from tests.support.web_page import PageClient, Visits, WebPage, checked

ROOT, VIEWER, USER = "sk-root-of-ops-1", "sk-looks-at-acme", "sk-user-of-acme1"
KEYS = [
    {"key": ROOT, "tenant": "ops", "name": "root", "roles": ["admin"]},
    {"key": VIEWER, "tenant": "acme", "name": "looks", "roles": ["viewer"]},
    {"key": USER, "tenant": "acme", "name": "asks", "roles": ["user", "viewer"]},
]
WITHIN = 5.0
NEW = "/ui/admin/keys/new"
SCRIPT = "<script>alert(1)</script>"


gateway = shared_gateway({"auth": {"keys": KEYS}})


@pytest.fixture
def admin(visit: Visits) -> PageClient:
    return visit(ROOT)


def sent(client: PageClient, path: str, form: str = NEW, **fields: str) -> httpx.Response:
    """A form of the page `form`, sent with its token."""
    return client.post(path, {"csrf": client.token(form), **fields})


def made(client: PageClient, **fields: str) -> tuple[str, str]:
    """A key that is made on the page: its id and its secret."""
    answer = sent(client, NEW, **{"tenant": "acme", "role_user": "on", **fields})
    assert answer.status_code == 200, answer.text
    checked(answer)
    secret, name = re.search(r'value="(sk-gw-[\w-]{43})"', answer.text), re.search(r"keys/(key_\w+)", answer.text)
    assert secret
    assert name
    return name[1], secret[1]


def api(gateway: GatewayProcess, path: str, key: str = ROOT) -> Json:
    found: Json = gateway.get(f"/gateway/{path}", key=key).json()
    return found


def test_s13_16_a_key_made_on_the_page_is_one_of_the_apis(gateway: GatewayProcess, admin: PageClient) -> None:
    """All that a form says stands at the key; the secret is shown once and stands nowhere else."""
    fields = {"name": "Ann", "owner": "ann@x.org", "project": "search", "models": "gpt-4o*\r\nbench", "rpm": "60"}
    fields |= {"budget_usd_0": "5.5", "budget_period_0": "day", "budget_kind_0": "soft", "context_mode": "simple"}
    fields |= {"context_recall": "true", "expires_at": "2099-01-31T10:20:30", "retention_days": "30"}
    fields |= {"file_bytes": "1000000", "context_max_input_tokens": "9000"}
    key_id, secret = made(admin, **fields)
    told = api(gateway, f"keys/{key_id}")
    assert {name: told[name] for name in ("tenant", "name", "owner", "project", "roles", "models")} == {
        "tenant": "acme",
        "name": "Ann",
        "owner": "ann@x.org",
        "project": "search",
        "roles": ["user"],
        "models": ["gpt-4o*", "bench"],
    }
    assert told["budgets"] == [{"usd": 5.5, "period": "day", "hard": False}]
    assert told["limits"] == {"rpm": 60, "tpm": None, "concurrent": None}
    assert told["context"] == {"mode": "simple", "recall": True, "max_input_tokens": 9000}
    assert (told["expires_at"], told["retention_days"], told["file_bytes"]) == ("2099-01-31T10:20:30Z", 30.0, 1_000_000)
    assert status(gateway, secret) == 200
    assert status(gateway, secret, "small") == 403
    for path in ("/ui/admin/keys", f"/ui/admin/keys/{key_id}"):
        shown = admin.get(path)
        checked(shown)
        assert secret not in shown.text
        assert told["hint"] in shown.text
    assert secret not in gateway.log_text()
    assert secret not in str(api(gateway, "trail?limit=100"))


def test_s13_16_the_trail_has_what_was_done_on_the_page(gateway: GatewayProcess, admin: PageClient) -> None:
    key_id, _ = made(admin)
    one = f"/ui/admin/keys/{key_id}"
    assert sent(admin, one, one, tenant="acme", role_user="on", name="renamed").headers["location"].endswith("=changed")
    assert sent(admin, f"{one}/rotate", one, grace_seconds="3600").status_code == 200
    assert sent(admin, f"{one}/revoke", one, confirm="1").headers["location"].endswith("=revoked")
    events = [each for each in api(gateway, "trail?limit=100&order=desc")["data"] if each["object_id"] == key_id]
    changes = [each for each in events if not each["action"].endswith(".seen")]
    assert [each["action"] for each in reversed(changes)] == [
        "key.created",
        "key.updated",
        "key.rotated",
        "key.revoked",
    ]
    assert {each["actor_name"] for each in events} == {"root"}
    assert changes[2]["details"] == {"name": "renamed"}
    assert "key.seen" in {each["action"] for each in events}


@pytest.mark.parametrize("path", ["/ui/login", "/ui/login?key=x", "/ui/nowhere", "/ui"])
def test_s13_2_who_is_logged_in_logs_out_on_any_page(admin: PageClient, path: str) -> None:
    """The login's own page has the same menu."""
    token = WebPage(admin.get(path).text).tokens[0]
    assert admin.post("/ui/logout", {"csrf": token}).status_code == 303
    assert admin.get("/ui/conversations").status_code == 303


def test_s12_12_a_key_without_a_name_acts_by_its_owner_on_the_page(gateway: GatewayProcess, admin: PageClient) -> None:
    """As it does in the API: the trail says who it was."""
    key_id, secret = made(admin, owner="ann@x.org", role_admin="on")
    with PageClient(gateway.url) as browser:
        browser.log_in(secret)
        browser.page("/ui/conversations")
        sent(browser, "/ui/logout", "/ui/conversations")
    found = [each for each in api(gateway, "trail?limit=100&order=desc")["data"] if each["actor"] == key_id]
    assert [each["action"] for each in found] == ["ui.logout", "conversations.seen", "conversations.seen", "ui.login"]
    assert {each["actor_name"] for each in found} == {"ann@x.org"}


def test_s13_16_only_what_was_changed_in_the_form_is_changed(gateway: GatewayProcess, admin: PageClient) -> None:
    """Somebody else's change meanwhile stays, and a form that nobody touched changes nothing."""
    key_id, _ = made(admin, rpm="5", expires_at="2099-01-01T00:00")
    one = f"/ui/admin/keys/{key_id}"
    shown = {"tenant": "acme", "role_user": "on", "rpm": "5", "expires_at": "2099-01-01T00:00:00"}
    assert sent(admin, one, one, **shown).headers["location"].endswith("=same")
    assert sent(admin, one, one, **{**shown, "rpm": ""}, owner="bo").status_code == 303
    told = api(gateway, f"keys/{key_id}")
    assert (told["owner"], told["limits"]["rpm"]) == ("bo", None)
    assert told["expires_at"] == "2099-01-01T00:00:00Z"


def test_s13_16_a_form_that_was_open_undoes_nobody_elses_change(gateway: GatewayProcess, admin: PageClient) -> None:
    """What only somebody else touched stays; where both changed one field, the form is shown anew, and says so."""
    key_id, _ = made(admin, rpm="5", owner="ann")
    one = f"/ui/admin/keys/{key_id}"
    seal = re.search(r'name="seal" value="([^"]+)"', admin.get(one).text)
    assert seal
    form = {"tenant": "acme", "role_user": "on", "rpm": "5", "owner": "ann", "seal": seal[1]}
    change = {"limits": {"rpm": 1}, "models": ["bench"], "owner": "bo"}
    assert gateway.post(f"/gateway/keys/{key_id}", json=change, key=ROOT).status_code == 200
    assert sent(admin, one, one, **form).headers["location"].endswith("=same")
    assert sent(admin, one, one, **form, name="renamed").headers["location"].endswith("=changed")
    told = api(gateway, f"keys/{key_id}")
    assert (told["name"], told["owner"], told["models"], told["limits"]["rpm"]) == ("renamed", "bo", ["bench"], 1)
    refused = sent(admin, one, one, **{**form, "rpm": "9"}, name="again")
    assert refused.status_code == 409
    assert "Somebody else changed this key meanwhile: name, limits." in WebPage(refused.text).text
    assert 'value="renamed"' in refused.text
    assert api(gateway, f"keys/{key_id}") == told
    assert sent(admin, one, one, **{**form, "seal": "of another version", "rpm": "9"}).status_code == 409


def test_s12_2_revoked_on_the_page_it_ends_at_once_and_its_streams_too(
    gateway: GatewayProcess, admin: PageClient, upstream: MockUpstream
) -> None:
    key_id, secret = made(admin)
    one = f"/ui/admin/keys/{key_id}"
    upstream.handler = lambda _: Reply(text="one two three", stall_after=2)
    body = {"model": "gpt-4o", "messages": [user("hi")], "stream": True}
    with gateway.http(secret) as client, client.stream("POST", "/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        assert "Revoke an unnamed key?" in admin.page(f"{one}/revoke").text
        unsure = sent(admin, f"{one}/revoke", one)
        assert (unsure.status_code, "confirm" in unsure.text) == (400, True)
        assert sent(admin, f"{one}/revoke", one, confirm="1").status_code == 303
        at = datetime.now(UTC)
        assert "invalid_api_key" in "".join(lines)
        assert (datetime.now(UTC) - at).total_seconds() < WITHIN
    assert status(gateway, secret) == 401
    wait_until(lambda: upstream.in_flight == 0, "the end of the upstream's call", timeout=WITHIN)
    assert "cannot be undone" in admin.page(one).text
    assert admin.get(f"{one}/revoke").headers["location"] == one
    assert sent(admin, one, name="again").status_code == 409


def test_s12_2_a_login_with_a_replaced_secret_ends_with_its_grace(gateway: GatewayProcess, admin: PageClient) -> None:
    """Who only has the old secret does not look on for the hours of a session."""
    key_id, secret = made(admin, role_viewer="on")
    answer = sent(admin, f"/ui/admin/keys/{key_id}/rotate", f"/ui/admin/keys/{key_id}", grace_seconds="3600")
    new = re.search(r'value="(sk-gw-[\w-]{43})"', answer.text)
    assert new
    lasts = []
    for each in (secret, new[1]):
        with PageClient(gateway.url) as browser:
            cookies = browser.log_in(each).headers.get_list("set-cookie")
            assert browser.get("/ui/conversations").status_code == 200
        lasts += [int(found[1]) for each in cookies if (found := re.match(r"gateway_ui=.*Max-Age=(\d+)", each))]
    assert 3500 < lasts[0] <= 3600
    assert lasts[1] == 12 * 3600


def test_s13_16_a_page_that_is_loaded_again_acts_once(gateway: GatewayProcess, admin: PageClient) -> None:
    """Browsers send a form again: no second key is made, and the secret that was just copied goes on counting."""

    def field(path: str, name: str) -> str:
        found = re.search(rf'name="{name}" value="([^"]+)"', admin.get(path).text)
        assert found
        return found[1]

    key_id = field(NEW, "id")
    form = {"id": key_id, "tenant": "acme", "role_user": "on", "name": "twice"}
    one = f"/ui/admin/keys/{key_id}"
    assert sent(admin, NEW, **form).status_code == 200
    again = sent(admin, NEW, **form)
    assert (again.status_code, again.headers["location"]) == (303, f"{one}?done=made")
    assert [each["id"] for each in api(gateway, "keys?limit=100")["data"] if each["name"] == "twice"] == [key_id]
    seen = field(one, "seen")
    rotated = sent(admin, f"{one}/rotate", one, grace_seconds="0", seen=seen)
    secret = re.search(r'value="(sk-gw-[\w-]{43})"', rotated.text)
    assert secret
    again = sent(admin, f"{one}/rotate", one, grace_seconds="0", seen=seen)
    assert again.headers["location"] == f"{one}?done=stale"
    assert "Nothing was rotated" in admin.page(again.headers["location"]).text
    assert status(gateway, secret[1]) == 200
    assert sent(admin, f"{one}/rotate", one, grace_seconds="0", seen="now").status_code == 400


def test_s12_1_a_key_tells_its_use(gateway: GatewayProcess, admin: PageClient) -> None:
    """By the API and on the page, in each period that it has a budget for."""
    key_id, secret = made(admin, budget_usd_0="2", budget_period_0="day", name="spends")
    assert api(gateway, f"keys/{key_id}")["last_used_on"] is None
    assert status(gateway, secret) == 200
    today = datetime.now(UTC).date().isoformat()

    def used() -> bool:
        told = api(gateway, f"keys/{key_id}")
        return bool(told["spent_usd"]["day"]) and told["last_used_on"] == today

    wait_until(used, "the bill is added up")
    told = api(gateway, f"keys/{key_id}")
    assert len(set(told["spent_usd"].values())) == 1
    assert told["state"] == "active"
    (listed,) = [each for each in api(gateway, "keys?limit=100")["data"] if each["id"] == key_id]
    assert listed == told
    assert today in admin.page(f"/ui/admin/keys/{key_id}").text


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://elsewhere.example", "sec-fetch-site": ""}, {"sec-fetch-site": "cross-site"}]
)
def test_s13_16_a_form_of_somebody_elses_changes_nothing(
    gateway: GatewayProcess, admin: PageClient, headers: dict[str, str]
) -> None:
    key_id, secret = made(admin)
    one = f"/ui/admin/keys/{key_id}"
    for path in (NEW, one, f"{one}/rotate", f"{one}/revoke"):
        right = admin.token(one)
        for token in ("", "0" * 64) if not headers else (right,):
            fields = {"csrf": token, "tenant": "acme", "role_user": "on", "name": "evil", "confirm": "1"}
            assert (
                admin.post(path, fields, **{name.replace("-", "_"): each for name, each in headers.items()}).status_code
                == 403
            )
    assert api(gateway, f"keys/{key_id}")["name"] is None
    assert status(gateway, secret) == 200


@pytest.mark.parametrize("key", [VIEWER, USER])
def test_s13_16_who_is_no_administrator_sees_and_changes_nothing(
    gateway: GatewayProcess, admin: PageClient, visit: Visits, key: str
) -> None:
    key_id, secret = made(admin)
    one, client = f"/ui/admin/keys/{key_id}", visit(key)
    assert "/ui/admin" not in client.page("/ui/conversations").links
    paths = ("/ui/admin", "/ui/admin/keys", NEW, one, f"{one}/revoke")
    assert [client.get(path).status_code for path in paths] == [403] * len(paths)
    for path in (NEW, one, f"{one}/rotate", f"{one}/revoke"):
        answer = sent(client, path, "/ui/conversations", tenant="acme", role_admin="on", confirm="1")
        assert answer.status_code == 403
        assert "sk-gw-" not in answer.text
    assert status(gateway, secret) == 200


def test_s13_16_without_a_login_there_is_nothing(gateway: GatewayProcess) -> None:
    with PageClient(gateway.url) as client:
        assert client.get("/ui/admin/keys").headers["location"].startswith("/ui/login")
        headers = {"authorization": f"Bearer {ROOT}"}
        assert client.post(NEW, {"csrf": client.token("/ui/login"), "tenant": "acme"}, **headers).status_code == 303
    assert all(each["tenant"] != "nobody" for each in api(gateway, "keys?limit=100")["data"])


def test_s13_16_where_there_are_no_keys_the_page_makes_none(one_gateway: GatewayProcess) -> None:
    """As the API: nobody is known to be an administrator. What there is is shown, as all else to this machine."""
    with PageClient(one_gateway.url) as client:
        shown = client.page("/ui/admin/keys")
        assert "gateway keys create" in shown.text
        token = client.token("/ui/try")
        assert client.post(NEW, {"csrf": token, "tenant": "acme", "role_admin": "on"}).status_code == 403
        assert client.get(NEW).status_code == 403


@pytest.mark.parametrize("usd", ["1234567.89", "0.000000000001", "100", "0.1"])
def test_a_budget_stands_in_the_form_as_it_was_entered(admin: PageClient, usd: str) -> None:
    key_id, _ = made(admin, budget_usd_0=usd, budget_period_0="total")
    entered = re.search(r'name="budget_usd_0"[^>]* value="([^"]*)"', admin.get(f"/ui/admin/keys/{key_id}").text)
    assert entered
    assert entered[1] == usd


def test_a_key_of_the_configuration_is_changed_there(gateway: GatewayProcess, admin: PageClient) -> None:
    (root,) = [each for each in api(gateway, "keys?limit=100")["data"] if each["name"] == "root"]
    one = f"/ui/admin/keys/{root['id']}"
    shown = admin.page(one)
    assert "change it there" in shown.text
    assert admin.get(f"{one}/revoke").headers["location"] == one
    for path in (one, f"{one}/rotate", f"{one}/revoke"):
        assert sent(admin, path, confirm="1", name="else").status_code == 409


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tenant": ""}, "Tenant is required."),
        ({"tenant": "a b"}, "Tenant may have only letters, digits, dots, hyphens, underscores, : and @."),
        ({"name": "a\x00b"}, "Name must not have control characters."),
        ({"name": "n" * 129}, "Name must have at most 128 characters."),
        ({"models": "gpt\x00"}, "Models must not have control characters."),
        ({"models": "m" * 257}, "Models must have at most 256 characters."),
        ({"role_user": ""}, "Roles must name at least one of user, viewer, admin."),
        ({"budget_usd_0": "much", "budget_period_0": "day"}, "Budget 1 must be a number."),
        ({"budget_usd_2": "-1", "budget_period_2": "day"}, "Budget 3 must be at least 0."),
        ({"budget_usd_0": "1", "budget_period_0": "year"}, "Budget 1 must be"),
        ({"rpm": "1.5"}, "Requests per minute must be a whole number."),
        ({"rpm": "9" * 30}, "Requests per minute must be"),
        ({"context_mode": SCRIPT}, "mode must be"),
        ({"expires_at": "soon"}, "Expires (UTC) must be a date and a time."),
        ({"retention_days": "0"}, "Days that conversations are kept must be greater than 0."),
        ({"expires_at": "2020-01-01T00:00:00"}, "Expires (UTC) must be in the future."),
        ({"expires_at": "1577836800"}, "Expires (UTC) must be in the future."),
        ({"models": "gpt-4o*\nno-such-model"}, "Models must match a model that is served; no-such-model does not."),
        ({"file_bytes": "nan"}, "File storage (bytes) must be a whole number."),
    ],
)
def test_what_is_wrong_with_a_key_is_named_and_stays_in_the_form(
    gateway: GatewayProcess, admin: PageClient, fields: dict[str, str], says: str
) -> None:
    before = api(gateway, "keys?limit=100")["data"]
    answer = sent(admin, NEW, **{"tenant": "acme", "role_user": "on", "owner": "stays here", **fields})
    shown = WebPage(answer.text)
    assert answer.status_code == 400
    assert not shown.faults
    assert says in shown.text
    assert 'value="stays here"' in answer.text
    assert len(re.findall(r' aria-invalid="true"', answer.text)) == 1
    assert re.search(r' aria-describedby="e-\w+[^>]* aria-invalid="true" autofocus', answer.text)
    assert SCRIPT not in answer.text
    assert api(gateway, "keys?limit=100")["data"] == before


def test_all_faults_of_a_key_are_told_at_once_and_the_first_has_the_focus(admin: PageClient) -> None:
    """And no row of what was entered is lost, however many are empty before it."""
    entered = {"tenant": "a b", "rpm": "many", "budget_usd_4": "much", "budget_period_4": "day", "role_user": "on"}
    answer = sent(admin, NEW, **entered)
    assert re.findall(r'<li><a href="#f-(\w+)">', answer.text) == ["tenant", "budget_usd_4", "rpm"]
    assert re.findall(r'id="f-(\w+)"[^>]* autofocus', answer.text) == ["tenant"]
    assert 'name="budget_usd_4" inputmode="decimal" value="much"' in answer.text
    assert "<title>Error: New key" in answer.text


def test_what_a_key_had_may_stay_though_a_new_key_could_not_have_it(gateway: GatewayProcess, admin: PageClient) -> None:
    """A model that left the configuration, and a time that has passed: the API takes both."""
    body = {"tenant": "acme", "models": ["left", "gpt-4o"], "expires_at": "2020-01-01T00:00:00Z"}
    key_id = gateway.post("/gateway/keys", json=body, key=ROOT).json()["id"]
    one = f"/ui/admin/keys/{key_id}"
    form = {"tenant": "acme", "role_user": "on", "expires_at": "2020-01-01T00:00:00"}
    changed = {**form, "models": "left\nbench", "name": "renamed"}
    assert sent(admin, one, one, **changed).headers["location"].endswith("=changed")
    wrong = sent(admin, one, one, **{**changed, "models": "left\nbensch", "expires_at": "2020-01-02T00:00:00"})
    assert re.findall(r'<li><a href="#f-(\w+)">', wrong.text) == ["expires_at", "models"]


def test_a_list_of_keys_has_pages_and_filters(admin: PageClient) -> None:
    for number in range(52):
        made(admin, tenant="many", name=f"key {number}")
    first = admin.page("/ui/admin/keys?tenant=many")
    (further,) = {link for link in first.links if "after=" in link}
    second = admin.page(further)
    assert "key 51" in first.text
    assert "key 1" not in re.findall(r"key \d+", first.text)
    assert "key 1" in re.findall(r"key \d+", second.text)
    assert admin.get("/ui/admin/keys?after=key_none").status_code == 400
    assert admin.get("/ui/admin/keys/key_none").status_code == 404


def test_a_form_of_too_many_fields_is_refused(admin: PageClient) -> None:
    fields: dict[str, Any] = {f"f{number}": "x" for number in range(1200)}
    assert sent(admin, NEW, **fields).status_code == 400
