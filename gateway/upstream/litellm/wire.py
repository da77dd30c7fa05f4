"""The HTTP side of one call through litellm: deadlines, one retry of the connection, and the provider's real answer.

litellm is loaded at its first use and kept quiet: it fetches no prices, lists or URLs, logs and reports nothing.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import re
import sys
import threading
import warnings
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Sequence
from typing import Any, NoReturn

import httpx

from gateway.core import errors, jsons
from gateway.core.formats.anthropic import message_events, serializer
from gateway.core.instrumentation import logs
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.answers import CLOSED, MAX_STREAM_BYTES
from gateway.upstream.http.mending import EventParser, refusal
from gateway.upstream.http_client import TOO_LONG, translated

ANTHROPIC = "anthropic"
TEXTS = ("application/json", "text/event-stream")
"""Prefixes of the content types of textual answers."""
MAX_LINE_BYTES = 32 * 2**20
"""Limit of one line of a stream."""
END_MARK = re.compile(rb'(?<!\\)"(?:finish|block)Reason"\s*:\s*"(?![A-Z]+_REASON_UNSPECIFIED)([A-Z_]+)"')
END_MARK_BYTES = 64
"""Bytes of one piece that are searched again with the next: more than `END_MARK` matches."""
NEEDED_USAGES: dict[str, dict[str, Any]] = {
    "candidates": {"usageMetadata": {}},  # Gemini
    "promptFeedback": {"usageMetadata": {}},
    "output": {"usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}},  # Bedrock
    "done": {"prompt_eval_count": 0, "eval_count": 0},  # Ollama, which leaves one out if all was cached
}
"""The usage without which litellm refuses a whole answer or counts by itself, by a field of that answer. Zeros are
counted here, as those of a stream are."""

FLAGGED = frozenset(
    ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT")
)
"""Gemini's reasons for which litellm drops what a whole answer says; in a stream it keeps that."""
UNFLAGGED = "OTHER"
"""A reason that means `content_filter` to litellm, too, and for which it drops nothing."""


def provider_of(deployment: ModelDeployment) -> str:
    """Returns the provider's name in litellm."""
    named = deployment.options.get("custom_llm_provider")
    return named if isinstance(named, str) and named else deployment.route.partition("/")[0]


class GatewayTransport(httpx.AsyncBaseTransport):
    """Sends what litellm's HTTP client sends through the gateway's own client.

    litellm rewords errors and loses headers, so an error answer is stored here as the gateway's own `fault`. litellm
    ends a broken stream of Gemini's cleanly and calls most of its failures a `stop`, so `ended_by` is the last
    `finishReason` that went by, or the `blockReason` of a prompt, or empty. `patience` is how many seconds the next
    piece of an answer may take.
    """

    def __init__(self, client: httpx.AsyncClient, deployment: ModelDeployment) -> None:
        self._client = client
        self.deployment = deployment
        self._open: list[httpx.Response] = []
        self.fault: errors.GatewayError | None = None
        self.raw = b""
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.ended_by = ""
        self.patience = deployment.first_byte_timeout
        self.max_answer_bytes = deployment.max_answer_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request of litellm's; reads an answer with an error status and stores it as `fault`."""
        self.fault, self.raw = None, b""
        try:
            response = await self._send(request)
            self._open.append(response)
            self.status, self.headers = response.status_code, dict(response.headers)
            if response.status_code < 300:
                headers = _unpacked(response.headers)
                is_text = headers.get("content-type", "").startswith(TEXTS)
                speaks_so = provider_of(self.deployment) == ANTHROPIC
                body = (
                    _MendedMessage(self, response, _wants_stream(request))
                    if speaks_so
                    else _AnswerWithUsage(self, response, is_text=True)
                    if is_text
                    else _WatchedBody(self, response)
                )
                return httpx.Response(response.status_code, headers=headers, stream=body, request=request)
            with contextlib.suppress(errors.UpstreamInvalidResponse):  # whose status says enough
                self.raw = b"".join([piece async for piece in _WatchedBody(self, response)])
        except errors.GatewayError as error:
            self.fault = error
            raise
        if response.status_code < 400:
            self.fault = errors.UpstreamInvalidResponse(f"The upstream answered with status {response.status_code}.")
        else:
            self.fault = refusal(response.status_code, self.raw, response.headers, self.deployment)
        return httpx.Response(
            response.status_code, headers=_unpacked(response.headers), content=self.raw, request=request
        )

    async def aclose(self) -> None:
        """Keeps the connections open: litellm's clients come and go; the connections are the gateway's."""

    async def hang_up(self) -> None:
        """Closes all open responses."""
        for response in self._open:
            with contextlib.suppress(httpx.HTTPError):
                await response.aclose()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        request.headers["accept-encoding"] = "identity"
        limits = httpx.Timeout(connect=self.deployment.connect_timeout, read=None, write=None, pool=None)
        request.extensions["timeout"] = limits.as_dict()
        for attempt in (1, 2):
            try:
                async with deadline(self.deployment.first_byte_timeout):
                    with translated(begun=False):
                        return await self._client.send(request, stream=True, follow_redirects=False)
            except errors.UpstreamUnreachable:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")


