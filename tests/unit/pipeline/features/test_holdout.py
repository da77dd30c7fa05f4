"""Which conversations go direct (guarantee §13.14)."""

import pytest

from gateway.pipeline.features.holdout import is_held_out

NAMES = [f"conv_{number:032x}".encode() for number in range(4000)]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_s13_14_about_the_share_is_held_out(share: float) -> None:
    held = [name for name in NAMES if is_held_out(name, share)]
    assert len(held) / len(NAMES) == pytest.approx(share, abs=0.03)
    assert held == [name for name in NAMES if is_held_out(name, share)]


def test_s13_14_a_larger_share_moves_nobody_back() -> None:
    small, large = ({name for name in NAMES if is_held_out(name, share)} for share in (0.2, 0.3))
    assert small < large


def test_s13_14_another_version_divides_alike() -> None:
    held = [number for number in range(16) if is_held_out(f"conv_{number}".encode(), 0.5)]
    assert held == [0, 1, 5, 8, 13, 15]
