"""`POST /api/v1/chat` and `/api/v1/chat/stream`: one message in, one answer out (guarantee §11.10).

The body becomes one of `/v1/chat/completions`, and is read, checked, answered and stored as such. The answer is written
in the form of this API.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter

from gateway.api.chat.endpoint import ChatAdapter
from gateway.api.completion_handler import CompletionHandler, StreamWriter
from gateway.api.conversations.context import WindowObject, as_window
from gateway.api.fields import RequestFields, SessionName, read
from gateway.api.pagination import given_metadata
from gateway.api.request.body_cache import BodyCache
from gateway.api.request.validation import CONVERSATION_ID, RequestArrival, attached
from gateway.api.server.asgi import STREAM_END, Receive, Scope, Send, comment, event, json_body
from gateway.api.shapes import Error, Json, either, shape
from gateway.core import errors, jsons
from gateway.core.config.settings import Settings
from gateway.core.formats.stream_record import Chunks
from gateway.core.frozen_records import record
from gateway.core.types import artifacts, bill, memory, tool_steps
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.pipeline import entity_memory

CLASSIC_CHAT_EXCLUDED_FIELDS = ("messages", "conversation", "stream", "stream_options", "n")
"""Fields of a chat that this API expresses otherwise, or does not have."""
SPEC_TITLE = "Workflow specification"
"""The title of the document that a `workflow_spec` becomes, before its `workflow_id`."""
WORKFLOW = "workflow"
"""The type of the entities that this API has paths for."""


def _not_blank(text: str) -> str:
    if not text or text.isspace():
        raise ValueError("not be empty")
    return text


def _printable(text: str) -> str:
    if not text.isprintable() or text.isspace():
        raise ValueError("be 1 to 128 printable characters")
    return text


class ClassicMessage(RequestFields):
    """A message; further fields are those of `ChatRequest`."""

    message: Annotated[str, AfterValidator(_not_blank)]
    conversation_id: SessionName | None = Field(
        None, description="An id of the gateway's, or a name of the client's own, of up to 256 characters."
    )
    workflow_id: Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)] | None = None
    workflow_spec: dict[str, Any] | None = Field(None, description="The workflow, shown to the model as a document.")
    model: str | None = Field(None, description="The first of `model_list` without it.")


SAID = TypeAdapter(ClassicMessage)


def default_model(settings: Settings) -> str | None:
    """Returns the model of requests that name none: the first of `model_list` that is a name; None without one."""
    return next((entry.model_name for entry in settings.model_list if "*" not in entry.model_name), None)


def as_chat(raw: bytes, default: str | None, *, stream: bool) -> tuple[Json, ClassicMessage]:
    """Converts a body to one of `/v1/chat/completions`; returns with it the message that it came in.
    Raises InvalidRequest: a field breaks a rule (`param`)."""
    body = json_body(raw)
    said = read(SAID, body)
    for name in CLASSIC_CHAT_EXCLUDED_FIELDS:
        if body.get(name) is not None:
            raise errors.invalid(name, "is not taken here: this API has message, conversation_id and /chat/stream")
    chat = {
        key: value
        for key, value in body.items()
        if key not in (*ClassicMessage.model_fields, *CLASSIC_CHAT_EXCLUDED_FIELDS)
    }
    model = default if said.model is None else said.model
    if model is None:
        raise errors.missing("model")
    if said.conversation_id is not None:
        chat |= named_conversation(chat, said.conversation_id)
    if said.workflow_id is not None:  # completions are found by it
        chat |= {"metadata": {**given_metadata(chat.get("metadata")), "workflow_id": said.workflow_id}}
    if said.workflow_spec:
        chat |= with_workflow_spec(chat, said.workflow_spec, said.workflow_id)
    message = {"role": "user", "content": said.message}
    return {**chat, "model": model, "messages": [message], "stream": stream}, said


def named_conversation(chat: Json, name: str) -> Json:
    """Returns the fields of a chat that name its conversation. A name of the client's own becomes that of a session:
    the conversation begins when the name is first used."""
    if CONVERSATION_ID.match(name):
        return {"conversation": name}
    context = chat.get("context") or {}
    if not isinstance(context, dict):
        raise errors.invalid("context", "must be an object")
    return {"context": {**context, "session": name}}


def about_workflow(request: ChatRequest, said: ClassicMessage, days: float | None) -> ChatRequest:
    """Returns the request with its workflow among what is to be remembered, by the name in its specification; where
    nothing is kept of it, or its memory is off, unchanged. `days`: how long a thing is remembered."""
    if said.workflow_id is None or not request.keeps_content:
        return request
    name = entity_memory.name_in(WORKFLOW, said.workflow_spec or {})
    note = entity_memory.noted(WORKFLOW, said.workflow_id, name, memory.DISCUSSED)
    options = request.memory or memory.EntityMemoryOptions(days=days)
    return replace(request, memory=replace(options, notes=(*options.notes, note)))


def with_workflow_spec(chat: Json, spec: Json, workflow_id: str | None) -> Json:
    """Returns the fields of a chat that show the model a workflow as an attached document, behind those that the client
    attaches: labelled, as data (guarantee §4 I6)."""
    others = attached(chat.get("attachments")) or []
    if not isinstance(others, list):  # the chat's own check names it
        return {}
    title = f"{SPEC_TITLE} {workflow_id}" if workflow_id else SPEC_TITLE
    shown = {"content": jsons.dumps(spec).decode(), "title": title, "attachment_type": artifacts.WORKFLOW_SPEC}
    return {"attachments": [*others, shown]}


ClassicAnswer = shape(
    "ClassicAnswer",
    "The answer, and how full the window was.",
    {"response": str, "conversation_id": str | None, "tools_used": list[str], "tool_calls?": list[Json]}
    | {"context": WindowObject, "response_metadata": bill.ResponseMetadata},
)
ClassicDelta = shape("ClassicDelta", "A piece of the text.", {"delta": str})
ClassicEvent = either("ClassicEvent", ClassicDelta, ClassicAnswer, Error)


@dataclass(slots=True)
class AnswerParts:
    """An answer, as far as it has arrived. `name` is the client's own name of the conversation."""

    name: str | None = None
    texts: list[str] = field(default_factory=list)
    calls: dict[int, Json] = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    conversation: str | None = None

    def as_json(self) -> Json:
        calls = list(self.calls.values())
        found = {
            "response": "".join(self.texts),
            "conversation_id": self.name or self.conversation,
            "tools_used": names_of(calls),
            "context": as_window(self.metadata.get("context_utilization") or {}),
            "response_metadata": self.metadata,
        }
        return {**found, "tool_calls": calls} if calls else found

    def add(self, part: Json) -> str:
        """Adds a whole completion or a chunk of one; returns the text that it brings."""
        self.metadata = part.get("response_metadata") or self.metadata
        self.conversation = (part.get("conversation") or {}).get("id") or self.conversation
        text = ""
        for choice in part.get("choices") or ():
            message = choice.get("message") or choice.get("delta") or {}
            text += tool_steps.text_of(message.get("content"))
            for number, call in enumerate(tool_steps.calls_of(message)):
                self._add_call(call.get("index", number), call)
        self.texts.append(text)
        return text

    def _add_call(self, index: int, piece: Json) -> None:
        """Adds a piece of a tool call: the first piece has its id and name, the others bring arguments."""
        known = self.calls.get(index)
        if known is None:
            self.calls[index] = {key: value for key, value in piece.items() if key != "index"}
            return
        function, more = known.setdefault("function", {}), piece.get("function") or {}
        function["arguments"] = (function.get("arguments") or "") + (more.get("arguments") or "")


