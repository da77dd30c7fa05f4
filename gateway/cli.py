"""The `gateway` command (guarantee §9)."""

import argparse
import atexit
import errno
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from gateway import operations
from gateway.core.clock import SystemClock
from gateway.operations import CommandCall, parser, shell_completion, write_configuration

COLLECT_AFTER = 1_000_000
"""New objects after which the collector looks for cycles: imports create a fifth of that, and hardly any cycle."""
SERVE, REPLAY = "serve", "replay"
"""`gateway serve` and `gateway savings --replay`."""
WHOLE_GATEWAYS = {SERVE: "gateway.app:serve_command", REPLAY: "gateway.app:replay_command"}
"""The functions of commands that build a whole gateway, a layer above `operations`."""
UNSTORED = (SERVE, REPLAY, "check:check_command", "config_command:config")
"""Commands that report their storage themselves, or use none."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 success, 1 failure, 2 unusable configuration."""
    gc.set_threshold(COLLECT_AFTER)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # else it reads the metadata of every installed package
    atexit.register(gc.freeze)  # no search for cycles at exit, when all memory is freed anyway
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    words = sys.argv[1:] if arguments is None else arguments
    commands = parser()
    if not words:
        commands.print_help()
        return 0
    options = commands.parse_args(words)
    if options.run == "init":  # there is no configuration yet
        return write_configuration(Path(options.file), sys.stdout, sys.stderr)
    if options.run == "completion":  # none is needed
        sys.stdout.write(shell_completion(commands, options.shell))
        return 0
    return _configured(options)


def _configured(options: argparse.Namespace) -> int:
    """Loads the configuration and runs a command that needs it."""
    from gateway.core.config.loading import ConfigurationError, load_settings, process_environment

    environ = process_environment()
    path = options.config or environ.get("GATEWAY_CONFIG")
    overrides = {f"server.{k}": v for k in ("host", "port", "workers") if (v := getattr(options, k, None)) is not None}
    try:
        if given := getattr(options, "from_litellm", None):
            return _piped(lambda: operations.write_from_litellm(given, options.output, environ, sys.stdout, sys.stderr))
        settings = load_settings(path, environ, overrides)
        run = REPLAY if getattr(options, "replay", None) is not None else options.run
        if run not in UNSTORED and not settings.storage_is_named:
            text = f"the storage is the default, {settings.storage.url} in {os.getcwd()}"
            print(f"{text}: another is named by --config or GATEWAY_STORAGE_URL", file=sys.stderr)
        call = CommandCall(settings, options, SystemClock(), environ, sys.stdout, sys.stderr)
        command = _command(run)
        return command(call) if run == SERVE else _piped(lambda: command(call))
    except (ConfigurationError, ValueError) as error:
        print(_explained(error, options), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _explained(error: Exception, options: argparse.Namespace) -> str:
    """Names the argument whose bytes are not UTF-8, if that is the error; otherwise returns the error's own words."""
    text = error.object if isinstance(error, UnicodeEncodeError) else None
    name = next((name for name, value in vars(options).items() if text is not None and value == text), None)
    return str(error) if name is None else f"argument {name}: {text!a} is not UTF-8"


def _command(run: str) -> Callable[[CommandCall], int]:
    """Imports the function of one command: no command loads what only others need. `run`: as the parser sets it."""
    module, _, function = WHOLE_GATEWAYS.get(run, f"gateway.operations.{run}").partition(":")
    command: Callable[[CommandCall], int] = getattr(import_module(module), function)
    return command


def _piped(run: Callable[[], int]) -> int:
    """Runs a command with long output, and returns 1 if the reader, such as `head`, closes the pipe early, or the
    disk is full."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows question marks
    try:
        status = run()
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        if error.errno == errno.ENOSPC:
            print(f"standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
