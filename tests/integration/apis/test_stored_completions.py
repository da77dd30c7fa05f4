"""Stored completions read again, through the official SDK, on both storages (guarantee §6)."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from tests.support.answers import bill_of, conversation_of, extra, ok, usage_of, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ALICE, BOB, CAROL = "sk-gateway-alice", "sk-gateway-bob", "sk-gateway-carol"
ODD = {"a,b": 'x"y', "team": "blue", "ünï": "ö"}


class Shop:
    """Seven requests of Alice's, one after the other, and one of Bob's."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream) -> None:
        self.gateway = gateway
        self.alice = self._client(ALICE)
        self.bob = self._client(BOB)
        create: Any = self.alice.chat.completions.create
        ask: Any = [user("hello")]
        kept = {"model": "small", "messages": ask}
        self.first: ChatCompletion = create(**kept, metadata={"team": "red", "run": "1"})
        same = {"conversation": conversation_of(self.first)}
        chunks = list(create(**kept, stream=True, metadata={"team": "blue"}, extra_body=same))
        self.streamed = chunks[0].id
        upstream.reply(status=500)
        with pytest.raises(openai.InternalServerError) as failed:
            create(**kept, extra_body=same)
        self.failed = failed.value.response.headers["x-request-id"]
        self.big: ChatCompletion = create(model="gpt-4o", messages=ask, metadata=ODD)
        self.unstored: ChatCompletion = create(**kept, store=False, metadata={"team": "red"})
        upstream.reply(text="one two three", cut_after=3)
        stream = create(**kept, stream=True, metadata={"team": "green"})
        self.partial = next(stream).id
        with pytest.raises(openai.APIError):
            list(stream)
        self.last: ChatCompletion = create(**kept, metadata={"team": "red", "run": "2"})
        self.bobs: Any = self.bob.chat.completions.create(model="small", messages=ask, metadata={"team": "red"})

    def _client(self, key: str) -> OpenAI:
        return OpenAI(base_url=self.gateway.base_url, api_key=key, max_retries=0, timeout=30)

    def close(self) -> None:
        self.alice.close()
        self.bob.close()

    def ids(self, **query: Any) -> list[str]:
        """The ids of all that Alice gets, over all pages."""
        return [each.id for each in self.alice.chat.completions.list(**query)]


@pytest.fixture(scope="module")
def module_shop(
    module_start_gateway: GatewayFactory, module_upstream: MockUpstream, module_storage_url: str
) -> Iterator[Shop]:
    tenants = {"alice": ALICE, "bob": BOB, "carol": CAROL}
    keys = [{"key": key, "tenant": tenant} for tenant, key in tenants.items()]
    gateway = module_start_gateway({"auth": {"keys": keys}, "storage": {"url": module_storage_url}})
    made = Shop(gateway, module_upstream)
    yield made
    made.close()


@pytest.fixture
def shop(module_shop: Shop, upstream: MockUpstream) -> Shop:
    """The shop after its requests."""
    return module_shop


def test_s6_one_by_id(shop: Shop) -> None:
    """`retrieve` gives the answer with the same bill; by the request's id too; streams, failed and not stored ones."""
    retrieve = shop.alice.chat.completions.retrieve
    for name in (shop.first.id, bill_of(shop.first)["request_id"]):
        found = retrieve(name)
        assert found.choices[0].message.content == shop.first.choices[0].message.content
        assert bill_of(found) == bill_of(shop.first)
        assert extra(found, "metadata") == {"team": "red", "run": "1"}
    assert retrieve(shop.streamed).choices[0].finish_reason == "stop"
    assert (extra(retrieve(shop.failed), "status"), retrieve(shop.failed).choices) == ("failed", [])
    assert extra(retrieve(shop.partial), "status") == "partial"
    bare = retrieve(shop.unstored.id)
    assert (bare.choices, bill_of(bare)) == ([], bill_of(shop.unstored))
    assert "metadata" not in (bare.model_extra or {})


