"""Conversations as the steps see them: messages with their content (a text, or parts, each an object with a type) and
their reasoning, the point where a request continues, what a model was sent of them, frozen until something has to leave
(guarantee §4 I7, ADR 12), and values derived from the messages that later requests reuse (ADR 20)."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import is_
from typing import Any, Generic, NamedTuple, TypeVar

from gateway.core.frozen_records import record
from gateway.core.types.artifacts import Artifact
from gateway.core.types.bill import ArtifactUsageRecord, BranchCosts
from gateway.core.types.chain import CHAIN_START, ChainDigest, ChainKey
from gateway.core.types.memory import MemoryEntity, MemoryMessage, SummarySegment, memory_message_of

K = TypeVar("K")
V = TypeVar("V")


Form = dict[str, Any] | None
"""A message as it was forwarded; None: as the client sent it, without the block that is stored with it."""
FRAME_SETS = ("left_out", "decided", "unsent")
FRAME_MAPS = ("forms", "shown_in_full", "decisions", "counts", "refers")
"""Fields of a `PromptFrame`: sets of names, and maps by the names of messages."""


@record
class FrozenDecision:
    """The decision for an artifact in a frozen message: its strategy, and the number of characters shown."""

    artifact_id: str
    strategy: str
    shown_chars: int


@record
class PromptFrame:
    """What a model was sent of the messages of one branch, as far as it differs from the messages themselves.

    Messages are named by their ids. The window begins with `first` (None: with the first message), without those
    `left_out`. `forms` are the messages that were forwarded otherwise than they are stored. `shown_in_full` names the
    artifacts that their blocks show in full, `decisions` holds the decisions for other artifacts in them. `decided`
    names the attached documents, and the tool results shown as text, that the pass has decided on: what it left out
    is not shown again. `unsent` are the messages whose forms show something that the client did not send as a message:
    it goes only to a client who has proven that the conversation is theirs (guarantee §3.2). `counts` are the tokens of
    forms.
    `asked` is the message that began the last turn for which a planner was called: once per turn (guarantee §5).
    `left_out_tokens`: by how many tokens the whole conversation exceeds what was forwarded.
    `memory` is the memory message that was forwarded with it (guarantee §11.12).
    `additions` is the number of stored frames, beside the full one, that were merged into it; `borrowed`: some of them
    belong to a branch that the client has left, since this one has none of its own yet.
    `recalls`: its requests have had the tool `recall` since the pass, and keep it, as tools precede all messages.
    `refers`: for results that were shaped on arrival, the messages that they refer to, each with the id of the result
    that it held: without that result the reference is void (guarantee §4 I8).
    """

    first: str | None = None
    left_out: frozenset[str] = frozenset()
    forms: Mapping[str, Form] = field(default_factory=dict)
    shown_in_full: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decisions: Mapping[str, tuple[FrozenDecision, ...]] = field(default_factory=dict)
    decided: frozenset[str] = frozenset()
    unsent: frozenset[str] = frozenset()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    asked: str | None = None
    left_out_tokens: int = 0
    memory: MemoryMessage | None = None
    additions: int = 0
    borrowed: bool = False
    recalls: bool = False
    refers: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def followed_by(self, later: "PromptFrame") -> "PromptFrame":
        """Returns the frame extended by what later requests added; the window stays."""
        said: dict[str, Any] = {each: getattr(self, each) | getattr(later, each) for each in FRAME_SETS}
        said |= {each: {**getattr(self, each), **getattr(later, each)} for each in FRAME_MAPS}
        said |= {"asked": later.asked or self.asked, "recalls": self.recalls or later.recalls}
        tokens, additions = later.left_out_tokens, self.additions + 1
        return replace(self, **said, left_out_tokens=tokens, additions=additions, borrowed=False)

    def of(self, names: AbstractSet[str | None]) -> "PromptFrame":
        """Returns the frame restricted to these messages. Decisions on attached documents stay."""
        said: dict[str, Any] = {}
        for each in FRAME_MAPS:
            said[each] = {key: value for key, value in getattr(self, each).items() if key in names}
        return replace(self, **said, unsent=self.unsent & names)

    def renamed(self, ids: Mapping[Any, str]) -> "PromptFrame":
        """Returns the frame with the messages' ids replaced, for messages stored under other ids."""

        def name(old: str) -> str:
            return ids.get(old, old)

        shown = {key: tuple(map(name, names)) for key, names in self.shown_in_full.items()}
        refers = {key: tuple((name(to), what) for to, what in found) for key, found in self.refers.items()}
        here = replace(self, shown_in_full=shown, refers=refers)
        said: dict[str, Any] = {each: frozenset(map(name, getattr(self, each))) for each in FRAME_SETS}
        said |= {each: {name(key): value for key, value in getattr(here, each).items()} for each in FRAME_MAPS}
        return PromptFrame(
            first=name(self.first) if self.first is not None else None,
            asked=name(self.asked) if self.asked is not None else None,
            left_out_tokens=self.left_out_tokens,
            memory=self.memory.renamed(ids) if self.memory is not None else None,
            recalls=self.recalls,
            **said,
        )


