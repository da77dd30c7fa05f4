"""What a branch of a conversation has cost, and would have cost without a gateway (guarantee §4 I7)."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Self

from gateway.base import jsons
from gateway.models.bill import PICO

EconomyMode = Literal["auto", "observe", "off"]
OFF, OBSERVE, AUTO = "off", "observe", "auto"
PassKind = Literal["cold", "paid"]
COLD: PassKind = "cold"
"""A pass that is free, as the provider's prompt cache has surely expired."""
PAID: PassKind = "paid"
"""A pass that the branch's savings pay for."""


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
    """

    model: str
    prompt_tokens: int
    left_tokens: int
    direct: Decimal
    billed: Decimal
    clearable: int = 0

    def as_text(self) -> str:
        """As it is stored: money as whole picodollars."""
        money = [int(self.direct / PICO), int(self.billed / PICO)]
        return jsons.dumps_text([self.model, self.prompt_tokens, self.left_tokens, *money, self.clearable])

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """As it was stored; None where another version wrote something else."""
        try:
            model, prompt, left, direct, billed, clearable = jsons.loads(text)
            return cls(str(model), int(prompt), int(left), int(direct) * PICO, int(billed) * PICO, int(clearable))
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
        clearable: with `observe`, tokens that passes would have taken out until now.
    """

    mode: str
    is_cold: bool = False
    passed: PassKind | None = None
    cleared: int = 0
    clearable: int = 0
