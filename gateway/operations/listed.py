"""Conversations and requests of a list, as commands write them."""

from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from gateway.core.printing import cost_text, usd_text

if TYPE_CHECKING:
    from gateway.core.types.report_lists import ConversationLine, KeptSums, RequestLine

Json = dict[str, Any]
STATUS_STYLES = {"complete": "green", "partial": "yellow", "failed": "red"}
COST_STYLE, PLANNING_STYLE, ID_STYLE, WHO_STYLE, FAINT = "bold", "magenta", "cyan", "blue", "dim"


def conversation_json(line: "ConversationLine") -> Json:
    """A conversation; `cost` is of the calls that have a price, `unpriced` counts requests that had others."""
    return {
        "id": line.id,
        "object": "conversation",
        "tenant": line.tenant,
        "sessions": list(line.sessions),
        "question": line.question,
        "user": line.user,
        "model": line.model,
        "created_at": int(line.created_at.timestamp()),
        "updated_at": int(line.updated_at.timestamp()),
        **asdict(line.sums),
    }


def sums_text(sums: "KeptSums") -> str:
    """What a conversation cost, in USD."""
    return cost_text(sums.cost, sums.unpriced, is_known=sums.is_known)


def request_cost(line: "RequestLine") -> str:
    """What a request cost, in USD: at least so much where one of its calls has no price."""
    if line.cost is not None:
        return usd_text(line.cost)
    return cost_text(line.known_cost or Decimal(0), 1, is_known=line.known_cost is not None)


def when_text(time: datetime, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time, in UTC."""
    return time.astimezone(UTC).strftime(form)
