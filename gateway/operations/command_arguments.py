"""The arguments of all commands (guarantee §9); completion scripts and docs/commands.md are generated from them."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

from gateway import __version__
from gateway.core import names
from gateway.core.types import bill
from gateway.core.types.files import FILE_PURPOSES

EXAMPLES = """examples:
  gateway serve                                  run it; without a configuration on SQLite, at 127.0.0.1:8000
  gateway init                                   write a config.yaml that explains itself
  gateway check --config config.yaml             check it, and what it names
  gateway config                                 what is set, and where
  gateway requests --since 24h --status failed   which requests failed, and why
  gateway show req_...                           one request explained
  gateway costs --by user --since 7d             what each user cost
  gateway keys create --tenant acme --name app   make a key
"""
CONFIG = "config_command:config"
MAX_ROWS = 100_000
"""Of a list that a command writes."""
MAX_SPAN = 10**9
"""Tokens of a window, and seconds until a file expires."""
MAX_EVENT = 2**63 - 1
"""The number of an event; databases hold no larger one."""
KEY_NAMES = ("tenant", "name", "owner", "project")
LIMIT_OPTIONS = {"rpm": "requests a minute", "tpm": "tokens a minute", "concurrent": "requests at once"}
CLEARED = (
    *KEY_NAMES[1:],
    "roles",
    "models",
    "expires_at",
    "budgets",
    "limits",
    "context",
    "retention_days",
    "file_bytes",
)
LIFETIMES = {"5m": 300.0, "1h": 3600.0}
"""How long a provider caches an unused prompt, in seconds."""
ECONOMY_MODES = get_args(bill.EconomyMode)
LIMIT_TEXT = "how many (default: %(default)s)"
OUTPUT_TEXT = "output file (default: standard output)"
LINES_TEXT = "CSV, one line each"
GROUPS_TEXT = ", ".join(bill.COST_GROUPS)
OF_REQUESTS = {
    "since": ("WHEN", "requests received since: 7d, yesterday, a date"),
    "until": ("WHEN", "requests received before"),
    "tenant": ("T", "those of this tenant"),
    "model": ("M", "those for this model"),
    "user": ("U", "those that name this user"),
    "agent": ("A", "those that this agent answered"),
    "key": ("K", "those of the key with this id: key_…"),
    "project": ("P", "those of keys of this project, or of this tenant without one"),
    "conversation": ("C", "those of this conversation"),
}
"""Filters of requests that several commands have."""


def parser() -> argparse.ArgumentParser:
    """Builds the parser. Option `run` names a command's function: `MODULE:FUNCTION` below `gateway.operations`."""
    parser = _CommandParser(
        prog="gateway",
        description="A context-managing, OpenAI-compatible gateway.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"context-gateway {__version__}")
    commands = _CommandParsers(parser.add_subparsers(metavar="command"))
    serve = commands.add("serve", "serve", "run the gateway")
    _texts(serve, ("host", "ADDRESS", "address to listen on (default 127.0.0.1)"))
    serve.add_argument("--port", metavar="N", type=int, help="port to listen on (default 8000)")
    workers = "processes that serve it (default 1); more need PostgreSQL"
    serve.add_argument("--workers", metavar="N", type=int, help=workers)
    migrate = commands.add("migrate", "check:migrate_command", "upgrade the storage's schema")
    migrate.add_argument("--finish", action="store_true", help="also run steps that wait until no older version runs")
    check = commands.add("check", "check:check_command", "validate the configuration and connect to what it names")
    _texts(
        check,
        (
            *("from-litellm", "FILE"),
            "instead, convert this LiteLLM proxy configuration to an equivalent one for the gateway",
        ),
        ("output", "FILE", "with --from-litellm: output file (default: standard output)"),
    )
    shown = commands.add("config", CONFIG, "each setting in force, and where it comes from")
    shown.add_argument("name", nargs="?", metavar="NAME", help="only this section, or this setting")
    shown.add_argument("--all", action="store_true", help="also settings that have their defaults")
    _forms(shown, "as one JSON object", LINES_TEXT)
    init = commands.add("init", "init", "write a commented configuration", config=False)
    init.add_argument(
        "file", nargs="?", metavar="FILE", default="config.yaml", help="file to write (default: %(default)s)"
    )
    completion = commands.add("completion", "completion", "write a shell completion script", config=False)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which: bash, zsh or fish")
    _add_keys(commands.below("keys", "action", "create, list, change, rotate and revoke keys"))
    _add_files(commands.below("files", "action", "list, show and delete clients' files"))
    _add_audit(commands.add("audit", "audit:audit", "recompute the ledger and check that it balances"))
    _add_costs(commands.add("costs", "cost_command:costs", "what requests cost, by day, model, user and more"))
    saved = "net savings, or what recorded sessions would have cost"
    _add_savings(commands.add("savings", "savings.savings_report:savings_report", saved))
    _add_looks(commands)
    purge = commands.add("purge", "purge:purge", "delete inactive conversations, or what a user said")
    age = "30d, 12h, or an ISO date (default: conversation.retention_days)"
    _texts(
        purge,
        ("older-than", "AGE", f"those without activity since: {age}"),
        ("user", "NAME", "instead, delete what was said in requests that named this user"),
    )
    purge.add_argument(
        "--whole", action="store_true", help="with --user: whole conversations, also what others said in them"
    )
    _filters(purge, "tenant")
    purge.add_argument("--dry-run", action="store_true", help="only count them")
    commands.add("encrypt", "encrypting:encrypt", "encrypt existing content with storage.encryption_key")
    export = commands.add("export", "transfer_commands:export_file", "export a conversation to a file")
    export.add_argument("conversation", metavar="CONVERSATION", help="its id: conv_…")
    _texts(export, ("tenant", "T", "only if it is this tenant's"))
    export.add_argument("-o", "--output", metavar="FILE", default="-", help=OUTPUT_TEXT)
    importing = commands.add("import", "transfer_commands:import_file", "import an exported conversation")
    importing.add_argument("file", metavar="FILE", help="file written by `gateway export` or the API")
    owner = "the tenant that will own it (default: the only tenant)"
    importing.add_argument("--tenant", metavar="T", type=_name, help=owner)
    _add_trail(commands.below("trail", "", "what administrators made, changed, saw and deleted", "list|export|verify"))
    commands.take_config(parser)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """Reports an unknown argument with the usage of its command and the nearest option."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        parsed: tuple[argparse.Namespace, list[str]] = self.parse_known_args(args, namespace)
        found, rest = parsed
        command: argparse.ArgumentParser = getattr(found, "parser", self)
        if rest:
            wrong = next((each for each in rest if each.startswith("-")), rest[0]).partition("=")[0]
            options = [each for each in command._option_string_actions if each.startswith("--")]
            hint = names.did_you_mean(wrong, options) if wrong.startswith("-") else ""
            if not hint and getattr(found, "run", None) == CONFIG:
                hint = names.did_you_mean(f"{found.name}.{wrong}", (f"{found.name}.{wrong}",))
            command.error(f"there is no argument {names.shown(wrong)}.{hint}")
        if not hasattr(found, "run"):  # argparse itself would say so before it names a wrong option
            command.error(f"the following arguments are required: {getattr(found, 'wanted', 'command')}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is not None and value not in choices:
            known = ", ".join(map(str, choices))
            text = f"{names.shown(str(value))} is none of {known}.{names.did_you_mean(str(value), map(str, choices))}"
            raise argparse.ArgumentError(action, text)


class _CommandParsers:
    """Adds commands, or the subcommands of one command."""

    def __init__(self, parsers: Any, found: list[argparse.ArgumentParser] | None = None) -> None:
        self._parsers = parsers
        self._found = found if found is not None else []
        self._groups: list[argparse.ArgumentParser] = []

    def add(self, name: str, run: str, text: str, *, config: bool = True) -> argparse.ArgumentParser:
        """Adds one command. `config`: whether it takes `--config`."""
        made: argparse.ArgumentParser = self._parsers.add_parser(name, help=text, description=_sentence(text))
        made.set_defaults(run=run, parser=made)
        self._found += [made] if config else []
        return made

    def below(self, name: str, dest: str, text: str, metavar: str = "action") -> "_CommandParsers":
        """Adds a command with subcommands; option `dest` holds the name of the chosen one, unless `dest` is ""."""
        named = {"dest": dest} if dest else {}
        made = self._parsers.add_parser(name, help=text, description=_sentence(text))
        made.set_defaults(parser=made, wanted=metavar)
        self._groups.append(made)
        return _CommandParsers(made.add_subparsers(metavar=metavar, **named), self._found)

    def take_config(self, parser: argparse.ArgumentParser) -> None:
        """Adds `--config` to all commands that take it, after their own options; it may also stand before a command."""
        parser.set_defaults(config=None)
        for each in (*self._found, parser, *self._groups):
            is_command = each in self._found
            text = "config.yaml (default: $GATEWAY_CONFIG, else none)" if is_command else argparse.SUPPRESS
            each.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=text)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _texts(parser: argparse.ArgumentParser, *options: tuple[str, str, str]) -> None:
    """Adds options that take a text: each with its name, its metavar and its help."""
    for name, metavar, text in options:
        parser.add_argument(f"--{name}", metavar=metavar, help=text)


def _filters(parser: argparse.ArgumentParser, *names: str) -> None:
    _texts(parser, *((name, *OF_REQUESTS[name]) for name in names))


def _forms(parser: argparse.ArgumentParser, json: str, csv: str | None = None) -> None:
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help=json)
    if csv is not None:
        forms.add_argument("--csv", action="store_true", help=csv)


def _name(text: str) -> str:
    """Returns the text. Raises ArgumentTypeError: it names nobody."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it names nobody")
    return text


