"""What may be in a window that cannot hold everything: turns, in one unbroken run (guarantee §4 I2, I3), whose number
may be bounded whatever the budget (guarantee §3.11); and passages of artifacts and of old turns, the best first.

Old turns are taken as messages from the newest back while they fit. The first that does not fit ends the run. Skipping
it for an older one that fits is the greedy-fit bug: the model would read a conversation with a hole. Passages of what
the run does not hold compete for the rest of the budget."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, islice, pairwise
from operator import attrgetter
from typing import Any

from gateway.context.window import tuning
from gateway.context.window.counting import PromptCounter
from gateway.core import ids
from gateway.core.frozen_records import record
from gateway.core.types import conversation, tool_steps, window
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.chat import TurnBound
from gateway.core.types.content_parts import parts_of
from gateway.core.types.conversation import CarriedCache, ConversationMessage
from gateway.core.types.relevance import RankedPassage, Relevance, RelevanceQuery, SearchedSource
from gateway.core.types.window import WindowInputs


@record
class TurnSpan:
    """Messages `start` to `end` (exclusive): all of a turn, or one tool step, or one message."""

    start: int
    end: int


def run_of_turns(material: WindowInputs) -> list[TurnSpan]:
    """Returns the turns before the current one that can form an unbroken run with it, oldest first. A turn that has
    lost tool steps ends the run: no older turn is returned, except unanswered messages directly before it, which belong
    to it. Beside a fixed block no turn comes back, since the block may quote it."""
    starts = tool_steps.turn_starts(message.role for message in material.messages[: material.current])
    if material.current and (not starts or starts[0] > 0):
        starts.insert(0, 0)
    starts = [start for start in starts if start >= material.earliest]
    gap = max(material.left, default=-1)
    if material.has_block and material.frame is not None and material.frame.first is not None:
        starts = [start for start in starts if start >= material.frozen_first]
    turns = [TurnSpan(start, end) for start, end in pairwise([*starts, material.current])]
    first = next((number for number, turn in enumerate(turns) if turn.end > gap), len(turns))
    return [*_unanswered(material, turns[:first]), *turns[first:]]


def unanswered_before(material: WindowInputs) -> list[TurnSpan]:
    """Returns the unanswered user messages directly before the message that begins the current turn, oldest first:
    clients send an agent's environment and reminders beside its task, before or behind it (guarantee §4 I4). Messages
    that have left the window are not returned."""
    return _unanswered(material, run_of_turns(material))


def _unanswered(material: WindowInputs, turns: list[TurnSpan]) -> list[TurnSpan]:
    """Returns the last of the turns, as far as they are unanswered and have not left the window."""
    first, frozen_first = len(turns), material.frozen_first
    while first and turns[first - 1].start >= frozen_first and _is_unanswered(material, turns[first - 1]):
        first -= 1
    return turns[first:]


def _is_unanswered(material: WindowInputs, turn: TurnSpan) -> bool:
    roles = {message.role for message in material.messages[turn.start : turn.end]}
    return "user" in roles and roles.issubset(("user", *conversation.INSTRUCTION_ROLES))


def current_steps(material: WindowInputs) -> list[TurnSpan]:
    """Returns the tool steps of the current turn, oldest first: a call with all of its results each (guarantee §4 I3).
    Steps that have left the window are not returned."""
    steps: list[TurnSpan] = []
    messages, left = material.messages, material.left
    for index in range(material.current, len(messages)):
        if index not in left and tool_steps.calls_of(messages[index].body):
            end = index + 1
            while end < len(messages) and messages[end].role in tool_steps.RESULT_ROLES:
                end += 1
            steps.append(TurnSpan(index, end))
    return steps


def bounded(material: WindowInputs, turns: TurnBound | None, shown: int | None = None) -> WindowInputs:
    """Returns the material with the first message that may be forwarded, moved by summaries or by a bound on turns.

    Turns that a summary covers leave when the next turn begins, so that the summary that was paid for is shown. If the
    summaries of all that would leave do not fit, nothing leaves for them. Within a turn the window stays. If the bound
    would still be exceeded, the oldest turns leave down to `TurnBound.kept`. Turns that left do not return as messages.
    `shown`: how many of the latest summaries fit; None: all."""
    if not material.messages:
        return material
    starts, before = tool_steps.turn_starts(message.role for message in material.messages), material.frozen_first
    uncovered = _first_uncovered(material, starts)
    waiting = len(material.segments_before(uncovered)) - len(material.segments_before(before))
    is_begun = material.messages[material.current].message_id is not None
    if is_begun or (shown is not None and waiting > shown):
        uncovered = min(uncovered, before)
    first = max(before, uncovered)
    inside = [start for start in starts if start >= first]
    if turns is not None and len(inside) > turns.most:
        first = inside[-turns.kept]
    return replace(material, earliest=uncovered if turns is None else first, moves=first > before)


def _first_uncovered(material: WindowInputs, starts: list[int]) -> int:
    """Returns the index of the first message that no summary covers; at most that of the current turn."""
    if not material.segments:
        return 0
    last = material.segments[-1].last
    numbers = [message.sequence_number for message in material.messages]
    covered = max((i for i, number in enumerate(numbers) if number is not None and number <= last), default=-1)
    behind = next((start for start in starts if start > covered), material.current)
    return min(behind, material.current) if covered >= 0 else 0


SPEAKERS = ("user", "assistant")
OMITTED = "[…]"
"""Replaces a document in a quoted message; the document is an artifact of its own."""
RECENT_MESSAGES = 4
"""Messages before the question that explain its pronouns: two exchanges."""
BY_ORDER, BY_SCORE = attrgetter("historical", "order"), attrgetter("passage.score")
RECENT_SEARCHED = 3 * RECENT_MESSAGES
"""Messages searched for `RECENT_MESSAGES` of them, since tool steps lie between."""


@record
class TranscriptMessage:
    """The text of the message at `index`, in turn number `turn` (from 1)."""

    index: int
    turn: int
    speaker: str
    text: str


@record
class PassageCandidate:
    """A passage of an artifact, or of an old message.

    Attributes:
        message: index of the message that holds it; None for an attached document.
        order: position among all candidates of one search, in the order of their sources.
        historical: it is of an old turn. This and `relevant` are computed once for a whole set, since fitting reads
            them thousands of times.
        relevant: it is relevant to the question, or belongs to the current turn.
        summary: if set, the candidate is not a passage but this summary of the artifact, made with `focus`.
    """

    of: Artifact | TranscriptMessage
    message: int | None
    passage: RankedPassage
    order: int
    historical: bool = True
    relevant: bool = False
    summary: str = ""
    focus: str = ""

    @property
    def text(self) -> str:
        if self.summary:
            return self.summary
        content = self.of.content if isinstance(self.of, Artifact) else self.of.text
        return content[self.passage.start : self.passage.end]


def candidates(
    material: WindowInputs,
    artifacts: Sequence[Artifact],
    quotable: Sequence[TranscriptMessage],
    relevance: Relevance,
    searches: tuple[str, ...] = (),
) -> list[PassageCandidate]:
    """Returns passages of the artifacts and of old messages, in the order of `best_first`; `searches` are further
    queries beside the question."""
    end = len(material.messages)
    of: list[tuple[Artifact | TranscriptMessage, int | None]] = [
        *((artifact, artifact.place.message) for artifact in artifacts),
        *((message, message.index) for message in quotable),
    ]
    sources = [
        SearchedSource(
            each.content,
            "artifact",
            each.search_label,
            each.historical,
            end if each.place.message is None else each.place.message,
            each.excerpt_of,
        )
        for each in artifacts
    ]
    sources += [SearchedSource(message.text, "turn", message.speaker, True, message.index) for message in quotable]
    query = RelevanceQuery(material.question, recent_texts(material), searches)
    found: list[PassageCandidate] = []
    for (each, index), passages in zip(of, relevance(query, sources), strict=True):
        old = not isinstance(each, Artifact) or each.historical
        found += [
            PassageCandidate(each, index, passage, order, old, not old or passage.score > 0)
            for order, passage in enumerate(passages, len(found))
        ]
    return best_first(found)


def best_first(found: Iterable[PassageCandidate]) -> list[PassageCandidate]:
    """Sorts by score, highest first; of equal scores the current turn's first, then by `order`."""
    ordered = sorted(found, key=BY_ORDER)
    ordered.sort(key=BY_SCORE, reverse=True)  # a stable sort
    return ordered


