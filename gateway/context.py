"""`ContextManager`: steps 2 to 5 as one call, for the pipeline and for those who use the package as a library."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.artifacts.attached import with_content
from gateway.artifacts.collect import (
    attachments_to_artifacts,
    current_turn,
    documents_in_messages,
    extract_artifacts_from_messages,
    text_of,
    unique_ids,
    without_repeats,
)
from gateway.artifacts.compaction import compact
from gateway.artifacts.earlier import artifacts_of_earlier
from gateway.artifacts.files import FilePlace, FileReader
from gateway.artifacts.restored import Told, steps_as_text
from gateway.assembly.messages import assemble, without_items
from gateway.conversation.frozen import as_frozen
from gateway.embeddings.afterwards import Holds, Remains
from gateway.embeddings.meaning import Meaning, RequestMeaning
from gateway.fitting.budget import Budget
from gateway.fitting.count import Counting
from gateway.fitting.fit import fit
from gateway.fitting.quick import fitted_as_sent, surely_fits
from gateway.fitting.tools import Limits, Tools
from gateway.models.artifacts import Artifact
from gateway.models.conversation import INLINE_MESSAGES, Context, ConversationMessage, Earlier, History
from gateway.models.exchange import ChatRequest, ModelFacts
from gateway.models.metadata import ContextUtilizationMetadata
from gateway.models.relevance import Relevance
from gateway.models.selection import Fitted, Material
from gateway.models.spending import InternalCall
from gateway.planning.decision import Decision, should_use_llm_planning
from gateway.planning.facts import facts_of
from gateway.planning.record import plan_of, records_of, stand_reduced
from gateway.ports import FileStore, TokenCounters
from gateway.relevance.finder import PassageFinder
from gateway.relevance.kept import ContentIndexes
from gateway.settings import ContextSettings

QUESTION_CHARS = 4000
TOOL_FIELDS = ("tools", "functions")
COUNTED_APART = ("tools", "functions", "response_format")
NO_MATERIAL = Material(instructions=(), messages=(), current=0)
INLINE_CHARS = 100_000
NONE_EARLIER = Earlier()
"""Where all messages of a conversation may be forwarded."""


@dataclass(frozen=True, slots=True)
class BuiltContext:
    """What is forwarded, what is to be remembered of it, and the figures of how it came about."""

    fitted: Fitted
    utilization: ContextUtilizationMetadata
    material: Material
    new_attachments: tuple[Artifact, ...] = ()
    counting: Counting | None = None
    cached: tuple[str, ...] = ()
    """Digests of contents of which the cache keeps something."""
    indexed: PassageFinder | None = None
    """What was indexed, to be kept once this request is stored."""
    remains: Remains | None = None
    """What is kept for later questions once this one is answered."""


@dataclass(frozen=True, slots=True)
class Files:
    """Texts of `file` parts: those of messages that may be forwarded, and of earlier ones."""

    sent: dict[FilePlace, str]
    earlier: dict[FilePlace, str]


class ContextManager:
    """Decides which artifacts and turns enter the window, and words them."""

    def __init__(
        self,
        settings: ContextSettings,
        counters: TokenCounters,
        files: FileReader,
        meaning: Meaning | None = None,
        indexes: ContentIndexes | None = None,
    ) -> None:
        self._settings = settings
        self._indexes = indexes
        self._meaning = meaning
        self._files = files
        self._counters = counters

    async def __call__(
        self,
        request: ChatRequest,
        history: History,
        facts: ModelFacts,
        budget: Budget,
        origin: str | None = None,
        spent: list[InternalCall] | None = None,
    ) -> BuiltContext:
        """Collect, plan, fit, assemble.

        Args:
            origin: who will answer (`Deployment.origin`); tool steps of others are told as text (contract §3.3).
            spent: gets the calls of internal models, also where this raises.

        Raises:
            ContextLengthExceeded: it cannot be made to fit (contract §4 I1).
            InvalidRequest: a `file` part holds no readable document; names the part.
        """
        has_tools = any(request.forward.get(name) for name in TOOL_FIELDS)
        told = steps_as_text(as_frozen(history), without_items, has_tools=has_tools, origin=origin)
        history = told.history
        texts, kept = await self._read(request, facts, history.messages, history.stored)
        earlier = (history.earlier or NONE_EARLIER).messages
        texts_earlier, kept_earlier = await self._read(request, facts, earlier, len(earlier))
        files, kept = Files(texts, texts_earlier), _all(kept, kept_earlier)
        meaning = self._meaning_for(request, [] if spent is None else spent)
        if meaning is not None:
            built = await meaning.run(self._build, request, told, facts, budget, files, meaning.relevance)
            built = _with_remains(built, meaning, request, history.conversation_id)
        elif _is_little(request, told, files):
            built = self._build(request, told, facts, budget, files)
        else:  # Counting and ranking much text takes a while; streams of other requests must not wait for it.
            built = await asyncio.to_thread(self._build, request, told, facts, budget, files)
        return replace(built, cached=_all(built.cached, kept)) if kept else built

    async def _read(
        self, request: ChatRequest, facts: ModelFacts, messages: Sequence[ConversationMessage], first_new: int
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        return await self._files.read(
            messages,
            first_new,
            request.caller.tenant,
            decode_pdf=not facts.supports_pdf_input,
            keep=request.store and not request.options.dry_run,
        )

    def afterwards(self, built: BuiltContext, holds: Holds) -> None:
        """Keeps for later questions what a stored request leaves, as long as its conversation is there."""
        if built.indexed is not None:
            built.indexed.keep()
        if self._meaning is not None and built.remains is not None:
            self._meaning.later(built.remains, holds)

    async def with_content(self, request: ChatRequest, files: FileStore) -> ChatRequest:
        """See `gateway.artifacts.attached`."""
        return await with_content(request, files, self._files.documents)

    def untouched(self, request: ChatRequest, facts: ModelFacts, budget: Budget) -> BuiltContext | None:
        """The context of a request that stands alone and surely fits as it is; None if it needs a closer look."""
        if budget.tokens is None or request.plain is None or any(request.forward.get(name) for name in COUNTED_APART):
            return None
        allowed = int(budget.tokens / max(1.0, self._counters.counter(facts).margin))
        tokens = surely_fits(request.plain, request.size, allowed, self._settings.document_min_chars)
        if tokens is None:
            return None
        fitted = fitted_as_sent(request.messages, request.plain, tokens)
        utilization = self._measured(request, budget, fitted, len(request.messages))
        utilization.planning_reason = self._decision(request, NO_MATERIAL, fitted, budget, 0).reason
        return BuiltContext(fitted, utilization, NO_MATERIAL)

    def _build(
        self,
        request: ChatRequest,
        told: Told,
        facts: ModelFacts,
        budget: Budget,
        files: Files,
        ranked: Callable[[Relevance], Relevance] | None = None,
    ) -> BuiltContext:
        history = told.history
        finder = PassageFinder(self._indexes, request.caller.tenant)
        tools = Tools(assemble=assemble, relevance=ranked(finder) if ranked else finder, compact=compact)
        context = self._collect(request, told, files.sent)
        earlier, min_chars = history.earlier or NONE_EARLIER, self._settings.document_min_chars
        material = Material(
            instructions=history.instructions,
            messages=context.conversation_history,
            current=context.current,
            placed=context.placed,
            restored=context.restored,
            attached=context.artifacts,
            question=_question(context),
            frame=history.frame,
            earlier=earlier.messages,
            recallable=artifacts_of_earlier(earlier.messages, files.earlier, min_chars, context.all_artifacts()),
            turns_before=earlier.turns,
        )
        counter = self._counters.counter(facts)
        counting = Counting(counter, request.forward, material, max(1.0, counter.margin))
        limits = self._limits(budget, request, estimated=counter.margin != 1.0)
        fitted = fit(material, limits, counting, tools)
        utilization = self._utilization(request, material, fitted, budget, history.stored)
        utilization.messages_excluded += history.unread + told.left
        if (history.restored or history.unread) and utilization.strategy == "passthrough":
            utilization.strategy = "simple"
        known = len(history.attachments)
        built = BuiltContext(fitted, utilization, material, material.attached[known:], counting)
        keeps = request.store and not request.options.dry_run and finder.digests
        return replace(built, cached=finder.digests, indexed=finder) if keeps else built

    def _meaning_for(self, request: ChatRequest, spent: list[InternalCall]) -> RequestMeaning | None:
        """What ranks by meaning, too; in mode `simple` only what nobody bills (contract §2)."""
        if self._meaning is None or (request.options.mode == "simple" and self._meaning.is_billed):
            return None
        return self._meaning.of(request.caller, spent)

    def _limits(self, budget: Budget, request: ChatRequest, *, estimated: bool) -> Limits:
        """The budget, and what of it is left full when something has to leave (contract §4 I7)."""
        share = self._settings.low_water if request.store else 1.0
        target = int(share * budget.tokens) if budget.tokens is not None else None
        return Limits(budget.tokens, self._settings.history_share, target, estimated)

    def _collect(self, request: ChatRequest, told: Told, files: dict[FilePlace, str]) -> Context:
        history = told.history
        current = current_turn(history)
        placed = extract_artifacts_from_messages(history.messages, current)
        placed += documents_in_messages(history.messages, current, self._settings.document_min_chars, files)
        old = [replace(artifact, historical=True) for artifact in history.attachments]
        attached = without_repeats(old + attachments_to_artifacts(request.attachments, len(old)))
        unique = tuple(unique_ids([*placed, *told.artifacts, *attached]))
        first, last = len(placed), len(placed) + len(told.artifacts)
        return Context(history.messages, current, unique[:first], unique[first:last], unique[last:])

    def _utilization(
        self, request: ChatRequest, material: Material, fitted: Fitted, budget: Budget, stored: int
    ) -> ContextUtilizationMetadata:
        included = len(set(fitted.forwarded.indexes) - {-1})
        decision = self._decision(request, material, fitted, budget, stored)
        records = records_of(material, fitted, named=request.store)
        utilization = self._measured(request, budget, fitted, included + len(material.instructions))
        utilization.strategy = _strategy(material, fitted)
        utilization.messages_excluded = len(material.messages) - included
        utilization.planning_reason = decision.reason
        utilization.fallback_reason = "no_planner" if decision.use else None
        utilization.artifacts_processed = records
        return utilization

    def _measured(
        self, request: ChatRequest, budget: Budget, fitted: Fitted, included: int
    ) -> ContextUtilizationMetadata:
        """The figures of a context, and a warning where they call for one."""
        settings, tokens = self._settings, budget.tokens
        utilization = ContextUtilizationMetadata(
            model_name=request.model,
            goal=request.options.goal.value,
            context_window=budget.context_window,
            budget_tokens=tokens,
            tokens_used=fitted.tokens,
            utilization=round(fitted.tokens / tokens, 4) if tokens else None,
            breakdown=fitted.breakdown,
            messages_included=included,
        )
        if tokens is None:
            utilization.warnings.append("context_window_unknown")
        elif fitted.tokens > settings.warning_threshold * tokens:
            utilization.warnings.append(f"context_window_above_{settings.warning_threshold:.0%}"[:-1] + "_percent")
        return utilization

    def _decision(
        self, request: ChatRequest, material: Material, fitted: Fitted, budget: Budget, stored: int
    ) -> Decision:
        facts = facts_of(
            request.options,
            material,
            fitted,
            stored=stored,
            budget=budget.tokens,
            historical_turns=self._settings.historical_turns,
        )
        return should_use_llm_planning(facts, self._settings)


def _with_remains(
    built: BuiltContext, meaning: RequestMeaning, request: ChatRequest, conversation_id: str | None
) -> BuiltContext:
    """The context with what went wrong with the embedder, and what may be kept of its vectors."""
    built.utilization.warnings += meaning.warnings
    keeps = request.store and not request.options.dry_run and conversation_id
    remains = meaning.remains(conversation_id) if keeps and conversation_id else None
    return replace(built, remains=remains, cached=_all(built.cached, remains.digests)) if remains else built


def _all(some: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*some, *others)))


def _is_little(request: ChatRequest, told: Told, files: Files) -> bool:
    """Whether a context is built in the twinkling of an eye. Every message and part takes time, however small."""
    history = told.history
    if request.size >= INLINE_CHARS or len(history.messages) >= INLINE_MESSAGES or history.earlier:
        return False
    size = sum(map(len, files.sent.values())) + sum(len(a.content or "") for a in request.attachments)
    size += sum(a.size_chars for a in (*history.attachments, *told.artifacts))
    return size + sum(message_size(m.body) for m in history.messages) < INLINE_CHARS


def message_size(message: dict[str, Any]) -> int:
    """Characters of a message's content, roughly: enough to tell much from little."""
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else []
    texts = (str(part.get("text") or part.get("file") or "") for part in parts if isinstance(part, dict))
    return sum(len(text) for text in texts)