def test_s6_all_of_a_tenant_and_of_a_conversation(shop: Shop) -> None:
    """Whatever was billed is listed, oldest first; a conversation's alone where it is named."""
    listed = list(shop.alice.chat.completions.list())
    assert [each.id for each in listed[:2]] == [shop.first.id, shop.streamed]
    assert [extra(each, "status") for each in listed] == ["complete", "complete", "failed"] + ["complete"] * 2 + [
        "partial",
        "complete",
    ]
    assert [each.id for each in listed[3:]] == [shop.big.id, shop.unstored.id, shop.partial, shop.last.id]
    query = {"conversation": conversation_of(shop.first)}
    assert shop.ids(extra_query=query) == [each.id for each in listed[:3]]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_s6_pages(shop: Shop, order: Any, limit: int) -> None:
    """`limit`, `after`, `order`: every one once whatever the page's size, and `has_more` is true to the last page."""
    expected = shop.ids()
    page = shop.alice.chat.completions.list(limit=limit, order=order)
    sizes, found = [], []
    while True:
        sizes.append(len(page.data))
        found += [each.id for each in page.data]
        assert page.has_more is (len(found) < 7)
        if not page.has_next_page():
            break
        page = page.get_next_page()
    assert found == (expected if order == "asc" else expected[::-1])
    assert all(size == limit for size in sizes[:-1])
    assert shop.ids(after=bill_of(shop.last)["request_id"]) == []


def test_s6_twenty_at_once_unless_asked(shop: Shop, upstream: MockUpstream) -> None:
    """OpenAI's default."""
    for _ in range(21):
        upstream.reply(text="x", usage=usage_of(1, 1))
        assert shop.gateway.post(
            "/chat/completions", json={"model": "small", "messages": [user("hi")]}, key=CAROL
        ).is_success
    first = shop.gateway.get("/chat/completions", key=CAROL).json()
    assert (len(first["data"]), first["has_more"]) == (20, True)
    assert first["last_id"] == first["data"][-1]["id"]
    rest = shop.gateway.get("/chat/completions", params={"after": first["last_id"]}, key=CAROL).json()
    assert (len(rest["data"]), rest["has_more"], rest["first_id"]) == (1, False, rest["data"][0]["id"])


def test_s6_filters(shop: Shop) -> None:
    """`model` and `metadata[…]`: all of them must hold, exactly."""
    assert shop.ids(model="gpt-4o") == [shop.big.id]
    assert shop.ids(metadata={"team": "red"}) == [shop.first.id, shop.last.id]
    assert shop.ids(metadata={"team": "red", "run": "2"}) == [shop.last.id]
    assert shop.ids(metadata={"team": "green"}) == [shop.partial]
    assert shop.ids(metadata={"team": "blue"}, model="gpt-4o") == [shop.big.id]
    assert shop.ids(metadata={"team": "RED"}) == shop.ids(metadata={"tea": "m"}) == []
    for pair in ({name: value} for name, value in ODD.items() if name != "team"):
        assert shop.ids(metadata=pair) == [shop.big.id]
    assert shop.ids(metadata={'y","team': "blue"}) == shop.ids(metadata={"b": 'x"y'}) == []
    query = {"conversation": conversation_of(shop.first)}
    assert shop.ids(metadata={"team": "blue"}, extra_query=query) == [shop.streamed]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_s6_a_client_deletes_what_it_lists(shop: Shop, order: Any) -> None:
    """The next page begins behind a completion that is deleted by then, by whichever id."""
    with OpenAI(base_url=shop.gateway.base_url, api_key=CAROL, max_retries=0, timeout=30) as carol:
        ask: Any = [user("hello")]
        asked: Any = {"model": "small", "messages": ask, "metadata": {"gone": order}}
        made = [carol.chat.completions.create(**asked).id for _ in range(5)]
        listed = carol.chat.completions.list(limit=2, order=order, metadata={"gone": order})
        gone = [carol.chat.completions.delete(each.id).id for each in listed]
        assert gone == (made if order == "asc" else made[::-1])
        last = "resp_" + gone[-1].removeprefix("chatcmpl-")
        assert not carol.chat.completions.list(after=last, order=order, metadata={"gone": order}).data
        with pytest.raises(openai.NotFoundError):
            shop.bob.chat.completions.list(after=gone[0])


@pytest.mark.parametrize(
    "query", ["model=%00", "metadata[%00]=%00", "metadata[a]=%FF%27%22", "metadata[team]=", "metadata[]=x", "unknown=1"]
)
def test_s7_odd_parameters_are_harmless(shop: Shop, query: str) -> None:
    """NUL, quotes and bytes that are no text find nothing; what is not known is not asked for."""
    answer = ok(shop.gateway.get(f"/chat/completions?{query}", key=ALICE))
    assert len(answer["data"]) == (7 if query == "unknown=1" else 0)