class _WatchedBody(httpx.AsyncByteStream):
    """An answer's bytes, inspected as they pass."""

    def __init__(self, wire: GatewayTransport, response: httpx.Response, *, is_text: bool = False) -> None:
        """`is_text`: bytes that are no UTF-8 become U+FFFD; litellm would refuse the whole answer."""
        self._wire = wire
        self._text = getincrementaldecoder("utf-8-sig")("replace") if is_text else None
        self._response = response
        self._streamed = "text/event-stream" in response.headers.get("content-type", "")
        self._most_of_line, self._most = MAX_LINE_BYTES, MAX_STREAM_BYTES
        if not self._streamed:
            self._most_of_line = self._most = wire.max_answer_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces():
                if whole := piece if self._text is None else self._text.decode(piece).encode():
                    yield whole
            if self._text is not None and (rest := self._text.decode(b"", final=True)):
                yield rest.encode()
        except errors.GatewayError as error:
            self._wire.fault = error
            raise

    async def _pieces(self) -> AsyncIterator[bytes]:
        pieces = self._response.aiter_bytes()  # some proxies compress what they were asked not to
        total, line, tail = 0, 0, b""
        while True:
            with translated(begun=True):
                async with deadline(self._wire.patience):
                    piece = await anext(pieces, None)
            if piece is None:
                return
            last = piece.rfind(b"\n")
            line = line + len(piece) if last < 0 else len(piece) - last
            total += len(piece)
            if line > self._most_of_line:
                most = self._most_of_line // 2**20
                raise errors.UpstreamInvalidResponse(f"The upstream sent more than {most} MB in one piece.")
            if total > self._most:
                raise errors.UpstreamInvalidResponse(f"The upstream's answer exceeds {self._most} bytes.")
            seen = tail + piece
            for mark in END_MARK.finditer(seen):
                self._wire.ended_by = mark[1].decode()
            tail = seen[-END_MARK_BYTES:]
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


def _with_needed(said: Any, needed: dict[str, Any]) -> dict[str, Any]:
    """Returns an object with all that is needed, and what it says itself."""
    found = said if isinstance(said, dict) else {}
    return found | {
        name: _with_needed(found.get(name), value) if isinstance(value, dict) else found.get(name, value)
        for name, value in needed.items()
    }


class _AnswerWithUsage(_WatchedBody):
    """An answer; a whole one with the usage that litellm needs, unless it is an error."""

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._streamed:
            async for piece in super()._pieces():
                yield piece
            return
        raw = b"".join([piece async for piece in super()._pieces()])
        if (answer := jsons.object_in(raw)) is not None:
            if answer.get("error"):
                raise refusal(200, raw, {}, self._wire.deployment)
            needed = next((each for field, each in NEEDED_USAGES.items() if field in answer), {})
            whole = _unflagged(_with_needed(answer, needed))
            raw = raw if whole == answer else jsons.dumps(whole)
        yield raw


