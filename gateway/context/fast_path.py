"""Requests that need nothing done to them: they surely fit, and go up as they were sent (ADR 7).

That is found out from a few hundred of their characters, and what is long is counted by samples: the work on a request
must not cost more than the request is worth.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from gateway.config.settings import ContextSettings
from gateway.context.report import BuiltContext, measured_utilization
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.exchange import ChatRequest, PlainMessages
from gateway.models.window import Fitted, Forwarded, Selection
from gateway.planning.decision import NO_ARTIFACTS
from gateway.ports import TokenCounter
from gateway.window.budget import Budget
from gateway.window.counting import REPLY_TOKENS

COUNTED_APART = ("tools", "functions", "response_format")
"""Fields that add to the prompt: a request that has one needs a count."""
BYTES_PER_TOKEN = 4
"""Of English prose, about; a token of other text may have fewer."""
MESSAGE_TOKENS = 4
"""Tokens that frame a message: its role and its delimiters, as OpenAI's chat format has them."""
ESTIMATED_SHARE = 0.5
"""Share of the budget below which an estimate is enough."""
SAMPLES = 12
SAMPLE_CHARS = 128
SPACES = (0.08, 0.4)
"""Share of spaces in the characters of prose, from … to."""
VOWELS = 0.22
"""Share of vowels in the characters of prose, at least; base64 and hexadecimal have fewer."""
NOT_VOWELS = bytes(byte for byte in range(256) if byte not in b"aeiou")


def context_as_sent(
    request: ChatRequest, budget: Budget, counter: TokenCounter, settings: ContextSettings
) -> BuiltContext | None:
    """The context of a request that is forwarded as it was sent, if nothing stored belongs to it; None if it needs a
    closer look: it may not fit, or holds more than roles and texts."""
    plain = request.plain
    if budget.tokens is None or plain is None or request.attachments:
        return None
    if budget.turns is not None and plain.roles.count("user") > budget.turns.most:
        return None
    if any(request.forward.get(name) for name in COUNTED_APART):
        return None
    if not surely_fits(plain, request.size, int(budget.tokens / max(1.0, counter.margin)), settings.document_min_chars):
        return None
    fitted = fitted_as_sent(request.messages, plain, counter)
    utilization = measured_utilization(request, budget, fitted, len(request.messages), settings.warning_threshold)
    utilization.planning_reason = NO_ARTIFACTS
    return BuiltContext(fitted, utilization, material=None)


def surely_fits(plain: PlainMessages, size: int, budget: int, largest: int) -> bool:
    """Whether messages need no managing: without a document in them, surely within the budget. It costs a few
    microseconds, whatever the size of the texts.

    Args:
        size: bytes of the request's body, so at least those of all its texts.
        largest: characters from which a user message may hold a document (guarantee §4 I4).
    """
    count, lengths = len(plain.lengths), plain.lengths
    if size / BYTES_PER_TOKEN + MESSAGE_TOKENS * count > ESTIMATED_SHARE * budget:
        return False
    if max(lengths) > largest and any(
        n > largest and role == "user" for n, role in zip(lengths, plain.roles, strict=True)
    ):
        return False
    # No token of a byte-level vocabulary is shorter than a byte; prose has far longer ones.
    return size + 3 * MESSAGE_TOKENS * count <= budget or _is_prose(plain.texts, lengths)


def _is_prose(texts: list[str], lengths: list[int]) -> bool:
    """Whether places spread over the texts all look like words of a language: letters with vowels, and spaces between.
    Encoded data, numbers and scripts of which a character may be a token of its own do not."""
    ends = list(accumulate(lengths))
    total = ends[-1]
    for number in range(SAMPLES if total else 0):
        at = total * (2 * number + 1) // (2 * SAMPLES)
        index = bisect_right(ends, at)
        start = at - (ends[index] - lengths[index])
        sample = texts[index][max(0, min(start, lengths[index] - SAMPLE_CHARS)) :][:SAMPLE_CHARS]
        if not sample.isascii():
            return False
        raw, size = sample.encode(), len(sample)
        spaces, vowels = raw.count(b" "), len(raw.translate(None, NOT_VOWELS))
        if not SPACES[0] * size <= spaces <= SPACES[1] * size or vowels < VOWELS * size:
            return False
    return True


def fitted_as_sent(messages: Sequence[dict[str, Any]], plain: PlainMessages, counter: TokenCounter) -> Fitted:
    """The messages as they came, with their figures."""
    roles, texts, lengths = plain.roles, plain.texts, plain.lengths
    first, last = 0, len(roles) - 1
    while first < last and roles[first] in INSTRUCTION_ROLES:
        first += 1
    while last > first and roles[last] != "user":
        last -= 1
    system, in_full = counter.estimate_texts(texts[:first], lengths[:first])
    history, also = counter.estimate_texts(texts[first:last], lengths[first:last])
    current, too = counter.estimate_texts(texts[last:], lengths[last:])
    breakdown = {
        "system": system + REPLY_TOKENS,
        "tools": 0,
        "history": history,
        "artifacts": 0,
        "current": current,
    }
    tokens, forwarded = sum(breakdown.values()), Forwarded(list(messages), [])
    estimated = not (in_full and also and too and counter.is_own)
    return Fitted(Selection(), forwarded, tokens, exact=False, breakdown=breakdown, estimated=estimated)
