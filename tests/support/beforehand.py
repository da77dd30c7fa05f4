"""What forked workers share, made once before them: each would make it for itself else, which takes seconds."""

import asyncio
import os
from collections.abc import Sequence

import pytest

from gateway.context.tokens.counter import CounterRegistry
from gateway.core.types.chat import ModelFacts
from gateway.upstream.litellm.wire import LitellmLibrary
from tests.support.gateway_process import shared_fork_server
from tests.support.schemas import migrated_file
from tests.support.services import first_postgres

MANY = 2000
"""Tests of which some surely need what takes longest to load."""


def make_beforehand(items: Sequence[pytest.Item]) -> None:
    """Makes what these tests ask for."""
    asked = {name for item in items for name in getattr(item, "fixturenames", ())}
    if "fork_server" in asked:
        shared_fork_server().begin()
        migrated_file()
    if "TEST_DATABASE_URL" not in os.environ and any("postgres" in item.nodeid for item in items):
        first_postgres()
    if "kinds" in asked and len(items) >= MANY:
        for model in ("gpt-4o", "gpt-4"):
            CounterRegistry().load(ModelFacts(model))
        asyncio.run(LitellmLibrary().get())
