"""litellm loaded ahead of its first request: the rehearsed call goes nowhere, and what failed is tried again."""

import importlib
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import respx

from gateway.upstream.litellm import wire
from gateway.upstream.litellm.provider import RefusingTransport, warm_up_call
from gateway.upstream.litellm.wire import LitellmLibrary
from tests.integration.litellm_calls import LIBRARY


async def test_the_rehearsed_call_is_made_and_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    answer = RefusingTransport.handle_async_request

    async def noted(self: Any, request: Any) -> Any:
        refused.append(str(request.url))
        return await answer(self, request)

    monkeypatch.setattr(RefusingTransport, "handle_async_request", noted)
    with respx.mock(assert_all_called=False) as network:
        await warm_up_call(LIBRARY)
    assert refused == ["https://api.anthropic.com/v1/messages"]
    assert network.calls.call_count == 0


async def test_what_could_not_be_loaded_is_tried_again_by_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def load(self: LitellmLibrary) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ImportError("half of a package")
        return "litellm"

    monkeypatch.setattr(LitellmLibrary, "_load", load)
    wire = LitellmLibrary()
    with pytest.raises(ImportError):
        await wire.get()
    assert await wire.get() == "litellm"
    assert await wire.get() == "litellm"
    assert len(tries) == 2


BROKEN_OFF = """
import sys
from gateway.upstream.litellm.wire import LitellmLibrary

class BreaksOnce:
    def find_spec(self, name, path=None, target=None):
        if name == "litellm.llms.cohere.embed.handler":
            sys.meta_path.remove(self)
            raise ImportError("broken off")

sys.meta_path.insert(0, BreaksOnce())
library = LitellmLibrary()
try:
    library._load()
except ImportError as error:
    assert str(error) == "broken off", error
print(library._load().__name__)
"""


@pytest.mark.chaos
def test_an_import_that_broke_off_leaves_no_half_of_the_package() -> None:
    """In a process of its own, since others use the package in this one."""
    done = subprocess.run([sys.executable, "-c", BROKEN_OFF], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == ["litellm"], done.stderr[-2000:]


async def test_modules_that_others_import_meanwhile_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dictionary of modules grows while it is gone through."""

    class Importing(str):
        __slots__ = ()

        def startswith(self, *prefix: Any) -> bool:
            sys.modules[f"imported_{len(sys.modules)}"] = ModuleType("imported")
            return super().startswith(*prefix)

    fetching = ModuleType("litellm.fetching")
    vars(fetching)["safe_get"] = print
    monkeypatch.setattr(sys, "modules", {Importing("litellm.fetching"): fetching, **sys.modules})
    monkeypatch.setattr(importlib, "import_module", lambda _: None)
    wire._forbid_fetching()
    assert vars(fetching)["safe_get"] is not print
