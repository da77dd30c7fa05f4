"""What a configuration loads once the server answers; a fault in one piece costs no other."""

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from gateway.app import Gateway
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.operations.warm_up import WarmUp, WarmUpPiece

OPENAI = {"model_name": "gpt-4o", "litellm_params": {"model": "openai/gpt-4o", "api_key": "sk-x"}}
LOCAL = {"model_name": "local", "litellm_params": {"model": "openai/local", "api_base": "http://127.0.0.1:9/v1"}}
CLAUDE = {"model_name": "claude", "litellm_params": {"model": "anthropic/claude-sonnet-4-5", "api_key": "sk-x"}}


@pytest.fixture(autouse=True)
def interpreter() -> Iterator[None]:
    """Each warm-up leaves the interpreter as it was. It begins with CPython's own figures: a gateway in this process
    that is warmed up, or a command that ran in it, leaves others."""
    found = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(0.005)
    gc.set_threshold(700, 10, 10)
    usual = sys.getswitchinterval(), gc.get_threshold()
    yield
    gc.unfreeze()
    assert (sys.getswitchinterval(), gc.get_threshold()) == usual
    sys.setswitchinterval(found[0])
    gc.set_threshold(*found[1])


def named(*models: dict[str, Any], **sections: Any) -> list[str]:
    """The names of the pieces of a configuration."""
    gateway = Gateway(Settings.model_validate({"model_list": list(models), **sections}))
    return [piece.name for piece in gateway.warm_up_pieces()]


def test_zero_configuration_loads_the_default_vocabulary_and_no_litellm() -> None:
    assert named() == ["prices", "vocabulary of the default", "context", "certificates"]


def test_each_model_has_its_vocabulary_and_one_through_litellm_loads_that() -> None:
    assert named(OPENAI, CLAUDE) == [
        *("prices", "vocabulary of gpt-4o", "vocabulary of claude", "context", "certificates", "litellm")
    ]


def test_upstreams_without_tls_need_no_certificates() -> None:
    assert "certificates" not in named(LOCAL)
    assert "certificates" in named(LOCAL, OPENAI)


def test_signatures_can_be_checked_before_the_first_token_comes() -> None:
    jwt = {"issuer": "https://login.example", "audience": "gateway", "tenant": "acme"}
    assert "signatures" in named(auth={"jwt": jwt})
    assert "signatures" not in named(auth={"mode": "keys"})


def test_what_cannot_be_served_is_not_prepared() -> None:
    unknown = {"model_name": "x", "litellm_params": {"model": "nobody/x", "custom_llm_provider": "nobody"}}
    assert "vocabulary of x" not in named(LOCAL, unknown)


class Loaded:
    """Pieces that note that they were loaded."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def piece(self, name: str, load: Callable[[], Awaitable[object]] | None = None) -> WarmUpPiece:
        """A piece that does `load` before it is noted."""

        async def noted() -> None:
            if load is not None:
                await load()
            self.names.append(name)

        return WarmUpPiece(name, noted)


async def test_a_fault_in_a_piece_is_logged_and_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loaded = Loaded()

    async def fail() -> None:
        raise RuntimeError("this wheel lacks a file")

    with caplog.at_level(logging.INFO):
        warm_up = [loaded.piece("before"), loaded.piece("broken", fail), loaded.piece("after")]
        await WarmUp(warm_up, SystemClock(), after=0).run()
    assert loaded.names == ["before", "after"]
    (fault,) = [record for record in caplog.records if record.message == "warm_up_failed"]
    assert fault.__dict__["fields"]["piece"] == "broken"
    (done,) = [record for record in caplog.records if record.message == "warm"]
    assert done.__dict__["fields"]["faults"] == 1


async def test_cancelled_it_begins_no_further_piece_and_leaves_the_interpreter_as_it_was() -> None:
    loaded, begun = Loaded(), asyncio.Event()
    usual = sys.getswitchinterval(), gc.get_threshold()
    during: list[Any] = []

    async def wait() -> None:
        during.append((sys.getswitchinterval(), gc.get_threshold()))
        begun.set()
        await asyncio.sleep(60)

    running = asyncio.ensure_future(
        WarmUp([loaded.piece("long", wait), loaded.piece("next")], SystemClock(), after=0).run()
    )
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert loaded.names == []
    assert during != [usual], "requests go before what is loaded"
    assert (sys.getswitchinterval(), gc.get_threshold()) == usual
