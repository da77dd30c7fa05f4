"""Reads transcripts of Claude Code, Codex and in OpenAI's words: what a client sent and was answered, step by step."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from gateway.core import errors, jsons
from gateway.core.formats.anthropic.request_parser import MessageReader
from gateway.core.types.conversation import parts_of, texts_of

Json = dict[str, Any]
STEP_SECONDS = 15.0
"""Between two steps of a session without times."""
NOT_RECORDED = "(not recorded)"
ENDINGS = (".jsonl", ".json")
FIRST_LINES = 20
"""Of a file, by which is told what it is."""
MAX_FILE_BYTES = 2**29


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


class TranscriptReader(Protocol):
    """Reads the transcripts of one kind."""

    def is_transcript(self, lines: list[Json]) -> bool: ...

    def sessions(self, name: str, lines: list[Json]) -> list[RecordedSession]: ...


CLAUDE_CODE = "claude-code"
SPEAKING_LINES = ("user", "assistant")


class ClaudeCodeTranscripts:
    """Reads transcripts of Claude Code: a line of JSON for each message, and for each block of an answer."""

    def is_transcript(self, lines: Sequence[Json]) -> bool:
        """Whether these first lines are of one."""
        return any("sessionId" in line and ("uuid" in line or "leafUuid" in line) for line in lines)

    def sessions(self, name: str, lines: Iterable[Json]) -> list[RecordedSession]:
        """The session of a file, and one for each sub-agent that wrote into it. Thoughts are left out: only their own
        provider can read them."""
        recorders: dict[object, SessionRecorder] = {}
        agents: dict[str, object] = {}
        for line in lines:
            message = line.get("message")
            if line.get("type") not in SPEAKING_LINES or not isinstance(message, dict) or line.get("isMeta") is True:
                continue
            agent = _agent(line, agents)
            if agent not in recorders:
                title = name if agent is None else f"{name}:agent-{len(recorders)}"
                recorders[agent] = SessionRecorder(title, CLAUDE_CODE)
            _add_line(recorders[agent], line, message)
        found = [recorder.done() for recorder in recorders.values()]
        return [session for session in found if session.steps]


def _agent(line: Json, agents: dict[str, object]) -> object:
    """Which sub-agent wrote a line, None for none: by its name, or by the first line that its own goes back to."""
    if line.get("isSidechain") is not True:
        return None
    before = agents.get(str(line.get("parentUuid")))
    agent = line.get("agentId") or before or line.get("uuid")
    agents[str(line.get("uuid"))] = agent
    return agent


def _add_line(recorder: SessionRecorder, line: Json, message: Json) -> None:
    content = message.get("content")
    if line["type"] == "user":
        said = _read_message({"role": "user", "content": content})
        if line.get("isCompactSummary") is True:
            recorder.begin_anew(*said)
        else:
            recorder.say(*said)
        return
    calls = [
        call_of(str(block.get("id")), str(block.get("name")), jsons.dumps_text(block.get("input") or {}))
        for block in parts_of(content)
        if _is(block, "tool_use")
    ]
    key = message.get("id") or line.get("uuid")
    recorder.answer(key, seconds_of(line.get("timestamp")), "\n".join(texts_of(content, "text")) or None, calls)


def _read_message(message: Json) -> list[Json]:
    reader = MessageReader()
    try:
        reader.read(message, "message")
    except errors.InvalidRequest:
        return []
    return reader.messages


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


CODEX = "codex"
CODEX_ROLES = {"user": "user", "developer": "developer", "system": "system"}
CODEX_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


class CodexTranscripts:
    """Reads rollouts of Codex: a line of JSON for each item of its Responses, as they came."""

    def is_transcript(self, lines: Sequence[Json]) -> bool:
        """Whether these first lines are of one."""
        return any(line.get("type") in ("session_meta", "response_item") and "payload" in line for line in lines)

    def sessions(self, name: str, lines: Iterable[Json]) -> list[RecordedSession]:
        """The session of a file. Reasoning is left out: it is sealed."""
        recorder, system, number = SessionRecorder(name, CODEX), None, 0
        for line in lines:
            item = line.get("payload")
            if not isinstance(item, dict):
                continue
            kind = line.get("type")
            if kind == "session_meta":
                given = item.get("base_instructions") or item.get("instructions")
                text = given.get("text") if isinstance(given, dict) else given
                if isinstance(text, str) and text and system is None:
                    system = {"role": "system", "content": text}
                    recorder.say(system)
            elif kind == "compacted":
                kept = item.get("replacement_history")
                said = [each for one in kept if isinstance(one, dict) and (each := _said_by(one))] if kept else []
                if not said and isinstance(item.get("message"), str):
                    said = [{"role": "user", "content": item["message"]}]
                recorder.begin_anew(*([system] if system else []), *said)
            elif kind == "response_item":
                is_answer = _is_answer(item)
                number += not is_answer  # whatever the client says ends the answer before it
                _add_item(recorder, item, number, seconds_of(line.get("timestamp")))
        session = recorder.done()
        return [session] if session.steps else []


def _is_answer(item: Json) -> bool:
    return item.get("type") in ("reasoning", *CODEX_CALLS) or item.get("role") == "assistant"


def _add_item(recorder: SessionRecorder, item: Json, number: int, at: float | None) -> None:
    kind = item.get("type")
    if kind in CODEX_CALLS:
        name, arguments = str(item.get("name") or "local_shell"), item.get("arguments")
        if kind == "custom_tool_call":
            arguments = jsons.dumps_text({"input": item.get("input") or ""})
        elif not isinstance(arguments, str):
            arguments = jsons.dumps_text(item.get("action") or {})
        recorder.answer(number, at, calls=[call_of(str(item.get("call_id")), name, arguments)])
    elif kind == "message" and item.get("role") == "assistant":
        recorder.answer(number, at, text_in(item.get("content")))
    elif (said := _said_by(item)) is not None:
        recorder.say(said)


def _said_by(item: Json) -> Json | None:
    """What the client says by an item; None for what it does not say, or cannot be sent."""
    if str(item.get("type")).endswith("_output"):
        output = item.get("output")
        if isinstance(output, dict):
            output = output.get("content") or jsons.dumps_text(output)
        return {"role": "tool", "tool_call_id": str(item.get("call_id")), "content": text_in(output)}
    role = CODEX_ROLES.get(str(item.get("role")))
    text = text_in(item.get("content")) if role else ""
    return {"role": role, "content": text} if role and text else None


OPENAI_CHATS = "openai"
CHAT_TIMES = ("timestamp", "created_at", "created", "time")


class ChatTranscripts:
    """Reads transcripts in OpenAI's words: a list of messages, or the bodies of requests in their order."""

    def is_transcript(self, lines: Sequence[Json]) -> bool:
        """Whether these first objects are of one."""
        return any(isinstance(line.get("messages"), list) or ("role" in line and "content" in line) for line in lines)

    def sessions(self, name: str, lines: Iterable[Json]) -> list[RecordedSession]:
        """The session of a file; of bodies that name a `session`, one for each."""
        objects = list(lines)
        bodies = [each for each in objects if isinstance(each.get("messages"), list) and each["messages"]]
        if not bodies:
            return _of_messages(name, [each for each in objects if "role" in each])
        if len(bodies) == 1 and "answer" not in bodies[0]:
            given = bodies[0].get("tools")
            found = _of_messages(name, [each for each in bodies[0]["messages"] if isinstance(each, dict)])
            return [replace(each, tools=given) for each in found] if isinstance(given, list) and given else found
        by_session: dict[str, list[Json]] = defaultdict(list)
        for body in bodies:
            by_session[str(body.get("session") or name)].append(body)
        made = [_of_bodies(of, own) for of, own in by_session.items()]
        return [session for session in made if session.steps]


