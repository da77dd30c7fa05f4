"""The meter: what a request would have cost without a gateway, beside what it was billed (guarantee §6)."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.billing import cost, prompt_cache
from gateway.core.frozen_records import record
from gateway.core.types import bill

MIN_HEAD_TOKENS = 1024
"""With a warm cache, most providers read an unchanged head from it if the head is at least this long."""
ZERO = Decimal(0)
NOTHING_SPENT = bill.BranchCosts("", 0, 0, ZERO, ZERO)
MAX_OTHERS = 4
"""Models of a branch, beside the latest, whose latest prompts are known."""


@record
class MeteredRequest:
    """What the meter knows of a request.

    Attributes:
        model: the name that was asked for.
        usage: of the first call of the primary model, as the upstream reported it.
        primary: what the primary model would have cost with the prompt that was sent, without rounds of `recall`;
            `billed`: what the request cost, with these, planner and summarizer included.
        counted: tokens of the prompt as the gateway counts them; its other counts are scaled by what was reported.
        left: what was left out of the prompt.
        rewritten: a pass changed what was forwarded before.
        at: when the request arrived, in seconds since 1970.
        head: tokens of its tools and system messages, as the gateway counts them.
        idle: the conversation was unused for so long that its cache may have expired.
        bounced: tokens of results that were read again soon after they had been cut, by the gateway's count.
        has_new_head: tells whether its tools or system messages differ from the previous request's; asked only where
            little was read.
    """

    model: str
    usage: Mapping[str, Any]
    prices: Mapping[str, Decimal]
    primary: Decimal
    billed: Decimal
    counted: int
    left: bill.LeftOutTokens | None
    rewritten: bool
    at: float = 0.0
    head: int = 0
    idle: bool = False
    bounced: int = 0
    has_new_head: Callable[[], bool] = bool  # False


@record
class _MeteredPrompt:
    """A prompt beside the one that the client would have had without a gateway, in the upstream's tokens.

    Attributes:
        branch: the sums of its branch until now, if any.
        before: the previous prompt that the provider may have cached.
        is_back: another model was asked meanwhile, and may have had a pass.
        scale: the upstream's tokens for one that the gateway counts.
        sent, left: tokens that were sent, and left out.
        reads: the figures of cached tokens in its usage; empty if it names none.
    """

    request: MeteredRequest
    branch: bill.BranchCosts | None
    before: bill.BranchCosts | bill.OtherPrompt | None
    is_back: bool
    scale: float
    sent: int
    left: int
    reads: Sequence[int]

    @classmethod
    def of(cls, request: MeteredRequest, branch: bill.BranchCosts | None) -> "_MeteredPrompt":
        sent, left = bill.figure(request.usage, "prompt_tokens"), request.left
        scale = sent / request.counted if request.counted else 1.0
        tokens = round(scale * left.tokens) if left is not None else 0
        before = _latest_of(branch, request.model, request.at)
        is_back = before is not branch
        if left is not None and before is not None and not is_back:  # what was metered before is not estimated again
            if request.rewritten and left.gained is not None:
                tokens = before.prompt_tokens + round(scale * left.gained) - sent
            elif not request.rewritten and left.change is not None and before.left_tokens > 0:
                tokens = before.left_tokens + round(scale * left.change)
        reads = bill.reported_counts(request.usage, reads=True)
        return cls(request, branch, before, is_back, scale, sent, tokens, reads)

    @property
    def whole(self) -> int:
        """Tokens of the client's own prompt."""
        return self.sent + self.left

    @property
    def is_changed(self) -> bool:
        """Whether it differs from the client's own, or the previous one did."""
        had_left = self.before is not None and self.before.left_tokens
        return bool(self.left or self.request.rewritten or had_left or self._goes_back)

    @property
    def _goes_back(self) -> bool:
        """Whether the client continues from an older request, whose prompt is cached only if later ones began with it:
        its own did, the forwarded ones not after a pass."""
        before = self.branch.sent if self.branch is not None and not (self.is_back or self.request.idle) else None
        return before is not None and self.request.at - before.at > before.lifetime

    @property
    def _sent_before(self) -> int:
        return self.before.prompt_tokens - self.before.left_tokens if self.before is not None else 0

    @property
    def _unchanged(self) -> int:
        """Tokens before what a pass changed."""
        return round(self.scale * self.request.left.unchanged) if self.request.left is not None else self._sent_before

    @property
    def _head(self) -> int:
        return round(self.scale * self.request.head)

    def is_cold(self, *, is_expired: bool) -> bool:
        """Returns whether the previous prompt had left its provider's cache, as far as what was read shows; else by the
        time (`is_expired`)."""
        request = self.request
        promised = self._unchanged if request.rewritten else self._sent_before
        least = MIN_HEAD_TOKENS if request.rewritten else prompt_cache.MIN_CACHED_TOKENS
        is_told = self.reads and not (self.is_back or self._goes_back)
        if not is_told or promised < least or (request.rewritten and not request.idle):
            return is_expired or self.before is None
        read = max(self.reads)
        if not read:
            return True
        # With its tools and system messages other conversations begin, too, and keep these in the cache.
        is_own = read > self._head + prompt_cache.BLOCK
        is_short = prompt_cache.fell_short(min(promised, self._sent_before), read)
        if is_expired:
            return is_short or not is_own
        return request.idle and is_short and not (is_own or request.rewritten)

    def cached(self, *, is_cold: bool, is_expired: bool) -> tuple[int, int]:
        """Returns how many tokens are read from the cache: of the client's own prompt, and of the one that was sent."""
        request, left, most = self.request, self.request.left, max(self.reads, default=0)
        if self.branch is None and most and left is not None and left.latest and not is_expired:
            # A client that changes its messages at each step: all but the latest of them was cached.
            return max(0, self.whole - round(self.scale * left.latest)), most
        whole, sent = (0, 0) if is_cold or self.before is None else (self.before.prompt_tokens, self._sent_before)
        kept = self.branch.sent.kept if self.branch is not None and self.branch.sent is not None else 0
        if 0 < kept < sent and not self.is_back:
            # Its client has breakpoints only so far: what follows is paid in full each time.
            whole, sent = kept if kept <= self._head + prompt_cache.BLOCK else whole - (sent - kept), kept
        if left is not None and request.rewritten:
            sent = min(sent, self._unchanged)
        elif left is not None and prompt_cache.fell_short(sent, there := max(most, self._unchanged)):
            sent = there  # the window is that of another branch
        if self.reads and not self.is_back and most < whole / 2 and request.has_new_head():
            whole = most  # a direct request would not have read more, either
            sent = min(sent, whole)
        if self.is_back or (self.reads and (request.rewritten or self._goes_back)):
            sent = min(sent, most)  # what stayed is read only if a breakpoint is near its end
        return whole, sent


