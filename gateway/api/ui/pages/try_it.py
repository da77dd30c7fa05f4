"""`/ui/try`: a small chat, with its bill beside it. A request made here takes the path of any other request, by the
chosen API; it is billed to the login, or to the key that is entered where the gateway has none of its own (guarantee
§13.10)."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gateway.api.classic.classic_chat import AnswerParts
from gateway.api.passthrough.bodies import FormPart
from gateway.api.server import asgi
from gateway.api.server.middleware import note_fault, note_refused
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest
from gateway.api.ui.pages.request_page import served
from gateway.api.ui.rendering import DECIDED_WORDS, STRATEGY_WORDS, number, said, usd, visible
from gateway.core import errors, jsons
from gateway.core.config import setting_sections
from gateway.core.formats.anthropic import message_events, serializer
from gateway.core.formats.responses import response_completion
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types.chat import RequestCaller

# What a person enters, as a request of one of the APIs. The API's own checks report errors in it.

CHOICES = {
    "mode": ("auto", "simple", "off"),
    "planning": ("auto", "always", "never"),
    "goal": ("synthesis", "reasoning"),
    "memory": ("extracts", "summary", "both"),
    "economy": ("auto", "observe", "off"),
    "recall": ("auto", "true", "false"),
    "cite": ("true", "false"),
}
"""Fields of `context` with a few values; one that is not chosen is not sent: the configured default applies."""
TRUTH = {"true": True, "false": False}
TRY_IT_INTERNAL_MODELS = ("context_planner", "summarizer")
APIS = {"chat": "Chat completions", "responses": "Responses", "messages": "Messages (Anthropic)"}
TRY_IT_PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
NUMBERS = ("temperature", "max_tokens")
TRY_IT_LONG_FIELDS = ("message", "system", "parameters", "tools")
TRY_IT_KEPT_FIELDS = (
    "api",
    "model",
    "conversation",
    "max_input_tokens",
    *NUMBERS,
    *TRY_IT_LONG_FIELDS[1:],
    *CHOICES,
    *TRY_IT_INTERNAL_MODELS,
)
"""Fields that stay in the form for the next message; a key and files do not."""
MAX_FIELD_CHARS = 1000
"""Characters of every field that is none of `TRY_IT_LONG_FIELDS`."""
MAX_LONG_CHARS = 1_000_000
DIGITS = 10
ANSWER_TOKENS = 4096
"""Default of `max_tokens`, which Anthropic's API requires."""
LIMITS = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
DATA = b"data: "
UNKNOWN_KIND = "application/octet-stream"
CONVERTED = ("application/pdf", "text/html", "message/rfc822", "application/x-ipynb+json")
"""Documents that the gateway converts to text, though they may look like text."""


@record
class EnteredForm:
    """The fields of the form, and the chosen files. `key` is the person's own, for this one request."""

    fields: Mapping[str, str]
    files: tuple[FormPart, ...] = ()

    @property
    def message(self) -> str:
        return self.fields.get("message", "")

    @property
    def api(self) -> str:
        """The chosen API: `chat`, `responses` or `messages`. Raises InvalidRequest: it is none of these."""
        api = self.fields.get("api") or "chat"
        if api not in APIS:
            raise errors.invalid("api", f"must be one of {', '.join(APIS)}")
        return api

    @property
    def key(self) -> str:
        """A key to be sent as a client would send it; empty if none was entered."""
        return self.fields.get("key", "").strip()

    @property
    def kept(self) -> dict[str, str]:
        """The fields that the form shows again."""
        return {name: self.fields[name] for name in TRY_IT_KEPT_FIELDS if self.fields.get(name)}


def entered(page: PageRequest) -> EnteredForm:
    """Reads the form that was posted. Raises InvalidRequest: a field is too long."""
    fields = dict(page.form)
    for name, text in fields.items():
        most = MAX_LONG_CHARS if name in TRY_IT_LONG_FIELDS[1:] else MAX_FIELD_CHARS
        if name != "message" and len(text) > most:
            raise errors.invalid(name, f"must have at most {most} characters")
    # A browser sends an empty file where none was chosen.
    return EnteredForm(fields, tuple(file for file in page.files if file.filename or file.content))


