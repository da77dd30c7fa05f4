"""Makes an upstream's answer conform to OpenAI's protocol, once, at the edge (guarantee §1.9, §6.5, §7).

Errors become the gateway's: message, code, and whether the window is exceeded. Server-sent events are parsed as the
HTML standard defines them: any line ending, comments, fields, several `data` lines. In answers, a reported failure is
raised as one, tool calls are completed, halves of characters are joined, and usage has no impossible figures.
"""

import re
import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from gateway.core import errors, jsons
from gateway.core.clock import SystemClock
from gateway.core.formats import tool_calls
from gateway.core.formats.anthropic import serializer
from gateway.core.formats.responses import response_completion
from gateway.core.jsons import Json
from gateway.core.types import bill
from gateway.core.types.chat import Headers, ModelDeployment
from gateway.core.types.content_parts import as_parts, parts_of

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
"""Messages that may name tokens although another prompt is no remedy (Groq sends one with 413)."""
LIMIT_OF_ANSWER = re.compile(r"(completion|output) tokens", re.IGNORECASE)
PROMPT_WORDS = re.compile(r"prompt|input|messages", re.IGNORECASE)
STATUS = re.compile(r"[45]\d\d")
TOKEN_NUMBER = re.compile(r"(?<!<)\b\d[\d,]{2,}")
ONE_LIMIT = re.compile(
    r"(?:context (?:length|window|size)|maximum|max size|limit|<=)"
    r"(?: (?:is|of|only|allowed|number|length|model|prompt|tokens|at|to))*[ :=]+(\d[\d,]{2,})"
    r"|input length should be \[\d, ?(\d+)\]",  # DashScope
    re.IGNORECASE,
)
"""The limit in an error that names nothing else."""
LIMIT = re.compile(r"(?:context length (?:is|of)|limit of|<=|>)\s*(\d[\d,]*)")


def message_of(original: Any) -> str | None:
    """Returns the provider's message; None if there is none that can be shown."""
    if not isinstance(original, dict | list) or not original:
        return None
    error = errors.error_object(original)
    return next((t for t in (error.get("message"), error.get("detail")) if isinstance(t, str) and t), None)


def status_of(original: Any) -> int | None:
    """Returns the status that an error names in its body, whatever the status of the answer."""
    error = errors.error_object(original)
    for code in (error.get("code"), error.get("status"), error.get("status_code")):
        number = int(code) if isinstance(code, str) and STATUS.fullmatch(code) else code
        if isinstance(number, int) and 400 <= number < 600:
            return number
    return None


def is_overflow(status: int, original: Any) -> bool:
    """Returns whether an error means that the prompt exceeds the window, rather than a limit of tokens a minute."""
    if status not in OVERFLOW_STATUS:
        return False
    error = errors.error_object(original)
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
    """Returns how many tokens the provider counted and how many it allows, where its error reports both."""
    error = errors.error_object(original)
    if isinstance(error.get("n_prompt_tokens"), int) and isinstance(error.get("n_ctx"), int):  # llama.cpp
        return error["n_prompt_tokens"], error["n_ctx"]
    text = str(error.get("message") or "")
    counts = sorted({int(n.replace(",", "")) for n in TOKEN_NUMBER.findall(text)})
    if len(counts) == 2:
        return counts[1], counts[0]
    named = LIMIT.search(text)
    if len(counts) < 3 or named is None:
        return None, None
    limit = int(named.group(1).replace(",", ""))  # prompt and answer are separate: their sum is the largest, or none
    total = counts[-1] if counts[-1] > limit else sum(count for count in counts if count != limit)
    return (total, limit) if total > limit else (None, None)


def limit_alone(original: Any) -> int | None:
    """Returns how many tokens the provider allows, where its error reports that and no more."""
    text = message_of(original) or ""
    named = ONE_LIMIT.search(text)
    return int((named.group(1) or named.group(2)).replace(",", "")) if named else None


MAX_ERROR_BYTES = 2**20
SHOWN_CHARS = 4000
"""Characters that are passed on of a body that is no JSON."""
RELAYED = re.compile(r"^(x-ratelimit-.*|anthropic-ratelimit-.*|openai-.*|retry-after(-ms)?)$", re.IGNORECASE)
UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f]")

