"""Reads transcripts of Claude Code, of Codex and in OpenAI's format: requests of a client and answers, step by step."""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.core import errors, jsons
from gateway.core.formats.anthropic.request_parser import MessageReader
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types.content_parts import dicts_of, parts_of, texts_of

STEP_SECONDS = 15.0
"""Between two steps of a session without times."""
NOT_RECORDED = "(not recorded)"
ENDINGS = (".jsonl", ".json", ".gz")
MAX_FILE_BYTES = 2**29


@record
class RecordedStep:
    """A request of a session. `at`: seconds since the session began; `messages`: as its client would send them;
    `answer_id`: the provider's, where the transcript names it."""

    at: float
    messages: Sequence[Json]
    answer: Json
    answer_id: str | None = None


@dataclass(slots=True)
class RecordedSession:
    """A recorded session. `tools`: the tool definitions that its requests offer."""

    name: str
    agent: str
    steps: list[RecordedStep]
    tools: list[Json] = field(default_factory=list)
    model: str | None = None

    def leave_out(self, paid: Container[str]) -> int:
        """Removes the steps with these answers, which other sessions have paid for; returns their number."""
        count = len(self.steps)
        self.steps = [step for step in self.steps if step.answer_id is None or step.answer_id not in paid]
        return count - len(self.steps)


class StepTimes:
    """Computes the times of a session's steps, in seconds since its first step with a time."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last = 0.0

    def next(self, at: float | None) -> float:
        """Returns the time of the next step, never before the previous one.
        `at`: the recorded time, in seconds of any clock; None if there is none."""
        if at is None:
            self._last += STEP_SECONDS
        else:
            self._began = at if self._began is None else self._began
            self._last = max(self._last, at - self._began)
        return self._last


class SessionRecorder:
    """Assembles a session from the entries of its transcript, in their order.

    An answer may come in parts, with results between them. The recorder pairs calls with results, as clients send
    them: a call without a result gets a placeholder, and a result without a call is left out.
    """

    def __init__(self, name: str, agent: str, history: Sequence[Json] = ()) -> None:
        self._session = RecordedSession(name, agent, [])
        self._history: list[Json] = list(history)
        self._answer: Json | None = None
        self._key: object = None
        self._at: float | None = None
        self._pending: list[Json] = []
        self._times = StepTimes()

    @property
    def history(self) -> list[Json]:
        """The messages so far, as the client would send them with its next one."""
        answer, pending = self._answer, self._pending
        if answer is None:
            return list(self._history)
        if _is_empty(answer):
            return [*self._history, *(each for each in pending if each["role"] != "tool")]
        return [*self._history, answer, *_paired(answer, pending)]

    def say(self, *messages: Json) -> None:
        """Adds messages of the client: user messages and tool results."""
        (self._history if self._answer is None else self._pending).extend(messages)

    def answer(self, key: object, at: float | None, text: str | None = None, calls: Sequence[Json] = ()) -> None:
        """Adds a part of an answer.
        `key`: identifies the answer: all its parts have the same key; `at`: its time, in seconds of any clock."""
        if self._answer is None or key != self._key:
            self._close()
            self._answer, self._key, self._at = {"role": "assistant", "content": None}, key, at
        if text:
            said = self._answer["content"]
            self._answer["content"] = f"{said}\n{text}" if said else text
        if calls:
            self._answer.setdefault("tool_calls", []).extend(calls)

    def begin_anew(self, *messages: Json) -> None:
        """Replaces the history by these messages, which the client sends instead after it has compacted its context."""
        self._close()
        self._history = list(messages)

    def done(self) -> RecordedSession:
        """Completes and returns the session; it has no steps if nothing was answered."""
        self._close()
        self._session.tools = tools_of(self._session.steps)
        return self._session

    def _close(self) -> None:
        answer, asked, history = self._answer, self._history, self.history
        self._answer, self._pending, self._history = None, [], history
        if answer is None or _is_empty(answer):
            return
        is_asked = bool(asked) and asked[-1]["role"] != "assistant"
        if is_asked and any(message["role"] == "user" for message in asked):
            name = self._key if isinstance(self._key, str) else None
            self._session.steps.append(RecordedStep(self._times.next(self._at), tuple(asked), answer, name))


def _is_empty(answer: Json) -> bool:
    return answer["content"] is None and "tool_calls" not in answer


def _paired(answer: Json, pending: Sequence[Json]) -> list[Json]:
    results = {each["tool_call_id"]: each for each in reversed(pending) if each["role"] == "tool"}
    calls = [call["id"] for call in answer.get("tool_calls", ())]
    found = [results.get(name) or {"role": "tool", "tool_call_id": name, "content": NOT_RECORDED} for name in calls]
    return [*found, *(each for each in pending if each["role"] != "tool")]


def call_of(call_id: str, name: str, arguments: str) -> Json:
    """Returns a tool call in the format of chat completions."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tools_of(steps: Sequence[RecordedStep]) -> list[Json]:
    """Returns definitions, with names alone, of the tools that a session calls: transcripts seldom have them."""
    names = {call["function"]["name"] for step in steps for call in _calls(step.answer)}
    parameters = {"type": "object", "properties": {}}
    return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in sorted(names)]


