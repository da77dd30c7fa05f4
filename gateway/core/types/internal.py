"""Requests to internal models, planner and summarizer, and their answers (guarantee §5)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.core.types.bill import Purpose


def _is_text(answer: str) -> bool:
    return bool(answer.strip())


class InternalModelFailed(Exception):
    """An internal model gave no answer that can be used; the message is the `fallback_reason`."""


class OverBudget(InternalModelFailed):
    """The request's budget for internal calls is used up. Nothing is wrong with the model: another request may ask it
    the same."""


@dataclass(frozen=True, slots=True)
class InternalAnswer:
    """What an internal model answered. `is_cut`: it broke off before its end, at `max_tokens` or by a filter."""

    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class InternalRequest:
    """One call of an internal model. `purpose` is `planner` or `summarizer`; `schema` is OpenAI's `json_schema` for
    answers that have to keep one; `is_useful` says whether an answer can be used, for the metrics."""

    purpose: Purpose
    messages: list[dict[str, Any]]
    max_tokens: int
    timeout_seconds: float
    schema: dict[str, Any] | None = None
    is_useful: Callable[[str], bool] = _is_text
