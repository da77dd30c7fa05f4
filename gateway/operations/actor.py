"""Who runs a command, as the trail tells it."""

import getpass
import os

from gateway.models.trail import Actor


def command_actor() -> Actor:
    """By the name of the system's user; a command has no key."""
    try:
        return Actor(None, getpass.getuser())
    except (KeyError, OSError):
        return Actor(None, f"user {os.getuid()}")