def _calls(message: Json) -> list[Json]:
    """Lists the calls of an answer that have an id and the name of a function."""
    return [call for call in dicts_of(message.get("tool_calls")) if _is_call(call)]


def _is_call(call: Json) -> bool:
    function = call.get("function")
    return isinstance(call.get("id"), str) and isinstance(function, dict) and isinstance(function.get("name"), str)


def text_in(content: Any) -> str:
    """Joins the texts of a content, which is a text or parts; "" if it has none."""
    return "\n".join(texts_of(content))


def seconds_of(value: Any) -> float | None:
    """Parses a transcript's time, ISO or in seconds or milliseconds, into Unix seconds; None if it is no time."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e14:
        return value / 1000 if value > 1e11 else float(value)
    return None


CLAUDE_CODE = "claude-code"
SPEAKING_LINES = ("user", "assistant")


class ClaudeCodeTranscripts:
    """Reads transcripts of Claude Code: a line of JSON for each message, and for each block of an answer."""

    def is_transcript(self, lines: Sequence[Json]) -> bool:
        """Returns whether the lines of a file are a transcript of Claude Code."""
        return any("sessionId" in line and ("uuid" in line or "leafUuid" in line) for line in lines)

    def sessions(self, name: str, lines: Iterable[Json]) -> list[RecordedSession]:
        """Returns the session of a file, and one for each sub-agent in it. Leaves out thoughts: only their provider can
        read them."""
        branches: dict[str | None, _Branches] = {}
        agents: dict[str, str] = {}
        for line in lines:
            said = line.get("message")
            is_said = line.get("type") in SPEAKING_LINES and isinstance(said, dict) and line.get("isMeta") is not True
            if not is_said and "uuid" not in line:  # titles, snapshots of files
                continue
            agent = _agent(line, agents)
            if is_said and agent not in branches:
                title = name if agent is None else f"{name}:agent-{len(branches)}"
                branches[agent] = _Branches(SessionRecorder(title, CLAUDE_CODE))
            if agent in branches:
                branches[agent].follow(line)
            if is_said and isinstance(said, dict):
                _add_line(branches[agent].recorder, line, said)
        found = [each.recorder.done() for each in branches.values()]
        return [session for session in found if session.steps]


class _Branches:
    """Follows a client that goes back and says something else: a prompt that comes after an older line than the last
    prompt goes on from what was said there."""

    def __init__(self, recorder: SessionRecorder) -> None:
        self.recorder = recorder
        self._prompt, self._prompts = 0, 0
        self._prompt_of: dict[str, int] = {}
        """The latest prompt up to a line, 0 before the first."""
        self._left: dict[int, list[Json]] = {0: []}
        """The history behind a prompt, when the client went on from there or left it."""

    def follow(self, line: Json) -> None:
        """Moves to where a line continues; before the line itself is recorded."""
        parent = line.get("parentUuid", "")
        behind = self._prompt_of.get(str(parent), self._prompt)
        if _is_prompt(line):
            self._left[self._prompt] = self.recorder.history
            behind = 0 if parent is None else behind
            if behind != self._prompt and not line.get("isCompactSummary"):  # which replaces the history itself
                self.recorder.begin_anew(*self._left[behind])
            self._prompts += 1
            self._prompt = behind = self._prompts
        self._prompt_of[str(line.get("uuid"))] = behind


def _is_prompt(line: Json) -> bool:
    """Returns whether a person said it: results of calls at once follow older lines, too."""
    said = line.get("message")
    if line.get("type") != "user" or not isinstance(said, dict) or line.get("isMeta") is True:
        return False
    return not any(_is(block, "tool_result") for block in parts_of(said.get("content")))


def _agent(line: Json, agents: dict[str, str]) -> str | None:
    """Returns the sub-agent of a line, by its name or its first line; None for the main agent."""
    if line.get("isSidechain") is not True:
        return None
    before = agents.get(str(line.get("parentUuid")))
    agent = str(line.get("agentId") or before or line.get("uuid"))
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
CODEX_CONTEXT = ("<", "# AGENTS.md")
"""How messages begin that Codex writes itself as the user."""
CODEX_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


class CodexTranscripts:
    """Reads rollouts of Codex: a line of JSON for each item of its Responses, as they came."""

    def is_transcript(self, lines: Sequence[Json]) -> bool:
        """Returns whether the lines of a file are a transcript of Codex."""
        return any(line.get("type") in ("session_meta", "response_item") and "payload" in line for line in lines)

    def sessions(self, name: str, lines: Iterable[Json]) -> list[RecordedSession]:
        """Returns the session of a file. Leaves out reasoning: it is encrypted."""
        recorder, system, number = SessionRecorder(name, CODEX), None, 0
        before: list[list[Json]] = []  # the history before each turn
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
                said = [each for one in dicts_of(item.get("replacement_history")) if (each := _said_by(one))]
                if not said and isinstance(item.get("message"), str):
                    said = [{"role": "user", "content": item["message"]}]
                recorder.begin_anew(*([system] if system else []), *said)
            elif item.get("type") == "thread_rolled_back":
                turns = item.get("num_turns")
                if isinstance(turns, int) and 0 < turns <= len(before):
                    recorder.begin_anew(*before[-turns])
                    del before[-turns:]
            elif kind == "response_item":
                is_answer = _is_answer(item)
                if item.get("role") == "user" and not text_in(item.get("content")).startswith(CODEX_CONTEXT):
                    before.append(recorder.history)
                number += not is_answer  # any entry of the client ends the answer before it
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
    """Returns the client's message in an item; None if it is not the client's or cannot be sent."""
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
    """Reads transcripts in OpenAI's format: a list of messages, or request bodies in their order."""

    def is_transcript(self, lines: Sequence[Json]) -> bool:
        """Returns whether the objects of a file are messages or request bodies of OpenAI."""
        return any(isinstance(line.get("messages"), list) or ("role" in line and "content" in line) for line in lines)

    def sessions(self, name: str, lines: Iterable[Json]) -> list[RecordedSession]:
        """Returns the session of a file; for request bodies, one session for each `session` that they name."""
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
    """Builds a session from all its messages: each answer follows from the messages before it."""
    recorder = SessionRecorder(name, OPENAI_CHATS)
    for number, message in enumerate(messages):
        at = _time_of(message)
        said = {key: value for key, value in message.items() if key not in CHAT_TIMES}
        if said.get("role") == "assistant":
            recorder.answer(number, at, text_in(said.get("content")) or None, _calls(said))
        elif isinstance(said.get("role"), str) and (
            said["role"] != "tool" or isinstance(said.get("tool_call_id"), str)
        ):
            recorder.say(said)
    session = recorder.done()
    return [session] if session.steps else []