def latest_first(found: Iterable[PassageCandidate]) -> list[PassageCandidate]:
    """Sorts passages by artifact or message, the latest first, and within each by `order`."""
    return sorted(found, key=lambda c: (-(c.message or 0), c.order))


def of_each_content(artifacts: Sequence[Artifact], current: int) -> list[Artifact]:
    """Returns the artifacts without repeats of the same content: the latest in the conversation stays, since it is in
    the window whenever an earlier one is. New attachments come with the message at `current`."""

    def position(artifact: Artifact) -> float:
        if artifact.place.message is not None:
            return artifact.place.message
        return -1 if artifact.historical else current - 0.5

    latest: dict[str, Artifact] = {}
    for artifact in artifacts:
        other = latest.get(artifact.content_id)
        if other is None or position(artifact) >= position(other):
            latest[artifact.content_id] = artifact
    return [artifact for artifact in artifacts if latest[artifact.content_id] is artifact]


def transcript(material: WindowInputs, left_out: frozenset[int]) -> list[TranscriptMessage]:
    """Returns the messages before the current turn, and those of its steps that are left out. Tool results and
    documents are artifacts, and not part of the transcript."""
    documents: dict[int, list[Artifact]] = {}
    for artifact in (*material.placed, *material.recallable):
        if artifact.place.span is not None:
            documents.setdefault(artifact.place.message or 0, []).append(artifact)
    found: list[TranscriptMessage] = []
    starts = set(tool_steps.turn_starts(message.role for _, message in material.indexed))
    turn, cached = material.turns_before, material.recall_cache.words
    for number, (index, message) in enumerate(material.indexed):
        turn += number in starts
        if message.role not in SPEAKERS or (index >= material.current and index not in left_out):
            continue
        if message.pinned:  # it is in any window
            continue
        if index < 0 and index not in documents:
            said = cached.get(id(message.body))
            if said is None:
                said = cached.put(id(message.body), (message.body, *_said(message, ())))
            _, speaker, text = said
        else:
            speaker, text = _said(message, documents.get(index, ()))
        if text:
            found.append(TranscriptMessage(index, max(1, turn), speaker, text))
    return found


