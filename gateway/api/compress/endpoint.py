"""`POST /v1/compress`: fitted messages and their bill, for a gateway that asks the model itself (guarantee §13.11)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from gateway.api.auth import KeyAuthenticator, check_known
from gateway.api.completion_handler import told_headers
from gateway.api.fields import renamed
from gateway.api.messages.endpoint import chat_request
from gateway.api.request.chat_shapes import BILL, MESSAGES, MODEL
from gateway.api.request.gateway_fields import ContextField
from gateway.api.request.validation import RequestArrival, check_spelling, parse_chat_request
from gateway.api.server import asgi
from gateway.api.server.middleware import note_caller
from gateway.api.shapes import Json, said, shape
from gateway.core import errors, jsons, ports
from gateway.core.config.settings import Settings
from gateway.core.formats.anthropic import plain_blocks, serializer
from gateway.core.formats.anthropic.request_parser import read_request
from gateway.core.tasks import offload_if
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.conversation import ConversationRef
from gateway.pipeline import LimitedPipeline, Pipeline, not_paused

ANTHROPIC_PARTS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})
"""Types of parts that only Anthropic's messages have. Without any, its messages are a chat's."""
UNCHANGED_STRATEGY = "passthrough"


SYSTEM = said(str | list[Json], "Anthropic's: a text, or blocks.")
CompressRequest = shape(
    "CompressRequest",
    "A chat's request, or one in Anthropic's words, of which no model is asked.",
    MODEL | MESSAGES | {"context?": ContextField | None, "tools?": list[Json] | None, "system?": SYSTEM},
    is_open=True,
)
Compressed = shape(
    "Compressed",
    "The messages to be sent, in the words of those that came, and the bill of making them.",
    {
        "messages": list[Json],
        "system?": SYSTEM,
        "thinking?": said(Json, "Instead of the one that came, which a provider would refuse before these messages."),
        "tokens_before tokens_after": int,
        **BILL,
    },
)


@dataclass(eq=False, slots=True)
class CompressEndpoint:
    """The endpoint: a dry run whose answer has another shape and contains what was forwarded (guarantee §4 I7)."""

    pipeline: Pipeline
    limited: LimitedPipeline
    auth: KeyAuthenticator
    settings: Settings
    clock: ports.Clock
    large_bodies: asgi.LargeBodies

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        at, started, facts = self.clock.now(), self.clock.monotonic(), scope["gateway"]
        caller = await self.auth.caller(scope)
        note_caller(facts, caller)
        with self.large_bodies.place(caller.tenant) as place:
            raw = await asgi.read_body(scope, receive, self.settings.server.max_body_bytes, place)
            arrival = RequestArrival(facts["request_id"], at, started, len(raw), facts)
            asked = await offload_if(len(raw) >= asgi.LARGE_BODY, self._read, raw, told_headers(scope), caller, arrival)
            if asked.request.conversation != ConversationRef():
                check_known(caller.tenant)
            facts.update(model=asked.request.model, stream=False, store=False)
            try:
                answer = await asgi.until_disconnect(receive, self._fitted(asked.request, asked.body))
            except errors.InvalidRequest as error:
                renamed(error, asked.external_field_name)
                raise
        bill = answer["response_metadata"]
        await asgi.send_json(
            send, 200, answer, asgi.answer_headers(bill["conversation_id"], bill["cost"]["total_cost"])
        )

    def _read(
        self, raw: bytes, headers: Mapping[str, str], caller: RequestCaller, arrival: RequestArrival
    ) -> "_CompressRequest":
        """Raises InvalidRequest: a field breaks a rule; `param` names it."""
        body = asgi.json_body(raw)
        check_spelling(body, self.settings)
        reading = read_request(body, headers, counted=True) if _is_anthropics(body) else None
        external_field_name = reading.external_field_name if reading is not None else str
        try:
            if reading is not None:
                request = chat_request(reading, headers, caller, self.settings, arrival)
            else:
                request = parse_chat_request(body, headers, caller, self.settings, arrival)
        except errors.InvalidRequest as error:
            renamed(error, external_field_name)
            raise
        # Who asks the model asks the one that is named, and has neither our tool nor our citations to read.
        options = replace(request.options, dry_run=True, sent_elsewhere=True, recall=False, cite=False, pauses=False)
        return _CompressRequest(
            body, replace(request, options=options, fallbacks=False, store=False, stream=False), external_field_name
        )

    async def _fitted(self, request: ChatRequest, body: Json) -> Json:
        told = not_paused(await self.limited.dry_run(request))
        messages, used = told["messages"], told["response_metadata"]["context_utilization"]
        fitted = replace(request, messages=tuple(messages))
        before = after = told["prompt_tokens"]  # as the fit has counted them
        if messages != list(request.messages):
            before = await self.pipeline.count(request)
        system = body.get("system")
        if request.api == "messages":
            if used["strategy"] == UNCHANGED_STRATEGY and not used.get("profile"):
                messages = body["messages"]
            else:
                system, messages = _in_blocks(request, fitted, body["messages"])
        answer: Json = {"messages": messages, **({"system": system} if system else {})}
        if plain_blocks.is_enabled(body.get("thinking")) and plain_blocks.lacks_thoughts(told["messages"]):
            answer["thinking"] = {"type": "disabled"}  # as where the gateway itself asks the model
        counts = {"tokens_before": before, "tokens_after": after}
        return {**answer, **counts, "response_metadata": told["response_metadata"]}


class _CompressRequest(NamedTuple):
    """A body, what it asks for, and how it calls a field of a chat."""

    body: Json
    request: ChatRequest
    external_field_name: Callable[[str], str]


def _is_anthropics(body: Json) -> bool:
    if body.get("system") is not None:
        return True
    tools, messages = body.get("tools"), body.get("messages")
    if any(isinstance(tool, dict) and "input_schema" in tool for tool in (tools if isinstance(tools, list) else ())):
        return True
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        kinds = (part.get("type") for part in dicts_of(content))
        if any(isinstance(kind, str) and kind in ANTHROPIC_PARTS for kind in kinds):
            return True
    return False


def _in_blocks(request: ChatRequest, fitted: ChatRequest, given: list[Json]) -> tuple[list[Json], list[Json]]:
    """Returns fitted messages in Anthropic's form: the system's blocks, and messages; unchanged messages are returned
    as they were `given`."""
    sent = serializer.as_turns(request.messages)[1]
    as_given = dict(zip(map(jsons.canonical, sent), given, strict=True)) if len(sent) == len(given) else {}
    system, turns = serializer.as_turns(fitted.messages)
    return system, [as_given.get(jsons.canonical(turn), turn) for turn in turns]