def _of_bodies(name: str, bodies: Sequence[Json]) -> RecordedSession:
    """Builds a session from its requests. A missing answer is taken from the next request's first new message."""
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
    given = answer if isinstance(answer, dict) else {}
    text, calls = text_in(given.get("content")), _calls(given)
    if not (text or calls):
        return {"role": "assistant", "content": NOT_RECORDED}
    fields = {k: v for k, v in given.items() if k not in (*CHAT_TIMES, "role", "content", "tool_calls")}
    return {"role": "assistant", **fields, "content": text or None, **({"tool_calls": calls} if calls else {})}


def _time_of(value: Json) -> float | None:
    return next((at for name in CHAT_TIMES if (at := seconds_of(value.get(name))) is not None), None)


TranscriptReader = ClaudeCodeTranscripts | CodexTranscripts | ChatTranscripts
READERS: tuple[TranscriptReader, ...] = (ClaudeCodeTranscripts(), CodexTranscripts(), ChatTranscripts())


def transcripts(folder: Path) -> list[Path]:
    """Finds the files below a folder that may be transcripts; for a file, returns that file.
    Raises ValueError: there is no such folder, or it has no such files."""
    try:
        is_file, is_folder = folder.is_file(), folder.is_dir()
    except OSError as error:  # such as a name that is too long
        raise ValueError(f"--replay: {error.strerror}") from None
    if is_file:
        return [folder]
    if not is_folder:
        raise ValueError(f"--replay: {folder} is no folder")
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(ENDINGS) and path.is_file())
    if not found:
        raise ValueError(f"--replay: {folder} has no file that ends in {' or '.join(ENDINGS)}")
    return found


def read_sessions(path: Path, name: str, tell: Callable[[int], None] = lambda _: None) -> list[RecordedSession]:
    """Reads the sessions of a file. `tell` is called with the number of its lines that are no JSON, if there are any.
    Raises ValueError: it is no transcript; the message gives the reason."""
    lines, broken = _objects(path)
    for reader in READERS:
        if reader.is_transcript(lines):
            found = reader.sessions(name, lines)
            if broken:
                tell(broken)
            if not found:
                raise ValueError("has no answered request")
            return found
    raise ValueError("is no transcript of Claude Code, Codex or OpenAI's messages")


def _objects(path: Path) -> tuple[list[Json], int]:
    """Returns the objects of a file, those of its single JSON value or of its lines, and the number of lines that are
    no JSON. The incomplete last line of a running session is not counted."""
    text, broken = _text(path), 0
    with suppress(ValueError):
        value = jsons.loads(text)
        return list(dicts_of(value if isinstance(value, list) else [value])), 0
    values: list[Any] = []
    *lines, last = text.split("\n")
    for line in filter(str.strip, lines):
        try:
            values.append(jsons.loads(line))
        except ValueError:
            broken += 1
    with suppress(ValueError):
        values.append(jsons.loads(last))
    return list(dicts_of(values)), broken


def _text(path: Path) -> str:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (EOFError, zlib.error) as error:
        raise ValueError("is damaged") from error
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"has more than {MAX_FILE_BYTES} bytes")
    return content.decode(json.detect_encoding(content), "replace").removeprefix("\ufeff")
