"""The MCP endpoint without a server: what is missing, and what its tools tell of themselves (guarantee §10.12)."""

import asyncio
import json
import sys
from typing import Any

import pytest

from gateway.api.mcp.arguments import SEARCH, TOOLS
from gateway.api.mcp.asker import McpCaller
from gateway.api.mcp.endpoint import McpEndpoint, McpNotInstalled
from gateway.api.mcp.tools import CALLS_AT_ONCE, McpTools
from gateway.core.config.settings import Settings
from gateway.core.errors import ConversationNotFound
from gateway.core.types.chat import RequestCaller


class Anybody:
    """Lets everybody in, in place of `Authenticator`."""

    async def caller(self, _: Any) -> RequestCaller:
        return RequestCaller("red", None, {})


async def asked() -> None:
    """Asks an endpoint that has nothing behind it."""
    unused: Any = None
    endpoint = McpEndpoint(Settings(), unused, unused, Anybody(), unused)  # type: ignore[arg-type]
    body = {"type": "http.request", "body": b"{}", "more_body": False}

    async def receive() -> Any:
        return body

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"localhost")], "gateway": {}}
    await endpoint(scope, receive, unused)


async def test_s10_12_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] in ("mcp", "mcp_types")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "gateway.api.mcp.server", raising=False)
    monkeypatch.delattr("gateway.api.mcp.server", raising=False)  # the package keeps what was imported of it once
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(McpNotInstalled, match=r"context-gateway\[mcp\]"):
        await asked()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_s10_12_a_tool_tells_its_arguments_and_its_result(tool: Any) -> None:
    for schema in (tool.input_schema(), dict(tool.result)):
        assert schema["type"] == "object"
        assert json.loads(json.dumps(schema)) == schema
    assert tool.input_schema()["additionalProperties"] is False
    assert all("description" in each for each in tool.input_schema()["properties"].values())


async def test_s12_16_calls_of_tools_take_turns() -> None:
    """A tenant that asks a lot keeps nobody waiting for all of it; what fails gives its turn back."""
    order: list[str] = []

    class Slow:
        """What is stored, which takes a step of the loop, and is not there for one tenant (in place of `Past`)."""

        async def search(self, tenant: str, *_: Any, **__: Any) -> Any:
            order.append(tenant)
            await asyncio.sleep(0)
            raise ConversationNotFound("No such conversation.")

    unused: Any = None
    tools = McpTools(Slow(), unused, None)  # type: ignore[arg-type]

    async def search(tenant: str) -> None:
        with pytest.raises(ConversationNotFound):
            await tools.call(McpCaller(tenant, is_one=True), SEARCH.name, {"query": "lamp"})

    await asyncio.gather(*(search(name) for name in (*["busy"] * 40, "other")))
    assert len(order) == 41
    assert order.index("other") <= CALLS_AT_ONCE + 1  # one of the busy one's waits before it
