"""Structured logs: one JSON object a line on stderr, without content and without keys.

The standard library's logging with a formatter of our own: structlog costs a tenth of a second at import.
"""

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

from gateway import jsons

SECRETS = re.compile(r"(?i)(bearer\s+|\bsk-|://[^:/@\s]*:(?=[^@/\s]+@))[^\s'\"@,;]+")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
QUIET = ("httpx", "httpcore", "uvicorn.access", "alembic", "bm25s", "asyncio", "aiohttp")


class Log:
    """A logger that takes an event's name and its fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: Any) -> None:
        """What happened as it should."""
        if self._logger.isEnabledFor(logging.INFO):
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


class JsonFormatter(logging.Formatter):
    """One JSON object a record; whatever looks like a key or a password is blotted out."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return SECRETS.sub(r"\1***", jsons.dumps_text(line))


def configure(level: str) -> None:
    """Sends the gateway's own logs and those of its libraries the same way."""
    # What each record would look up and nothing here shows (see "Optimization" in the standard library's how-to).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
