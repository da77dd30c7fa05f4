"""What the tests of providers through litellm share: the adapter over a client that respx watches."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import httpx
import respx

from gateway.core.config.settings import Settings
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.types.chat import ModelDeployment, RequestCaller
from gateway.core.types.upstreams import UpstreamRequest
from gateway.upstream.litellm.provider import LitellmUpstream
from gateway.upstream.litellm.wire import LitellmLibrary
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.router import ConfiguredRouter
from tests.support.answers import function_tool, user

Json = dict[str, Any]
LIBRARY = LitellmLibrary()
TOOLS: Any = [function_tool(name, parameters={"type": "object", "properties": {}}) for name in ("weather", "clock")]
ASK: Json = user("What is the weather in Bern?")


def deployment(
    model: str, api_key: str | None = "sk-operators-own", caller: str | None = None, **more: Any
) -> ModelDeployment:
    """What routing makes of an entry with these `litellm_params`."""
    params = {"model": model, **({"api_key": api_key} if api_key else {}), **more}
    settings = Settings.model_validate({"model_list": [{"model_name": "m", "litellm_params": params}]})
    return ConfiguredRouter(settings, ModelCatalogue()).deployment("m", RequestCaller("t", caller))


async def complete(at: ModelDeployment, *messages: Json, **fields: Any) -> Any:
    async with httpx.AsyncClient() as client:
        body = {"model": at.provider_model, "messages": list(messages or (ASK,)), **at.parameters, **fields}
        return await LitellmUpstream(client, LIBRARY).complete(at, UpstreamRequest(body))


async def chunks(at: ModelDeployment, *messages: Json, **fields: Any) -> AsyncIterator[Json]:
    async with httpx.AsyncClient() as client:
        body = {"model": at.provider_model, "messages": list(messages or (ASK,)), **at.parameters, **fields}
        async with LitellmUpstream(client, LIBRARY).stream(at, UpstreamRequest(body)) as stream:
            async for batch in stream.batches():
                for chunk in batch:
                    yield chunk
            assert stream.done


async def streamed(at: ModelDeployment, *messages: Json, **fields: Any) -> tuple[Json, Json]:
    """A stream put together as the gateway does it: its message and its usage."""
    record = StreamRecord(1)
    async for chunk in chunks(at, *messages, **fields):
        record.add(chunk)
    (choice,) = record.completion()["choices"]
    return choice, record.usage or {}


def as_stream(pieces: Iterable[bytes], kind: str = "text/event-stream") -> httpx.Response:
    """A streamed answer of a provider's."""
    return httpx.Response(200, headers={"content-type": kind}, content=b"".join(pieces))


def asking(model: str, events: Callable[[Json], list[bytes]]) -> Callable[..., Awaitable[tuple[Json, Json]]]:
    """Asks this model, whose provider gives an answer, whole or as these events; its choice and usage."""

    async def ask(
        provider: respx.Route, answer: Json, stream: bool, *messages: Json, **fields: Any
    ) -> tuple[Json, Json]:
        at = deployment(model)
        if stream:
            provider.mock(as_stream(events(answer)))
            return await streamed(at, *messages, **fields)
        provider.mock(httpx.Response(200, json=answer))
        found = (await complete(at, *messages, **fields)).body
        return found["choices"][0], found["usage"]

    return ask


def sent(provider: respx.Route) -> Json:
    """The body that went up last."""
    found: Json = json.loads(provider.calls.last.request.content)
    return found
