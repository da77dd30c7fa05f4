"""The arguments of `gateway files`."""

import argparse
from collections.abc import Callable

from gateway.core.types.files import FILE_PURPOSES


def add_file_commands(
    parser: argparse.ArgumentParser, count: Callable[[str], int]
) -> tuple[argparse.ArgumentParser, ...]:
    """Adds the commands below `gateway files`; each has its name in `action`. `count` reads a whole number."""
    actions = parser.add_subparsers(required=True, metavar="action", dest="action")
    listing = actions.add_parser("ls", help="list files, most recent first")
    listing.add_argument("--limit", metavar="N", type=count, default=20, help="how many (default: %(default)s)")
    show = actions.add_parser("show", help="show a file: how far it has been read, and which conversations hold it")
    remove = actions.add_parser("rm", help="delete a file permanently, with all text read from it")
    put = actions.add_parser("put", help="upload a file for a tenant")
    put.add_argument("path", metavar="FILE", help="file to upload")
    put.add_argument("--name", metavar="N", help="its name (default: that of the file)")
    purposes = f"what for: {', '.join(FILE_PURPOSES)} (default: %(default)s)"
    put.add_argument("--purpose", metavar="P", choices=FILE_PURPOSES, default="user_data", help=purposes)
    put.add_argument("--expires", metavar="S", type=count, help="seconds after which it expires")
    for command in (show, remove):
        command.add_argument("id", metavar="ID", help="file-…")
    commands = (listing, show, put, remove)
    for command in commands:
        of_one = "those of this tenant" if command is listing else "only if it is this tenant's"
        of_one = "tenant that will own it" if command is put else of_one
        command.add_argument("--tenant", metavar="T", required=command is put, help=of_one)
        form = command.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="one JSON object")
        if command is listing:
            form.add_argument("--csv", action="store_true", help="CSV, one line each")
    return commands
