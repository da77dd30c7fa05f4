"""`POST /v1/messages/count_tokens`, and `GET /v1/models` as Anthropic's clients read it."""

from datetime import UTC, datetime
from typing import Any

from gateway.base.tasks import offload_if
from gateway.config.settings import Settings
from gateway.errors import InvalidRequest
from gateway.http.answering import told_headers
from gateway.http.auth import Authenticator
from gateway.http.edge import Receive, Scope, Send, send_json, speaks_anthropics
from gateway.http.inner.validation import Arrival
from gateway.http.messages.endpoint import chat_request
from gateway.http.operations import Models
from gateway.http.receive import LARGE_BODY, json_body, read_body, until_disconnect
from gateway.models.exchange import ChatRequest
from gateway.ports import Clock
from gateway.turn.pipeline import Pipeline
from gateway.wire.anthropic.reading import Reading, read_request


class CountTokens:
    """Counts what a request's prompt takes, with the counter that budgets are kept by. No model is asked, nothing is
    stored, and nothing that is stored is counted."""

    def __init__(self, pipeline: Pipeline, auth: Authenticator, settings: Settings, clock: Clock) -> None:
        self._pipeline = pipeline
        self._auth = auth
        self._settings = settings
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._auth.caller(scope)
        raw = await read_body(scope, receive, self._settings.server.max_body_bytes)
        facts = scope["gateway"]
        arrival = Arrival(facts["request_id"], self._clock.now(), self._clock.monotonic(), len(raw), facts)

        def read() -> tuple[Reading, ChatRequest]:
            headers = told_headers(scope)
            reading = read_request(json_body(raw), headers, counted=True)
            try:
                return reading, chat_request(reading, headers, caller, self._settings, arrival)
            except InvalidRequest as error:
                raise reading.renamed(error) from None

        reading, request = await offload_if(len(raw) >= LARGE_BODY, read)
        facts.update(model=request.model, tenant=caller.tenant)
        try:
            tokens = await until_disconnect(receive, self._pipeline.count(request))
        except InvalidRequest as error:
            raise reading.renamed(error) from None
        found: dict[str, Any] = {"input_tokens": tokens}
        if reading.edits:  # nothing is cleared while it is only counted
            found["context_management"] = {"original_input_tokens": tokens}
        await send_json(send, 200, found)


class ListedModels:
    """The models in the words of whoever asks: a client that says `anthropic-version` gets Anthropic's objects."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not speaks_anthropics(scope):
            await self._models(scope, receive, send)
            return
        found = await self._models.found(scope)
        if found.get("object") == "list":
            data = [as_model(each) for each in found["data"]]
            ids = [each["id"] for each in data] or [None]
            found = {"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}
        else:
            found = as_model(found)
        await send_json(send, 200, found)


def as_model(model: dict[str, Any]) -> dict[str, Any]:
    """A model object of OpenAI's as one of Anthropic's; one of Anthropic's own as it is."""
    if model.get("type") == "model":
        return model
    created = model.get("created")
    at = datetime.fromtimestamp(created if isinstance(created, int) and 0 <= created < 2**33 else 0, UTC)
    name = str(model.get("id"))
    when = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": when, "lifecycle": "active"}
