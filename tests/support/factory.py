"""Gateways and clients set up for a test, and an end for each of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.schemas import sqlite_url

SMALL_MODEL_INFO = {
    "max_input_tokens": 4096,
    "max_output_tokens": 512,
    "tokenizer": "o200k_base",
    "input_cost_per_token": 1e-06,
    "output_cost_per_token": 2e-06,
}
"""A window that tests can fill, at prices that they can reckon."""


def model_entry(upstream: MockUpstream, name: str, **more: Any) -> dict[str, Any]:
    """An entry of `model_list` for a model of the mock upstream."""
    params = {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    return {"model_name": name, "litellm_params": params, **more}


def small_entry(upstream: MockUpstream, name: str, **info: Any) -> dict[str, Any]:
    """The same with the window and the prices of `small`."""
    return model_entry(upstream, name, model_info={**SMALL_MODEL_INFO, **info})


def default_config(upstream: MockUpstream, storage_url: str) -> dict[str, Any]:
    """`gpt-4o`, `gpt-4o-mini` (the default planner and summarizer) and `small`, all on the mock upstream."""
    return {
        "model_list": [
            model_entry(upstream, "gpt-4o"),
            model_entry(upstream, "gpt-4o-mini"),
            small_entry(upstream, "small"),
            model_entry(upstream, "bench"),  # of which nobody knows the window
        ],
        "storage": {"url": storage_url},
        # What is queued for a primary model must not answer a planner; tests of planning say `planning: auto`.
        "context": {"planning": "never"},
        # Models that are not listed go here, never to a real provider.
        "upstream": {"api_base": upstream.base_url},
    }


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `overrides` laid over it: objects are merged, anything else is replaced, None takes out."""
    result = dict(base)
    for name, value in overrides.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(result.get(name), Mapping):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result


@dataclass
class GatewayFactory:
    """Called with what differs from the default configuration, starts a gateway; `close` ends them all."""

    upstream: MockUpstream
    directory: Path
    storage_url: str | None = None
    fork_server: ForkServer | None = None
    kind: type[GatewayProcess] = GatewayProcess
    started: list[GatewayProcess] = field(default_factory=list)

    def __call__(
        self,
        config_overrides: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        start: bool = True,
    ) -> GatewayProcess:
        """A running gateway (with `start=False`: one to be started), storing in an SQLite file of its own
        unless `config_overrides` or the factory name another `storage.url`.
        """
        directory = self.directory / f"gateway-{len(self.started)}"
        directory.mkdir()
        storage_url = self.storage_url or sqlite_url(directory)
        config = merged(default_config(self.upstream, storage_url), config_overrides or {})
        gateway = self.kind(config, env, directory=directory, fork_server=self.fork_server)
        self.started.append(gateway)
        if start:
            gateway.start()
        return gateway

    def close(self) -> None:
        """Kill what still runs; a test of an orderly end calls `terminate` itself."""
        for gateway in self.started:
            gateway.close()


Settings = Mapping[str, Any] | Callable[[MockUpstream], Mapping[str, Any]]


class SharedGateways:
    """The gateways of a module, each started when a test first asks for it, and again after a test has killed it."""

    def __init__(self, start: GatewayFactory) -> None:
        self._start = start
        self._started: dict[tuple[int, str | None], GatewayProcess] = {}

    def of(self, settings: Settings, storage_url: str | None = None) -> GatewayProcess:
        """That with these settings."""
        name = (id(settings), storage_url)
        if name not in self._started:
            config = settings(self._start.upstream) if callable(settings) else settings
            self._started[name] = self._start({**config, **({"storage": {"url": storage_url}} if storage_url else {})})
        elif not self._started[name].alive:
            self._started[name].start()
        return self._started[name]


def shared_gateway(settings: Settings, *, on_each_storage: bool = False) -> Any:
    """A fixture: a gateway that the tests of a module share, before an `upstream` as new.

    Args:
        settings: what differs from the default configuration, or a function that makes it for the mock upstream.
        on_each_storage: once on each kind of storage, instead of on an SQLite file of its own.
    """
    if on_each_storage:

        @pytest.fixture
        def on_each(
            module_gateways: SharedGateways, module_storage_url: str, request: pytest.FixtureRequest
        ) -> GatewayProcess:
            found = module_gateways.of(settings, module_storage_url)
            request.getfixturevalue("upstream")
            return found

        return on_each

    @pytest.fixture
    def shared(module_gateways: SharedGateways, request: pytest.FixtureRequest) -> GatewayProcess:
        found = module_gateways.of(settings)
        request.getfixturevalue("upstream")
        return found

    return shared


class ClientFactory:
    """Makes OpenAI SDK clients (no retries of their own, so that every request counts), and closes them."""

    def __init__(self) -> None:
        self._clients: list[OpenAI] = []

    def __call__(self, at: GatewayProcess | MockUpstream, api_key: str = "sk-test", **more: Any) -> OpenAI:
        """A client for `at`; `more` goes to `OpenAI(…)`."""
        options = {"max_retries": 0, "timeout": 30.0} | more
        client = OpenAI(base_url=at.base_url, api_key=api_key, **options)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close all clients made."""
        for client in self._clients:
            client.close()