def _said(message: ConversationMessage, documents: Sequence[Artifact]) -> tuple[str, str]:
    """Returns the speaker and the text of a message."""
    return message.speaker, words_of(message.body, documents)


def recent_texts(material: WindowInputs) -> tuple[str, ...]:
    """Returns the texts of the messages just before the question, latest last."""
    before: Sequence[ConversationMessage] = material.messages[: material.current][-RECENT_SEARCHED:]
    spoken = [message for message in before if message.role in SPEAKERS][-RECENT_MESSAGES:]
    return tuple(text for text in (words_of(message.body) for message in spoken) if text)


class QuotableMessages:
    """Messages of old turns that may be quoted, in the order of the conversation."""

    def __init__(self, messages: Sequence[TranscriptMessage]) -> None:
        self.messages = messages

    @cached_property
    def places(self) -> dict[int, int]:
        """Positions in `messages`, by the messages' indexes."""
        return {message.index: place for place, message in enumerate(self.messages)}

    @cached_property
    def artifact(self) -> Artifact:
        """The old turns as one artifact with the source `turns:N-M`; the same text always gets the same id."""
        content = "\n".join(f"{each.turn} {each.speaker}: {each.text}" for each in self.messages)
        return Artifact(
            artifact_id=ids.artifact_id(content),
            artifact_type=ArtifactType.CONVERSATION,
            content=content,
            size_chars=sum(len(each.text) for each in self.messages),
            source=f"turns:{self.messages[0].turn}-{self.messages[-1].turn}",
            historical=True,
        )


def words_of(body: Mapping[str, Any], documents: Sequence[Artifact] = ()) -> str:
    """Returns a message's text without the documents in it, and with the tool calls that it makes."""
    content, refusal = body.get("content"), body.get("refusal")
    parts = [(None, content)] if isinstance(content, str) else _text_parts(content)
    texts = [_without(text, [a for a in documents if a.place.part == part]) for part, text in parts]
    texts += [refusal] if isinstance(refusal, str) else []
    for call in tool_steps.calls_of(body):
        function = call.get("function")
        if isinstance(function, dict):
            texts.append(f"called {function.get('name', 'tool')}({function.get('arguments') or ''})")
    return "\n".join(text for text in texts if text.strip()).strip()


