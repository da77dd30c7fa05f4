"""Logs on stderr, without content and without keys: lines for people on a terminal, elsewhere JSON with the same
fields.

The standard library's logging with a formatter of our own: structlog costs a tenth of a second at import."""

import logging
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TextIO

from gateway.core import jsons

SECRETS = re.compile(r"(?i)(bearer\s+|\bsk-|://[^:/@\s]*:(?=[^@/\s]+@))[^\s'\"@,;]+")
RED, YELLOW, GREEN, DIM, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[2m", "\x1b[0m"
OF_LEVELS = {"error": RED, "critical": RED, "warning": YELLOW}
IN_WORDS = frozenset(
    {
        *("method", "path", "status", "duration_ms", "request_id", "stream", "tenant", "model", "prompt_tokens"),
        *("completion_tokens", "cost", "strategy", "conversation_id", "error_code", "reason"),
        "upstream",
    }
)
"""Fields of a request's line that are not shown as `name=value`: they have a fixed place, or are in JSON only."""


def json_line(created: float, level: str, name: str, event: str, fields: dict[str, Any]) -> str:
    """Renders a line as one JSON object; what looks like a key or a password is masked."""
    stamp = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
    return masked(jsons.dumps_text({"timestamp": stamp, "level": level, "logger": name, "event": event, **fields}))


class TextLine:
    """Renders lines for people: local time, level, event, fields. `colour`: the output is a terminal that shows it."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, created: float, level: str, name: str, event: str, fields: dict[str, Any]) -> str:
        """Renders the line, and below it a traceback, if there is one."""
        rest = dict(fields)
        traceback = rest.pop("exception", "")
        if event == "request" and "method" in rest:
            text = self._request(rest)
        elif event == "serving" and "host" in rest:
            text = _serving(rest)
        else:
            text = _printable(event if name.startswith("gateway") else f"{name}: {event}")
        shown = masked("  ".join([text, *_pairs(rest)]))
        stamp = self._painted(datetime.fromtimestamp(created, UTC).astimezone().strftime("%H:%M:%S"), DIM)
        label = self._painted(f"{level.upper():<7}", OF_LEVELS.get(level, ""))
        return f"{stamp} {label} {shown}" + (f"\n{masked(traceback)}" if traceback else "")

    def _request(self, fields: dict[str, Any]) -> str:
        """Renders a request; removes from `fields` what it shows."""
        found = {name: fields.pop(name, None) for name in IN_WORDS}
        status = found["status"] or 0
        colour = GREEN if status < 400 else YELLOW if status < 500 else RED
        parts = [
            _duration(found["duration_ms"] or 0.0),
            found["model"],
            "stream" if found["stream"] else None,
            _tokens(found["prompt_tokens"], found["completion_tokens"]),
            None if found["prompt_tokens"] is None else _cost(found["cost"]),
            found["strategy"],
            found["conversation_id"],
        ]
        if found["error_code"]:
            reason = f": {found['reason']}" if found["reason"] else ""
            parts.append(f"{found['error_code']}{reason} ({found['request_id']})")
        asked = _printable(f"{found['method']} {found['path']}")
        return "  ".join([f"{asked} {self._painted(str(status), colour)}", *(_printable(p) for p in parts if p)])

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._colour and colour else text


def masked(text: str) -> str:
    """Masks what looks like a key or a password in a text."""
    lower = text.lower()
    return SECRETS.sub(r"\1***", text) if "sk-" in lower or "bearer" in lower or "://" in lower else text


def _serving(fields: dict[str, Any]) -> str:
    host, port = fields.pop("host"), fields.pop("port")
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    count, named, upstream = (fields.pop(name, None) for name in ("models", "model_names", "upstream"))
    served = f"models: {named}" if count else f"every model by {upstream}"
    page = f", page {address}{path}" if (path := fields.pop("page", None)) else ""
    return _printable(f"serving on {address}, version {fields.pop('version')}, {served}{page}")


def _duration(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def _tokens(prompt: int | None, completion: int | None) -> str | None:
    return None if prompt is None else f"{prompt:,}+{completion or 0:,} tokens"


def _cost(cost: Decimal | float | None) -> str:
    if cost is None:
        return "price unknown"
    digits = f"{Decimal(str(cost)):f}"
    return f"${digits.rstrip('0').rstrip('.') if '.' in digits else digits}"


def _pairs(fields: dict[str, Any]) -> list[str]:
    shown = ((name, value if isinstance(value, str) else jsons.dumps_text(value)) for name, value in fields.items())
    return [_printable(f"{name}={value}") for name, value in shown]


def _printable(text: str) -> str:
    """Escapes control characters: text from a client must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


Line = Callable[[float, str, str, str, dict[str, Any]], str]
"""Renders a line from time, level, logger, event and fields."""
Fields = Callable[[], dict[str, Any]]
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
QUIET = ("httpx", "httpcore", "uvicorn.access", "uvicorn.error", "alembic", "asyncio", "aiohttp")


class EventLogger:
    """A logger that takes an event's name and its fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: Any) -> None:
        """Logs an event of normal operation."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        handlers = self._logger.root.handlers
        if len(handlers) == 1 and isinstance(handlers[0], LineHandler):
            handlers[0].write("info", self._logger.name, event, fields)
        else:
            self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Logs what an operator should know of."""
        self._logger.warning(event, extra={"fields": fields})

    def failure(self, event: str, **fields: Any) -> None:
        """Logs what ended the work; the fields describe it."""
        self._logger.error(event, extra={"fields": fields})

    def fault(self, event: str, error: BaseException, **fields: Any) -> None:
        """Logs an unexpected error, with its traceback."""
        self._logger.error(event, extra={"fields": fields}, exc_info=error)


def get_logger(name: str) -> EventLogger:
    return EventLogger(name)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes each record as a line, with a traceback below it if there is one; `line` renders it."""

    def __init__(self, stream: TextIO, line: Line) -> None:
        super().__init__(stream)
        self._line = line
        self.also: Fields | None = None
        """Returns fields to add to every line; None if there are none."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        if self.also is not None:
            fields |= self.also()
        return self._line(record.created, record.levelname.lower(), record.name, record.getMessage(), fields)

    def write(self, level: str, name: str, event: str, fields: dict[str, Any]) -> None:
        """Writes a line as `emit` does, but without a record: this writes the line of every request."""
        if self.also is not None:
            fields = {**fields, **self.also()}
        try:
            self.stream.write(self._line(time.time(), level, name, event, fields) + "\n")
        except (OSError, ValueError):  # a closed log must not stop an answer
            return


def tell_also(fields: Fields) -> None:
    """Adds fields, such as the id of a trace, to every line from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineHandler):
            handler.also = fields


def configure(level: str, form: str = "auto", *, colour: bool = True) -> None:
    """Configures logging for the gateway and its libraries alike.
    `form`: `text`, `json`, or `auto`: text if the log is a terminal; `colour`: whether text may be coloured, if the log
    is a terminal."""
    # Not looked up for each record, since nothing here shows them (the standard library's how-to: "Optimization").
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    is_terminal = sys.stderr.isatty()
    as_text = form == "text" or (form == "auto" and is_terminal)
    handler = LineHandler(sys.stderr, TextLine(colour=colour and is_terminal) if as_text else json_line)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
