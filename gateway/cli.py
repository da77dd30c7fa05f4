"""The `gateway` command: serve, migrate, check, audit, purge, export, import (guarantee §9)."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from gateway import __version__
from gateway.config.loading import ConfigurationError, load_settings, process_environment
from gateway.config.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 done, 1 failed, 2 the configuration cannot be used."""
    options = _parser().parse_args(arguments)
    environ = process_environment()
    path = options.config or environ.get("GATEWAY_CONFIG")
    overrides = {f"server.{k}": v for k in ("host", "port", "workers") if (v := getattr(options, k, None)) is not None}
    try:
        settings = load_settings(path, environ, overrides)
        if options.run not in (_serve, _check) and not settings.storage_is_named:
            text = f"the storage is the default, {settings.storage.url} in {os.getcwd()}"
            print(f"{text}: another is named by --config or GATEWAY_STORAGE_URL", file=sys.stderr)
        run: int = options.run(settings, options)
        return run
    except (ConfigurationError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gateway", description="A context-managing, OpenAI-compatible gateway.")
    parser.add_argument("--version", action="version", version=f"context-gateway {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    serve = commands.add_parser("serve", help="run the gateway")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (default 8000)")
    serve.add_argument("--workers", type=int, help="processes that serve it (default 1); more need PostgreSQL")
    serve.set_defaults(run=_serve)
    migrate = commands.add_parser("migrate", help="bring the storage's schema up to date")
    migrate.add_argument("--finish", action="store_true", help="also what waits until no older version runs any more")
    migrate.set_defaults(run=_migrate)
    check = commands.add_parser("check", help="validate the configuration and reach what it names")
    check.set_defaults(run=_check)
    audit = commands.add_parser("audit", help="add the ledger up again and say whether all balances")
    _add_audit_options(audit)
    audit.set_defaults(run=_audit)
    purge = commands.add_parser(
        "purge", help="delete conversations that nothing was added to for long, or what a user said"
    )
    _add_purge_options(purge)
    purge.set_defaults(run=_purge)
    export = commands.add_parser("export", help="write a conversation to a file, with all that belongs to it")
    export.add_argument("conversation", metavar="CONVERSATION", help="its id: conv_…")
    export.add_argument("--tenant", metavar="T", help="only if it is this tenant's")
    export.add_argument("-o", "--output", metavar="FILE", default="-", help="where to (default: standard output)")
    export.set_defaults(run=_export)
    importing = commands.add_parser("import", help="make a new conversation of such a file")
    importing.add_argument("file", metavar="FILE", help="what `gateway export` or the API has written")
    importing.add_argument("--tenant", metavar="T", help="whose it is to be (default: the only tenant)")
    importing.set_defaults(run=_import)
    for command in (serve, migrate, check, audit, purge, export, importing):
        command.add_argument("--config", metavar="FILE", help="config.yaml (default: $GATEWAY_CONFIG, else none)")
    return parser


def _add_audit_options(parser: argparse.ArgumentParser) -> None:
    when = "an ISO date or time (UTC where it names no zone), today, yesterday, or how long ago: 90m, 24h, 7d, 2w"
    parser.add_argument("--since", metavar="WHEN", help=f"requests that arrived then or later: {when}")
    parser.add_argument("--until", metavar="WHEN", help="requests that arrived before then")
    parser.add_argument("--model", metavar="M", help="requests for this model, by the name that clients use")
    parser.add_argument("--tenant", metavar="T", help="requests of this tenant")
    parser.add_argument("--conversation", metavar="C", help="requests of this conversation")
    parser.add_argument("--user", metavar="U", help="requests that name this user")
    parser.add_argument("--agent", metavar="A", help="requests that this agent answered")
    parser.add_argument(
        "--by",
        metavar="GROUPS",
        default="model,tenant",
        help="sums by these: day, model, tenant, user, agent (default: %(default)s)",
    )
    parser.add_argument("--csv", action="store_true", help="one line of CSV for each row instead of totals")


def _add_purge_options(parser: argparse.ArgumentParser) -> None:
    when = "30d, 12h, or an ISO date (default: conversation.retention_days)"
    parser.add_argument("--older-than", metavar="AGE", help=f"those that nothing was added to since: {when}")
    parser.add_argument("--user", metavar="NAME", help="instead, what requests said that named this user")
    parser.add_argument("--whole", action="store_true", help="with --user: also what others said beside it")
    parser.add_argument("--tenant", metavar="T", help="those of this tenant")
    parser.add_argument("--dry-run", action="store_true", help="only say how many")


def _serve(settings: Settings, _options: argparse.Namespace) -> int:
    from gateway.server import serve

    environ = process_environment()
    return serve(settings, colour=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")


def _migrate(settings: Settings, options: argparse.Namespace) -> int:
    from gateway.operations.check import migrate_now

    return _report(migrate_now(settings, finishing=options.finish))


def _check(settings: Settings, _options: argparse.Namespace) -> int:
    from gateway.operations.check import check

    return _report(check(settings))


def _audit(settings: Settings, options: argparse.Namespace) -> int:
    from gateway.base.clock import SystemClock
    from gateway.operations.audit import audit

    try:
        status = audit(settings, options, SystemClock(), sys.stdout, sys.stderr)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _purge(settings: Settings, options: argparse.Namespace) -> int:
    from gateway.base.clock import SystemClock
    from gateway.operations.purge import purge

    return purge(settings, options, SystemClock(), sys.stdout, sys.stderr)


def _export(settings: Settings, options: argparse.Namespace) -> int:
    from gateway.base.clock import SystemClock
    from gateway.operations.transfer import export_file

    return export_file(settings, options, SystemClock(), sys.stdout.buffer, sys.stderr)


def _import(settings: Settings, options: argparse.Namespace) -> int:
    from gateway.base.clock import SystemClock
    from gateway.operations.transfer import import_file

    return import_file(settings, options, SystemClock(), sys.stdout, sys.stderr)


def _report(results: Any) -> int:
    failed = False
    for result in results:
        mark = "ok  " if result.ok else ("warn" if result.optional else "FAIL")
        print(f"{mark}  {result.name}: {result.text}")
        failed = failed or not (result.ok or result.optional)
    return 1 if failed else 0
