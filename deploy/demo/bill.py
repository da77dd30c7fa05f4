"""The gateway's bill, ``response_metadata``, as a person reads it. A figure that is missing is a dash."""

from typing import Any

from screen import YELLOW, row

Json = dict[str, Any]
PARTS = ("prompt", "completion", "total")


def show(bill: Json) -> None:
    """Prints what the call cost, what went into the window, and what became of each document."""
    _show_cost(bill)
    context = _part(bill, "context_utilization")
    _show_window(context)
    _show_planning(context)
    for artifact in context.get("artifacts_processed") or []:
        _show_artifact(artifact)
    warnings = [str(warning) for warning in context.get("warnings") or []]
    row("warnings", ", ".join(warnings) or "none", YELLOW if warnings else None)
    timings = _part(bill, "timings_ms")
    row("time", ", ".join(f"{name} {_number(timings, name, '.0f')} ms" for name in timings) or "-")
    print(flush=True)


def _show_cost(bill: Json) -> None:
    usage, cost = _part(bill, "usage"), _part(bill, "cost")
    row("bill", str(bill.get("request_id") or "-"))
    row("route", " -> ".join(bill.get("routing_path") or ["-"]))
    prompt, completion, total = (_number(usage, f"{part}_tokens") for part in PARTS)
    row("tokens", f"{prompt} prompt + {completion} completion = {total}")
    if cost.get("priced") is False:
        row("cost", "no price is known for this model")
        return
    prompt, completion, total = (_number(cost, f"{part}_cost", ".7f") for part in PARTS)
    planning = f" + {_number(cost, 'planning_cost', '.7f')} planning" if cost.get("planning_cost") else ""
    unit = f"{cost.get('currency') or ''}{', estimated' if cost.get('estimated') else ''}"
    row("cost", f"{prompt} prompt + {completion} completion{planning} = {total} {unit}")


def _show_window(context: Json) -> None:
    used, budget = _number(context, "tokens_used"), _number(context, "budget_tokens")
    share = _share(context, "tokens_used", "budget_tokens")
    row("context", f"{used} of {budget} budgeted tokens{share}, {context.get('strategy') or '-'}")
    breakdown = _part(context, "breakdown")
    row("made of", ", ".join(f"{name} {_number(breakdown, name)}" for name in breakdown) or "-")
    included, excluded = _number(context, "messages_included"), _number(context, "messages_excluded")
    planning = context.get("planning_reason")
    row("messages", f"{included} in, {excluded} left out" + (f"; planning: {planning}" if planning else ""))


def _show_planning(context: Json) -> None:
    """Who was asked for a plan, and what came of it; nothing where nobody was."""
    for name, calls in _part(context, "planning_usage").items():
        if isinstance(calls, dict) and calls.get("calls"):
            read, written = _number(calls, "prompt_tokens"), _number(calls, "completion_tokens")
            row(name, f"{_number(calls, 'calls')} calls, {read} tokens read, {written} written")
    if context.get("llm_planning_used") or context.get("fallback_reason"):
        reason = context.get("fallback_reason")
        row("plan", "followed" if context.get("llm_planning_used") else f"none: {reason}")


def _show_artifact(artifact: Json) -> None:
    before, after = _number(artifact, "original_size_chars"), _number(artifact, "processed_size_chars")
    share = _share(artifact, "processed_size_chars", "original_size_chars")
    row(str(artifact.get("artifact_type") or "artifact"), str(artifact.get("source") or "-"))
    row("", f"{artifact.get('strategy') or '-'}: {before} -> {after} characters{share}")


def _part(of: Json, name: str) -> Json:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _number(of: Json, name: str, form: str = ",") -> str:
    value = of.get(name)
    return format(value, form) if isinstance(value, int | float) else "-"


def _share(of: Json, part: str, whole: str) -> str:
    """Such as " (37%)", or nothing where it cannot be said."""
    some, of_all = of.get(part), of.get(whole)
    return f" ({some / of_all:.0%})" if isinstance(some, int) and isinstance(of_all, int) and of_all else ""
