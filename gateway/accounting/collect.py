"""Puts the chunks of a stream together, so that it can be remembered and billed like any other answer."""

from typing import Any

SPLIT_CALLS = 1000


class StreamRecord:
    """What has been delivered so far: choices, usage, finish reasons and upstream's own fields."""

    def __init__(self, choices: int) -> None:
        self._expected = choices
        self._messages: dict[int, dict[str, Any]] = {}
        self._finish: dict[int, Any] = {}
        self._logprobs: dict[int, dict[str, Any]] = {}
        self._envelope: dict[str, Any] = {}
        self.usage: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> None:
        """Takes in a chunk as upstream sent it."""
        for key, value in chunk.items():
            if key not in ("choices", "usage", "object") and value is not None:
                self._envelope[key] = value
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            index = choice["index"]
            message = self._messages.setdefault(index, {"role": "assistant", "content": None})
            _merge(message, choice.get("delta") or {})
            if choice.get("finish_reason"):
                self._finish[index] = choice["finish_reason"]
            logprobs = choice.get("logprobs")
            if isinstance(logprobs, dict):
                _merge_lists(self._logprobs.setdefault(index, {}), logprobs)

    @property
    def finished(self) -> bool:
        """Whether every choice that has begun has its finish reason."""
        return bool(self._finish) and all(index in self._finish for index in self._messages)

    @property
    def complete(self) -> bool:
        """Whether every choice that was asked for has its finish reason."""
        return len(self._finish) >= self._expected

    def missing_finishes(self) -> list[dict[str, Any]]:
        """Finish choices for an upstream that said it was done without saying why."""
        found = []
        for index in sorted(self._messages) or [0]:
            if index not in self._finish:
                calls = self._messages.get(index, {}).get("tool_calls_by_index")
                reason = "tool_calls" if calls else "stop"
                found.append({"index": index, "delta": {}, "finish_reason": reason})
        return found

    @property
    def begun(self) -> bool:
        """Whether anything of an answer has been delivered."""
        return bool(self._messages)

    @property
    def upstream_id(self) -> str | None:
        value = self._envelope.get("id")
        return value if isinstance(value, str) else None

    @property
    def service_tier(self) -> str | None:
        value = self._envelope.get("service_tier")
        return value if isinstance(value, str) else None

    def completion(self) -> dict[str, Any]:
        """The answer as if it had not been streamed."""
        choices = []
        for index in sorted(self._messages):
            message = {k: v for k, v in self._messages[index].items() if k != "tool_calls_by_index"}
            calls = self._messages[index].get("tool_calls_by_index")
            if calls:
                message["tool_calls"] = [{k: v for k, v in calls[i].items() if k != "split"} for i in sorted(calls)]
            choice = {"index": index, "message": message, "finish_reason": self._finish.get(index)}
            choice["logprobs"] = self._logprobs.get(index)
            choices.append(choice)
        return {**self._envelope, "object": "chat.completion", "choices": choices}


def _merge(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if value is None:
            continue
        if key == "tool_calls":
            _merge_calls(message.setdefault("tool_calls_by_index", {}), value)
        elif isinstance(value, str) and isinstance(message.get(key), str) and key != "role":
            message[key] += value
        elif isinstance(value, list) and isinstance(message.get(key), list):
            message[key] = message[key] + value
        elif isinstance(value, dict) and isinstance(message.get(key), dict):
            merged = dict(message[key])
            _merge(merged, value)
            message[key] = merged
        else:
            message[key] = value


def _merge_calls(calls: dict[int, dict[str, Any]], fragments: list[dict[str, Any]]) -> None:
    for position, fragment in enumerate(fragments):
        index = fragment.get("index")
        index = index if isinstance(index, int) else position
        index = _place(calls, index, fragment.get("id"))
        call = calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        for key, value in fragment.items():
            if key == "function" and isinstance(value, dict):
                function = call["function"]
                for name, text in value.items():
                    if text is None:
                        continue
                    known = function.get(name)
                    function[name] = known + text if isinstance(known, str) and isinstance(text, str) else text
            elif key == "id":
                call["id"] = value or call["id"]
            elif key != "index" and value is not None:
                call[key] = value


def _place(calls: dict[int, dict[str, Any]], index: int, call_id: Any) -> int:
    """Where a fragment belongs: some providers send all calls with one index; a new id begins a new call, and what
    follows without an id belongs to the last that began there."""
    if index not in calls or not calls[index]["id"]:
        return index
    later = [i for i in calls if i == index or i >= SPLIT_CALLS]
    if not call_id:
        return later[-1] if calls[index].get("split") else index
    same = next((i for i in calls if calls[i]["id"] == call_id), None)
    if same is not None:
        return same
    calls[index]["split"] = True
    return SPLIT_CALLS + len(calls)


def _merge_lists(target: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, list):
            target[key] = [*(target.get(key) or []), *value]
