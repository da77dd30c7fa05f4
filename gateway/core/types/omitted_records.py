"""Omits from a stored bill the records of artifacts that are as earlier requests left them, and restores them (ADR 19).

A tool result in a stored message needs no record of its own, since the message contains it. A bill names the messages
by ranges of their sequence numbers, and adds only what they do not contain: how a result is shown if not in full. The
reader of the bill walks up the path and derives the records again, by the rule by which the request derived them.
Records that this rule does not reproduce exactly stay in the bill's list.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types.artifacts import ArtifactType, ProcessingStrategy
from gateway.core.types.bill import ArtifactUsageRecord
from gateway.core.types.conversation import ConversationMessage, MessageCache, begin_with
from gateway.core.types.tool_steps import RESULT_ROLES, calls_of, result_of, take_call, tool_of

UNLISTED = "artifacts_unlisted"
"""Field of a stored bill's `context_utilization`, which is never shown to readers of the bill:

- `behind`: the stored message up to which the path is walked; None if that was deleted and none was before it.
- `runs`: ranges of sequence numbers, both ends included, whose results are unchanged; the third number, in the turn
  that was under way, is that of the first step. A run begins with a call.
- `shown`: results that are not shown in full: by strategy, ranges of consecutive results in these runs, each with the
  number of characters shown of one.
- `listed`: numbers of messages whose results are in the bill's list, before the last of the runs ends.
- `numbers`: by content, the number of the first of several equal results, if that is not 1.
- `gone`: messages of the path that were deleted since, by the numbers that they had, and 1 if one made calls. The
  numbers of a bill are those of its time; in the path, messages after a deleted one have moved up.
"""
FULL = ProcessingStrategy.INCLUDE_FULL.value
GONE: Json = {"tool_calls": [{"id": "\x00"}]}
"""Replaces, in a path, a deleted message with calls; no result answers its call."""
PAIRING = ("role", "tool_call_id", "name")
"""Fields of a result that identify the call it answers."""


@dataclass(slots=True)
class MessageRecord:
    """What the records need of a stored message: its calls, or the id and size of a result's text."""

    body: Json
    artifact_id: str = ""
    size_chars: int = 0


def said_by(body: Json) -> MessageRecord:
    """Makes the record of a message, without the text of a result."""
    if body.get("role") not in RESULT_ROLES:
        return MessageRecord(body if calls_of(body) else {})
    name, text, _, _ = result_of(body, {})
    return MessageRecord({key: body[key] for key in PAIRING if key in body}, name, len(text))


def unlisted_among(
    records: Sequence[ArtifactUsageRecord],
    messages: Sequence[ConversationMessage],
    current: int,
    cache: MessageCache | None = None,
) -> "OmittedRecords | None":
    """Finds the records that a stored bill need not list, since `with_standing` restores them; None if there are none.
    `records`: of all artifacts of the request; `messages`: its conversation, oldest first, in which
    `ArtifactUsageRecord.message` is an index; `current`: index of the message that begins the current turn; `cache`:
    cache for the beginning of these messages, read and updated."""
    results = {record.message: record for record in records if record.message is not None}
    before: KeptUnlisted | None = cache.unlisted if cache is not None else None
    first, found = 0, OmittedRecords(current)
    if before is not None and before.begins(messages, current, results):
        first, found = len(before.messages), before.unlisted.copy()
    index = first
    for index, message in enumerate(messages[first:], first):
        if message.message_id is None:
            break  # from here on all are new
        if not found.add(index, message, results.get(index)):
            return None
    else:
        index = len(messages)
    if cache is not None:
        here = tuple(results.get(each) for each in range(index))
        cache.unlisted = KeptUnlisted(tuple(messages[:index]), here, found.copy())
    return found if found.gone else None


