"""An upstream's answer as OpenAI's protocol has it, made so once, at the edge (guarantee §1.9, §6.5): a failure that
it tells is one, tool calls are whole, halves of characters are joined, and usage has no figures that cannot be true."""

import re
from collections.abc import Mapping
from typing import Any

from gateway.core import jsons
from gateway.core.errors import UpstreamError, UpstreamInvalidResponse
from gateway.core.formats.tool_calls import CallIds, CallPieces, whole_calls, written
from gateway.core.types.bill import sound
from gateway.core.types.chat import ModelDeployment, as_parts
from gateway.upstream.openai.error_bodies import refusal, status_of

Json = dict[str, Any]
GIVEN_UP = ("abort", "cancelled", "canceled", "malformed_function_call")
FAILED = frozenset(("error", "network_error", "insufficient_system_resource", *GIVEN_UP))
"""Finish reasons of answers that their makers gave up: OpenRouter's and vLLM's, Zhipu's, DeepSeek's, SGLang's, those of
gateways, Gemini's."""
UNSHAPED = ("detail", "message", "errors", "error_msg")
"""What proxies and frameworks say of a failure in place of an answer, the first that is there."""
ANSWERS = frozenset(("id", "object", "choices", "usage", "type"))
"""Fields of which an answer, or a piece of one, has some."""
MAX_CHOICES = 128
ESCAPE = b"\\u"
ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""How JSON writes a half of a surrogate pair, or a whole one."""
LEGACY = "function_call"
"""Field and finish reason of calls as they were made before there were tools."""
LEGACY_PLACE = 0
THINKING, THOUGHTS = "thinking", "reasoning_content"
"""The type of a part, and its field, in which Mistral's models think; and the field that holds all others' thoughts."""
TEXT_PART_FIELDS = {"type", "text"}
"""The fields of a part that is a text and nothing else."""


def failure_in(said: Mapping[str, Any]) -> Json | None:
    """The error that a whole answer, or a chunk, tells, in whatever form; None if it tells none."""
    choices = said.get("choices")
    choices = choices if isinstance(choices, list) else ()
    if "error" in said and _is_told(said["error"]):
        return {"error": said["error"]} if any(isinstance(choice, dict) for choice in choices) else dict(said)
    is_error = said.get("object") == "error" or said.get("type") == "error"
    if is_error and not any(isinstance(choice, dict) for choice in choices):
        return {"error": {k: v for k, v in said.items() if k != "object"}}
    is_answer = "choices" in said or ANSWERS & said.keys()
    if not is_answer and (words := next((said[name] for name in UNSHAPED if said.get(name)), None)):
        text = words if isinstance(words, str) else jsons.dumps_text(words)
        return {"error": {**{k: said[k] for k in ("code", "status") if k in said}, "message": text}}
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        if "error" in choice and _is_told(choice["error"]):
            return {"error": choice["error"]}
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason.lower() in FAILED:
            text = f"The upstream gave up its answer: {reason}."
            return {"error": {"message": text, "type": "upstream_error", "param": None, "code": reason}}
    return None


def fault_of(told: Json, deployment: ModelDeployment, headers: Mapping[str, str] | None = None) -> UpstreamError:
    """The fault for an error that an answer of a good status tells."""
    return refusal(200, jsons.dumps(told), headers or {}, deployment)


def check_choices(choices: Any, part: str) -> None:
    """Checks what all later steps rely on; a choice without an index gets its position, and what stands as a message in
    a stream is a delta.
    `part`: `message` or `delta`.
    Raises UpstreamInvalidResponse: choices, their messages or tool calls are not what OpenAI's protocol says."""
    if not isinstance(choices, list):
        raise UpstreamInvalidResponse("The upstream's choices are no list.")
    for position, choice in enumerate(choices):
        message = choice.get(part) if isinstance(choice, dict) else False
        if message is None:
            if part == "message":
                raise UpstreamInvalidResponse("The upstream's answer holds a choice without a message.")
            if "message" in choice and "delta" not in choice:
                message = choice["delta"] = choice.pop("message")
        if message is not None:
            if not isinstance(message, dict):
                raise UpstreamInvalidResponse("The upstream's answer holds a choice that is none.")
            calls = message.get("tool_calls")
            if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
                raise UpstreamInvalidResponse("The upstream's answer holds tool calls that are none.")
        index = choice.get("index")
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            choice["index"] = position


