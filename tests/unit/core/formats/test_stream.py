"""What a client sees of a stream (guarantee §6): nothing that breaks real clients, the bill on the finish chunk."""

from typing import Any

import pytest

from gateway.core.formats.stream_record import ChunkRelay

KNOWN = {"response_metadata": {"known": True}, "conversation": {"id": "conv_1"}}
BILL = {"response_metadata": {"bill": True}, "conversation": {"id": "conv_1"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.5}


def chunk(content: str | None = None, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "up", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [choice], **more}


def relayed(chunks: list[dict[str, Any]], choices: int = 1, include_usage: bool = False) -> list[list[dict[str, Any]]]:
    """What goes out at each chunk, and at the end."""
    relay = ChunkRelay("chatcmpl-own", choices, include_usage)
    pushed = [relay.push([each], lambda: dict(KNOWN)) for each in chunks]
    relay.conclude()
    return [*pushed, relay.final(dict(BILL), USAGE)]


PLAIN = [chunk(""), chunk("a"), chunk("b"), chunk(None, "stop"), {"id": "up", "choices": [], "usage": {"x": 1}}]


def test_chunks_pass_at_once_under_the_gateways_id_but_for_the_finish_chunk() -> None:
    steps = relayed(PLAIN)
    assert [len(step) for step in steps] == [1, 1, 1, 0, 0, 1]
    out = [each for step in steps for each in step]
    assert all(each["id"] == "chatcmpl-own" for each in out)
    assert [each["choices"] for each in out] == [each["choices"] for each in PLAIN[:4]]


def test_what_sdks_read_of_each_chunk_is_there_whatever_the_upstream_leaves_out() -> None:
    relay = ChunkRelay("chatcmpl-own", 1, True, {"created": 7, "model": "asked"})
    bare = [{"choices": chunk("a")["choices"]}, {"model": "told", "choices": chunk(None, "stop")["choices"]}]
    out = relay.push(bare, dict)
    relay.conclude()
    out += relay.final(dict(BILL), USAGE)
    assert [each["model"] for each in out] == ["asked", "told", "told"]
    assert {(each["object"], each["created"]) for each in out} == {("chat.completion.chunk", 7)}
    assert (relay.record.completion()["model"], relay.record.completion()["created"]) == ("told", 7)


def test_what_is_known_stands_on_the_first_chunk_and_the_bill_on_the_finish_chunk_alone() -> None:
    out = [each for step in relayed(PLAIN) for each in step]
    assert [each.get("response_metadata") for each in out] == [{"known": True}, None, None, {"bill": True}]
    assert [each.get("conversation") for each in out] == [{"id": "conv_1"}, None, None, {"id": "conv_1"}]


def test_unasked_no_chunk_holds_usage_or_lacks_choices() -> None:
    with_usage = [{**each, "usage": {"prompt_tokens": 1}} for each in PLAIN]
    for each in (each for step in relayed(with_usage) for each in step):
        assert "usage" not in each
        assert each["choices"]


def test_asked_the_usage_chunk_is_last_and_all_others_say_null() -> None:
    out = [each for step in relayed(PLAIN, include_usage=True) for each in step]
    assert [each.get("usage", "missing") for each in out] == [None, None, None, None, USAGE]
    assert out[-1]["choices"] == []
    assert out[-1]["response_metadata"] == {"bill": True}
    assert (out[-1]["id"], out[-1]["object"], out[-1]["model"]) == ("chatcmpl-own", "chat.completion.chunk", "m")


def test_upstreams_own_fields_without_choices_ride_on_the_next_chunk() -> None:
    extras = {"id": "up", "choices": [], "prompt_filter_results": [1]}
    steps = relayed([extras, chunk("a"), {"id": "up", "choices": [], "x_late": 2}, chunk(None, "stop")])
    assert [len(step) for step in steps] == [0, 1, 0, 0, 1]
    assert steps[1][0]["prompt_filter_results"] == [1]
    assert steps[1][0]["response_metadata"] == {"known": True}
    assert steps[4][0]["x_late"] == 2


def test_the_first_choices_finish_is_not_held_though_the_second_has_not_begun() -> None:
    """§6: the finish chunk of the last choice alone is held."""
    chunks = [chunk("a"), chunk(None, "stop"), chunk("b", index=1), chunk(None, "stop", 1)]
    assert [len(step) for step in relayed(chunks, choices=2)] == [1, 1, 1, 0, 1]


def test_of_fewer_choices_than_were_asked_for_the_last_finish_is_said_again_with_the_bill() -> None:
    """§6: the bill stands on a finish chunk, also where upstream does not know `n`."""
    steps = relayed([chunk("a"), chunk(None, "length"), {"id": "up", "choices": []}], choices=2)
    assert [len(step) for step in steps] == [1, 1, 0, 1]
    assert steps[-1][0]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
    assert steps[-1][0]["response_metadata"] == {"bill": True}


def test_of_two_finish_chunks_of_one_choice_the_last_has_the_bill() -> None:
    """§6: some providers repeat the finish with their usage."""
    steps = relayed([chunk("a"), chunk(None, "stop"), chunk("", "stop", usage={"x": 1}), chunk("")])
    assert [each.get("response_metadata") for each in steps[-1]] == [None, {"bill": True}, None]


def test_the_upstreams_id_is_not_replaced_by_a_finish_chunk_of_our_own() -> None:
    """§6: `upstream_id` is upstream's."""
    relay = ChunkRelay("chatcmpl-own", 1, False)
    relay.push([chunk("a")], dict)
    relay.conclude()
    assert relay.record.completion()["id"] == "up"


def test_fields_that_come_after_the_finish_chunk_are_on_it() -> None:
    steps = relayed([chunk("a"), chunk(None, "stop"), {"id": "up", "choices": [], "x_groq": {"id": 1}}])
    assert steps[-1][0]["x_groq"] == {"id": 1}


def test_only_the_last_choices_finish_chunk_is_held() -> None:
    chunks = [chunk("a"), chunk("b", index=1), chunk(None, "stop"), chunk("c", index=1), chunk(None, "stop", 1)]
    steps = relayed(chunks, choices=2)
    assert [len(step) for step in steps] == [1, 1, 1, 1, 0, 1]
    assert steps[-1][0]["choices"][0]["index"] == 1
    assert "response_metadata" not in steps[2][0]


def test_a_choice_that_nobody_asked_for_lets_the_held_finish_go_first() -> None:
    chunks = [chunk("a"), chunk(None, "stop"), chunk("b", index=1), chunk(None, "stop", 1)]
    steps = relayed(chunks)
    assert [each["choices"] for step in steps for each in step] == [each["choices"] for each in chunks]
    assert [len(step) for step in steps] == [1, 0, 2, 0, 1]


def test_chunks_after_the_finish_chunk_follow_it_in_their_order() -> None:
    steps = relayed([chunk("a"), chunk(None, "stop"), chunk("late")])
    assert [each["choices"][0]["delta"] for each in steps[-1]] == [{}, {"content": "late"}]
    assert [("response_metadata" in each) for each in steps[-1]] == [True, False]


@pytest.mark.parametrize("include_usage", [False, True])
def test_an_upstream_that_never_says_why_it_ended_gets_a_finish_chunk(include_usage: bool) -> None:
    steps = relayed([chunk("a")], include_usage=include_usage)
    finish = steps[-1][0]
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert (finish["id"], finish["model"], finish["response_metadata"]) == ("chatcmpl-own", "m", {"bill": True})
    assert finish.get("usage", "missing") == (None if include_usage else "missing")


def test_a_stream_that_is_one_chunk_holds_what_is_known_and_the_bill() -> None:
    (held,) = relayed([chunk("all", "stop")])[-1]
    assert held["response_metadata"] == {"bill": True}
    assert held["choices"][0]["delta"] == {"content": "all"}
