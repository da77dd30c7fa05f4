"""Explains one request: what the client said beside what was forwarded, why, and what it cost.

A bill is shown with its arithmetic: tokens by kind times rate, each sum, and whether it is the stored one. Prices are
those stored with each call, and `billing` computes the sums: what is shown is what an audit adds up."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from gateway.billing import cost, ledger_verification
from gateway.context.assembly import without_block_items
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import bill, past_turns, turn
from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import PromptFrame
from gateway.inspection.explained_artifacts import ExplainedArtifact, explained_artifacts, originals_of, question_of
from gateway.inspection.message_changes import MessageChange, message_changes
from gateway.inspection.prefix import PrefixDivergence, Prices, divergence
from gateway.inspection.rebuilt_turns import sent_messages
from gateway.inspection.window_bar import WindowBar, window_bar

OF_COMPLETION = ("output", "reasoning", "audio_output", "image_output", "searches")
"""Kinds of completion tokens, and what counts with them; all others are prompt tokens."""


@record
class ExplainedCall:
    """One priced call: its products, the exact sum of each side, and that sum rounded to 12 decimals (half-even). A
    call without known prices has no lines, and its costs are None."""

    purpose: str
    model: str
    usage: Mapping[str, Any]
    prompt: tuple[bill.PriceLine, ...]
    completion: tuple[bill.PriceLine, ...]
    prompt_cost: Decimal | None
    completion_cost: Decimal | None
    total: Decimal | None
    estimated: bool


@record
class ExplainedBill:
    """The calls, the primary model's first, their sums, and the stored figures that differ from these sums."""

    calls: tuple[ExplainedCall, ...]
    cost: bill.CostMetadata
    differences: tuple[ledger_verification.AuditDifference, ...]
    planning: Decimal | None
    realised_saving: Decimal | None
    """Of what was left out, before the cost of leaving it out."""
    direct_cost: Decimal | None = None
    """What the client's own request would have cost; None where that is unknown."""
    net_saving: Decimal | None = None
    """How much less was billed; negative where it was more."""
    held_out: bool | None = None

    @property
    def balances(self) -> bool:
        """Whether the stored figures match."""
        return not self.differences


def explained_bill(entry: turn.LedgerEntry) -> ExplainedBill:
    calls = tuple(sorted(entry.calls, key=lambda call: call.purpose != "primary"))
    again = tuple(map(ledger_verification.repriced, calls))
    total, planning = cost.total_cost(again)
    economics = (entry.metadata.get("context_utilization") or {}).get("economics") or {}
    saved = economics.get("realised_saving")
    told = entry.figures or cost.ledger_figures(entry.metadata, calls)
    return ExplainedBill(
        tuple(map(_explained, calls)),
        total,
        ledger_verification.differences(_row(entry, again)),
        planning.total_cost,
        saved if isinstance(saved, Decimal) else Decimal(saved) if isinstance(saved, int) else None,
        told.direct_cost,
        told.net_saving,
        told.held_out,
    )


def _explained(call: bill.CallCost) -> ExplainedCall:
    lines: list[bill.PriceLine] = []
    again = ledger_verification.repriced(call, lines)
    prompt = tuple(line for line in lines if line.kind not in OF_COMPLETION and line.tokens)
    completion = tuple(line for line in lines if line.kind in OF_COMPLETION and line.tokens)
    costs = (again.prompt_cost, again.completion_cost, again.total)
    return ExplainedCall(call.purpose, call.model, call.usage, prompt, completion, *costs, call.estimated)


def _row(entry: turn.LedgerEntry, calls: Sequence[bill.CallCost]) -> turn.LedgerRow:
    """Builds the bill's row as an audit reads it; the ledger's columns come from its document."""
    usage = entry.metadata.get("usage") or {}
    costs = entry.metadata.get("cost") or {}
    total = costs.get("total_cost")
    known = bill.usage_of(cost.primary_usage(calls))
    return turn.LedgerRow(
        entry,
        int(usage.get("prompt_tokens", known.prompt_tokens)),
        int(usage.get("completion_tokens", known.completion_tokens)),
        min(Decimal(total), turn.LARGEST_KEPT) if isinstance(total, Decimal | int) else None,
        bool(costs.get("estimated")),
    )


NOT_STORED, RELAYED, DELETED, NO_MESSAGES, FAILED = (
    "not_stored",
    "relayed",
    "conversation_deleted",
    "no_messages_stored",
    "failed_before_an_answer",
)
"""Why the content is unknown: `store: false`, a dry run, or mode `off` without a conversation; the request was relayed
to an endpoint other than chat; the conversation was deleted; its messages were; what a failed request forwarded is not
stored."""
PROMPT = "prompt"


