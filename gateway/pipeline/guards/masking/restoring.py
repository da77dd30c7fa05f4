"""Puts the values of a request back in its answer, also where a placeholder comes in pieces."""

import re
from collections.abc import Callable
from typing import Any

from gateway.core.types.items import ITEM_ORDER
from gateway.pipeline.guards.masking.placeholders import DIGEST_CHARS, PlaceholderMap

Json = dict[str, Any]
KIND = r"[A-Z][A-Z0-9_]{0,15}"
BEGUN = rf"(?:{KIND}(?:_[a-z2-7]{{0,{DIGEST_CHARS}}})?)?"
MAY_BEGIN = re.compile(rf"<{BEGUN}\Z")
"""The end of a text that may be the beginning of a placeholder."""
MAY_BEGIN_IN_JSON = re.compile(
    rf"(?:(?:<|\\u003[cC])(?:{BEGUN}|{KIND}_[a-z2-7]{{{DIGEST_CHARS}}}\\(?:u(?:0(?:03?)?)?)?)|\\(?:u(?:0(?:03?)?)?)?)\Z"
)
LONGEST = 64
"""Characters of an end that may be held back."""
TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
OF_JSON = ("content", "text", ITEM_ORDER)
"""Fields through which a text is reached that is JSON as a whole."""


def answers_json(body: Json) -> bool:
    """Whether the texts of the answer to a body are JSON, which they have to stay."""
    wanted = body.get("response_format")
    return isinstance(wanted, dict) and wanted.get("type") in ("json_object", "json_schema")


def restored(value: Any, vault: PlaceholderMap, name: str = "", *, is_json: bool = False) -> Any:
    """A whole message, or a part of it, with the values in place. `is_json`: its `content` is a JSON text."""
    if isinstance(value, str):
        return vault.unmask_json(value) if name == "arguments" or is_json else vault.unmask(value)
    if isinstance(value, list):
        return [restored(each, vault, name, is_json=is_json) for each in value]
    if isinstance(value, dict):
        return {key: restored(each, vault, key, is_json=is_json and key in OF_JSON) for key, each in value.items()}
    return value


class TextRestorer:
    """Restores one text that comes in pieces. It holds back only what may be the beginning of a placeholder."""

    def __init__(self, vault: PlaceholderMap, *, is_json: bool = False) -> None:
        self._put_back: Callable[[str], str] = vault.unmask_json if is_json else vault.unmask
        self._may_begin = MAY_BEGIN_IN_JSON if is_json else MAY_BEGIN
        self._held = ""

    def push(self, piece: str) -> str:
        """What can be told by now."""
        text = self._held + piece
        start = max(0, len(text) - LONGEST)
        begun = self._may_begin.search(text, start)
        cut = begun.start() if begun else len(text)
        self._held = text[cut:]
        return self._put_back(text[:cut])

    def rest(self) -> str:
        """What was held back: nothing more comes."""
        rest, self._held = self._held, ""
        return self._put_back(rest)


class ChoiceRestorer:
    """Restores one choice of a streamed answer, delta by delta. `is_json`: its `content` is a JSON text."""

    def __init__(self, vault: PlaceholderMap, *, is_json: bool = False) -> None:
        self._vault = vault
        self._is_json = is_json
        self._texts: dict[str, TextRestorer] = {}
        self._thought: TextRestorer | None = None
        self._calls: dict[tuple[int, str], TextRestorer] = {}

    def delta(self, delta: Json) -> Json:
        """The delta with what of it can be told by now."""
        found: Json = {}
        for name, value in delta.items():
            if name in TEXTS and isinstance(value, str):
                known = self._texts.setdefault(
                    name, TextRestorer(self._vault, is_json=self._is_json and name == "content")
                )
                found[name] = known.push(value)
            elif name == "tool_calls" and isinstance(value, list):
                found[name] = [self._call(each, place) for place, each in enumerate(value)]
            elif name == "thinking_blocks" and isinstance(value, list):
                found[name] = [part for block in value for part in self._thoughts(block)]
            else:
                found[name] = restored(value, self._vault, name, is_json=self._is_json and name == ITEM_ORDER)
        return found

    def rest(self, upto: Json | None = None) -> Json:
        """A delta of what was held back of all that `upto`, the next one, does not go on with; {} if there is none.
        A delta that says nothing ends nothing; None: there is no next one."""
        if upto is not None and not any(upto.get(name) for name in (*TEXTS, "tool_calls", "thinking_blocks")):
            return {}
        upto = upto or {}
        found: Json = {}
        for name, text in self._texts.items():
            if not isinstance(upto.get(name), str) and (said := text.rest()):
                found[name] = said
        going_on = {each.get("index", n) for n, each in enumerate(upto.get("tool_calls") or ()) if type(each) is dict}
        for (index, name), text in self._calls.items():
            if index not in going_on and (said := text.rest()):
                part = {"custom": {"input": said}} if name == "input" else {"function": {"arguments": said}}
                found.setdefault("tool_calls", []).append({"index": index, **part})
        if self._thought is not None and "thinking_blocks" not in upto and (said := self._thought.rest()):
            found["thinking_blocks"] = [{"type": "thinking", "thinking": said, "signature": None}]
        return found

    def _call(self, call: Any, place: int) -> Any:
        if not isinstance(call, dict):
            return call
        index = call.get("index", place)
        found = dict(call)
        for part, name in (("function", "arguments"), ("custom", "input")):
            said = call.get(part)
            if isinstance(said, dict) and isinstance(said.get(name), str):
                known = self._calls.setdefault((index, name), TextRestorer(self._vault, is_json=name == "arguments"))
                found[part] = {**said, name: known.push(said[name])}
        return found

    def _thoughts(self, block: Any) -> list[Any]:
        """The block, behind what was held back of a thought that it ends: a signature comes after its text."""
        if not isinstance(block, dict) or not isinstance(block.get("thinking"), str):
            return [restored(block, self._vault)]
        self._thought = self._thought or TextRestorer(self._vault)
        told = {**block, "thinking": self._thought.push(block["thinking"])}
        if block.get("signature") is None:
            return [told]
        rest = self._thought.rest()
        if told["thinking"]:
            return [{**told, "thinking": told["thinking"] + rest}]
        return [{**block, "thinking": rest, "signature": None}, told] if rest else [told]
