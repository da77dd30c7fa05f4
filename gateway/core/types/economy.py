"""What a branch of a conversation has cost, and would have cost without a gateway (guarantee §4 I7)."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Literal, Self

from gateway.core import jsons
from gateway.core.types.bill import PICO

EconomyMode = Literal["auto", "observe", "off"]
OFF, OBSERVE, AUTO = "off", "observe", "auto"
PassKind = Literal["cold", "paid"]
COLD: PassKind = "cold"
"""A pass that is free, as the provider's prompt cache has surely expired."""
PAID: PassKind = "paid"
"""A pass that the branch's savings pay for."""
SHORT = 2
"""Bytes of the digest of a message, with all before it."""


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """What a request forwarded, as digests.

    Attributes:
        route: where it went.
        tools, system: digests, in hex.
        first: the number of messages before those that have a digest of their own.
        messages: `SHORT` bytes for each of the latest messages, of it and all before it.
        at: when, in seconds since 1970; `lifetime`: seconds that the provider keeps it unused.
        kept: tokens of it that the provider has in its cache.
    """

    route: str
    tools: str
    system: str
    first: int
    messages: bytes
    at: int = 0
    lifetime: int = 0
    kept: int = 0

    def as_list(self) -> list[Any]:
        """As it is stored."""
        digests = b64encode(self.messages).decode()
        return [self.route, self.tools, self.system, self.first, digests, self.at, self.lifetime, self.kept]

    @classmethod
    def of_list(cls, told: Sequence[Any]) -> Self:
        """As it was stored.

        Raises:
            ValueError, TypeError: it is none.
        """
        route, tools, system, first, digests, at, lifetime, kept = told
        sent = b64decode(digests, validate=True)
        return cls(str(route), str(tools), str(system), int(first), sent, int(at), int(lifetime), int(kept))

    @property
    def count(self) -> int:
        """Messages that were forwarded."""
        return self.first + len(self.messages) // SHORT

    def digest_after(self, count: int) -> bytes | None:
        """The digest of the first `count` messages; None where it is not known."""
        at = (count - 1 - self.first) * SHORT
        return self.messages[at : at + SHORT] if 0 <= at < len(self.messages) else None


@dataclass(frozen=True, slots=True)
class ResultMarks:
    """Tool results of one request, as digests of their texts and of their calls, `SIZE` bytes each, in one piece.
    `age`: the answers since."""

    age: int
    digests: bytes
    SIZE: ClassVar = 6

    @classmethod
    def together(cls, found: Iterable[Self]) -> frozenset[bytes]:
        """All of them."""
        return frozenset(
            each.digests[at : at + cls.SIZE] for each in found for at in range(0, len(each.digests), cls.SIZE)
        )

    @classmethod
    def grown(cls, before: Iterable[Self], new: Sequence[bytes], within: int) -> tuple[Self, ...]:
        """Behind one more answer: those of the last `within` answers, and the new."""
        older = (cls(each.age + 1, each.digests) for each in before if each.age < within)
        return (*older, *([cls(0, b"".join(new))] if new else ()))


@dataclass(frozen=True, slots=True)
class BranchCosts:
    """Running sums up to an answer, in USD, kept with it: no request walks its history for them.

    Attributes:
        model: the model that answered, by the name that was asked for.
        prompt_tokens: of its request, as its client made it.
        left_tokens: how many of these were not forwarded.
        direct: what the client's own requests would have cost.
        billed: what was billed.
        clearable: tokens that a pass would have cleared, where none was made (`observe`).
        sent: what its latest request forwarded, where the provider tells what it reads from its cache.
        cut: tool results that left the window lately, or became labels; `bounced`: those that were read again.
    """

    model: str
    prompt_tokens: int
    left_tokens: int
    direct: Decimal
    billed: Decimal
    clearable: int = 0
    sent: SentPrompt | None = None
    cut: tuple[ResultMarks, ...] = ()
    bounced: tuple[ResultMarks, ...] = ()

    def as_text(self) -> str:
        """As it is stored: money as whole picodollars."""
        money = [int(self.direct / PICO), int(self.billed / PICO)]
        more: list[Any] = [self.sent.as_list()] if self.sent is not None else []
        if self.cut or self.bounced:
            marks = (
                [[each.age, b64encode(each.digests).decode()] for each in found] for found in (self.cut, self.bounced)
            )
            more = [*(more or [None]), *marks]
        return jsons.dumps_text([self.model, self.prompt_tokens, self.left_tokens, *money, self.clearable, *more])

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """As it was stored; None where another version wrote something else."""
        try:
            model, prompt, left, direct, billed, clearable, *more = jsons.loads(text)
            money = int(direct) * PICO, int(billed) * PICO
            known = SentPrompt.of_list(more[0]) if more and more[0] is not None else None
            cut, bounced = (
                tuple(ResultMarks(int(age), b64decode(digests, validate=True)) for age, digests in found)
                for found in (more[1:3] if len(more) > 2 else ((), ()))
            )
            return cls(str(model), int(prompt), int(left), *money, int(clearable), known, cut, bounced)
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class EconomyNote:
    """What economy made of one request.

    Attributes:
        mode: as the request has it, `auto` or `observe`.
        is_cold: the provider's cache of its prefix had surely expired.
        passed: which pass was made; None: none.
        cleared: tokens that it took out of the prompt.
        shaped: tokens by which new results are shorter than they came (guarantee §4 I8).
        clearable: with `observe`, tokens that passes would have taken out until now.
    """

    mode: str
    is_cold: bool = False
    passed: PassKind | None = None
    cleared: int = 0
    clearable: int = 0
    shaped: int = 0
