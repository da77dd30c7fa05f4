"""Recorded sessions as what a client sent and what it was answered, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gateway.core.types.content import texts_of

Json = dict[str, Any]
STEP_SECONDS = 15.0
"""Between two steps of a session without times."""
NOT_RECORDED = "(not recorded)"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A request of a session: messages as its client would send them, the answer, seconds since the session began."""

    at: float
    messages: Sequence[Json]
    answer: Json


@dataclass(slots=True)
class RecordedSession:
    """A recorded session. `tools` are those that its requests offer."""

    name: str
    agent: str
    steps: list[RecordedStep]
    tools: list[Json] = field(default_factory=list)
    model: str | None = None


class StepTimes:
    """When the steps of a session were, in seconds since the first of them that tells."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last = 0.0

    def next(self, at: float | None) -> float:
        """When the next step was, never before the last one.
        `at`: in seconds of any clock; None where it is not told."""
        if at is None:
            self._last += STEP_SECONDS
        else:
            self._began = at if self._began is None else self._began
            self._last = max(self._last, at - self._began)
        return self._last


class SessionRecorder:
    """Puts a session together out of what its transcript tells in its order.

    An answer may come in parts, and results may come between them. Calls and results are brought into pairs, as
    clients send them: a call without a result gets one that says so, a result without its call is left out.
    """

    def __init__(self, name: str, agent: str, history: Sequence[Json] = ()) -> None:
        self._session = RecordedSession(name, agent, [])
        self._history: list[Json] = list(history)
        self._answer: Json | None = None
        self._key: object = None
        self._at: float | None = None
        self._pending: list[Json] = []
        self._times = StepTimes()

    def say(self, *messages: Json) -> None:
        """What the client adds: messages of users, results of tools."""
        (self._history if self._answer is None else self._pending).extend(messages)

    def answer(self, key: object, at: float | None, text: str | None = None, calls: Sequence[Json] = ()) -> None:
        """A part of an answer.
        `key`: tells answers apart: a part of the same one has the same; `at`: when, in seconds of any clock."""
        if self._answer is None or key != self._key:
            self._close()
            self._answer, self._key, self._at = {"role": "assistant", "content": None}, key, at
        if text:
            said = self._answer["content"]
            self._answer["content"] = f"{said}\n{text}" if said else text
        if calls:
            self._answer.setdefault("tool_calls", []).extend(calls)

    def begin_anew(self, *messages: Json) -> None:
        """The client has compacted: from now on it sends these in the place of all before."""
        self._close()
        self._history = list(messages)

    def done(self) -> RecordedSession:
        """The session; without steps where nothing was answered."""
        self._close()
        self._session.tools = tools_of(self._session.steps)
        return self._session

    def _close(self) -> None:
        answer, pending = self._answer, self._pending
        self._answer, self._pending = None, []
        if answer is None:
            return
        if answer["content"] is None and "tool_calls" not in answer:
            self._history += [each for each in pending if each["role"] != "tool"]
            return
        is_asked = bool(self._history) and self._history[-1]["role"] != "assistant"
        if is_asked and any(message["role"] == "user" for message in self._history):
            self._session.steps.append(RecordedStep(self._times.next(self._at), tuple(self._history), answer))
        self._history = [*self._history, answer, *_paired(answer, pending)]


def _paired(answer: Json, pending: Sequence[Json]) -> list[Json]:
    results = {each["tool_call_id"]: each for each in reversed(pending) if each["role"] == "tool"}
    calls = [call["id"] for call in answer.get("tool_calls", ())]
    found = [results.get(name) or {"role": "tool", "tool_call_id": name, "content": NOT_RECORDED} for name in calls]
    return [*found, *(each for each in pending if each["role"] != "tool")]


def call_of(call_id: str, name: str, arguments: str) -> Json:
    """A call of a tool in a chat's words."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tools_of(steps: Sequence[RecordedStep]) -> list[Json]:
    """Definitions of the tools that a session calls, which transcripts seldom have: names alone."""
    calls = [call for step in steps for call in step.answer.get("tool_calls") or ()]
    names = dict.fromkeys(call["function"]["name"] for call in calls if isinstance(call.get("function"), dict))
    parameters = {"type": "object", "properties": {}}
    return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in sorted(names)]


def text_in(content: Any) -> str:
    """What a content says, given as a text or as parts; "" where it says nothing."""
    return "\n".join(texts_of(content))


def seconds_of(value: Any) -> float | None:
    """A time of a transcript, ISO or in seconds or milliseconds; None where it is none."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e14:
        return value / 1000 if value > 1e11 else float(value)
    return None
