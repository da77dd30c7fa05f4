"""What guards cost, and what placeholders take, is accounted for (guarantees §12.9, §12.10)."""

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.cost import price_internal, total_cost
from gateway.billing.ledger_verification import repriced
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.tokens.model_margins import ModelMargins
from gateway.core import jsons
from gateway.core.config.setting_sections import MaskingSettings
from gateway.core.types.chat import ModelFacts
from gateway.core.types.upstreams import CallScope
from gateway.pipeline.guards.masking import BodyMasker, TenantMasker
from tests.support.hand_clock import HandClock
from tests.unit.pipeline.guards.values import SECRET, VALUES

USD = st.decimals(0, 1000, places=12, allow_nan=False)


@given(USD)
def test_a_guards_cost_is_exact_and_is_priced_again_as_it_was(usd: Decimal) -> None:
    scope = CallScope()
    scope.charge("mine", usd)
    (call,) = map(price_internal, scope.calls)
    assert (call.total, call.purpose, call.model) == (usd, "guard", "guard/mine")
    assert total_cost((call,))[1].guard_cost == usd
    stored = replace(call, usage=jsons.loads_decimal(jsons.dumps(call.usage)))
    assert repriced(stored).total == usd


async def _secret() -> bytes:
    return SECRET


PARTS = st.one_of(st.sampled_from([value for _, value in VALUES]), st.text(max_size=20))


@given(st.lists(st.lists(PARTS, max_size=5).map(" ".join), max_size=4))
async def test_what_placeholders_take_is_counted_as_it_is(texts: list[str]) -> None:
    """§4 I1: what was counted and the surplus together are what is sent."""
    masker = TenantMasker(MaskingSettings(enabled=True), _secret)
    counter = CounterRegistry(ModelMargins(HandClock())).counter(ModelFacts("gpt-4o"))
    messages = [{"role": "user", "content": text} for text in texts]
    surplus = await masker.surplus(messages, "a", counter)
    sent = BodyMasker(await masker.vault("a"), refuse=False).masked({"messages": messages})["messages"]
    assert sum(map(counter.message, messages)) + surplus == sum(map(counter.message, sent))
