"""Choices that an upstream numbers or fills oddly reach every client: nothing of them is lost (guarantee §1.9)."""

import copy
import json

import pytest

from gateway.api.request.validation import check_message
from gateway.core.jsons import Json
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.mending import StreamMender, check_choices, whole_mended

ONE = ModelDeployment("m", "m", "openai/m", "http://one/v1", "sk", operator_key=True)


def streamed(*choices: Json, n: int | None = None) -> list[Json]:
    """The choices of chunks as the mender passes them on."""
    mender = StreamMender(ONE, {"n": n})
    found: list[Json] = []
    for choice in choices:
        chunk = json.loads(json.dumps({"id": "c", "choices": [choice]}))
        check_choices(chunk["choices"], "delta")
        found += (each for mended in mender.mended(chunk, b"{}") for each in mended["choices"])
    return found


def whole(*choices: Json, n: int | None = None) -> list[Json]:
    """The choices of a whole answer as they are passed on."""
    found: list[Json] = whole_mended({"id": "c", "choices": list(choices)}, {"n": n}, ONE)["choices"]
    return found


@pytest.mark.parametrize("n", [None, 1])
def test_s1_9_the_one_choice_that_was_asked_for_is_the_first(n: int | None) -> None:
    pieces = [{"index": 3, "delta": {"content": text}} for text in ("a", "b")]
    said = streamed(*pieces, {"index": 3, "delta": {}, "finish_reason": "stop"}, n=n)
    assert [choice["index"] for choice in said] == [0, 0, 0]
    assert whole({"index": 3, "message": {"content": "a"}, "finish_reason": "stop"}, n=n)[0]["index"] == 0


def test_s1_9_several_choices_keep_their_numbers_and_stand_in_their_order() -> None:
    pieces = [{"index": index, "delta": {"content": "a"}} for index in (1, 0, 1)]
    assert [choice["index"] for choice in streamed(*pieces, n=2)] == [1, 0, 1]
    said = whole(*({"index": i, "message": {"content": str(i)}, "finish_reason": "stop"} for i in (1, 0)), n=2)
    assert [choice["message"]["content"] for choice in said] == ["0", "1"]


def test_s1_9_a_second_choice_that_nobody_asked_for_stays_the_second() -> None:
    pieces = [{"index": index, "delta": {"content": "a"}} for index in (0, 1, 0)]
    assert [choice["index"] for choice in streamed(*pieces)] == [0, 1, 0]


def test_s1_9_of_two_where_one_was_asked_for_the_first_is_that_one() -> None:
    pieces = [{"index": index, "delta": {"content": str(index)}} for index in (1, 0, 1, 0)]
    assert [(choice["index"], choice["delta"]["content"]) for choice in streamed(*pieces)] == [
        *((0, "1"), (1, "0")),
        *((0, "1"), (1, "0")),
    ]


@pytest.mark.parametrize(
    ("choice", "delta"),
    [
        ({"delta": None}, None),  # as it was written
        ({"finish_reason": "stop"}, {}),
        ({"delta": None, "message": {"content": "a"}}, {"content": "a"}),
        ({"message": {"content": "a"}}, {"content": "a"}),
        ({"text": "a"}, {"content": "a"}),
        ({"text": None}, {}),
    ],
    ids=str,
)
def test_s1_9_each_choice_of_a_stream_has_a_delta(choice: Json, delta: Json | None) -> None:
    assert [said["delta"] for said in streamed({"index": 0, **choice})] == [delta]


@pytest.mark.parametrize("message", [{"content": "a"}, {"tool_calls": [{"function": {"name": "f"}}]}], ids=str)
@pytest.mark.parametrize("said", [{}, {"finish_reason": None}], ids=str)
def test_s1_9_a_whole_answer_says_why_it_ended(message: Json, said: Json) -> None:
    (choice,) = whole({"index": 0, "message": dict(message), **said})
    assert choice["finish_reason"] == ("tool_calls" if "tool_calls" in message else "stop")


TOLD = {"prompt_tokens": 100, "completion_tokens": 3, "total_tokens": 103}
STOP: Json = {"index": 0, "delta": {}, "finish_reason": "stop"}
PLACES: dict[str, Json] = {
    "beside a choice": {"choices": [{**STOP, "usage": TOLD}]},
    "of Groq": {"choices": [STOP], "x_groq": {"id": "g", "usage": {**TOLD, "queue_time": 0.1}}},
    "beside zeros": {"choices": [{**STOP, "usage": TOLD}], "usage": dict.fromkeys(TOLD, 0)},
    "twice": {"choices": [{**STOP, "usage": {**TOLD, "prompt_tokens": 1}}], "usage": TOLD},
}


@pytest.mark.parametrize("chunk", PLACES.values(), ids=PLACES)
def test_usage_is_read_wherever_an_upstream_tells_it_and_once(chunk: Json) -> None:
    (mended,) = StreamMender(ONE, {}).mended(copy.deepcopy(chunk))
    message = {"role": "assistant", "content": "a"}
    whole = {**copy.deepcopy(chunk), "choices": [{**chunk["choices"][0], "message": message}]}
    for found in (mended, whole_mended(whole, {}, ONE)):
        assert {name: found["usage"][name] for name in TOLD} == TOLD
    nothing = {"choices": [{**STOP, "usage": None}], "x_groq": {"id": "g"}}
    assert "usage" not in StreamMender(ONE, {}).mended(nothing)[0]


def test_s1_9_an_answer_without_a_role_and_a_bare_freeform_call_may_be_sent_again() -> None:
    message: Json = {"content": None, "tool_calls": [{"id": "c", "type": "custom"}]}
    answer = whole_mended({"id": "a", "choices": [{"index": 0, "message": message}]}, {}, ONE)
    check_message(answer["choices"][0]["message"], "messages[1]")
    assert answer["choices"][0]["message"]["role"] == "assistant"