@record
class NewFrame:
    """A frame that a request stores after the last message that it forwarded. `full`: it replaces all earlier frames;
    else it adds to them."""

    model: str
    full: bool
    frame: PromptFrame


def frame_body(frame: PromptFrame) -> dict[str, Any]:
    """Serializes a frame as JSON, without empty fields."""
    fields: dict[str, Any] = {
        "first": frame.first,
        "left": sorted(frame.left_out),
        "forms": dict(frame.forms),
        "standing": {key: list(names) for key, names in frame.shown_in_full.items() if names},
        "decisions": {
            key: [[each.artifact_id, each.strategy, each.shown_chars] for each in found]
            for key, found in frame.decisions.items()
        },
        "decided": sorted(frame.decided),
        "foreign": sorted(frame.unsent),
        "counts": {key: dict(counts) for key, counts in frame.counts.items() if counts},
        "asked": frame.asked,
        "left_out_tokens": frame.left_out_tokens,
        "memory": frame.memory.as_json() if frame.memory is not None else None,
        "recalls": frame.recalls,
        "refers": {key: [list(each) for each in found] for key, found in frame.refers.items()},
    }
    return {name: value for name, value in fields.items() if value}


def frame_of(body: Mapping[str, Any]) -> PromptFrame:
    """Parses the JSON object of a frame. Raises AttributeError, KeyError, TypeError: it is not a frame."""
    return PromptFrame(
        first=body.get("first"),
        left_out=frozenset(body.get("left", ())),
        forms=body.get("forms", {}),
        shown_in_full={key: tuple(names) for key, names in body.get("standing", {}).items()},
        decisions={
            key: tuple(FrozenDecision(*each) for each in found) for key, found in body.get("decisions", {}).items()
        },
        decided=frozenset(body.get("decided", ())),
        unsent=frozenset(body.get("foreign", ())),
        counts=body.get("counts", {}),
        asked=body.get("asked"),
        left_out_tokens=body.get("left_out_tokens", 0),
        memory=memory_message_of(body.get("memory")),
        recalls=bool(body.get("recalls")),
        refers={key: tuple((to, what) for to, what in found) for key, found in body.get("refers", {}).items()},
    )


class MessageParts(NamedTuple):
    """A message in the form for counting: the tokens of the framing of it and its parts, its texts, and the tokens of
    each of its images and audio clips, which depend on the model."""

    frame: int
    texts: list[str]
    media: list[int]


class CountableForm(NamedTuple):
    """A message with its countable parts, the number of its tool calls, and the most tokens that any byte-level
    tokenizer can count in it: one for each byte of its texts."""

    message: dict[str, Any]
    parts: MessageParts
    calls: int
    max_tokens: int

    @classmethod
    def of(cls, message: dict[str, Any], parts: MessageParts, calls: int) -> "CountableForm":
        frame, texts, media = parts
        size = frame + sum(media)
        for text in texts:
            size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return cls(message, parts, calls, size)


