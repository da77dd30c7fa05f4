"""Gateways and their providers are in memory here: no process, no socket."""

from collections.abc import Iterator

import pytest

from tests.conftest import Kinds
from tests.support.gateway_process import GatewayProcess
from tests.support.schemas import sqlite_url
from tests.support.web_page import Visits, visits


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves tests of whole gateways to `make test`: `make unit` takes seconds."""
    for item in items:
        if "kinds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="module")
def kinds() -> Iterator[Kinds]:
    """In memory: no process, no socket."""
    from tests.support.gateway_here import GatewayHere, UpstreamHere, answer_in_memory, documents_read_here

    answer_in_memory()
    with documents_read_here():
        yield GatewayHere, UpstreamHere


@pytest.fixture(scope="module")
def module_storage_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One kind of storage: what differs between them is tested below `tests/integration`."""
    return sqlite_url(tmp_path_factory.mktemp("storage"))


@pytest.fixture
def visit(gateway: GatewayProcess) -> Iterator[Visits]:
    with visits(gateway.url) as opened:
        yield opened