def metered(
    request: MeteredRequest, note: bill.EconomyNote, before: bill.BranchCosts | None, *, is_reported: bool = True
) -> tuple[dict[str, Any], bill.BranchCosts]:
    """Computes the bill's `economics`, and the branch's sums with this request.

    The direct bill is the primary model's own with what was left out put back, at the rates of its prompt cache: if
    nothing was left out since the branch began, both are equal to the digit.

    `before`: the branch's sums until now, if any; `is_reported`: `economics` is wanted; else it is {}."""
    usage, prompt, added = request.usage, _MeteredPrompt.of(request, before), ZERO
    writes = any(bill.reported_counts(usage, reads=False))
    charged = partial(_rates, usage, request.prices, reads=bool(prompt.reads), writes=writes)
    rates = charged(prompt.whole) if prompt.is_changed or note.clearable else None
    is_cold = prompt.is_cold(is_expired=note.is_cold)
    if prompt.is_changed and rates is not None and prompt.sent:
        whole, sent = prompt.cached(is_cold=is_cold, is_expired=note.is_cold)
        own = charged(prompt.sent) or rates
        added = cost.rounded(
            cost.EXACT_MONEY.subtract(rates.prompt(prompt.whole, whole), own.prompt(prompt.sent, sent))
        )
    direct = max(ZERO, request.primary + added)
    bounced = round(prompt.scale * request.bounced)
    report = _report(request, note, direct, bounced, charged) if is_reported else {}
    if is_reported and note.mode == bill.OBSERVE:
        report["estimated_saving"] = _usd(_estimated(note, rates, is_cold=is_cold))
    sums = before or NOTHING_SPENT
    return report, bill.BranchCosts(
        request.model,
        prompt.whole,
        prompt.left,
        sums.direct + direct,
        sums.billed + request.billed,
        note.clearable,
        cut=sums.cut,
        bounced=sums.bounced,
        others=_others(sums, request.model),
    )