BY_NAME = {
    name: status
    for name, status in (serializer.FAULT_STATUSES | response_completion.FAILURE_STATUSES).items()
    if status != 500
}
"""Statuses of errors in an answer with a good status, by their codes and types; 502 stands for those that only report
that the server failed."""
WAITS = {"retry-after": 1, "retry-after-ms": 1000}
"""The headers that make a client wait, and how many of their units a second has."""
MAX_WAIT = timedelta(days=7)
"""Quotas of providers reset each day or week; a client that is sent a longer wait would sleep for ever."""
WAIT_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
HTTP_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} "
    r"\d\d:\d\d:\d\d GMT",
    re.ASCII,
)
"""The one form that servers may send (RFC 9110 §5.6.7)."""
MIN_SECRET = 8
"""Characters of a key from which it is hidden in errors: a local server's `none` is no secret, but a word."""


def refusal(status: int, raw: bytes, headers: Mapping[str, str], deployment: ModelDeployment) -> errors.UpstreamError:
    """Builds the error for an answer whose status, or whose body, reports a failure.
    `status`: below 400 for an error in the body of an answer with a good status; then the status that the error itself
    names counts, by its number or its name, else 502."""
    if secret := _secret(deployment):
        raw = raw.replace(secret.encode(), b"***")  # some providers quote the key that they refuse
    try:
        original: Any = jsons.loads(raw)
    except jsons.JSONDecodeError:
        original = raw.decode("utf-8", "replace")[:SHOWN_CHARS]
    named = status_of(original)
    if deployment.operator_key and (status in (401, 403) or named in (401, 403)):
        return errors.UpstreamAuth("The upstream refused the gateway's key.")
    if not 400 <= status < 600:
        error = errors.error_object(original)
        names = (str(error.get(name)) for name in ("code", "type"))
        status = named or next((BY_NAME[name] for name in names if name in BY_NAME), 502)
    kept = relayed_headers(headers, deployment)
    if is_overflow(status, original):
        reported, limit = reported_tokens(original)
        return errors.UpstreamOverflow(original, kept, reported, limit or limit_alone(original), message_of(original))
    return errors.UpstreamRefused(status, original, kept, message_of(original))


def _secret(deployment: ModelDeployment) -> str | None:
    """Returns the operator's key, if the deployment is called with one that has to be hidden from clients."""
    key = deployment.api_key
    return key if deployment.operator_key and key and len(key) >= MIN_SECRET else None


def relayed_headers(headers: Mapping[str, str], deployment: ModelDeployment) -> dict[str, str]:
    """Returns the headers that are returned to the client (guarantee §1)."""
    kept = {name.lower(): UNPRINTABLE.sub("", value) for name, value in headers.items() if RELAYED.match(name)}
    return dict(_fit(kept.items(), deployment))


def _fit(headers: Iterable[tuple[str, str]], deployment: ModelDeployment) -> list[tuple[str, str]]:
    """Returns the headers that a client may see. None quotes the operator's key; those that make a client wait must be
    sane: some clients would sleep for years, or fail on a value that is no number."""
    secret = _secret(deployment)
    return [
        (name, value)
        for name, value in headers
        if not (secret and secret in value) and (name not in WAITS or is_sane_wait(name, value))
    ]


def is_sane_wait(name: str, value: str) -> bool:
    """Returns whether the value of one of `WAITS` is a number of at most `MAX_WAIT`, or (`retry-after`) a date that is
    no farther away. A date in the past means at once."""
    value = value.strip()
    if WAIT_NUMBER.fullmatch(value):
        return float(value) / WAITS[name] <= MAX_WAIT.total_seconds()
    if name != "retry-after" or not HTTP_DATE.fullmatch(value):
        return False
    try:
        when = parsedate_to_datetime(value)
    except ValueError:  # the 31st of February, the 25th hour
        return False
    return when - SystemClock().now() <= MAX_WAIT


def waited_for(headers: Mapping[str, str], now: datetime) -> float | None:
    """Returns the seconds that an upstream asks to wait, by its headers in lower case; None where it asks for none, or
    for nothing sane."""
    for name, units in reversed(WAITS.items()):  # milliseconds are more exact
        value = headers.get(name, "").strip()
        if not value or not is_sane_wait(name, value):
            continue
        if WAIT_NUMBER.fullmatch(value):
            return float(value) / units
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    return None


