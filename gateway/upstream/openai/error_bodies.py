"""An upstream's error answers as the gateway's errors: message, code, and whether the window is exceeded (guarantee
§7). Server-sent events as the HTML standard defines them: any line ending, comments, fields, several `data` lines."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.errors import UpstreamAuth, UpstreamError, UpstreamInvalidResponse, UpstreamOverflow, UpstreamRefused
from gateway.core.formats.anthropic.serializer import FAULTS
from gateway.core.formats.responses.response_completion import FAILED
from gateway.core.ports import Clock
from gateway.core.types.chat import Headers, ModelDeployment
from gateway.upstream.http.client import decompressed_at_once

OVERFLOW_STATUS = (400, 413, 422, 500)
OVERFLOW_CODES = {
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",  # llama.cpp
    "model_max_prompt_tokens_exceeded",  # GitHub Copilot
    "tokens_limit_reached",  # GitHub Models
}
OVERFLOW_WORDS = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|maximum (prompt|model) length|"  # OpenAI, vLLM, xAI
    r"(prompt|input|context) (is |was )?too long|context the overflows|"  # Anthropic, Bedrock, Ollama, LM Studio
    r"too many (input )?tokens|model token limit|input tokens exceed|"  # Cohere, Bedrock, Kimi, Azure
    r"(input )?token count.*exceeds|input length.*exceeds|exceeds the maximum number of tokens|"  # Gemini, SGLang
    r"reduce the length of the (messages|prompt|input)|range of input length|"  # Groq, Cerebras, DashScope
    r"`inputs` (tokens \+|must have less than)|messages?\[\d+\]\.content.*string too long",  # TGI, OpenAI
    re.IGNORECASE | re.DOTALL,
)
LIMIT_OF_RATE = re.compile(r"rate.?limit|per[ -]?(minute|min|hour|day)\b|\b(tpm|tpd)\b|quota", re.IGNORECASE)
"""Such a message may name tokens, and yet another prompt is no remedy (Groq sends it with 413)."""
LIMIT_OF_ANSWER = re.compile(r"(completion|output) tokens", re.IGNORECASE)
PROMPT_WORDS = re.compile(r"prompt|input|messages", re.IGNORECASE)
STATUS = re.compile(r"[45]\d\d")
NUMBER = re.compile(r"(?<!<)\b\d[\d,]{2,}")
ONE_LIMIT = re.compile(
    r"(?:context (?:length|window|size)|maximum|max size|limit|<=)"
    r"(?: (?:is|of|only|allowed|number|length|model|prompt|tokens|at|to))*[ :=]+(\d[\d,]{2,})"
    r"|input length should be \[\d, ?(\d+)\]",  # DashScope
    re.IGNORECASE,
)
"""Where an error names nothing but the limit."""
LIMIT = re.compile(r"(?:context length (?:is|of)|limit of|<=|>)\s*(\d[\d,]*)")


def error_object(original: Any) -> dict[str, Any]:
    """The object that holds code and message, wherever this provider puts it: under `error`, at the top (Mistral,
    Cerebras), in a list of one (Gemini), or as JSON in a text (Ollama)."""
    if isinstance(original, list) and len(original) == 1:
        return error_object(original[0])
    if not isinstance(original, dict):
        return {"message": jsons.dumps_text(original)[:4000]}
    error = original.get("error", original)
    found: dict[str, Any] = error if isinstance(error, dict) else {**original, "message": error}
    inner = found.get("message")
    if isinstance(inner, str) and inner.startswith("{"):
        with suppress(jsons.JSONDecodeError):
            return {**found, **error_object(jsons.loads(inner))}
    return found


def message_of(original: Any) -> str | None:
    """What the provider says; None if it says nothing that can be shown."""
    if not isinstance(original, dict | list) or not original:
        return None
    error = error_object(original)
    return next((t for t in (error.get("message"), error.get("detail")) if isinstance(t, str) and t), None)


def status_of(original: Any) -> int | None:
    """The status that an error names in its body, whatever the status of the answer."""
    error = error_object(original)
    for code in (error.get("code"), error.get("status"), error.get("status_code")):
        number = int(code) if isinstance(code, str) and STATUS.fullmatch(code) else code
        if isinstance(number, int) and 400 <= number < 600:
            return number
    return None


def is_overflow(status: int, original: Any) -> bool:
    """Whether an error says that the prompt exceeds the model's window, rather than a limit of tokens a minute."""
    if status not in OVERFLOW_STATUS:
        return False
    error = error_object(original)
    names = {str(error.get("code")), str(error.get("type"))}
    if names & OVERFLOW_CODES:
        return True
    text = error.get("message")
    text = text if isinstance(text, str) else jsons.dumps_text(error)[:4000]
    if LIMIT_OF_RATE.search(" ".join((text, *names))):
        return False
    if LIMIT_OF_ANSWER.search(text) and not PROMPT_WORDS.search(text):
        return False
    return bool(OVERFLOW_WORDS.search(text))


