"""What a team lead asks, by the mouse in a real browser: three clicks at most from the overview."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.browser.conftest import Opening
from tests.browser.watched import Watched
from tests.browser.world import World

pytestmark = pytest.mark.browser
MOST = 3


@dataclass
class Hand:
    """Clicks on a page, and counts that; what is typed, or dropped on a field, is no click."""

    page: Watched
    clicks: int = 0

    def click(self, name: str, *, exact: bool = True, within: str = "body", role: Any = "link") -> None:
        self.page.page.locator(within).get_by_role(role, name=name, exact=exact).first.click()
        self.clicks += 1

    def open(self, address: str) -> None:
        self.page.page.locator(f"main a[href='{address}']").first.click()
        self.page.page.wait_for_url(f"**{address}")
        self.clicks += 1

    def told(self) -> str:
        return str(self.page.page.inner_text("main"))


def failed_request_of_a_user(hand: Hand, world: World) -> None:
    hand.click("Requests", within="nav")
    hand.page.page.fill("#user", "lin")
    hand.click("Filter", role="button", within="main")
    hand.open(f"/ui/requests/{world.requests['failed']}")
    assert "The model broke" in hand.told()


def why_it_cost_so_much(hand: Hand, world: World) -> None:
    hand.click("Requests", within="nav")
    hand.page.page.fill("#user", "ada")
    hand.click("Filter", role="button", within="main")
    hand.open(f"/ui/requests/{world.requests['planned']}")
    assert "$" in hand.told()
    assert "gpt-4o" in hand.told()


def why_a_document_was_cut(hand: Hand, world: World) -> None:
    hand.page.page.get_by_role("searchbox").first.fill(world.requests["planned"])
    hand.page.page.keyboard.press("Enter")
    hand.page.page.wait_for_url(f"**/ui/requests/{world.requests['planned']}")
    assert "Framework contract" in hand.told()
    assert "forwarded text is marked" in hand.told()


def which_requests_failed_today(hand: Hand, world: World) -> None:
    hand.click("Failed requests", exact=False, within="main")
    assert "status=failed" in hand.page.page.url
    assert hand.page.page.locator(f"a[href='/ui/requests/{world.requests['failed']}']").count()


def which_model_is_slow(hand: Hand, world: World) -> None:
    assert "p95" in hand.told()


def what_a_user_spent(hand: Hand, world: World) -> None:
    hand.click("Costs", within="nav")
    hand.click("user", within="main")
    hand.page.page.locator("tbody th", has_text="ada").wait_for()


def upload_a_file(hand: Hand, world: World) -> None:
    hand.click("Admin", within="nav")
    hand.click("Files", within="main")
    hand.page.page.set_input_files("#file", {"name": "lamps.txt", "mimeType": "text/plain", "buffer": b"Ada. " * 50})
    hand.click("Upload", role="button", within="main")
    hand.page.page.get_by_role("heading", name="lamps.txt", level=1).wait_for()
    hand.page.page.locator("#state", has_text="ready").wait_for()


def compare_two_requests(hand: Hand, world: World) -> None:
    hand.click("Requests", within="nav")
    hand.open(f"/ui/requests/{world.requests['huge']}")
    hand.click("Compare with another request")
    hand.page.page.get_by_label("Request B").fill(world.requests["failed"])
    hand.page.page.keyboard.press("Enter")
    hand.page.page.get_by_role("heading", name="Answers").wait_for()
    assert all(world.requests[name] in hand.told() for name in ("huge", "failed"))


def revoke_a_key(hand: Hand, world: World) -> None:
    hand.click("Admin", within="nav")
    hand.click("Revoke… lost", within="main")
    assert "within five seconds" in hand.told()
    hand.click("Revoke key", role="button", within="main")
    hand.page.page.get_by_role("status").get_by_text("The key is revoked.").wait_for()
    assert hand.page.page.get_by_role("heading", level=1).inner_text() == "lost"


def why_a_budget_refused(hand: Hand, world: World) -> None:
    hand.open("/ui/refused")
    assert "429 budget_exceeded" in hand.told()
    hand.click("spent", within="main")
    assert "of <$0.000001 / month" in hand.told()


def which_budget_is_near_its_end(hand: Hand, world: World) -> None:
    alert = hand.page.page.get_by_role("listitem").filter(has_text="Budget of key").filter(has_text="<script>")
    assert "of $0.000001 (month)" in alert.inner_text()
    hand.click("Budget of key", exact=False, within=".alerts")
    assert "Who is the keeper of lamp 1999?" in hand.told()


TASKS: dict[str, list[Callable[[Hand, World], None]]] = {
    "world": [
        failed_request_of_a_user,
        why_it_cost_so_much,
        why_a_document_was_cut,
        which_requests_failed_today,
        which_model_is_slow,
        what_a_user_spent,
        compare_two_requests,
    ],
    "keyed_world": [upload_a_file, revoke_a_key, why_a_budget_refused, which_budget_is_near_its_end],
}
"""By the gateway where it is done: without keys, or as its administrator."""


@pytest.mark.parametrize(("kind", "task"), [(kind, task) for kind, some in TASKS.items() for task in some])
def test_a_task_takes_three_clicks_at_most(
    open_page: Opening, request: pytest.FixtureRequest, kind: str, task: Callable[[Hand, World], None]
) -> None:
    at: World = request.getfixturevalue(kind)
    hand = Hand(open_page("/ui", url=at.url, logged_in=at.cookies))
    hand.page.page.set_default_timeout(8_000)
    task(hand, at)
    assert hand.clicks <= MOST
