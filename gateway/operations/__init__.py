"""What an operator runs: the server, the commands behind `gateway`, and OpenTelemetry.

Offers the server, what it does beside requests, and how a command is asked for; `cli.py` loads the module of the one
that is. Read first: `command_arguments.py` (what commands take) and `screen.py` (what they are called with). Never
answers a request itself, and holds no rule of its own: it asks the floors below.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.operations import purge, storage_upkeep
    from gateway.operations.command_arguments import parser
    from gateway.operations.completion import shell_completion
    from gateway.operations.from_litellm import write_from_litellm
    from gateway.operations.init import write_configuration
    from gateway.operations.otel.factory import open_telemetry
    from gateway.operations.savings.command import savings_by_replay
    from gateway.operations.screen import CommandCall
    from gateway.operations.server import serve
    from gateway.operations.warm_up import WarmUp, WarmUpPiece, warm_up_pieces
else:
    __getattr__ = lazy_face(
        __name__,
        {
            "command_arguments": "parser",
            "completion": "shell_completion",
            "from_litellm": "write_from_litellm",
            "init": "write_configuration",
            "otel.factory": "open_telemetry",
            "savings.command": "savings_by_replay",
            "screen": "CommandCall",
            "server": "serve",
            "warm_up": "WarmUp warm_up_pieces WarmUpPiece",
        },
    )

__all__ = [
    "CommandCall",
    "WarmUp",
    "WarmUpPiece",
    "open_telemetry",
    "parser",
    "purge",
    "savings_by_replay",
    "serve",
    "shell_completion",
    "storage_upkeep",
    "warm_up_pieces",
    "write_configuration",
    "write_from_litellm",
]
