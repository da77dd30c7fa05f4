"""Money on its way to a client and into the ledger: no digit is lost (guarantee §6)."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import jsons


@given(st.decimals(0, 10**15, places=12))
def test_money_keeps_every_digit(cost: Decimal) -> None:
    """A number of JSON, whatever its size; also after it has been read and written again."""
    text = jsons.dumps({"cost": cost})
    assert jsons.loads_decimal(text) == {"cost": cost}
    assert jsons.dumps(jsons.loads_decimal(text)) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_other_numbers_are_what_they_were(number: float) -> None:
    """Timings and shares that stand beside money in a bill."""
    assert jsons.loads(jsons.dumps(jsons.loads_decimal(jsons.dumps(number)))) == number


@pytest.mark.parametrize("cost", ["999.999999999999", "1000.000000000001", "12345678.123456789012", "0.000000000001"])
def test_around_the_reach_of_a_double(cost: str) -> None:
    assert Decimal(jsons.dumps(Decimal(cost)).decode()) == Decimal(cost)