def test_s8_nobody_lists_what_is_anonymous(own_key_gateway: GatewayProcess) -> None:
    """Without a key everyone is one tenant: a conversation must be named, and its id cannot be guessed."""
    made = own_key_gateway.post(
        "/chat/completions", json={"model": "small", "messages": [user("hello")]}, key=None
    ).json()
    refused = own_key_gateway.get("/chat/completions", key=None)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "conversation")
    listed = own_key_gateway.get(
        "/chat/completions", params={"conversation": made["conversation"]["id"]}, key=None
    ).json()
    assert [each["id"] for each in listed["data"]] == [made["id"]]


@pytest.fixture
def kept(shop: Shop, upstream: MockUpstream) -> ChatCompletion:
    """A stored completion behind a system message, a tool step and a message of parts."""
    call: Any = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        user("Look."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a lamp"},
        {"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "text", "text": "Now?"}]},
    ]
    upstream.reply(text="A lamp.")
    made: ChatCompletion = shop.alice.chat.completions.create(model="small", messages=messages, metadata={"a": "1"})
    return made


def test_s6_metadata_is_replaced(shop: Shop, kept: ChatCompletion) -> None:
    """`update`: as a whole; it is what lists filter by; the bill stays as it was."""
    api = shop.alice.chat.completions
    changed = api.update(kept.id, metadata={"b": "2"})
    assert extra(changed, "metadata") == {"b": "2"}
    assert bill_of(changed) == bill_of(api.retrieve(kept.id))
    assert changed.choices[0].message.content == "A lamp."
    assert shop.ids(metadata={"b": "2"}) == [kept.id]
    assert shop.ids(metadata={"a": "1"}) == []
    assert extra(api.update(kept.id, metadata=None), "metadata") == {}


def test_s6_the_messages_that_it_answers(shop: Shop, kept: ChatCompletion) -> None:
    """`messages.list`: in their order, over pages, tool steps included, without the answer."""
    found = list(shop.alice.chat.completions.messages.list(kept.id, limit=2))
    assert [each.role for each in found] == ["system", "user", "assistant", "tool", "user"]
    assert [each.content for each in found[:2]] == ["Be brief.", "Look."]
    assert found[2].tool_calls is not None
    assert found[2].tool_calls[0].id == "call_1"
    assert found[4].content == "And?\nNow?"
    assert [getattr(part, "text", "") for part in found[4].content_parts or []] == ["And?", "Now?"]
    assert len({each.id for each in found}) == 5
    newest = list(shop.alice.chat.completions.messages.list(kept.id, order="desc"))
    assert [each.id for each in newest] == [each.id for each in found[::-1]]
    assert list(shop.alice.chat.completions.messages.list(kept.id, after=found[3].id)) == found[4:]


def test_s6_a_deleted_completion_leaves_its_bill(shop: Shop, kept: ChatCompletion) -> None:
    """`delete`: it is in no list and has no content; the bill is found by the request's id, and the conversation goes
    on."""
    api = shop.alice.chat.completions
    bill = bill_of(kept)
    assert api.delete(kept.id).deleted is True
    for gone in (api.retrieve, api.delete, lambda name: list(api.messages.list(name))):
        with pytest.raises(openai.NotFoundError) as unknown:
            gone(kept.id)
        assert unknown.value.code == "completion_not_found"
    assert kept.id not in shop.ids()
    found = api.retrieve(bill["request_id"])
    assert (found.choices, bill_of(found)["cost"]) == ([], bill["cost"])
    items = shop.alice.conversations.items.list(conversation_of(kept))
    assert any("A lamp." in str(item) for item in items)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": "x"}, "metadata"),
        ({"model": "x"}, "model"),
    ],
)
def test_s7_a_bad_update_names_its_field(shop: Shop, body: Any, param: str) -> None:
    answer = shop.gateway.post(f"/chat/completions/{shop.first.id}", json=body, key=ALICE)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_s6_what_was_not_stored_can_be_neither_changed_nor_deleted(shop: Shop) -> None:
    """Its bill stays."""
    api = shop.alice.chat.completions
    for name in (shop.unstored.id, shop.failed):
        with pytest.raises(openai.NotFoundError):
            api.update(name, metadata={})
        with pytest.raises(openai.NotFoundError):
            api.delete(name)
        assert api.retrieve(name).choices == []
