"""One scripted provider, which speaks chats, Responses and Messages.

What it answers depends on the case, on what a request of it says and on how often that was said, never on the time:
internal models answer what is asked of them, the primary model as the case has said (`Fate`).
"""

import hashlib
import json
import random
import re
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

from tests.same.normal import without_ids
from tests.support import anthropic_wire, mock_responses
from tests.support.http_server import Record
from tests.support.internal_models import role_of, shown
from tests.support.mock_upstream import MockUpstream
from tests.support.process import Closing
from tests.support.random_planner import RandomPlanner
from tests.support.raw import End
from tests.support.reply import Reply, count_usage, dumps, error_body

Json = dict[str, Any]
MARK = "w2"
"""A stream that stalls or is cut ends behind this word, so that its reader knows when it has all of it."""
TEXT = "w0 w1 w2 w3 w4 w5"
LATE = -1.0
ARTIFACT = "@ART"
"""In the text or the calls of an answer: the id of something that its request shows."""
SHOWN_ID = re.compile(rb"art_[0-9a-f]{16}")
RELAYED: dict[str, Json] = {
    "completions": {"id": "cmpl-1", "object": "text_completion", "choices": [{"index": 0, "text": "so"}]},
    "moderations": {"id": "modr-1", "results": [{"flagged": False}]},
    "images/generations": {"created": 1, "data": [{"b64_json": "AA=="}]},
}
"""Answers of paths that are relayed."""
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of one call of the primary model."""

    kind: str = "answer"
    """`answer`, `tools`, `recall`, `refused`, `overflow`, `policy`, `cut`, `reset`, `silent`, `stalled`, `failing`,
    `long`, `empty`, `uncounted`, `page`; `echo`: it repeats what was asked."""
    text: str = "It is so."
    thought: str | None = None
    calls: tuple[tuple[str, Json], ...] = ()
    status: int = 500
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Provider(Closing):
    """`begin` a case, say what the next calls `expects`, read what was asked in `taken`."""

    upstream: MockUpstream = field(default_factory=MockUpstream)
    name: str = ""
    calls: int = 0
    fates: deque[Fate] = field(default_factory=deque)
    asked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.upstream.handler = self._chat
        self.upstream.routes["POST /v1/responses"] = self._response
        self.upstream.routes["POST /v1/messages"] = self._message
        for path, answer in RELAYED.items():
            used = {"usage": count_usage(11, 3)} if path == "completions" else {}
            self.upstream.routes[f"POST /v1/{path}"] = Reply(json={**answer, **used}, headers={"x-request-id": "req_1"})

    def close(self) -> None:
        self.upstream.stop()

    def begin(self, name: str) -> None:
        """Forgets the case before."""
        self.name, self.calls = name, 0
        self.fates.clear()
        self.asked.clear()
        self.upstream.violations.clear()
        self.upstream.requests.clear()

    def expects(self, *fates: Fate) -> None:
        """Says what becomes of the next calls of the primary model; those after them are answered."""
        self.upstream.release()
        self.fates.clear()
        self.fates.extend(fates)

    def taken(self) -> tuple[list[Record], list[Record]]:
        """The calls since the last time: of the primary model in their order, and the internal ones, which may come at
        once."""
        found, self.upstream.requests[:] = [*self.upstream.requests], []
        found = [each for each in found if each.method == "POST"]  # lists of models are asked for now and then
        primary = [each for each in found if is_primary(each)]
        return primary, [each for each in found if not is_primary(each)]

    def _next(self, record: Record) -> Fate:
        self.calls += 1
        fate = self.fates.popleft() if self.fates else Fate()
        shown = SHOWN_ID.findall(record.raw) or [b"art_0000000000000000"]
        an_id = shown[self.calls % len(shown)].decode()
        calls = tuple((name, json.loads(json.dumps(given).replace(ARTIFACT, an_id))) for name, given in fate.calls)
        return replace(fate, text=fate.text.replace(ARTIFACT, an_id), calls=calls)

    def _id(self, kind: str, number: int = 0) -> str:
        return f"{kind}_{self.name}_{self.calls}_{number}"

    def _chat(self, record: Record) -> Reply:
        body: Json = record.body
        if role_of(body) != "primary":
            return self._internal(body)
        fate = self._next(record)
        if (broken := self._broken(fate, "chat")) is not None:
            return broken
        reply = Reply(text=fate.text, headers=self._headers(), extra={"id": self._id("chatcmpl")})
        if fate.thought:
            reply.message = {"role": "assistant", "reasoning_content": fate.thought, "content": fate.text}
        if calls := self._calls(fate, body.get("tools")):
            reply.text = None
            reply.tool_calls = [
                {
                    "id": self._id("call", n),
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(given)},
                }
                for n, (name, given) in enumerate(calls)
            ]
        if fate.kind in ("stalled", "cut"):
            reply.text = TEXT
            at = 4 if body.get("stream") else 20
            reply.stall_after, reply.cut_after = (at, None) if fate.kind == "stalled" else (None, at)
        elif fate.kind == "long":
            reply.finish_reason = "length"
        elif fate.kind == "echo":
            said = [{"role": "user", "content": "It is asked."}, {"role": "assistant", "content": fate.text}]
            reply.choices = [{"message": each} for each in said]
        elif fate.kind == "empty":
            reply.text = ""
        elif fate.kind == "uncounted":
            reply.usage = None
        elif fate.kind == "failing":
            chunks = [
                {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "w0"}}]}
            ]
            failed = [*chunks, error_body(500, "it broke in the middle")]
            return Reply(chunks=failed, headers=self._headers()) if body.get("stream") else Reply(json=failed[1])
        return reply

    def _calls(self, fate: Fate, tools: Any) -> list[tuple[str, Json]]:
        names = {(tool.get("function") or tool).get("name") for tool in tools or ()}
        return [(name, given) for name, given in fate.calls if name in names]

    def _response(self, record: Record) -> Reply:
        body: Json = record.body
        fate = self._next(record)
        if (broken := self._broken(fate, "responses")) is not None:
            return broken
        cut = fate.kind in ("stalled", "cut")
        items = [{**mock_responses.words(TEXT if cut else fate.text), "id": self._id("msg")}]
        if fate.thought:
            thought = mock_responses.thought(fate.thought, sealed=f"sealed {self._id('t')}")
            items.insert(0, {**thought, "id": self._id("rs")})
        if calls := self._calls(fate, body.get("tools")):
            items[-1:] = [
                {**mock_responses.call(name, given, self._id("call", n)), "id": self._id("fc", n)}
                for n, (name, given) in enumerate(calls)
            ]
        extra = {"id": self._id("resp")}
        script = mock_responses.Script(output=items, extra=extra)
        if fate.kind == "long":
            script.status, script.incomplete = "incomplete", "max_output_tokens"
        elif fate.kind == "failing":
            script.status, script.error = "failed", {"code": "server_error", "message": "it broke in the middle"}
        elif fate.kind == "uncounted":
            script.usage = None
        whole = mock_responses.response_of(script, body)
        if not body.get("stream"):
            return self._maybe_cut(fate, Reply(json=whole, headers=self._headers()), [dumps(whole)])
        events = [
            f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in mock_responses.events_of(whole)
        ]
        return self._maybe_cut(fate, Reply(raw_sse=b"".join(events), headers=self._headers()), events)

    def _message(self, record: Record) -> Reply:
        body: Json = record.body
        fate = self._next(record)
        if (broken := self._broken(fate, "messages")) is not None:
            return broken
        cut = fate.kind in ("stalled", "cut")
        blocks = [anthropic_wire.text(TEXT if cut else fate.text)]
        if fate.thought:
            blocks.insert(0, {**anthropic_wire.THOUGHT, "thinking": fate.thought})
        stop = "max_tokens" if fate.kind == "long" else "end_turn"
        if calls := self._calls(fate, body.get("tools")):
            stop = "tool_use"
            blocks[-1:] = [
                anthropic_wire.tool_use(self._id("toolu", n), name, **given) for n, (name, given) in enumerate(calls)
            ]
        spent = anthropic_wire.usage(len(record.raw) // 4, 7, read=len(record.raw) % 50)
        whole = {**anthropic_wire.message(*blocks, spent=spent, stop=stop), "id": self._id("msg")}
        if not body.get("stream"):
            return self._maybe_cut(fate, Reply(json=whole, headers=self._headers()), [dumps(whole)])
        events = anthropic_wire.events(whole)
        if fate.kind == "failing":
            events = [*events[:3], anthropic_wire.event(anthropic_wire.error("overloaded_error", "it broke"))]
        return self._maybe_cut(fate, Reply(raw_sse=b"".join(events), headers=self._headers()), events)

    def _maybe_cut(self, fate: Fate, reply: Reply, events: list[bytes]) -> Reply:
        """Ends it behind the word that readers wait for."""
        if fate.kind not in ("stalled", "cut"):
            return reply
        at = 0
        for each in events:
            at += len(each)
            if MARK.encode() in each:
                break
        at = at if len(events) > 1 else 20
        reply.stall_after, reply.cut_after = (at, None) if fate.kind == "stalled" else (None, at)
        return reply

    def _headers(self) -> dict[str, str]:
        return {"x-request-id": self._id("req"), "x-ratelimit-remaining-requests": "99"}

    def _broken(self, fate: Fate, api: str) -> Reply | None:
        """What is no answer, of whichever API."""
        headers = {**self._headers(), **dict(fate.headers)}
        match fate.kind:
            case "silent":
                return Reply(raw=[End.HANG])
            case "reset":
                return Reply(raw=[End.RESET])
            case "page":
                return Reply(
                    status=fate.status, body=b"<html>Bad gateway</html>", content_type="text/html", headers=headers
                )
            case "refused" | "overflow" | "policy":
                return Reply(status=_status(fate), json=_error(fate, api), headers=headers)
        return None

    def _internal(self, body: Json) -> Reply:
        said = hashlib.sha256(without_ids(dumps(body).decode()).encode()).hexdigest()
        self.asked[said] += 1
        chance = random.Random(f"{self.name}/{said}/{self.asked[said]}")
        planner = RandomPlanner(chance.getrandbits(32), late=LATE)
        if role_of(body) == "summarizer":
            reply = planner.summarize(body["messages"][1]["content"])
            if reply.usage != "auto":  # summaries come at once: whichever is first, the bill is the same
                alike = random.Random(self.name)
                reply.usage = count_usage(alike.randrange(1, 9999), alike.randrange(1, 999))
        else:
            reply = planner.plan(shown(body))
        if reply.delay_first == LATE:
            reply.cut_after = 10  # who waits for it waits in real time
        reply.delay_first = 0.0
        reply.headers = {"x-request-id": "req_internal"}
        if reply.json is None and reply.status == 200:
            reply.extra = {"id": f"chatcmpl-{said[:12]}"}
        return reply


def is_primary(record: Record) -> bool:
    """Whether it is a call of a primary model, not of one that plans, summarizes or embeds."""
    internal = record.path.endswith("/chat/completions") and role_of(record.body or {}) != "primary"
    return record.method == "POST" and record.path in PATHS and not internal


def _status(fate: Fate) -> int:
    return fate.status if fate.kind == "refused" else 400


def _error(fate: Fate, api: str) -> Json:
    if fate.kind == "overflow":
        text = "This model's maximum context length is 3000 tokens. However, your messages resulted in 3999 tokens."
        if api == "messages":
            return anthropic_wire.error("invalid_request_error", "prompt is too long: 3999 tokens > 3000 maximum")
        return error_body(400, text, "context_length_exceeded", "messages")
    if fate.kind == "policy":
        return error_body(400, "The content was filtered.", "content_policy_violation")
    if api == "messages":
        return anthropic_wire.error("overloaded_error", f"scripted {fate.status}")
    return error_body(fate.status, f"scripted {fate.status}")
