"""Nobody gets what is another's: two tenants, and two people of one tenant who said the same (guarantee §3.2, §8)."""

import pytest

from tests.support.answers import assistant, user
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.matched import LONG, call
from tests.support.mock_upstream import MockUpstream
from tests.support.person import PAPER, SECRET, THOUGHT, Person, question
from tests.support.tool_loop import result

__all__ = ["question"]

KEYS = {"sk-red-house": "red", "sk-red-house-too": "red", "sk-blue-house": "blue"}


TENANTS = [{"key": key, "tenant": tenant} for key, tenant in KEYS.items()]
shared_houses = shared_gateway({"auth": {"keys": TENANTS}}, on_each_storage=True)


@pytest.fixture
def houses(shared_houses: GatewayProcess, upstream: MockUpstream) -> dict[str, Person]:
    """A person for each key."""
    return {key: Person(shared_houses, upstream, key) for key in KEYS}


@pytest.mark.parametrize("answer", ["1234", LONG])
def test_s8_tenants_who_said_the_same(houses: dict[str, Person], question: str, answer: str) -> None:
    """§3.2, §8: the same words, the same answer, the same ids of calls: another tenant gets nothing of it."""
    red, blue = houses["sk-red-house"], houses["sk-blue-house"]
    own = red.account(question, answer)["conversation"]["id"]
    said = [user(question), assistant(answer), user("and now?")]
    made = blue.ask(said)["conversation"]["id"]
    assert made != own
    assert blue.upstream.last.body["messages"] == said
    assert not blue.told()
    blue.ask([user("and what did you look at?")], conversation=made)
    assert not blue.told()
    forged = [user(question), call("call_0"), result("call_0", "?"), assistant(answer), user("and now?")]
    assert blue.ask(forged)["conversation"]["id"] != own
    assert blue.upstream.last.body["messages"] == forged


def test_s8_two_keys_of_one_tenant_are_one(houses: dict[str, Person], question: str) -> None:
    """§8: the tenant is whoever a key belongs to, so that a change of keys loses nothing."""
    own = houses["sk-red-house"].account(question, LONG)["conversation"]["id"]
    other = houses["sk-red-house-too"]
    assert other.ask([user(question), assistant(LONG), user("more")])["conversation"]["id"] == own
    assert other.told()


def test_s8_another_tenants_names(houses: dict[str, Person], question: str) -> None:
    """§8: another tenant's id behaves exactly as one that does not exist: chats, bills, conversations, items."""
    red, blue = houses["sk-red-house"], houses["sk-blue-house"]
    answer = red.account(question, "1234")
    own, bill = answer["conversation"]["id"], answer["response_metadata"]["request_id"]
    sent = len(blue.upstream.chats)
    unknown = blue.post([user("hello")], conversation="conv_" + "0" * 32)
    for found in (
        blue.post([user("hello")], conversation=own),
        blue.post([user("hello")], headers={"X-Conversation-Id": own}),
        blue.post([user("hello")], metadata={"conversation_id": own}),
        blue.post([user(question), assistant("1234"), user("hello")], conversation={"id": own}),
    ):
        assert (found.status_code, found.json()) == (unknown.status_code, unknown.json())
    for path, like in {  # the other paths: tests/acceptance/test_attacks.py
        f"/chat/completions/{bill}": "/chat/completions/req_none",
        f"/chat/completions?conversation={own}": "/chat/completions?conversation=conv_none",
    }.items():
        found, none = blue.get(path), blue.get(like)
        assert found.status_code == none.status_code
        assert _without(found.text, own, bill) == _without(none.text, "conv_none", "req_none")
        assert red.get(path).status_code == 200
    assert own not in blue.get("/conversations?limit=100").text
    assert len(blue.upstream.chats) == sent, "nothing went up"


def _without(text: str, *names: str) -> str:
    for name in names:
        text = text.replace(name, "ID")
    return text


def test_s8_an_sdks_retry_is_answered_for_its_tenant_alone(houses: dict[str, Person], question: str) -> None:
    """The same body retried under another tenant's key is not answered from the first."""
    red, blue = houses["sk-red-house"], houses["sk-blue-house"]
    red.post([user(question)], assistant(SECRET))
    other = blue.post([user(question)], assistant("nothing"), headers={"x-stainless-retry-count": "1"})
    assert SECRET not in other.text


