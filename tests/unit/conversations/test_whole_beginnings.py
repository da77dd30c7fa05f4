"""A long path is put into turns behind its whole beginning alone, with the same result (guarantee §3.7, §3.8)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.conversations.message_forms import forwardable, regrouped, whole_until
from gateway.conversations.rebuild import _in_turns
from gateway.core.jsons import Json
from gateway.core.types.conversation import ConversationMessage, MessageCache, StoredConversation


def calls(ids: list[str]) -> Json:
    made = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


bodies = st.one_of(
    st.just({"role": "user", "content": "question"}),
    st.just({"role": "assistant", "content": "answer"}),
    st.just({"role": "assistant", "content": "so", "function_call": {"name": "f", "arguments": "{}"}}),
    st.just({"role": "function", "name": "f", "content": "told"}),
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2, unique=True).map(calls),
    st.sampled_from(["a", "b"]).map(lambda each: {"role": "tool", "tool_call_id": each, "content": "told"}),
)
messages = st.tuples(bodies, st.sampled_from(["complete", "complete", "complete", "partial"]))


def stored(made: list[tuple[Json, str]]) -> tuple[ConversationMessage, ...]:
    return tuple(
        ConversationMessage(body["role"], body, sequence_number=number, message_id=f"msg_{number}", status=status)
        for number, (body, status) in enumerate(made)
    )


def shown(path: list[ConversationMessage]) -> list[tuple[str | None, Json]]:
    return [(message.message_id, message.body) for message in path]


@given(st.lists(messages, max_size=12), st.integers(0, 12))
def test_s3_8_behind_a_whole_beginning_all_is_as_it_would_be(made: list[tuple[Json, str]], known: int) -> None:
    """Also where what is known of the path was found when it was shorter."""
    path, cache = stored(made), MessageCache()
    whole_until(path[:known], cache)
    in_turns, whole = _in_turns(StoredConversation("conv_1", None, path, cache=cache))
    assert shown([*in_turns[:whole], *forwardable(in_turns[whole:])]) == shown(forwardable(regrouped(path)))


@given(st.lists(messages, max_size=8), st.lists(messages, max_size=4), st.lists(messages, max_size=4))
def test_s3_8_what_is_known_of_one_branch_says_nothing_of_another(
    shared: list[tuple[Json, str]], one: list[tuple[Json, str]], other: list[tuple[Json, str]]
) -> None:
    cache, first = MessageCache(), stored(shared + one)
    second = stored(shared + other)
    for number in range(len(shared), len(second)):
        second[number].message_id = f"msg_other_{number}"
    whole_until(first, cache)
    in_turns, whole = _in_turns(StoredConversation("conv_1", None, second, cache=cache))
    assert shown([*in_turns[:whole], *forwardable(in_turns[whole:])]) == shown(forwardable(regrouped(second)))
