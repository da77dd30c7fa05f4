"""The Conversations API through the official SDK, on both storages: conversations as such (guarantee §3, §7, §8)."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.conversations import Conversation

from tests.support.answers import Json, bill_of, conversation_of, exact, extra, refusal, usage_of, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

pytestmark = pytest.mark.in_turn("resends")

PATHS = {
    "/conversations": ("PUT", "PATCH", "DELETE"),
    "/conversations/conv_1": ("PUT", "PATCH"),
    "/conversations/conv_1/items": ("PUT", "PATCH"),
    "/conversations/conv_1/items/msg_1": ("PUT", "PATCH"),
}

PATHS_OF_APIS: dict[str, Callable[[list[Json]], Json]] = {
    "chat/completions": lambda said: {"messages": said},
    "responses": lambda said: {"input": said},
    "messages": lambda said: {"messages": said, "max_tokens": 50},
}


@pytest.fixture
def client(gateway: GatewayProcess, make_client: ClientFactory, request: pytest.FixtureRequest) -> OpenAI:
    """A client of a tenant of its own: lists show nothing of other tests."""
    return make_client(gateway, api_key=f"sk-{request.node.name.encode().hex()[:80]}")


@pytest.mark.parametrize("api", PATHS_OF_APIS)
@pytest.mark.parametrize("resends", [True, False])
def test_s3_12_an_emptied_conversation_goes_on(
    gateway: GatewayProcess, upstream: MockUpstream, api: str, *, resends: bool
) -> None:
    """§3.12, §10: under its id and its session, by all three APIs, with nothing of what was said; a client that does
    not name it and sends everything again begins another, as after a deletion."""
    with gateway.http(f"sk-emptied-{api}-{resends}") as client:
        begun = {"model": "gpt-4o", "messages": [user("The heliotrope is in bloom.")], "context": {"session": "s"}}
        first = client.post("/chat/completions", json=begun).json()
        named = first["conversation"]["id"]
        path = f"/conversations/{named}"
        assert client.delete(f"{path}/items").json()["session"] == "s"
        assert client.get(f"/chat/completions/{first['id']}").json()["choices"] == []
        said = [user("Hi")]
        if resends:
            said = [*begun["messages"], {"role": "assistant", "content": "x" * 300}, *said]
        body: Json = {"model": "gpt-4o", "context": {"session": "s"}} | PATHS_OF_APIS[api](said)
        answer = client.post(f"/{api}", json=body)
        assert answer.headers["x-conversation-id"] == named
        assert upstream.requests[-1].body["messages"] == said
        assert client.get(f"{path}").json()["totals"]["requests"] == 2
        assert len(client.get(f"{path}/items").json()["data"]) == len(said) + 1
        text = first["choices"][0]["message"]
        unnamed = {"model": "gpt-4o", "messages": [*begun["messages"], text, user("And?")]}
        other = client.post("/chat/completions", json=unnamed).json()
        assert (other["conversation"]["id"] == named) == resends  # it has the question again, where that was sent again


def test_s3_a_conversation_is_made_read_changed_and_deleted(client: OpenAI) -> None:
    """§3: `create`, `retrieve`, `update` (metadata is replaced as a whole), `delete`; afterwards 404."""
    before = int(time.time())
    made = client.conversations.create(metadata={"topic": "rivers", "ünï": 'a"b'})
    assert isinstance(made, Conversation)
    assert made.object == "conversation"
    assert before <= made.created_at <= time.time()
    assert made.metadata == {"topic": "rivers", "ünï": 'a"b'}
    found = client.conversations.retrieve(made.id)
    assert found.model_dump(exclude={"totals", "turns"}) == made.model_dump()
    changed = client.conversations.update(made.id, metadata={"other": "lakes"})
    assert (changed.id, changed.metadata, changed.created_at) == (made.id, {"other": "lakes"}, made.created_at)
    assert client.conversations.update(made.id, metadata=None).metadata == {}
    deleted = client.conversations.delete(made.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (made.id, "conversation.deleted", True)
    for gone in (client.conversations.retrieve, client.conversations.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            gone(made.id)
        assert (caught.value.code, caught.value.param) == ("conversation_not_found", "conversation_id")


@pytest.mark.parametrize("storage", ["named", "new"])
def test_s3_a_conversation_that_is_deleted_during_its_first_answer_is_not_stored(
    gateway: GatewayProcess, upstream: MockUpstream, storage: str
) -> None:
    """§6: the answer comes whole, and its bill stays, without content."""
    goes_on = threading.Event()
    upstream.reply(text="The heliotrope turns to the sun.", stall_after=2, stall_until=goes_on)
    session = {"context": {"session": "brief"}} if storage == "named" else {}
    body = {"model": "gpt-4o", "messages": [user("What turns?")], "stream": True, **session}
    with gateway.http(f"sk-deleted-at-first-{storage}") as raw:
        with raw.stream("POST", "/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            named, first = answer.headers["x-conversation-id"], json.loads(next(lines).removeprefix("data: "))
            assert raw.delete(f"/conversations/{named}").json()["deleted"] is True
            goes_on.set()
            assert "sun" in "".join(lines)
        for gone in (raw.get(f"/conversations/{named}"), raw.delete(f"/conversations/{named}")):
            assert gone.status_code == 404
        assert raw.get("/conversations", params={"session": "brief"}).json()["data"] == []
        kept = raw.get(f"/chat/completions/{first['id']}").json()
        assert (kept["choices"], kept["response_metadata"]["usage"]["completion_tokens"]) == ([], 6)


def test_s3_5_answers_name_their_conversation_in_a_header(gateway: GatewayProcess) -> None:
    made = gateway.post("/conversations", json={})
    assert made.headers["x-conversation-id"] == made.json()["id"]
    assert gateway.get(f"/conversations/{made.json()['id']}").headers["x-conversation-id"] == made.json()["id"]
    assert gateway.post("/conversations").status_code == 200  # no body at all


def listed(client: OpenAI, **query: Any) -> list[str]:
    """The ids of a list of conversations over all its pages, two at a time."""
    found: list[str] = []
    while True:
        page: Any = client.get("/conversations", cast_to=object, options={"params": {"limit": 2, **query}})
        ids = [each["id"] for each in page["data"]]
        assert (page["object"], page["first_id"], page["last_id"]) == (
            "list",
            ids[0] if ids else None,
            ids[-1] if ids else None,
        )
        found += ids
        if not page["has_more"]:
            return found
        query["after"] = page["last_id"]


def test_s3_conversations_are_listed_with_filters(client: OpenAI) -> None:
    """§3: newest first unless asked otherwise; by metadata, by session, by times; each exactly once over the pages."""
    made = [client.conversations.create(metadata={"number": str(n), "even": str(n % 2 == 0)}) for n in range(5)]
    ids = [each.id for each in made]
    assert listed(client) == ids[::-1]
    assert listed(client, order="asc") == ids
    assert listed(client, **{"metadata[even]": "True"}) == [ids[4], ids[2], ids[0]]
    assert listed(client, **{"metadata[even]": "True", "metadata[number]": "2"}) == [ids[2]]
    assert listed(client, **{"metadata[even]": "true"}) == []
    first, last = made[0].created_at, made[-1].created_at
    assert listed(client, created_after=first - 1, created_before=last + 1) == ids[::-1]
    assert listed(client, created_after=last) == []
    assert listed(client, created_before=first) == []
    assert listed(client, updated_after=last + 1000) == []
    assert listed(client, updated_after=first - 1, updated_before=last + 1000) == ids[::-1]
    ask: Any = {"model": "gpt-4o", "messages": [user("hello")], "extra_body": {"context": {"session": "my notes"}}}
    named = conversation_of(client.chat.completions.create(**ask))
    assert listed(client, session="my notes") == [named]
    assert listed(client, session="nobody's") == []
    assert extra(client.conversations.retrieve(named), "session") == "my notes"
    assert extra(client.conversations.retrieve(ids[0]), "session") is None


PAGE = {"limit=0": "limit", "limit=101": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=%C2%B2": "limit"}
PAGE |= {"limit=": "limit", "order=up": "order", "after=": "after"}
METADATA = {"&".join(f"metadata[{n}]=x" for n in range(17)): "metadata"}
TIMES = {"created_after=yesterday": "created_after", "created_before=-1": "created_before"}
TIMES |= {"updated_after=99999999999999": "updated_after", "updated_before=253402300799": "updated_before"}
LISTS = {
    "conversations": METADATA | TIMES | {"session=": "session", "session=%00": "session"},
    "conversations/{}/items": {},
    "chat/completions": METADATA | {"conversation=": "conversation", "model=": "model"},
}


@pytest.mark.parametrize("path", LISTS)
def test_s7_a_wrong_parameter_of_a_list_is_named(one_gateway: GatewayProcess, path: str) -> None:
    """§7: bad input is a 400 that names the field."""
    conversation = one_gateway.post("/conversations", json={}).json()["id"]
    for query, param in (PAGE | LISTS[path]).items():
        found = one_gateway.get(f"/{path.format(conversation)}?{query}")
        assert refusal(found) == (400, "invalid_value", param), query


def test_s7_a_list_begins_behind_one_that_exists(gateway: GatewayProcess) -> None:
    for after in ("conv_none", "x", "%00", "conv_%00"):
        assert refusal(gateway.get(f"/conversations?after={after}")) == (404, "conversation_not_found", "after")


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_s3_a_client_deletes_what_it_lists(gateway: GatewayProcess, order: str) -> None:
    """The next page begins behind a conversation that is deleted by then."""
    with gateway.http(f"sk-deletes-{order}") as raw:
        for _ in range(5):
            conversation = raw.post("/conversations", json={}).json()["id"]
            raw.post(f"/conversations/{conversation}/items", json={"items": [user("hello")]})
        left: list[str] = []
        query: dict[str, Any] = {"limit": 2, "order": order}
        expected = [each["id"] for each in raw.get("/conversations", params={"order": order}).json()["data"]]
        while True:
            page = raw.get("/conversations", params=query).json()
            for each in page["data"]:
                assert raw.delete(f"/conversations/{each['id']}").status_code == 200
                left.append(each["id"])
            if not page["has_more"]:
                break
            query["after"] = page["last_id"]
        assert left == expected
    assert refusal(gateway.get(f"/conversations?after={left[0]}", key="sk-other")) == (
        404,
        "conversation_not_found",
        "after",
    )


BAD: list[tuple[Any, str]] = [
    ({"metadata": "x"}, "metadata"),
    ({"metadata": []}, "metadata"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"metadata": {"a": None}}, "metadata"),
    ({"metadata": {"a" * 65: "x"}}, "metadata"),
    ({"metadata": {"a": "x" * 513}}, "metadata"),
    ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
    ({"items": {}}, "items"),
    ({"items": [{"role": "user", "content": "x"}] * 21}, "items"),
    ({"metdata": {}}, "metdata"),
]


@pytest.mark.parametrize(("body", "param"), BAD)
def test_s7_what_breaks_a_rule_is_named_and_nothing_is_stored(
    gateway: GatewayProcess, request: pytest.FixtureRequest, body: Any, param: str
) -> None:
    """§7: a 400 that names the field, and no conversation."""
    with gateway.http(f"sk-{request.node.name.encode().hex()[-60:]}") as raw:
        assert refusal(raw.post("/conversations", json=body)) == (400, "invalid_value", param)
        assert raw.get("/conversations").json()["data"] == []


def test_s7_metadata_up_to_the_limits_is_kept(client: OpenAI) -> None:
    metadata = {f"{n:064}": "ü" * 512 for n in range(16)}
    assert client.conversations.create(metadata=metadata).metadata == metadata


def test_s7_an_update_needs_metadata(one_gateway: GatewayProcess) -> None:
    made = one_gateway.post("/conversations", json={}).json()["id"]
    missing = (400, "missing_required_parameter", "metadata")
    assert refusal(one_gateway.post(f"/conversations/{made}", json={})) == missing
    assert refusal(one_gateway.post(f"/conversations/{made}", json={"metadata": 1})) == (
        400,
        "invalid_value",
        "metadata",
    )
    assert refusal(one_gateway.post(f"/conversations/{made}", content=b"{"))[:2] == (400, "invalid_json")
    assert refusal(one_gateway.post(f"/conversations/{made}", content=b"[]"))[:2] == (400, "invalid_json")


def test_s7_other_methods_and_paths_are_not_relayed(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§1, §7: what begins with `/v1/conversations/` is the gateway's own: 404 or 405, and nothing goes up."""
    for path, methods in PATHS.items():
        for method in methods:
            assert refusal(one_gateway.request(method, path))[:2] == (405, "method_not_allowed"), (method, path)
    for path in ("/conversations/conv_1/what", "/conversations/conv_1/items/msg_1/more"):
        assert refusal(one_gateway.get(path))[:2] == (404, "not_found")
    assert not upstream.requests