def _of_messages(name: str, messages: Sequence[Json]) -> list[RecordedSession]:
    """A session out of all its messages: each answer was made of those before."""
    recorder = SessionRecorder(name, OPENAI_CHATS)
    for number, message in enumerate(messages):
        at = _time_of(message)
        said = {key: value for key, value in message.items() if key not in CHAT_TIMES}
        if said.get("role") == "assistant":
            calls = [each for each in said.get("tool_calls") or () if isinstance(each, dict)]
            recorder.answer(number, at, text_in(said.get("content")) or None, calls)
        elif isinstance(said.get("role"), str):
            recorder.say(said)
    session = recorder.done()
    return [session] if session.steps else []


def _of_bodies(name: str, bodies: Sequence[Json]) -> RecordedSession:
    """A session out of its requests. An answer that stands nowhere is the next request's first message behind."""
    steps: list[RecordedStep] = []
    times = StepTimes()
    for body, after in zip(bodies, [*bodies[1:], {}], strict=True):
        messages = [each for each in body["messages"] if isinstance(each, dict)]
        steps.append(RecordedStep(times.next(_time_of(body)), messages, _answer_of(body, messages, after)))
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


def _time_of(value: Json) -> float | None:
    return next((at for name in CHAT_TIMES if (at := seconds_of(value.get(name))) is not None), None)


READERS: tuple[TranscriptReader, ...] = (ClaudeCodeTranscripts(), CodexTranscripts(), ChatTranscripts())


def transcripts(folder: Path) -> list[Path]:
    """The files that may be transcripts, below a folder; a file is itself.
    Raises ValueError: there is no such folder, or it has none."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"--replay: {folder} is no folder")
    found = sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file())
    if not found:
        raise ValueError(f"--replay: {folder} has no file that ends in {' or '.join(ENDINGS)}")
    return found


def read_sessions(path: Path, name: str) -> list[RecordedSession]:
    """The sessions of a file. Raises ValueError: it is no transcript; says why."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"has more than {MAX_FILE_BYTES} bytes")
    lines = list(_objects(path))
    for reader in READERS:
        if reader.is_transcript(list(islice(lines, FIRST_LINES))):
            found = reader.sessions(name, lines)
            if not found:
                raise ValueError("has no answered request")
            return found
    raise ValueError("is no transcript of Claude Code, Codex or OpenAI's messages")


def _objects(path: Path) -> Iterator[Json]:
    """The objects of a file: its lines, or the one value that it is. A line that is none is passed over, as the last
    one of a session under way."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        try:
            value = jsons.loads(text)
        except ValueError as error:
            raise ValueError("is no JSON") from error
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))
        return
    for line in text.split("\n"):
        try:
            value = jsons.loads(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