def _unflagged(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer of Gemini's without the reason for which litellm would drop its content."""
    candidates = answer.get("candidates")
    if not isinstance(candidates, list) or not isinstance(first := next(iter(candidates), None), dict):
        return answer
    content = first.get("content")
    if str(first.get("finishReason")) not in FLAGGED or not (isinstance(content, dict) and content.get("parts")):
        return answer
    return {**answer, "candidates": [{**first, "finishReason": UNFLAGGED}, *candidates[1:]]}


class _MendedMessage(_WatchedBody):
    """A message of Anthropic's, mended before LiteLLM reads it, whole or as a stream, as it was requested."""

    def __init__(self, wire: GatewayTransport, response: httpx.Response, is_stream_wanted: bool) -> None:
        super().__init__(wire, response)
        self._is_stream_wanted = is_stream_wanted

    async def _pieces(self) -> AsyncIterator[bytes]:
        if not self._streamed:
            raw = b"".join([piece async for piece in super()._pieces()])
            message = self._told(raw)
            if message is None or not serializer.is_message(message):
                yield raw
            elif self._is_stream_wanted:
                mender = message_events.EventMender()
                for event in message_events.events_of(message_events.sound_message(message)):
                    yield _written(mender.of(event))
            else:
                yield jsons.dumps(message_events.sound_message(message))
        elif self._is_stream_wanted:
            async for each in self._events():
                yield _written([each])
        else:
            made = message_events.MessageChunks(created=0)
            async for found in self._events():
                if isinstance(found, dict):
                    made.of(found)
                if made.ended:
                    break
            if not made.ended:
                raise errors.UpstreamInterrupted(CLOSED)
            yield jsons.dumps(message_events.sound_message(made.message()))

    async def _events(self) -> AsyncIterator[dict[str, Any] | bytes]:
        """Yields the events of a stream, mended; data that is no event as it came."""
        parser, mender = EventParser(), message_events.EventMender()
        async for piece in super()._pieces():
            for data in parser.feed(piece):
                event = self._told(data)
                for each in [data] if event is None else mender.of(event):
                    yield each

    def _told(self, raw: bytes) -> dict[str, Any] | None:
        """Parses an event as an object; None where it is none. Raises UpstreamRefused: the event reports a failure."""
        said = jsons.object_in(bytes(raw))
        if said is not None and (said.get("type") == "error" or said.get("error")):
            raise refusal(serializer.fault_status(said), bytes(raw), {}, self._wire.deployment)
        return said


def _unpacked(headers: httpx.Headers) -> httpx.Headers:
    """Returns the headers of a body that is decoded here."""
    found = headers.copy()
    for name in ("content-encoding", "content-length"):
        found.pop(name, None)
    return found


def _wants_stream(request: httpx.Request) -> bool:
    body = jsons.object_in(request.content)
    return body is not None and bool(body.get("stream"))


def _written(events: Sequence[dict[str, Any] | bytes]) -> bytes:
    return b"".join(b"data: %b\n\n" % (e if isinstance(e, bytes) else jsons.dumps(e)) for e in events)


@contextlib.asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Raises UpstreamTimeout: the body of the context took longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise errors.UpstreamTimeout(TOO_LONG) from error


log = logs.get_logger("gateway.upstream.litellm")
OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",  # otherwise it reads a `.env` file into the environment
    "LITELLM_LOG": "ERROR",
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}
LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "botocore", "boto3", "openai")
HANDLERS = ("success_handler", "failure_handler", "handle_sync_success_callbacks_for_async_calls")
ASYNC_HANDLERS = (
    *("async_success_handler", "async_failure_handler"),
    *("dispatch_success_handlers", "dispatch_failure_handlers"),
)
SCHEDULER = "_schedule_async_success_logging"
READ_ONLY = r"Items? '.*' on TypedDict class '\w+' (is|are) using the `ReadOnly` qualifier"
"""pydantic's warning when it first sees litellm's types."""
IMPORTING = threading.Lock()
"""One import at a time in a process: of two by gateways that share it, one would see half of the package."""
NO_FETCH = "This provider takes pictures and files only within the request; nothing is fetched from a URL."


class LitellmLibrary:
    """The package; importing it takes seconds, so that happens once, in a thread, while other requests go on."""

    def __init__(self, *, modify_params: bool = False) -> None:
        self._modify_params = modify_params
        self._loading: asyncio.Task[Any] | None = None
        self._module: Any = None

    async def get(self) -> Any:
        """Returns the `litellm` module, importing it first if needed. A caller that leaves does not stop the import for
        the others; the next call retries a failed import."""
        if self._module is not None:
            return self._module
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        self._module = await asyncio.shield(self._loading)
        return self._module

    def _load(self) -> Any:
        for name, value in OFFLINE.items():
            os.environ[name] = value  # litellm reads these while it is imported
        with IMPORTING:
            litellm = _imported()
        litellm.suppress_debug_info = True
        litellm.disable_hf_tokenizer_download = True
        litellm.modify_params = self._modify_params
        litellm.drop_params = False
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers.clear()
            logger.setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", READ_ONLY, UserWarning)
        _silence()
        _forbid_fetching()
        log.info("litellm_loaded")
        return litellm


def _imported() -> Any:
    """Imports the package. A failed import leaves modules behind that would break each later one; so they are removed
    too."""
    try:
        litellm = importlib.import_module("litellm")
        importlib.import_module("litellm.main")
    except BaseException:
        for name in [name for name in sys.modules.copy() if name.partition(".")[0] == "litellm"]:
            sys.modules.pop(name, None)
        raise
    return litellm


def _silence() -> None:
    """Disables litellm's accounting of calls: it runs in threads and tasks for callbacks that nobody registered."""
    logged = importlib.import_module("litellm.litellm_core_utils.litellm_logging").Logging
    for name in HANDLERS:
        setattr(logged, name, _nothing)
    for name in ASYNC_HANDLERS:
        setattr(logged, name, _nothing_async)
    setattr(importlib.import_module("litellm.utils"), SCHEDULER, _nothing)


def _nothing(*_: Any, **__: Any) -> None:
    return


async def _nothing_async(*_: Any, **__: Any) -> None:
    return


def _forbid_fetching() -> None:
    """Makes litellm fetch no URL of a request (guarantee §2), as it would for providers that take no URLs."""
    replaced = {"safe_get": _refuse, "async_safe_get": _refuse_async}
    importlib.import_module("litellm.litellm_core_utils.prompt_templates.factory")
    for module in [m for name, m in sys.modules.copy().items() if name.startswith("litellm.")]:
        for name, refused in replaced.items():
            if name in vars(module):
                setattr(module, name, refused)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise errors.InvalidRequest(NO_FETCH, param="messages", code="unsupported_url")


async def _refuse_async(*_: Any, **__: Any) -> NoReturn:
    _refuse()
