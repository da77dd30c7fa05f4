"""What was chosen to stand in the window, before it is worded."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from gateway.models.artifacts import Artifact, ArtifactPlan, ProcessingStrategy
from gateway.models.conversation import ConversationMessage
from gateway.models.frames import Frame

# A planner's plan on its way to where it is followed (guarantee §5).


@dataclass(frozen=True, slots=True)
class Planned:
    """A planner's plan as fitting follows it, with the summaries that were made for it.

    `plan` has its decisions by priority, for artifacts of this request only; what it does not name gets the
    heuristic's decision. `summaries` are by artifact, each shorter than the artifact. `trusted`: without the guards of
    guarantee §5 (`context.trust_planner`).
    """

    plan: ArtifactPlan
    summaries: Mapping[str, str] = field(default_factory=dict)
    trusted: bool = False


LAST_EARLIER = -2
"""Index of the last message before those that may be forwarded; -1 stands for system messages."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """How one artifact is shown: `text` in full (compacted, perhaps), or the characters of `spans`, or nothing. A
    summarized one by its summary, `text`, made with a `focus` ("" if with none), and by `spans` beside it.

    `headings` say for each span what has to stand above it to be understood: a table's first row, the headings of its
    section ("" if nothing has to).
    """

    artifact: Artifact
    strategy: ProcessingStrategy
    text: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    headings: tuple[str, ...] = ()
    focus: str = ""

    @property
    def shown_chars(self) -> int:
        return len(self.text) + self.extract_chars

    @property
    def extract_chars(self) -> int:
        """Of these the characters that are the artifact's own, where it is not shown in full."""
        return sum(end - start for start, end in self.spans)


@dataclass(frozen=True, slots=True)
class Material:
    """What a context is made of: system messages, the conversation, and its artifacts. `current` is the index of the
    message that begins the turn under way. `placed` artifacts stand in messages; `restored` tool results and `attached`
    documents can only stand in a block. `frame` is what was forwarded of it before (guarantee §4 I7).

    `earlier` are messages before `messages`, from which something is recalled at most: that at the end of it has index
    `LAST_EARLIER`, that before it one less. `recallable` are artifacts in them. `turns_before` is how many turns began
    before the first of all of these."""

    instructions: tuple[dict[str, Any], ...]
    messages: tuple[ConversationMessage, ...]
    current: int
    placed: tuple[Artifact, ...] = ()
    restored: tuple[Artifact, ...] = ()
    attached: tuple[Artifact, ...] = ()
    question: str = ""
    frame: Frame | None = None
    earlier: tuple[ConversationMessage, ...] = ()
    recallable: tuple[Artifact, ...] = ()
    turns_before: int = 0

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Those that may stand in the window as a whole."""
        return self.placed + self.restored + self.attached

    @property
    def has_block(self) -> bool:
        """Whether an earlier step of the turn under way was forwarded with a block, or otherwise than it was sent."""
        return bool(self.messages) and self.messages[self.current].rendered is not None

    @property
    def is_block_fixed(self) -> bool:
        """Whether the turn under way has the block, or none, that its first step was forwarded with (guarantee §4 I6).
        Documents and results that can only stand in a block, and stood in one that has to leave, may still get one."""
        begun = bool(self.messages) and self.messages[self.current].message_id is not None
        return self.has_block or (begun and not (self.restored or self.attached))

    @property
    def left(self) -> frozenset[int]:
        """Steps that left their turn while it was the current one, and stay out (guarantee §4 I2): their messages."""
        if self.frame is None or not self.frame.left:
            return frozenset()
        return frozenset(i for i, message in enumerate(self.messages) if message.message_id in self.frame.left)

    @property
    def searched(self) -> tuple[Artifact, ...]:
        """All of which passages may stand in it."""
        return self.artifacts + self.recallable

    @property
    def indexed(self) -> Iterator[tuple[int, ConversationMessage]]:
        """Earlier messages and those of the conversation, each with its index."""
        first = LAST_EARLIER + 1 - len(self.earlier)
        return chain(enumerate(self.earlier, first), enumerate(self.messages))


HEAD = re.compile(r"\[[^\[\]\n]{1,60}\] ")


def head_of(text: str) -> str:
    """What stands in brackets before a message's words, in chat logs mostly its time; empty if nothing does."""
    found = HEAD.match(text)
    return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Of what a message that is not in the window said: the characters of `spans` of `text`, with the number of its
    turn, and who spoke. `follows`: nothing was left out since the excerpt before it."""

    turn: int
    speaker: str
    text: str
    spans: tuple[tuple[int, int], ...]
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Recalled:
    """Old turns that are not in the window: as one artifact, and the excerpts of it that stand in the block. `more`:
    something was left out after the last of them."""

    artifact: Artifact
    excerpts: tuple[Excerpt, ...]
    more: bool = False

    @property
    def shown_chars(self) -> int:
        return sum(end - start for excerpt in self.excerpts for start, end in excerpt.spans)


@dataclass(frozen=True, slots=True)
class Selection:
    """The window: messages from `first` on but for `left_out`; artifacts as `renderings` say, others as they stand.

    `recalled` names the artifacts that stand in the block although their message is not in the window, `turns` is what
    stands there of the messages themselves. `frozen`: messages that were forwarded with a block before keep it;
    `keeps_block`: that which begins the turn under way does, in any case (guarantee §4 I6).
    """

    first: int = 0
    left_out: frozenset[int] = frozenset()
    renderings: dict[str, Rendering] = field(default_factory=dict)
    recalled: frozenset[str] = frozenset()
    turns: Recalled | None = None
    frozen: bool = True
    quoted: frozenset[str] = frozenset()
    keeps_block: bool = False


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The messages that go upstream. `indexes` says which message of the conversation each of them is (-1: system);
    `block` is the text put at the head of the current user message, `rendered` that message with it."""

    messages: list[dict[str, Any]]
    indexes: list[int]
    block: str = ""
    rendered: dict[str, Any] | None = None
    standing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreduced:
    """What was forwarded before, as it was, and everything since in full: what is measured before anything is decided
    (guarantee §5). `tokens`: an estimate where it is surely below what matters, the exact count up to the budget, and
    beyond that a number between the budget and that count. `anew`: it is over budget, so that nothing stands."""

    selection: Selection
    forwarded: Forwarded
    tokens: int
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A selection that fits, as it will be sent, with its exact or estimated token count. `anew`: something had to
    leave, so everything was decided anew (guarantee §4 I7). `guarded` are the artifacts that a plan excludes and of
    which something is shown all the same (guarantee §5)."""

    selection: Selection
    forwarded: Forwarded
    tokens: int
    exact: bool
    breakdown: dict[str, int]
    anew: bool = False
    guarded: frozenset[str] = frozenset()
