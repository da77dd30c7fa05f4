"""Why a request was put together as it was, and the arithmetic of its bill."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.base.printing import usd_text
from gateway.explain.artifacts import ExplainedArtifact
from gateway.explain.bill import ExplainedCall
from gateway.explain.lines import text_of_message
from gateway.explain.prefix import Divergence
from gateway.explain.request import ExplainedRequest
from gateway.models.bill import PriceLine
from gateway.operations.listed import FAINT, ID_STYLE
from gateway.operations.screen import Screen, one_line
from gateway.operations.show.reasons import said, why_gone

BEGIN_CHARS = 200
"""Of a message."""
PLANNED = (
    ("strategy", "planned"),
    ("priority", "priority"),
    ("relevance_rationale", "because"),
    ("summarization_focus", "focus"),
    ("extraction_query", "query"),
)
Json = dict[str, Any]


def write_why(screen: Screen, found: ExplainedRequest) -> None:
    """Artifacts, plan, where the prompt stopped beginning as the one before, arithmetic."""
    used = found.used
    screen.line()
    screen.line(("why", "bold"))
    planned = "asked" if used.get("llm_planning_used") else "not asked, or not heeded"
    reason = used.get("fallback_reason") or used.get("planning_reason") or "none"
    screen.line(f"planner: {planned}: ", str(reason))
    _economics(screen, used.get("economics"))
    if cache := found.entry.metadata.get("cache"):
        tokens = f"{cache['cached_tokens']} of {cache['promised_tokens']} tokens were read from it"
        screen.line("prompt cache broke at ", cache["broke_at"], f": {tokens}")
    _artifacts(screen, found)
    _plan(screen, found)
    _prefix(screen, found)
    _arithmetic(screen, found)


def _economics(screen: Screen, economics: Any) -> None:
    if isinstance(economics, dict):
        told = ", ".join(f"{name} {value}" for name, value in economics.items() if value is not None)
        screen.line("economics: ", told)


def _artifacts(screen: Screen, found: ExplainedRequest) -> None:
    standing = found.used.get("artifacts_standing") or {}
    if standing.get("count"):
        screen.line(f"{standing['count']} artifacts stand as decided before, {standing.get('chars')} characters")
    if not found.artifacts:
        screen.line("no artifact was decided on")
    for each in found.artifacts:
        _artifact(screen, each)


def _artifact(screen: Screen, each: ExplainedArtifact) -> None:
    record = each.record
    sizes = f"{record.get('original_size_chars')} → {record.get('processed_size_chars')} characters"
    cached = ", from the cache" if record.get("cache_hit") else ""
    screen.line((each.artifact_id, ID_STYLE), " ", str(record.get("source", "")))
    rank = f", rank {each.rank}" if each.rank is not None else ""
    reason = f", {record['reason']}" if record.get("reason") else ""
    guarded = ", guarded" if record.get("guarded") else ""
    screen.line(f"  {record.get('strategy')}: {sizes}{rank}{cached}{guarded}", reason)
    for name, title in PLANNED:
        value = (each.planned or {}).get(name)
        if value not in (None, ""):
            screen.line(f"  {title}: ", str(value))
    if each.reason:
        screen.line((f"  {why_gone(each.reason)}", FAINT))
    elif each.is_reduced and each.passages.spans:
        count = len(each.passages.spans)
        screen.line((f"  {count} passages of it were shown, {each.passages.chars} characters", FAINT))


def _plan(screen: Screen, found: ExplainedRequest) -> None:
    plan = found.plan
    if not plan:
        return
    screen.line("plan: ", str(plan.get("reasoning") or ""))
    for query in plan.get("search_queries") or ():
        screen.line("  query: ", str(query))
    if found.planner_prompt:
        screen.line((f"  the planner was asked with {len(found.planner_prompt)} characters: --json has them", FAINT))


def _prefix(screen: Screen, found: ExplainedRequest) -> None:
    before, way = found.previous_request_id, found.divergence
    if before is None:
        screen.line("prompt cache: no request of this model before it on its branch")
    elif way is None:
        exact = "begins with all of" if found.sent.is_exact else "cannot be held against"
        screen.line(f"prompt cache: it {exact} what {before} forwarded")
    else:
        _diverges(screen, way)


def _diverges(screen: Screen, way: Divergence) -> None:
    screen.line(f"prompt cache: it parts from {way.previous_request_id} at message {way.index + 1}: {said(way.why)}")
    for title, body in (("then", way.before), ("now", way.after)):
        if body is not None:
            text = one_line(text_of_message(body), BEGIN_CHARS)
            screen.line(f"  {title}: {body.get('role', '')}: ", text)
    cost = f", {usd_text(way.cost)} USD more than from the cache" if way.cost is not None else ""
    tokens = f"about {way.kept_tokens} tokens stayed the same, {way.lost_tokens} did not"
    screen.line(f"  {tokens}{cost}; the provider read {way.cached_tokens} from its cache")


def _arithmetic(screen: Screen, found: ExplainedRequest) -> None:
    screen.line(("the bill", "bold"))
    for call in found.bill.calls:
        _call(screen, call)
    cost = found.bill.cost
    total = usd_text(cost.total_cost) or "unknown: a call has no known price"
    screen.line(f"total: {total}")
    if found.bill.net_saving is not None:
        direct = usd_text(found.bill.direct_cost)
        screen.line(
            f"net saving: {usd_text(found.bill.net_saving)}, as it would have cost {direct} without the gateway"
        )
    if found.bill.realised_saving is not None:
        screen.line(f"saved by what was left out, as later bills realised it: {usd_text(found.bill.realised_saving)}")
    screen.line("the stored bill is what this adds up to" if found.bill.balances else "the stored bill DIFFERS")


def _call(screen: Screen, call: ExplainedCall) -> None:
    counted = " (counted by the gateway)" if call.estimated else ""
    screen.line(f"{call.purpose}{counted}: ", call.model)
    if call.total is None:
        screen.line("  no known price")
        return
    for title, lines, sum_ in (
        ("prompt", call.prompt, call.prompt_cost),
        ("completion", call.completion, call.completion_cost),
    ):
        for text in _products(lines):
            screen.line(f"  {text}")
        screen.line(f"  {title}: {usd_text(sum_)}")


def _products(lines: Sequence[PriceLine]) -> Iterable[str]:
    for line in lines:
        yield f"{line.kind}: {line.tokens} × {line.rate:f} = {line.cost:f}"