@record
class FoundResults:
    """The artifacts of the tool results in the first `messages` of a conversation, whose current turn begins at index
    `current`; the step in which these messages end, and its calls without an answer among them."""

    messages: tuple[object, ...]
    current: int
    artifacts: tuple[Artifact, ...]
    step: int
    calls: tuple[dict[str, Any], ...]

    def begins(self, messages: Sequence[object], current: int) -> bool:
        """Returns whether a conversation begins with the same message objects, and has the same current turn."""
        return self.current == current and begin_with(messages, self.messages)


def begin_with(whole: Sequence[object], beginning: Sequence[object]) -> bool:
    """Returns whether a sequence begins with the same objects, compared by identity."""
    return len(beginning) <= len(whole) and all(map(is_, beginning, whole))


@dataclass(slots=True)
class MessageCache:
    """Values derived from messages in their forwarded forms, by the `id()` of the form, which is stored with each so
    that no other object can get that `id()`. A path cached in the process retains its cache; everything in it can be
    recomputed.

    Of forms: `forms` are what is countable of them, if they have no media (whose tokens depend on the model), `results`
    the artifact id, text, tool and arguments of a tool result.

    Of the path as the latest request had it: `found` are the artifacts of its beginning, `standing` the records of
    those that are unchanged, by message index, `unlisted` those of these that a stored bill omits
    (`core.types.omitted_records.KeptUnlisted`), `forwarded` what was sent of it up to the last answer, with its digests
    (`core.types.prompt_digests`). Each holds the objects from which it was derived, and is replaced as a whole.

    `whole` is the id of a message, and how many messages the path has up to it: in these, every call is answered, and
    every result is where it belongs.
    """

    forms: dict[int, CountableForm] = field(default_factory=dict)
    results: dict[int, tuple[dict[str, Any], tuple[str, str, str, str]]] = field(default_factory=dict)
    found: FoundResults | None = None
    standing: dict[int, tuple[Artifact, ArtifactUsageRecord]] = field(default_factory=dict)
    unlisted: Any = None
    forwarded: Any = None
    whole: tuple[str | None, int] = (None, 0)