def as_request(form: EnteredForm, *, stream: bool) -> bytes:
    """Builds the body for the chosen API. Fields of the form outrank those of its parameters.
    Raises InvalidRequest: there is no message or model, a number is none, or parameters or tools are no such JSON."""
    api, fields = form.api, form.fields
    message = form.message.replace("\r\n", "\n")
    for name, value in (("message", message), ("model", fields.get("model", ""))):
        if not value.strip():
            raise errors.missing(name)
    body: Json = dict(_json(fields, "parameters", dict) or {})
    texts, content = _content(api, message, form.files)
    body |= {"model": fields["model"].strip(), "stream": stream, **_said(api, fields, content)}
    if (temperature := _number(fields, "temperature")) is not None:
        body["temperature"] = temperature
    limit = _number(fields, "max_tokens")
    if limit is None and api == "messages" and "max_tokens" not in body:
        limit = ANSWER_TOKENS
    if limit is not None:
        body[LIMITS[api]] = limit
    if tools := _json(fields, "tools", list):
        body["tools"] = tools
    given = body.get("context")
    if context := _context(fields):
        body["context"] = {**given, **context} if isinstance(given, dict) else context
    if texts:
        body["attachments"] = texts
    if conversation := fields.get("conversation", "").strip():
        body["conversation"] = conversation
    return jsons.dumps(body)


def _said(api: str, fields: Mapping[str, str], content: Any) -> Json:
    """Returns the system message and the question, in the API's form."""
    system = fields.get("system", "").replace("\r\n", "\n")
    question = {"role": "user", "content": content}
    if api == "responses":
        return {"input": [question], **({"instructions": system} if system.strip() else {})}
    if api == "messages":
        return {"messages": [question], **({"system": system} if system.strip() else {})}
    before = [{"role": "system", "content": system}] if system.strip() else []
    return {"messages": [*before, question]}


def _json(fields: Mapping[str, str], name: str, kind: type) -> Any:
    text = fields.get(name, "").strip()
    if not text:
        return None
    try:
        found = jsons.loads(text.encode())
    except (ValueError, jsons.JSONDecodeError) as error:
        raise errors.invalid(name, f"must be JSON: {error}") from None
    if not isinstance(found, kind):
        raise errors.invalid(name, f"must be a JSON {'object' if kind is dict else 'list'}")
    return found


def _number(fields: Mapping[str, str], name: str) -> int | float | None:
    text = fields.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else _finite(text)
    except ValueError:
        raise errors.invalid(name, "must be a number") from None


def _finite(text: str) -> float:
    found = float(text)
    if not -1e300 < found < 1e300:
        raise ValueError(text)
    return found


def _context(fields: Mapping[str, str]) -> Json:
    context: Json = {name: TRUTH.get(fields[name], fields[name]) for name in CHOICES if fields.get(name)}
    if models := {name: fields[name] for name in TRY_IT_INTERNAL_MODELS if fields.get(name)}:
        context["models"] = models
    if limit := fields.get("max_input_tokens", "").strip():
        if not (limit.isascii() and limit.isdigit() and len(limit) <= DIGITS):
            raise errors.invalid("context.max_input_tokens", "must be a whole number")
        context["max_input_tokens"] = int(limit)
    return context


def _content(api: str, message: str, files: Sequence[FormPart]) -> tuple[list[Json], Any]:
    """Returns plain texts as attachments, which stay in the conversation; all else as parts of the message."""
    texts: list[Json] = []
    others: list[Json] = []
    for file in files:
        title = file.filename or "file"
        kind = (file.content_type or UNKNOWN_KIND).partition(";")[0].strip()
        text = None if kind in CONVERTED else _text(file.content)
        if text is not None:
            texts.append({"title": title, "content": text})
        else:
            others.append(_part(api, title, kind, base64.b64encode(file.content).decode()))
    said_first = {"type": "input_text" if api == "responses" else "text", "text": message}
    return texts, [said_first, *others] if others else message


def _part(api: str, title: str, kind: str, data: str) -> Json:
    is_image, url = kind.startswith("image/"), f"data:{kind};base64,{data}"
    if api == "messages":
        source: Json = {"type": "base64", "media_type": kind, "data": data}
        return (
            {"type": "image", "source": source} if is_image else {"type": "document", "source": source, "title": title}
        )
    if api == "responses":
        named = {"type": "input_file", "filename": title, "file_data": url}
        return {"type": "input_image", "image_url": url} if is_image else named
    if is_image:
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": title, "file_data": url}}


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


