"""Transcripts of Claude Code: a line of JSON for each message, and for each block of an answer."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.core import errors, jsons
from gateway.core.formats.anthropic.request_parser import MessageReader
from gateway.core.types.content import parts_of, texts_of
from gateway.operations.savings.recording import RecordedSession, SessionRecorder, call_of, seconds_of

Json = dict[str, Any]
CLAUDE_CODE = "claude-code"
SPEAKING_LINES = ("user", "assistant")


def is_transcript(lines: Sequence[Json]) -> bool:
    """Whether these first lines are of one."""
    return any("sessionId" in line and ("uuid" in line or "leafUuid" in line) for line in lines)


def sessions(name: str, lines: Iterable[Json]) -> list[RecordedSession]:
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
        _add(recorders[agent], line, message)
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


def _add(recorder: SessionRecorder, line: Json, message: Json) -> None:
    content = message.get("content")
    if line["type"] == "user":
        said = _read({"role": "user", "content": content})
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


def _read(message: Json) -> list[Json]:
    reader = MessageReader()
    try:
        reader.read(message, "message")
    except errors.InvalidRequest:
        return []
    return reader.messages


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind
