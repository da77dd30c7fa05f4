"""`POST /v1/responses/input_tokens`."""

from dataclasses import dataclass
from typing import Literal

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator, check_known
from gateway.api.completion_handler import told_headers
from gateway.api.fields import renamed
from gateway.api.request.body_cache import BodyCache
from gateway.api.request.validation import RequestArrival
from gateway.api.responses.compact import TRIGGER, CompactionEndpoint
from gateway.api.responses.endpoint import ResponsesAdapter
from gateway.api.server.asgi import Receive, Scope, Send, send_json, until_disconnect
from gateway.api.shapes import shape
from gateway.core import errors, ports
from gateway.core.config.settings import Settings
from gateway.core.types.conversation import UNNAMED
from gateway.pipeline import Pipeline

InputTokens = shape(
    "InputTokens", "Tokens of a prompt.", {"object": Literal["response.input_tokens"], "input_tokens": int}
)


@dataclass(slots=True)
class InputTokensEndpoint:
    """Counts the tokens of a request's prompt, with the counter that budgets use, including its documents and the whole
    history that it names. No model is called, and nothing is stored."""

    _pipeline: Pipeline
    _auth: KeyAuthenticator
    _settings: Settings
    _resends: BodyCache
    _compaction: CompactionEndpoint
    _clock: ports.Clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        got = await received(scope, receive, self._auth, self._settings.server.max_body_bytes, stored=False)
        facts = scope["gateway"]
        arrival = RequestArrival(facts["request_id"], self._clock.now(), self._clock.monotonic(), len(got.raw), facts)
        adapter = ResponsesAdapter(self._settings, self._resends, self._compaction)
        headers = told_headers(scope)

        try:
            while (request := await got.run(adapter.read, got.raw, headers, got.caller, arrival)) is None:
                if await adapter.look_up(got.caller) is not None:
                    raise errors.invalid("input", f"must not end with {TRIGGER}: no model is asked for it")
            if request.conversation != UNNAMED:
                check_known(got.caller.tenant)
            facts["model"] = request.model
            tokens = await until_disconnect(receive, self._pipeline.count(request, with_history=True))
        except errors.GatewayError as error:
            renamed(error, adapter.external_field_name)
            raise
        await send_json(send, 200, {"object": "response.input_tokens", "input_tokens": tokens})