@record
class RequestBehind:
    """The request of the same model before another one on its branch."""

    request: past_turns.PastRequest
    entry: turn.LedgerEntry
    frame: PromptFrame | None


@record
class StoredRequest:
    """All that is stored of a request. `path` and `request` are None where its content is not stored, for the `reason`
    given. `number` is that of its turn on its branch. `attached` holds the documents that its bill names."""

    completion: turn.StoredCompletion
    path: past_turns.ConversationPath | None = None
    request: past_turns.PastRequest | None = None
    number: int | None = None
    frame: PromptFrame | None = None
    before: RequestBehind | None = None
    attached: tuple[Artifact, ...] = ()
    reason: str | None = None

    @property
    def entry(self) -> turn.LedgerEntry:
        return self.completion.ledger


@record
class ExplainedRequest:
    """A request with all that is known of it.

    Attributes:
        changes: each message as it was said and as it was forwarded; None where that is not stored (`reason`).
        sent: what was forwarded; its own `reason` explains why it is not exact.
        reason: why there is no content at all.
        plan: the planner's answer: reasoning, queries, decisions. `planner_prompt`: what the planner was asked.
        divergence: where the prompt stops matching that of `previous_request_id`; None where it does not, and where
            that is not known (`is_comparable`).
        bar: the window; None in mode `off`, which counts nothing.
    """

    entry: turn.LedgerEntry
    number: int | None
    reason: str | None
    sent: past_turns.SentMessages
    changes: list[MessageChange] | None
    artifacts: list[ExplainedArtifact]
    plan: Json | None
    planner_prompt: str | None
    bill: ExplainedBill
    bar: WindowBar | None
    divergence: PrefixDivergence | None
    is_comparable: bool
    previous_request_id: str | None
    question: str
    answer: Json | None
    answered_at: datetime | None = None

    @property
    def used(self) -> Json:
        """`context_utilization` of the bill; {} in mode `off`."""
        found = self.entry.metadata.get("context_utilization")
        return found if isinstance(found, dict) else {}

    @property
    def timings(self) -> Mapping[str, Any]:
        """Milliseconds by step."""
        found = self.entry.metadata.get("timings_ms")
        return found if isinstance(found, dict) else {}


def explained_request(stored: StoredRequest, min_chars: int, prices: Prices | None = None) -> ExplainedRequest:
    """Explains a stored request. `min_chars`: `context.document_min_chars`; `prices`: returns the model's current
    prices, for prompt cache rates that no bill has."""
    entry = stored.entry
    used = entry.metadata.get("context_utilization") or {}
    bar = window_bar(entry) if used.get("breakdown") else None
    plan = dict(stored.completion.plan) if stored.completion.plan is not None else None
    prompt = plan.pop(PROMPT, None) if plan is not None else None
    sent, changes, question = past_turns.SentMessages(None, stored.reason), None, ""
    artifacts: list[ExplainedArtifact] = []
    path, request = stored.path, stored.request
    if path is not None and request is not None:
        sent = _sent(path, request, entry, stored.frame)
        said = (*path.messages[: request.before], *request.brought)
        question = question_of(said)
        changes = message_changes(path, request, sent)
        originals = originals_of(said, stored.attached, min_chars)
    else:
        originals = originals_of((), stored.attached, min_chars)
    artifacts = explained_artifacts(used, plan, sent, originals, question)
    answer = request.answer if request is not None else None
    return ExplainedRequest(
        entry,
        stored.number,
        stored.reason,
        sent,
        changes,
        artifacts,
        plan,
        prompt if isinstance(prompt, str) and prompt else None,
        explained_bill(entry),
        bar,
        *_divergence(stored, sent, prices),
        stored.before.entry.request_id if stored.before is not None else None,
        question,
        answer.message.body if answer is not None else None,
        answer.committed_at if answer is not None else None,
    )


def _sent(
    path: past_turns.ConversationPath,
    request: past_turns.PastRequest,
    entry: turn.LedgerEntry,
    frame: PromptFrame | None,
) -> past_turns.SentMessages:
    if request.answer is None:
        return past_turns.SentMessages(None, FAILED)
    return sent_messages(path, request, entry, frame, without_block_items)


def _divergence(
    stored: StoredRequest, sent: past_turns.SentMessages, prices: Prices | None
) -> tuple[PrefixDivergence | None, bool]:
    """Finds where the prompt stops matching the previous one, and whether the two can be compared."""
    before = stored.before
    if before is None or stored.path is None:
        return None, False
    earlier = _sent(stored.path, before.request, before.entry, before.frame)
    is_known = all(each.messages is not None and each.is_exact for each in (earlier, sent))
    return divergence((before.entry, earlier), (stored.entry, sent), prices), is_known
