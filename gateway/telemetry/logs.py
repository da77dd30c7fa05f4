"""Structured logs: one JSON object a line on stderr, without content and without keys.

The standard library's logging with a formatter of our own: structlog costs a tenth of a second at import.
"""

import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import Any, TextIO

from gateway.base import jsons

SECRETS = re.compile(r"(?i)(bearer\s+|\bsk-|://[^:/@\s]*:(?=[^@/\s]+@))[^\s'\"@,;]+")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
QUIET = ("httpx", "httpcore", "uvicorn.access", "alembic", "asyncio", "aiohttp")


class Log:
    """A logger that takes an event's name and its fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: Any) -> None:
        """What happened as it should."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        handlers = self._logger.root.handlers
        if len(handlers) == 1 and isinstance(handlers[0], JsonHandler):
            handlers[0].write("info", self._logger.name, event, fields)
        else:
            self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """What an operator should know of."""
        self._logger.warning(event, extra={"fields": fields})

    def fault(self, event: str, error: BaseException, **fields: Any) -> None:
        """What should not have happened, with the fault's traceback."""
        self._logger.error(event, extra={"fields": fields}, exc_info=error)


def get_logger(name: str) -> Log:
    """The logger of that name."""
    return Log(name)


class JsonHandler(logging.StreamHandler[TextIO]):
    """One JSON object a record; what looks like a key or a password is masked."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        return _line(record.created, record.levelname.lower(), record.name, record.getMessage(), fields)

    def write(self, level: str, name: str, event: str, fields: dict[str, Any]) -> None:
        """Does what `emit` does without making a record: this writes the line of every request."""
        try:
            self.stream.write(_line(time.time(), level, name, event, fields) + "\n")
        except (OSError, ValueError):  # a closed log is no reason not to answer
            return


def _line(created: float, level: str, name: str, event: str, fields: dict[str, Any]) -> str:
    stamp = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
    text = jsons.dumps_text({"timestamp": stamp, "level": level, "logger": name, "event": event, **fields})
    lower = text.lower()
    if "sk-" in lower or "bearer" in lower or "://" in lower:
        return SECRETS.sub(r"\1***", text)
    return text


def configure(level: str) -> None:
    """Sends the gateway's own logs and those of its libraries the same way."""
    # Not looked up for each record, since nothing here shows them (the standard library's how-to: "Optimization").
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    handler = JsonHandler(sys.stderr)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
