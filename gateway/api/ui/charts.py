"""Charts as the pages draw them: columns on a scale with round steps, computed here, drawn as SVG by `macros.html`.

Places along an axis are percent of the plot, so that a chart is as wide as its page and its letters stay readable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

ROUND_STEPS = (Decimal(1), Decimal(2), Decimal("2.5"), Decimal(5), Decimal(10))
MAX_STEPS = 4
"""Lines of the scale beside that of zero."""
MAX_LABELS = 5
FILLED = 0.76
"""Share of a column's place that it takes."""


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """What a column stands for: `values` by the classes of their parts, from the axis outwards, negative ones
    downwards; `told` is said of it on hover."""

    label: str
    told: str
    values: tuple[tuple[str, Decimal], ...]


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """A rectangle; `y` counts from the top. All in percent of the plot."""

    name: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """A column at `x`, `width` wide, within a place of `full` for the pointer."""

    told: str
    at: float
    full: float
    x: float
    width: float
    parts: tuple[ColumnPart, ...]


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """`ticks`: height and text of each line of the scale; `labels`: place, anchor and text below the columns; `zero`:
    height of the axis."""

    columns: tuple[ChartColumn, ...]
    ticks: tuple[tuple[float, str], ...]
    labels: tuple[tuple[float, str, str], ...]
    zero: float


def column_chart(found: Sequence[ColumnValue], worded: Callable[[Decimal], str]) -> ColumnChart | None:
    """A chart of these columns; None where all values are 0.

    Args:
        worded: a value of the scale as text.
    """
    up = max((sum(v for _, v in each.values if v > 0) for each in found), default=Decimal(0))
    down = min((sum(v for _, v in each.values if v < 0) for each in found), default=Decimal(0))
    if not up and not down:
        return None
    step = _step(Decimal(up) - Decimal(down))
    top, bottom = -(-Decimal(up) // step) * step, (Decimal(down) // step) * step
    if bottom > down:  # `//` of decimals rounds towards 0
        bottom -= step
    if top < up:
        top += step
    span = top - bottom

    def height(value: Decimal) -> float:
        return 100 * float((top - value) / span)

    ticks = tuple((height(bottom + step * n), worded(bottom + step * n)) for n in range(int(span / step) + 1))
    full = 100 / len(found)
    columns = tuple(_column(each, n * full, full, height) for n, each in enumerate(found))
    return ColumnChart(columns, ticks, _labels([each.label for each in found], full), height(Decimal(0)))


def _step(span: Decimal) -> Decimal:
    """The smallest round step of which `MAX_STEPS` are as long as that."""
    least = span / MAX_STEPS
    power = Decimal(10) ** least.adjusted()
    return next(each * power for each in ROUND_STEPS if each * power >= least)


def _column(value: ColumnValue, at: float, full: float, height: Callable[[Decimal], float]) -> ChartColumn:
    parts, above, below = [], Decimal(0), Decimal(0)
    for name, each in value.values:
        if each > 0:
            parts.append(ColumnPart(name, height(above + each), height(above) - height(above + each)))
            above += each
        elif each < 0:
            parts.append(ColumnPart(name, height(below), height(below + each) - height(below)))
            below += each
    return ChartColumn(value.told, at, full, at + full * (1 - FILLED) / 2, full * FILLED, tuple(parts))


def _labels(names: Sequence[str], full: float) -> tuple[tuple[float, str, str], ...]:
    """Some of the names, evenly spread, the first and the last among them."""
    count = min(MAX_LABELS, len(names))
    if count == 1:
        return ((50.0, "middle", names[0]),)
    chosen = [round(n * (len(names) - 1) / (count - 1)) for n in range(count)]
    anchors = {0: "start", len(names) - 1: "end"}
    places = {0: 0.0, len(names) - 1: 100.0}
    return tuple((places.get(n, (n + 0.5) * full), anchors.get(n, "middle"), names[n]) for n in chosen)
