"""What answers say, read from outside: the gateway's own fields of an SDK's object, and a stream byte for byte."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

import httpx
from openai import BaseModel

from tests.support.gateway_process import GatewayProcess
from tests.support.process import wait_until
from tests.support.sockets import post

Json = dict[str, Any]
T = TypeVar("T")


def user(content: Any, **more: Any) -> Any:
    """A user message; `Any`, since the SDK's own types for messages are narrower than what goes over the wire."""
    return {"role": "user", "content": content, **more}


def assistant(content: Any, **more: Any) -> Json:
    """An assistant's message as the gateway sends it again."""
    return {"role": "assistant", "content": content, **more}


def system(content: Any) -> Any:
    """A system message."""
    return {"role": "system", "content": content}


def tool_result(call_id: Any, content: Any) -> Json:
    """What a tool said to a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool_call(call_id: Any, name: Any, arguments: Any = "{}") -> Json:
    """A call of a function."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(name: Any, **more: Any) -> Json:
    """A function among a request's tools."""
    return {"type": "function", "function": {"name": name, **more}}


def text_part(text: Any, **more: Any) -> Json:
    """A part of a content, for chats and for Anthropic's."""
    return {"type": "text", "text": text, **more}


def image_part(url: Any, **more: Any) -> Json:
    """A picture by its URL."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def usage_of(prompt: int, completion: int, **details: Any) -> Json:
    """Usage as a provider reports it."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **details}


def ok(answer: httpx.Response) -> Json:
    """The JSON of an answer that has to be a good one."""
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def exactly(answer: httpx.Response) -> Json:
    """The same, numbers as they are written."""
    assert answer.status_code == 200, answer.text
    found: Json = exact(answer.text)
    return found


def there(found: T | None) -> T:
    """What was looked for, which has to be there."""
    assert found is not None
    return found


def refusal(answer: httpx.Response) -> tuple[int, Any, Any]:
    """Status, code and param of an error in OpenAI's shape."""
    error: Json = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return answer.status_code, error["code"], error["param"]


def extra(answer: BaseModel, name: str) -> Any:
    """A field that the SDK does not know."""
    return (answer.model_extra or {})[name]


def conversation_of(answer: BaseModel) -> str:
    """The id of the conversation that a completion or a chunk names."""
    found = extra(answer, "conversation")
    assert set(found) == {"id"}
    assert isinstance(found["id"], str)
    return found["id"]


def bill_of(answer: BaseModel) -> Json:
    """`response_metadata` of a completion or a chunk."""
    found: Json = extra(answer, "response_metadata")
    return found


def used(answer: Json | BaseModel) -> Json:
    """How the window was used, as an answer tells it: `context_utilization` of its bill."""
    bill = bill_of(answer) if isinstance(answer, BaseModel) else answer["response_metadata"]
    found: Json = bill["context_utilization"]
    return found


def all_used(gateway: GatewayProcess, answer: Json) -> Json:
    """The same as it is stored: with the artifacts that stand, and with what a planner said."""
    return used(stored(gateway, answer["id"]))


def as_told(bill: Json) -> Json:
    """A bill without what only the stored one has: the artifacts that stand, and what a planner said."""
    utilization = bill.get("context_utilization")
    if not utilization:
        return bill
    known = {name: value for name, value in utilization.items() if name not in ("plan", "artifacts_omitted")}
    listed = [record for record in known["artifacts_processed"] if not record.get("standing")]
    return {**bill, "context_utilization": {**known, "artifacts_processed": listed}}


def exact(text: str | bytes) -> Any:
    """JSON with its numbers as they are written."""
    return json.loads(text, parse_float=Decimal)


def raw_request(body: Json, token: str = "sk-test") -> bytes:
    """A chat request as it goes over the wire, for clients that leave."""
    return post(json.dumps(body).encode(), f"authorization: Bearer {token}")