# A request of the page that passes through an API's endpoint, and its answer in the page's own form.


Endpoint = Callable[..., Awaitable[None]]
"""Answers a request; with the argument `caller`: who sends it, where that is known already."""


@record
class BillRow:
    """One line of a bill; `href` leads to the page of what it names."""

    label: str
    text: str
    href: str | None = None


class ReadAnswer:
    """An answer in the form of an API, as far as it has arrived. `failed`: an error arrived in its stream."""

    def __init__(self, api: str) -> None:
        self._chunks: message_events.MessageChunks | response_completion.ResponseChunks | None = None
        if api != "chat":
            self._chunks = (
                response_completion.ResponseChunks(as_items=False)
                if api == "responses"
                else message_events.MessageChunks(created=0)
            )
        self.told = AnswerParts()
        self.failed = False

    def whole(self, body: Json) -> None:
        """Adds an answer that arrived whole. A dry run is the same object in every API, and in no API's form."""
        if "output" in body:
            body = {**response_completion.completion_of(body), **_given(body)}
        elif body.get("type") == "message":
            body = serializer.completion_of(body, created=0)
        self.told.add(body)

    def add(self, piece: Json) -> str:
        """Adds an event of a stream that is no error; returns the text that it brings."""
        chunks = [piece] if self._chunks is None else self._chunks.of(piece)
        holders = (piece, *(piece[name] for name in ("response", "message") if isinstance(piece.get(name), dict)))
        for each in holders:
            self.told.add(_given(each))
        return "".join(self.told.add(each) for each in chunks)

    @property
    def calls(self) -> list[str]:
        """The tools that the model wants called, each with its arguments."""
        functions = (call.get("function") or call.get("custom") or {} for call in self.told.calls.values())
        return [f"{each.get('name')}({each.get('arguments') or each.get('input') or ''})" for each in functions]


def _given(told: Json) -> Json:
    """Returns the gateway's own fields of an API's object."""
    return {name: told[name] for name in ("response_metadata", "conversation") if name in told}


class TrialRequest:
    """One request. `begin` and `events` for a stream, or `whole`."""

    def __init__(self, endpoint: Endpoint, api: str, page: PageRequest, caller: RequestCaller) -> None:
        self._endpoint = endpoint
        self._path = TRY_IT_PATHS[api]
        self._read = ReadAnswer(api)
        self._page = page
        self._caller = caller
        self._sent: asyncio.Queue[asgi.Message | None] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None

    async def whole(self, body: bytes) -> ReadAnswer:
        """Returns the answer. Raises GatewayError: there is none."""
        pieces: list[bytes] = []

        async def sent(message: asgi.Message) -> None:
            pieces.append(message.get("body", b""))

        await self._run(body, sent)
        self._read.whole(jsons.loads_decimal(b"".join(pieces)))
        return self._read

    async def begin(self, body: bytes) -> None:
        """Waits until the answer begins. Raises GatewayError: it does not."""
        self._running = asyncio.create_task(self._pushed(body))
        try:
            if await self._sent.get() is None:
                await self._running
        except BaseException:
            await self._end()
            raise

    async def events(self) -> AsyncIterator[bytes]:
        """Yields the events of the answer: a `delta` of text each, at last the `bill`, the `calls` of tools and the
        `conversation`; or an `error`. Raises ClientDisconnected: the browser has left; the upstream's call is
        cancelled, and what arrived is stored."""
        read = self._read
        try:
            while (message := await self._sent.get()) is not None:
                if found := _events(message.get("body", b""), read):
                    yield found
            if self._running is not None:
                await self._running
            if not read.failed:
                yield _ended(read)
        finally:
            await self._end()

    async def _pushed(self, body: bytes) -> None:
        try:
            await self._run(body, self._sent.put)
        finally:
            self._sent.put_nowait(None)

    async def _run(self, body: bytes, send: Any) -> None:
        """Runs the request in a scope without the browser's headers and connection, to which it must not write."""
        scope = {name: value for name, value in self._page.scope.items() if name != asgi.CLIENT}
        scope |= {"method": "POST", "path": self._path, "headers": []}
        has_come = False

        async def receive() -> asgi.Message:
            nonlocal has_come
            if has_come:
                return await self._page.receive()
            has_come = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._endpoint(scope, receive, send, caller=self._caller)

    async def _end(self) -> None:
        if self._running is not None and not self._running.done():
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError, asgi.ClientDisconnected, errors.GatewayError):
                await self._running


