"""What an operator runs: the server, the commands behind `gateway`, and OpenTelemetry.

Offers the server, its background work, and the command line parser; `cli.py` loads the module of the command that is
run. Read first: `command_arguments.py` (arguments of commands) and `screen.py` (`CommandCall`: what a command gets).
Never answers a request itself, and holds no rules of its own: it calls the layers below.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.operations import purge, storage_upkeep
    from gateway.operations.command_arguments import parser
    from gateway.operations.completion import shell_completion
    from gateway.operations.document_indexing import DocumentIndexing
    from gateway.operations.from_litellm import write_from_litellm
    from gateway.operations.init import write_configuration
    from gateway.operations.otel.factory import open_telemetry
    from gateway.operations.savings.command import savings_by_replay
    from gateway.operations.screen import CommandCall
    from gateway.operations.server import serve
    from gateway.operations.warm_up import WarmUp, WarmUpPiece, warm_up_pieces
else:
    __getattr__ = lazy_face(__name__)