def _report(
    request: MeteredRequest,
    note: bill.EconomyNote,
    direct: Decimal,
    again: int,
    charged: Callable[[int], prompt_cache.CacheRates | None],
) -> dict[str, Any]:
    """`again`: tokens that bounced; `charged`: finds the rates of a prompt by its tokens."""
    report: dict[str, Any] = {
        "mode": note.mode,
        "direct_cost": _usd(direct),
        "billed_cost": _usd(request.billed),
        "net_saving": _usd(direct - request.billed),
    }
    if note.passed is not None:
        report |= {"pass": note.passed, "cleared_tokens": note.cleared}
    if again:
        paid = charged(bill.figure(request.usage, "prompt_tokens"))
        added = None if paid is None else _usd(cost.rounded(cost.EXACT_MONEY.multiply(paid.write, again)))
        report["bounced"] = {"tokens": again, "cost": added}
    return report


def _latest_of(before: bill.BranchCosts | None, model: str, at: float) -> bill.BranchCosts | bill.OtherPrompt | None:
    """Returns the latest prompt of a model in a branch; None if its provider has forgotten it, or never had one."""
    if before is None or before.model == model:
        return before
    return next((each for each in before.others if each.model == model and each.until >= at), None)


def _others(before: bill.BranchCosts, model: str) -> tuple[bill.OtherPrompt, ...]:
    """Returns the latest prompts of the models other than this one, which has just been asked."""
    latest, sent = [], before.sent
    if sent is not None:
        until = sent.at + sent.lifetime
        latest.append(bill.OtherPrompt(before.model, before.prompt_tokens, before.left_tokens, until))
    return tuple(each for each in (*latest, *before.others) if each.model != model)[:MAX_OTHERS]


def _rates(
    usage: Mapping[str, Any], prices: Mapping[str, Decimal], prompt_tokens: int, *, reads: bool, writes: bool
) -> prompt_cache.CacheRates | None:
    """Returns the rates that the upstream charges, as far as its usage shows: if it names no cached tokens (`reads`),
    it charges the usual price for all; if it names no cache writes (`writes`), it charges the usual price for them.
    None if no price is known."""
    tier = usage.get("service_tier")
    full = cost.TokenRates(prices, prompt_tokens, tier).find("input_cost_per_token")
    if full is None:
        return None
    found = prompt_cache.cache_rates(
        prices, prompt_tokens, for_an_hour=bool(bill.written_for_an_hour(usage)), service_tier=tier
    )
    if found is None or not reads:
        return prompt_cache.CacheRates(full, full)
    return found if writes else prompt_cache.CacheRates(found.read, full)


def _estimated(note: bill.EconomyNote, rates: prompt_cache.CacheRates | None, *, is_cold: bool) -> Decimal:
    if rates is None:
        return ZERO
    return cost.rounded(cost.EXACT_MONEY.multiply(rates.write if is_cold else rates.read, note.clearable))


def _usd(value: Decimal) -> str:
    """Formats USD without trailing zeros: a bill may occur twice in a stream."""
    return f"{value.normalize(cost.EXACT_MONEY):f}"