def fit_headers(headers: Headers, deployment: ModelDeployment) -> Headers:
    """Returns the headers of a relayed answer that a client may see."""
    texts = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in _fit(texts, deployment)]


def decompressed_at_once(raw: bytes, encoding: str, max_bytes: int) -> bytes | None:
    """Decompresses the first `max_bytes` of a complete body; None if its encoding is unknown or violated."""
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, max_bytes)
    except zlib.error:
        return None


def check_refusal(
    method: str, status: int, raw: bytes, headers: Mapping[str, str], deployment: ModelDeployment
) -> errors.UpstreamRefused:
    """Checks that an error answer to a relayed call may be returned to the client unchanged: it is in OpenAI's shape
    and names no key of the operator's. Returns it as an error.
    Raises UpstreamError: what the client gets instead."""
    plain = decompressed_at_once(raw, headers.get("content-encoding", ""), MAX_ERROR_BYTES)
    fault = refusal(status, plain or b"", headers, deployment)
    secret = deployment.api_key.encode() if deployment.operator_key and deployment.api_key else None
    readable = plain is not None or secret is None
    if readable and type(fault) is errors.UpstreamRefused and not (secret and secret in (plain or b"")):
        shaped = isinstance(fault.original, dict) and isinstance(fault.original.get("error"), dict)
        if shaped or plain is None or method == "HEAD":
            return fault
    raise fault


MAX_EVENT_BYTES = 32 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_SIGNS = 20
"""Comments of one piece that are stored."""
LINE_END = re.compile(rb"\r\n|\n|\r")
SSE_DATA_SEPARATOR = b"\n\ndata: "


ERROR_FIELDS = (b"error", b'{"error"')
"""How a line begins, before its first colon, that tells a failure itself: llama.cpp's servers write `error: {…}`, and
a proxy may break in with an answer's body."""


class ErrorData(bytes):
    """The data of an event whose name is `error`, or of a line that tells a failure itself."""


class EventParser:
    """Turns the pieces of a stream into the data of its events. Names of events are ignored, except `error`: nothing
    else in OpenAI's protocol depends on them. An event that the end of the stream cuts off is dropped."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._after_cr = self._is_error = False
        self._first = True
        self._is_bare = True
        self.signs: list[bytes] = []
        """The text of comments after their colon, and an empty one for each empty line that ends no event. The reader
        empties the list."""
        self.comments = 0
        """Lines that belong to no event's data and came while no event was in progress: comments, mostly."""

    @property
    def is_inside(self) -> bool:
        """Whether an event, or a line, has begun and is not complete."""
        return bool(self._data or self._waiting_bytes)

    def feed(self, piece: bytes) -> list[bytes]:
        """Returns the data of all events that a piece completes. Raises UpstreamInvalidResponse: one exceeds 32 MB."""
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
            elif field in ERROR_FIELDS:
                events.append(ErrorData(line if field[:1] == b"{" else value.removeprefix(b" ")))
            else:
                if not field:
                    self._sign(value)
                self.comments += not self._data
        return events

    def _sign(self, said: bytes) -> None:
        if len(self.signs) < MAX_SIGNS:
            self.signs.append(said)

    def _lines(self, raw: bytes) -> list[bytes]:
        """Returns complete lines without their ends. Each piece is searched once: a line in many pieces costs its
        length, not its square."""
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
        raise errors.UpstreamInvalidResponse("The upstream sent an event of more than 32 MB.")
    return size


FAILED_FINISHES = frozenset(
    (
        *("error", "network_error", "insufficient_system_resource", "abort", "cancelled", "canceled"),
        *("malformed_function_call", "malformed_response", "unexpected_tool_call", "too_many_tool_calls"),
        "missing_thought_signature",
    )
)
"""Finish reasons of answers that were given up: OpenRouter's and vLLM's, Zhipu's, DeepSeek's, SGLang's, those of
gateways, Gemini's."""
UNSHAPED = ("detail", "message", "errors", "error_msg")
"""Fields in which proxies and frameworks report a failure in place of an answer; the first present counts."""
ANSWERS = frozenset(("id", "object", "choices", "usage", "type"))
"""Fields of which an answer, or a chunk, has some."""
MAX_CHOICES = 128
ESCAPE = b"\\u"
ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""JSON's escape of a half of a surrogate pair, or of a whole one."""
LEGACY = "function_call"
"""Field and finish reason of calls in the API before tools."""
LEGACY_PLACE = 0
THINKING, THOUGHTS = "thinking", "reasoning_content"
"""Type and field of the parts in which Mistral's models think; and the field that holds all others' thoughts."""
TEXT_PART_FIELDS = {"type", "text"}
"""The fields of a part that is nothing but a text."""