def _strategy(material: Material, fitted: Fitted) -> str:
    """`heuristic` if an artifact was decided on, `simple` if only turns left, else `passthrough` (contract §6). A tool
    result told in full was restored, not decided on."""
    told = {a.artifact_id: a.content for a in material.restored}
    decided = any(told.get(key) != r.text for key, r in fitted.selection.renderings.items())
    if (decided or stand_reduced(material, fitted)) and plan_of(material, fitted).artifacts:
        return "heuristic"
    if fitted.selection.first > 0 or fitted.selection.left_out:
        return "simple"
    return "passthrough"


def _question(context: Context) -> str:
    """The current user message's own words: its text without what is a document in it."""
    messages, current = context.conversation_history, context.current
    if not messages:
        return ""
    content = messages[current].content
    here = [a.place for a in context.placed if a.place.message == current and messages[current].role == "user"]
    texts = []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for number, part in enumerate(parts):
        text = text_of([part]) if isinstance(part, dict) else ""
        spans = [p.span for p in here if p.span and p.part == (None if isinstance(content, str) else number)]
        for start, end in sorted(spans, reverse=True):
            text = text[:start] + "\n" + text[end:]
        texts.append(text)
    question = "\n".join(text for text in texts if text.strip())
    if len(question) <= QUESTION_CHARS:
        return question
    return question[: QUESTION_CHARS // 2] + "\n" + question[-QUESTION_CHARS // 2 :]
