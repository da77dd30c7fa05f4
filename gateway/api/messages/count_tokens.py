"""`POST /v1/messages/count_tokens`, and `GET /v1/models` as Anthropic's clients read it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator
from gateway.api.completion_handler import told_headers
from gateway.api.fields import renamed
from gateway.api.messages.endpoint import chat_request
from gateway.api.operations import ModelsEndpoint
from gateway.api.pagination import anthropic_paging_of, parameters
from gateway.api.request.validation import RequestArrival
from gateway.api.server.asgi import Receive, Scope, Send, came_by_messages, json_body, send_json, until_disconnect
from gateway.api.shapes import Json, shape
from gateway.core import errors, ports
from gateway.core.config.settings import Settings
from gateway.core.formats.anthropic import edits
from gateway.core.formats.anthropic.request_parser import read_request
from gateway.core.types.chat import ChatRequest
from gateway.pipeline import Pipeline

CountedTokens = shape("CountedTokens", "Tokens of a prompt.", {"input_tokens": int, "context_management?": Json | None})


class CountTokens:
    """Counts the tokens of a request's prompt and its documents, with the counter that budgets use. No model is called,
    nothing is stored, and no history is counted."""

    def __init__(self, pipeline: Pipeline, auth: KeyAuthenticator, settings: Settings, clock: ports.Clock) -> None:
        self._pipeline = pipeline
        self._auth = auth
        self._settings = settings
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = self._settings.server.max_body_bytes
        got = await received(scope, receive, self._auth, most, stored=False)
        facts = scope["gateway"]
        arrival = RequestArrival(facts["request_id"], self._clock.now(), self._clock.monotonic(), len(got.raw), facts)

        headers = told_headers(scope)
        reading = await got.run(lambda: read_request(json_body(got.raw), headers, counted=True))
        try:
            request = await got.run(chat_request, reading, headers, got.caller, self._settings, arrival)
            facts["model"] = request.model
            found = await until_disconnect(receive, self._counted(request, reading.edits))
        except errors.InvalidRequest as error:
            renamed(error, reading.external_field_name)
            raise
        await send_json(send, 200, found)

    async def _counted(self, request: ChatRequest, asked: Sequence[Json]) -> Json:
        tokens = await self._pipeline.count(request)
        if not asked:
            return {"input_tokens": tokens}
        messages, cleared = edits.edited(list(request.messages), asked, tokens)
        left = await self._pipeline.count(replace(request, messages=tuple(messages))) if cleared else tokens
        return {"input_tokens": left, "context_management": {"original_input_tokens": tokens}}


class ListedModels:
    """The models in the form that the client expects: one that sends `anthropic-version` gets Anthropic's objects."""

    def __init__(self, models: ModelsEndpoint) -> None:
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not came_by_messages(scope):
            await self._models(scope, receive, send)
            return
        paging = anthropic_paging_of(parameters(scope["query_string"].decode("latin-1")))
        found = await self._models.found(scope)
        if found.get("object") == "list":
            found = paging.part_of([as_model(each) for each in found["data"]])
        else:
            found = as_model(found)
        await send_json(send, 200, found)


def as_model(model: dict[str, Any]) -> dict[str, Any]:
    """Converts a model object of OpenAI to one of Anthropic; returns one of Anthropic's unchanged."""
    if model.get("type") == "model":
        return model
    created = model.get("created")
    at = datetime.fromtimestamp(created if isinstance(created, int) and 0 <= created < 2**33 else 0, UTC)
    name = str(model.get("id"))
    when = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": when, "lifecycle": "active"}