def chat(gateway: GatewayProcess, *said: Json, key: Any = "sk-test", **body: Any) -> Json:
    """A chat with these messages, or those of the body; the answer with its headers as `_headers`, numbers as they are
    written."""
    sent = {**body, "messages": said} if said else body
    answer = gateway.post("/chat/completions", json=sent, timeout=120, key=key)
    return {**exactly(answer), "_headers": answer.headers}


def status(gateway: GatewayProcess, key: str | None, model: str = "gpt-4o") -> int:
    """What a short chat of that key is answered with."""
    return gateway.post("/chat/completions", json={"model": model, "messages": [user("hi")]}, key=key).status_code


def stored(gateway: GatewayProcess, completion_id: str, token: str = "sk-test") -> Json:
    """The stored completion or bill of that id (`chatcmpl-…`, `req_…`), numbers as they are written."""
    return exactly(gateway.get(f"/chat/completions/{completion_id}", key=token))


def stored_of(gateway: GatewayProcess, conversation_id: str, token: str = "sk-test") -> list[Json]:
    """A conversation's stored completions, oldest first."""
    asked = {"conversation": conversation_id, "limit": 100}
    found: list[Json] = exactly(gateway.get("/chat/completions", params=asked, key=token))["data"]
    return found


def wait_for_bill(gateway: GatewayProcess, completion_id: str) -> Json:
    """The stored completion once it is there: an abandoned one is recorded after its client has left."""
    path = f"/chat/completions/{completion_id}"
    wait_until(lambda: gateway.get(path).status_code == 200, f"the bill of {completion_id}")
    return stored(gateway, completion_id)


@dataclass
class Wire:
    """A stream as it came over the wire."""

    status: int
    headers: httpx.Headers
    chunks: list[Json] = field(default_factory=list)
    """All events but `[DONE]`, numbers as they are written."""
    done: bool = False

    @property
    def error(self) -> Json | None:
        """The error that ended the stream."""
        found: Json | None = self.chunks[-1].get("error") if self.chunks else None
        return found

    @property
    def text(self) -> str:
        """What choice 0 says."""
        return self.text_of(0)

    def text_of(self, index: int) -> str:
        """What a choice says."""
        found = [c for chunk in self.chunks for c in chunk.get("choices", []) if c["index"] == index]
        return "".join(c["delta"].get("content") or "" for c in found)

    @property
    def finish(self) -> Json:
        """The last chunk with a finish reason."""
        return [c for c in self.chunks if any(x.get("finish_reason") for x in c.get("choices", []))][-1]


def read_stream(gateway: GatewayProcess, body: Mapping[str, Any], **headers: str) -> Wire:
    """Streams a chat request, and checks on the way what no real client may ever meet (guarantee §6)."""
    response = gateway.post("/chat/completions", json={**body, "stream": True}, headers=headers)
    wire = Wire(response.status_code, response.headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].split(";")[0] == "text/event-stream"
    assert response.text.endswith("\n\n")
    for event in response.text.removesuffix("\n\n").split("\n\n"):
        lines = [line for line in event.split("\n") if not line.startswith(":")]
        if not lines:
            continue
        assert not wire.done, "only comments may follow [DONE]"
        assert len(lines) == 1, "one line of data an event"
        assert lines[0].startswith("data: "), "no named event, no other field"
        if lines[0] == "data: [DONE]":
            wire.done = True
            continue
        chunk = exact(lines[0].removeprefix("data: "))
        assert not wire.error, "an error event is the end of the stream"
        wire.chunks.append(chunk)
        if "error" not in chunk:
            assert isinstance(chunk["choices"], list), "a chunk without choices breaks clients"
            assert "metadata" not in chunk, "no top-level metadata of ours"
    asked = bool((body.get("stream_options") or {}).get("include_usage"))
    empty = [chunk for chunk in wire.chunks if chunk.get("choices") == []]
    assert len(empty) == (1 if asked and wire.done else 0), "choices: [] is for the usage chunk that was asked for"
    assert wire.done != bool(wire.error), "a stream ends with [DONE] or with an error event"
    return wire
