"""Odd answers of upstreams, rebuilt from public reports, as data: what they send whole and streamed, and what a client
is to hear of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support import anthropic_wire as wire
from tests.support.answers import assistant, text_part

Json = dict[str, Any]
DONE = b"[DONE]"
F, G = ("f", {"q": "x"}), ("g", {"q": "y"})
X, Y = '{"q":"x"}', '{"q":"y"}'
USAGE: Json = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
DOWN: Json = {"code": 502, "message": "Provider disconnected"}


@dataclass(frozen=True)
class Odd:
    """One answer; `whole` None: it is told in streams alone. `events` are objects or the bytes of an event's lines."""

    words: str = "chat"
    whole: Any = None
    events: Sequence[Any] = ()
    text: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    fails: str | None = None
    """What the client reads of the failure."""
    status: int = 502
    """Of a failure before anything was streamed."""
    begun: bool = True
    """Whether anything comes before the failure in a stream."""
    usage: Json | None = field(default_factory=lambda: {"prompt": 10, "completion": 5, "read": 0, "written": 0})
    """None: it is counted by the gateway."""
    ids: tuple[str, ...] | None = None
    """Ids that are the upstream's own, and stay so."""


def chunk(delta: Json | None = None, finish: str | None = None, **top: Any) -> Json:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {
        "id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "small", "choices": [choice], **top,
    }  # fmt: skip


def answer(message: Json, finish: str = "stop", usage: Any = USAGE, **top: Any) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    return {
        "id": "up-1", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice],
        "usage": usage, **top,
    }  # fmt: skip


def thought(text: str) -> Json:
    """A part of a content, as Mistral's models think."""
    return {"type": "thinking", "thinking": [text_part(text)]}


def ended(finish: str, usage: Any = USAGE) -> list[Any]:
    return [chunk({}, finish), {**chunk(), "choices": [], "usage": usage}, DONE]


def call(call_id: Any, name: Any, arguments: Any, **more: Any) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def pieces(*deltas: Any, finish: str = "tool_calls") -> list[Any]:
    """A stream of calls: each is the list of pieces that come together."""
    return [
        chunk(assistant(None)),
        *(chunk({"tool_calls": each if isinstance(each, list) else [each]}) for each in deltas),
        *ended(finish),
    ]


def part(index: int | None = None, call_id: Any = None, name: Any = None, arguments: Any = None, **more: Any) -> Json:
    """A piece of a call, with no more than what is given."""
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    named = {"index": index, "id": call_id, "type": "function" if name else None, "function": function}
    return {**{k: v for k, v in named.items() if v is not None}, **more}


def calling(whole: Sequence[Json], *deltas: Any, calls: Any = None, ids: Any = None) -> Odd:
    """Calls; `deltas` are those of the stream, else each call comes at once, numbered. They are those of `f`, then of
    `g`, and ids that tell them apart are theirs, where nothing else is said."""
    streamed = deltas or [{"index": index, **each} for index, each in enumerate(whole)]
    own = tuple(each["id"] for each in whole if isinstance(each.get("id"), str) and each["id"])
    return Odd(
        whole=answer({"tool_calls": [*whole]}, "tool_calls"),
        events=pieces(*streamed),
        calls=tuple(calls or (F, G)[: len(whole)]),
        ids=ids or (own if len(set(own)) == len(whole) else None),
    )


def failing(*events: Any, whole: Any = None, fails: str = DOWN["message"], **more: Any) -> Odd:
    """A failure behind the text `half`."""
    said = chunk(assistant("half"))
    return Odd(whole=whole, events=[said, *events], fails=fails, text="half", **more)


def at_once(error: Json, fails: str, status: int, words: str = "chat") -> Odd:
    """A failure in the place of an answer."""
    return Odd(words, whole=error, events=[error], fails=fails, status=status, begun=False)


def said(*pieces: Any, text: str, whole: Any) -> Odd:
    """A text; the deltas of a stream are its pieces."""
    return Odd(whole=answer(whole), events=[*map(chunk, pieces), *ended("stop")], text=text)


