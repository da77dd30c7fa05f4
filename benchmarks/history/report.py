"""The costs as ratios, and as a table for a person."""

import statistics
from typing import Any

from benchmarks.history.databases import Database
from benchmarks.history.measured import Cost, Pair


def figure(pair: Pair, database: Database) -> dict[str, Any]:
    """Medians of either conversation and the ratios long : short, times as medians of the rounds' ratios. `own_ms` is
    processor time without that of reading the request."""
    short, long = pair.costs["short"], pair.costs["long"]
    values = {"short": _values(short), "long": _values(long)}
    ratios = {
        "cpu": _ratio(short.cpu_ms, long.cpu_ms),
        "own": _ratio(_own(short), _own(long)),
        "wall": _ratio(short.wall_ms, long.wall_ms),
        "rows": _over(long.rows, short.rows),
        "steps": _over(long.steps, short.steps),
        "written": _over(long.written, short.written),
    }
    return {"database": database.name, "form": pair.form.name, "title": pair.form.title, **values, "ratios": ratios}


def _own(cost: Cost) -> list[float]:
    """Processor time by round, without that of reading the request."""
    if not cost.reading_ms:
        return cost.cpu_ms
    return [cpu - reading for cpu, reading in zip(cost.cpu_ms, cost.reading_ms, strict=True)]


def _values(cost: Cost) -> dict[str, float]:
    return {
        "cpu_ms": statistics.median(cost.cpu_ms),
        "own_ms": statistics.median(_own(cost)),
        "wall_ms": statistics.median(cost.wall_ms),
        "rows": cost.rows,
        "steps": cost.steps,
        "written": cost.written,
    }


def _ratio(short: list[float], long: list[float]) -> float:
    return statistics.median(_over(b, a) for a, b in zip(short, long, strict=True))


def _over(long: float, short: float) -> float:
    return round(long / short, 3) if short else 1.0 if not long else float("inf")


def table(figures: list[dict[str, Any]]) -> str:
    """A line for each form on each database: short, long, ratio of each figure."""
    times = [(f"{name}_ms", name, 1) for name in ("cpu", "own", "wall")]
    names = [*times, *((name, name, 0) for name in ("rows", "steps", "written"))]
    lines = [f"{'each turn: short, long, ratio':54}" + "".join(f"{value:>25}" for value, _, _ in names)]
    for found in figures:
        cells = [f"{found['database']:9}{found['title']:45}"]
        for value, ratio, digits in names:
            short, long = found["short"][value], found["long"][value]
            cells.append(f"{short:>9,.{digits}f}{long:>9,.{digits}f}{found['ratios'][ratio]:>7.2f}")
        lines.append("".join(cells))
    return "\n".join(lines)