def failure_in(said: Mapping[str, Any]) -> Json | None:
    """Returns the error that a whole answer, or a chunk, reports, in whatever form; None if it reports none."""
    choices = said.get("choices")
    choices = choices if isinstance(choices, list) else ()
    if "error" in said and _is_told(said["error"]):
        return {"error": said["error"]} if any(isinstance(choice, dict) for choice in choices) else dict(said)
    is_error = said.get("object") == "error" or said.get("type") == "error"
    if is_error and not any(isinstance(choice, dict) for choice in choices):
        return {"error": {k: v for k, v in said.items() if k != "object"}}
    is_answer = "choices" in said or ANSWERS & said.keys()
    if not is_answer and (words := next((said[name] for name in UNSHAPED if said.get(name)), None)):
        text = words if isinstance(words, str) else jsons.dumps_text(words)
        return {"error": {**{k: said[k] for k in ("code", "status") if k in said}, "message": text}}
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        if "error" in choice and _is_told(choice["error"]):
            return {"error": choice["error"]}
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason.lower() in FAILED_FINISHES:
            text = f"The upstream gave up its answer: {reason}."
            return {"error": {"message": text, "type": "upstream_error", "param": None, "code": reason}}
    return None


def fault_of(told: Json, deployment: ModelDeployment, headers: Mapping[str, str] | None = None) -> errors.UpstreamError:
    """Builds the fault for an error that an answer with a good status reports."""
    return refusal(200, jsons.dumps(told), headers or {}, deployment)


def check_choices(choices: Any, part: str) -> None:
    """Checks what all later steps rely on; a choice without an index gets its position, and a message or a text in a
    stream becomes a delta.
    `part`: `message` or `delta`.
    Raises UpstreamInvalidResponse: choices, their messages or tool calls are not what OpenAI's protocol says."""
    if not isinstance(choices, list):
        raise errors.UpstreamInvalidResponse("The upstream's choices are no list.")
    for position, choice in enumerate(choices):
        message = choice.get(part) if isinstance(choice, dict) else False
        if message is None:
            if part == "message":
                raise errors.UpstreamInvalidResponse("The upstream's answer holds a choice without a message.")
            if "delta" not in choice or "message" in choice:
                message = choice["delta"] = _instead_of_delta(choice)
        if message is not None:
            if not isinstance(message, dict):
                raise errors.UpstreamInvalidResponse("The upstream's answer holds a choice that is none.")
            calls = message.get("tool_calls")
            if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
                raise errors.UpstreamInvalidResponse("The upstream's answer holds tool calls that are none.")
        index = choice.get("index")
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            choice["index"] = position


def _instead_of_delta(choice: Json) -> Any:
    """Returns the content of a streamed choice from another place: as whole answers, or legacy completions, hold it."""
    if "message" in choice:
        return choice.pop("message")
    text = choice.get("text")
    return {"content": text} if isinstance(text, str) and text else {}


def _wants_one(body: Mapping[str, Any]) -> bool:
    return body.get("n") in (None, 1)


def _choices_of(answer: Any) -> Any:
    if not isinstance(answer, dict) or not answer.get("choices"):
        raise errors.UpstreamInvalidResponse("The upstream's answer holds no choices.")
    return answer["choices"]