def whole_mended(
    answer: Any,
    body: Mapping[str, Any],
    deployment: ModelDeployment,
    raw: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Json:
    """A whole answer.
    `body`: of the request, in the words of any API; `raw`: the answer's bytes, if they are known.
    Raises UpstreamRefused: it tells a failure. What it says besides may be charged; UpstreamInvalidResponse: it has no
    choices, or some that are none."""
    told = failure_in(answer) if isinstance(answer, dict) else None
    if told is not None:
        fault = fault_of(told, deployment, headers)
        if answer.get("choices"):
            usage = answer.get("usage")
            fault.may_be_charged, fault.usage = True, sound(usage) if isinstance(usage, dict) else None
        raise fault
    if not isinstance(answer, dict) or not answer.get("choices"):
        raise UpstreamInvalidResponse("The upstream's answer holds no choices.")
    check_choices(answer["choices"], "message")
    found: Json = answer
    if raw is None or (ESCAPE in raw and ESCAPED_HALF.search(raw)):
        found = dict(jsons.with_whole_characters(answer))
    for choice in found.get("choices") or ():
        message = choice["message"]
        _mend_words(message)
        if message.get("role"):
            message["role"] = _role(message)
        ids = CallIds()
        legacy = message.get(LEGACY)
        if isinstance(legacy, dict) and not isinstance(legacy.get("arguments", ""), str):
            legacy = message[LEGACY] = {**legacy, "arguments": written(legacy["arguments"] or {})}
        if isinstance(legacy, dict) and _wants_tools(body):
            del message[LEGACY]
            message["tool_calls"] = [*(message.get("tool_calls") or ()), {"function": legacy}]
        if message.get("tool_calls"):
            message["tool_calls"] = whole_calls(message["tool_calls"], ids)
            if choice.get("finish_reason") == LEGACY and not message.get(LEGACY):
                choice["finish_reason"] = "tool_calls"
    if isinstance(found.get("usage"), dict):
        found["usage"] = sound(found["usage"])
    return found


class StreamMender:
    """Mends the chunks of one answer. `fault` is the failure that the last of them told, behind what it said."""

    def __init__(self, deployment: ModelDeployment, body: Mapping[str, Any]) -> None:
        """`body`: of the request, in the words of any API."""
        self.thinks_in_parts = False
        self.fault: UpstreamError | None = None
        self.notice: UpstreamError | None = None
        """What was said in place of an answer, without a status: a failure if the answer does not go on behind it."""
        self._is_ending = False
        self._deployment = deployment
        self._wants_tools = _wants_tools(body)
        self._tools = frozenset(_names(body))
        self._calls: dict[int, CallPieces] = {}
        self._halves: dict[tuple[Any, ...], str] = {}
        """What waits for the other half of its last character, by its choice and its place in the delta."""
        self._legacy_names: set[int] = set()
        self._last: Json = {}

    def mended(self, chunk: Json, raw: bytes | None = None) -> list[Json]:
        """The chunk, or nothing where it tells a failure and says nothing else; its choices have been checked.
        `raw`: its bytes, if they are known."""
        told = failure_in(chunk)
        if told is not None and not (_is_told(chunk.get("error")) or ANSWERS & chunk.keys() or status_of(told)):
            self.notice = None if self._is_ending else fault_of(told, self._deployment)
            return []
        self.notice, self._last = None, chunk
        if told is not None:
            self.fault = fault_of(told, self._deployment)
            choices = chunk.get("choices")
            said = [
                c
                for c in (choices if isinstance(choices, list) else ())
                if any(v for k, v in _delta(c).items() if k != "role")
            ]
            if not said:
                return []
            kept = [{k: v for k, v in c.items() if k != "error"} | {"finish_reason": None} for c in said]
            chunk = {k: v for k, v in chunk.items() if k != "error"} | {"choices": kept}
        if self._halves or raw is None or (ESCAPE in raw and ESCAPED_HALF.search(raw)):
            for choice in chunk.get("choices") or ():
                if choice.get("delta"):
                    choice["delta"] = self._joined(choice["delta"], (choice["index"],))
            chunk = jsons.with_whole_characters(chunk)
        for choice in chunk.get("choices") or ():
            self._mend(choice)
        if isinstance(chunk.get("usage"), dict):
            chunk["usage"] = sound(chunk["usage"])
        return [chunk]

    def rest(self) -> list[Json]:
        """What is still held where an upstream is done without having said why."""
        choices = []
        for index in sorted({*self._calls, *(path[0] for path in self._halves)}):
            choice: Json = {"index": index, "delta": {}, "finish_reason": None}
            self._flush(choice)
            if choice["delta"]:
                choices.append(choice)
        return [{**{k: v for k, v in self._last.items() if k != "usage"}, "choices": choices}] if choices else []

    def _mend(self, choice: Json) -> None:
        delta, index = _delta(choice), choice["index"]
        content = delta.get("content")
        if content is not None and not isinstance(content, str):
            self.thinks_in_parts = self.thinks_in_parts or thinks_in_parts((choice,), "delta")
            _mend_words(delta)
        if delta.get("role"):
            delta["role"] = _role(delta)
        legacy = delta.get(LEGACY)
        if isinstance(legacy, dict):
            self._legacy(index, delta, legacy)
        if delta.get("tool_calls"):
            pieces = self._calls.get(index)
            if pieces is None:
                pieces = self._calls[index] = CallPieces(self._tools)
            delta["tool_calls"] = pieces.mended(delta["tool_calls"])
            if not delta["tool_calls"]:
                del delta["tool_calls"]
        if choice.get("finish_reason"):
            self._is_ending = True
            if choice["finish_reason"] == LEGACY and index in self._calls:
                choice["finish_reason"] = "tool_calls"
            if index in self._calls or self._halves:
                self._flush(choice)

    def _legacy(self, index: int, delta: Json, said: Json) -> None:
        """A piece of a call as it was before there were tools."""
        arguments = said.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            said = {**said, "arguments": written(arguments)}
        if self._wants_tools:
            del delta[LEGACY]
            delta["tool_calls"] = [*(delta.get("tool_calls") or ()), {"index": LEGACY_PLACE, "function": said}]
            return
        if index in self._legacy_names:
            said = {name: value for name, value in said.items() if name != "name" or not value}
        elif said.get("name"):
            self._legacy_names.add(index)
        delta[LEGACY] = said

    def _flush(self, choice: Json) -> None:
        """Puts on a choice what was held of it."""
        index = choice["index"]
        delta = dict(_delta(choice))
        halves = {path: self._halves.pop(path) for path in [*self._halves] if path[0] == index}
        rest = self._calls[index].rest() if index in self._calls else []
        for path in halves:
            if len(path) == 2:
                delta[path[1]] = f"{delta.get(path[1]) or ''}\ufffd"
        if rest:
            delta["tool_calls"] = [*(delta.get("tool_calls") or ()), *rest]
        choice["delta"] = delta

    def _joined(self, value: Any, path: tuple[Any, ...]) -> Any:
        """A delta whose texts begin with the half that came before them, and end with a whole character."""
        if isinstance(value, str):
            text = self._halves.pop(path, "") + value if value else value
            if text and "\ud800" <= text[-1] <= "\udbff":
                self._halves[path], text = text[-1], text[:-1]
            return text
        if isinstance(value, dict):
            return {name: self._joined(each, (*path, name)) for name, each in value.items()}
        if isinstance(value, list):
            return [self._joined(each, (*path, _number(each, n))) for n, each in enumerate(value)]
        return value


def _role(said: Json) -> str:
    """The assistant's, however a server calls it; but what a model repeats of its question is the user's still."""
    return "user" if said.get("role") == "user" else "assistant"


def thinks_in_parts(choices: Any, part: str) -> bool:
    """Whether an answer, or a piece of one, has thoughts as parts of its content, as Mistral's models do."""
    for choice in choices if isinstance(choices, list) else ():
        said = choice.get(part) if isinstance(choice, dict) else None
        content = said.get("content") if isinstance(said, dict) else None
        if isinstance(content, list) and any(map(_is_thought, content)):
            return True
    return False


def with_thoughts_as_parts(body: Json) -> Json:
    """A request's body for an upstream whose answers are like that: it takes their thoughts back so, and not beside."""
    if not any(message.get(THOUGHTS) for message in body["messages"]):
        return body
    return {**body, "messages": [_with_thought(message) for message in body["messages"]]}


def _with_thought(message: Json) -> Json:
    thoughts, content = message.get(THOUGHTS), message.get("content")
    if not isinstance(thoughts, str) or not thoughts or message.get("role") != "assistant":
        return message
    thought = {"type": THINKING, THINKING: [{"type": "text", "text": thoughts}]}
    said = as_parts(content) if content else []
    return {name: value for name, value in message.items() if name != THOUGHTS} | {"content": [thought, *said]}


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == THINKING


def _split_thoughts(said: Json, content: list[Any]) -> list[Any]:
    """Puts the thoughts that stand in a content where all others' are, in place; returns the rest of it."""
    thoughts = [part.get(THINKING) for part in content if _is_thought(part)]
    if not thoughts:
        return content
    pieces = [piece for each in thoughts for piece in (each if isinstance(each, list) else [each])]
    texts = [piece.get("text") if isinstance(piece, dict) else piece for piece in pieces]
    said[THOUGHTS] = "".join([said.get(THOUGHTS) or "", *(text for text in texts if isinstance(text, str))])
    return [part for part in content if not _is_thought(part)]


def _mend_words(said: Json) -> None:
    """Makes a content a string, as all of its readers and the next request want it, without the thoughts in it; parts
    that are no plain texts stay, such as pictures."""
    content = said.get("content")
    if content is None or isinstance(content, str):
        return
    if isinstance(content, list):
        content = said["content"] = _split_thoughts(said, content)
    if not isinstance(content, list):
        said["content"] = written(content)
    elif all(
        isinstance(part, dict) and part.keys() == TEXT_PART_FIELDS and isinstance(part["text"], str) for part in content
    ):
        said["content"] = "".join(part["text"] for part in content)


def says_something(chunk: Json) -> bool:
    """Whether a chunk says more than that an answer begins."""
    return any(choice.get("finish_reason") or _says(choice) for choice in chunk.get("choices") or ())


def _says(choice: Json) -> bool:
    return any(value for name, value in _delta(choice).items() if name != "role")


def _is_told(error: Any) -> bool:
    """Whether an `error` is one: some servers always have the field."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _delta(choice: Json) -> Json:
    delta = choice.get("delta")
    return delta if isinstance(delta, dict) else {}


def _number(entry: Any, position: int) -> int:
    index = entry.get("index") if isinstance(entry, dict) else None
    return index if type(index) is int else position


def _wants_tools(body: Mapping[str, Any]) -> bool:
    """Whether a request knows calls of tools, and not those that were made before there were any."""
    return bool(body.get("tools")) and not body.get("functions")


def _names(body: Mapping[str, Any]) -> list[str]:
    tools = body.get("tools")
    named = [tool.get("function") or tool.get("custom") or tool for tool in tools or () if isinstance(tool, dict)]
    return [each["name"] for each in named if isinstance(each, dict) and isinstance(each.get("name"), str)]
