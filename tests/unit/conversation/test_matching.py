"""Where a request continues its stored conversation (contract §3.1, §3.4)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.matching import Continuation, continue_path
from gateway.conversation.messages import new_message
from tests.unit.making import assistant, stored, tool, user

HELLO = [user("hello"), assistant("hi")]
YES = [user("yes"), assistant("ok")]
SEARCH = [user("find"), assistant(None, "c1", "c2"), tool("c1", "one"), tool("c2", "two"), assistant("found")]

CASES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], Continuation]] = {
    "a delta is appended": (HELLO, [user("new")], Continuation(2, 0)),
    "a delta that repeats what was said is still new": (YES, [user("yes")], Continuation(2, 0)),
    "several new messages are a delta too": (HELLO, [user("a"), user("b")], Continuation(2, 0)),
    "a resend continues after what is stored": ([*HELLO, *YES], [*HELLO, *YES, user("new")], Continuation(4, 4)),
    "genuine repeats are kept": ([*YES], [*YES, *YES[:1]], Continuation(2, 2)),
    "repeats that are stored already are not doubled": ([*YES, *YES], [*YES, *YES, user("yes")], Continuation(4, 4)),
    "an edited message branches": ([*HELLO, *YES], [*HELLO, user("no")], Continuation(2, 2)),
    "a regenerated answer branches before it": ([*HELLO, *YES], [*HELLO, YES[0]], Continuation(3, 3)),
    "an edited first message starts anew": ([*HELLO, *YES], [user("hey"), assistant("hi")], Continuation(0, 0)),
    "a run that ends at the head is found": ([*HELLO, *YES], [*YES, user("new")], Continuation(4, 2)),
    "a run that does not end at the head is a new beginning": (
        [*HELLO, *YES, *SEARCH], [*YES, user("new")], Continuation(0, 0),
    ),
    "the beginning outranks a run at the end": ([*YES, *HELLO, *YES], [*YES, user("new")], Continuation(2, 2)),
    "white space is no difference": (HELLO, [user(" hello\n"), assistant("hi "), user("new")], Continuation(2, 2)),
    "steps that the client dropped are restored": (
        [*SEARCH, *YES], [SEARCH[0], SEARCH[-1], *YES, user("new")], Continuation(7, 4, restored=2),
    ),
    "steps that the client kept are not restored": ([*SEARCH], [*SEARCH, user("new")], Continuation(5, 5)),
    "results are continued after their calls": (SEARCH[:2], [*SEARCH[:4]], Continuation(2, 2)),
    "a changed result branches after its calls": (
        SEARCH, [*SEARCH[:2], tool("c1", "other"), SEARCH[3], user("new")], Continuation(2, 2),
    ),
    "an answer that only the client has is new": (HELLO, [*HELLO, user("a"), assistant("b")], Continuation(2, 2)),
    "an empty conversation takes everything": ([], [*HELLO, user("new")], Continuation(0, 0)),
}  # fmt: skip


@pytest.mark.parametrize(("path", "sent", "expected"), CASES.values(), ids=list(CASES))
def test_a_request_continues_where_it_belongs(
    path: list[dict[str, Any]], sent: list[dict[str, Any]], expected: Continuation
) -> None:
    assert continue_path(stored(path), [new_message(body) for body in sent]) == expected


def test_a_partial_answer_that_the_client_dropped_is_passed_over() -> None:
    path = [*stored(HELLO), *stored([user("more")]), *stored([assistant("hal")], "partial"), *stored(YES)]
    sent = [new_message(body) for body in [*HELLO, user("more"), *YES, user("new")]]
    assert continue_path(path, sent) == Continuation(6, 5)


words = st.sampled_from(["a", "b", "yes", "no"])
turns = st.lists(st.tuples(words, words), min_size=1, max_size=6)


def bodies(pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [body for question, answer in pairs for body in (user(question), assistant(answer))]


@given(pairs=turns, new=words)
def test_resending_everything_doubles_nothing_and_loses_nothing(pairs: list[tuple[str, str]], new: str) -> None:
    path = bodies(pairs)
    place = continue_path(stored(path), [new_message(body) for body in [*path, user(new)]])
    assert place == Continuation(len(path), len(path))


@given(pairs=turns, other=turns)
def test_what_is_kept_and_what_is_new_are_together_what_was_sent(
    pairs: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    path, sent = bodies(pairs), [*bodies(other), user("new")]
    place = continue_path(stored(path), [new_message(body) for body in sent])
    assert place.first_new <= place.kept <= len(path)
    assert path[place.kept - place.first_new : place.kept] == sent[: place.first_new]
    assert place.kept == place.first_new or place.kept == len(path)