def test_s8_anonymous_callers_list_by_session(one_gateway: GatewayProcess) -> None:
    """§8: without keys configured everyone without one is one tenant, so a session must be named."""
    with httpx.Client(base_url=one_gateway.base_url, trust_env=False) as anonymous:
        assert refusal(anonymous.get("/conversations")) == (400, "invalid_value", "session")
        assert anonymous.get("/conversations?session=mine").json()["data"] == []


def test_s6_what_a_conversation_took_so_far(gateway: GatewayProcess, client: OpenAI, upstream: MockUpstream) -> None:
    """Turns, tokens and cost, together and by turn: all steps of a tool loop are one, and lists have none of it."""
    tool: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    upstream.reply(tool_calls=[call], usage=usage_of(10, 2))
    first = client.chat.completions.create(model="small", messages=[user("Look.")], tools=tool)
    same: Json = {"conversation": conversation_of(first)}
    result: Any = {"role": "tool", "tool_call_id": "call_1", "content": "a lamp"}
    upstream.reply(text="A lamp.", usage=usage_of(20, 3))
    second = client.chat.completions.create(model="small", messages=[result], tools=tool, extra_body=same)
    upstream.reply(text="Yes.", usage=usage_of(40, 5))
    third = client.chat.completions.create(model="small", messages=[user("Sure?")], extra_body=same)
    costs = [exact(json.dumps(bill_of(each)["cost"]))["total_cost"] for each in (first, second, third)]
    told = exact(gateway.get(f"/conversations/{conversation_of(first)}", key=client.api_key).text)
    (listed,) = gateway.get("/conversations", key=client.api_key).json()["data"]
    assert (told["totals"]["turns"], told["totals"]["requests"]) == (2, 3)
    assert told["totals"]["usage"] == {"prompt_tokens": 70, "completion_tokens": 10, "total_tokens": 80}
    assert told["totals"]["cost"]["total_cost"] == sum(costs) > 0
    assert told["totals"]["cost"]["priced"] is True
    assert [turn["number"] for turn in told["turns"]] == [1, 2]
    assert [turn["usage"]["prompt_tokens"] for turn in told["turns"]] == [30, 40]
    assert [turn["cost"]["total_cost"] for turn in told["turns"]] == [costs[0] + costs[1], costs[2]]
    assert told["turns"][0]["request_ids"] == [bill_of(each)["request_id"] for each in (first, second)]
    assert "totals" not in listed


def test_s6_a_price_that_is_not_known_makes_no_sum(client: OpenAI, gateway: GatewayProcess) -> None:
    """Neither 0 nor the sum of the rest."""
    first = client.chat.completions.create(model="small", messages=[user("One.")])
    client.chat.completions.create(
        model="bench", messages=[user("Two.")], extra_body={"conversation": conversation_of(first)}
    )
    told = gateway.get(f"/conversations/{conversation_of(first)}", key=client.api_key).json()
    assert told["totals"]["cost"]["total_cost"] is None
    assert told["totals"]["cost"]["priced"] is False
    assert [turn["cost"]["priced"] for turn in told["turns"]] == [True, False]
