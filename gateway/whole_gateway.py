"""Commands that make a whole gateway: `gateway serve`, and `gateway savings --replay`."""

from gateway.app import Gateway, create_app
from gateway.operations.screen import CommandCall
from gateway.operations.server import serve


def serve_command(call: CommandCall) -> int:
    """Serves until it is told to end. A terminal's log is coloured where nothing speaks against it."""
    environ = call.environ
    return serve(call.settings, create_app, colour=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")


def replay_command(call: CommandCall) -> int:
    """Plays recorded sessions through one."""
    from gateway.operations.savings.command import savings  # no server needs it

    return savings(call, Gateway)
