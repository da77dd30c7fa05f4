"""Samples made into figures, and figures into a table for a person."""

import math
import os
import platform
import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.cases import OPEN
from benchmarks.rounds import Sample


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {"python": platform.python_version(), "system": platform.platform(), "processors": os.cpu_count()}


def cost_us(sample: Sample, opened: dict[tuple[int, int, str], float]) -> float:
    """Microseconds of processor time per request, or per further chunk of a stream.

    `opened` is what opening a stream costs, by round, connections and server.
    """
    each = sample.result.cpu_ns / 1000 / sample.result.requests
    if not sample.case.per_chunk:
        return each
    if sample.case.paced:
        return sample.result.window_cpu_ns / 1000 / (sample.result.window_events or math.nan)
    further = sample.result.events / sample.result.requests - 2  # the first and the one with the finish reason
    return (each - opened[sample.turn, sample.connections, sample.server]) / further


def figures(samples: list[Sample]) -> list[dict[str, Any]]:
    """One entry per case and number of connections: medians by server, and how much cheaper than the bare relay each
    is (the median of the rounds' ratios; above 1 is cheaper)."""
    opened = {
        (s.turn, s.connections, s.server): s.result.cpu_ns / 1000 / s.result.requests for s in samples if s.case is OPEN
    }
    groups: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.case.name, sample.connections), []).append(sample)
    return [_figure(group, opened) for group in groups.values()]


def _figure(group: list[Sample], opened: dict[tuple[int, int, str], float]) -> dict[str, Any]:
    by_server: dict[str, list[Sample]] = {}
    for sample in group:
        by_server.setdefault(sample.server, []).append(sample)
    costs = {name: [cost_us(s, opened) for s in samples] for name, samples in by_server.items()}
    return {
        "case": group[0].case.name,
        "title": group[0].case.title,
        "connections": group[0].connections,
        "us": {name: round(statistics.median(values), 1) for name, values in costs.items()},
        "us_by_round": {name: [round(value, 1) for value in values] for name, values in costs.items()},
        "times_cheaper_than_bare": {
            name: round(statistics.median(a / b for a, b in zip(costs["bare"], values, strict=True)), 2)
            for name, values in costs.items()
            if name != "bare"
        },
        "per_second": {
            n: round(_median(s.result.requests / s.result.seconds for s in g)) for n, g in by_server.items()
        },
        "latency_ms": {n: [_median(s.result.latency_ms[i] for s in g) for i in (0, 1)] for n, g in by_server.items()},
        "p99_ms": {n: _median(_waited_ms(s) for s in g) for n, g in by_server.items()},
        "gap_ms": {n: [_median(s.result.gap_ms[i] for s in g) for i in (0, 1)] for n, g in by_server.items()},
        "events_per_read": {
            n: round(_median(s.result.events / max(1, s.result.reads) for s in g), 2) for n, g in by_server.items()
        },
        "failed": {n: sum(s.result.failed for s in g) for n, g in by_server.items()},
    }


def _waited_ms(sample: Sample) -> float:
    """p99 of a request; of paced streams, how much longer than usual a chunk is waited for."""
    result = sample.result
    return result.gap_ms[1] - result.gap_ms[0] if sample.case.paced else result.latency_ms[1]


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def table(found: dict[str, Any]) -> str:
    """The figures for a person."""
    names = list(found["figures"][0]["us"])
    compared = [name for name in names if name.startswith("gateway")]
    head = [
        "µs of processor time",
        "conns",
        *names,
        *(f"bare/{name}" for name in compared),
        *(f"p99 {n}" for n in names),
    ]
    rows = [head]
    for figure in found["figures"]:
        cells = [figure["title"], str(figure["connections"]), *(f"{figure['us'][n]:,.1f}" for n in names)]
        cells += [f"{figure['times_cheaper_than_bare'][n]:.2f} ×" for n in compared]
        cells += [f"{figure['p99_ms'][n]:,.1f} ms" for n in names]
        rows.append(cells)
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(_aligned(cell, widths[i], i) for i, cell in enumerate(row)) for row in rows]
    for name, (warm, end) in found["memory_mb"].items():
        lines.append(f"memory of {name}: {warm:.0f} MB warm, {end:.0f} MB at the end")
    if "start" in found:
        lines.append("start: " + ", ".join(f"{key} {value}" for key, value in found["start"].items()))
    bad = [f"{f['title']} at {f['connections']}: {f['failed']}" for f in found["figures"] if any(f["failed"].values())]
    lines += [f"FAILED {line}" for line in bad]
    return "\n".join(lines)


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)
