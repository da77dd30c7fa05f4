"""What a client sees of a stream: upstream's chunks under the gateway's id, the bill on the last (guarantee §6)."""

from collections.abc import Callable
from typing import Any

from gateway.core.formats.stream_record import StreamRecord

CHUNK_FIELDS = ("id", "object", "created", "model", "choices", "usage")
"""Fields of any chunk. All others of a chunk without choices are passed on with the next one."""
ON_EVERY_CHUNK = ("created", "model", "service_tier", "system_fingerprint")
"""SDKs that put a stream together take these from the last chunk."""


class ChunkRelay:
    """Passes chunks on as they come; only the finish chunk of the last choice is held until usage is known.

    A chunk without choices is never passed on: upstream's own fields in it ride on the next one.
    """

    def __init__(self, completion_id: str, choices: int, include_usage: bool) -> None:
        self.record = StreamRecord(choices)
        self._id = completion_id
        self._include_usage = include_usage
        self._extras: dict[str, Any] = {}
        self._held: list[dict[str, Any]] = []
        self._first = True

    def push(self, batch: list[dict[str, Any]], first_fields: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """The chunks to send now. `first_fields` go on the first of all."""
        record, sent = self.record, []
        for chunk in batch:
            record.add(chunk)
            if not chunk.get("choices"):
                self._extras.update({k: v for k, v in chunk.items() if k not in CHUNK_FIELDS and v is not None})
                continue
            out = {**self._extras, **chunk, "id": self._id} if self._extras else {**chunk, "id": self._id}
            self._extras = {}
            if self._include_usage:
                out["usage"] = None
            else:
                out.pop("usage", None)
            if self._first:
                out.update(first_fields())
                self._first = False
            if record.begun_are_finished and record.asked_are_finished:
                self._held.append(out)
                continue
            if self._held:  # a choice that nobody asked for has begun: none of these was the last finish
                sent += self._held
                self._held = []
            sent.append(out)
        return sent

    def conclude(self) -> None:
        """Upstream is done; makes up for finish chunks that it did not send."""
        missing = self.record.missing_finishes()
        if missing:
            self.record.add({"choices": missing})
        elif not self._held:  # fewer choices than were asked for: the last finish has been sent already
            missing = self.record.last_finish()
        if missing:
            chunk = {**self._bare_chunk(), "choices": missing}
            self._held.append({**chunk, "usage": None} if self._include_usage else chunk)

    def final(self, last_fields: dict[str, Any], usage: dict[str, Any]) -> list[dict[str, Any]]:
        """After `conclude`: the held finish chunk with `last_fields`, which have the whole bill, and the usage chunk if
        the client asked for one."""
        out = list(self._held)
        last = next((n for n in reversed(range(len(out))) if _finishes(out[n])), 0)
        out[last] = {**out[last], **self._extras, **last_fields}
        if self._include_usage:
            metadata = {"response_metadata": last_fields["response_metadata"]}
            out.append({**self._bare_chunk(), "choices": [], "usage": usage, **metadata})
        return out

    def _bare_chunk(self) -> dict[str, Any]:
        envelope = {k: v for k, v in self.record.envelope.items() if k in ON_EVERY_CHUNK}
        return {**envelope, "id": self._id, "object": "chat.completion.chunk"}


def _finishes(chunk: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in chunk["choices"])
