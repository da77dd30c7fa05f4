"""Each page as a person uses it (guarantee §13.19): looked at in both schemes and on a small screen, searched, opened,
expanded."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.browser.conftest import Opening
from tests.browser.watched import NARROW, Watched
from tests.browser.world import World

pytestmark = pytest.mark.browser
Address = Callable[[World], str]


def _at(path: str) -> Address:
    return lambda world: path


def _of(kind: str, name: str) -> Address:
    return lambda world: f"/ui/{kind}/{getattr(world, kind)[name]}"


def _made(name: str) -> Address:
    return lambda world: world.paths[name]


def _document(world: World) -> str:
    """A large document, where a request's page leads to it."""
    path = f"/ui/requests/{world.requests['large']}"
    with httpx.Client(base_url=world.url, cookies=world.cookies, trust_env=False) as client:
        found = re.search(rf"{path}/document\?number=\d+", client.get(path).text)
    assert found, "the request does not lead to its document"
    return found[0]


PAGES: dict[str, dict[str, Address]] = {
    "world": {
        "overview": _at("/ui"),
        "requests": _at("/ui/requests"),
        "requests-failed": _at("/ui/requests?status=failed"),
        "requests-filtered": _at("/ui/requests?min_ms=1&max_cost=10&sort=cost"),
        "requests-none": _at("/ui/requests?user=nobody&text=nothing"),
        "requests-refused": _at("/ui/refused"),
        "search": _at("/ui/search?q=bench"),
        "conversations": _at("/ui/conversations"),
        "nothing-found": _at("/ui/conversations?text=nobody+said+this"),
        "costs": _at("/ui/costs"),
        "costs-by-model": _at("/ui/costs?by=model"),
        "costs-by-user": _at("/ui/costs?by=user"),
        "compare": lambda world: f"/ui/compare?a={world.requests['planned']}&b={world.requests['planned, again']}",
        "compare-failed": lambda world: f"/ui/compare?a={world.requests['planned']}&b={world.requests['failed']}",
        "compare-form": _at("/ui/compare"),
        "glossary": _at("/ui/glossary"),
        "try-empty": _at("/ui/try"),
        "health": _at("/ui/health"),
        "no-such-page": _at("/ui/requests/req_unknown"),
        "bad-filter": _at("/ui/requests?since=whenever"),
        **{
            f"conversation-{name}": _of("conversations", name)
            for name in ("planned", "long", "branched", "partial", "hostile")
        },
        **{
            f"request-{name.replace(', ', '-')}": _of("requests", name)
            for name in ("planned", "planned, again", "long", "partial", "failed", "hostile", "huge")
        },
    },
    "keyed_world": {
        "admin-overview": _at("/ui"),
        "admin-requests": _at("/ui/requests"),
        "admin-keys": _at("/ui/admin/keys?revoked=1"),
        "admin-new-key": _at("/ui/admin/keys/new"),
        "admin-key": _made("key"),
        "admin-key-revoke": lambda world: world.paths["key"] + "/revoke",
        "admin-key-revoked": _made("key, revoked"),
        "admin-files": _at("/ui/admin/files"),
        "admin-file": _made("file"),
        "admin-models": _at("/ui/admin/models"),
        "admin-configuration": _at("/ui/admin/configuration"),
        "document": _document,
    },
    "fresh_world": {
        "fresh-overview": _at("/ui"),
        "fresh-requests": _at("/ui/requests"),
        "fresh-refused": _at("/ui/refused"),
        "fresh-conversations": _at("/ui/conversations"),
        "fresh-costs": _at("/ui/costs"),
        "fresh-health": _at("/ui/health"),
        "fresh-keys": _at("/ui/admin/keys"),
        "fresh-files": _at("/ui/admin/files"),
        "fresh-models": _at("/ui/admin/models"),
    },
}
"""Each page that can be looked at, by the gateway that has it."""
Visiting = Callable[..., Watched]
every_page = pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, some in PAGES.items() for name in some])


@pytest.fixture
def visit(open_page: Opening, request: pytest.FixtureRequest) -> Visiting:
    """Opens a page of the table, logged in where that is needed."""

    def visiting(kind: str, name: str, **options: Any) -> Watched:
        at: World = request.getfixturevalue(kind)
        return open_page(PAGES[kind][name](at), url=at.url, logged_in=at.cookies, **options)

    return visiting


