"""`/ui/conversations`: what was asked lately, and what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.api.fields import invalid
from gateway.api.ui.dependencies import PageParts
from gateway.api.ui.page import PageAnswer, PageRequest
from gateway.core.errors import InvalidRequest
from gateway.core.types.report_lists import (
    ConversationChoice,
    ConversationLine,
    Direction,
    ListPart,
    ListPosition,
)
from gateway.storage.reports.conversations import list_conversations

ON_A_PAGE = 50
LONGEST = 300
"""Characters of what is looked for."""
FIELDS = ("text", "id", "session", "user", "model")
"""What may be looked for, by the names of `ConversationChoice`."""


@dataclass(frozen=True, slots=True)
class PageSums:
    """Of the conversations that a page shows."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: Decimal
    unpriced: int
    estimated: int
    is_known: bool
    metered: int
    net_saving: Decimal


class ConversationPages:
    """`GET /ui/conversations`: those that were active last in front; `older` and `newer` name the place in the list
    from which a page begins."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts

    async def show(self, page: PageRequest) -> PageAnswer:
        """The page. Raises InvalidRequest: what is looked for is too long, or the place is none."""
        part = _part(page)
        found = await self._parts.transactions.run(partial(list_conversations, part=part))
        return await page.render(
            "conversations.html",
            found=found.found,
            sums=_sums(found.found),
            wanted={name: page.query.get(name, "") for name in FIELDS},
            is_search=any(page.query.get(name) for name in FIELDS),
            is_live=part.at is None,
            older=found.older and page.link(older=str(found.older), newer=None),
            newer=found.newer and page.link(newer=str(found.newer), older=None),
        )


def _part(page: PageRequest) -> ListPart[ConversationChoice]:
    wanted: dict[str, Any] = {}
    for name in FIELDS:
        given = page.query.get(name, "").strip()
        if len(given) > LONGEST:
            raise invalid(name, f"must have at most {LONGEST} characters")
        wanted[name] = given or None
    choice = ConversationChoice(tenant=page.tenant, **wanted)
    for direction in ("older", "newer"):
        if place := page.query.get(direction):
            return ListPart(choice, at=_place(direction, place), direction=_direction(direction), limit=ON_A_PAGE)
    return ListPart(choice, limit=ON_A_PAGE)


def _direction(name: str) -> Direction:
    return "newer" if name == "newer" else "older"


def _place(name: str, given: str) -> ListPosition:
    try:
        return ListPosition.parse(given)
    except ValueError:
        raise InvalidRequest(f"{name} must be a place in the list.", param=name, code="invalid_value") from None


def _sums(found: Sequence[ConversationLine]) -> PageSums:
    sums = [each.sums for each in found]
    return PageSums(
        requests=sum(each.requests for each in sums),
        prompt_tokens=sum(each.prompt_tokens for each in sums),
        completion_tokens=sum(each.completion_tokens for each in sums),
        cost=sum((each.cost for each in sums), Decimal(0)),
        unpriced=sum(each.unpriced for each in sums),
        estimated=sum(each.estimated for each in sums),
        metered=sum(each.metered for each in sums),
        net_saving=sum((each.net_saving for each in sums), Decimal(0)),
        is_known=not sums or any(each.is_known for each in sums),
    )