def reported_tokens(original: Any) -> tuple[int | None, int | None]:
    """How many tokens the provider counted and how many it allows, where its error says so."""
    error = error_object(original)
    if isinstance(error.get("n_prompt_tokens"), int) and isinstance(error.get("n_ctx"), int):  # llama.cpp
        return error["n_prompt_tokens"], error["n_ctx"]
    text = str(error.get("message") or "")
    counts = sorted({int(n.replace(",", "")) for n in NUMBER.findall(text)})
    if len(counts) == 2:
        return counts[1], counts[0]
    named = LIMIT.search(text)
    if len(counts) < 3 or named is None:
        return None, None
    limit = int(named.group(1).replace(",", ""))  # prompt and answer are told apart: their sum is the largest, or none
    total = counts[-1] if counts[-1] > limit else sum(count for count in counts if count != limit)
    return (total, limit) if total > limit else (None, None)


def limit_alone(original: Any) -> int | None:
    """How many tokens the provider allows, where its error says that and no more."""
    text = message_of(original) or ""
    named = ONE_LIMIT.search(text)
    return int((named.group(1) or named.group(2)).replace(",", "")) if named else None


MAX_ERROR_BYTES = 2**20
SHOWN_CHARS = 4000
"""Of a body that is no JSON, so much is passed on."""
RELAYED = re.compile(r"^(x-ratelimit-.*|anthropic-ratelimit-.*|openai-.*|retry-after(-ms)?)$", re.IGNORECASE)
UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f]")

BY_NAME = {name: status for name, status in (FAULTS | FAILED).items() if status != 500}
"""Statuses of errors that come in an answer of a good one, by their codes and types; of what says no more than that the
server failed, 502 does."""
WAITS = {"retry-after": 1, "retry-after-ms": 1000}
"""The headers, and how many of their units a second has."""
LONGEST = timedelta(days=7)
"""Quotas of providers begin anew each day or week; a client that is told more would sleep for ever."""
WAIT_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
HTTP_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} "
    r"\d\d:\d\d:\d\d GMT",
    re.ASCII,
)
"""The one form that servers may send (RFC 9110 §5.6.7)."""


def refusal(status: int, raw: bytes, headers: Mapping[str, str], deployment: ModelDeployment) -> UpstreamError:
    """The error for an answer whose status, or whose body, says that there is none.
    `status`: below 400 for an error in the body of an answer with a good status; the status that the error itself names
    counts then, by its number or its name, else 502."""
    if deployment.operator_key and deployment.api_key:
        raw = raw.replace(deployment.api_key.encode(), b"***")  # some providers quote the key that they refuse
    try:
        original: Any = jsons.loads(raw)
    except jsons.JSONDecodeError:
        original = raw.decode("utf-8", "replace")[:SHOWN_CHARS]
    named = status_of(original)
    if deployment.operator_key and (status in (401, 403) or named in (401, 403)):
        return UpstreamAuth("The upstream refused the gateway's key.")
    if not 400 <= status < 600:
        error = error_object(original)
        names = (str(error.get(name)) for name in ("code", "type"))
        status = named or next((BY_NAME[name] for name in names if name in BY_NAME), 502)
    kept = relayed_headers(headers)
    if is_overflow(status, original):
        reported, limit = reported_tokens(original)
        return UpstreamOverflow(original, kept, reported, limit or limit_alone(original), message_of(original))
    return UpstreamRefused(status, original, kept, message_of(original))


def relayed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that come back to the client (guarantee §1). What tells a client to wait must be sane: some would
    sleep for years, or stumble over what is no number."""
    kept = {name.lower(): UNPRINTABLE.sub("", value) for name, value in headers.items() if RELAYED.match(name)}
    return {name: value for name, value in kept.items() if name not in WAITS or is_sane_wait(name, value)}


def is_sane_wait(name: str, value: str, clock: Clock | None = None) -> bool:
    """Whether the value of one of `WAITS` is a number of at most `LONGEST`, or (`retry-after`) a date that is no
    farther away. A date in the past means at once."""
    value = value.strip()
    if WAIT_NUMBER.fullmatch(value):
        return float(value) / WAITS[name] <= LONGEST.total_seconds()
    if name != "retry-after" or not HTTP_DATE.fullmatch(value):
        return False
    try:
        when = parsedate_to_datetime(value)
    except ValueError:  # the 31st of February, the 25th hour
        return False
    return when - (clock or SystemClock()).now() <= LONGEST


def waited_for(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that an upstream wants to be left alone, by its headers in lower case; None where it does not say, or
    nothing sane."""
    for name, units in reversed(WAITS.items()):  # milliseconds are more exact
        value = headers.get(name, "").strip()
        if not value or not is_sane_wait(name, value):
            continue
        if WAIT_NUMBER.fullmatch(value):
            return float(value) / units
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    return None


