"""Conversations continue without a name, by the digest of their chain: §3.2 clause by clause, on both storages."""

import itertools
from typing import Any

import pytest

from tests.support.answers import Json, assistant, read_stream, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.matched import LONG, TOOLS, call
from tests.support.mock_upstream import MockUpstream
from tests.support.tool_loop import result

_numbers = itertools.count()


class Client:
    """Sends chats, each answered as scripted; `forwarded` is what went up last, `id` the conversation named last."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, key: str) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.key = key
        self.id: str | None = None

    def ask(self, *messages: Json, reply: str | Json = "ok", **body: Any) -> str | None:
        """The id of the conversation that the answer belongs to."""
        said = assistant(reply) if isinstance(reply, str) else reply
        if not body.get("n"):
            self.upstream.reply(message=said)
        sent = {"model": "gpt-4o", "messages": list(messages), "tools": TOOLS, **body}
        answer = self.gateway.post("/chat/completions", json=sent, key=self.key)
        assert answer.status_code == 200, answer.text
        self.id = answer.json().get("conversation", {}).get("id")
        assert answer.headers.get("x-conversation-id") == self.id
        return self.id

    def delete(self, conversation: str | None) -> None:
        assert self.gateway.delete(f"/conversations/{conversation}", key=self.key).status_code == 200

    @property
    def forwarded(self) -> list[Json]:
        """What went up last."""
        return self.upstream.forwarded

    @property
    def text(self) -> str:
        """All of it in one."""
        return str(self.forwarded)


@pytest.fixture
def client(gateway: GatewayProcess, upstream: MockUpstream) -> Client:
    """A tenant of the test's own, so that no other test said the same before."""
    return Client(gateway, upstream, f"sk-own-{next(_numbers)}")


def test_s3_2_the_ordinary_loop(client: Client) -> None:
    """§3.2: the SDK loop that resends everything is one conversation, named in body and header; nothing is doubled."""
    said: list[Json] = []
    found = set()
    for number in range(4):
        said.append(user(f"question {number}"))
        found.add(client.ask(*said, reply=f"answer {number}"))
        assert client.forwarded == said
        said.append(assistant(f"answer {number}"))
    assert len(found) == 1
    client.ask(user("last"), conversation=client.id)
    assert client.forwarded == [*said, user("last")]


def test_s3_2_only_what_was_said_before_is_known(client: Client) -> None:
    """§3.2: without an answer in it there is nothing to look up; another answer or question is another chain."""
    first = client.ask(user("hello"), reply="hi")
    assert client.ask(user("hello"), reply="hello to you") != first
    assert client.ask(user("hello"), assistant("something else"), user("more")) != first
    assert client.ask(user("good day"), assistant("hi"), user("more")) != first
    assert client.ask(user("before"), user("hello"), assistant("hi"), user("more")) != first
    assert client.ask(user("hello"), assistant("hi"), user("more")) == first


ONE_TWO = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]


@pytest.mark.parametrize("once", [[assistant("One."), assistant("Two.")], [{"role": "assistant", "content": ONE_TWO}]])
def test_s3_2_texts_of_one_answer_joined(client: Client, once: list[Json]) -> None:
    """SDKs that know one text of an answer alone join its messages or parts with an empty line."""
    again = assistant("One.\n\nTwo.")
    first = client.ask(user("count"), *once, user("more"), reply="Three.")
    sent = [user("count"), again, user("more"), assistant("Three."), user("and?")]
    assert client.ask(*sent, reply="Four.") == first
    assert client.forwarded == sent
    assert client.ask(*sent, assistant("Four."), user("on")) == first
    assert client.ask(user("count"), assistant("One. Two."), user("more"), assistant("Three."), user("so?")) != first


@pytest.mark.parametrize("joined", ["One.Two.", "One.\n\nTwo.", ONE_TWO])
def test_s3_2_texts_of_one_answer_joined_where_steps_were_left_out(client: Client, joined: Any) -> None:
    """The step comes back, and all that was said stays."""
    told = [user("count"), assistant("One."), assistant("Two."), user("look")]
    first = client.ask(*told, reply=call("c1"))
    step = [call("c1"), result("c1", "seen")]
    assert client.ask(*told, *step, reply=LONG) == first
    sent = [told[0], {"role": "assistant", "content": joined}, told[3], assistant(LONG), user("so?")]
    assert client.ask(*sent) == first
    assert client.forwarded == [*told, *step, *sent[-2:]]