def usage_in(answer: Any) -> Json | None:
    """Returns the usage that an answer or a chunk reports, without figures out of range; None if it reports none."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return bill.sound(usage) if isinstance(usage, dict) else None


def whole_mended(
    answer: Any,
    body: Mapping[str, Any],
    deployment: ModelDeployment,
    raw: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Json:
    """Mends a whole answer and returns it; may change `answer`.
    `body`: of the request, in the form of any API; `raw`: the answer's bytes, if they are known.
    Raises UpstreamRefused: it reports a failure; what else it holds may be charged; UpstreamInvalidResponse: it has no
    choices, or some that are none."""
    told = failure_in(answer) if isinstance(answer, dict) else None
    if told is not None:
        fault = fault_of(told, deployment, headers)
        if answer.get("choices"):
            fault.may_be_charged, fault.usage = True, usage_in(answer)
        raise fault
    try:
        check_choices(_choices_of(answer), "message")
    except errors.UpstreamInvalidResponse as fault:
        fault.usage = usage_in(answer)  # a filter leaves nothing of an answer that is charged
        raise
    found: Json = answer
    if raw is None or (ESCAPE in raw and ESCAPED_HALF.search(raw)):
        found = dict(jsons.with_whole_characters(answer))
    choices = found["choices"]
    if len(choices) > 1:
        choices.sort(key=lambda choice: choice["index"])
    elif _wants_one(body):
        choices[0]["index"] = 0
    for choice in choices:
        message = choice["message"]
        _mend_words(message)
        message["role"] = _role(message)
        legacy = message.get(LEGACY)
        if isinstance(legacy, dict) and not isinstance(legacy.get("arguments", ""), str):
            legacy = message[LEGACY] = {**legacy, "arguments": tool_calls.written(legacy["arguments"] or {})}
        if isinstance(legacy, dict) and _wants_tools(body):
            del message[LEGACY]
            message["tool_calls"] = [*(message.get("tool_calls") or ()), {"function": legacy}]
        if message.get("tool_calls"):
            call_ids = tool_calls.CallIds()
            message["tool_calls"] = [tool_calls.whole_call(call, call_ids) for call in message["tool_calls"]]
            if choice.get("finish_reason") == LEGACY and not message.get(LEGACY):
                choice["finish_reason"] = "tool_calls"
        if choice.get("finish_reason") is None:
            choice["finish_reason"] = "tool_calls" if message.get("tool_calls") else "stop"
    if (usage := _usage_told(found)) is not None:
        found["usage"] = usage
    return found


def _usage_told(answer: Json) -> Json | None:
    """Returns the usage of an answer or a chunk, without impossible figures: from its own place, else from beside a
    choice, as Moonshot sends it, or from `x_groq`."""
    groq = answer.get("x_groq")
    others = [groq] if isinstance(groq, dict) else []
    told = [each.get("usage") for each in (answer, *(answer.get("choices") or ()), *others)]
    found = [usage for usage in told if isinstance(usage, dict)]
    counts = (usage for usage in found if any(bill.figure(usage, name) for name in bill.USAGE_FIGURES))
    usage = next(counts, found[0] if found and found[0] is answer.get("usage") else None)
    return None if usage is None else bill.sound(usage)


def _says_text_alone(chunk: Json) -> bool:
    """Returns whether a chunk is one piece of one text, as most are: no failure, and nothing that needs mending."""
    choices = chunk.get("choices")
    if type(choices) is not list or len(choices) != 1 or chunk.get("usage") is not None or "error" in chunk:
        return False
    choice = choices[0]
    delta = choice.get("delta")
    if type(delta) is not dict or len(delta) != 1 or type(delta.get("content")) is not str:
        return False
    return choice.get("finish_reason") is None and "error" not in choice and choice["index"] == 0


class StreamMender:
    """Mends the chunks of one answer. `fault` is the failure that the last chunk reported, after its content."""

    def __init__(self, deployment: ModelDeployment, body: Mapping[str, Any]) -> None:
        """`body`: of the request, in the form of any API."""
        self.thinks_in_parts = False
        self.fault: errors.UpstreamError | None = None
        self.notice: errors.UpstreamError | None = None
        """A message in place of an answer, without a status: a failure if the answer does not go on after it."""
        self._is_ending = False
        self._deployment = deployment
        self._wants_tools = _wants_tools(body)
        self._tools = frozenset(_names(body))
        self._calls: dict[int, tool_calls.CallPieces] = {}
        self._halves: dict[tuple[Any, ...], str] = {}
        """First halves of characters that wait for the second, by their choice and their path in the delta."""
        self._legacy_names: set[int] = set()
        self._last: Json = {}
        self._wants_one = _wants_one(body)
        self._first: int | None = None
        """The index of the choice that came first: where one was requested, this is the one, whatever its index."""

    def mended(self, chunk: Json, raw: bytes | None = None) -> list[Json]:
        """Mends a chunk whose choices have been checked; returns nothing where it reports a failure and has no content.
        `raw`: its bytes, if they are known."""
        is_as_it_was = raw is not None and ESCAPE not in raw and not (self._halves or self._first)
        if is_as_it_was and _says_text_alone(chunk):
            self.notice, self._last, self._first = None, chunk, 0
            return [chunk]
        told = failure_in(chunk)
        if told is not None and not (_is_told(chunk.get("error")) or ANSWERS & chunk.keys() or status_of(told)):
            self.notice = None if self._is_ending else fault_of(told, self._deployment)
            return []
        self.notice, self._last = None, chunk
        if told is not None:
            self.fault = fault_of(told, self._deployment)
            choices = chunk.get("choices")
            said = [
                c
                for c in (choices if isinstance(choices, list) else ())
                if any(v for k, v in _delta(c).items() if k != "role")
            ]
            if not said:
                return []
            kept = [{k: v for k, v in c.items() if k != "error"} | {"finish_reason": None} for c in said]
            chunk = {k: v for k, v in chunk.items() if k != "error"} | {"choices": kept}
        for choice in (chunk.get("choices") or ()) if self._wants_one else ():
            choice["index"] = self._place(choice["index"])
        if self._halves or raw is None or (ESCAPE in raw and ESCAPED_HALF.search(raw)):
            for choice in chunk.get("choices") or ():
                if choice.get("delta"):
                    choice["delta"] = self._joined(choice["delta"], (choice["index"],))
            chunk = jsons.with_whole_characters(chunk)
        for choice in chunk.get("choices") or ():
            self._mend(choice)
        if (usage := _usage_told(chunk)) is not None:
            chunk["usage"] = usage
        return [chunk]

    def _place(self, index: int) -> int:
        if self._first is None:
            self._first = index
        return {self._first: 0, 0: self._first}.get(index, index) if self._first else index

    def rest(self) -> list[Json]:
        """Returns a chunk of what is still held where an upstream ends without a finish reason; empty if none is."""
        choices = []
        for index in sorted({*self._calls, *(path[0] for path in self._halves)}):
            choice: Json = {"index": index, "delta": {}, "finish_reason": None}
            self._flush(choice)
            if choice["delta"]:
                choices.append(choice)
        return [{**{k: v for k, v in self._last.items() if k != "usage"}, "choices": choices}] if choices else []

    def _mend(self, choice: Json) -> None:
        delta, index = _delta(choice), choice["index"]
        content = delta.get("content")
        if content is not None and not isinstance(content, str):
            self.thinks_in_parts = self.thinks_in_parts or thinks_in_parts([choice], "delta")
            _mend_words(delta)
        if delta.get("role"):
            delta["role"] = _role(delta)
        legacy = delta.get(LEGACY)
        if isinstance(legacy, dict):
            self._legacy(index, delta, legacy)
        if delta.get("tool_calls"):
            pieces = self._calls.get(index)
            if pieces is None:
                pieces = self._calls[index] = tool_calls.CallPieces(self._tools)
            delta["tool_calls"] = pieces.mended(delta["tool_calls"])
            if not delta["tool_calls"]:
                del delta["tool_calls"]
        if choice.get("finish_reason"):
            self._is_ending = True
            if choice["finish_reason"] == LEGACY and index in self._calls:
                choice["finish_reason"] = "tool_calls"
            if index in self._calls or self._halves:
                self._flush(choice)

    def _legacy(self, index: int, delta: Json, said: Json) -> None:
        """Mends a piece of a call in the form before tools."""
        arguments = said.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            said = {**said, "arguments": tool_calls.written(arguments)}
        if self._wants_tools:
            del delta[LEGACY]
            delta["tool_calls"] = [*(delta.get("tool_calls") or ()), {"index": LEGACY_PLACE, "function": said}]
            return
        if index in self._legacy_names:
            said = {name: value for name, value in said.items() if name != "name" or not value}
        elif said.get("name"):
            self._legacy_names.add(index)
        delta[LEGACY] = said

    def _flush(self, choice: Json) -> None:
        """Adds to a choice what was held of it."""
        index = choice["index"]
        delta = dict(_delta(choice))
        halves = {path: self._halves.pop(path) for path in [*self._halves] if path[0] == index}
        rest = self._calls[index].rest() if index in self._calls else []
        for path in halves:
            if len(path) == 2:
                delta[path[1]] = f"{delta.get(path[1]) or ''}\ufffd"
        if rest:
            delta["tool_calls"] = [*(delta.get("tool_calls") or ()), *rest]
        choice["delta"] = delta

    def _joined(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Returns a delta whose texts begin with the half that came before them, and end with a whole character."""
        if isinstance(value, str):
            text = self._halves.pop(path, "") + value if value else value
            if text and "\ud800" <= text[-1] <= "\udbff":
                self._halves[path], text = text[-1], text[:-1]
            return text
        if isinstance(value, dict):
            return {name: self._joined(each, (*path, name)) for name, each in value.items()}
        if isinstance(value, list):
            return [self._joined(each, (*path, _number(each, n))) for n, each in enumerate(value)]
        return value


