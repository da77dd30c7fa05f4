"""The pages, in the order of the navigation. A page's author adds its routes here; all else is in `page.py`."""

from gateway.http.ui.conversation import OneConversation
from gateway.http.ui.conversations import Conversations
from gateway.http.ui.costs import Costs
from gateway.http.ui.health import Health
from gateway.http.ui.page import Answer, Page, PageRoute, home, redirect
from gateway.http.ui.parts import PageParts
from gateway.http.ui.request import OneRequest
from gateway.http.ui.try_it import TryIt

MAX_UPLOAD = 16 * 2**20
"""Bytes of a question with its files at `/ui/try`; larger ones go to the API, which counts them while they come."""


def page_routes(parts: PageParts) -> tuple[PageRoute, ...]:
    """All pages but login and logout. The first whose path and method fit counts."""
    conversations, costs, health, try_it = Conversations(parts), Costs(parts), Health(parts), TryIt(parts)
    conversation, request = OneConversation(parts), OneRequest(parts)
    return (
        PageRoute("GET", "/", _start),
        PageRoute("GET", "/conversations", conversations.show, nav="Conversations", seen="conversations.seen"),
        PageRoute("GET", "/conversations/{conversation_id}", conversation.show, seen="conversation.seen"),
        PageRoute("GET", "/requests/{request_id}", request.show, seen="request.seen"),
        PageRoute("GET", "/requests/{request_id}/text", request.text, seen="request.text_seen"),
        PageRoute("GET", "/requests/{request_id}/document", request.document, seen="request.text_seen"),
        PageRoute("POST", "/requests/{request_id}/in-full", request.in_full, seen="request.seen"),
        PageRoute("GET", "/costs", costs.show, nav="Costs", seen="costs.seen"),
        PageRoute("GET", "/costs.csv", costs.csv, seen="costs.seen"),
        PageRoute("GET", "/try", try_it.show, nav="Try it"),
        PageRoute("POST", "/try", try_it.ask, max_body=min(parts.settings.server.max_body_bytes, MAX_UPLOAD)),
        PageRoute("GET", "/health", health.show, nav="Health"),
    )


async def _start(page: Page) -> Answer:
    """`GET /ui`"""
    return redirect(home())
