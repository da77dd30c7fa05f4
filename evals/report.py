"""The figures as a table for a person and as JSON."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

from evals.baselines import BASELINES
from evals.measure import Result

HEAD = f"{'suite':14}{'budget':>8}{'cases':>7}{'recall %':>10}{'fill %':>8}{'over':>6}{'invalid':>9}{'differ':>8}"
MORE = f"{'saved %':>9}{'p50 ms':>8}{'p95 ms':>8}"


def table(results: Iterable[Result]) -> str:
    """By suite and budget, beside the baselines; then by kind."""
    groups: dict[tuple[str, int], list[Result]] = defaultdict(list)
    kinds: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.case.suite, result.budget].append(result)
        kinds[result.case.suite, result.case.kind].append(result)
    lines = [HEAD + MORE + "".join(f"{name:>16}" for name in BASELINES)]
    for (suite, budget), group in sorted(groups.items()):
        found = figures(group)
        line = f"{suite:14}{budget:>8}{len(group):>7}{found['recall']:>10.1f}{found['fill']:>8.1f}"
        line += f"{found['over']:>6}{found['invalid']:>9}{found['differs']:>8}{found['saved']:>9.1f}"
        line += f"{found['p50_ms']:>8.1f}{found['p95_ms']:>8.1f}"
        lines.append(line + "".join(f"{found['baselines'][name]:>16.1f}" for name in BASELINES))
    lines += ["", f"{'suite':14}{'kind':>26}{'cases':>7}{'recall %':>10}"]
    for (suite, kind), group in sorted(kinds.items()):
        lines.append(f"{suite:14}{kind:>26}{len(group):>7}{_share(r.won for r in group):>10.1f}")
    return "\n".join(lines)


def figures(group: list[Result]) -> dict[str, Any]:
    """Of cases at one budget; shares in per cent."""
    times = sorted(r.added_ms for r in group)
    return {
        "cases": len(group),
        "recall": _share(r.won for r in group),
        "fill": 100 * sum(r.forwarded / r.budget for r in group) / len(group),
        "over": sum(r.over for r in group),
        "invalid": sum(bool(r.invalid) for r in group),
        "differs": sum(r.differs for r in group),
        "saved": 100 * (1 - sum(r.forwarded for r in group) / sum(r.sent for r in group)),
        "p50_ms": median(times),
        "p95_ms": times[min(len(times) - 1, int(0.95 * len(times)))],
        "baselines": {name: _share(r.baselines[name] == 1.0 for r in group) for name in BASELINES},
    }


def _share(values: Iterable[bool]) -> float:
    found = list(values)
    return 100 * sum(found) / len(found) if found else 0.0