@dataclass(slots=True)
class OmittedRecords:
    """The records left out of a bill, collected message by message."""

    current: int
    runs: list[list[int]] = field(default_factory=list)
    shown: dict[str, list[list[int]]] = field(default_factory=dict)
    listed: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    """`id()` of each record that is left out."""
    chars: int = 0
    """Characters of their artifacts that were forwarded."""
    _behind: str | None = None
    _before: int = -1
    _step: int = 0
    _calls: list[Json] = field(default_factory=list)
    _called: int | None = None
    """Number of the latest message with calls since the last break."""
    _run: list[int] | None = None
    _latest: dict[str, int] = field(default_factory=dict)
    """Number of the latest of several equal results, by content."""
    _latest_shown: tuple[str, int] | None = None

    def add(self, index: int, message: ConversationMessage, record: ArtifactUsageRecord | None) -> bool:
        """Adds the next message; returns False if its number is not in ascending order, which no range can express."""
        number = message.sequence_number
        if number is None or number <= self._before:
            return False
        if index == self.current or number != self._before + 1:
            self._break()
        self._before = number
        if message.role not in RESULT_ROLES:
            if made := calls_of(message.body):
                self._step = self._step + 1 if index >= self.current else 0
                self._calls, self._called = made, number
            return True
        answers = take_call(self._calls, message.body)
        if record is None:  # it left the window
            self._break()
        elif answers and self._called is not None and self._is_reproducible(record):
            self._leave_out(message, self._called, record)
        else:
            self.listed.append(number)
        return True

    def copy(self) -> "OmittedRecords":
        """Makes an independent copy."""
        runs = [list(run) for run in self.runs]
        return replace(
            self,
            runs=runs,
            shown={strategy: [list(each) for each in found] for strategy, found in self.shown.items()},
            listed=list(self.listed),
            numbers=dict(self.numbers),
            gone=set(self.gone),
            _calls=list(self._calls),
            _run=runs[-1] if self._run is not None else None,
            _latest=dict(self._latest),
        )

    def as_json(self) -> Json:
        last = self.runs[-1][1]
        fields: Json = {
            "runs": self.runs,
            "shown": self.shown,
            "listed": [number for number in self.listed if number < last],
            "numbers": self.numbers,
        }
        return {"behind": self._behind, **{name: value for name, value in fields.items() if value}}

    def _break(self) -> None:
        self._calls, self._called, self._run = [], None, None

    def _is_reproducible(self, record: ArtifactUsageRecord) -> bool:
        """Returns whether the rule reproduces the record. Its source follows from message and call."""
        if not record.standing or record.cache_hit or record.guarded or record.reason:
            return False
        name, _, count = record.artifact_id.partition("-")
        latest = self._latest.get(name)
        return latest is None or latest + 1 == int(count or 1)

    def _leave_out(self, message: ConversationMessage, called: int, record: ArtifactUsageRecord) -> None:
        name, _, count = record.artifact_id.partition("-")
        if count and name not in self._latest:
            self.numbers[name] = int(count)
        self._latest[name] = int(count or 1)
        if self._run is None:
            self._run = [called, called, *([self._step] if self._step else [])]
            self.runs.append(self._run)
        self._run[1], self._behind = self._before, message.message_id
        strategy, chars = record.strategy, record.processed_size_chars
        if strategy == FULL and chars == record.original_size_chars:
            self._latest_shown = None
        elif self._latest_shown == (strategy, chars):
            self.shown[strategy][-1][1] = self._before
        else:
            self._latest_shown = strategy, chars
            self.shown.setdefault(strategy, []).append([self._before, self._before, chars])
        self.chars += chars
        self.gone.add(id(record))


@record
class KeptUnlisted:
    """The records left out of a bill so far, with the first messages of its conversation, and each one's record or
    None."""

    messages: tuple[ConversationMessage, ...]
    records: tuple[ArtifactUsageRecord | None, ...]
    unlisted: OmittedRecords

    def begins(
        self, messages: Sequence[ConversationMessage], current: int, results: Mapping[int, ArtifactUsageRecord]
    ) -> bool:
        """Returns whether a conversation begins with the same message and record objects."""
        if self.unlisted.current != current or not begin_with(messages, self.messages):
            return False
        return all(map(is_, self.records, map(results.get, range(len(self.messages)))))


def unlisted_of(metadata: Json) -> Json | None:
    """Returns the `UNLISTED` field of a stored bill; None if its list is complete."""
    utilization = metadata.get("context_utilization")
    found = utilization.get(UNLISTED) if isinstance(utilization, dict) else None
    return found if isinstance(found, dict) else None


