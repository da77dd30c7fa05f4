"""Structured logs on stderr, without content and without keys: lines for people on a terminal, elsewhere JSON.

The standard library's logging with a formatter of our own: structlog costs a tenth of a second at import.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from gateway.core.instrumentation.log_lines import TextLine, json_line

Line = Callable[[float, str, str, str, dict[str, Any]], str]
"""Makes a line of when, level, logger, event and fields."""
Fields = Callable[[], dict[str, Any]]
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
QUIET = ("httpx", "httpcore", "uvicorn.access", "uvicorn.error", "alembic", "asyncio", "aiohttp")


class EventLogger:
    """A logger that takes an event's name and its fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: Any) -> None:
        """What happened as it should."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        handlers = self._logger.root.handlers
        if len(handlers) == 1 and isinstance(handlers[0], LineHandler):
            handlers[0].write("info", self._logger.name, event, fields)
        else:
            self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """What an operator should know of."""
        self._logger.warning(event, extra={"fields": fields})

    def failure(self, event: str, **fields: Any) -> None:
        """What ended the work, said in its fields."""
        self._logger.error(event, extra={"fields": fields})

    def fault(self, event: str, error: BaseException, **fields: Any) -> None:
        """What should not have happened, with the fault's traceback."""
        self._logger.error(event, extra={"fields": fields}, exc_info=error)


def get_logger(name: str) -> EventLogger:
    return EventLogger(name)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes each record as a line (with what stands below it), by `line` of `core.instrumentation.lines`."""

    def __init__(self, stream: TextIO, line: Line) -> None:
        super().__init__(stream)
        self._line = line
        self.also: Fields | None = None
        """Tells fields of every line, where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        if self.also is not None:
            fields |= self.also()
        return self._line(record.created, record.levelname.lower(), record.name, record.getMessage(), fields)

    def write(self, level: str, name: str, event: str, fields: dict[str, Any]) -> None:
        """Does what `emit` does without making a record: this writes the line of every request."""
        if self.also is not None:
            fields = {**fields, **self.also()}
        try:
            self.stream.write(self._line(time.time(), level, name, event, fields) + "\n")
        except (OSError, ValueError):  # a closed log is no reason not to answer
            return


def tell_also(fields: Fields) -> None:
    """Adds these fields, such as the id of a trace, to every line from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineHandler):
            handler.also = fields


def configure(level: str, form: str = "auto", *, colour: bool = True) -> None:
    """Sends the gateway's own logs and those of its libraries the same way.
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
