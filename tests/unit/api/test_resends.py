"""`api/request/body_cache.py`: what is kept of requests, of whom, and for how long (guarantee §3.8, ADR 20)."""

import json
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.request import validation
from gateway.api.request.body_cache import MIN_CACHED_BODY, BodyCache, _CachedBody, read_chat_request
from gateway.api.request.validation import RequestArrival
from gateway.conversations.rebuild import sent_chain
from gateway.core import jsons
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chain import chain_digests
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.storage.lookup.path_cache import KEPT_SECONDS
from tests.support.hand_clock import HandClock

Json = dict[str, Any]
LONG = "words of some length " * 500
SETTINGS = Settings()
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "required": ["a"]}}}]


@pytest.fixture
def resends(clock: HandClock) -> BodyCache:
    return BodyCache(2**24, clock)


def read(resends: BodyCache, raw: bytes, tenant: str = "one") -> ChatRequest:
    """The request of a body, with the digests that its lookup would make."""
    arrival = RequestArrival("req_1", datetime(2026, 11, 23, tzinfo=UTC), 0.0, len(raw))
    request = read_chat_request(resends, raw, {}, RequestCaller(tenant), SETTINGS, arrival)
    sent_chain(request)
    return request


def answered(resends: BodyCache, raw: bytes, tenant: str = "one") -> ChatRequest:
    """The same, answered and kept."""
    request = read(resends, raw, tenant)
    with resends.holding(raw, request):
        return request


def body(*contents: str, **more: Any) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    return json.dumps({"messages": messages, "model": "gpt-4o", **more}, separators=(",", ":")).encode()


def test_what_goes_on_is_parsed_behind_what_is_known(resends: BodyCache) -> None:
    answered(resends, body(LONG, "yes", tools=TOOLS))
    request = read(resends, body(LONG, "yes", "and?", "no", tools=TOOLS))
    assert request.known.count == 2
    assert [message["content"] for message in request.messages] == [LONG, "yes", "and?", "no"]
    assert list(request.known.digests) == chain_digests(request.messages)
    assert request.forward == {"model": "gpt-4o", "tools": TOOLS}


def test_where_the_last_message_differs_those_before_it_are_known(resends: BodyCache) -> None:
    answered(resends, body(LONG, "yes", "and?"))
    assert read(resends, body(LONG, "yes", "but?")).known.count == 2


@pytest.mark.parametrize(
    "other",
    [
        body(LONG, "yes").replace(b"words", b"Words", 1),
        body(LONG + " and so on", "yes", "and?"),
        body(LONG, "yes", "and?").replace(b'"messages"', b'"messages":[],"messages"', 1).replace(b"[]", b"[1]"),
        body(LONG, "yes", "and?", messages=[{"role": "user", "content": LONG}]),
        b" " + body(LONG, "yes", "and?"),
    ],
    ids=["another word", "a longer message", "other members before", "messages said twice", "a space before"],
)
def test_what_is_not_the_same_is_parsed_whole(resends: BodyCache, other: bytes) -> None:
    answered(resends, body(LONG, "yes"))
    request = read(resends, other)
    assert request.known.count == 0
    assert list(request.messages) == json.loads(other)["messages"]


def test_a_second_member_behind_the_known_ones_counts(resends: BodyCache) -> None:
    """Of two members with one name the last one counts, also if the first begins as it is known."""
    answered(resends, body(LONG, "yes"))
    twice = body(LONG, "yes", "and?")[:-1] + b',"messages":[{"role":"user","content":"other"}]}'
    assert [message["content"] for message in read(resends, twice).messages] == ["other"]


def test_each_tenant_has_its_own(resends: BodyCache) -> None:
    answered(resends, body(LONG, "yes"))
    assert read(resends, body(LONG, "yes", "and?"), "two").known.count == 0