def _text_parts(content: Any) -> Iterator[tuple[int | None, str]]:
    for number, part in enumerate(parts_of(content)):
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield number, text


def _without(text: str, documents: Sequence[Artifact]) -> str:
    for start, end in sorted((a.place.span for a in documents if a.place.span), reverse=True):
        text = f"{text[:start]}{OMITTED}{text[end:]}"
    return text


RULE = re.compile(
    r"(?:^|[.!?:;,\n(–-]\s*)(?:please |and |but |also |so )*"
    r"(?:never|always|do not|don['’]t|you must|must not|make sure|from now on|under no circumstances|only ever|"
    r"keep to|stick to|remember to|avoid)\b|\bmust (?:be|not|never|always|only)\b|\brules?\b[^.!?\n]*:",
    re.IGNORECASE,
)
"""Phrases with which users give standing instructions."""
RULE_WORDS = (
    *("never", "always", "do not", "don", "must", "make sure", "from now on", "under no circumstances", "only ever"),
    *("keep to", "stick to", "remember to", "avoid", "rule"),
)
"""Every match of `RULE` contains one of them. Searching for them first takes a twentieth of its time."""
RULE_CHARS = 600
"""A longer passage with such phrases is ordinary text that contains them, not an instruction."""


def kept_words(
    candidates: Iterable[PassageCandidate], rules: CarriedCache[str, bool] | None = None
) -> list[PassageCandidate]:
    """Selects user messages that matter beyond their turn: the beginning of the very first, then standing instructions,
    latest first. `rules`: cache of which old messages are instructions, shared with later requests."""
    of_user = [c for c in candidates if isinstance(c.of, TranscriptMessage) and c.of.speaker.startswith("user")]
    if not of_user:
        return []
    opening = min(of_user, key=lambda c: (c.message or 0, c.passage.start))
    cached = rules if rules is not None else CarriedCache()
    found = [c for c in of_user if c is not opening and _is_rule(c, cached)]
    return [opening, *sorted(found, key=lambda c: -c.order)]


def _is_rule(candidate: PassageCandidate, cached: CarriedCache[str, bool]) -> bool:
    passage = candidate.passage
    if passage.end - passage.start > RULE_CHARS:
        return False
    text = candidate.text
    of = candidate.of
    if (candidate.message or 0) >= 0 or isinstance(of, Artifact) or len(text) != len(of.text):
        return _has_rule(text)
    known = cached.get(text)
    return known if known is not None else cached.put(text, _has_rule(text))


def _has_rule(text: str) -> bool:
    folded = text.casefold()
    return any(word in folded for word in RULE_WORDS) and RULE.search(text) is not None


@dataclass(slots=True)
class TakenPassage:
    """A passage, or with `turn` a turn as messages, with the tokens it is expected to take. `is_part`: only the
    beginning of a passage that is too long; the whole passage still waits."""

    tokens: float
    candidate: PassageCandidate | None = None
    turn: TurnSpan | None = None
    is_part: bool = False