def _events(piece: bytes, read: ReadAnswer) -> bytes:
    """Converts a piece of an API's stream, which holds whole events, to the page's events."""
    found = b""
    for each in piece.split(b"\n\n"):
        line = next((line for line in each.split(b"\n") if line.startswith(DATA)), None)
        if line is None or line + b"\n\n" == asgi.STREAM_END:
            continue
        told = jsons.loads_decimal(line.removeprefix(DATA))
        if error := _error(told):
            read.failed = True
            found += asgi.event({"error": error})
        elif text := read.add(told):
            found += asgi.event({"delta": visible(text)})
    return found


def _error(told: Json) -> Json | None:
    """Returns the error that an event is, in any of the APIs' shapes."""
    kind = told.get("type")
    if kind == "response.failed":
        return dict((told.get("response") or {}).get("error") or {"message": "The answer failed."})
    if kind == "error" and "error" not in told:
        return {"message": told.get("message"), "code": told.get("code")}
    error = told.get("error") if kind in (None, "error") else None
    return dict(error) if isinstance(error, dict) else None


def _ended(read: ReadAnswer) -> bytes:
    told = read.told
    rows = [{"label": row.label, "text": said(row.text), "href": row.href} for row in bill_rows(told.metadata)]
    calls = [said(call) for call in read.calls]
    return asgi.event({"bill": rows, "conversation": told.conversation, "calls": calls}) + asgi.STREAM_END


def bill_rows(bill: Mapping[str, Any]) -> Sequence[BillRow]:
    """Renders a bill (guarantee §6) as lines for a person."""
    context = bill.get("context_utilization") or {}
    rows = [_linked("Request", "requests", bill.get("request_id"))]
    rows.append(BillRow("Why", "what was sent, and why", rows[0].href))
    if bill.get("conversation_id"):
        rows.append(_linked("Conversation", "conversations", bill["conversation_id"]))
    rows.append(BillRow("Model", " → ".join(bill.get("routing_path") or [str(bill.get("model"))])))
    rows += _spent(bill)
    rows += _window(context)
    rows += [BillRow("Artifact", _decided(each)) for each in context.get("artifacts_processed") or ()]
    if standing := (context.get("artifacts_standing") or {}).get("count"):
        rows.append(BillRow("Standing", f"{standing} artifacts as decided before"))
    if warnings := context.get("warnings"):
        rows.append(BillRow("Warnings", ", ".join(map(_in_words, warnings))))
    if total := (bill.get("timings_ms") or {}).get("total"):
        rows.append(BillRow("Time", f"{float(total) / 1000:.2f} s"))
    return rows


def _linked(label: str, kind: str, name: Any) -> BillRow:
    return BillRow(label, str(name), f"{PATH}/{kind}/{name}")


def _spent(bill: Mapping[str, Any]) -> Sequence[BillRow]:
    usage, cost = bill.get("usage") or {}, bill.get("cost") or {}
    prompt, completion = (number(usage.get(f"{part}_tokens")) for part in ("prompt", "completion"))
    rows = [BillRow("Tokens", f"{prompt} prompt + {completion} completion")]
    if cost.get("total_cost") is None:
        return [*rows, BillRow("Cost", "no price is known for this model")]
    estimated = ", estimated" if cost.get("estimated") else ""
    rows.append(BillRow("Cost", usd(Decimal(cost["total_cost"])) + estimated))
    if planning := cost.get("planning_cost"):
        rows.append(BillRow("incl. internal models", usd(Decimal(planning))))
    return rows


def _window(context: Mapping[str, Any]) -> Sequence[BillRow]:
    rows = [BillRow("Strategy", _in_words(context["strategy"]))] if context.get("strategy") else []
    used, budget = context.get("tokens_used"), context.get("budget_tokens")
    if used is not None and budget:
        about = "about " if context.get("tokens_estimated") else ""
        rows.append(BillRow("Window", f"{about}{number(used)} of {number(budget)} tokens ({used / budget:.0%})"))
    if reason := context.get("planning_reason"):
        plan = "followed" if context.get("llm_planning_used") else context.get("fallback_reason") or "none"
        rows.append(BillRow("Planning", f"{_in_words(reason)}; plan: {plan}"))
    return rows