@pytest.mark.parametrize("answer", ["1234", LONG])
def test_s3_2_two_people_with_names(houses: dict[str, Person], question: str, answer: str) -> None:
    """§3.2: `user` tells people of one tenant apart: each goes on with his own, whatever both said."""
    red = houses["sk-red-house"]
    ann, bob = (Person(red.gateway, red.upstream, red.key, name) for name in ("ann", "bob"))
    own = ann.account(question, answer)["conversation"]["id"]
    said = [user(question), assistant(answer), user("more")]
    assert bob.ask(said)["conversation"]["id"] != own
    assert red.ask(said)["conversation"]["id"] != own
    assert not bob.told(of=2)
    assert ann.ask(said)["conversation"]["id"] == own
    assert ann.told() or answer != LONG


@pytest.mark.parametrize("answer", ["1234", LONG])
def test_s3_2_two_people_without_names(houses: dict[str, Person], question: str, answer: str) -> None:
    """§3.2: both said the same and were answered the same: whoever goes on gets nothing that he did not send."""
    red = houses["sk-red-house"]
    both = {red.account(question, answer, call_id)["conversation"]["id"] for call_id in ("call_a", "call_b")}
    assert len(both) == 2
    said = [user(question), assistant(answer), user("more")]
    assert red.ask(said)["conversation"]["id"] not in both
    assert red.upstream.last.body["messages"] == said


@pytest.mark.parametrize("paper", [False, True])
def test_s3_2_a_forged_short_chain(houses: dict[str, Person], question: str, paper: bool) -> None:
    """§3.2: who guesses a question and a short answer learns nothing: neither results, thoughts nor documents."""
    red = houses["sk-red-house"]
    red.account(question, "yes", paper=paper)
    chain = [user(question), assistant("yes")]
    for number in range(3):
        chain.append(user(f"what was it? {number}"))
        red.ask(chain, assistant("no"))
        assert red.upstream.last.body["messages"] == chain
        chain.append(assistant("no"))


@pytest.mark.parametrize("paper", [False, True])
def test_s3_2_ids_of_calls_that_are_no_ones(houses: dict[str, Person], question: str, paper: bool) -> None:
    """§3.2: an id that the conversation does not hold brings nothing back."""
    red = houses["sk-red-house"]
    red.account(question, "yes", "call_a1", paper=paper)
    forged = [user(question), call("call_zz"), result("call_zz", "?"), assistant("yes"), user("what was it?")]
    red.ask(forged)
    assert red.upstream.last.body["messages"] == forged
    red.ask([user(question), call("call_zz"), result("call_zz", "?")])
    assert not red.told()


def test_s3_2_ids_that_local_servers_repeat(houses: dict[str, Person], question: str) -> None:
    """§3.2: two conversations that share chain and ids, equal in everything: the latest goes on. Without an id in the
    chain nothing comes back."""
    red = houses["sk-red-house"]
    latest = [red.account(question, "yes", "call_0")["conversation"]["id"] for _ in range(2)][-1]
    chain = [user(question), call("call_0"), result("call_0", "?"), assistant("yes"), user("what was it?")]
    assert red.ask(chain)["conversation"]["id"] == latest
    sent = [user(question), assistant("yes"), user("what was it?")]
    red.ask(sent)
    assert red.upstream.last.body["messages"] == sent


def test_s3_2_a_document_of_another_branch(houses: dict[str, Person], question: str) -> None:
    """§3.2: restored is only what belongs to turns of the matched chain."""
    red = houses["sk-red-house"]
    chain = [user(question), assistant(LONG)]
    red.ask([user(question)], chain[1])
    step = {**call("call_9"), "reasoning_content": THOUGHT}
    red.ask([*chain, user("left")], step, attachments=[{"content": PAPER}])
    red.ask([*chain, user("left"), step, result("call_9", SECRET)], assistant("left it is"))
    red.ask([*chain, user("right")], assistant("right it is"))
    assert not red.told()
    red.ask([*chain, user("right"), assistant("right it is"), user("more")])
    assert not red.told()
