"""The scripted model of the task behind each API that an upstream may speak, as strict as its provider."""

import json
from collections.abc import Iterator
from typing import Any

from tests.compat.coding_task import Said, ScriptedModel, count_text
from tests.support import anthropic_wire as wire
from tests.support.http_server import Record
from tests.support.mock_provider import MockProvider
from tests.support.mock_responses import MockResponses, Script, call, thought, words
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import JsonDict, Reply, count_usage
from tests.support.signing_anthropic import SigningAnthropic

COUNTED = ("content", "text", "thinking", "output", "arguments", "input", "name", "summary")
"""What of an item or a block is words of its prompt."""


class Chats:
    """Answers the chats of an upstream."""

    def __init__(self, model: ScriptedModel, upstream: MockUpstream) -> None:
        self._model, self._upstream = model, upstream
        upstream.handler = self._answer

    @property
    def refused(self) -> list[str]:
        """What of its requests no provider would take."""
        return self._upstream.violations

    @property
    def thoughts(self) -> list[int]:
        """How many of its thoughts each request brought back: a chat has none."""
        return []

    @property
    def takes(self) -> list[int]:
        """How many of them belong where they would stand."""
        return []

    def _answer(self, record: Record) -> Reply:
        body = record.body
        tools = [tool["function"] for tool in body.get("tools") or ()]
        calls = [call["function"] for message in body["messages"] for call in message.get("tool_calls") or ()]
        results = [m for m in _behind_the_last(body["messages"], "assistant") if m["role"] == "tool"]
        prompt = _tokens([body["messages"], calls]) + count_text(json.dumps(tools))
        texts = _in_order(results, "tool_call_id", "content")
        said = self._model.say({tool["name"] for tool in tools}, texts, prompt, len(calls))
        return Reply(text=said.text, tool_calls=list(said.calls), usage=count_usage(prompt, said.tokens))


class Responses:
    """Answers `/v1/responses`; it thinks before each call, and looks whether its thoughts come back in their place."""

    def __init__(self, model: ScriptedModel, upstream: MockUpstream) -> None:
        self._model, self._upstream = model, upstream
        self._followed_by: dict[str, str] = {}
        """By the seal of a thought, the call that was made behind it."""
        self.thoughts: list[int] = []
        self.takes: list[int] = []
        """How many of its thoughts each request could bring back: one before each step that it brings."""
        MockResponses(upstream).handler = self._answer

    @property
    def refused(self) -> list[str]:
        """What of its requests OpenAI would not take, and chats in place of responses."""
        return [*self._upstream.violations, *(f"a chat at {chat.path}" for chat in self._upstream.chats)]

    def _answer(self, body: JsonDict) -> Script:
        items, tools = body["input"], body.get("tools") or []
        self._check(items)
        outputs = [item for item in _behind_the_last(items, "function_call") if "output" in item]
        prompt = _tokens(items) + count_text(json.dumps(tools) + (body.get("instructions") or ""))
        names = {tool.get("name", "") for tool in tools}
        calls = sum(item.get("type") == "function_call" for item in items)
        said = self._model.say(names, _in_order(outputs, "call_id", "output"), prompt, calls)
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 5}}
        usage = {"input_tokens": prompt, "output_tokens": said.tokens, "total_tokens": prompt + said.tokens, **details}
        return Script(output=self._output(said), usage=usage)

    def _output(self, said: Said) -> list[JsonDict]:
        if said.text is not None:
            return [words(said.text)]
        steps = len(self.thoughts)
        calls = [call(name, given, f"call_{steps:04}_{n}") for n, (name, given) in enumerate(said.calls)]
        reasoning = thought("On to the next one.")
        self._followed_by[reasoning["encrypted_content"]] = calls[0]["call_id"]
        return [reasoning, *calls]

    def _check(self, items: list[JsonDict]) -> None:
        begun, calls = set(self._followed_by.values()), [i for i in items if i.get("type") == "function_call"]
        self.takes.append(sum(item["call_id"] in begun for item in calls))
        self.thoughts.append(sum(item.get("type") == "reasoning" for item in items))
        for item, following in zip(items, [*items[1:], {}], strict=True):
            if item.get("type") == "reasoning":
                expected = self._followed_by.get(item["encrypted_content"])
                if expected is None or following.get("call_id") != expected:
                    self._upstream.violations.append(f"the thought before {expected} stands before {following}")


class Messages:
    """Answers Anthropic's `/v1/messages`, with thoughts that it signs over all that stands before them."""

    def __init__(self, model: ScriptedModel, upstream: MockUpstream) -> None:
        self._model, self._signing = model, SigningAnthropic()
        self._serial = 0
        MockProvider(upstream).claude = self._answer

    @property
    def refused(self) -> list[str]:
        """What Anthropic refused."""
        return self._signing.refused

    @property
    def thoughts(self) -> list[int]:
        """How many signed thoughts each request brought back."""
        return self._signing.thoughts

    @property
    def takes(self) -> list[int]:
        """How many of them belong where they would stand."""
        return self._signing.takes

    def _answer(self, body: JsonDict) -> JsonDict:
        tools = body.get("tools") or []
        last = [block for message in _behind_the_last(body["messages"], "assistant") for block in _blocks(message)]
        results = [block for block in last if block["type"] == "tool_result"]
        prompt = _tokens([body.get("system"), body["messages"]]) + count_text(json.dumps(tools))
        calls = sum(block["type"] == "tool_use" for message in body["messages"] for block in _blocks(message))
        texts = _in_order(results, "tool_use_id", "content")
        said = self._model.say({tool["name"] for tool in tools}, texts, prompt, calls)
        blocks = [] if said.text is None else [wire.text(said.text)]
        for name, arguments in said.calls:
            self._serial += 1
            blocks.append(wire.tool_use(f"toolu_{self._serial:04}", name, **arguments))
        return {**self._signing.answer(body, *blocks), "usage": wire.usage(prompt, said.tokens)}


def _behind_the_last(items: list[JsonDict], kind: str) -> list[JsonDict]:
    """What stands behind the last item of a type or role."""
    places = [place for place, item in enumerate(items) if kind in (item.get("type"), item.get("role"))]
    return items[max(places, default=-1) + 1 :]


def _blocks(message: JsonDict) -> list[JsonDict]:
    content = message["content"]
    return [wire.text(content)] if isinstance(content, str) else content


def _in_order(results: list[JsonDict], named: str, held: str) -> list[str]:
    """Texts of results in the order of their calls, which end at the same time or in any order."""
    return [_text(result[held]) for result in sorted(results, key=lambda result: str(result[named]))]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


def _tokens(value: Any) -> int:
    """Tokens of all words in messages, items or blocks; not of seals, and the few for their form neither."""
    return sum(map(count_text, _words(value)))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _words(each)
    elif isinstance(value, dict):
        for name in COUNTED:
            held = value.get(name)
            yield from _words(json.dumps(held) if name == "input" and isinstance(held, dict) else held)
