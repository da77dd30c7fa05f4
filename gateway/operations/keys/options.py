"""The arguments of `gateway keys`, and what they say of a key."""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.core.clock import AGO, AGO_UNITS, parse_when

Json = dict[str, Any]
NAMED = ("tenant", "name", "owner", "project")
LIMITS = {"rpm": "requests a minute", "tpm": "tokens a minute", "concurrent": "requests at once"}
CLEARED = (*NAMED[1:], "roles", "models", "expires_at", "budgets", "limits", "context", "retention_days", "file_bytes")


def add_key_commands(parser: argparse.ArgumentParser) -> tuple[argparse.ArgumentParser, ...]:
    """Adds the commands below `gateway keys`; each has its name in `action`."""
    actions = parser.add_subparsers(required=True, metavar="action", dest="action")
    create = actions.add_parser("create", help="create a key; it is shown once")
    create.add_argument("--quiet", action="store_true", help="print only the key")
    listing = actions.add_parser("list", help="list keys, most recent first")
    listing.add_argument("--tenant", metavar="T", help="those of this tenant")
    listing.add_argument("--owner", metavar="O", help="those of this owner")
    listing.add_argument("--revoked", action="store_true", help="also those that were revoked")
    show = actions.add_parser("show", help="show a key")
    update = actions.add_parser("update", help="change a key's settings")
    clear = f"reset to its default: {', '.join(CLEARED)}"
    update.add_argument("--clear", metavar="FIELD", action="append", choices=CLEARED, help=clear)
    rotate = actions.add_parser("rotate", help="give a key a new secret, which is shown once")
    rotate.add_argument(
        "--grace", metavar="TIME", default="0s", help="how long the old secret stays valid: 1h (at most 7d)"
    )
    rotate.add_argument("--quiet", action="store_true", help="print only the key")
    revoke = actions.add_parser("revoke", help="revoke a key permanently")
    for command in (show, update, rotate, revoke):
        command.add_argument("id", metavar="ID", help="key_…")
    for command in (create, update):
        _add_fields(command, is_new=command is create)
    commands = (create, listing, show, update, rotate, revoke)
    for command in commands:
        form = command.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="one JSON object")
        if command is listing:
            form.add_argument("--csv", action="store_true", help="CSV, one line each")
    return commands


def _add_fields(parser: argparse.ArgumentParser, *, is_new: bool) -> None:
    parser.add_argument("--tenant", metavar="T", required=is_new, help="tenant that it belongs to")
    parser.add_argument("--name", metavar="N", help="what people call it")
    parser.add_argument("--owner", metavar="O", help="who is responsible for it")
    parser.add_argument("--project", metavar="P", help="what it is for")
    parser.add_argument("--role", metavar="R", action="append", help="user (default), viewer or admin; repeatable")
    parser.add_argument(
        "--model", metavar="M", action="append", help="a model that it may ask, as in gpt-*; repeatable"
    )
    parser.add_argument(
        "--expires", metavar="WHEN", help="a date or time (UTC unless it has a zone), or a duration: 12h, 90d"
    )
    parser.add_argument(
        "--budget",
        metavar="USD/PERIOD",
        action="append",
        help="what may be spent: 5/day, 100/month:soft; repeatable",
    )
    for name, text in LIMITS.items():
        parser.add_argument(f"--{name}", metavar="N", type=int, help=f"maximum {text}")
    parser.add_argument(
        "--context",
        metavar="NAME=VALUE",
        action="append",
        help="a default of its requests, as in mode=simple; repeatable",
    )
    parser.add_argument("--file-bytes", metavar="N", type=int, help="bytes of files that may be stored with it")
    parser.add_argument(
        "--retention-days",
        metavar="D",
        type=float,
        help="days without activity after which its conversations are deleted",
    )


def said(options: argparse.Namespace, now: datetime, before: Json | None = None) -> Json:
    """What the arguments say of a key, as a request to the API would.
    `before`: the key's limits and defaults of context, of which those that are not named stay.
    Raises ValueError: an argument cannot be read."""
    found: Json = {name: value for name in NAMED if (value := getattr(options, name)) is not None}
    lists = {"roles": options.role, "models": options.model}
    found |= {name: value for name, value in lists.items() if value}
    if options.expires is not None:
        found["expires_at"] = _expiry(options.expires, now)
    if options.budget:
        found["budgets"] = [_budget(text) for text in options.budget]
    kept = before or {}
    limits = {name: value for name in LIMITS if (value := getattr(options, name)) is not None}
    if limits:
        found["limits"] = {**kept.get("limits", {}), **limits}
    if options.context:
        found["context"] = {**kept.get("context", {}), **dict(map(_pair, options.context))}
    for name in ("retention_days", "file_bytes"):
        if (value := getattr(options, name)) is not None:
            found[name] = value
    return found | dict.fromkeys(getattr(options, "clear", None) or ())


def seconds_of(option: str, text: str) -> float:
    """How long `90s`, `1h` or `7d` is. Raises ValueError: it is no such time."""
    span = AGO.fullmatch(text.strip())
    if span is None:
        raise ValueError(f"{option}: {text!r} is no time as in 30m, 12h, 7d")
    return timedelta(**{AGO_UNITS[span.group(2)]: int(span.group(1))}).total_seconds()


def _expiry(text: str, now: datetime) -> str:
    if AGO.fullmatch(text.strip()):
        return (now + timedelta(seconds=seconds_of("--expires", text))).isoformat()
    at = parse_when("--expires", text, now)
    return (at or now).astimezone(UTC).isoformat()


def _budget(text: str) -> Json:
    amount, _, rest = text.partition("/")
    period, _, kind = rest.partition(":")
    if not amount or not period or kind not in ("", "soft", "hard"):
        raise ValueError(f"--budget: {text!r} does not read USD/PERIOD, as in 5/day, 100/month:soft")
    return {"usd": amount, "period": period, "hard": kind != "soft"}


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--context: {text!r} does not read NAME=VALUE, as in mode=simple")
    return name, value
