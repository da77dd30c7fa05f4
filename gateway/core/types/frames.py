"""What a model was sent of a conversation, frozen until something has to leave (guarantee §4 I7, ADR 12)."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.core.types.memory import MemoryMessage, memory_message_of

Form = dict[str, Any] | None
"""A message as it was forwarded; None: as it was sent, without the block that it was stored with."""


@dataclass(frozen=True, slots=True)
class FrozenDecision:
    """What was decided for an artifact in a frozen message: its strategy, and the characters shown."""

    artifact_id: str
    strategy: str
    shown_chars: int


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """What a model was sent of the messages of one branch, where that is not what the messages themselves say.

    Messages are named by their ids. The window begins with `first` (None: with the first message), without those
    `left_out`. `forms` are those of messages that were forwarded otherwise than they are stored. `shown_in_full` names
    the artifacts that their blocks show in full, `decisions` what was decided for other artifacts in them. `decided`
    names the attached documents, and the tool results shown as text, that the pass has decided on: what it left out
    is not shown again. `unsent` are the messages whose forms show something that the client did not send as a message:
    it goes only to a client who has shown that the conversation is theirs (guarantee §3.2). `counts` are the tokens of
    forms.
    `asked` is the message that began the last turn for which a planner was asked: one turn asks once (guarantee §5).
    `left_out_tokens` are those that the whole conversation would take more than what was forwarded.
    `memory` is the memory message that was forwarded with it (guarantee §11.12).
    `additions` says of how many stored frames, beside the full one, it was put together; `borrowed`, that some of them
    belong to a branch that the client has left, so that this one has none of its own yet.
    `recalls`: its requests have had the tool `recall` since the pass, and keep it: it stands before all messages.
    `refers`: of results that were shaped when they arrived, the messages that they refer to, each with the id of the
    result that it held: a reference dies with that (guarantee §4 I8).
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
        """This one with what later requests added to it; the window stays."""
        return PromptFrame(
            first=self.first,
            left_out=self.left_out | later.left_out,
            forms={**self.forms, **later.forms},
            shown_in_full={**self.shown_in_full, **later.shown_in_full},
            decisions={**self.decisions, **later.decisions},
            decided=self.decided | later.decided,
            unsent=self.unsent | later.unsent,
            counts={**self.counts, **later.counts},
            asked=later.asked or self.asked,
            left_out_tokens=later.left_out_tokens,
            memory=self.memory,
            additions=self.additions + 1,
            recalls=self.recalls or later.recalls,
            refers={**self.refers, **later.refers},
        )

    def of(self, names: AbstractSet[str | None]) -> "PromptFrame":
        """What it says of these messages. What was decided for attached documents stays."""
        return replace(
            self,
            forms={name: form for name, form in self.forms.items() if name in names},
            shown_in_full={name: shown for name, shown in self.shown_in_full.items() if name in names},
            decisions={name: found for name, found in self.decisions.items() if name in names},
            unsent=self.unsent & names,
            counts={name: counts for name, counts in self.counts.items() if name in names},
            refers={name: targets for name, targets in self.refers.items() if name in names},
        )

    def renamed(self, ids: Mapping[Any, str]) -> "PromptFrame":
        """The same where messages are stored under other ids."""

        def name(old: str) -> str:
            return ids.get(old, old)

        return PromptFrame(
            first=name(self.first) if self.first is not None else None,
            left_out=frozenset(map(name, self.left_out)),
            forms={name(key): value for key, value in self.forms.items()},
            shown_in_full={name(key): tuple(map(name, value)) for key, value in self.shown_in_full.items()},
            decisions={name(key): value for key, value in self.decisions.items()},
            decided=frozenset(map(name, self.decided)),
            unsent=frozenset(map(name, self.unsent)),
            counts={name(key): value for key, value in self.counts.items()},
            asked=name(self.asked) if self.asked is not None else None,
            left_out_tokens=self.left_out_tokens,
            memory=self.memory.renamed(ids) if self.memory is not None else None,
            recalls=self.recalls,
            refers={name(key): tuple((name(to), what) for to, what in value) for key, value in self.refers.items()},
        )


@dataclass(frozen=True, slots=True)
class NewFrame:
    """A frame that a request leaves behind the last message that it forwarded. `full`: nothing that was frozen before
    it counts any more; else it adds to that."""

    model: str
    full: bool
    frame: PromptFrame


@dataclass(frozen=True, slots=True)
class KeptFrame:
    """The frame of a conversation that is not stored, as it was found: its JSON, in which forms are ranges of what the
    client sends, the artifacts' ids in it, and how many answers were given since it was written."""

    said: Mapping[str, Any]
    ids: tuple[str, ...]
    behind: int


def body_of(frame: PromptFrame) -> dict[str, Any]:
    """A frame as JSON, without what it does not say."""
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
    """The frame that such a JSON object is. Raises AttributeError, KeyError, TypeError: it is none."""
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
