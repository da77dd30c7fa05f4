"""The `gateway` command: serve, migrate, check (contract §9)."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from gateway import __version__
from gateway.configuration import ConfigurationError, load_settings, process_environment
from gateway.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 done, 1 failed, 2 the configuration cannot be used."""
    options = _parser().parse_args(arguments)
    environ = process_environment()
    path = options.config or environ.get("GATEWAY_CONFIG")
    overrides = {f"server.{k}": v for k in ("host", "port") if (v := getattr(options, k, None)) is not None}
    try:
        settings = load_settings(path, environ, overrides)
        run: int = options.run(settings)
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
    serve.set_defaults(run=_serve)
    migrate = commands.add_parser("migrate", help="bring the storage's schema up to date")
    migrate.set_defaults(run=_migrate)
    check = commands.add_parser("check", help="validate the configuration and reach what it names")
    check.set_defaults(run=_check)
    for command in (serve, migrate, check):
        command.add_argument("--config", metavar="FILE", help="config.yaml (default: $GATEWAY_CONFIG, else none)")
    return parser


def _serve(settings: Settings) -> int:
    from gateway.server import serve

    return serve(settings)


def _migrate(settings: Settings) -> int:
    from gateway.checks import migrate_now

    return _report(migrate_now(settings))


def _check(settings: Settings) -> int:
    from gateway.checks import check

    return _report(check(settings))


def _report(results: Any) -> int:
    failed = False
    for result in results:
        mark = "ok  " if result.ok else ("warn" if result.optional else "FAIL")
        print(f"{mark}  {result.name}: {result.text}")
        failed = failed or not (result.ok or result.optional)
    return 1 if failed else 0