@every_page
def test_a_page_fits_and_can_be_used_by_all(visit: Visiting, kind: str, name: str) -> None:
    page = visit(kind, name)
    assert page.page.locator("h1").count() == 1
    assert page.page.locator("main").count() == 1
    page.assert_fits(name)


@every_page
def test_a_page_needs_neither_a_script_nor_a_mouse(visit: Visiting, kind: str, name: str) -> None:
    """Whatever can be used is come to by Tab, and is seen to have the focus."""
    page = visit(kind, name, scripts=False, size=NARROW)
    assert page.page.locator("h1").inner_text()
    assert not page.overflowing()
    assert not page.page.locator("[data-needs-script]:visible").count()
    controls = page.controls()
    assert controls[0] == "Skip to the content"
    for number in range(len(controls)):
        page.page.keyboard.press("Tab")
        while (focused := page.focused())["control"] == number - 1:  # a field of a time is several to Tab
            page.page.keyboard.press("Tab")
        assert (focused["control"], focused["outline"]) == (number, True), (controls[number], focused)


@pytest.mark.parametrize("scripts", [True, False], ids=["with a script", "without"])
def test_from_a_search_to_what_a_model_was_shown(open_page: Opening, world: World, scripts: bool) -> None:
    """The way of somebody who is asked why an answer was wrong: find it, look at its turns, its request, and ask what
    it would have been with a document in full."""
    page = open_page("/ui", scripts=scripts)
    page.page.get_by_role("link", name="Conversations", exact=True).click()
    page.page.get_by_label("First question contains").fill("order 4411")
    page.page.get_by_role("button", name="Filter").click()
    page.page.get_by_role("link", name="Order 4411 came late").click()
    assert page.page.url == f"{world.url}/ui/conversations/{world.conversations['planned']}"
    assert page.page.locator(".turn").count() == 2
    page.page.locator("#turn-1").get_by_role("link", name="request").click()
    assert page.page.url == f"{world.url}/ui/requests/{world.requests['planned']}"
    shown = page.page.locator(".artifact", has=page.page.locator("summary", has_text="Framework contract"))
    marked = " ".join(shown.locator("mark").all_inner_texts())
    assert "the supplier credits the customer 2 %" in " ".join(marked.split())
    assert "said to be out of date" in shown.inner_text()
    left_out, text = shown.locator(".skip").first.bounding_box(), shown.locator("pre.original").bounding_box()
    assert left_out
    assert text
    assert left_out["y"] > text["y"], "how much was left out stands where it was"
    asked = len(world.upstream.chats_of("gpt-4o"))
    shown.get_by_role("button", name="Dry run with the whole text").click()
    page.page.get_by_role("heading", level=1).wait_for()
    assert "in-full" in page.page.url
    assert "$" in page.page.inner_text("main")
    end = page.page.evaluate(
        "() => document.documentElement.scrollHeight - document.body.getBoundingClientRect().bottom"
    )
    assert end < 2, "the page ends where its content does"
    page.shot(f"in-full{'' if scripts else '-without-script'}")
    assert not page.overflowing()
    assert len(world.upstream.chats_of("gpt-4o")) == asked


def test_a_branch_is_chosen_out_of_the_tree(open_page: Opening, world: World) -> None:
    page = open_page(f"/ui/conversations/{world.conversations['branched']}")
    assert "Who lives beside it?" in page.page.inner_text(".turns")
    page.page.locator(".tree li", has_text="turns 2 to 3").get_by_role("link", name="show").click()
    page.page.locator(".turns", has_text="In feet?").wait_for()
    assert "Who lives beside it?" not in page.page.inner_text(".turns")
    page.shot("branch")


