"""Fixtures of all tests. Servers start when a test first asks for them, so that unit tests stay fast.

Two variables ask for more than `make test` does, as `make chaos` sets them: `EXAMPLES=1000` tries each property on that
many examples, and other ones each time; `STORAGES=each` runs each test of a whole gateway on each kind of storage, and
each test that is marked `in_turn` with each value.

Names with `module_` live as long as a test module, since a gateway costs a second to start. What they share
is made as new for each test: `upstream` is cleared, and a gateway that a test has killed is started again.
"""

import gc
import os
import signal
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from openai import OpenAI

from tests.support.beforehand import make_beforehand
from tests.support.factory import ClientFactory, GatewayFactory, SharedGateways, shared_gateway
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess, shared_fork_server
from tests.support.hand_clock import HandClock
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.patches import leave_out_local_constants, read_certificates_once
from tests.support.postgres import Postgres, PostgresProcess
from tests.support.schemas import sqlite_url
from tests.support.services import own_postgres, own_valkey, postgres_server, valkey_server
from tests.support.valkey import Valkey, ValkeyProcess

if TYPE_CHECKING:
    from tests.support.faults.ways import Crossing

pytest_plugins = ["tests.support.forked_workers"]

gc.disable()  # until everything is collected
leave_out_local_constants()
read_certificates_once()

# A busy machine may stop for longer than any deadline, and that says nothing of the code.
settings.register_profile(
    "patient",
    max_examples=int(os.environ.get("EXAMPLES", "15")),
    derandomize="EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")

