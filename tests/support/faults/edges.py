"""What a client of each API is told: its answer's text, or its error in that API's own shape."""

import json
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.core.formats.anthropic.message_events import TYPES
from tests.support.answers import Json, exact, user
from tests.support.messages import EVENT, MESSAGE, events_of
from tests.support.sse import without_comments
from tests.support.strict_responses import check_response, read_events

ANTHROPIC_VERSION = {"anthropic-version": "2023-06-01"}


@dataclass(frozen=True)
class Told:
    """An error as its client reads it; `body` is all of it."""

    message: str
    kind: str
    code: Any
    body: Json


@dataclass(frozen=True)
class Streamed:
    """A stream as its client reads it. `ident` is the answer's id."""

    text: str
    error: Told | None
    ident: str


def _openais(answer: httpx.Response) -> Told:
    body = answer.json()
    # What came from the upstream in this shape is as it came; what the gateway says has all four.
    assert isinstance(body["error"], dict), body
    assert "message" in body["error"], body
    return _told_openais(body)


class Chat:
    """Chat completions, from its client's side. `strictly`: the SDK's own model must take an answer."""

    name, path = "chat", "/chat/completions"
    headers: dict[str, str] = {}  # noqa: RUF012

    def asked(self, text: str) -> Json:
        """A request in its plainest form, without a model."""
        return {"messages": [user(text)]}

    def error(self, answer: httpx.Response) -> Told:
        """The error that an answer is; fails where its shape is not the API's."""
        return _openais(answer)

    def text(self, answer: httpx.Response, *, strictly: bool) -> str:
        """What a whole answer says."""
        message = answer.json()["choices"][0].get("message") or {}
        return str(message.get("content"))

    def stream(self, answer: httpx.Response, *, strictly: bool) -> Streamed:
        """What a stream says, and how it ends."""
        blocks = without_comments(answer.text).removesuffix("\n\n").split("\n\n")
        is_whole = blocks[-1] == "data: [DONE]"
        events = [exact(each.removeprefix("data: ")) for each in blocks[: -1 if is_whole else None]]
        error = None
        if not is_whole:
            error = _told_openais(json.loads(blocks[-1].removeprefix("data: ")))
            events.pop()
        text = "".join(str((c.get("delta") or {}).get("content") or "") for each in events for c in each["choices"][:1])
        return Streamed(text, error, events[0]["id"] if events else "")


def _told_openais(body: Json) -> Told:
    error = body["error"]
    return Told(str(error.get("message")), str(error.get("type")), error.get("code"), body)


class Responses:
    """Responses."""

    name, path = "responses", "/responses"
    headers: dict[str, str] = {}  # noqa: RUF012

    def asked(self, text: str) -> Json:
        return {"input": text}

    def error(self, answer: httpx.Response) -> Told:
        return _openais(answer)

    def text(self, answer: httpx.Response, *, strictly: bool) -> str:
        body = answer.json()
        if strictly:
            check_response(body)
        parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
        return "".join(str(part.get("text", "")) for part in parts)

    def stream(self, answer: httpx.Response, *, strictly: bool) -> Streamed:
        said = without_comments(answer.text)
        events = read_events(said) if strictly else _unchecked(said)
        kinds = [each["type"] for each in events]
        text = "".join(each["delta"] for each in events if each["type"] == "response.output_text.delta")
        error = None
        if "error" in kinds:
            told = events[kinds.index("error")]
            assert isinstance(told["message"], str)
            assert kinds[-1] == ("response.failed" if len(kinds) > 1 else "error")
            error = Told(told["message"], "error", told["code"], told)
        else:
            assert kinds[-1] in ("response.completed", "response.incomplete"), kinds[-1]
        return Streamed(text, error, next((each["response"]["id"] for each in events if "response" in each), ""))


def _unchecked(wire: str) -> list[Json]:
    found: list[Json] = [json.loads(block.split("\ndata: ", 1)[1]) for block in wire.removesuffix("\n\n").split("\n\n")]
    assert [each["sequence_number"] for each in found] == [*range(len(found))]
    return found


class Messages:
    """Anthropic's Messages."""

    name, path, headers = "messages", "/messages", ANTHROPIC_VERSION

    def asked(self, text: str) -> Json:
        return {"max_tokens": 100, "messages": [user(text)]}

    def error(self, answer: httpx.Response) -> Told:
        told = self._told(answer.json())
        ours = answer.headers["x-request-id"]
        if told.body["request_id"] == ours:  # else it came from Anthropic as it is
            status = answer.status_code
            assert told.kind == TYPES.get(status, "invalid_request_error" if status < 500 else "api_error"), told
        return told

    def text(self, answer: httpx.Response, *, strictly: bool) -> str:
        if strictly:
            MESSAGE.validate_json(answer.content, strict=True)
        body = answer.json()
        assert body["type"] == "message"
        return "".join(str(block.get("text", "")) for block in body["content"] if block["type"] == "text")

    def stream(self, answer: httpx.Response, *, strictly: bool) -> Streamed:
        events = [each for each in events_of(answer.text) if each["type"] != "ping"]
        kinds = [each["type"] for each in events]
        assert kinds[0] == "message_start" or kinds == ["error"], kinds
        assert kinds[-1] in ("message_stop", "error")
        assert "error" not in kinds[:-1]
        for each in events:
            if strictly and each["type"] != "error":
                EVENT.validate_json(json.dumps(each), strict=True)
        error = self._told(events[-1]) if kinds[-1] == "error" else None
        deltas = [each["delta"] for each in events if each["type"] == "content_block_delta"]
        text = "".join(each.get("text", "") for each in deltas)
        return Streamed(text, error, events[0]["message"]["id"] if kinds[0] == "message_start" else "")

    def _told(self, body: Json) -> Told:
        error = body["error"]
        assert body["type"] == "error", body
        assert isinstance(error["type"], str), body
        assert isinstance(error["message"], str), body
        assert isinstance(body["request_id"], str), body
        return Told(error["message"], error["type"], error.get("code"), body)


Edge = Chat | Responses | Messages
EDGES: dict[str, Edge] = {edge.name: edge for edge in (Chat(), Responses(), Messages())}
