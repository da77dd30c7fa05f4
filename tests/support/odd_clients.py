"""Clients of the three APIs that put answers together as SDKs do, and hand them back as the next request."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.answers import Json, assistant, exact, function_tool, text_part, tool_result, user
from tests.support.messages import events_of
from tests.support.strict_responses import check_response, read_events

TOOLS = ("f", "g", "find_all")
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
VERSION = {"anthropic-version": "2023-06-01"}


@dataclass
class Heard:
    """What a client has of an answer. `said` is what it sends again: a message, items or blocks."""

    said: Any = None
    text: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """Id, name and arguments of each."""
    error: str | None = None
    status: int = 200
    ended: bool = True
    """Whether it has the sign of a whole answer."""
    usage: Json = field(default_factory=dict)
    bill: Json = field(default_factory=dict)
    conversation: str | None = None
    answer_id: str = ""


class ChatClient:
    """Of chat completions."""

    path = "/chat/completions"
    headers: dict[str, str] = {}  # noqa: RUF012

    def asked(self, text: str) -> Json:
        tools = [function_tool(name, parameters=SCHEMA) for name in TOOLS]
        return {"messages": [user(text)], "tools": tools}

    def next(self, body: Json, heard: Heard) -> Json:
        """The request that sends all of it again, with results of its calls."""
        return {**body, "messages": [*body["messages"], heard.said, *self.results(heard)]}

    def delta(self, body: Json, heard: Heard) -> Json:
        """The same by the conversation's id."""
        return {**body, "messages": self.results(heard), "conversation": heard.conversation}

    def results(self, heard: Heard) -> list[Json]:
        found = [tool_result(call[0], "r") for call in heard.calls]
        return found or [user("go on")]

    def whole(self, answer: httpx.Response, *, strictly: bool = True) -> Heard:
        body = exact(answer.text)
        if "error" in body:
            return Heard(error=body["error"]["message"], status=answer.status_code, ended=False)
        message = body["choices"][0]["message"]
        return self._heard(message, body, body["usage"], body["response_metadata"])

    def stream(self, answer: httpx.Response, *, strictly: bool = True) -> Heard:
        blocks = [each for each in answer.text.removesuffix("\n\n").split("\n\n") if not each.startswith(":")]
        ended = blocks[-1] == "data: [DONE]"
        chunks = [exact(each.removeprefix("data: ")) for each in blocks if each != "data: [DONE]"]
        error = chunks.pop()["error"]["message"] if "error" in chunks[-1] else None
        message: Json = assistant(None)
        calls: dict[int, Json] = {}
        for delta in (choice["delta"] for each in chunks for choice in each["choices"]):
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            if delta.get("refusal"):
                message["refusal"] = message.get("refusal", "") + delta["refusal"]
            assert "function_call" not in delta
            for piece in delta.get("tool_calls") or ():
                call = calls.setdefault(piece["index"], {"id": "", "function": {"name": "", "arguments": ""}})
                call["id"] += piece.get("id") or ""
                call["type"] = piece.get("type") or call["type"]
                for name, text in (piece.get("function") or {}).items():
                    call["function"][name] += text or ""
        if calls:
            message["tool_calls"] = [calls[index] for index in sorted(calls)]
        reasons = [choice["finish_reason"] for each in chunks for choice in each["choices"]]
        assert any(reasons) == ended
        bill: Json = next((each["response_metadata"] for each in reversed(chunks) if each.get("response_metadata")), {})
        usage: Json = next((each["usage"] for each in reversed(chunks) if each.get("usage")), {})
        heard = self._heard(message, chunks[0], usage, bill)
        heard.error, heard.ended = error, ended
        return heard

    def _heard(self, message: Json, named: Json, usage: Json, bill: Json) -> Heard:
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        conversation = (named.get("conversation") or {}).get("id")
        text = message["content"] or message.get("refusal") or ""
        if isinstance(text, list):
            text = "".join(part["text"] for part in text if part["type"] == "text")
        return Heard(message, text, calls, None, 200, True, usage, bill, conversation, named["id"])

    def cache(self, usage: Json) -> tuple[int, int] | None:
        """Tokens read and written; None where it is told in the upstream's own words."""
        return None