def _in_words(code: Any) -> str:
    word, colon, of = str(code).partition(":")
    return DECIDED_WORDS.get(word, word) + colon + of


def _decided(artifact: Mapping[str, Any]) -> str:
    before, after = (number(artifact.get(f"{name}_size_chars")) for name in ("original", "processed"))
    strategy = artifact.get("strategy")
    return f"{artifact.get('source')}: {STRATEGY_WORDS.get(str(strategy), strategy)}, {before} → {after} characters"


# The page.

STREAM = "text/event-stream"
JSON = {"content-type": "application/json"}
ASKED_FOR = ("conversation", "model", "api")
"""Parameters of the address that fill the form."""


class TryIt:
    """The page, and its answers: streamed to its script, as a whole page to a browser without JavaScript."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the page (`GET /ui/try`)."""
        kept = {name: page.query[name] for name in ASKED_FOR if page.query.get(name)}
        return await self._render(page, kept)

    async def ask(self, page: PageRequest) -> PageAnswer:
        """Sends the request of the form and shows its answer (`POST /ui/try`)."""
        is_stream = STREAM in (asgi.header(page.scope, b"accept") or "")
        form = EnteredForm({})
        try:
            form = entered(page)
            endpoint: Endpoint = getattr(self._parts, form.api)
            asked = TrialRequest(endpoint, form.api, page, await self._caller(page, form.key))
            body = as_request(form, stream=is_stream)
            if is_stream:
                await asked.begin(body)
                return PageAnswer(asked.events(), 200, asgi.EVENT_STREAM)
            read = await asked.whole(body)
        except errors.GatewayError as error:
            note_fault(page.scope["gateway"], error)
            path = TRY_IT_PATHS.get(form.fields.get("api", ""), TRY_IT_PATHS["chat"])
            note_refused(self._parts.observed.refused, self._parts.clock, {**page.scope, "path": path}, error)
            if is_stream:
                return PageAnswer(jsons.dumps(error.body()), error.status, {**JSON, **error.headers})
            return await self._render(page, form.kept, error.status, draft=form.message, problem=error)
        told = read.told
        kept = form.kept | ({"conversation": told.conversation} if told.conversation else {})
        rows = bill_rows(told.metadata)
        return await self._render(
            page, kept, question=form.message, answer="".join(told.texts), bill=rows, calls=read.calls
        )

    async def _caller(self, page: PageRequest, key: str) -> RequestCaller:
        """Returns the caller who pays. Raises Forbidden: this login may only read, and spend nothing."""
        viewer = page.viewer
        if viewer is not None and viewer.own_tenant is not None:
            if setting_sections.USER not in viewer.roles:
                raise errors.Forbidden("This key is read-only: it has no role 'user'.")
            return viewer.caller()
        given = f"Bearer {key}" if key else asgi.header(page.scope, b"authorization")
        headers = [(b"authorization", given.encode("latin-1", "replace"))] if given else []
        return await self._parts.auth.caller({"method": "POST", "headers": headers})

    async def _render(self, page: PageRequest, kept: Mapping[str, str], status: int = 200, **shown: Any) -> PageAnswer:
        settings, viewer = self._parts.settings, page.viewer
        models = [name for name in served(settings) if viewer is None or viewer.caller().may_ask(name)]
        has_patterns = any("*" in entry.model_name for entry in settings.model_list)
        has_keys = settings.auth.wants_keys
        given: Json = {"problem": None, "draft": "", "question": None, "answer": None, "bill": (), "calls": (), **shown}
        return await page.render(
            "try.html",
            status,
            kept={name: kept.get(name, "") for name in TRY_IT_KEPT_FIELDS},
            is_set=any(kept.get(name) for name in (*CHOICES, *TRY_IT_INTERNAL_MODELS, "max_input_tokens")),
            models=models,
            any_model=has_patterns or settings.serves_unlisted,
            apis=APIS,
            is_advanced=any(kept.get(name) for name in (*NUMBERS, "parameters", "tools")),
            choices=CHOICES,
            internal=TRY_IT_INTERNAL_MODELS,
            may_ask=not has_keys or (viewer is not None and setting_sections.USER in viewer.roles),
            takes_key=not has_keys,
            needs_key=not has_keys and not settings.has_operator_key(),
            **given,
        )