@dataclass(slots=True)
class GreedyFit:
    """What is taken into the window, in order: it grows while the budget lasts, and shrinks from its end.

    Attributes:
        first: index of the message with which the window begins.
        turns: the turns before the window, newest last.
        cost: tokens of a turn as messages.
        run_ended: no more turns are taken: one did not fit, or a step of the current turn has left.
        block_fixed: passages are taken only if they are shown in their own messages.
    """

    counting: PromptCounter
    first: int
    turns: list[TurnSpan]
    cost: Callable[[TurnSpan], int]
    run_ended: bool = False
    block_fixed: bool = False
    taken: list[TakenPassage] = field(default_factory=list)
    used: float = 0.0
    _passages: Counter[int] = field(default_factory=Counter)
    """Passages taken of each artifact or message, by its identity."""
    _quoted: dict[int, float] = field(default_factory=dict)
    """Tokens of the excerpts of a message, by its index."""
    _heads: Counter[str] = field(default_factory=Counter)
    """Number of quoted messages by their head, which is written once for several in a row."""
    _has_items: bool = False
    _labels: dict[int, int] = field(default_factory=dict)
    """Characters of an artifact's label, by its identity."""
    _counted: dict[int, int] = field(default_factory=dict)
    """Tokens of passages by identity, since a passage is tried again whenever the limit grows."""
    _tried: list[PassageCandidate] = field(default_factory=list)
    """The counted passages, referenced so that no other object gets their identity."""

    def extend_run(self, limit: float) -> None:
        """Takes whole turns before the window, newest first, up to `limit` tokens in all. Stops at the first that does
        not fit, however small the older ones are."""
        while self.turns and not self.run_ended:
            turn = self.turns[-1]
            excerpts = sum(self._quoted.get(index, 0.0) for index in range(turn.start, turn.end))
            cost = self.cost(turn) - excerpts  # the turn itself replaces its excerpts
            if self.used + cost > limit:
                return
            self.turns.pop()
            self._take(TakenPassage(cost, turn=turn))
            self.first = turn.start

    def add(self, candidates: Sequence[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes the passages that fit, in that order, up to `limit` tokens in all; returns those that did not."""
        left: list[PassageCandidate] = []
        misses = 0
        for number, candidate in enumerate(candidates):
            room = limit - self.used
            if room < tuning.MIN_ROOM or misses > tuning.MAX_PASSAGE_MISSES:
                left.extend(candidates[number:])
                break
            passage = candidate.passage
            least = (passage.end - passage.start) / tuning.TOKEN_CHARS / 2
            may_share_head = self._heads and passage.start == 0 and isinstance(candidate.of, TranscriptMessage)
            surely_long = not may_share_head and tuning.ELISION_TOKENS + least > room  # the cheapest test first
            if surely_long or (self.block_fixed and not self._in_window(candidate)):
                left.append(candidate)
                continue
            is_begun = self._passages[id(candidate.of)] and not candidate.summary
            around = tuning.ELISION_TOKENS if is_begun else self._around(candidate)
            if around + least > room:
                left.append(candidate)
                continue
            tokens = self._counted.get(id(candidate))
            if tokens is None:
                tokens = self._counted[id(candidate)] = self.counting.text(candidate.text)
                self._tried.append(candidate)
            cost = around + tokens
            if cost > room:
                misses += 1
                left.append(candidate)
                continue
            misses = 0
            self._take(TakenPassage(cost, candidate))
        return left

    def add_parts(self, candidates: Iterable[PassageCandidate], limit: float) -> None:
        """Takes the beginnings of the best passages that are too long, up to the end of a word if they have words."""
        for candidate in islice(
            (c for c in candidates if not (c.summary or (self.block_fixed and not self._in_window(c)))),
            tuning.MAX_PARTS,
        ):
            room, passage = limit - self.used - self._around(candidate) - 2 * tuning.ELISION_TOKENS, candidate.passage
            if room < tuning.MIN_ROOM:
                return
            text = candidate.text[: int(room * tuning.MAX_CHARS_PER_TOKEN)]
            while text and (tokens := self.counting.text(text)) > room:
                text = text[: min(int(len(text) * room / tokens), len(text) - 1)]
            if not text.strip():
                continue
            last = text.rsplit(maxsplit=1)[-1]
            text = text[: len(text) - len(last)] if len(last) < tuning.MIN_PART else text
            if len(text) >= tuning.MIN_PART:
                part = replace(passage, end=passage.start + len(text))
                cost = self._around(candidate) + tuning.ELISION_TOKENS + self.counting.text(text)
                self._take(TakenPassage(cost, replace(candidate, passage=part), is_part=True))

    def drop_parts(self) -> None:
        """Gives up the parts that were taken last, so that longer parts of the same passages can replace them."""
        while self.taken and self.taken[-1].is_part:
            self.shrink(self.taken[-1].tokens)

    def shrink(self, tokens: float) -> list[PassageCandidate]:
        """Gives up what was taken last, at least `tokens` tokens; returns the passages among it, except those that
        still wait as a whole. Giving up a turn ends the run."""
        freed = 0.0
        given_up: list[PassageCandidate] = []
        while self.taken and freed < tokens:
            last = self.taken.pop()
            freed += last.tokens
            if last.turn is not None:
                self.first = last.turn.end
                self.run_ended = True
            elif last.candidate is not None:
                self._count(last.candidate, -1, -last.tokens)
                given_up += [] if last.is_part else [last.candidate]
        self.used -= freed
        return given_up[::-1]

    def passages(self) -> list[PassageCandidate]:
        """Returns all passages that were taken."""
        return [each.candidate for each in self.taken if each.candidate is not None]

    def _take(self, what: TakenPassage) -> None:
        self.taken.append(what)
        self.used += what.tokens
        if what.candidate is not None:
            self._count(what.candidate, 1, what.tokens)

    def _count(self, candidate: PassageCandidate, by: int, tokens: float) -> None:
        of = candidate.of
        self._passages[id(of)] += by
        if not isinstance(of, Artifact):
            self._quoted[of.index] = self._quoted.get(of.index, 0.0) + tokens
            if candidate.passage.start == 0:
                self._heads[window.head_of(of.text)] += by
        elif not self._in_window(candidate):
            self._has_items = True

    def _around(self, candidate: PassageCandidate) -> float:
        """Estimates the tokens of what is written around a passage: a label, a mark of an omission, a heading."""
        of = candidate.of
        more = tuning.SUMMARY_LABEL_TOKENS + len(candidate.focus) / tuning.TOKEN_CHARS if candidate.summary else 0
        if self._passages[id(of)]:
            return tuning.ELISION_TOKENS + more
        block = 0 if self._quoted or self._has_items else tuning.BLOCK_TAG_TOKENS
        if not isinstance(of, Artifact):
            head = window.head_of(of.text) if candidate.passage.start == 0 else ""
            written_already = self.counting.text(head) if head and self._heads[head] else 0
            return tuning.LINE_TOKENS + (0 if self._quoted else tuning.ITEM_LABEL_TOKENS + block) - written_already
        heading = len(candidate.passage.heading) / tuning.TOKEN_CHARS + more
        if self._in_window(candidate):
            return heading + tuning.EXTRACT_TOKENS
        label = self._labels.get(id(of))
        if label is None:
            label = self._labels[id(of)] = len(of.search_label)
        return heading + tuning.ITEM_LABEL_TOKENS + block + label / tuning.TOKEN_CHARS

    def _in_window(self, candidate: PassageCandidate) -> bool:
        return candidate.message is not None and candidate.message >= self.first


class SegmentRoom:
    """The summaries of turns older than a window, and how many of them are taken, the latest first (guarantee §11.13).
    `material`: the summaries before its current turn count."""

    def __init__(self, material: WindowInputs, counting: PromptCounter) -> None:
        self._material, self._counting = material, counting
        self.taken = 0

    @cached_property
    def _tokens(self) -> list[int]:
        """Tokens of the latest summaries together: of none, one, two …"""
        found = self._material.segments_before(self._material.current)
        each = [tuning.SEGMENT_TOKENS + self._counting.text(segment.text) for segment in reversed(found)]
        return [0, *(tuning.MEMORY_TOKENS + tokens for tokens in accumulate(each))]

    @property
    def used(self) -> int:
        """Tokens of the summaries that are taken."""
        return self._tokens[self.taken] if self.taken else 0

    def least(self, room: float) -> float:
        """Returns the tokens that passages always leave free for summaries."""
        return min(room * self._most * tuning.MIN_SEGMENTS_PART, self._tokens[-1]) if self._material.segments else 0.0

    def share(self, room: float) -> float:
        """Returns the tokens that turns leave free for summaries."""
        return min(room * self._most, self._tokens[-1]) if self._material.segments else 0.0

    @property
    def _most(self) -> float:
        return tuning.SEGMENTS_FIRST_SHARE if self._material.segments_first else tuning.SEGMENTS_SHARE

    def take(self, first: int, room: float) -> int:
        """Takes as many summaries of turns before message `first` as fit; returns the tokens of all taken."""
        waiting = len(self._material.segments_before(first))
        while self.taken < waiting and self._tokens[self.taken + 1] <= room:
            self.taken += 1
        return self.used

    def shown(self, usable: int | None) -> int:
        """Returns how many summaries fit into a window of `usable` tokens (None: all of them): the turns that these
        summaries cover leave for them."""
        if usable is None:
            return len(self._material.segments)
        self.take(self._material.current, self.share(usable))
        return self.taken

    def give_up(self) -> int:
        """Gives up the oldest summary taken; returns its tokens."""
        before, self.taken = self.used, max(0, self.taken - 1)
        return before - self.used