def test_the_memory_of_what_goes_on_is_reckoned_behind_what_is_known(
    resends: BodyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much as of the whole body, whatever it shares with an earlier one, and whether that was ASCII."""
    reckoned: list[int] = []
    part_bytes = jsons.part_bytes

    def counted(raw: bytes) -> int:
        reckoned.append(len(raw))
        return part_bytes(raw)

    monkeypatch.setattr(jsons, "part_bytes", counted)
    for contents in ((LONG, "yes"), (LONG, "yes", "and?", "no"), (LONG, "yes", "é", "{,["), (LONG, "yes", "and?")):
        raw = body(*contents)
        reckoned.clear()
        request = answered(resends, raw)
        whole = BodyCache(2**24, HandClock())
        answered(whole, raw)
        assert resends.size == whole.size
        assert request.known.count == 0 or sum(reckoned) - len(raw) < MIN_CACHED_BODY // 2
    assert request.known.count == 2


def test_another_tenants_bodies_are_none_to_compare_whatever_their_samples(
    resends: BodyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee §8 does not hang on a hash in which two tenants may meet."""
    monkeypatch.setattr("gateway.api.request.body_cache._samples", lambda tenant, raw: iter((1,)))
    answered(resends, body(LONG, "yes"))
    assert read(resends, body(LONG, "yes", "and?"), "two").known.count == 0
    assert read(resends, body(LONG, "yes", "and?")).known.count == 2


def test_nothing_of_store_false_is_kept(resends: BodyCache) -> None:
    answered(resends, body(LONG, "yes", store=False))
    assert resends.size == 0


def steps(count: int, text: str = "found") -> list[Json]:
    """An agent's conversation of that many tool steps."""
    messages: list[Json] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": LONG}]
    for number in range(count):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{text} {number}"})
    return messages


def unstored(messages: list[Json]) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": messages, "store": False}).encode()


def test_of_steps_with_store_false_only_digests_are_kept(resends: BodyCache) -> None:
    for count in range(1, 5):
        request = answered(resends, unstored(steps(count)))
        assert request.known.count == (2 * count if count > 1 else 0)
        assert list(request.known.digests) == chain_digests(steps(count)[1:])
        assert len(resends) == 1
    (kept,) = resends._kept.values()
    assert not any(text in repr(kept) for text in ("words of", "found", "call_", "Be brief"))


def test_of_steps_with_store_false_what_is_known_is_not_checked_again(
    resends: BodyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Mock(wraps=validation.check_message)
    monkeypatch.setattr(validation, "check_message", check)
    for count in (40, 41):
        check.reset_mock()
        answered(resends, unstored(steps(count)))
    assert [call.args[1] for call in check.call_args_list] == ["messages[82]", "messages[83]"]


@pytest.mark.parametrize("wrong", [7, {"role": "tool"}, {"role": "nobody", "content": "x"}, {"content": "x"}])
def test_of_steps_with_store_false_what_is_wrong_is_refused_by_its_own_index(resends: BodyCache, wrong: Any) -> None:
    answered(resends, unstored(steps(2)))
    for index in (1, 6, 7):
        messages = steps(3)
        messages[index] = wrong
        with pytest.raises(InvalidRequest) as refused:
            read(resends, unstored(messages))
        assert (refused.value.param or "").startswith(f"messages[{index}]")
        assert resends.recognised == (index == 7)


@pytest.mark.parametrize(
    ("messages", "tenant"),
    [(steps(2), "two"), (steps(2, "lost"), "one"), (steps(2)[1:], "one"), (steps(3), "one"), (steps(1), "one")],
    ids=["another tenant", "another result", "no instructions", "a step more", "a step less"],
)
def test_steps_with_store_false_that_are_others_are_not_known(
    resends: BodyCache, messages: list[Json], tenant: str
) -> None:
    answered(resends, unstored(steps(1)))
    assert read(resends, unstored(messages), tenant).known.count == 0


def test_steps_with_store_false_are_forgotten_with_all_others(resends: BodyCache) -> None:
    answered(resends, unstored(steps(1)))
    resends.forget()
    assert read(resends, unstored(steps(2))).known.count == 0


def test_small_bodies_are_not_worth_it(resends: BodyCache) -> None:
    answered(resends, body("x" * (MIN_CACHED_BODY // 2), "yes"))
    assert resends.size == 0


def test_a_deletion_drops_all_also_of_requests_under_way(resends: BodyCache) -> None:
    answered(resends, body(LONG, "yes"))
    raw = body(LONG, "yes", "and?")
    with resends.holding(raw, read(resends, raw)):
        resends.forget()
        assert resends.size == 0
    assert resends.size == 0
    assert read(resends, raw).known.count == 0


def test_what_was_not_answered_is_not_kept(resends: BodyCache) -> None:
    raw = body(LONG, "yes")
    with pytest.raises(ConnectionError), resends.holding(raw, read(resends, raw)):
        raise ConnectionError
    assert resends.size == 0


def test_running_requests_hold_no_more_than_may_be_kept(clock: HandClock) -> None:
    raw = body(LONG, "yes")
    resends = BodyCache(8 * len(raw), clock)
    with ExitStack() as running:
        for _ in range(10):
            running.enter_context(resends.holding(raw, read(resends, raw)))
        assert resends._held <= 4 * len(raw)
    assert resends._held == 0


def test_what_nobody_asks_for_is_gone_in_minutes(resends: BodyCache, clock: HandClock) -> None:
    answered(resends, body(LONG, "yes"))
    clock.seconds += KEPT_SECONDS + 1
    assert read(resends, body(LONG, "yes", "and?")).known.count == 0
    resends.expire()
    assert resends.size == 0


def test_what_nobody_asks_for_is_gone_sooner_where_that_is_set(clock: HandClock) -> None:
    resends = BodyCache(2**24, clock, 60)
    answered(resends, body(LONG, "yes"))
    clock.seconds += 59
    assert read(resends, body(LONG, "yes", "and?")).known.count == 2
    clock.seconds += 2
    assert read(resends, body(LONG, "yes", "and?")).known.count == 0


def test_one_tenants_requests_are_forgotten_alone(resends: BodyCache) -> None:
    for tenant in ("one", "another"):
        answered(resends, body(LONG, "yes"), tenant)
    resends.forget_tenant("one")
    assert read(resends, body(LONG, "yes", "and?")).known.count == 0
    assert read(resends, body(LONG, "yes", "and?"), "another").known.count == 2
    assert len(resends) == 1


def test_the_longest_unused_leave_first(clock: HandClock) -> None:
    resends = BodyCache(6 * 4 * len(LONG), clock)
    conversations = [f"{number} {LONG}" for number in range(12)]
    for text in conversations:
        answered(resends, body(text, "yes"))
    assert resends.size <= 6 * 4 * len(LONG)
    known = [read(resends, body(text, "yes", "and?")).known.count for text in conversations]
    assert known[-1] == 2
    assert known[0] == 0


def test_one_conversation_is_kept_once(resends: BodyCache) -> None:
    contents = [LONG, "yes"]
    for number in range(20):
        request = answered(resends, body(*contents))
        assert request.known.count == (2 * number if number else 0)
        contents += [f"question {number}", f"answer {number}"]
    assert resends.size < 3 * len(body(*contents)) + 100_000


pieces = st.lists(
    st.sampled_from(["a", '"', "\\", "]}", "},{", "\n", "é", "🙂", '{"role"', LONG]), min_size=1, max_size=3
)


@given(st.lists(pieces, min_size=2, max_size=6), st.lists(pieces, max_size=4), st.booleans(), st.booleans())
def test_the_short_way_reads_the_same(
    first: list[list[str]], more: list[list[str]], indented: bool, escaped: bool
) -> None:
    def written(texts: list[list[str]]) -> bytes:
        messages = [{"role": ("user", "assistant")[i % 2], "content": "".join(text)} for i, text in enumerate(texts)]
        whole: Json = {"model": "gpt-4o", "messages": [{"role": "system", "content": LONG}, *messages], "tools": TOOLS}
        return json.dumps(whole, indent=1 if indented else None, ensure_ascii=escaped).encode()

    resends, none = BodyCache(2**24, HandClock()), BodyCache(1, HandClock())
    answered(resends, written(first))
    answered(resends, written(first + more[:1]))
    one, other = read(resends, written(first + more)), read(none, written(first + more))
    assert replace(one, known=other.known) == other
    assert list(one.known.digests) == list(other.known.digests)
    if one.known.count:  # it is counted as if nothing was known of it
        answered(resends, written(first + more))
        alone = BodyCache(2**24, HandClock())
        answered(alone, written(first + more))
        kept = list(resends._kept.values())[-1]
        assert isinstance(kept, _CachedBody)
        assert kept.size == alone.size