Kinds = tuple[type[GatewayProcess], type[MockUpstream]]
STORAGES = ["sqlite", "postgres"]
WHOLE_GATEWAYS = ("tests/acceptance/", "tests/chaos/", "tests/integration/apis/", "tests/integration/context/")
"""Where each module is run on one kind of storage: what may differ between them is tested on both, part by part, by the
modules beside these folders. A test that is about what is in the storage is marked `each_storage`."""
LONGEST = (
    "tests/properties/",
    "tests/integration/test_stored_bills.py",
    "tests/integration/test_economy.py",
    "tests/unit/upstream/test_odd_answers.py",
)
"""Files that take a processor for long: begun first, so that no worker is left alone with one at the end."""
HANGS_AFTER = 600.0
"""Seconds after which a test fails where it stands: one that hangs would keep a whole run from its end."""
PATIENTLY = ("chaos", "compat", "browser")
"""Marks of tests that may take longer."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Names failures as they come: a run of minutes should not keep them for its end."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and config.get_verbosity() < 0:
        config.pluginmanager.register(FailuresAsTheyCome(reporter))


class FailuresAsTheyCome:
    """Writes the name of each test that fails, and where it failed, among the dots."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            line = str(getattr(report.longrepr, "reprcrash", "")).split("\n", 1)[0]
            self._reporter.write_line(f"\nFAILED {report.nodeid}  {line}"[:240], red=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first; else in the order of the files. Properties try many examples, so each is `long`."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("long")
            item.add_marker("property")
    if os.environ.get("STORAGES") != "each":
        config.hook.pytest_deselected(items=_on_the_other_storage(items))
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def _on_the_other_storage(items: list[pytest.Item]) -> list[pytest.Item]:
    """Takes out of `items`, and returns, what runs on the module's own kind of storage anyway. That goes by the
    module's name, so that no worker and no order makes a difference."""

    def anywhere(item: pytest.Item) -> str:
        return item.nodeid.replace("postgres", "sqlite")

    twice, anothers = Counter(map(anywhere, items)), _on_anothers_turn(items)
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        file, _, name = item.nodeid.partition("::")
        other = STORAGES[1 - zlib.crc32(file.encode()) % 2]
        is_one_of_two = file.startswith(WHOLE_GATEWAYS) and other in name and twice[anywhere(item)] == len(STORAGES)
        is_left = (is_one_of_two and item.get_closest_marker("each_storage") is None) or item in anothers
        (left if is_left else kept).append(item)
    items[:] = kept
    return left


def _on_anothers_turn(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of tests that are marked `in_turn`, every second among those that differ in nothing but that parameter. Which of
    two goes by the test's name and by its other values, so that each of these meets both."""
    alike: dict[str, dict[tuple[Any, ...], list[pytest.Item]]] = {}
    for item in items:
        mark, values = item.get_closest_marker("in_turn"), getattr(item, "callspec", None)
        if mark is not None and values is not None:
            rest = tuple((name, id(value)) for name, value in values.params.items() if name != mark.args[0])
            alike.setdefault(item.nodeid.partition("[")[0], {}).setdefault(rest, []).append(item)
    return {
        item
        for name, groups in alike.items()
        for number, group in enumerate(groups.values(), zlib.crc32(name.encode()))
        for place, item in enumerate(group)
        if len(group) > 1 and (place + number) % 2
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Ends a test that hangs."""
    if not any(map(item.get_closest_marker, PATIENTLY)):
        signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"it hangs: not done within {HANGS_AFTER:g} s"))
        signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests are objects that stay: the collector need not look at them again and again, nor while they
    are made, which takes it as long as a third of their collection.
    """
    if session.config.pluginmanager.hasplugin("forked workers"):
        make_beforehand(session.items)
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)  # as a server has them
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for the whole run."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def session_valkey() -> Iterator[Valkey]:
    """One Valkey for the whole run; tests take `valkey`."""
    with valkey_server() as server:
        yield server


@pytest.fixture
def valkey(session_valkey: Valkey) -> Valkey:
    """The run's Valkey, empty."""
    session_valkey.flush()
    return session_valkey


@pytest.fixture
def chaos_postgres() -> Iterator[PostgresProcess]:
    """A PostgreSQL of the test's own, to freeze and kill."""
    with own_postgres() as process:
        yield process


@pytest.fixture
def chaos_valkey() -> Iterator[ValkeyProcess]:
    """A Valkey of the test's own, to freeze and kill."""
    with own_valkey() as process:
        yield process


def _new_storage(kind: str, request: pytest.FixtureRequest, directory: Path) -> str:
    if kind == "sqlite":
        return sqlite_url(directory)
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(params=STORAGES)
def storage_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database on the current schema for this test, once on each kind of storage."""
    return _new_storage(request.param, request, tmp_path_factory.mktemp("storage"))


@pytest.fixture(params=STORAGES)
def empty_storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of one that has nothing in it, for tests of migrations."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.empty_database()


@pytest.fixture(scope="module", params=STORAGES)
def module_storage_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same for a whole module: where `gateway` stores."""
    return _new_storage(request.param, request, tmp_path_factory.mktemp("storage"))


@pytest.fixture(scope="module")
def kinds() -> Kinds:
    """What gateways and their upstream are: processes and sockets; below `tests/unit` they are in memory."""
    return GatewayProcess, MockUpstream


@pytest.fixture(scope="module")
def module_upstream(kinds: Kinds) -> Iterator[MockUpstream]:
    """The mock that the module's gateways call; tests take `upstream`."""
    with kinds[1]() as mock:
        yield mock


@pytest.fixture
def upstream(module_upstream: MockUpstream) -> Iterator[MockUpstream]:
    """The mock upstream, as new. At the end of the test nothing invalid may have been sent to it.

    A test whose client itself sends what is invalid ends with `upstream.violations.clear()`.
    """
    yield from _as_new(module_upstream)


@pytest.fixture(scope="module")
def module_elsewhere(kinds: Kinds) -> Iterator[MockUpstream]:
    """The module's second upstream; tests take `elsewhere`."""
    with kinds[1]() as mock:
        yield mock


@pytest.fixture
def elsewhere(module_elsewhere: MockUpstream) -> Iterator[MockUpstream]:
    """Another provider, as new. At the end of the test nothing invalid may have been sent to it, either."""
    yield from _as_new(module_elsewhere)


def _as_new(mock: MockUpstream) -> Iterator[MockUpstream]:
    mock.clear()
    yield mock
    found = list(mock.violations)
    mock.clear()
    assert not found, "the upstream was sent invalid requests"


@pytest.fixture
def listening() -> Iterator[MockUpstream]:
    """A mock upstream on a port, for commands: they are processes of their own."""
    with MockUpstream() as mock:
        yield mock


@pytest.fixture
def provider(upstream: MockUpstream) -> MockProvider:
    """The same in the words of Anthropic and Gemini."""
    return MockProvider(upstream)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Ends what gateways were forked by, once all fixtures are."""
    shared_fork_server().close()


@pytest.fixture(scope="module")
def fork_server() -> ForkServer:
    """Where gateways that tests start are forked: hundreds of starts import everything once."""
    return shared_fork_server()


@pytest.fixture
def start_gateway(
    upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer, kinds: Kinds
) -> Iterator[GatewayFactory]:
    """Starts gateways before `upstream`: `start_gateway(config_overrides, env)`; ends them after the test."""
    factory = GatewayFactory(upstream, tmp_path, fork_server=fork_server, kind=kinds[0])
    yield factory
    factory.close()


@pytest.fixture(scope="module")
def crossing(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> "Iterator[Crossing]":
    """A gateway of all ways on which faults of upstreams go, for those who ask for it."""
    from tests.support.faults.ways import Crossing, config

    found = Crossing(module_start_gateway(config(module_upstream)), module_upstream)
    yield found
    found.close()


@pytest.fixture(scope="module")
def module_start_gateway(
    module_upstream: MockUpstream, tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer, kinds: Kinds
) -> Iterator[GatewayFactory]:
    """`start_gateway` for fixtures of a module's own: a gateway with other settings, shared by its tests."""
    directory = tmp_path_factory.mktemp("gateways")
    factory = GatewayFactory(module_upstream, directory, fork_server=fork_server, kind=kinds[0])
    yield factory
    factory.close()


@pytest.fixture(scope="module")
def module_gateways(module_start_gateway: GatewayFactory) -> SharedGateways:
    """Those of the module's `shared_gateway`s."""
    return SharedGateways(module_start_gateway)


@pytest.fixture(scope="module")
def module_gateway(
    module_upstream: MockUpstream,
    module_storage_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
    kinds: Kinds,
) -> Iterator[GatewayProcess]:
    """The module's gateway with the default configuration; tests take `gateway`."""
    directory = tmp_path_factory.mktemp("gateway")
    factory = GatewayFactory(module_upstream, directory, module_storage_url, fork_server, kinds[0])
    yield factory()
    factory.close()


@pytest.fixture
def gateway(module_gateway: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A running gateway before `upstream`, once on each kind of storage (at `module_storage_url`)."""
    if not module_gateway.alive:
        module_gateway.start()
    return module_gateway


@pytest.fixture(scope="module")
def module_one_gateway(module_start_gateway: GatewayFactory) -> GatewayProcess:
    """The module's gateway on SQLite; tests take `one_gateway`."""
    return module_start_gateway()


@pytest.fixture
def one_gateway(module_one_gateway: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway with the default configuration on SQLite alone, where the kind of storage cannot matter."""
    if not module_one_gateway.alive:
        module_one_gateway.start()
    return module_one_gateway


@pytest.fixture(scope="module")
def module_guarded(
    module_start_gateway: GatewayFactory, module_storage_url: str, request: pytest.FixtureRequest
) -> GatewayProcess:
    """The module's gateway with its `KEYS`, once on each kind of storage; tests take `guarded`."""
    return module_start_gateway({"auth": {"keys": request.module.KEYS}, "storage": {"url": module_storage_url}})


@pytest.fixture
def guarded(module_guarded: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway with the keys that its module names."""
    return module_guarded


own_key_gateway = shared_gateway(lambda upstream: {"model_list": [], "upstream": {"api_base": upstream.base_url}})
"""A gateway that only forwards the client's own key to its default upstream, on SQLite."""


@pytest.fixture
def make_client() -> Iterator[ClientFactory]:
    """Makes OpenAI SDK clients without retries: `make_client(gateway)`; closes them after the test."""
    factory = ClientFactory()
    yield factory
    factory.close()


@pytest.fixture
def client(gateway: GatewayProcess, make_client: ClientFactory) -> OpenAI:
    """The SDK's, of `gateway`."""
    return make_client(gateway)


@pytest.fixture
def clock() -> HandClock:
    """One that a test puts forward."""
    return HandClock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of a gateway's log with the failure of the test that used it."""
    report = yield
    if isinstance(item, pytest.Function) and report.failed:
        processes: list[GatewayProcess] = []
        for value in item.funcargs.values():
            started = value.started if isinstance(value, GatewayFactory) else [value]
            processes += [one for one in started if isinstance(one, GatewayProcess) and one not in processes]
        for process in processes:
            report.sections.append((f"log of the gateway on port {process.port}", process.log_tail()))
    return report