def names_of(calls: Iterable[Json]) -> list[str]:
    """Lists the tools that were called, each once, in order of their first call."""
    functions = (call.get("function") or call.get("custom") or {} for call in calls)
    return list(dict.fromkeys(str(function.get("name")) for function in functions))


class ClassicChat:
    """Answers with a JSON object; with `stream`, with events: each `delta` of text, then that object, then `[DONE]`."""

    def __init__(self, answering: CompletionHandler, settings: Settings, resends: BodyCache, *, stream: bool) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        adapter = ClassicAdapter(self._settings, self._resends, stream=self._stream)
        await self._answering.answer(scope, receive, send, adapter)


class ClassicAdapter(ChatAdapter):
    """One message and its answer in the form of this API (an `ApiAdapter`)."""

    def __init__(self, settings: Settings, resends: BodyCache, *, stream: bool) -> None:
        super().__init__(settings, resends)
        self._stream = stream
        self._names = dict[str, str]()
        """Names of fields in this API, by the names that errors of a chat use."""
        self._answer = AnswerParts()

    def read(
        self, raw: bytes, headers: Mapping[str, str], caller: RequestCaller, arrival: RequestArrival
    ) -> ChatRequest:
        body, said = as_chat(raw, default_model(self._settings), stream=self._stream)
        self._names["conversation"] = "conversation_id"  # not before: a refused field keeps its own name
        self._answer.name = None if "conversation" in body else said.conversation_id
        attachments = body.get("attachments")
        if said.workflow_spec and isinstance(attachments, list) and len(attachments) == 1:
            self._names |= {"attachments": artifacts.WORKFLOW_SPEC, "attachments[0].content": artifacts.WORKFLOW_SPEC}
        request = super().read(jsons.dumps(body), headers, caller, arrival)
        if (body.get("memory") or {}).get("things") is False:
            return request
        return about_workflow(request, said, self._settings.memory.things_days)

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """Caches nothing: no later request begins with the same bytes."""
        return nullcontext()

    def external_field_name(self, path: str) -> str:
        path = super().external_field_name(path)
        return self._names.get(path, path)

    def whole(self, body: Json, request: ChatRequest) -> bytes:
        self._answer.add(_with_bill(body))
        return jsons.dumps(self._answer.as_json())

    def writer(self, request: ChatRequest) -> StreamWriter:
        return _ClassicEvents(self._answer)


@record
class _ClassicEvents:
    answer: AnswerParts

    def events(self, chunks: Chunks) -> bytes:
        return b"".join(event({"delta": text}) for chunk in chunks if (text := self.answer.add(_with_bill(chunk))))

    def end(self) -> bytes:
        return event(self.answer.as_json()) + STREAM_END

    def fault(self, error: errors.GatewayError) -> bytes:
        return event(error.body())

    def alive(self, said: bytes) -> bytes:
        return comment(said)


def _with_bill(part: Json) -> Json:
    """Returns an answer, or a chunk, with its bill as an object where the bill was serialized already."""
    bill = part.get("response_metadata")
    if not isinstance(bill, jsons.Fragment):
        return part
    return {**part, "response_metadata": jsons.loads_decimal(jsons.dumps(bill))}
