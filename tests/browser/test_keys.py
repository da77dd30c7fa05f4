"""Keys as an administrator makes and changes them: what is wrong is said at its field, and a secret is shown once."""

import re

import pytest

from tests.browser.conftest import ADMIN, Opening
from tests.browser.watched import NARROW, SCHEMES, WIDE, Watched
from tests.browser.world import World

pytestmark = pytest.mark.browser
NEW = "/ui/admin/keys/new"
SECRET = re.compile(r"sk-gw-[\w-]{43}")
FAULTS = {
    "tenant": ("a tenant", "Tenant may have only letters, digits, dots, hyphens, underscores, : and @."),
    "name": ("n" * 129, "Name must have at most 128 characters."),
    "expires_at": ("2020-01-31T10:20:30", "Expires (UTC) must be in the future."),
    "models": ("gpt-4o\nno-such-model", "Models must match a model that is served; no-such-model does not."),
    "budget_usd_1": ("much", "Budget 2 must be a number."),
    "rpm": ("1.5", "Requests per minute must be a whole number."),
}
"""By field, in the order of the page: what is entered, and what is said of it."""
with_and_without = pytest.mark.parametrize("scripts", [True, False], ids=["with a script", "without"])


@pytest.fixture
def admin(open_page: Opening, keyed_world: World) -> Opening:
    """Opens pages as an administrator."""

    def opening(path: str = NEW, **options: object) -> Watched:
        return open_page(path, url=keyed_world.url, logged_in=keyed_world.cookies, **options)

    return opening


def looked_at(page: Watched, name: str) -> None:
    """As `assert_fits`, of a page that is the answer to a form and cannot be opened again."""
    for size in (WIDE, NARROW):
        page.page.set_viewport_size({"width": size[0], "height": size[1]})
        for scheme in SCHEMES:
            page.page.emulate_media(color_scheme=scheme)
            page.shot(f"{name}{'-narrow' if size == NARROW else ''}{'-dark' if scheme == 'dark' else ''}")
            assert not page.overflowing()
            if page.scripted:
                assert not page.findings(), (size, scheme)


def sent(page: Watched, name: str) -> None:
    """Presses a button that leads to another page."""
    with page.page.expect_navigation():
        page.page.get_by_role("button", name=name, exact=True).press("Enter")
    page.errors[:] = [each for each in page.errors if "status of 400" not in each]  # Chromium's own line


def followed(page: Watched, name: str) -> None:
    """Follows a link."""
    with page.page.expect_navigation():
        page.page.get_by_role("link", name=name, exact=True).press("Enter")


@with_and_without
def test_what_is_wrong_with_a_key_stands_at_its_field(admin: Opening, scripts: bool) -> None:
    page = admin(scripts=scripts)
    for field, (text, _) in FAULTS.items():
        page.page.fill(f"#f-{field}", text)
    page.page.fill("#f-owner", "stays here")
    sent(page, "Create key")
    told = page.page.get_by_role("alert")
    assert told.locator("li").all_inner_texts() == [says for _, says in FAULTS.values()]
    assert page.focused()["id"] == "f-tenant"
    for field, (text, says) in FAULTS.items():
        control = page.page.locator(f"#f-{field}")
        assert control.input_value() == text
        assert control.get_attribute("aria-invalid") == "true"
        described = str(control.get_attribute("aria-describedby")).split()
        assert page.page.inner_text(f"#{described[0]}") == says
    assert page.page.input_value("#f-owner") == "stays here"
    assert page.page.locator("[aria-invalid]").count() == len(FAULTS)
    looked_at(page, f"key-faults{'' if scripts else '-without-script'}")
    told.get_by_role("link", name=FAULTS["rpm"][1]).press("Enter")
    assert page.page.evaluate("() => location.hash") == "#f-rpm"


