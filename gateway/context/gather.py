"""Gathers everything that a context is made of: all waiting for files, caches or the storage is here and in
`whole_files.py`. All later steps compute from the gathered inputs, including pinned messages (guarantee §11.12)."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from sys import maxsize
from typing import Any

from gateway import retrieval
from gateway.context.artifacts.collect import (
    Context,
    StepsAsText,
    artifacts_of_earlier,
    attachments_to_artifacts,
    current_turn,
    documents_in_messages,
    extract_artifacts_from_messages,
    next_number,
    own_words,
    steps_as_text,
    unique_ids,
    with_documents,
    without_repeats,
)
from gateway.context.assembly.render import block, file_part
from gateway.context.assembly.shown_block import says_same, without_block_items
from gateway.context.planning.decision import ToolLoops
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.whole_files import NO_FILES, NO_INLINED_FILES, InlinedFiles, NativeFiles, NativePdfs, WholeFiles
from gateway.conversations import message_forms, rebuild
from gateway.core import ids, ports
from gateway.core.config.settings import ContextSettings
from gateway.core.frozen_records import record
from gateway.core.types import conversation, memory, recall, tool_steps, upstreams, window
from gateway.core.types.artifacts import LAST_EARLIER, Artifact, FilePlace, ProcessingStrategy
from gateway.core.types.chat import ChatRequest, ModelDeployment, ModelFacts, PromptBudget
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, EarlierMessages, MessageCache
from gateway.core.types.window import RepeatedDocument, RepeatedDocuments, WindowInputs
from gateway.documents import file_reader

QUESTION_CHARS = 4000
"""Characters of a question that rank passages and that a planner reads; a longer one is cut to its beginning and its
end, half each."""
INLINE_CHARS = 100_000
"""With fewer characters, making a context takes less time than starting a thread."""
NO_EARLIER = EarlierMessages()
OnForwarded = Callable[[ConversationHistory, NativeFiles], Awaitable[ConversationHistory]]


@record
class RequestFiles:
    """Texts of `file` parts by (message, part): of messages that may be forwarded, of older ones, and of pinned ones
    that are older still. `cached` are digests of those in the cache. `native` are PDFs that are sent upstream
    unchanged, `native_contents` the ids of their texts, as far as these are known and of use."""

    sent: dict[FilePlace, str]
    earlier: dict[FilePlace, str]
    cached: tuple[str, ...] = ()
    pinned: dict[FilePlace, str] = field(default_factory=dict)
    native: Mapping[FilePlace, dict[str, Any]] = field(default_factory=dict)
    native_contents: Mapping[FilePlace, str] = field(default_factory=dict)


class MissingInput(Enum):
    """Input that a window turned out to need. Most windows do not; always reading it would cost each request a
    transaction, or the reading of a document."""

    PDF_TEXTS = "the texts of PDFs that have no room as they came"
    OLDER_MESSAGES = "messages before those that were read, in a tool loop that has outgrown its window"


@record
class ContextInputs:
    """One request with all that its context is made from.

    Attributes:
        rebuilt: the conversation as it is stored and was sent.
        steps: the conversation as it was forwarded; tool steps that can only be forwarded as text are separate.
        stays: the PDFs that are sent upstream unchanged.
        waiting: the storage holds older messages that were not read.
    """

    request: ChatRequest
    rebuilt: ConversationHistory
    steps: StepsAsText
    facts: ModelFacts
    budget: PromptBudget
    settings: ContextSettings
    files: RequestFiles
    stays: NativePdfs
    waiting: bool

    @property
    def history(self) -> ConversationHistory:
        """The conversation without the tool steps that are forwarded as text."""
        return self.steps.history

    @property
    def is_small(self) -> bool:
        """Whether making the context is faster than starting a thread. Each message and part takes time."""
        request, history = self.request, self.history
        if request.size >= INLINE_CHARS or len(history.messages) >= conversation.INLINE_MESSAGES or history.earlier:
            return False
        size = sum(map(len, self.files.sent.values())) + sum(len(a.content or "") for a in request.attachments)
        size += sum(a.size_chars for a in (*history.attachments, *self.steps.artifacts))
        return size + sum(_content_chars(m.body) for m in history.messages) < INLINE_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSources:
    """Where contexts are read from.

    Attributes:
        store: older messages; without it none are read.
        large: the documents that are read by regions.
        loops: state of tool loops whose clients are not recognised.
        on_forwarded: a feature's change of the conversation as it was forwarded (`ContextHooks`).
    """

    files: file_reader.FileReader
    store: ports.HistoryStore | None = None
    large: ports.LargeTexts | None = None
    loops: ToolLoops | None = None
    on_forwarded: OnForwarded | None = None


class ContextGatherer:
    """Reads the inputs of one request's context, each file once.
    `deployment`: the model that answers, which decides on the PDFs that results of tools may hold."""

    def __init__(
        self,
        sources: ContextSources,
        counters: CounterRegistry,
        settings: ContextSettings,
        request: ChatRequest,
        facts: ModelFacts,
        deployment: ModelDeployment | None = None,
    ) -> None:
        self._sources, self._settings, self._request = sources, settings, request
        self._origin = deployment.origin if deployment else None
        tenant = request.caller.tenant if request.store and not request.options.dry_run else None
        in_results = deployment is not None and upstreams.PROTOCOLS[deployment.protocol].file_results
        self.natives = NativeFiles(sources.files, counters, facts, tenant, request.caller, in_results)
        self.whole = WholeFiles(sources.files.store, request.caller, counters)

    @property
    def inlined(self) -> InlinedFiles:
        """The PDFs and images that are sent upstream instead of their ids."""
        natives, pictures = self.natives.own, self.whole.pictures
        return InlinedFiles(natives, pictures) if natives or pictures else NO_INLINED_FILES

    async def gather(self, history: ConversationHistory, budget: PromptBudget) -> ContextInputs:
        """Reads everything that most windows need.
        Raises InvalidRequest: a part holds no readable document, or names as an image what is none; names the part;
        NotFound: a part names a file that the file store, if there is one, does not hold; names the part;
        StorageUnavailable: something cannot be read now."""
        if rebuild.begins_turn(history):
            history = await self.with_older(history)
        if self._sources.loops is not None:
            tenant = self._request.caller.tenant
            history = await self._sources.loops.seen_in(tenant, history, stored=self._request.store)
        if file_reader.has_named_pictures(history.messages):
            await self.whole.fetch(history, self._request.messages)
        return await self.read(history, budget, self._first_stays(history))

    async def with_document_texts(self, history: ConversationHistory) -> list[dict[str, Any]]:
        """Returns all messages of a conversation and the documents attached to it or to the request, with labelled
        texts in place of those documents that the model does not read itself. Raises: as `gather`."""
        texts: dict[FilePlace, str] = {}
        if file_reader.has_named_pictures(history.messages):
            await self.whole.fetch(history, self._request.messages)
        if file_reader.has_files(history.messages):
            native = await self.natives.of(history, self._first_stays(history), counted=True)
            texts, _ = await self._texts(history.messages, history.stored, native)
        messages = [*history.instructions, *(message.body for message in history.messages)]
        first = len(history.instructions)
        found = documents_in_messages(history.messages, current_turn(history), maxsize, texts)
        shown = {(each.place.message, each.place.part): file_part(_in_full(each)) for each in found}
        for (index, number), text in texts.items():
            body = messages[first + index]
            parts = [*body["content"]]
            parts[number] = shown.get((index, number), {"type": "text", "text": text})
            messages[first + index] = {**body, "content": parts}
        attached = [*history.attachments, *attachments_to_artifacts(self._request.attachments)]
        text = block([_in_full(each) for each in attached if each.content])
        return [*messages, {"role": "user", "content": text}] if text else messages

    async def supply(self, lack: MissingInput, inputs: ContextInputs) -> ContextInputs:
        """Reads what a window lacked, and returns the inputs with it. PDFs become text from the oldest on; if that
        changes nothing, all do. Raises: as `gather`."""
        history, budget = inputs.rebuilt, inputs.budget
        if lack is MissingInput.OLDER_MESSAGES:
            history = await self.with_older(history)
            return await self.read(history, budget, self._first_stays(history))
        if inputs.stays is NativePdfs.ALL:
            found = await self.read(history, budget, NativePdfs.CURRENT)
            if len(found.files.native) != len(inputs.files.native):
                return found
        return await self.read(history, budget, NativePdfs.NONE)

    async def read(
        self, history: ConversationHistory, budget: PromptBudget, stays: NativePdfs = NativePdfs.ALL
    ) -> ContextInputs:
        """Reads the conversation as it was forwarded, its files, and what the question needs of large documents.
        `stays`: which PDFs are forwarded unchanged.
        Raises InvalidRequest: a `file` part holds no readable document; names the part; StorageUnavailable: a file or a
        document cannot be read now."""
        request, natives, rebuilt = self._request, self.natives, history
        if self._sources.large is not None:
            history = await _with_excerpts(history, self._sources.large, request.caller.tenant)
        tools = recall.own_tools(request.forward) if request.options.recall else request.forward.get("tools")
        has_tools = bool(tools or request.forward.get("functions"))
        frozen = with_whole_steps(message_forms.as_frozen(history))
        has_parts = any(m.rendered is not None and isinstance(m.rendered.get("content"), list) for m in frozen.messages)
        if has_parts and self._sources.on_forwarded is not None:
            frozen = await self._sources.on_forwarded(frozen, natives)
        steps = steps_as_text(frozen, without_block_items, has_tools=has_tools, origin=self._origin)
        native = NO_FILES
        if stays is not NativePdfs.NONE:
            native = await natives.of(steps.history, stays, counted=budget.tokens is not None)
        sent, kept = await self._texts(steps.history.messages, steps.history.stored, native)
        as_text, kept_as_text = await self._texts(steps.results)
        steps = steps.with_documents(as_text)
        earlier, kept_earlier = await self._texts((steps.history.earlier or NO_EARLIER).messages)
        pinned, kept_pinned = await self._texts(steps.history.older_kept)
        cached = tuple(dict.fromkeys((*kept, *kept_as_text, *kept_earlier, *kept_pinned, *natives.digests)))
        files = RequestFiles(sent, earlier, cached, pinned, native, natives.contents(native) if native else {})
        waiting = self._sources.store is not None and rebuild.has_unread(rebuilt)
        settings = self._settings
        return ContextInputs(request, rebuilt, steps, natives.facts, budget, settings, files, stays, waiting=waiting)

    def _first_stays(self, history: ConversationHistory) -> NativePdfs:
        takes = self.natives.facts.supports_pdf_input
        return NativePdfs.ALL if takes and file_reader.has_files(history.messages) else NativePdfs.NONE

    async def with_older(self, history: ConversationHistory) -> ConversationHistory:
        """Adds older messages to the conversation than were read for the window. Raises: StorageUnavailable."""
        store, request = self._sources.store, self._request
        if store is None:
            return history
        return await rebuild.with_older_messages(history, store, request.caller.tenant, self._settings.recall_bytes)

    async def _texts(
        self,
        messages: Sequence[ConversationMessage],
        stored: int | None = None,
        natively: Mapping[FilePlace, dict[str, Any]] = NO_FILES,
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        """Returns the texts of the files in messages, and the digests of contents with entries in the cache.
        `stored`: how many of the messages are stored; None: all."""
        natives, count = self.natives, len(messages) if stored is None else stored
        arrived = file_reader.ArrivedMessages(count, self._request.messages)
        return await natives.files.read(
            messages,
            arrived,
            natives.caller,
            decode_pdf=True,
            keep=natives.tenant is not None,
            natively=natively,
            known=natives.known,
        )


async def _with_excerpts(history: ConversationHistory, texts: ports.LargeTexts, tenant: str) -> ConversationHistory:
    """Replaces the content of each large document by what the current question needs of it (guarantee §14.7): the
    regions that share most words with it. That does not change what another turn was sent of the documents.
    Raises StorageUnavailable: the storage cannot be reached."""
    if not any(each.is_excerpt for each in history.attachments):
        return history

    question, recent = retrieval.question_in(history.messages)
    return replace(
        history, attachments=await with_current_excerpts(history.attachments, texts, tenant, question, recent)
    )


async def with_current_excerpts(
    attached: tuple[Artifact, ...], texts: ports.LargeTexts, tenant: str, question: str, recent: Sequence[str] = ()
) -> tuple[Artifact, ...]:
    """Returns the attachments; reads the parts of large documents that a question needs. Raises: StorageUnavailable."""
    if not any(each.is_excerpt for each in attached):
        return attached

    return await retrieval.read_for(attached, texts, tenant, question, recent)


def collect(inputs: ContextInputs) -> WindowInputs:
    """Collects the messages and artifacts of a request; pure, as all later steps."""
    history, files, what_if = inputs.history, inputs.files, inputs.request.options.what_if
    document_min_chars = inputs.settings.document_min_chars
    context = _context(inputs, document_min_chars)
    if what_if is not None:
        history, context = with_in_full(history, context, what_if.in_full)
    earlier = history.earlier or NO_EARLIER
    pinned = pinned_messages(history, files.sent, files.pinned, context.restored)
    names = {each.message_id for each in pinned}
    recallable = artifacts_of_earlier(earlier.messages, files.earlier, document_min_chars, context.all_artifacts())
    if names:
        before = tuple(replace(m, pinned=True) if m.message_id in names else m for m in earlier.messages)
        earlier, first = replace(earlier, messages=before), LAST_EARLIER + 1 - len(before)
        recallable = tuple(a for a in recallable if not before[(a.place.message or 0) - first].pinned)
    repeats = window.NO_REPEATS
    if files.sent or files.native_contents:
        repeats = _repeats_of(context, files.native_contents, pinned)
    return WindowInputs(
        instructions=(
            *history.instructions,
            *(m.body for m in history.older_kept if m.role in conversation.INSTRUCTION_ROLES),
        ),
        messages=context.conversation_history,
        current=context.current,
        placed=context.placed,
        restored=tuple(each for each in context.restored if not each.pinned),
        attached=context.artifacts,
        question=_question(context),
        frame=history.frame,
        earlier=earlier.messages,
        recallable=recallable,
        turns_before=earlier.turns,
        pinned=pinned,
        segments=history.segments,
        things=history.things if _begins(context) else (),
        cites=inputs.request.options.cite and not inputs.request.is_worded and _begins(context),
        segments_first=inputs.request.options.memory == memory.SUMMARY,
        recall_cache=earlier.cache,
        repeats=repeats,
    )


def _in_full(document: Artifact) -> window.ArtifactRendering:
    return window.ArtifactRendering(document, ProcessingStrategy.INCLUDE_FULL, document.content)


def _begins(context: Context) -> bool:
    """Returns whether the current user message is new, so that its block is made now (guarantee §4 I6)."""
    messages = context.conversation_history
    current = messages[context.current] if messages else None
    return current is not None and current.role == "user" and current.message_id is None


def _context(inputs: ContextInputs, document_min_chars: int) -> Context:
    history, restored = inputs.history, inputs.steps.artifacts
    current = current_turn(history)
    results = extract_artifacts_from_messages(history.messages, current, history.cache)
    placed = with_documents(results, history.messages, inputs.files.sent)
    placed += documents_in_messages(history.messages, current, document_min_chars, inputs.files.sent, history.spoken)
    old = [replace(artifact, historical=True) for artifact in history.attachments]
    new = attachments_to_artifacts(inputs.request.attachments, next_number(old))
    attached = without_repeats([*old, *new])
    unique = tuple(unique_ids([*placed, *restored, *attached]))
    first, last = len(placed), len(placed) + len(restored)
    return Context(history.messages, current, unique[:first], unique[first:last], unique[last:])


def _question(context: Context) -> str:
    """Returns the own text of the message that begins the current turn, and of the user's latest message since."""
    messages, current = context.conversation_history, context.current
    if not messages:
        return ""
    said = [_own_words(context, current)]
    last = max((i for i, message in enumerate(messages) if message.role == "user"), default=current)
    if last > current:
        said.append(_own_words(context, last))
    question = "\n".join(each for each in said if each)
    if len(question) <= QUESTION_CHARS:
        return question
    return question[: QUESTION_CHARS // 2] + "\n[…]\n" + question[-QUESTION_CHARS // 2 :]


def _own_words(context: Context, index: int) -> str:
    """Returns the text of a message without the documents in it."""
    message = context.conversation_history[index]
    content = message.content
    here = [a.place for a in context.placed if a.place.message == index and message.role == "user"]
    texts = []
    parts: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for number, part in enumerate(parts):
        text = tool_steps.text_of([part]) if isinstance(part, dict) else ""
        spans = [p.span for p in here if p.span and p.part == (None if isinstance(content, str) else number)]
        texts.append(own_words(text, spans))
    return "\n".join(text for text in texts if text.strip())


def _content_chars(message: dict[str, Any]) -> int:
    """Estimates the characters of a message's content."""
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    return sum(len(str(part.get("text") or part.get("file") or "")) for part in dicts_of(content))


def _repeats_of(
    context: Context, natives: Mapping[FilePlace, str], pinned: Sequence[memory.PinnedMessage]
) -> RepeatedDocuments:
    """Finds the documents of a request that came more than once, by whatever path (guarantee §14.6).
    `natives`: the content ids of PDFs that are sent upstream unchanged, as far as they are known; `pinned`: all pinned
    messages."""
    files: dict[str, list[Artifact]] = defaultdict(list)
    for artifact in context.placed:
        if artifact.is_file and _can_stand(artifact, context.conversation_history):
            files[artifact.content_id].append(artifact)
    in_messages: dict[str, list[int]] = defaultdict(list)
    for (index, _), name in natives.items():
        in_messages[name].append(index)
    attached = {artifact.content_id: artifact for artifact in context.artifacts}
    in_memory = {ids.artifact_id(text) for each in pinned if each.index is None for text in each.files.values()}
    count = Counter({name: len(found) for name, found in files.items()})
    count.update({name: len(found) for name, found in in_messages.items()})
    count.update(attached.keys())
    count.update(in_memory)
    count.update({name for message in context.conversation_history for name in message.shown_in_full})
    documents = tuple(
        RepeatedDocument(
            name, tuple(files.get(name, ())), attached.get(name), tuple(in_messages.get(name, ())), name in in_memory
        )
        for name in dict.fromkeys((*files, *in_messages))
        if count[name] > 1 and (name in files or name in attached)
    )
    if not documents:
        return window.NO_REPEATS
    as_text: set[FilePlace] = set()
    as_same: set[FilePlace] = set()
    for file in (file for document in documents for file in document.files):
        index, number = file.place.message or 0, file.place.part or 0
        found = context.conversation_history[index].forwarded_part(number)
        if found is not None and found[1].get("type") != "file":
            (as_same if says_same(found[1]) else as_text).add((index, number))
    return RepeatedDocuments(documents, frozenset(as_text), frozenset(as_same))


def _can_stand(file: Artifact, messages: Sequence[ConversationMessage]) -> bool:
    """Returns whether the file's message has a place for its text, in the form in which it is sent upstream."""
    message = messages[file.place.message or 0]
    return message.rendered is None or message.forwarded_part(file.place.part or 0) is not None


def with_whole_steps(history: ConversationHistory) -> ConversationHistory:
    """Returns the conversation with the results of pinned calls pinned, too."""
    if not any(message.pinned for message in history.messages):
        return history
    found: list[ConversationMessage] = []
    is_pinned = False
    for message in history.messages:
        if message.role not in tool_steps.RESULT_ROLES:
            is_pinned = message.pinned
        found.append(replace(message, pinned=True) if is_pinned and not message.pinned else message)
    return replace(history, messages=tuple(found))


def pinned_messages(
    history: ConversationHistory,
    files: Mapping[FilePlace, str],
    older_files: Mapping[FilePlace, str],
    restored: Sequence[Artifact] = (),
) -> tuple[memory.PinnedMessage, ...]:
    """Returns everything pinned, the oldest first, without system messages, which are in any window anyway.
    `files`: texts of `file` parts that are not forwarded unchanged; `older_files`: of `history.older_kept`; `restored`:
    tool results that cannot be messages of this request."""
    older: tuple[ConversationMessage, ...] = ()
    if history.older_kept:
        older = with_whole_steps(replace(history, messages=history.older_kept)).messages
    found = (
        *(replace(each, index=None) for each in _pinned(older, older_files)),
        *(_as_text(artifact) for artifact in restored if artifact.pinned),
        *_pinned(history.messages, files),
    )
    return tuple(each for each in found if each.body["role"] not in conversation.INSTRUCTION_ROLES)


def _pinned(messages: Sequence[ConversationMessage], files: Mapping[FilePlace, str]) -> Iterator[memory.PinnedMessage]:
    if not any(message.pinned for message in messages):
        return
    calls: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        body, tool, arguments = message.body, "", ""
        if message.role in tool_steps.RESULT_ROLES:
            call = tool_steps.take_call(calls, body)
            tool, arguments = tool_steps.tool_of(body, call)
        else:
            calls = tool_steps.calls_of(body)
        if message.pinned:
            texts = {part: text for (at, part), text in files.items() if at == index}
            speaker = message.role if message.role in tool_steps.RESULT_ROLES else message.speaker  # `tool` names it
            yield memory.PinnedMessage(body, speaker, message.message_id, index, tool, arguments, texts)


def _as_text(artifact: Artifact) -> memory.PinnedMessage:
    name = artifact.call.message_id if artifact.call is not None else None
    body = {"role": "tool", "content": artifact.content}
    arguments = artifact.call.arguments if artifact.call is not None else ""
    return memory.PinnedMessage(body, "tool", name, tool=artifact.title or "", arguments=arguments)


def with_in_full(
    history: ConversationHistory, context: Context, names: AbstractSet[str]
) -> tuple[ConversationHistory, Context]:
    """Pins these artifacts, by their content ids, and each stored message that holds one: it stays, or comes back in
    the memory message. For a dry run that shows a past request with these artifacts in full (guarantee §13.3)."""

    def marked(artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        return tuple(replace(each, pinned=True) if each.content_id in names else each for each in artifacts)

    placed = marked(context.placed)
    held = {a.place.message for a in placed if a.pinned and (a.place.message or 0) < history.stored}
    messages = tuple(
        replace(message, pinned=True) if index in held else message for index, message in enumerate(history.messages)
    )
    return replace(history, messages=messages, cache=MessageCache()), replace(
        context,
        conversation_history=messages,
        placed=placed,
        restored=marked(context.restored),
        artifacts=marked(context.artifacts),
    )
