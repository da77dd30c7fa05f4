"""The gateway's bill, ``response_metadata``, as a person reads it. Any figure may be missing: then it is a dash."""

from typing import Any

from screen import YELLOW, row

Json = dict[str, Any]


def show(bill: Json) -> None:
    """Prints what the call cost, what went into the window, and what became of each document."""
    _show_cost(bill)
    context = _part(bill, "context_utilization")
    _show_window(context)
    for artifact in context.get("artifacts_processed") or []:
        _show_artifact(artifact)
    warnings = [str(warning) for warning in context.get("warnings") or []]
    row("warnings", ", ".join(warnings) or "none", YELLOW if warnings else None)
    timings = _part(bill, "timings_ms")
    row("time", ", ".join(f"{name} {_number(timings.get(name), '.0f')} ms" for name in timings) or "-")
    print(flush=True)


def _show_cost(bill: Json) -> None:
    usage, cost = _part(bill, "usage"), _part(bill, "cost")
    prompt, completion, total = (_number(usage.get(f"{name}_tokens")) for name in ("prompt", "completion", "total"))
    row("bill", f"{bill.get('request_id') or '-'}, by way of {' -> '.join(bill.get('routing_path') or ['-'])}")
    row("tokens", f"{prompt} prompt + {completion} completion = {total}")
    if cost.get("priced") is False:
        row("cost", "no price is known for this model")
        return
    money = {name: _number(cost.get(f"{name}_cost"), ".7f") for name in ("prompt", "completion", "planning", "total")}
    planning = f" + {money['planning']} planning" if cost.get("planning_cost") else ""
    estimated = ", estimated" if cost.get("estimated") else ""
    row(
        "cost",
        f"{money['prompt']} prompt + {money['completion']} completion{planning} = {money['total']} "
        f"{cost.get('currency') or ''}{estimated}",
    )


def _show_window(context: Json) -> None:
    used, budget = context.get("tokens_used"), context.get("budget_tokens")
    share = f" = {used / budget:.0%}" if isinstance(used, int) and isinstance(budget, int) and budget else ""
    row("context", f"{_number(used)} of {_number(budget)} budgeted tokens{share}; {context.get('strategy') or '-'}")
    breakdown = _part(context, "breakdown")
    row("made of", ", ".join(f"{name} {_number(tokens)}" for name, tokens in breakdown.items()) or "-")
    included, excluded = (_number(context.get(f"messages_{name}")) for name in ("included", "excluded"))
    planning = context.get("planning_reason")
    row("messages", f"{included} in, {excluded} left out" + (f"; planning: {planning}" if planning else ""))


def _show_artifact(artifact: Json) -> None:
    before, after = artifact.get("original_size_chars"), artifact.get("processed_size_chars")
    share = f" ({after / before:.0%})" if isinstance(before, int) and isinstance(after, int) and before else ""
    row(str(artifact.get("artifact_type") or "artifact"), str(artifact.get("source") or artifact.get("artifact_id")))
    row("", f"{artifact.get('strategy') or '-'}: {_number(before)} -> {_number(after)} characters{share}")


def _part(of: Json, name: str) -> Json:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: object, form: str = ",") -> str:
    return format(value, form) if isinstance(value, int | float) else "-"
