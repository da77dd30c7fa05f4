"""Transcripts in OpenAI's words: a list of messages, or the bodies of requests in their order."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gateway.operations.savings.recording import (
    NOT_RECORDED,
    RecordedSession,
    RecordedStep,
    SessionRecorder,
    StepTimes,
    seconds_of,
    text_in,
    tools_of,
)

Json = dict[str, Any]
OPENAI_CHATS = "openai"
CHAT_TIMES = ("timestamp", "created_at", "created", "time")


def is_transcript(lines: Sequence[Json]) -> bool:
    """Whether these first objects are of one."""
    return any(isinstance(line.get("messages"), list) or ("role" in line and "content" in line) for line in lines)


def sessions(name: str, lines: Iterable[Json]) -> list[RecordedSession]:
    """The session of a file; of bodies that name a `session`, one for each."""
    objects = list(lines)
    bodies = [each for each in objects if isinstance(each.get("messages"), list) and each["messages"]]
    if not bodies:
        return _told(name, [each for each in objects if "role" in each])
    if len(bodies) == 1 and "answer" not in bodies[0]:
        given = bodies[0].get("tools")
        found = _told(name, [each for each in bodies[0]["messages"] if isinstance(each, dict)])
        return [replace(each, tools=given) for each in found] if isinstance(given, list) and given else found
    by_session: dict[str, list[Json]] = defaultdict(list)
    for body in bodies:
        by_session[str(body.get("session") or name)].append(body)
    made = [_asked(of, own) for of, own in by_session.items()]
    return [session for session in made if session.steps]


def _told(name: str, messages: Sequence[Json]) -> list[RecordedSession]:
    """A session out of all its messages: each answer was made of those before."""
    recorder = SessionRecorder(name, OPENAI_CHATS)
    for number, message in enumerate(messages):
        at = _time(message)
        said = {key: value for key, value in message.items() if key not in CHAT_TIMES}
        if said.get("role") == "assistant":
            calls = [each for each in said.get("tool_calls") or () if isinstance(each, dict)]
            recorder.answer(number, at, text_in(said.get("content")) or None, calls)
        elif isinstance(said.get("role"), str):
            recorder.say(said)
    session = recorder.done()
    return [session] if session.steps else []


def _asked(name: str, bodies: Sequence[Json]) -> RecordedSession:
    """A session out of its requests. An answer that stands nowhere is the next request's first message behind."""
    steps: list[RecordedStep] = []
    times = StepTimes()
    for body, after in zip(bodies, [*bodies[1:], {}], strict=True):
        messages = [each for each in body["messages"] if isinstance(each, dict)]
        steps.append(RecordedStep(times.next(_time(body)), messages, _answer_of(body, messages, after)))
    tools = next((body["tools"] for body in bodies if isinstance(body.get("tools"), list)), None)
    model = next((body["model"] for body in bodies if isinstance(body.get("model"), str)), None)
    return RecordedSession(name, OPENAI_CHATS, steps, tools if tools is not None else tools_of(steps), model)


def _answer_of(body: Json, messages: list[Json], after: Json) -> Json:
    answer = body.get("answer")
    if not isinstance(answer, dict):
        later = after.get("messages") or []
        answer = later[len(messages)] if later[: len(messages)] == messages and len(later) > len(messages) else None
    if isinstance(answer, dict) and (answer.get("content") or answer.get("tool_calls")):
        return {"role": "assistant", **{k: v for k, v in answer.items() if k not in (*CHAT_TIMES, "role")}}
    return {"role": "assistant", "content": NOT_RECORDED}


def _time(value: Json) -> float | None:
    return next((at for name in CHAT_TIMES if (at := seconds_of(value.get(name))) is not None), None)