def _role(said: Json) -> str:
    """Returns the assistant's role, whatever a server calls it; where a model repeats its question, the user's."""
    return "user" if said.get("role") == "user" else "assistant"


def thinks_in_parts(choices: Any, part: str) -> bool:
    """Returns whether an answer, or a chunk, has thoughts as parts of its content, as Mistral's models do."""
    for choice in choices if isinstance(choices, list) else ():
        said = choice.get(part) if isinstance(choice, dict) else None
        content = said.get("content") if isinstance(said, dict) else None
        if any(map(_is_thought, parts_of(content))):
            return True
    return False


def with_thoughts_as_parts(body: Json) -> Json:
    """Moves a request's thoughts into parts of the content, for an upstream that accepts them only so."""
    if not any(message.get(THOUGHTS) for message in body["messages"]):
        return body
    return {**body, "messages": [_with_thought(message) for message in body["messages"]]}


def _with_thought(message: Json) -> Json:
    thoughts, content = message.get(THOUGHTS), message.get("content")
    if not isinstance(thoughts, str) or not thoughts or message.get("role") != "assistant":
        return message
    thought = {"type": THINKING, THINKING: [{"type": "text", "text": thoughts}]}
    said = as_parts(content) if content else []
    return {name: value for name, value in message.items() if name != THOUGHTS} | {"content": [thought, *said]}


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == THINKING


