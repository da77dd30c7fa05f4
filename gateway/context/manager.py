"""`ContextManager`: makes the context of a request, for the pipeline and for those who use the package as a library."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from gateway.artifacts.attached import with_contents
from gateway.artifacts.files import FileReader, has_files, has_named_pictures
from gateway.assembly.agents import Assemblers
from gateway.assembly.own_files import OwnFiles
from gateway.assembly.profiles import MODES, Profile, composed, inferred, monolith
from gateway.base.tasks import offload_if
from gateway.config.settings import NO_PROFILES, ContextSettings, PromptProfiles
from gateway.context.collect import INLINE_CHARS, ContextInput, collect
from gateway.context.draft import Draft, Measured, Run, make_draft, measure, runner
from gateway.context.fast_path import context_as_sent
from gateway.context.for_agent import Room, for_agent
from gateway.context.native_files import NativeFiles, Stays, with_native
from gateway.context.native_pages import with_pages
from gateway.context.planned_fit import FinalFit, fit_as_planned
from gateway.context.planner import (
    ContextPlanning,
    PlannerAccess,
    Planners,
    PlanResult,
    planner_task,
    prospects_of,
)
from gateway.context.reading import InputReader
from gateway.context.recalling import Window, asked_for, told
from gateway.context.remembered import with_things
from gateway.context.report import BuiltContext, check_whole, report, with_vectors
from gateway.context.whole_files import WholeFiles
from gateway.embeddings.background import Holds
from gateway.embeddings.meaning import Meaning, RequestMeaning
from gateway.history.rebuild import begins_turn, has_unread, with_older_messages
from gateway.models.conversation import History
from gateway.models.exchange import ChatRequest, ModelFacts
from gateway.models.memory import EXTRACTS
from gateway.models.upstream import CallScope
from gateway.planning.decision import NO_PLANNER, NOTHING_TO_PLAN, may_be_planned, weighed
from gateway.planning.loops import ToolLoops
from gateway.ports import ConversationReader, Spans, ThingReader
from gateway.ports.documents import FileStore, LargeTexts
from gateway.relevance.index_cache import ContentIndexes, PassageFinder
from gateway.tokens.counter import CounterRegistry
from gateway.window.budget import Budget
from gateway.window.counting import REPLY_TOKENS, prompt_tokens

__all__ = ["BuiltContext", "ContextManager", "PlannerAccess"]
TAKE_IN_RESULTS = ("anthropic", "responses")
"""Protocols that have words for PDFs in results of tools."""
NOBODYS = PlannerAccess()


class ContextManager:
    """Decides which artifacts and turns enter the window, and words them."""

    def __init__(
        self,
        settings: ContextSettings,
        counters: CounterRegistry,
        files: FileReader,
        meaning: Meaning | None = None,
        indexes: ContentIndexes | None = None,
        planning: ContextPlanning | None = None,
        store: ConversationReader | None = None,
        profiles: PromptProfiles = NO_PROFILES,
        things: ThingReader | None = None,
        large: LargeTexts | None = None,
    ) -> None:
        self._settings = settings
        self._counters = counters
        self._files = files
        self._meaning = meaning
        self._indexes = indexes
        self._planning = planning
        self._store = store
        self._things = things
        self._large = large
        self._input = InputReader(large)
        self._assemblers = Assemblers()
        self._profiles = profiles if profiles.is_set else None
        self.spans: Spans = nullcontext
        self.loops: ToolLoops | None = None
        """What is known of tool loops whose clients are not recognised."""

    async def build(
        self,
        request: ChatRequest,
        history: History,
        facts: ModelFacts,
        budget: Budget,
        access: PlannerAccess | None = None,
    ) -> BuiltContext:
        """Reads, collects, measures, fits without a plan; asks for a plan where one is called for, and fits again by
        it; reports. Where something has to leave, older messages are read, and all is collected, measured and fitted
        once more.

        Args:
            access: whose internal models may be asked; none without it.

        Raises:
            ContextLengthExceeded: it cannot be made to fit (guarantee §4 I1).
            InvalidRequest: a part holds no readable document, or names no picture; names the part.
            NotFound: a part names a file that is not there, where files are kept here; names the part.
            StorageUnavailable: older messages or files are needed and cannot be read.
        """
        access = access or PlannerAccess()
        meaning = self._meaning_for(request, access.scope)
        if begins_turn(history):
            history = await self._with_older_messages(request, history)
        if self.loops is not None:
            history = await self.loops.seen_in(request.caller.tenant, history, stored=request.store)
        natives = self._natives(request, facts, access)
        whole = WholeFiles(self._files.store, request.caller, self._counters)
        if has_named_pictures(history.messages):
            await whole.fetch(history, request.messages)
        source, draft, planners = await self._drafted(request, history, budget, access, meaning, natives)
        if draft.fitted.new_pass and has_unread(history) and self._store is not None:
            history = await self._with_older_messages(request, history)
            source, draft, planners = await self._drafted(request, history, budget, access, meaning, natives)
        run = runner(meaning, small=source.is_small)
        draft, planned = await self._plan(draft, planners, run) if access.result is None else (draft, None)
        result = access.result or planned
        final = FinalFit(draft.fitted)
        if result:
            with self.spans("fit"):
                final = await run(fit_as_planned, draft, result, access.scope.calls)
        built: BuiltContext = await run(report, draft, final, result, self._settings.warning_threshold)
        if request.options.whole:
            check_whole(built, budget)
        if natives.own or whole.pictures:
            built = replace(built, own=OwnFiles(natives.own, whole.pictures))
        return with_vectors(built, meaning, source).with_cached(source.files.cached)

    async def build_for_agent(
        self,
        request: ChatRequest,
        history: History,
        facts: ModelFacts,
        budget: Budget,
        access: PlannerAccess | None = None,
    ) -> BuiltContext:
        """The same for an agent that reads anything but the messages as they are (guarantee §11.2).

        Raises:
            InvalidRequest: there is nothing to deliver; else as `build`.
        """
        agent = request.agent
        if agent is None or not agent.changes_messages:
            return await self.build(request, history, facts, budget, access)
        counter = self._counters.counter(facts)
        around = REPLY_TOKENS + counter.tools(request.forward) if agent.is_assembled else 0
        room = Room(counter.message, around, budget)
        worded = await offload_if(
            request.size >= INLINE_CHARS, for_agent, history, agent, self._assemblers, self._settings, room
        )
        built = await self.build(request, worded.history, facts, budget, access)
        return worded.reported(built) if agent.is_assembled else built

    async def as_sent(self, request: ChatRequest, facts: ModelFacts, budget: Budget) -> BuiltContext | None:
        """The context of a request that surely fits as it was sent; None if it needs a closer look."""
        if not self._counters.is_loaded(facts):
            await asyncio.to_thread(self._counters.load, facts)
        options = request.options
        if request.is_worded or request.remembers or options.recall or options.cite or self._is_profiled(request):
            return None
        if options.memory != EXTRACTS and request.plain is not None and "assistant" in request.plain.roles:
            return None  # a summary may wait to be shown
        return context_as_sent(request, budget, self._counters.counter(facts), self._settings)

    async def count(self, request: ChatRequest, facts: ModelFacts) -> int:
        """Tokens of a request as it was sent, as its budget is kept (guarantee §4 I1)."""
        if not self._counters.is_loaded(facts):
            await asyncio.to_thread(self._counters.load, facts)
        counter = self._counters.counter(facts)
        if facts.supports_pdf_input:
            await self._natives(request, facts).note_in(request.messages)
        await WholeFiles(self._files.store, request.caller, self._counters).fetch_sent(request.messages)
        return await offload_if(request.size >= INLINE_CHARS, prompt_tokens, counter, request.messages, request.forward)

    async def told(
        self, request: ChatRequest, history: History, window: Window, call: dict[str, Any], access: PlannerAccess
    ) -> str:
        """What a call of the tool `recall` is answered.

        Args:
            history: the conversation that the window was made of.

        Raises:
            StorageUnavailable: older messages cannot be read.
        """
        if has_unread(history) and not window.material.earlier:
            history = await self._with_older_messages(request, history)
            natives = self._natives(request, window.facts, access)
            source = await self._input.read(request, history, window.budget, access, natives)
            material = await asyncio.to_thread(collect, source, self._settings.document_min_chars)
            window = replace(window, material=material)
        attached, question = window.material.attached, asked_for(call)
        if question and self._large is not None and any(each.is_excerpt for each in attached):
            from gateway.relevance.stored.read import read_for

            attached = await read_for(attached, self._large, request.caller.tenant, question)
            window = replace(window, material=replace(window.material, attached=attached))
        finder = PassageFinder(self._indexes, request.caller.tenant)
        return await asyncio.to_thread(told, call, window, finder, self._counters.counter(window.facts))

    async def with_things(self, request: ChatRequest, history: History) -> History:
        """The conversation with the remembered things that its question names, where the request has its memory on."""
        if self._things is None or not request.remembers:
            return history
        return await with_things(request, history, self._things)

    def profile(self, request: ChatRequest, history: History, facts: ModelFacts) -> Profile | None:
        """The prompt profile that the conversation calls for; None where none is configured or wanted."""
        if not self._is_profiled(request):
            return None
        mode, source = request.options.profile, "request"
        if mode is None:
            mode, source = inferred([message.body for message in history.messages], history.profile)
        return self._composed(mode, source, facts)

    async def profiles(
        self, messages: Sequence[dict[str, Any]], before: str | None, facts: ModelFacts
    ) -> tuple[Profile | None, dict[str, Profile]]:
        """The prompt profile that messages call for, and that of each mode; None and none where none is configured.

        Args:
            before: the mode that the conversation had.
        """
        if self._profiles is None:
            return None, {}
        if not self._counters.is_loaded(facts):
            await asyncio.to_thread(self._counters.load, facts)
        found = {mode: self._composed(mode, "request", facts) for mode in MODES}
        mode, source = inferred(messages, before)
        return replace(found[mode], source=source), found

    def _composed(self, mode: str, source: str, facts: ModelFacts) -> Profile:
        profiles = self._profiles or NO_PROFILES
        text, counter = composed(profiles, mode), self._counters.counter(facts)
        tokens = counter.text(text)
        return Profile(mode, source, text, tokens, counter.text(monolith(profiles)) - tokens)

    def _is_profiled(self, request: ChatRequest) -> bool:
        options = request.options
        return self._profiles is not None and options.mode != "off" and options.profile != "off"

    async def with_content(self, request: ChatRequest, files: FileStore) -> ChatRequest:
        """The request with the texts of its attachments: of those that it names by file id, and of encoded ones.

        Raises:
            InvalidRequest: there is no such file, or it is no document or has no text; names the attachment.
        """
        if not request.attachments:
            return request
        return await with_contents(request, files, self._files.documents, self._files.best)

    def keep(self, built: BuiltContext, holds: Holds) -> None:
        """Keeps for later questions what a stored request leaves, as long as its conversation is there (`holds`)."""
        if built.indexes is not None:
            built.indexes.keep()
        if self._meaning is not None and built.vectors is not None:
            self._meaning.later(built.vectors, holds)

    def _natives(self, request: ChatRequest, facts: ModelFacts, access: PlannerAccess = NOBODYS) -> NativeFiles:
        tenant = request.caller.tenant if request.store and not request.options.dry_run else None
        in_results = access.deployment is not None and access.deployment.protocol in TAKE_IN_RESULTS
        return NativeFiles(self._files, self._counters, facts, tenant, request.caller, in_results)

    async def _drafted(
        self,
        request: ChatRequest,
        history: History,
        budget: Budget,
        access: PlannerAccess,
        meaning: RequestMeaning | None,
        natives: NativeFiles,
    ) -> tuple[ContextInput, Draft, Planners | None]:
        """All that was read, and the context without a plan, in which PDFs stay as they came while they fit."""

        async def draft_of(stays: Stays) -> tuple[Draft, Planners | None]:
            source = await self._input.read(request, history, budget, access, natives, stays)
            return await self._draft(source, access, meaning)

        takes = natives.facts.supports_pdf_input
        holds = takes and has_files(history.messages)
        draft, planners = await (with_native(draft_of) if holds else draft_of(Stays.NONE))
        if takes and (holds or draft.material.attached):
            run = runner(meaning, small=draft.source.is_small)
            draft = await with_pages(draft, natives, run, self._settings, has_planner=planners is not None)
        return draft.source, draft, planners

    async def _with_older_messages(self, request: ChatRequest, history: History) -> History:
        if self._store is None:
            return history
        return await with_older_messages(history, self._store, request.caller.tenant, self._settings.recall_bytes)

    async def _draft(
        self, source: ContextInput, access: PlannerAccess, meaning: RequestMeaning | None
    ) -> tuple[Draft, Planners | None]:
        """The context without a plan, and who may be asked for one."""
        run = runner(meaning, small=source.is_small)
        with self.spans("fit"):
            measured: Measured = await run(self._measure, source, meaning)
            planners = self._planners(measured, access)
            return await run(make_draft, measured, self._settings, planners is not None), planners

    def _measure(self, source: ContextInput, meaning: RequestMeaning | None) -> Measured:
        material = collect(source, self._settings.document_min_chars)
        noted = material.recalled.indexes if material.earlier else None
        finder = PassageFinder(self._indexes, source.request.caller.tenant, noted)
        ranked = meaning.relevance if meaning else None
        return measure(source, material, self._counters.counter(source.facts), finder, ranked, self._settings)

    def _planners(self, measured: Measured, access: PlannerAccess) -> Planners | None:
        """Who may be asked for a plan; None also where there is nothing to plan."""
        request = measured.source.request
        if self._planning is None or not may_be_planned(request.options, measured.material):
            return None
        return self._planning.planners(request, access)

    async def _plan(self, draft: Draft, planners: Planners | None, run: Run) -> tuple[Draft, PlanResult | None]:
        """The planner's plan, where one is called for and may pay; the draft with what was decided. No thread and no
        transaction is held while a model is waited for."""
        if draft.decision.use and (planners is None or self._planning is None):
            return draft, PlanResult(fallback_reason=NO_PLANNER, asked=False)
        draft = replace(draft, decision=weighed(draft.decision, prospects_of(draft)))
        if not draft.decision.use or planners is None or self._planning is None:
            return draft, None
        task = await run(planner_task, draft)
        if task is None:
            return draft, PlanResult(fallback_reason=NOTHING_TO_PLAN, asked=False)
        request = draft.source.request
        if not draft.fitted.new_pass:
            prospects = await run(self._planning.prospects, draft, task, planners)
            resting = await self._planning.is_resting(request, planners)
            draft = replace(draft, decision=weighed(draft.decision, replace(prospects, resting=resting)))
        if not draft.decision.use:
            return draft, None
        with self.spans("plan"):
            return draft, await self._planning.plan(request, task, planners)

    def _meaning_for(self, request: ChatRequest, scope: CallScope) -> RequestMeaning | None:
        """What ranks by meaning, too; in mode `simple` only an embedder that nobody bills (guarantee §2)."""
        if self._meaning is None or (request.options.mode == "simple" and self._meaning.is_billed):
            return None
        return self._meaning.of(scope)