def _number(text: str, most: int = MAX_ROWS) -> int:
    """Parses a whole number. Raises ArgumentTypeError: it is not within 0 and `most`."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number up to {most}")
    return int(text)


def _count(text: str, most: int = MAX_ROWS) -> int:
    """Parses a whole number. Raises ArgumentTypeError: it is not within 1 and `most`."""
    if not (found := _number(text, most)):
        raise argparse.ArgumentTypeError("say 1 or more")
    return found


def _add_keys(commands: _CommandParsers) -> None:
    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add(name, "keys_command:keys", text)

    create = add("create", "create a key; it is shown once")
    create.add_argument("--quiet", action="store_true", help="print only the key")
    listing = add("list", "list keys, most recent first")
    _texts(listing, ("tenant", "T", "those of this tenant"), ("owner", "O", "those of this owner"))
    listing.add_argument("--revoked", action="store_true", help="also those that were revoked")
    show, update = add("show", "show a key"), add("update", "change a key's settings")
    clear = f"reset to its default: {', '.join(CLEARED)}"
    update.add_argument("--clear", metavar="FIELD", action="append", choices=CLEARED, help=clear)
    rotate = add("rotate", "give a key a new secret, which is shown once")
    grace = "how long the old secret stays valid: 1h (at most 7d)"
    rotate.add_argument("--grace", metavar="TIME", default="0s", help=grace)
    rotate.add_argument("--quiet", action="store_true", help="print only the key")
    revoke = add("revoke", "revoke a key permanently")
    for command in (show, update, rotate, revoke):
        command.add_argument("id", metavar="ID", help="key_…")
    for command in (create, update):
        _add_fields(command, is_new=command is create)
    for command in (create, listing, show, update, rotate, revoke):
        _forms(command, "one JSON object", LINES_TEXT if command is listing else None)


def _add_fields(parser: argparse.ArgumentParser, *, is_new: bool) -> None:
    """Adds the options for the fields of a key."""

    def add(name: str, metavar: str, text: str, **more: Any) -> None:
        parser.add_argument(f"--{name}", metavar=metavar, help=text, **more)

    add("tenant", "T", "tenant that it belongs to", required=is_new)
    add("name", "N", "what people call it")
    add("owner", "O", "who is responsible for it")
    add("project", "P", "what it is for")
    add("role", "R", "user (default), viewer or admin; repeatable", action="append")
    add("model", "M", "a model that it may ask, as in gpt-*; repeatable", action="append")
    add("expires", "WHEN", "a date or time (UTC unless it has a zone), or a duration: 12h, 90d")
    add("budget", "USD/PERIOD", "what may be spent: 5/day, 100/month:soft; repeatable", action="append")
    for name, text in LIMIT_OPTIONS.items():
        add(name, "N", f"maximum {text}", type=int)
    add("context", "NAME=VALUE", "a default of its requests, as in mode=simple; repeatable", action="append")
    add("file-bytes", "N", "bytes of files that may be stored with it", type=int)
    add("retention-days", "D", "days without activity after which its conversations are deleted", type=float)


def _add_files(commands: _CommandParsers) -> None:
    looking, changing = "files_command:files", "file_changes:change_files"
    listing = commands.add("ls", looking, "list files, most recent first")
    listing.add_argument("--limit", metavar="N", type=_count, default=20, help=LIMIT_TEXT)
    show = commands.add("show", looking, "show a file: how far it has been read, and which conversations hold it")
    remove = commands.add("rm", changing, "delete a file permanently, with all text read from it")
    put = commands.add("put", changing, "upload a file for a tenant")
    put.add_argument("path", metavar="FILE", help="file to upload")
    _texts(put, ("name", "N", "its name (default: that of the file)"))
    purposes = f"what for: {', '.join(FILE_PURPOSES)} (default: %(default)s)"
    put.add_argument("--purpose", metavar="P", choices=FILE_PURPOSES, default="user_data", help=purposes)
    put.add_argument(
        "--expires", metavar="S", type=partial(_count, most=MAX_SPAN), help="seconds after which it expires"
    )
    for command in (show, remove):
        command.add_argument("id", metavar="ID", help="file-…")
    for command, of_one in (
        (listing, "those of this tenant"),
        (show, "only if it is this tenant's"),
        (put, "tenant that will own it"),
        (remove, "only if it is this tenant's"),
    ):
        kind = _name if command is put else str
        command.add_argument("--tenant", metavar="T", type=kind, required=command is put, help=of_one)
        _forms(command, "one JSON object", LINES_TEXT if command is listing else None)


def _add_audit(parser: argparse.ArgumentParser) -> None:
    when = "an ISO date or time (UTC unless it has a zone), today, yesterday, or how long ago: 90m, 24h, 7d, 2w"
    _texts(
        parser,
        ("since", "WHEN", f"requests received since: {when}"),
        ("until", "WHEN", "requests received before"),
        ("model", "M", "requests for this model, by the name that clients use"),
        ("tenant", "T", "requests of this tenant"),
        ("conversation", "C", "requests of this conversation"),
        ("user", "U", "requests that name this user"),
        ("agent", "A", "requests that this agent answered"),
    )
    by = "sums by these: day, model, tenant, user, agent, endpoint (default: %(default)s)"
    parser.add_argument("--by", metavar="GROUPS", default="model,tenant", help=by)
    parser.add_argument("--csv", action="store_true", help="CSV, one line for each row, instead of totals")


def _add_costs(parser: argparse.ArgumentParser) -> None:
    text = f"a table for each of these: {GROUPS_TEXT}; join several with + (default: %(default)s)"
    parser.add_argument("--by", metavar="GROUPS", default="day,model", help=text)
    _filters(parser, *OF_REQUESTS)
    rows = "rows per table: the latest days, or the most expensive (default: 50; as JSON or CSV all)"
    parser.add_argument("--limit", metavar="N", type=_count, help=rows)
    _forms(parser, "all tables as one JSON object", "all tables as one CSV")


def _add_savings(parser: argparse.ArgumentParser) -> None:
    def budgets(text: str) -> list[int | None]:
        return [None if each.strip() == "none" else _count(each.strip(), MAX_SPAN) for each in text.split(",")]

    def modes(text: str) -> list[str]:
        found = [each.strip() for each in text.split(",")]
        for each in found:
            if each not in ECONOMY_MODES:
                raise argparse.ArgumentTypeError(f"{each!r} is none of {', '.join(ECONOMY_MODES)}")
        return found

    what = "transcripts: of Claude Code (~/.claude/projects), Codex (~/.codex/sessions), or OpenAI's messages"
    _texts(
        parser,
        ("replay", "FOLDER", f"instead of stored requests, {what}"),
        ("model", "M", "price sessions for this model (default: the first configured)"),
    )
    windows = "what each session would have cost with these, `none`: the whole window (default: none,64000,32000)"
    parser.add_argument("--max-input-tokens", metavar="N,N", type=budgets, help=windows)
    economy = f"the same with each of {', '.join(ECONOMY_MODES)}"
    parser.add_argument("--economy", metavar="MODES", type=modes, help=economy)
    parser.add_argument("--unstored", action="store_true", help="replay as clients that send `store: false`")
    kept = "lifetime of the provider's prompt cache: 5m or 1h (default: 5m)"
    parser.add_argument("--cache-lifetime", choices=LIFETIMES, help=kept)
    rows = "rows of a table; with --replay: the N longest sessions"
    parser.add_argument("--limit", metavar="N", type=_count, help=rows)
    by = f"without --replay, a table for each of these: {GROUPS_TEXT}; join several with + (default: day,model,key)"
    _texts(parser, ("by", "GROUPS", by))
    _filters(parser, "since", "until", "tenant")
    _forms(parser, "one JSON object", "CSV, one line for each group, or for each session and setting")


def _add_looks(commands: _CommandParsers) -> None:
    """Adds the commands that show conversations and requests."""
    listing = commands.add("ls", "ls:ls", "list conversations, most recently active first")
    part = "part of the first question, or the beginning of an id"
    listing.add_argument("text", nargs="?", metavar="TEXT", help=part)
    _filters(listing, "tenant")
    _texts(
        listing,
        ("user", "U", "those whose latest request names this user"),
        ("model", "M", "those whose latest request is for this model"),
        ("session", "S", "the session with this name"),
        ("since", "WHEN", "those active since: 24h, yesterday, a date"),
    )
    listing.add_argument("--limit", metavar="N", type=_count, default=20, help=LIMIT_TEXT)
    _forms(listing, "one JSON object", LINES_TEXT)
    _add_requests(commands.add("requests", "requests_command:requests", "list requests, latest first"))
    explain = "explain a conversation, one of its turns, or a request"
    showing = commands.add("show", "show_command:show", explain)
    showing.add_argument("id", metavar="ID", help="conv_…, or a request: req_…, chatcmpl-…, resp_…, msg_…")
    _texts(showing, ("tenant", "T", "only if it is this tenant's"))
    showing.add_argument("--turn", metavar="N", type=_count, help="the requests of this turn of the conversation")
    showing.add_argument("--sent", action="store_true", help="what was forwarded, message by message")
    showing.add_argument("--why", action="store_true", help="what was decided, why, and the arithmetic of the bill")
    _forms(showing, "one JSON object, with --sent all of what was forwarded")
    tailing = commands.add("tail", "tail:tail", "print a line for each request as it is billed")
    _filters(tailing, "tenant", "model", "user")
    lines = "how many earlier ones to show first (default: 10)"
    tailing.add_argument("--lines", metavar="N", type=_number, default=10, help=lines)
    _forms(tailing, "a line of JSON for each request")


def _add_requests(parser: argparse.ArgumentParser) -> None:
    """Adds the filters of `inspection.request_search`, under the same names."""
    parser.add_argument("text", nargs="?", metavar="TEXT", help="part of one of their user messages, in any case")
    _filters(parser, "tenant")
    _texts(
        parser,
        ("since", "WHEN", "those that arrived since: 24h, 7d, yesterday, a date"),
        ("until", "WHEN", "those that arrived before"),
        ("status", "S", "ok, partial or failed"),
        ("http-status", "N", "those whose client got this HTTP status"),
    )
    _filters(parser, "model", "key", "user", "agent")
    _texts(parser, ("endpoint", "API", "those of this API: chat, responses, messages, embeddings …"))
    _filters(parser, "conversation")
    _texts(
        parser,
        ("min-cost", "USD", "those that cost at least this much"),
        ("max-cost", "USD", "those that cost at most this much"),
        ("min-ms", "MS", "those that took at least this long"),
        ("max-ms", "MS", "those that took at most this long"),
        ("min-saved", "USD", "those that saved at least this much, net"),
        ("max-saved", "USD", "those that saved at most this much, net; losses with --max-saved=-0.01"),
        ("sort", "BY", "time, cost, latency or saved, largest first; with a leading - (--sort=-cost) smallest first"),
    )
    parser.add_argument("--limit", metavar="N", type=_count, default=20, help=LIMIT_TEXT)
    _forms(parser, "one JSON object", LINES_TEXT)


def _add_trail(commands: _CommandParsers) -> None:
    listing = commands.add("list", "audit_log_commands:list_trail", "the latest events")
    listing.add_argument("--limit", metavar="N", type=_count, default=20, help=LIMIT_TEXT)
    _forms(listing, "as one JSON object", LINES_TEXT)
    number = partial(_number, most=MAX_EVENT)
    exporting = commands.add("export", "audit_log_commands:export_trail", "events as lines of JSON, with their digests")
    exporting.add_argument("--after", metavar="NUMBER", type=number, help="those after this one")
    exporting.add_argument("-o", "--output", metavar="FILE", default="-", help=OUTPUT_TEXT)
    for command in (listing, exporting):
        _texts(
            command,
            ("since", "WHEN", "those since then: 24h, yesterday, a date"),
            ("until", "WHEN", "those before then"),
            ("action", "A", "those of this action, such as key.created"),
            ("actor", "K", "those of the key with this id: key_…"),
        )
    intact = "check that no event was changed, removed or inserted"
    verifying = commands.add("verify", "audit_log_commands:verify_trail", intact)
    earlier = "from this event of an earlier export on"
    verifying.add_argument("--from", dest="number", metavar="NUMBER", type=number, help=earlier)
    _texts(verifying, ("digest", "HEX", "what the digest of that event was"))