def counted(usage: Any, found: Json | None) -> Odd:
    """A text, and what its upstream says of usage."""
    events = [chunk(assistant("so it is")), *ended("stop", usage)]
    return Odd(whole=answer({"content": "so it is"}, usage=usage), events=events, text="so it is", usage=found)


def cached(read: int, written: int) -> Json:
    return {"prompt": 10, "completion": 5, "read": read, "written": written}


def unfinished(last: Json, fails: str, **more: Any) -> Odd:
    """A stream of Responses whose last event is no end of an answer."""
    half = {"type": "response.output_text.delta", "output_index": 0, "delta": "half"}
    return Odd("responses", events=[half, last], text="half", fails=fails, **more)


GAVE_UP = "The upstream gave up its answer: error."
HALF = answer({"content": "half"})
BROKEN = HALF["choices"][0]
F_AND_G = wire.message(wire.tool_use("", "f", q="x"), wire.text("and"), wire.tool_use("", "g", q="y"), stop="tool_use")
OVERLOADED: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
BARE = wire.message(wire.text("so it is"))
BARE_EVENTS = [
    {"type": "message_start", "message": {**BARE, "content": [], "stop_reason": None, "usage": None}},
    *wire.events(BARE)[1:-2],
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
    {"type": "message_stop"},
]
BEGUN_WHOLE = [
    {"type": "content_block_start", "index": 0, "content_block": wire.tool_use("t", "f", q="x")},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {**wire.tool_use("u", "g"), "input": Y}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_stop", "index": 1},
]
TWO_CALLS = {
    "id": "r",
    "status": "completed",
    "output": [
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": F[1]},
        {"type": "function_call", "id": "fc_2", "call_id": "c", "name": "g", "arguments": Y},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
}
FAILURES: dict[str, Odd] = {
    "an error beside a finish reason": failing(
        chunk({"content": ""}, "error", error=DOWN), DONE, whole={**HALF, "error": DOWN}
    ),
    "an error beside the end of an answer": failing(chunk({}, "stop", error=DOWN), DONE),
    "an error alone": failing({"error": DOWN}, DONE),
    "an error in words": failing({"error": "Provider disconnected"}, DONE, whole={"error": "Provider disconnected"}),
    "an error in words beside choices": failing(
        chunk({}, None, error="Provider disconnected"), whole={**HALF, "error": "Provider disconnected"}
    ),
    "an error of a choice": failing(
        {**chunk(), "choices": [{"index": 0, "delta": {}, "finish_reason": None, "error": DOWN}]},
        whole={**HALF, "choices": [{**BROKEN, "error": DOWN}]},
    ),
    "a finish reason": failing(chunk({}, "error"), DONE, whole=answer({"content": "half"}, "error"), fails=GAVE_UP),
    "a finish reason in capitals": failing(chunk({}, "ERROR"), DONE, fails="The upstream gave up its answer: ERROR."),
    "a provider short of resources": failing(
        chunk({}, "insufficient_system_resource"),
        DONE,
        fails="The upstream gave up its answer: insufficient_system_resource.",
    ),
    "an error after the finish chunk": failing(chunk({}, "stop"), {"error": DOWN}),
    "an error that calls itself one": failing(
        {"object": "error", "message": "Provider disconnected", "code": 502},
        whole={"object": "error", "message": "Provider disconnected", "code": 502},
    ),
    "an event named error": failing(b'event: error\ndata: {"message": "Provider disconnected"}'),
    "an event named error in plain words": failing(b"event: error\ndata: Provider disconnected"),
    "an event named error as usual": failing(b'event: error\ndata: {"error": {"message": "Provider disconnected"}}'),
    "an error in a field of its own, as llama.cpp tells it": failing(
        b'error: {"code": 500, "message": "Provider disconnected", "type": "server_error"}', DONE
    ),
    "an error in a line that is no field": failing(b'id: 1\n{"error": {"message": "Provider disconnected"}}', DONE),
    "an error in a line that is no field, before an end": failing(
        b'id: 1\n{"error": {"message": "Provider disconnected"}}\ndata: [DONE]'
    ),
    "an error beside the last words": Odd(
        events=[chunk({"content": "ha"}), chunk({"content": "lf"}, "error", error=DOWN)],
        text="half",
        fails=DOWN["message"],
    ),
    "an error before the first word": Odd(
        events=[chunk({}, "error", error=DOWN), DONE], fails=DOWN["message"], begun=False
    ),
    "a rate limit before the first word": at_once(
        {"error": {"code": "rate_limit_exceeded", "message": "slow down"}}, "slow down", 429
    ),
    "a status in an error": at_once({"error": {"status": 503, "message": "busy"}}, "busy", 503),
    "a call off": failing(
        chunk({}, "cancelled"),
        DONE,
        whole=answer({"content": "half"}, "cancelled"),
        fails="The upstream gave up its answer: cancelled.",
    ),
    "a detail": failing({"detail": "Provider disconnected"}, DONE, whole={"detail": "Provider disconnected"}),
    "a message alone before the first word": Odd(
        events=[{"message": "Provider disconnected"}], fails=DOWN["message"], begun=False
    ),
    "a message alone in place of the rest": failing({"message": "Provider disconnected"}),
    "a message alone": failing(
        {"code": 502, "message": "Provider disconnected"}, whole={"code": 502, "message": "Provider disconnected"}
    ),
    "a call cut in its arguments": Odd(
        events=[
            chunk({"role": "assistant"}),
            chunk({"tool_calls": [part(0, "a", "f", '{"q": "/etc')]}),
            chunk({}, "error", error=DOWN),
            DONE,
        ],
        fails=DOWN["message"],
        ids=(),
    ),
    "of Anthropic's, an event": Odd(
        "anthropic",
        events=[
            *wire.events(wire.message(wire.text("half")))[:-3],
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ],
        text="half",
        fails="Overloaded",
    ),
    "of Anthropic's, a call cut": Odd(
        "anthropic",
        events=[
            *wire.events(wire.message(wire.tool_use("toolu_1", "f", q="x")))[:-4],
            b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "gone"}}',
        ],
        fails="gone",
        ids=(),
    ),
    "of Anthropic's, before the first word": at_once(OVERLOADED, "Overloaded", 529, "anthropic"),
    "of Responses, failed": unfinished(
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": "x", "message": "gone"}}},
        "gone",
        whole={"id": "r", "status": "failed", "error": {"code": "server_error", "message": "gone"}, "output": []},
        status=500,
    ),
    "of Responses, an error": unfinished(
        {"type": "error", "code": "server_error", "message": "gone", "param": None}, "gone"
    ),
    "of Responses, an error in an object": unfinished(
        {"type": "error", "error": {"type": "server_error", "code": "overloaded", "message": "gone"}}, "gone"
    ),
    "of Responses, a chat's error": unfinished({"error": {"code": "y", "message": "gone"}}, "gone"),
    "of Responses, completed with an error": unfinished(
        {
            "type": "response.completed",
            "response": {"status": "failed", "error": {"code": "x", "message": "gone"}, "output": []},
        },
        "gone",
    ),
    "of Responses, an error in words": at_once({"error": "gone"}, "gone", 500, "responses"),
    "of Responses, cancelled": unfinished(
        {"type": "response.cancelled", "response": {"status": "cancelled", "output": []}},
        "The upstream's response is not finished.",
    ),
}
CALLS: dict[str, Odd] = {
    "ids of their own": calling([call("a", "f", X), call("b", "g", Y)]),
    "empty ids": calling([call("", "f", X), call("", "g", Y)]),
    "ids of null": calling([call(None, "f", X), call(None, "g", Y)]),
    "no ids": calling([{"function": {"name": "f", "arguments": X}}, {"function": {"name": "g", "arguments": Y}}]),
    "one id for all": calling([call("a", "f", X), call("a", "g", Y)]),
    "numbers for ids": calling([call(0, "f", X), call(1, "g", Y)], ids=("0", "1")),
    "one index, ids of their own": calling(
        [call("a", "f", X), call("b", "g", Y)], part(0, "a", "f", X), part(0, "b", "g", Y)
    ),
    "one index, empty ids": calling([call("", "f", X), call("", "g", Y)], part(0, "", "f", X), part(0, "", "g", Y)),
    "one index, one id": calling([call("a", "f", X), call("a", "g", Y)], part(0, "a", "f", X), part(0, "a", "g", Y)),
    "one function twice under one index": calling(
        [call("", "f", X), call("", "f", Y)],
        part(0, "", "f", X),
        part(0, "", "f", Y),
        calls=(F, ("f", {"q": "y"})),
    ),
    "no index": calling(
        [call("a", "f", X), call("b", "g", Y)],
        part(None, "a", "f", '{"q":'), part(None, None, None, '"x"}'),
        part(None, "b", "g", '{"q":'), part(None, "b", None, '"y"}'),
    ),
    "no index, no ids, together": calling(
        [call("", "f", X), call("", "g", Y)], [part(None, None, "f", X), part(None, None, "g", Y)]
    ),
    "no index, no ids, in pieces": calling(
        [call("", "f", X), call("", "g", Y)],
        part(None, None, "f", '{"q":'), part(None, None, None, '"x"}'),
        part(None, None, "g", '{"q":'), part(None, None, "g", '"y"}'),
    ),
    "pieces mixed, one id": calling(
        [call("a", "f", X), call("a", "g", Y)],
        [part(0, "a", "f", ""), part(1, "a", "g", "")],
        part(1, None, None, '{"q":'), part(0, None, None, '{"q":"x'), part(1, None, None, '"y"}'),
        part(0, None, None, '"}'),
    ),
    "an index that begins at one": calling([call("a", "f", X)], part(1, "a", "f", X)),
    "id, type and name in each piece": calling(
        [call("a", "f", X)], part(0, "a", "f", '{"q'), part(0, "a", "f", '":"x'), part(0, "a", "f", '"}'),
    ),
    "a call said again at its end": calling([call("a", "f", X)], part(0, "a", "f", X), part(0, "a", "f", X)),
    "a late name": calling([call("a", "f", X)], part(0, "a", None, ""), part(0, None, "f", ""), part(0, None, None, X)),
    "a name behind the arguments": calling([call("a", "f", X)], part(0, "a", None, X), part(0, None, "f", "")),
    "a name in pieces": calling(
        [call("a", "find_all", X)],
        part(0, "a", "find", ""), part(0, None, "_all", ""), part(0, None, None, X),
        calls=(("find_all", F[1]),),
    ),
    "a name as far as it has come": calling(
        [call("a", "find_all", X)], part(0, "a", "find", ""), part(0, "a", "find_all", X),
        calls=(("find_all", F[1]),),
    ),
    "a late id": calling([call("a", "f", X)], part(0, None, "f", ""), part(0, "a", None, X)),
    "arguments as an object": calling([call("a", "f", F[1]), call("b", "g", G[1])]),
    "arguments as an object behind nothing": calling(
        [call("a", "f", F[1])], part(0, "a", "f", ""), part(0, None, None, F[1])
    ),
    "arguments as a list": calling([call("a", "f", [1])], calls=(("f", [1]),)),
    "arguments of null": calling([call("a", "f", None)], calls=(("f", {}),)),
    "no arguments": calling([{"id": "a", "type": "function", "function": {"name": "f"}}], calls=(("f", {}),)),
    "empty arguments": calling([call("a", "f", "")], calls=(("f", {}),)),
    "two calls without arguments": calling(
        [call("", "f", ""), call("", "g", "")], part(0, "", "f", ""), part(0, "", "g", ""),
        calls=(("f", {}), ("g", {})),
    ),
    "name and arguments beside the id": calling([{"id": "a", "name": "f", "arguments": F[1]}]),
    "no name": calling([call("a", None, X)], calls=(("", F[1]),)),
    "a call as there were before tools": Odd(
        whole=answer({"function_call": {"name": "f", "arguments": X}}, "function_call"),
        events=[
            chunk(assistant(None, function_call={"name": "f", "arguments": ""})),
            chunk({"function_call": {"arguments": X}}),
            *ended("function_call"),
        ],
        calls=(F,),
    ),
    "the same with an object": Odd(
        whole=answer({"function_call": {"name": "f", "arguments": F[1]}}, "function_call"),
        events=[chunk({"function_call": {"name": "f", "arguments": F[1]}}), *ended("function_call")],
        calls=(F,),
    ),
    "a call on the finish chunk": Odd(
        whole=answer({"tool_calls": [call("", "f", X)]}, "stop"),
        events=[chunk({"tool_calls": [part(0, "", "f", X)]}, "stop"), *ended("stop")[1:]],
        calls=(F,),
    ),
    "a stop that is none": Odd(
        whole=answer({"tool_calls": [call("a", "f", X)]}, "stop"),
        events=pieces(part(0, "a", "f", X), finish="stop"),
        calls=(F,),
        ids=("a",),
    ),
    "an end without a finish chunk": Odd(
        events=[chunk({"tool_calls": [part(0, None, "f", "")]}), DONE], calls=(("f", {}),), usage=None
    ),
    "of Anthropic's, one id": Odd(
        "anthropic",
        whole=wire.message(wire.tool_use("t", "f", q="x"), wire.tool_use("t", "g", q="y"), stop="tool_use"),
        events=wire.events(
            wire.message(wire.tool_use("t", "f", q="x"), wire.tool_use("t", "g", q="y"), stop="tool_use")
        ),
        calls=(F, G),
    ),
    "of Anthropic's, no ids among blocks that no chat has": Odd(
        "anthropic",
        whole=F_AND_G,
        events=wire.events(F_AND_G),
        text="and",
        calls=(F, G),
    ),
    "of Anthropic's, whole where they begin": Odd(
        "anthropic",
        events=[*wire.events(wire.message())[:1], *BEGUN_WHOLE, *wire.events(wire.message(stop="tool_use"))[-2:]],
        calls=(F, G),
        ids=("t", "u"),
    ),
    "of Anthropic's, arguments in a string, and none": Odd(
        "anthropic",
        whole=wire.message(
            {**wire.tool_use("t", "f"), "input": X}, {**wire.tool_use("u", "g"), "input": None}, stop="tool_use"
        ),
        calls=(F, ("g", {})),
        ids=("t", "u"),
    ),
    "of Responses, one id and an object": Odd(
        "responses", whole=TWO_CALLS, events=[{"type": "response.completed", "response": TWO_CALLS}], calls=(F, G)
    ),
}  # fmt: skip
SIGNS: dict[str, Odd] = {
    "a sign in two pieces": said(
        {"content": "so \ud83d"}, {"content": "\ude00!"}, text="so 😀!", whole={"content": "so 😀!"}
    ),
    "a half alone": said({"content": "cut \ud83d"}, text="cut \ufffd", whole={"content": "cut \ud83d"}),
    "a half in the middle": said(
        {"content": "a\ude00"}, {"content": "b"}, text="a\ufffdb", whole={"content": "a\ude00b"}
    ),
    "a sign in two pieces of arguments": calling(
        [call("a", "f", '{"q":"😀"}')],
        part(0, "a", "f", '{"q":"\ud83d'),
        part(0, None, None, '\ude00"}'),
        calls=(("f", {"q": "😀"}),),
    ),
}
IN_PARTS = [text_part("so "), text_part("it is")]
TEXTS: dict[str, Odd] = {
    "in parts": said(
        assistant([text_part("so ")]), {"content": [text_part("it is")]}, text="so it is", whole={"content": IN_PARTS}
    ),
    "a refusal": said({"refusal": "so "}, {"refusal": "it is"}, text="so it is", whole={"refusal": "so it is"}),
    "thoughts beside it": Odd(
        whole=answer({"content": [thought("hm"), *IN_PARTS]}),
        events=[
            chunk(assistant("")),
            *(chunk({"content": [thought(piece)]}) for piece in "hm"),
            *(chunk({"content": piece}) for piece in (IN_PARTS, "")),
            *ended("stop"),
        ],
        text="so it is",
    ),
    "an object": said({"content": {"so": 1}}, text='{"so":1}', whole={"content": {"so": 1}}),
    "in the role of another": said(
        {"role": "model", "content": "so "},
        {"role": "model", "content": "it is"},
        text="so it is",
        whole={"role": "model", "content": "so it is"},
    ),
    "notices beside it": Odd(
        events=[
            {"message": "processing"},
            chunk(assistant("so ")),
            {"status": "queued", "message": "still processing"},
            chunk({"content": "it is"}),
            *ended("stop")[:2],
            {"detail": "bye"},
            DONE,
        ],
        text="so it is",
    ),
    "a message in the place of a delta": Odd(
        events=[
            {**chunk(), "choices": [BROKEN | {"message": assistant("so it is"), "finish_reason": None}]},
            *ended("stop"),
        ],
        text="so it is",
    ),
}
USAGES: dict[str, Odd] = {
    "written with a point": counted(
        {"prompt_tokens": 10.0, "completion_tokens": 5.0, "prompt_tokens_details": {"cached_tokens": 2.0}}, cached(2, 0)
    ),
    "none": counted(None, None),
    "of nulls": counted({"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}, None),
    "of zeros": counted({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
    "below nothing": counted({"prompt_tokens": -1, "completion_tokens": -5, "total_tokens": -6}, None),
    "words": counted({"prompt_tokens": "10", "completion_tokens": "5"}, None),
    "no object": counted([1, 2], None),
    "written to the cache": counted(
        {**USAGE, "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3}}, cached(2, 3)
    ),
    "written, in Anthropic's words": counted(
        {**USAGE, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 2}, cached(2, 3)
    ),
    "written, in those of the details": counted(
        {**USAGE, "prompt_tokens_details": {"cached_tokens": 2, "cache_creation_input_tokens": 3}}, cached(2, 3)
    ),
    "written, in a gateway's words": counted(
        {**USAGE, "prompt_tokens_details": {"cached_tokens": 2, "cached_creation_tokens": 3}}, cached(2, 3)
    ),
    "read and written, in Bedrock's words": counted(
        {**USAGE, "cacheReadInputTokens": 2, "cacheWriteInputTokens": 3}, cached(2, 3)
    ),
    "read, in DeepSeek's words": counted(
        {**USAGE, "prompt_cache_hit_tokens": 2, "prompt_cache_miss_tokens": 8}, cached(2, 0)
    ),
    "details of nulls": counted({**USAGE, "prompt_tokens_details": {"cached_tokens": None}}, cached(0, 0)),
    "details below nothing": counted(
        {**USAGE, "prompt_tokens_details": {"cached_tokens": -2, "cache_write_tokens": -3}}, cached(0, 0)
    ),
    "details above the whole": counted(
        {
            **USAGE,
            "prompt_tokens_details": {"cached_tokens": 999, "cache_write_tokens": 999},
            "completion_tokens_details": {"reasoning_tokens": 999},
        },
        cached(0, 0),
    ),
    "details that are no numbers": counted(
        {**USAGE, "prompt_tokens_details": {"cached_tokens": "2"}, "completion_tokens_details": "many"}, cached(0, 0)
    ),
    "details above the whole together": counted(
        {**USAGE, "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 8}}, cached(8, 0)
    ),
    "of Anthropic's, none": Odd(
        "anthropic", whole={**BARE, "usage": None}, events=BARE_EVENTS, text="so it is", usage=None
    ),
    "of Responses, written": Odd(
        "responses",
        whole={
            "id": "r",
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "so"}]}],
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "total_tokens": 15,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3},
            },
        },
        text="so",
        usage=cached(2, 3),
    ),
}
ODD = {
    f"{kind}: {name}": odd
    for kind, table in (("failure", FAILURES), ("calls", CALLS), ("signs", SIGNS), ("text", TEXTS), ("usage", USAGES))
    for name, odd in table.items()
}


def stream_of(odd: Odd) -> bytes:
    """The stream's bytes."""
    return b"".join(_event(each) for each in odd.events)


def _event(value: Any) -> bytes:
    if isinstance(value, bytes):
        is_event = value.startswith((b"event:", b"data:", b"error:", b"id:"))
        return value.rstrip(b"\n") + b"\n\n" if is_event else b"data: " + value + b"\n\n"
    return b"data: " + json.dumps(value).encode() + b"\n\n"
