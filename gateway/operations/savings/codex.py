"""Rollouts of Codex: a line of JSON for each item of its Responses, as they came."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.core import jsons
from gateway.operations.savings.recording import RecordedSession, SessionRecorder, call_of, seconds_of, text_in

Json = dict[str, Any]
CODEX = "codex"
CODEX_ROLES = {"user": "user", "developer": "developer", "system": "system"}
CODEX_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


def is_transcript(lines: Sequence[Json]) -> bool:
    """Whether these first lines are of one."""
    return any(line.get("type") in ("session_meta", "response_item") and "payload" in line for line in lines)


def sessions(name: str, lines: Iterable[Json]) -> list[RecordedSession]:
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
            said = [each for one in kept if isinstance(one, dict) and (each := _said(one))] if kept else []
            if not said and isinstance(item.get("message"), str):
                said = [{"role": "user", "content": item["message"]}]
            recorder.begin_anew(*([system] if system else []), *said)
        elif kind == "response_item":
            is_answer = _is_answer(item)
            number += not is_answer  # whatever the client says ends the answer before it
            _add(recorder, item, number, seconds_of(line.get("timestamp")))
    session = recorder.done()
    return [session] if session.steps else []


def _is_answer(item: Json) -> bool:
    return item.get("type") in ("reasoning", *CODEX_CALLS) or item.get("role") == "assistant"


def _add(recorder: SessionRecorder, item: Json, number: int, at: float | None) -> None:
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
    elif (said := _said(item)) is not None:
        recorder.say(said)


def _said(item: Json) -> Json | None:
    """What the client says by an item; None for what it does not say, or cannot be sent."""
    if str(item.get("type")).endswith("_output"):
        output = item.get("output")
        if isinstance(output, dict):
            output = output.get("content") or jsons.dumps_text(output)
        return {"role": "tool", "tool_call_id": str(item.get("call_id")), "content": text_in(output)}
    role = CODEX_ROLES.get(str(item.get("role")))
    text = text_in(item.get("content")) if role else ""
    return {"role": role, "content": text} if role and text else None