def as_numbered_then(unlisted: Json, path: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Renumbers the messages of a path, given as numbers and ids in order, by the numbers of the bill's time. Empty if
    these are unknown: something was deleted while the request was under way, or by a replica of an older version.
    Raises AttributeError, KeyError, TypeError, ValueError, IndexError: the bill is corrupt."""
    gone = [number for number, _ in unlisted.get("gone", ())]
    if not path or path[-1][0] != unlisted["runs"][-1][1] - len(gone):
        return []
    return [(_number_then(gone, number), name) for number, name in path]


def _number_then(gone: Sequence[int], number: int) -> int:
    for each in gone:
        number += each <= number
    return number


def without_message(metadata: Json, number: int, before: str | None, *, ends: bool, calls: bool) -> Json:
    """Returns a stored bill updated for the deletion of a message of its path.
    `metadata`: a bill that leaves records out; it is not changed; `number`: the message's number in the path until now;
    `before`: the message before it; `ends`: whether the path ended with it; `calls`: whether it made calls.
    Raises AttributeError, KeyError, TypeError, ValueError, IndexError: the bill is corrupt."""
    utilization = metadata["context_utilization"]
    unlisted = utilization[UNLISTED]
    gone = unlisted.get("gone", [])
    then = _number_then([each for each, _ in gone], number)
    changed = {**unlisted, "gone": sorted([*gone, [then, int(calls)]])}
    if ends:
        changed["behind"] = before
    return {**metadata, "context_utilization": {**utilization, UNLISTED: changed}}


def messages_in_runs(unlisted: Json, path: Sequence[tuple[int, str]]) -> list[str]:
    """Lists the ids of the messages needed to restore the records left out, of a path as `as_numbered_then` returns it.
    Raises KeyError, TypeError, ValueError, IndexError: the bill is corrupt."""
    return [name for first, last, *_ in unlisted["runs"] for _, name in _between(path, first, last)]


def with_standing(metadata: Json, path: Sequence[tuple[int, MessageRecord]]) -> Json:
    """Restores all records of a bill, except those of results deleted since.
    `metadata`: a stored bill; it is not changed; `path`: the messages that its runs name, as far as they exist, by the
    numbers of the bill's time, in order.
    Raises AttributeError, KeyError, TypeError, ValueError, IndexError: the bill is corrupt."""
    utilization = dict(metadata["context_utilization"])
    unlisted = utilization.pop(UNLISTED)
    numbered = list(_restored(unlisted, path))
    listed = utilization["artifacts_processed"]
    places = unlisted.get("listed", [])
    numbered += zip(places, listed, strict=False)
    numbered.sort(key=lambda each: each[0])
    records = [record for _, record in numbered] + listed[len(places) :]
    return {**metadata, "context_utilization": {**utilization, "artifacts_processed": records}}


def _restored(unlisted: Json, path: Sequence[tuple[int, MessageRecord]]) -> Iterable[tuple[int, Json]]:
    shown = sorted([*each, name] for name, found in unlisted.get("shown", {}).items() for each in found)
    listed = frozenset(unlisted.get("listed", ()))
    calls_gone = [(number, MessageRecord(GONE)) for number, calls in unlisted.get("gone", ()) if calls]
    path = sorted([*path, *calls_gone], key=lambda each: each[0])
    count = {name: number - 1 for name, number in unlisted.get("numbers", {}).items()}
    for first, last, *began in unlisted["runs"]:
        step = began[0] - 1 if began else 0
        calls: list[Json] = []
        for number, said in _between(path, first, last):
            if said.body.get("role") not in RESULT_ROLES:
                if made := calls_of(said.body):
                    calls, step = made, step + 1 if began else 0
                continue
            call = take_call(calls, said.body)
            if not call or number in listed:
                continue
            count[said.artifact_id] = which = count.get(said.artifact_id, 0) + 1
            source = _source(number, step)
            yield number, _record(said, call, which, source, _shown_in(shown, number) or (FULL, said.size_chars))


def _shown_in(ranges: Sequence[Sequence[Any]], number: int) -> tuple[str, int] | None:
    """Returns strategy and characters shown of the result in message `number`; None if it is shown in full. The ranges
    are in order."""
    place = bisect_right(ranges, number, key=lambda each: each[0])
    if not place or number > ranges[place - 1][1]:
        return None
    _, _, chars, strategy = ranges[place - 1]
    return strategy, chars


def _between(path: Sequence[tuple[int, Any]], first: int, last: int) -> Sequence[tuple[int, Any]]:
    """Selects the messages of a run from a path in the order of its numbers."""
    start = bisect_left(path, first, key=lambda each: each[0])
    return path[start : bisect_right(path, last, key=lambda each: each[0])]


def _source(number: int, step: int) -> str:
    """Returns the source of a result, without its tool."""
    return f"step_{step}" if step else f"history:msg_{number}"


def _record(said: MessageRecord, call: Mapping[str, Any], which: int, source: str, shown: tuple[str, int]) -> Json:
    """Makes the record of an unchanged result, without any of the optional fields."""
    strategy, chars = shown
    return {
        "artifact_id": f"{said.artifact_id}-{which}" if which > 1 else said.artifact_id,
        "source": f"{source}:{tool_of(said.body, call)[0]}",
        "artifact_type": ArtifactType.TOOL_RESULT.value,
        "strategy": strategy,
        "original_size_chars": said.size_chars,
        "processed_size_chars": chars,
        "cache_hit": False,
        "standing": True,
    }