@pytest.mark.parametrize("field", FAULTS)
def test_the_first_fault_has_the_focus(admin: Opening, field: str) -> None:
    page = admin(size=NARROW)
    page.page.fill(f"#f-{field}", FAULTS[field][0])
    sent(page, "Create key")
    assert page.focused()["id"] == f"f-{field}"
    assert page.focused()["outline"]
    assert page.page.locator(f"#f-{field}").evaluate(
        "e => { const at = e.getBoundingClientRect(); return at.top >= 0 && at.bottom <= innerHeight; }"
    )


@with_and_without
def test_an_empty_tenant_is_not_sent(admin: Opening, scripts: bool) -> None:
    """The browser says so itself, at the field; only blanks are the server's to refuse."""
    page = admin(scripts=scripts)
    page.page.fill("#f-tenant", "")
    page.page.get_by_role("button", name="Create key").press("Enter")
    assert page.focused()["id"] == "f-tenant"
    assert page.page.url.endswith(NEW)
    page.page.fill("#f-tenant", "  ")
    sent(page, "Create key")
    assert page.page.inner_text("#e-tenant") == "Tenant is required."
    assert page.focused()["id"] == "f-tenant"


@with_and_without
def test_a_new_secret_is_shown_once(admin: Opening, scripts: bool) -> None:
    """Made and rotated, by the keyboard: the secret has the focus, can be copied, and is on no later page."""
    page = admin(scripts=scripts)
    page.page.focus("#f-name")
    page.page.keyboard.type("Nightly jobs")
    page.page.keyboard.press("Enter")
    first = shown(page, "New key", scripts=scripts)
    followed(page, "Go to the key")
    assert page.page.get_by_role("heading", level=1).inner_text() == "Nightly jobs"
    assert first not in page.page.content()
    page.page.select_option("#grace", label="after an hour")
    sent(page, "Rotate key")
    second = shown(page, "Key rotated", scripts=scripts)
    assert "The old secret stops working after an hour." in page.page.inner_text("main")
    assert first != second
    for path in ("/ui/admin/keys", "/ui/admin/keys?revoked=1"):
        page.go(path)
        assert first not in page.page.content()
        assert second not in page.page.content()


def shown(page: Watched, heading: str, *, scripts: bool) -> str:
    """The secret, which a page shows at the place of its focus."""
    page.page.get_by_role("heading", name=heading, level=1).wait_for()
    secret: str = page.page.input_value("#secret")
    assert SECRET.fullmatch(secret)
    assert page.focused()["id"] == "secret"
    looked_at(page, f"secret-{heading.lower().replace(' ', '-')}{'' if scripts else '-without-script'}")
    copy = page.page.locator("#copy")
    assert copy.is_visible() is scripts
    if scripts:
        assert page.page.evaluate("() => getSelection().toString()") == secret
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.page.keyboard.press("Tab")
        page.page.keyboard.press("Enter")
        page.page.locator("#copy-status", has_text="Copied.").wait_for()
        assert page.page.evaluate("() => navigator.clipboard.readText()") == secret
    return secret


@with_and_without
def test_a_key_is_revoked_by_the_keyboard(admin: Opening, scripts: bool) -> None:
    """A page between the link and the deed says which key it is, and leads back."""
    page = admin(scripts=scripts)
    page.page.fill("#f-name", "Lost laptop")
    sent(page, "Create key")
    followed(page, "Go to the key")
    for way_out in (followed, sent):
        followed(page, "Revoke…")
        assert page.page.get_by_role("heading", level=1).inner_text() == "Revoke Lost laptop?"
        looked_at(page, f"key-revoke{'' if scripts else '-without-script'}")
        way_out(page, "Cancel" if way_out is followed else "Revoke key")
        assert page.page.get_by_role("heading", level=1).inner_text() == "Lost laptop"
        assert (page.page.get_by_text("The key is revoked.").count() == 1) is (way_out is sent)


def test_the_administrators_own_key_is_no_secret_of_the_page(admin: Opening) -> None:
    page = admin("/ui/admin/keys")
    assert ADMIN not in page.page.content()