class ResponsesClient:
    """Of Responses."""

    path = "/responses"
    headers: dict[str, str] = {}  # noqa: RUF012

    def asked(self, text: str) -> Json:
        tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in TOOLS]
        return {"input": [user(text)], "tools": tools}

    def next(self, body: Json, heard: Heard) -> Json:
        return {**body, "input": [*body["input"], *heard.said, *self.results(heard)]}

    def delta(self, body: Json, heard: Heard) -> Json:
        return {**body, "input": self.results(heard), "previous_response_id": heard.answer_id}

    def results(self, heard: Heard) -> list[Json]:
        found = [{"type": "function_call_output", "call_id": call[0], "output": "r"} for call in heard.calls]
        return found or [user("go on")]

    def whole(self, answer: httpx.Response, *, strictly: bool = True) -> Heard:
        body = exact(answer.text)
        if answer.status_code != 200:
            return Heard(error=body["error"]["message"], status=answer.status_code, ended=False)
        if strictly:
            check_response(json.loads(answer.text))
        return self._heard(body)

    def stream(self, answer: httpx.Response, *, strictly: bool = True) -> Heard:
        lines = [line for line in answer.text.split("\n") if line.startswith("data: ")]
        last = exact(lines[-1].removeprefix("data: "))
        events = read_events(answer.text) if strictly else [json.loads(line.removeprefix("data: ")) for line in lines]
        heard = self._heard(last["response"])
        heard.ended = last["type"] in ("response.completed", "response.incomplete")
        if not heard.ended:
            heard.error = next(each["message"] for each in events if each["type"] == "error")
            assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
            assert all(i["status"] == "incomplete" for i in last["response"]["output"] if i["type"] == "function_call")
        else:
            ends = [each for each in events if each["type"] == "response.output_item.done"]
            done = [each["item"] for each in sorted(ends, key=lambda each: int(each["output_index"]))]
            assert done == json.loads(lines[-1].removeprefix("data: "))["response"]["output"]
        return heard

    def _heard(self, body: Json) -> Heard:
        parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
        calls = [
            (item["call_id"], item["name"], item["arguments"])
            for item in body["output"]
            if item["type"] == "function_call"
        ]
        words = {"output_text": "text", "refusal": "refusal"}
        text = "".join(part[words[part["type"]]] for part in parts)
        conversation = (body.get("conversation") or {}).get("id")
        usage, bill = body["usage"] or {}, body.get("response_metadata") or {}
        return Heard(body["output"], text, calls, None, 200, True, usage, bill, conversation, body["id"])

    def cache(self, usage: Json) -> tuple[int, int] | None:
        details = usage["input_tokens_details"]
        return details["cached_tokens"], details["cache_write_tokens"]


class MessagesClient:
    """Of Anthropic's Messages."""

    path, headers = "/messages", VERSION

    def asked(self, text: str) -> Json:
        tools = [{"name": name, "input_schema": SCHEMA} for name in TOOLS]
        return {"max_tokens": 100, "messages": [user(text)], "tools": tools}

    def next(self, body: Json, heard: Heard) -> Json:
        return {**body, "messages": [*body["messages"], assistant(heard.said), *self.results(heard)]}

    def delta(self, body: Json, heard: Heard) -> Json:
        return {**body, "messages": self.results(heard), "conversation": heard.conversation}

    def results(self, heard: Heard) -> list[Json]:
        found: list[Json] = [{"type": "tool_result", "tool_use_id": call[0], "content": "r"} for call in heard.calls]
        return [user(found or [text_part("go on")])]

    def whole(self, answer: httpx.Response, *, strictly: bool = True) -> Heard:
        body = exact(answer.text)
        if body["type"] == "error":
            return Heard(error=body["error"]["message"], status=answer.status_code, ended=False)
        return self._heard(body, body["content"], body)

    def stream(self, answer: httpx.Response, *, strictly: bool = True) -> Heard:
        events = [exact(json.dumps(each)) for each in events_of(answer.text) if each["type"] != "ping"]
        blocks: dict[int, Json] = {}
        error, last = None, {}
        for each in events:
            match each["type"]:
                case "content_block_start":
                    blocks[each["index"]] = {**each["content_block"], "json": ""}
                case "content_block_delta":
                    block, delta = blocks[each["index"]], each["delta"]
                    block["json"] += delta.get("partial_json", "")
                    block["text"] = block.get("text", "") + delta.get("text", "")
                case "message_delta":
                    last = each
                case "error":
                    error = each["error"]["message"]
        kinds = [each["type"] for each in events]
        assert ("message_stop" in kinds) == (error is None) == bool(last)
        said = []
        for index in sorted(blocks):
            block = blocks[index]
            written = block.pop("json")
            if block["type"] == "tool_use":
                block.pop("text", None)
                block["input"] = json.loads(written or "{}") if error is None else {}
            if block != text_part(""):
                said.append(block)
        heard = self._heard(events[0]["message"], said, last)
        heard.error, heard.ended = error, error is None
        return heard

    def _heard(self, message: Json, blocks: list[Json], last: Json) -> Heard:
        calls = [(b["id"], b["name"], json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"]
        text = "".join(b["text"] for b in blocks if b["type"] == "text")
        conversation = (message.get("conversation") or {}).get("id")
        usage, bill = last.get("usage") or {}, last.get("response_metadata") or {}
        return Heard(blocks, text, calls, None, 200, True, usage, bill, conversation, message["id"])

    def cache(self, usage: Json) -> tuple[int, int] | None:
        return usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]


Client = ChatClient | ResponsesClient | MessagesClient
CLIENTS: dict[str, Client] = {"chat": ChatClient(), "responses": ResponsesClient(), "messages": MessagesClient()}