def without_insane_waits(headers: Headers) -> Headers:
    """Headers as they came, but for waits that no client could obey."""

    def stays(name: str, value: str) -> bool:
        return name not in WAITS or is_sane_wait(name, value)

    return [pair for pair in headers if stays(pair[0].decode("latin-1"), pair[1].decode("latin-1"))]


def check_refusal(
    method: str, status: int, raw: bytes, headers: Mapping[str, str], deployment: ModelDeployment
) -> None:
    """Returns if an error answer to a relayed call may go down as it came: it is in OpenAI's shape and names no key of
    the operator's.
    Raises UpstreamError: what the client gets in its stead."""
    plain = decompressed_at_once(raw, headers.get("content-encoding", ""), MAX_ERROR_BYTES)
    fault = refusal(status, plain or b"", headers, deployment)
    secret = deployment.api_key.encode() if deployment.operator_key and deployment.api_key else None
    readable = plain is not None or secret is None
    if readable and type(fault) is UpstreamRefused and not (secret and secret in (plain or b"")):
        shaped = isinstance(fault.original, dict) and isinstance(fault.original.get("error"), dict)
        if shaped or plain is None or method == "HEAD":
            return
    raise fault


MAX_EVENT_BYTES = 32 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_SIGNS = 20
"""Comments of one piece that are kept."""
LINE_END = re.compile(rb"\r\n|\n|\r")
SSE_DATA_SEPARATOR = b"\n\ndata: "


class ErrorData(bytes):
    """The data of an event whose name is `error`."""


class EventParser:
    """Turns the pieces of a stream into the data of its events. Names of events are ignored, but for `error`: nothing
    else in OpenAI's protocol depends on them. An event that the end of the stream cuts off is not given."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._after_cr = self._is_error = False
        self._first = True
        self._is_bare = True
        self.signs: list[bytes] = []
        """What comments say behind their colon, and nothing for each empty line that ends no event. Whoever reads them
        takes them away."""
        self.comments = 0
        """How many lines have come that belong to no event's data, while no event was under way: comments, mostly."""

    @property
    def is_inside(self) -> bool:
        """Whether an event, or a line, has begun and is not complete."""
        return bool(self._data or self._waiting_bytes)

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of all events that this piece completes. Raises UpstreamInvalidResponse: one event exceeds 32 MB."""
        if (
            not (self._waiting_bytes or self._data or self._is_error)
            and piece[:6] == b"data: "
            and piece[-2:] == b"\n\n"
        ):
            # Whole events of one line each, as nearly every provider sends them.
            whole = piece[6:-2].split(SSE_DATA_SEPARATOR)
            if piece.count(b"\n") == 2 * len(whole) and b"\r" not in piece:
                self._after_cr = self._first = False
                self._event_bytes = 0
                return whole
        return self._by_lines(piece)

    def _by_lines(self, piece: bytes) -> list[bytes]:
        events: list[bytes] = []
        for line in self._lines(piece):
            if not line:
                if self._data:
                    data = b"\n".join(self._data)
                    events.append(ErrorData(data) if self._is_error else data)
                else:
                    self.comments += 1
                    if self._is_bare:
                        self._sign(b"")
                self._data, self._event_bytes, self._is_bare, self._is_error = [], 0, True, False
                continue
            self._is_bare = False
            self._event_bytes = _checked(self._event_bytes + len(line))
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event" and value.strip() == b"error":
                self._is_error = True
            else:
                if not field:
                    self._sign(value)
                self.comments += not self._data
        return events

    def _sign(self, said: bytes) -> None:
        if len(self.signs) < MAX_SIGNS:
            self.signs.append(said)

    def _lines(self, raw: bytes) -> list[bytes]:
        """Complete lines without their ends. Each piece is searched once: a line in many pieces costs its length, not
        its square."""
        piece = raw[1:] if self._after_cr and raw.startswith(b"\n") else raw  # the other half of \r\n
        self._after_cr = raw.endswith(b"\r") if raw else self._after_cr
        if b"\n" not in piece and b"\r" not in piece:
            self._waiting.append(piece)
            self._waiting_bytes = _checked(self._waiting_bytes + len(piece))
            return []
        head, *lines = LINE_END.split(piece)
        lines.insert(0, b"".join((*self._waiting, head)))
        rest = lines.pop()
        self._waiting, self._waiting_bytes = [rest], len(rest)
        if self._first:
            self._first, lines[0] = False, lines[0].removeprefix(BYTE_ORDER_MARK)
        return lines


def _checked(size: int) -> int:
    if size > MAX_EVENT_BYTES:
        raise UpstreamInvalidResponse("The upstream sent an event of more than 32 MB.")
    return size
