"""Structured logs: one JSON object a line on stderr, without content and without keys."""

import logging
import re
import sys
from typing import Any

import structlog

SECRETS = re.compile(r"(?i)(bearer\s+|sk-|://[^:/@\s]+:)[^\s'\"@,;]+")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(level: str) -> None:
    """Sends the gateway's own logs and those of its libraries the same way."""
    shared: list[Any] = [
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
        foreign_pre_chain=shared,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in ("httpx", "httpcore", "uvicorn.access", "alembic", "bm25s"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _without_secrets(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Tracebacks and messages of libraries may quote an address with its password, or a header."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = SECRETS.sub(r"\1***", value)
    return event
