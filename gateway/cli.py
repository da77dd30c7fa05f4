"""The `gateway` command (guarantee §9)."""

import argparse
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import __version__
from gateway.core.clock import SystemClock
from gateway.operations.files.options import add_file_commands
from gateway.operations.keys.options import add_key_commands
from gateway.operations.savings.options import add_savings_options

if TYPE_CHECKING:
    from gateway.core.config.settings import Settings

EXAMPLES = """examples:
  gateway serve                                  run it; without a configuration on SQLite, at 127.0.0.1:8000
  gateway init && gateway check                  write a config.yaml that explains itself; check it
  gateway config                                 what is set, and where
  gateway requests --since 24h --status failed   which requests failed, and why
  gateway show req_...                           one request explained
  gateway costs --by user --since 7d             what each user cost
  gateway keys create --tenant acme --name app   make a key
"""
COLLECT_AFTER = 100_000
"""New objects after which the collector looks for cycles: modules bring as many, and hardly any cycle."""
MAX_ROWS = 100_000
"""Of a list that a command writes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 done, 1 failed, 2 the configuration cannot be used."""
    gc.set_threshold(COLLECT_AFTER)
    words = sys.argv[1:] if arguments is None else arguments
    commands = parser()
    if not words:
        commands.print_help()
        return 0
    options = commands.parse_args(words)
    if options.run in (_init, _completion):  # there is no configuration yet, or none is needed
        return int(options.run(options))
    from gateway.core.config.loading import ConfigurationError, load_settings, process_environment

    environ = process_environment()
    path = options.config or environ.get("GATEWAY_CONFIG")
    overrides = {f"server.{k}": v for k in ("host", "port", "workers") if (v := getattr(options, k, None)) is not None}
    try:
        if given := getattr(options, "from_litellm", None):
            return _from_litellm(given, options)
        settings = load_settings(path, environ, overrides)
        is_replay = options.run is _savings and options.replay
        if options.run not in (_serve, _check, _config) and not is_replay and not settings.storage_is_named:
            text = f"the storage is the default, {settings.storage.url} in {os.getcwd()}"
            print(f"{text}: another is named by --config or GATEWAY_STORAGE_URL", file=sys.stderr)
        run: int = options.run(settings, options)
        return run
    except (ConfigurationError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """Make the parser of all commands; completion scripts and docs/commands.md are made of it, too."""
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="A context-managing, OpenAI-compatible gateway.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"context-gateway {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    serve = commands.add_parser("serve", help="run the gateway")
    serve.add_argument("--host", metavar="ADDRESS", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", metavar="N", type=int, help="port to listen on (default 8000)")
    serve.add_argument(
        "--workers", metavar="N", type=int, help="processes that serve it (default 1); more need PostgreSQL"
    )
    serve.set_defaults(run=_serve)
    migrate = commands.add_parser("migrate", help="upgrade the storage's schema")
    migrate.add_argument("--finish", action="store_true", help="also run steps that wait until no older version runs")
    migrate.set_defaults(run=_migrate)
    check = commands.add_parser("check", help="validate the configuration and connect to what it names")
    taking = "instead, convert this LiteLLM proxy configuration to an equivalent one for the gateway"
    check.add_argument("--from-litellm", metavar="FILE", help=taking)
    check.add_argument("--output", metavar="FILE", help="with --from-litellm: output file (default: standard output)")
    check.set_defaults(run=_check)
    shown = commands.add_parser("config", help="each setting in force, and where it comes from")
    shown.add_argument("name", nargs="?", metavar="NAME", help="only this section, or this setting")
    shown.add_argument("--all", action="store_true", help="also settings that have their defaults")
    forms = shown.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="as one JSON object")
    forms.add_argument("--csv", action="store_true", help="CSV, one line each")
    shown.set_defaults(run=_config)
    init = commands.add_parser("init", help="write a commented configuration")
    init.add_argument(
        "file", nargs="?", metavar="FILE", default="config.yaml", help="file to write (default: %(default)s)"
    )
    init.set_defaults(run=_init)
    completion = commands.add_parser("completion", help="write a shell completion script")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which: bash, zsh or fish")
    completion.set_defaults(run=_completion)
    keys = add_key_commands(commands.add_parser("keys", help="create, list, change, rotate and revoke keys"))
    for command in keys:
        command.set_defaults(run=_keys)
    files = add_file_commands(commands.add_parser("files", help="list, show and delete clients' files"), _count)
    for command in files:
        command.set_defaults(run=_files)
    audit = commands.add_parser("audit", help="recompute the ledger and check that it balances")
    _add_audit_options(audit)
    audit.set_defaults(run=_audit)
    costs = commands.add_parser("costs", help="what requests cost, by day, model, user and more")
    _add_costs_options(costs)
    costs.set_defaults(run=_costs)
    saved = commands.add_parser("savings", help="net savings, or what recorded sessions would have cost")
    add_savings_options(saved, _count)
    saved.set_defaults(run=_savings)
    looks = _add_looks(commands)
    purge = commands.add_parser("purge", help="delete inactive conversations, or what a user said")
    _add_purge_options(purge)
    purge.set_defaults(run=_purge)
    encrypting = commands.add_parser("encrypt", help="encrypt existing content with storage.encryption_key")
    encrypting.set_defaults(run=_encrypt)
    export = commands.add_parser("export", help="export a conversation to a file")
    export.add_argument("conversation", metavar="CONVERSATION", help="its id: conv_…")
    export.add_argument("--tenant", metavar="T", help="only if it is this tenant's")
    export.add_argument("-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)")
    export.set_defaults(run=_export)
    importing = commands.add_parser("import", help="import an exported conversation")
    importing.add_argument("file", metavar="FILE", help="file written by `gateway export` or the API")
    importing.add_argument("--tenant", metavar="T", help="the tenant that will own it (default: the only tenant)")
    importing.set_defaults(run=_import)
    trails = _add_trail(commands)
    looks = (*looks, purge, encrypting)
    for command in (
        serve,
        migrate,
        check,
        shown,
        *keys,
        *files,
        audit,
        costs,
        saved,
        *looks,
        export,
        importing,
        *trails,
    ):
        command.add_argument("--config", metavar="FILE", help="config.yaml (default: $GATEWAY_CONFIG, else none)")
    return parser


def _add_audit_options(parser: argparse.ArgumentParser) -> None:
    when = "an ISO date or time (UTC unless it has a zone), today, yesterday, or how long ago: 90m, 24h, 7d, 2w"
    parser.add_argument("--since", metavar="WHEN", help=f"requests received since: {when}")
    parser.add_argument("--until", metavar="WHEN", help="requests received before")
    parser.add_argument("--model", metavar="M", help="requests for this model, by the name that clients use")
    parser.add_argument("--tenant", metavar="T", help="requests of this tenant")
    parser.add_argument("--conversation", metavar="C", help="requests of this conversation")
    parser.add_argument("--user", metavar="U", help="requests that name this user")
    parser.add_argument("--agent", metavar="A", help="requests that this agent answered")
    parser.add_argument(
        "--by",
        metavar="GROUPS",
        default="model,tenant",
        help="sums by these: day, model, tenant, user, agent, endpoint (default: %(default)s)",
    )
    parser.add_argument("--csv", action="store_true", help="CSV, one line for each row, instead of totals")


def _add_costs_options(parser: argparse.ArgumentParser) -> None:
    groups = "day, model, key, project, tenant, user, agent, endpoint, conversation"
    text = f"a table for each of these: {groups}; join several with + (default: %(default)s)"
    parser.add_argument("--by", metavar="GROUPS", default="day,model", help=text)
    parser.add_argument("--since", metavar="WHEN", help="requests received since: 7d, yesterday, a date")
    parser.add_argument("--until", metavar="WHEN", help="requests received before")
    parser.add_argument("--tenant", metavar="T", help="those of this tenant")
    parser.add_argument("--model", metavar="M", help="those for this model")
    parser.add_argument("--user", metavar="U", help="those that name this user")
    parser.add_argument("--agent", metavar="A", help="those that this agent answered")
    parser.add_argument("--key", metavar="K", help="those of the key with this id: key_…")
    parser.add_argument("--project", metavar="P", help="those of keys of this project, or of this tenant without one")
    parser.add_argument("--conversation", metavar="C", help="those of this conversation")
    rows = "rows per table: the latest days, or the most expensive (default: 50; as JSON or CSV all)"
    parser.add_argument("--limit", metavar="N", type=_count, help=rows)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all tables as one JSON object")
    form.add_argument("--csv", action="store_true", help="all tables as one CSV")


def _add_looks(commands: Any) -> tuple[argparse.ArgumentParser, ...]:
    """The commands that show conversations and requests."""
    listing = commands.add_parser("ls", help="list conversations, most recently active first")
    listing.add_argument(
        "text", nargs="?", metavar="TEXT", help="part of the first question, or the beginning of an id"
    )
    listing.add_argument("--tenant", metavar="T", help="those of this tenant")
    listing.add_argument("--user", metavar="U", help="those whose latest request names this user")
    listing.add_argument("--model", metavar="M", help="those whose latest request is for this model")
    listing.add_argument("--session", metavar="S", help="the session with this name")
    listing.add_argument("--since", metavar="WHEN", help="those active since: 24h, yesterday, a date")
    listing.add_argument("--limit", metavar="N", type=_count, default=20, help="how many (default: %(default)s)")
    listing.set_defaults(run=_ls)
    asked = commands.add_parser("requests", help="list requests, latest first")
    _add_request_options(asked)
    asked.set_defaults(run=_requests)
    showing = commands.add_parser("show", help="explain a conversation, one of its turns, or a request")
    showing.add_argument("id", metavar="ID", help="conv_…, or a request: req_…, chatcmpl-…, resp_…, msg_…")
    showing.add_argument("--tenant", metavar="T", help="only if it is this tenant's")
    showing.add_argument("--turn", metavar="N", type=_count, help="the requests of this turn of the conversation")
    showing.add_argument("--sent", action="store_true", help="what was forwarded, message by message")
    showing.add_argument("--why", action="store_true", help="what was decided, why, and the arithmetic of the bill")
    showing.set_defaults(run=_show)
    tailing = commands.add_parser("tail", help="print a line for each request as it is billed")
    tailing.add_argument("--tenant", metavar="T", help="those of this tenant")
    tailing.add_argument("--model", metavar="M", help="those for this model")
    tailing.add_argument("--user", metavar="U", help="those that name this user")
    tailing.add_argument(
        "--lines", metavar="N", type=_number, default=10, help="how many earlier ones to show first (default: 10)"
    )
    tailing.set_defaults(run=_tail)
    for command, form in (
        (listing, "one JSON object"),
        (asked, "one JSON object"),
        (showing, "one JSON object, with --sent all of what was forwarded"),
        (tailing, "a line of JSON for each request"),
    ):
        forms = command.add_mutually_exclusive_group()
        forms.add_argument("--json", action="store_true", help=form)
        if command in (listing, asked):
            forms.add_argument("--csv", action="store_true", help="CSV, one line each")
    return listing, asked, showing, tailing


def _add_request_options(parser: argparse.ArgumentParser) -> None:
    """The filters of `inspection.request_search`, by their names there."""
    parser.add_argument("text", nargs="?", metavar="TEXT", help="part of one of their user messages, in any case")
    for name, metavar, text in (
        ("tenant", "T", "those of this tenant"),
        ("since", "WHEN", "those that arrived since: 24h, 7d, yesterday, a date"),
        ("until", "WHEN", "those that arrived before"),
        ("status", "S", "ok, partial or failed"),
        ("http-status", "N", "those whose client got this HTTP status"),
        ("model", "M", "those for this model"),
        ("key", "K", "those of the key with this id: key_…"),
        ("user", "U", "those that name this user"),
        ("agent", "A", "those that this agent answered"),
        ("endpoint", "API", "those of this API: chat, responses, messages, embeddings …"),
        ("conversation", "C", "those of this conversation"),
        ("min-cost", "USD", "those that cost at least this much"),
        ("max-cost", "USD", "those that cost at most this much"),
        ("min-ms", "MS", "those that took at least this long"),
        ("max-ms", "MS", "those that took at most this long"),
        ("min-saved", "USD", "those that saved at least this much, net"),
        ("max-saved", "USD", "those that saved at most this much, net; losses with --max-saved=-0.01"),
        ("sort", "BY", "time, cost, latency or saved, largest first; with a leading - (--sort=-cost) smallest first"),
    ):
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument("--limit", metavar="N", type=_count, default=20, help="how many (default: %(default)s)")


def _number(text: str) -> int:
    """Raises ArgumentTypeError: it is no whole number from 0 to `MAX_ROWS`."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= MAX_ROWS):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number up to {MAX_ROWS}")
    return int(text)


def _count(text: str) -> int:
    """Raises ArgumentTypeError: it is no whole number from 1 to `MAX_ROWS`."""
    if not (found := _number(text)):
        raise argparse.ArgumentTypeError("say 1 or more")
    return found


def _add_purge_options(parser: argparse.ArgumentParser) -> None:
    when = "30d, 12h, or an ISO date (default: conversation.retention_days)"
    parser.add_argument("--older-than", metavar="AGE", help=f"those without activity since: {when}")
    parser.add_argument("--user", metavar="NAME", help="instead, delete what was said in requests that named this user")
    parser.add_argument(
        "--whole", action="store_true", help="with --user: whole conversations, also what others said in them"
    )
    parser.add_argument("--tenant", metavar="T", help="those of this tenant")
    parser.add_argument("--dry-run", action="store_true", help="only count them")


def _add_trail(commands: Any) -> tuple[argparse.ArgumentParser, ...]:
    """`gateway trail list`, `export` and `verify`."""
    trail = commands.add_parser("trail", help="what administrators made, changed, saw and deleted")
    kinds = trail.add_subparsers(required=True, metavar="list|export|verify")
    listing = kinds.add_parser("list", help="the latest events")
    listing.add_argument("--limit", metavar="N", type=_count, default=20, help="how many (default: %(default)s)")
    forms = listing.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="as one JSON object")
    forms.add_argument("--csv", action="store_true", help="CSV, one line each")
    listing.set_defaults(run=_trail_list)
    exporting = kinds.add_parser("export", help="events as lines of JSON, with their digests")
    exporting.add_argument("--after", metavar="NUMBER", type=int, help="those after this one")
    exporting.add_argument("-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)")
    exporting.set_defaults(run=_trail_export)
    for command in (listing, exporting):
        command.add_argument("--since", metavar="WHEN", help="those since then: 24h, yesterday, a date")
        command.add_argument("--until", metavar="WHEN", help="those before then")
        command.add_argument("--action", metavar="A", help="those of this action, such as key.created")
        command.add_argument("--actor", metavar="K", help="those of the key with this id: key_…")
    verifying = kinds.add_parser("verify", help="check that no event was changed, removed or inserted")
    verifying.add_argument(
        "--from", dest="number", metavar="NUMBER", type=int, help="from this event of an earlier export on"
    )
    verifying.add_argument("--digest", metavar="HEX", help="what the digest of that event was")
    verifying.set_defaults(run=_trail_verify)
    return listing, exporting, verifying


def _environment() -> dict[str, str]:
    from gateway.core.config.loading import process_environment

    return dict(process_environment())


def _serve(settings: "Settings", _options: argparse.Namespace) -> int:
    from gateway.server import serve

    environ = _environment()
    return serve(settings, colour=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")


def _init(options: argparse.Namespace) -> int:
    from gateway.operations.init import write_configuration

    return write_configuration(Path(options.file), sys.stdout, sys.stderr)


def _completion(options: argparse.Namespace) -> int:
    from gateway.operations.completion import completion

    sys.stdout.write(completion(parser(), options.shell))
    return 0


def _migrate(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.check import migrate_now

    return _report(migrate_now(settings, finishing=options.finish))


def _check(settings: "Settings", options: argparse.Namespace) -> int:
    if options.output:
        raise ValueError("--output is for --from-litellm")
    from gateway.operations.check import check

    return _report(check(settings))


def _config(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.config_command import config

    return _piped(lambda: config(settings, options, _environment(), sys.stdout, sys.stderr))


def _keys(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.keys.command import keys

    return _looked(keys, settings, options)


def _files(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.files.command import files

    return _looked(files, settings, options)


def _audit(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.audit import audit

    return _piped(lambda: audit(settings, options, SystemClock(), sys.stdout, sys.stderr))


def _costs(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.cost_command import costs

    return _looked(costs, settings, options)


def _savings(settings: "Settings", options: argparse.Namespace) -> int:
    if options.replay is None:
        from gateway.operations.savings.savings_report import savings_report

        return _looked(savings_report, settings, options)
    for name in ("by", "since", "until", "tenant"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} is of what is stored: --replay has none")
    from gateway.app import Gateway
    from gateway.operations.savings.command import savings

    return _piped(lambda: savings(settings, options, Gateway, _environment(), sys.stdout, sys.stderr))


def _ls(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.ls import ls

    return _looked(ls, settings, options)


def _requests(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.requests_command import requests

    return _looked(requests, settings, options)


def _show(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.show.command import show

    return _piped(lambda: show(settings, options, _environment(), sys.stdout, sys.stderr))


def _tail(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.tail import tail

    return _looked(tail, settings, options)


def _from_litellm(path: str, options: argparse.Namespace) -> int:
    from gateway.operations.from_litellm import write

    return _piped(lambda: write(path, options.output, _environment(), sys.stdout, sys.stderr))


def _looked(command: Callable[..., int], settings: "Settings", options: argparse.Namespace) -> int:
    """Runs a command that looks at what is stored, as of now."""
    from gateway.core.clock import SystemClock

    return _piped(lambda: command(settings, options, SystemClock(), _environment(), sys.stdout, sys.stderr))


def _piped(run: Callable[[], int]) -> int:
    """Runs a command that writes much; whoever reads, `head` say, may have seen enough before its end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows question marks
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _purge(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.purge import purge

    return purge(settings, options, SystemClock(), sys.stdout, sys.stderr)


def _encrypt(settings: "Settings", _options: argparse.Namespace) -> int:
    from gateway.operations.encrypting import encrypt

    return encrypt(settings, sys.stdout, sys.stderr)


def _export(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.transfer_commands import export_file

    return export_file(settings, options, SystemClock(), sys.stdout.buffer, sys.stderr)


def _import(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.transfer_commands import import_file

    return import_file(settings, options, SystemClock(), sys.stdout, sys.stderr)


def _trail_list(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.audit_log_commands import list_trail

    return _looked(list_trail, settings, options)


def _trail_export(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.audit_log_commands import export_trail

    return _piped(lambda: export_trail(settings, options, SystemClock(), sys.stdout.buffer, sys.stderr))


def _trail_verify(settings: "Settings", options: argparse.Namespace) -> int:
    from gateway.operations.audit_log_commands import verify_trail

    return verify_trail(settings, options, sys.stdout, sys.stderr)


def _report(results: Any) -> int:
    failed = False
    for result in results:
        mark = "ok  " if result.ok else ("warn" if result.optional else "FAIL")
        print(f"{mark}  {result.name}: {result.text}")
        failed = failed or not (result.ok or result.optional)
    return 1 if failed else 0
