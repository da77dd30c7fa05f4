"""The pages, in the order of the navigation. A page's author adds its routes here; all else is in `page.py`."""

from gateway.http.ui.conversations import Conversations
from gateway.http.ui.entrance import Parts
from gateway.http.ui.health import Health
from gateway.http.ui.page import Answer, Page, PageRoute, home, redirect


def page_routes(parts: Parts) -> tuple[PageRoute, ...]:
    """All pages but login and logout. The first whose path and method fit counts."""
    conversations, health = Conversations(parts), Health(parts)
    return (
        PageRoute("GET", "/", _start),
        PageRoute("GET", "/conversations", conversations.show, nav="Conversations"),
        PageRoute("GET", "/health", health.show, nav="Health"),
    )


async def _start(page: Page) -> Answer:
    """`GET /ui`"""
    return redirect(home())
