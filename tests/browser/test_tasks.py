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
    """Clicks on a page, and counts that; what is typed is no click."""

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


@pytest.mark.parametrize(
    "task",
    [
        failed_request_of_a_user,
        why_it_cost_so_much,
        why_a_document_was_cut,
        which_requests_failed_today,
        which_model_is_slow,
        what_a_user_spent,
    ],
)
def test_a_task_takes_three_clicks_at_most(
    open_page: Opening, world: World, task: Callable[[Hand, World], None]
) -> None:
    hand = Hand(open_page("/ui"))
    hand.page.page.set_default_timeout(8_000)
    task(hand, world)
    assert hand.clicks <= MOST
