"""What a client sees of a stream: upstream's chunks under the gateway's id, the bill on the last (contract §6)."""

from collections.abc import Callable
from typing import Any

from gateway.accounting.collect import StreamRecord

ENVELOPE = ("created", "model", "system_fingerprint", "service_tier")
OWN = ("id", "object", "created", "model", "choices", "usage")


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

    def push(self, batch: list[dict[str, Any]], known: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """The chunks to send now; what is `known` goes on the first of all."""
        record, sent = self.record, []
        for chunk in batch:
            record.add(chunk)
            if not chunk.get("choices"):
                self._extras.update({k: v for k, v in chunk.items() if k not in OWN and v is not None})
                continue
            out = {**self._extras, **chunk, "id": self._id} if self._extras else {**chunk, "id": self._id}
            self._extras = {}
            if self._include_usage:
                out["usage"] = None
            else:
                out.pop("usage", None)
            if self._first:
                out.update(known())
                self._first = False
            if record.finished and record.complete:
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
            chunk = {**self._named(), "choices": missing}
            self._held.append({**chunk, "usage": None} if self._include_usage else chunk)

    def final(self, known: dict[str, Any], usage: dict[str, Any]) -> list[dict[str, Any]]:
        """The held finish chunk with the whole bill, and the usage chunk if the client asked for one."""
        self.conclude()
        out = list(self._held)
        last = next((n for n in reversed(range(len(out))) if _finishes(out[n])), 0)
        out[last] = {**out[last], **self._extras, **known}
        if self._include_usage:
            metadata = {"response_metadata": known["response_metadata"]}
            out.append({**self._named(), "choices": [], "usage": usage, **metadata})
        return out

    def _named(self) -> dict[str, Any]:
        envelope = {k: v for k, v in self.record.envelope.items() if k in ENVELOPE}
        return {**envelope, "id": self._id, "object": "chat.completion.chunk"}


def _finishes(chunk: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in chunk["choices"])