class CarriedCache(Generic[K, V]):
    """Values computed by one request for the next one, which drops those that it does not use. `before` is only read,
    so that several requests may build on it."""

    __slots__ = ("_before", "_now")

    def __init__(self, before: Mapping[K, V] | None = None) -> None:
        self._before: Mapping[K, V] = before if before is not None else {}
        self._now: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Returns the value of a key, None if there is none, and retains it for the next request."""
        found = self._now.get(key)
        if found is None and (found := self._before.get(key)) is not None:
            self._now[key] = found
        return found

    def put(self, key: K, value: V) -> V:
        self._now[key] = value
        return value

    def following(self) -> "CarriedCache[K, V]":
        """Makes the cache of the next request: the values that this one used, or all it was given if it used none."""
        return CarriedCache(self._now or self._before)


@dataclass(slots=True)
class RecallCache:
    """Values derived from messages that can be recalled, which stay unchanged while cached.

    `words` are speaker and text of a message, by the `id()` of its body, which is stored with them; `rules`: whether a
    text gives a standing instruction; `indexes`: search indexes of texts (`retrieval.corpus.ContentIndex`).
    """

    words: CarriedCache[int, tuple[dict[str, Any], str, str]] = field(default_factory=CarriedCache)
    rules: CarriedCache[str, bool] = field(default_factory=CarriedCache)
    indexes: CarriedCache[str, Any] = field(default_factory=CarriedCache)

    def following(self) -> "RecallCache":
        """Makes the cache of the next request (`CarriedCache.following`)."""
        return RecallCache(self.words.following(), self.rules.following(), self.indexes.following())


INSTRUCTION_ROLES = ("system", "developer")
INLINE_MESSAGES = 1000
"""Work on more messages than this runs in a thread: streams of other requests must not wait for it."""


@dataclass(slots=True)  # frozen, each would take four times as long to create, and each message has one
class TokenCounts:
    """Tokens of a message by tokenizer. They are valid only for the object `of`, the form in which the message is
    forwarded again."""

    of: dict[str, Any]
    by: Mapping[str, int]


@dataclass(slots=True)  # frozen, it would take four times as long to create
class ConversationMessage:
    """A message of a conversation.

    `unproven`: it came with a request that continued a conversation without proof that it is the client's own (§3.2).

    `body` is the OpenAI message as it was first sent. `rendered` is what was forwarded in its place, if that was
    different (a block was put at its head), and `shown_in_full` names the artifacts that it contains in full
    (`Artifact.block_name`). `origin` is the maker of an answer, None if unknown. `tokens` are the counts stored with
    it, empty if there are none; None for a message that is not stored yet. `agent` is the id of the agent that wrote
    it, None if none was named. `pinned`: it stays in every window (guarantee §11.12).
    """

    role: str
    body: dict[str, Any]
    sequence_number: int | None = None
    message_id: str | None = None
    status: str = "complete"
    digest: str = ""
    rendered: dict[str, Any] | None = None
    shown_in_full: tuple[str, ...] = ()
    created_at: datetime | None = None
    origin: str | None = None
    unproven: bool = False
    tokens: TokenCounts | None = None
    agent: str | None = None
    pinned: bool = False
    costs: str | None = None
    """Of an answer, the branch's sums up to it (`BranchCosts.as_text`)."""

    @property
    def content(self) -> Any:
        return self.body.get("content")

    def forwarded_part(self, number: int) -> tuple[int, dict[str, Any]] | None:
        """Returns the index in `rendered`, and the part there, of the message's own part `number`, as forwarded: a
        block and pages of PDFs come before its own parts. None if it was forwarded unchanged, or without that part,
        such as an import may be."""
        form = self.rendered.get("content") if self.rendered is not None else None
        if not isinstance(form, list) or not isinstance(self.content, list):
            return None
        at = number + len(form) - len(self.content)
        return (at, form[at]) if 0 <= at < len(form) and isinstance(form[at], dict) else None

    @property
    def parts_before(self) -> list[Any]:
        """The parts of `rendered` before its own: a block and pages of PDFs. Its own text counts as one part."""
        form = self.rendered.get("content") if self.rendered is not None else None
        if not isinstance(form, list):
            return []
        return form[: max(0, len(form) - (len(self.content) if isinstance(self.content, list) else 1))]

    @property
    def is_stored_form(self) -> bool:
        """Whether `body` is the object that was read from the storage, and is what is forwarded."""
        return self.tokens is not None and self.tokens.of is self.body

    @property
    def said_by(self) -> str:
        """The speaker's name, on one line: the agent, else the message's own `name`; "" if none is known. A line break
        in it could fake another speaker's line."""
        name = self.agent or self.body.get("name")
        return " ".join(name.split()) if isinstance(name, str) else ""

    @property
    def speaker(self) -> str:
        """Its role, with the speaker's name if there is one."""
        return f"{self.role} {self.said_by}".rstrip()

    def stored_as(self, message_id: str, created_at: datetime) -> "ConversationMessage":
        """Copies a new message with its id; by hand, since `dataclasses.replace` costs ten times as much."""
        return ConversationMessage(
            self.role,
            self.body,
            sequence_number=self.sequence_number,
            message_id=message_id,
            digest=self.digest,
            created_at=created_at,
            pinned=self.pinned,
        )


def new_message(body: dict[str, Any], number: int | None = None) -> ConversationMessage:
    """Makes a message as it arrived, not stored yet; `number` is its position in the conversation, if known. Its digest
    is computed with its row, since most messages of a resend are not stored."""
    return ConversationMessage(role=body["role"], body=body, sequence_number=number)


@record
class BranchPoint:
    """Where a request of a replay continues: after the message `behind` (None: before the first), on a branch that does
    not become the conversation's current one. `turn` and `request` number the replayed request, the latter from 0
    within its turn. Documents attached after `until` are ignored."""

    replay_id: str
    behind: str | None
    turn: int
    request: int = 0
    until: datetime | None = None


