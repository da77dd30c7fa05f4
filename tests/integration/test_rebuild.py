"""`build_llm_messages()` on a real store: where a request continues, and what comes back (guarantee §3, ADR 8)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.conversations.rebuild import RebuildOptions, build_llm_messages
from gateway.core.errors import ConversationNotFound, InvalidRequest
from gateway.core.ids import new_id
from gateway.core.types.chain import CHAIN_START, ChainKeys, chain_digests
from gateway.core.types.chat import RequestCaller
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationHistory, ConversationRef, new_message
from gateway.storage.store import ConversationStore
from tests.integration.commits import turn
from tests.unit.making import assistant, chat, system, tool, user

pytestmark = pytest.mark.in_turn("module_storage_url")

Json = dict[str, Any]
HELLO = [user("hello"), assistant("hi")]
YES = [user("yes"), assistant("ok")]
SEARCH = [user("find"), assistant(None, "c1", "c2"), tool("c1", "one"), tool("c2", "two"), assistant("found")]

LOOKED = [user("look"), assistant("", "c1"), tool("c1", "one"), assistant("seen")]


async def grown(store: ConversationStore, tenant: str, path: Sequence[Json]) -> ConversationRef:
    """A conversation of these messages, stored as a chain."""
    ref = ConversationRef(new_id("conv_"))
    messages = tuple(replace(new_message(body), message_id=new_id("msg_")) for body in path)
    commit = turn(tenant, ref.conversation_id or "", answers=(), new_messages=messages, created=True)
    said = (chain_digests(path) or [CHAIN_START])[-1].said
    await store.commit(replace(commit, chains=(ChainKeys(await store.secret(), tenant).key(said),)))
    return ref


async def rebuild(
    store: ConversationStore, tenant: str, ref: ConversationRef, sent: Sequence[Json], **more: Any
) -> ConversationHistory:
    """The history of a request of these messages."""
    request = chat(sent, conversation=ref, caller=RequestCaller(tenant), **more.pop("request", {}))
    return await build_llm_messages(request, store, RebuildOptions(remembers=True, **more))


def bodies(history: ConversationHistory) -> list[Json]:
    return [message.body for message in history.messages]


Case = tuple[list[Json], list[Json], int, list[Json]]
CASES: dict[str, Case] = {
    "a delta is appended": (HELLO, [user("new")], 1, [*HELLO, user("new")]),
    "a delta that repeats what was said is still new": (YES, [user("yes")], 1, [*YES, user("yes")]),
    "several new messages are a delta too": (HELLO, [user("a"), user("b")], 2, [*HELLO, user("a"), user("b")]),
    "a resend continues after what is stored": (
        [*HELLO, *YES], [*HELLO, *YES, user("new")], 1, [*HELLO, *YES, user("new")],
    ),
    "genuine repeats are kept": (YES, [*YES, YES[0]], 1, [*YES, YES[0]]),
    "repeats that are stored already are not doubled": (
        [*YES, *YES], [*YES, *YES, user("yes")], 1, [*YES, *YES, user("yes")],
    ),
    "an edited message branches": ([*HELLO, *YES], [*HELLO, user("no")], 1, [*HELLO, user("no")]),
    "a regenerated answer branches before it": ([*HELLO, *YES], [*HELLO, YES[0]], 0, [*HELLO, YES[0]]),
    "an edited first message starts anew": (
        [*HELLO, *YES], [user("hey"), assistant("hi"), user("x")], 3, [user("hey"), assistant("hi"), user("x")],
    ),
    "a run that ends at the head is found": ([*HELLO, *YES], [*YES, user("new")], 1, [*HELLO, *YES, user("new")]),
    "a run that goes on with an answer that is stored nowhere": (
        [*HELLO, *YES], [*YES, user("aside"), assistant("unstored"), user("new")], 3,
        [*HELLO, *YES, user("aside"), assistant("unstored"), user("new")],
    ),
    "a run without the steps is found": (
        [*HELLO, *SEARCH, *YES], [SEARCH[-1], *YES, user("new")], 1, [*HELLO, *SEARCH, *YES, user("new")],
    ),
    "a run that does not end at the head is a new beginning": (
        [*HELLO, *YES, *SEARCH], [*YES, user("new")], 3, [*YES, user("new")],
    ),
    "the beginning outranks a run at the end": (
        [*YES, *HELLO, *YES], [*YES, user("new")], 1, [*YES, user("new")],
    ),
    "white space is no difference, and what was stored first counts": (
        HELLO, [user(" hello\n"), assistant("hi "), user("new")], 1, [*HELLO, user("new")],
    ),
    "steps that the client dropped are restored": (
        [*SEARCH, *YES], [SEARCH[0], SEARCH[-1], *YES, user("new")], 1, [*SEARCH, *YES, user("new")],
    ),
    "steps that the client kept are not restored": (SEARCH, [*SEARCH, user("new")], 1, [*SEARCH, user("new")]),
    "some steps kept and some dropped": (
        [*SEARCH, *YES, *SEARCH], [SEARCH[0], SEARCH[-1], *YES, *SEARCH, user("new")], 1,
        [*SEARCH, *YES, *SEARCH, user("new")],
    ),
    "results are continued after their calls": (SEARCH[:2], SEARCH[:4], 2, SEARCH[:4]),
    "a changed result branches after its calls": (
        SEARCH, [*SEARCH[:2], tool("c1", "other"), SEARCH[3], user("new")], 3,
        [*SEARCH[:2], tool("c1", "other"), SEARCH[3], user("new")],
    ),
    "a changed result far back branches there": (
        [*SEARCH, *YES, *HELLO], [*SEARCH[:2], tool("c1", "other"), *SEARCH[3:], *YES, *HELLO, user("new")], 8,
        [*SEARCH[:2], tool("c1", "other"), *SEARCH[3:], *YES, *HELLO, user("new")],
    ),
    "an answer that only the client has is new": (
        HELLO, [*HELLO, user("a"), assistant("b"), user("c")], 3, [*HELLO, user("a"), assistant("b"), user("c")],
    ),
    "a system message in between that the client leaves out stays out": (
        [*HELLO, system("note"), *YES], [*HELLO, *YES, user("new")], 1, [*HELLO, *YES, user("new")],
    ),
    "an empty conversation takes everything": ([], [*HELLO, user("new")], 3, [*HELLO, user("new")]),
    "the end of a long chain that was edited in its middle": (
        [user(str(n)) if n % 2 == 0 else assistant(str(n)) for n in range(40)],
        [*(user(str(n)) if n % 2 == 0 else assistant(str(n)) for n in range(20)), user("edited")], 1,
        [*(user(str(n)) if n % 2 == 0 else assistant(str(n)) for n in range(20)), user("edited")],
    ),
    "a prefill behind what is stored": (
        HELLO, [*HELLO, user("new"), assistant("It")], 2, [*HELLO, user("new"), assistant("It")],
    ),
    "a prefill and its completion are what is stored of both": (
        [*HELLO, user("q"), assistant("It is so."), *YES],
        [*HELLO, user("q"), assistant("It is"), assistant(" so."), *YES, user("new")], 1,
        [*HELLO, user("q"), assistant("It is so."), *YES, user("new")],
    ),
    "a prefill, its completion and dropped steps": (
        [*SEARCH, user("q"), assistant("It is so."), *YES],
        [SEARCH[0], SEARCH[-1], user("q"), assistant("It is"), assistant(" so."), *YES, user("new")], 1,
        [*SEARCH, user("q"), assistant("It is so."), *YES, user("new")],
    ),
    "a prefill, its completion, dropped steps and a system message": (
        [*SEARCH, user("q"), assistant("It is so."), system("s"), *YES],
        [SEARCH[0], SEARCH[-1], user("q"), assistant("It is"), assistant(" so."), system("s"), *YES, user("new")], 1,
        [*SEARCH, user("q"), assistant("It is so."), system("s"), *YES, user("new")],
    ),
    "a run in which a prefill and its completion stand apart": (
        [*HELLO, user("q"), assistant("It is so."), *YES],
        [user("q"), assistant("It is"), assistant(" so."), *YES, user("new")], 1,
        [*HELLO, user("q"), assistant("It is so."), *YES, user("new")],
    ),
    "steps of the turn under way of which the first were left out": (
        [*HELLO, user("q"), *SEARCH[1:4], assistant(None, "c9")],
        [*HELLO, user("q"), assistant(None, "c9"), tool("c9", "nine")], 1,
        [*HELLO, user("q"), *SEARCH[1:4], assistant(None, "c9"), tool("c9", "nine")],
    ),
    "another step in the place of those that are stored": (
        [*HELLO, user("q"), *SEARCH[1:4], assistant(None, "c9")],
        [*HELLO, user("q"), assistant(None, "c8"), tool("c8", "eight")], 2,
        [*HELLO, user("q"), assistant(None, "c8"), tool("c8", "eight")],
    ),
    "a system message in between that changed": (
        [HELLO[0], system("Monday"), HELLO[1], *YES],
        [HELLO[0], system("Tuesday"), HELLO[1], *YES, user("new")], 5,
        [HELLO[0], system("Tuesday"), HELLO[1], *YES, user("new")],
    ),
    "the end of a conversation that did the same in earlier turns": (
        [*LOOKED, *LOOKED, *LOOKED, user("q"), LOOKED[1]], LOOKED[1:3], 1,
        [*LOOKED, *LOOKED, *LOOKED, user("q"), *LOOKED[1:3]],
    ),
    "a prefill alone": (HELLO, [assistant("It")], 1, [*HELLO, assistant("It")]),
    "a delta with a prefill": (HELLO, [user("new"), assistant("It")], 2, [*HELLO, user("new"), assistant("It")]),
}  # fmt: skip


@pytest.mark.parametrize(("path", "sent", "new", "expected"), CASES.values(), ids=list(CASES))
async def test_a_request_continues_where_it_belongs(
    store: ConversationStore, tenant: str, path: list[Json], sent: list[Json], new: int, expected: list[Json]
) -> None:
    """§3.1, §3.4."""
    history = await rebuild(store, tenant, await grown(store, tenant, path), sent)
    assert bodies(history) == expected
    assert len(history.new_messages) == len(history.digests) == new


LONG, DROPPED = [user("long"), assistant("x" * 200)], [SEARCH[0], SEARCH[-1]]
NOTED = [*SEARCH[:-1], system("note"), SEARCH[-1]]
CHANGED = [HELLO[0], system("Tuesday"), HELLO[1], *SEARCH, user("new")]
RECOGNISED: dict[str, Case] = {
    "a system message in between that changes each time": (
        [HELLO[0], system("Monday"), HELLO[1], *SEARCH], CHANGED, 1, CHANGED,
    ),
    "a system message that is put in later, behind a step that is sent": (
        [*SEARCH, *SEARCH, *LONG], [*NOTED, *DROPPED, *LONG, YES[0]], 1, [*NOTED, *SEARCH, *LONG, YES[0]],
    ),
    "a system message that is put in later, among dropped steps": (
        [*SEARCH, *LONG], [*DROPPED, system("note"), *LONG, user("new")], 1,
        [*SEARCH, system("note"), *LONG, user("new")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("path", "sent", "new", "expected"), RECOGNISED.values(), ids=list(RECOGNISED))
async def test_a_conversation_is_recognised_whatever_its_system_messages(
    store: ConversationStore, tenant: str, path: list[Json], sent: list[Json], new: int, expected: list[Json]
) -> None:
    """§3.2: system messages, often changed by clients, are no part of the chain; those sent are forwarded."""
    known = await grown(store, tenant, path)
    history = await rebuild(store, tenant, ConversationRef(), sent)
    assert history.conversation_id == known.conversation_id
    assert bodies(history) == expected
    assert len(history.new_messages) == new


words = st.sampled_from(["a", "b", "yes", "no"])
turns = st.lists(st.tuples(words, words), min_size=1, max_size=6)
FEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def chat_of(pairs: list[tuple[str, str]]) -> list[Json]:
    return [body for question, answer in pairs for body in (user(question), assistant(answer))]


@FEW
@given(pairs=turns, new=words)
async def test_resending_everything_doubles_nothing_and_loses_nothing(
    store: ConversationStore, tenant: str, pairs: list[tuple[str, str]], new: str
) -> None:
    path = chat_of(pairs)
    history = await rebuild(store, tenant, await grown(store, tenant, path), [*path, user(new)])
    assert bodies(history) == [*path, user(new)]
    assert [m.body for m in history.new_messages] == [user(new)]
    brief = await rebuild(store, tenant, await grown(store, tenant, path), [*path, user(new)], fits_as_sent=True)
    assert brief.as_sent
    assert bodies(brief) == [user(new)]
    assert (brief.base, brief.digests) == (history.base, history.digests)


PATH = [user("q1"), assistant(None, "c1"), tool("c1", "r1"), assistant("a1"), user("q2"), assistant("a2")]


async def test_an_unknown_conversation_is_not_found(store: ConversationStore, tenant: str) -> None:
    with pytest.raises(ConversationNotFound) as raised:
        await rebuild(store, tenant, ConversationRef("conv_none"), [user("q")])
    assert (raised.value.status, raised.value.param) == (404, "conversation")


async def test_an_unknown_session_is_a_new_conversation_of_that_name(store: ConversationStore, tenant: str) -> None:
    history = await rebuild(store, tenant, ConversationRef(session="work"), [system("s"), user("q")])
    assert (history.created, history.session) == (True, "work")
    assert (history.instructions, bodies(history), history.stored) == ((system("s"),), [user("q")], 0)


async def test_a_tool_result_continues_the_calls_that_are_stored(store: ConversationStore, tenant: str) -> None:
    path = [*PATH[:4], user("q2"), assistant(None, "c9")]
    ref = await grown(store, tenant, path)
    history = await rebuild(store, tenant, ref, [tool("c9", "r9")])
    assert bodies(history) == [*path, tool("c9", "r9")]
    with pytest.raises(InvalidRequest) as raised:
        await rebuild(store, tenant, ref, [tool("c8", "r8")])
    assert raised.value.param == "messages[0]"


async def test_calls_that_nobody_answered_are_left_out_when_the_user_goes_on(
    store: ConversationStore, tenant: str
) -> None:
    ref = await grown(store, tenant, [*PATH[:4], user("q2"), assistant("I look", "c9")])
    history = await rebuild(store, tenant, ref, [user("never mind")])
    assert bodies(history) == [*PATH[:4], user("q2"), assistant("I look"), user("never mind")]


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_call_that_is_sent_again_needs_its_result_whatever_is_stored(
    store: ConversationStore, tenant: str, by_id: bool
) -> None:
    """§3.3: a call left unanswered in a resend is a 400 that names it."""
    ref = await grown(store, tenant, PATH) if by_id else ConversationRef()
    with pytest.raises(InvalidRequest) as raised:
        await rebuild(store, tenant, ref, [system("s"), *PATH[:2], PATH[3], user("on")])
    assert raised.value.param == "messages[2]"


async def test_a_broken_pair_names_the_message_as_the_client_counts(store: ConversationStore, tenant: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await rebuild(store, tenant, ConversationRef(), [system("s"), user("a"), tool("c", "x")])
    assert raised.value.param == "messages[2]"


async def test_of_a_long_history_only_what_could_fit_is_read(store: ConversationStore, tenant: str) -> None:
    path = chat_of([("x" * 400, str(n)) for n in range(20)])
    ref = await grown(store, tenant, path)
    for sent in ([user("new")], [*path, user("new")]):
        history = await rebuild(store, tenant, ref, sent, budget_tokens=200)
        assert 0 < len(history.messages) < 12
        assert history.unread == len(path) - (len(history.messages) - 1)
        assert bodies(history)[-2:] == [path[-1], user("new")]
        assert history.new_messages[0].sequence_number == len(path)


async def test_store_false_reads_the_conversation_and_leaves_none(store: ConversationStore, tenant: str) -> None:
    ref = await grown(store, tenant, PATH)
    request = chat([user("q3")], conversation=ref, caller=RequestCaller(tenant))
    history = await build_llm_messages(request, store, RebuildOptions(remembers=False))
    assert bodies(history) == [*PATH, user("q3")]
    assert history.conversation_id is None


def told(history: ConversationHistory) -> list[Json]:
    """The system messages of a history, in the order in which they are forwarded."""
    inside = (*history.older_kept, *history.messages)
    return [*history.instructions, *(message.body for message in inside if message.role in INSTRUCTION_ROLES)]


def without_steps(path: list[Json]) -> list[Json]:
    return [body for body in path if body["role"] != "tool" and not body.get("tool_calls")]


def changed(path: list[Json], role: str, text: str) -> list[Json]:
    return [{**body, "content": text.format(body["content"])} if body["role"] == role else body for body in path]


SENT: dict[str, Callable[[list[Json]], list[Json]]] = {
    "a delta": lambda path: [user("new")],
    "a delta with system messages of its own": lambda path: [system("other"), user("new")],
    "a resend": lambda path: [*path, user("new")],
    "a resend without steps": lambda path: [*without_steps(path), user("new")],
    "a resend in other white space": lambda path: [*changed(path, "user", " {}\n"), user("new")],
    "a resend with other notes": lambda path: [*changed(path, "system", "other {}"), user("new")],
    "a resend without notes": lambda path: [*(body for body in path if body["role"] != "system"), user("new")],
    "an edited end": lambda path: [*path[:-2], user("edited")],
    "a run": lambda path: [*path[-2:], user("new")],
    "a run with a system message": lambda path: [system("other"), *path[-2:], user("new")],
}
notes = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=3, max_size=6)


@FEW
@given(turns=notes, name=st.sampled_from(list(SENT)), named=st.booleans())
async def test_s11_12_how_much_is_read_makes_no_difference_to_system_messages(
    store: ConversationStore, tenant: str, turns: list[tuple[bool, ...]], name: str, named: bool
) -> None:
    """§11.12: wherever they stand in the conversation, whatever of it is sent, and whichever way it is known again."""
    path: list[Json] = []
    for number, (before, steps, behind) in enumerate(turns):
        path += [user(f"{tenant} {new_id('q')}"), *([system(f"note {number}")] if before else ())]
        path += [assistant(None, f"c{number}"), tool(f"c{number}", "result")] if steps else []
        path += [*([system(f"rule {number}")] if behind else ()), assistant("x" * 250)]
    path += [user("last"), assistant("end")]
    ref = await grown(store, tenant, path)
    asked, sent = ref if named else ConversationRef(), SENT[name](path)
    whole, part = [await rebuild(store, tenant, asked, sent, budget_tokens=each) for each in (None, 1)]
    assert told(part) == told(whole)
    if named and name in ("a delta", "a run"):  # nothing was sent that could replace them
        assert part.unread
        assert told(part) == [body for body in path if body["role"] == "system"]