def test_what_is_new_comes_by_itself(open_page: Opening, world: World) -> None:
    page = open_page("/ui/conversations")
    world.ask("new", {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Is this one new?"}]})
    page.page.get_by_role("link", name="Is this one new?").first.wait_for(timeout=20_000)


def test_by_the_keyboard_from_the_skip_link_to_a_request(open_page: Opening, world: World) -> None:
    page = open_page("/ui/conversations")
    keyboard = page.page.keyboard
    keyboard.press("Tab")
    assert page.focused()["text"] == "Skip to the content"
    assert page.focused()["outline"]
    keyboard.press("Enter")
    for _ in range(3):  # the box that says live comes before the search
        keyboard.press("Tab")
        assert page.focused()["outline"]
        if page.focused()["id"] == "text":
            break
    keyboard.type("order 4411")
    keyboard.press("Enter")
    page.page.get_by_role("link", name="Clear").wait_for()
    for wanted in (f"c-{world.conversations['planned']}", None):
        found = None
        for _ in range(40):
            keyboard.press("Tab")
            found = page.focused()
            assert found["outline"], found
            if found["id"] == wanted or (wanted is None and "/ui/requests/" in str(found["href"])):
                break
        else:
            pytest.fail(f"Tab does not lead to it: {found}")
        with page.page.expect_navigation():
            keyboard.press("Enter")
    assert page.page.url.startswith(f"{world.url}/ui/requests/")


@pytest.mark.parametrize("scripts", [True, False], ids=["with a script", "without"])
@pytest.mark.parametrize("kind", ["conversations", "requests"])
def test_what_somebody_wrote_is_text(open_page: Opening, world: World, kind: str, scripts: bool) -> None:
    """Names, titles, users, metadata, calls, documents and answers, each of them hostile. What may not happen at all
    (a dialog, a request to elsewhere, a line of the console, as of a policy that was in the way) is seen to by
    `open_page`."""
    ids = world.conversations if kind == "conversations" else world.requests
    harmless = open_page(f"/ui/{kind}/{ids['planned']}", scripts=scripts)
    page = open_page(f"/ui/{kind}/{ids['hostile']}", scripts=scripts)
    page.open_all()
    page.page.wait_for_timeout(300)
    assert page.scripts() == harmless.scripts()
    told = page.page.locator("main").inner_text()
    assert "<script>window.ran = 1" in told
    assert not re.search(r"[\x00\x07\x1b\x7f\u202e]+$", told, re.MULTILINE)
    assert not re.search(r"[\x00\x07\x1b\x7f]", told)
    assert (
        page.page.locator("main img, main style, main script, main iframe, main [onload], main [onerror]").count() == 0
    )
    own = ("/ui/", "#", "?")
    addresses = page.page.eval_on_selector_all("main a", "all => all.map(e => e.getAttribute('href'))")
    assert [each for each in addresses if not each.startswith(own)] == []


def test_a_text_that_is_saved_is_no_page(open_page: Opening, world: World) -> None:
    page = open_page(f"/ui/requests/{world.requests['huge']}")
    with page.page.expect_download() as waited:
        page.page.get_by_role("link", name="Download the whole text").first.click()
    assert waited.value.path().stat().st_size > 5_000_000
    assert waited.value.suggested_filename.endswith(".txt")


def test_who_logs_in_sees_a_tenant_and_is_gone_after_logging_out(open_page: Opening, keyed_world: World) -> None:
    page = open_page("/ui/costs", url=keyed_world.url)
    assert page.page.url.startswith(f"{keyed_world.url}/ui/login")
    page.shot("login")
    assert not page.findings()
    page.page.get_by_label("Key").fill("sk-nobody-knows-it")
    page.page.get_by_role("button", name="Log in").click()
    page.page.get_by_role("alert").wait_for()
    page.shot("login-refused")
    page.page.get_by_label("Key").fill("sk-looks-at-acme")
    page.page.get_by_role("button", name="Log in").click()
    page.page.get_by_role("heading", name="Costs").wait_for()
    page.page.get_by_role("link", name="Conversations").click()
    page.page.get_by_role("link", name="A question of acme.").wait_for()
    assert "A question of others." not in page.page.inner_text("main")
    (session,) = [each for each in page.context.cookies() if each["name"].endswith("gateway_ui")]
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")
    page.page.get_by_role("link", name="Try it").click()
    assert page.page.locator("textarea").count() == 0
    page.page.locator("details.account summary").click()
    page.shot("logged-in", full=False)
    page.page.get_by_role("button", name="Log out", exact=True).click()
    page.page.get_by_role("heading", name="Log in").wait_for()
    page.go("/ui/conversations")
    assert "/ui/login" in page.page.url
    page.errors[:] = [each for each in page.errors if "status of 401" not in each]  # Chromium's own line