@record
class ConversationRef:
    """How a request names its conversation; at most one of `conversation_id` and `session` is set (an id outranks a
    session). `branch`: of a replay, where the request continues; None: where its messages match. `is_whole`: the client
    sends the whole conversation with each request, and may have others in the same session, of which the session names
    the first. Instead of all these, `behind` names the completion after whose answer the request continues, or `at` the
    message after which it does, as the client has compacted all before. `before`: it continues in front of that
    message."""

    conversation_id: str | None = None
    session: str | None = None
    branch: BranchPoint | None = None
    is_whole: bool = False
    behind: str | None = None
    at: str | None = None
    before: bool = False

    @property
    def is_point(self) -> bool:
        """Whether it names a point in a conversation."""
        return self.behind is not None or self.at is not None


UNNAMED = ConversationRef()


@record
class HistoryLookup:
    """What to find in the stored conversations: the messages of a resend, without leading system messages and without
    a prefill, and the chain digests after each of them.

    `keys` are the digests by which guarantee §3.2 recognises an unnamed conversation; the first known one counts.
    `instructed`: system messages were sent, so stored ones are not needed. `fits_as_sent`: a chain that is stored as it
    was sent need not be read. `maybe_delta`: there is no assistant message except one at the end, a prefill or a
    message delivered to an agent; if none of the messages is stored, they are a delta.
    """

    bodies: Sequence[dict[str, Any]]
    digests: Sequence[ChainDigest]
    keys: tuple[ChainKey, ...] = ()
    instructed: bool = False
    fits_as_sent: bool = False
    maybe_delta: bool = False

    def said(self, index: int) -> bool:
        """Returns whether the message at `index` adds to what was said."""
        return self.digests[index].said != (self.digests[index - 1].said if index else b"")


@record
class ResumePoint:
    """Where a request continues: after the message `message_id`, to which the first `kept` of the sent messages lead.
    `digest` is the chain's digest there. `branch_restores`: messages that the client omits are restored in this
    branch."""

    message_id: str | None
    digest: ChainDigest = CHAIN_START
    kept: int = 0
    branch_restores: bool = False

    def holds_as_sent(self, lookup: HistoryLookup) -> bool:
        """Returns whether the stored chain is identical to the messages that were sent."""
        if not self.kept:
            return self.message_id is None
        sent = lookup.digests[self.kept - 1]
        return self.digest.plain and sent.plain and self.digest.path == sent.path


@record
class EarlierMessages:
    """Messages of a conversation that are older than those read for the window, oldest first: recall searches them,
    too, but none is forwarded. `turns`: how many turns began before the first of them. `cache`: values derived from
    them."""

    messages: tuple[ConversationMessage, ...] = ()
    turns: int = 0
    cache: RecallCache = field(default_factory=RecallCache, compare=False)


BEFORE_ALL = ResumePoint(None)
"""The point before the first message."""


@record
class StoredConversation:
    """What a request needs of a stored conversation: the point where it resumes, and the end of the path that leads
    there, oldest message first. `instructions` are the system messages in force there, `segments` the summaries of
    the path's old turns, oldest first, `older_kept` the system and pinned messages before the part that was read.
    `read` is False if the path was not needed. `frame` is what the model was sent of it before, if that differs.
    `cache` is that of the path."""

    conversation_id: str
    head_id: str | None
    path: tuple[ConversationMessage, ...] = ()
    instructions: tuple[dict[str, Any], ...] = ()
    attachments: tuple[Artifact, ...] = ()
    resume_point: ResumePoint = BEFORE_ALL
    read: bool = True
    updated_at: datetime | None = None
    frame: PromptFrame | None = None
    cache: MessageCache = field(default_factory=MessageCache)
    team_task: str | None = None
    profile: str | None = None
    segments: tuple[SummarySegment, ...] = ()
    older_kept: tuple[ConversationMessage, ...] = ()
    retention_days: float | None = None
    """The fewest days set by any key with which it was created or continued."""
    forgotten_at: datetime | None = None
    """When something of it was last deleted."""

    @property
    def unread(self) -> int:
        """The number of messages of the path that are older than those read."""
        return (self.path[0].sequence_number or 0) if self.path else 0


