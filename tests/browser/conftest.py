"""A gateway with something to look at, and a browser that notices what must not happen.

Playwright is imported when a test first needs it, since `make test` collects these files without it.
"""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import NONE, executable, launch
from tests.browser.watched import Watched, watched
from tests.browser.world import World, administered, populate, provider
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Opening = Callable[..., Watched]


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One browser for the whole run; each test has a profile of its own in it."""
    path = executable()
    if path is None:
        pytest.skip(NONE)
    assert importlib.util.find_spec("playwright"), "Playwright is not installed: run `make browser`"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = launch(playwright, path)
        yield made
        made.close()


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway on loopback without keys, with conversations of every kind."""
    with MockUpstream() as upstream, ExitStack() as ends:
        upstream.handler = provider(upstream)
        factory = GatewayFactory(upstream, tmp_path_factory.mktemp("world"))
        ends.callback(factory.close)
        made = World(factory({"context": {"planning": "auto"}}), upstream)
        populate(made)
        yield made


ADMIN = "sk-sees-all-1234"
KEYS = [
    {"key": "sk-both-of-acme", "tenant": "acme", "name": "Ada's laptop", "roles": ["user", "viewer"]},
    {"key": "sk-looks-at-acme", "tenant": "acme", "roles": ["viewer"]},
    {"key": ADMIN, "tenant": "ops", "name": "operations", "roles": ["user", "admin"]},
    {"key": "sk-of-the-others", "tenant": "others", "roles": ["user"]},
]


OFFICE: dict[str, Any] = {
    "auth": {"keys": KEYS},
    "documents": {"index_chars": 100_000},
    "prompt_profiles": {"core": "You answer in one sentence.", "modes": {"search": "Say where it stands. " * 40}},
    "litellm_settings": {"num_retries": 2, "drop_params": True, "success_callback": ["langfuse"]},
}
"""What a gateway is told at work, with all that the page of its configuration shows."""


@pytest.fixture(scope="package")
def keyed_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway with keys; a conversation of each of two tenants, and something on each page for administrators."""
    with MockUpstream() as upstream, ExitStack() as ends:
        factory = GatewayFactory(upstream, tmp_path_factory.mktemp("keyed"))
        ends.callback(factory.close)
        made = World(factory(OFFICE), upstream)
        for name, key in (("acme", "sk-both-of-acme"), ("others", "sk-of-the-others")):
            messages = [{"role": "user", "content": f"A question of {name}."}]
            made.ask(name, {"model": "gpt-4o", "messages": messages}, key)
        administered(made, ADMIN)
        yield made


@pytest.fixture(scope="package")
def fresh_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that was started just now, and never asked for anything."""
    with MockUpstream() as upstream, ExitStack() as ends:
        factory = GatewayFactory(upstream, tmp_path_factory.mktemp("fresh"))
        ends.callback(factory.close)
        yield World(factory({}), upstream)


@pytest.fixture
def open_page(browser: "Browser", world: World) -> Iterator[Opening]:
    """Opens a path of the world's gateway in a profile of its own: `open_page("/ui", dark=True)`.

    At the end nothing may have run that a user or a model wrote, and nobody else been asked for anything.
    """
    opened: list[Watched] = []

    def opening(
        path: str = "/ui", url: str | None = None, logged_in: Mapping[str, str] = MappingProxyType({}), **options: Any
    ) -> Watched:
        page = watched(browser, url or world.url, **options)
        opened.append(page)
        page.context.add_cookies([{"name": name, "value": value, "url": page.url} for name, value in logged_in.items()])
        page.go(path)
        return page

    yield opening
    for page in opened:
        page.close()
    for page in opened:
        page.assert_inert()
