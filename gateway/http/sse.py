"""Server-sent events as chat clients take them: `data:` alone, never a name (contract §6)."""

from gateway import jsons

EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def event(data: object) -> bytes:
    """One event."""
    return b"data: " + jsons.dumps(data) + b"\n\n"