def _split_thoughts(said: Json, content: list[Any]) -> list[Any]:
    """Moves the thoughts in a content to the field that holds all others', in place; returns the rest."""
    thoughts = [part.get(THINKING) for part in content if _is_thought(part)]
    if not thoughts:
        return content
    pieces = [piece for each in thoughts for piece in (each if isinstance(each, list) else [each])]
    texts = [piece.get("text") if isinstance(piece, dict) else piece for piece in pieces]
    said[THOUGHTS] = "".join([said.get(THOUGHTS) or "", *(text for text in texts if isinstance(text, str))])
    return [part for part in content if not _is_thought(part)]


def _mend_words(said: Json) -> None:
    """Makes a content a string, as all of its readers and the next request need it, without the thoughts in it; parts
    that are no plain texts stay, such as images."""
    content = said.get("content")
    if content is None or isinstance(content, str):
        return
    if isinstance(content, list):
        content = said["content"] = _split_thoughts(said, content)
    if not isinstance(content, list):
        said["content"] = tool_calls.written(content)
    elif all(
        isinstance(part, dict) and part.keys() == TEXT_PART_FIELDS and isinstance(part["text"], str) for part in content
    ):
        said["content"] = "".join(part["text"] for part in content)


def says_something(chunk: Json) -> bool:
    """Returns whether a chunk carries more than the beginning of an answer."""
    return any(choice.get("finish_reason") or _says(choice) for choice in chunk.get("choices") or ())


def _says(choice: Json) -> bool:
    return any(value for name, value in _delta(choice).items() if name != "role")


def _is_told(error: Any) -> bool:
    """Returns whether an `error` reports one: some servers always send the field."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _delta(choice: Json) -> Json:
    delta = choice.get("delta")
    return delta if isinstance(delta, dict) else {}


def _number(entry: Any, position: int) -> int:
    index = entry.get("index") if isinstance(entry, dict) else None
    return index if type(index) is int else position


def _wants_tools(body: Mapping[str, Any]) -> bool:
    """Returns whether a request uses tool calls rather than the function calls before them."""
    return bool(body.get("tools")) and not body.get("functions")


def _names(body: Mapping[str, Any]) -> list[str]:
    tools = body.get("tools")
    named = [tool.get("function") or tool.get("custom") or tool for tool in tools or () if isinstance(tool, dict)]
    return [each["name"] for each in named if isinstance(each, dict) and isinstance(each.get("name"), str)]
