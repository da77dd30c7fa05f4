"""Conversations and requests of a list, as commands write them."""

from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gateway.core.printing import cost_text, usd_text
from gateway.core.types.report_lists import CHAT, ConversationLine, KeptSums, RequestLine

Json = dict[str, Any]
STATUS_STYLES = {"complete": "green", "partial": "yellow", "failed": "red"}
COST_STYLE, PLANNING_STYLE, ID_STYLE, WHO_STYLE, FAINT = "bold", "magenta", "cyan", "blue", "dim"


def conversation_json(line: ConversationLine) -> Json:
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


def request_json(line: RequestLine) -> Json:
    """A request; `cost` is null as soon as one call has no price, `known_cost` is of those that have one."""
    return {
        "id": line.id,
        "object": "request",
        "completion_id": line.completion_id,
        "conversation": {"id": line.conversation_id} if line.conversation_id else None,
        "tenant": line.tenant,
        "endpoint": line.endpoint or CHAT,
        "model": line.model,
        "user": line.user,
        "agent": line.agent,
        "status": line.status,
        "error_code": line.error_code,
        "stream": line.stream,
        "created_at": int(line.created_at.timestamp()),
        "prompt_tokens": line.prompt_tokens,
        "completion_tokens": line.completion_tokens,
        "cached_tokens": line.cached_tokens,
        "cache_write_tokens": line.cache_write_tokens,
        "cost": line.cost,
        "known_cost": line.known_cost,
        "planning_cost": line.planning_cost,
        "direct_cost": line.direct_cost,
        "net_saving": line.net_saving,
        "estimated": line.estimated,
    }


def sums_text(sums: KeptSums) -> str:
    """What a conversation cost, in USD."""
    return cost_text(sums.cost, sums.unpriced, is_known=sums.is_known)


def request_cost(line: RequestLine) -> str:
    """What a request cost, in USD: at least so much where one of its calls has no price."""
    if line.cost is not None:
        return usd_text(line.cost)
    return cost_text(line.known_cost or Decimal(0), 1, is_known=line.known_cost is not None)


def when_text(time: datetime, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time, in UTC."""
    return time.astimezone(UTC).strftime(form)