@record
class ConversationHistory:
    """The conversation of one request, rebuilt (guarantee §3).

    `messages` are all but the leading system messages, oldest first: `stored` of them are stored already, the rest are
    new. If the stored ones were not needed, only the new ones are there. The new ones follow `parent_id`; `at_head`:
    that was the conversation's latest message.

    `base` is the digest of the messages before the new ones as the client sent them; `digests` are those after each
    new one. `stored_base` is the digest of the same messages as they are stored, if it differs, else None. `unproven`:
    the conversation was recognised, but nothing proves that it is the client's own (guarantee §3.2);
    `unsent_attachments` are those of its chain, which are then not forwarded.

    `as_sent`: it is what the client sent and nothing else. `restored_ids` are the stored messages that the client did
    not send (None: all of them), `restored_count` is how many of them are in `messages`. `branch_restores`: they are
    restored in this branch from now on.
    `frame` is what the model was sent of it before, if that differs (guarantee §4 I7).

    `unread` messages are older than the stored message `read_from`, the first that was read; `earlier` are those of
    them that recall searches, None if they were not read. `cache` is that of the stored path, `segments` the
    summaries of its old turns, oldest first. `older_kept` are system and pinned messages among the unread, each tool
    result after the message with its call. `things` are the remembered entities that the current question names
    (guarantee §11). `spoken` is the position of what was said in the current message, as start and end in its first
    text, if an agent reads it in sections: the text around it belongs to the sections.
    `unrecognised`: no later request of its client will be recognised as continuing it; `planned`: a planner was called
    at an earlier step of its current turn, as only its tool loop reveals (guarantee §5).
    """

    conversation_id: str | None
    created: bool
    instructions: tuple[dict[str, Any], ...]
    messages: tuple[ConversationMessage, ...]
    stored: int = 0
    parent_id: str | None = None
    at_head: bool = True
    session: str | None = None
    attachments: tuple[Artifact, ...] = ()
    unsent_attachments: tuple[Artifact, ...] = ()
    restored_count: int = 0
    unread: int = 0
    base: ChainDigest = CHAIN_START
    digests: tuple[ChainDigest, ...] = ()
    stored_base: ChainDigest | None = None
    unproven: bool = False
    as_sent: bool = False
    restored_ids: frozenset[str] | None = None
    branch_restores: bool = False
    frame: PromptFrame | None = None
    read_from: str | None = None
    earlier: EarlierMessages | None = None
    cache: MessageCache = field(default_factory=MessageCache)
    team_task: str | None = None
    profile: str | None = None
    segments: tuple[SummarySegment, ...] = ()
    older_kept: tuple[ConversationMessage, ...] = ()
    things: tuple[MemoryEntity, ...] = ()
    spoken: tuple[int, int] | None = None
    unrecognised: bool = False
    planned: bool = False
    used_at: datetime | None = None
    """When a model was last called in it; None if unknown."""
    goes_on: bool = False
    """It is not stored, and the request that was last answered in it is behind one of its answers."""
    costs: BranchCosts | None = None
    """What its branch has cost until now, if known."""
    has_earlier_costs: bool = False
    """`costs` end with an earlier answer than the latest, as another model gave that, or its costs are lost."""
    doubts_thoughts: bool = False
    """Its provider has refused signed thoughts that stand where the client has them."""
    forgotten_at: datetime | None = None
    """When something of it had last been deleted, at the time of reading."""

    @property
    def new_messages(self) -> tuple[ConversationMessage, ...]:
        return self.messages[self.stored :]

    @property
    def forwarded(self) -> int:
        """How many of the stored messages a model was sent: those up to its last answer."""
        return next((at + 1 for at in range(self.stored - 1, -1, -1) if self.messages[at].origin is not None), 0)
