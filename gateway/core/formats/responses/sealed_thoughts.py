"""Carries thoughts that Responses has no field for, as Claude's and Gemini's signed ones, in the `encrypted_content` of
reasoning items: a client with `store: false` sends them back, and the model gets them verbatim (guarantee §1.3). Sealed
for one tenant and one model.
"""

from collections.abc import Mapping
from typing import Any

from gateway.core import formats, jsons
from gateway.core.formats.stream_record import merge_delta
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.items import ANTHROPIC_BLOCKS, SEALED, SIGNED, VERBATIM

THOUGHTS_PURPOSE = b"thoughts\0"
OWN_THOUGHTS = "gw."
"""Prefix of the gateway's own `encrypted_content`. Base64 has no dot, so no provider's content begins with it."""
UNSEALED_FIELDS = ("reasoning_content", "reasoning", SIGNED, ANTHROPIC_BLOCKS, *SEALED)


class AnswerThoughts:
    """Thoughts of one answer that are not sealed yet: fields of its message, and of its calls by call id."""

    def __init__(self) -> None:
        self._fields: Json = {}
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[str, Json] = {}
        self._ids: dict[int, str] = {}
        """Ids of calls by the index of their pieces: later pieces have no id."""

    def add(self, delta: Mapping[str, Any]) -> None:
        """Adds those of a message, or of a piece of one. What speaks Responses itself seals its own."""
        if any(delta.get(name) for name in VERBATIM):
            self._fields, self._texts = {}, {}
            return
        for name in UNSEALED_FIELDS:
            if isinstance(value := delta.get(name), str):
                self._texts.setdefault(name, []).append(value)
            elif value:
                merge_delta(self._fields, {name: value})
        for position, call in enumerate(delta.get("tool_calls") or ()):
            call_id = self._ids.setdefault(call.get("index", position), str(call.get("id")))
            found = {name: call[name] for name in SEALED if call.get(name)}
            function = call["function"] if isinstance(call.get("function"), dict) else {}
            if inner := {name: function[name] for name in SEALED if function.get(name)}:
                found["function"] = inner
            if found:
                self._calls[call_id] = found

    def taken(self) -> Json:
        """Returns them, and forgets them; empty if there are none. Blocks that lack their signature stay."""
        texts = {name: text for name, pieces in self._texts.items() if (text := "".join(pieces))}
        fields, calls = {**texts, **self._fields}, self._calls
        self._fields, self._texts, self._calls = {}, {}, {}
        blocks = [*dicts_of(fields.pop(SIGNED, None))]
        for whole, kept in ((True, fields), (False, self._fields)):
            if found := [each for each in blocks if bool(each.get("signature") or each.get("data")) == whole]:
                kept[SIGNED] = found
        return {"fields": fields, "calls": calls} if fields or calls else {}


@record
class ThoughtSealer:
    """Seals an answer's thoughts for its tenant and model, and opens them again."""

    tenant: str
    secret: bytes
    model: Any

    def sealed(self, thoughts: Json) -> str | None:
        """Seals what `AnswerThoughts.taken` returned; None if there is nothing, or more than could be opened again."""
        if not thoughts or len(text := jsons.dumps(thoughts)) > formats.MAX_OPENED_BYTES:
            return None
        return OWN_THOUGHTS + formats.seal(self.secret, self._purpose, text)

    def with_thoughts(self, items: list[Json], message: Mapping[str, Any], item_id: str) -> list[Json]:
        """Adds the sealed thoughts of a whole message to its first reasoning item, else to a new one in front."""
        thoughts = AnswerThoughts()
        thoughts.add(message)
        sealed = self.sealed(thoughts.taken())
        if sealed is None:
            return items
        at = next((n for n, item in enumerate(items) if item["type"] == "reasoning"), None)
        if at is None:
            new = {"id": item_id, "type": "reasoning", "summary": [], "status": "completed"}
            items, at = [new, *items], 0
        return [*items[:at], {**items[at], "encrypted_content": sealed}, *items[at + 1 :]]

    def opened(self, item: Json) -> "Json | OpenedThoughts":
        """Opens a reasoning item of the gateway's own. Of one that is another tenant's or model's, or was changed, only
        what is readable stays."""
        content = item["encrypted_content"].removeprefix(OWN_THOUGHTS)
        text = formats.unsealed(self.secret, self._purpose, content)
        return readable(item) if text is None else OpenedThoughts(**jsons.loads(text))

    @property
    def _purpose(self) -> bytes:
        return THOUGHTS_PURPOSE + jsons.canonical([self.tenant, self.model])


@record
class OpenedThoughts:
    """An item of `input` as `AnswerThoughts.taken` returned it: fields of its message, and of its calls by call id."""

    fields: Json
    calls: dict[str, Json]

    def put_into(self, message: Json) -> None:
        """Adds the fields to their message and its calls, after those that these have."""
        merge_delta(message, self.fields)
        for call in message.get("tool_calls") or ():
            merge_delta(call, self.calls.get(str(call.get("id")), {}))


def is_own_thought(item: Any) -> bool:
    """Returns whether an item of `input` holds thoughts that the gateway sealed."""
    if not isinstance(item, dict) or item.get("type") != "reasoning":
        return False
    return str(item.get("encrypted_content")).startswith(OWN_THOUGHTS)


def readable(item: Json) -> Json:
    """Returns a reasoning item without what is sealed in it."""
    return {name: value for name, value in item.items() if name != "encrypted_content"}