def test_s3_2_system_messages_are_no_part_of_it(client: Client) -> None:
    """§3.2: changed, added, dropped and moved system and developer messages; those sent are forwarded, and no other."""
    system, developer = {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be long."}
    chain = [user("hello"), assistant("hi")]
    first = client.ask(system, chain[0], reply="hi")
    for head in ([], [developer], [system, developer], [{**system, "content": "It is 12:01."}]):
        assert client.ask(*head, *chain, user("more")) == first
        assert client.forwarded == [*head, *chain, user("more")]
    assert client.ask(chain[0], system, chain[1], user("more")) == first


def test_s3_2_ids_of_calls_decide_between_several(client: Client) -> None:
    """§3.2: two loops that began with the same words are told apart by their `tool_call_id`s; of those with equal ids
    the latest goes on."""
    one, two, _ = (client.ask(user("hello"), reply=call(each)) for each in ("t1", "t2", "call_0"))
    four = client.ask(user("hello"), reply=call("call_0"))
    assert client.ask(user("hello"), call("t2"), result("t2", "x")) == two
    assert client.ask(user("hello"), call("t1"), result("t1", "x")) == one
    assert client.ask(user("hello"), call("call_0"), result("call_0", "x")) == four


def test_s3_2_two_that_share_the_chain(client: Client) -> None:
    """§3.2: two people may have said the same, and both gone on: a new conversation; from then on it is known by what
    it says."""
    chain = [user("hello"), assistant("hi")]
    both = []
    for word in ("tea", "coffee"):
        both.append(client.ask(chain[0], reply="hi"))
        assert client.ask(*chain, user(word), reply="yes") == both[-1]
    third = client.ask(*chain, user("more"), reply="of what?")
    assert third not in both
    assert client.forwarded == [*chain, user("more")]
    assert client.ask(*chain, user("more"), assistant("of what?"), user("tea")) == third


def test_s3_2_the_same_twice_in_one_conversation_is_one_match(client: Client) -> None:
    """§3.2: an answer made anew that says the same again is still that conversation."""
    first = client.ask(user("a"), reply="b")
    chain = [user("a"), assistant("b"), user("hello")]
    assert client.ask(*chain, reply="hi") == client.ask(*chain, reply="hi") == first
    assert client.ask(*chain, assistant("hi"), user("more")) == first


def test_s3_2_store_false_leaves_its_digest(client: Client) -> None:
    """§3.2: what was answered with `store: false` is no conversation, but makes the same words doubtful where all else
    is not equal."""
    chain = [user("hello"), assistant("hi"), user("more")]
    assert client.ask(user("hello"), reply="hi", store=False) is None
    first = client.ask(user("hello"), reply="hi", attachments=[{"content": "the secret paper"}])
    assert client.ask(*chain) not in (None, first)
    assert client.ask(user("as was"), reply="hi", store=False) is None
    equal = client.ask(user("as was"), reply="hi")
    assert client.ask(user("as was"), assistant("hi"), user("more")) == equal
    assert client.ask(user("only here"), reply="hi", store=False) is None
    assert client.ask(user("only here"), assistant("hi"), user("more")) is not None


def test_s3_2_deleted_conversations_leave_their_digests(client: Client) -> None:
    """§3.2: after deletion, too: alone it begins anew, beside a living one that is not equal it makes doubtful."""
    chain = [user("hello"), assistant("hi"), user("more")]
    gone = client.ask(user("hello"), reply="hi", attachments=[{"content": "the secret paper"}])
    client.delete(gone)
    second = client.ask(user("hello"), reply="hi")
    assert client.ask(*chain) not in (gone, second)
    client.delete(client.ask(user("as was"), reply="hi"))
    equal = client.ask(user("as was"), reply="hi")
    assert client.ask(user("as was"), assistant("hi"), user("more")) == equal
    alone = client.ask(user("alone"), reply="hi")
    client.delete(alone)
    assert client.ask(user("alone"), assistant("hi"), user("more")) != alone


def test_s3_2_each_choice_leaves_its_digest(client: Client) -> None:
    """§3.2, §3.4: whichever of `n` answers the client goes on with, it is that conversation and that answer."""
    client.upstream.reply(choices=[{"message": assistant(text)} for text in ("left", "middle", "right")])
    first = client.ask(user("hello"), n=3)
    for text in ("right", "left", "middle"):
        assert client.ask(user("hello"), assistant(text), user(f"more {text}")) == first
        assert client.forwarded == [user("hello"), assistant(text), user(f"more {text}")]


def test_s3_2_of_a_partial_turn_what_was_delivered(client: Client) -> None:
    """§3.2: a client that goes on after a broken stream is known by the text that it got."""
    client.upstream.reply(text="one two three", cut_after=3)
    answer = client.gateway.post(
        "/chat/completions", json={"model": "gpt-4o", "messages": [user("count")], "stream": True}, key=client.key
    )
    partial = answer.headers["x-conversation-id"]
    assert client.ask(user("count"), assistant("one two"), user("go on")) == partial
    assert client.ask(user("count"), assistant("one two three"), user("go on")) != partial


def test_s3_2_streams_leave_digests_too(client: Client) -> None:
    """§3.2, §3.5: a stream's chain is known as well."""
    client.upstream.reply(text="hi there")
    wire = read_stream(client.gateway, {"model": "gpt-4o", "messages": [user(client.key)]})
    plain = Client(client.gateway, client.upstream, "sk-test")
    known = wire.chunks[0]["conversation"]["id"]
    assert plain.ask(user(client.key), assistant("hi there"), user("more")) == known


def told(client: Client, answer: str, *, calls: str = "t1") -> list[Json]:
    """A turn with a tool step, by a loop that resends all; what its client sends again when it drops the step."""
    steps = [call(calls), result(calls, "the secret")]
    client.ask(user("hello"), reply=steps[0])
    client.ask(user("hello"), *steps, reply=answer)
    return [user("hello"), assistant(answer), user("more")]


@pytest.mark.parametrize(("chars", "restored"), [(199, False), (200, True)])
def test_s3_2_restored_from_200_characters_on(client: Client, chars: int, restored: bool) -> None:
    """§3.2: below, the conversation continues and exactly what was sent is forwarded; outer white space is no text."""
    chain = told(client, "x" * chars)
    first = client.id
    spaced = [chain[0], assistant("x" * chars + "   "), chain[2]]
    assert client.ask(*spaced) == first
    assert ("the secret" in client.text) == restored
    assert client.forwarded == spaced if not restored else len(client.forwarded) == 5


def test_s3_2_the_200_characters_of_several_answers(client: Client) -> None:
    """§3.2: at least 200 characters of assistant text in the chain, of however many answers; a user's are none."""
    chain = told(client, "x" * 100)
    client.ask(*chain[:2], user("u" * 300), reply="y" * 99)
    chain = [*chain[:2], user("u" * 300), assistant("y" * 99)]
    client.ask(*chain, user("more"), reply="z")
    assert "the secret" not in client.text
    client.ask(*chain, user("more"), assistant("z"), user("still more"))
    assert "the secret" in client.text


def test_s3_2_restored_by_the_id_of_a_call(client: Client) -> None:
    """§3.2: a `tool_call_id` of that conversation in the chain brings back the other steps."""
    told(client, "short")
    second = [user("hello"), assistant("short"), user("more")]
    first = client.ask(*second, reply=call("t2"))
    assert "the secret" not in client.text
    assert client.ask(*second, call("t2"), result("t2", "two"), reply="done") == first
    assert client.forwarded == [
        *[user("hello"), call("t1"), result("t1", "the secret"), assistant("short"), user("more")],
        *[call("t2"), result("t2", "two")],
    ]


def test_s3_2_what_a_branch_once_restored_stays_restored(client: Client) -> None:
    """§3.2: once a step came back, it does so in the next turns of that branch, without an id or 200 characters."""
    test_s3_2_restored_by_the_id_of_a_call(client)
    chain = [user("hello"), assistant("short"), user("more"), assistant("done")]
    client.ask(*chain, user("next"), reply="yes")
    assert "the secret" in client.text
    client.ask(*chain, user("next"), assistant("yes"), user("and next"))
    assert "the secret" in client.text
    client.ask(*chain[:2], user("another way"))
    assert "the secret" not in client.text, "that is another branch"


def test_s3_2_what_was_not_left_out_was_not_restored(client: Client) -> None:
    """§3.2: a loop that resends all its steps restores nothing, so a short chain without ids brings nothing back."""
    chain = told(client, "short")
    client.ask(*chain)
    assert client.forwarded == chain


def test_s3_2_reasoning_comes_back_on_the_same_terms(client: Client) -> None:
    """§1, §3.2: reasoning is what the client did not send, too: not before the chain shows that it was there."""
    short = {**assistant("short"), "reasoning_content": "the secret thought"}
    client.ask(user("hello"), reply=short)
    client.ask(user("hello"), assistant("short"), user("more"), reply=LONG)
    assert "secret thought" not in client.text
    client.ask(user("hello"), assistant("short"), user("more"), assistant(LONG), user("next"))
    assert client.forwarded[1] == short


def test_s3_2_attachments_of_the_matched_chain_alone(client: Client) -> None:
    """§3.2: an attachment comes back for its own branch, and not for another."""
    first = client.ask(user("hello"), reply=LONG)
    chain = [user("hello"), assistant(LONG)]
    document = [{"title": "paper", "content": "the secret paper"}]
    assert client.ask(*chain, user("read this"), reply="read", attachments=document) == first
    assert client.ask(*chain, user("another way"), reply="went") == first
    assert "secret paper" not in client.text
    client.ask(*chain, user("another way"), assistant("went"), user("more"))
    assert "secret paper" not in client.text
    client.ask(*chain, user("read this"), assistant("read"), user("what does it say?"))
    assert "secret paper" in client.text


def test_s3_2_prefilled_answers(client: Client) -> None:
    """§3.4: stored is prefill plus completion, and either form matches on resend."""
    first = client.ask(user("hello"), assistant("It is"), reply=" so.")
    for form in ([assistant("It is so.")], [assistant("It is"), assistant(" so.")]):
        assert client.ask(user("hello"), *form, user("more")) == first


@pytest.mark.parametrize("content", [None, "the papers."])
@pytest.mark.parametrize("apart", [False, True])
def test_s3_4_a_prefill_before_tool_calls(client: Client, content: str | None, apart: bool) -> None:
    """§3.4: stored is prefill plus completion, also where that calls a tool; either form matches on resend."""
    first = client.ask(user("hello"), assistant("I look at "), reply=call("t1", content=content))
    whole = call("t1", content="I look at " + (content or ""))
    sent = [assistant("I look at "), call("t1", content=content)] if apart else [whole]
    assert client.ask(user("hello"), *sent, result("t1", "one"), reply="done") == first
    assert client.forwarded == [user("hello"), whole, result("t1", "one")]
    assert client.ask(user("hello"), *sent, result("t1", "one"), assistant("done"), user("more")) == first
    assert client.forwarded == [user("hello"), whole, result("t1", "one"), assistant("done"), user("more")]
    client.ask(user("hello"), assistant("done"), user("other"))
    assert client.forwarded == [user("hello"), assistant("done"), user("other")], "nothing had been restored"
    client.ask(user("other way"), conversation=first)
    assert len(client.forwarded) == 7, "hello, calls, result, done, other, its answer, and this: each stored once"


def test_s3_1_an_edited_question_branches(client: Client) -> None:
    """§3.4: an edit is a branch from the last shared message, of the same conversation if an answer comes before it."""
    first = client.ask(user("hello"), reply="hi")
    chain = [user("hello"), assistant("hi")]
    assert client.ask(*chain, user("tea?"), reply="yes") == first
    assert client.ask(*chain, user("coffee?"), reply="no") == first
    assert client.ask(*chain, user("tea?"), assistant("yes"), user("thanks")) == first
    assert client.ask(*chain, user("coffee?"), assistant("no"), user("pity")) == first
    assert client.forwarded == [*chain, user("coffee?"), assistant("no"), user("pity")]


@pytest.fixture(scope="module")
def matching(module_start_gateway: GatewayFactory, module_storage_url: str) -> dict[str, GatewayProcess]:
    """Gateways with another `conversation.match`, on the same storage."""
    config = {"storage": {"url": module_storage_url}}
    return {how: module_start_gateway({**config, "conversation": {"match": how}}) for how in ("user", "off")}


@pytest.mark.parametrize("how", ["user", "off"])
def test_s3_2_conversation_match(
    client: Client, matching: dict[str, GatewayProcess], upstream: MockUpstream, how: str
) -> None:
    """§3.2: `conversation.match`: `user` needs the field, `off` matches nothing; by id it goes on as ever."""
    client = Client(matching[how], upstream, client.key)
    chain = [user("hello"), assistant("hi"), user("more")]
    first = client.ask(user("hello"), reply="hi")
    assert client.ask(*chain) != first
    assert client.ask(*chain, conversation=first) == first
    anns = client.ask(user("hello"), reply="hi", user="ann")
    assert (client.ask(*chain, user="ann") == anns) == (how == "user")
