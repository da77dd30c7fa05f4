"""The figures as a table for a person."""

from collections.abc import Sequence
from typing import Any

from benchmarks.session.figures import TARIFFS


def title() -> str:
    """The heads of the columns. Shares are of the request before: the least while the window has room, the least where
    it is full, and the mean. Prices are dollars for all prompts."""
    prices = "".join(f"{tariff.name:>16}{'uncached':>10}" for tariff in TARIFFS)
    return (
        f"{'':18}{'window':>9}{'requests':>9}{'full':>9}{'least share':>12}{'if full':>9}{'mean':>9}"
        f"{'tokens':>11}{'cached':>8}{prices}"
    )


def line(found: dict[str, Any]) -> str:
    """One way of forwarding."""
    prices = "".join(
        f"{found['cost'][tariff.name]:>16.3f}{found['cost_without_caching'][tariff.name]:>10.3f}" for tariff in TARIFFS
    )
    window = f"{found['window']:,}" if found["window"] else "-"
    return (
        f"{found['name']:18}{window:>9}{found['requests']:>9}{found['left']:>9}{_share(found['share_with_room']):>12}"
        f"{_share(found['share_without']):>9}{_share(found['share_mean']):>9}{found['prompt_tokens']:>11,}"
        f"{_share(found['from_cache']):>8}{prices}"
    )


def shares(found: Sequence[dict[str, Any]]) -> str:
    """Request by request, how much of the one before stands at its beginning."""
    rows = (f"{each['window']:>9,}: " + " ".join(f"{100 * share:.0f}" for share in each["shares"]) for each in found)
    return "\n".join(["", "gateway, % of the request before, by request:", *rows])


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
