"""`/ui/try`: who may spend there, whose money it is, and what becomes of the key (guarantee §13.10)."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.support.factory import ClientFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.sse import chunks_of

KEYS = [
    {"key": "sk-both-of-acme", "tenant": "acme", "name": "both", "roles": ["user", "viewer"]},
    {"key": "sk-looks-at-acme", "tenant": "acme", "name": "looks", "roles": ["viewer"]},
    {"key": "sk-sees-all-1234", "tenant": "ops", "name": "all", "roles": ["admin"]},
    {"key": "sk-of-the-others", "tenant": "others", "roles": ["user"]},
    {"key": "sk-asks-small-alone", "tenant": "acme", "roles": ["user", "viewer"], "models": ["small"]},
]
STREAM = {"accept": "text/event-stream"}


keyed_gateway = shared_gateway({"auth": {"keys": KEYS}})
"""A gateway with keys of several roles, on SQLite."""


Visits = Callable[..., "Visitor"]


@pytest.fixture
def visit() -> Iterator[Visits]:
    """Opens the page of a gateway: `visit(gateway, key)`; with a key it logs in."""
    with ExitStack() as ends:

        def opened(gateway: GatewayProcess, key: str | None = None) -> Visitor:
            client = httpx.Client(base_url=gateway.url, trust_env=False, timeout=30)
            return Visitor(ends.enter_context(client), key)

        yield opened


class Visitor:
    """A browser without a script, as far as this page needs one: cookies, and the token of the form."""

    def __init__(self, client: httpx.Client, key: str | None) -> None:
        self.client = client
        if key is not None:
            shown = self.client.get("/ui/login").text
            self.client.post("/ui/login", data={"csrf": token_of(shown), "key": key})
            assert self.client.get("/ui/try").status_code == 200

    def ask(self, headers: dict[str, str] | None = None, files: Any = (), **fields: Any) -> httpx.Response:
        """Sends the form with these fields."""
        csrf = token_of(self.client.get("/ui/try").text)
        sent = {"csrf": csrf, "model": "gpt-4o", "message": "Name a river.", **fields}
        parts = [(name, (None, value)) for name, value in sent.items()]
        return self.client.post("/ui/try", files=[*parts, *files], headers=headers)


def token_of(shown: str) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', shown)
    return found[1] if found else ""


def named(answer: httpx.Response, kind: str) -> str:
    """The id of the request or conversation that a bill on a page leads to."""
    found = re.search(rf'href="/ui/{kind}/(\w+)"', answer.text)
    assert found, answer.text
    return found[1]


def test_s13_10_asks_as_any_client_without_a_key_does(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Where no keys are configured: the same tenant, the same conversation by its id."""
    answer = visit(one_gateway).ask(files=[("files", ("notes.txt", b"Rivers are wet.", "text/plain"))])
    assert answer.status_code == 200
    request, conversation = named(answer, "requests"), named(answer, "conversations")
    stored = one_gateway.get(f"/chat/completions/{request}", key=None).json()
    assert stored["response_metadata"]["conversation_id"] == conversation
    assert "Rivers are wet." in str(upstream.last.body)
    again = visit(one_gateway).ask(conversation=conversation, message="And another?")
    assert named(again, "conversations") == conversation
    assert "Name a river." in str(upstream.last.body)


def test_s13_10_a_stream_ends_with_the_bill_of_any_other_answer(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    upstream.reply(text="The Rhine, and others.")
    answer = visit(one_gateway).ask(STREAM)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *deltas, last = chunks_of(answer.content)
    assert "".join(each["delta"] for each in deltas) == "The Rhine, and others."
    rows = {row["label"]: row for row in last["bill"]}
    assert rows["Request"]["text"] == answer.headers["x-request-id"]
    assert "forwarded unchanged" in rows["Strategy"]["text"], "in words, as on the request's own page"
    assert rows["Conversation"]["href"] == f"/ui/conversations/{last['conversation']}"
    stored = one_gateway.get(f"/chat/completions/{rows['Request']['text']}", key=None).json()
    assert float(rows["Cost"]["text"].removeprefix("$")) == stored["response_metadata"]["cost"]["total_cost"]


@pytest.mark.parametrize("headers", [{}, STREAM])
def test_s13_18_what_is_refused_here_is_listed_and_its_link_leads_there(
    visit: Visits, keyed_gateway: GatewayProcess, upstream: MockUpstream, headers: dict[str, str]
) -> None:
    """As requests of the API are; one whose model was asked has its own page."""
    visitor = visit(keyed_gateway, "sk-both-of-acme")

    def leads_to(**fields: str) -> tuple[str, str]:
        answer = visitor.ask(headers, **fields)
        assert answer.status_code >= 400
        name = answer.headers["x-request-id"]
        if not headers:
            assert f'href="/ui/search?q={name}"' in answer.text
        return name, visitor.client.get("/ui/search", params={"q": name}).headers["location"]

    for fields in ({"model": "nobody"}, {"temperature": "hot"}, {"api": "none"}):
        name, location = leads_to(**fields)
        assert location == f"/ui/refused#{name}"
        assert name in visitor.client.get("/ui/refused").text
    upstream.reply(status=400, json={"error": {"message": "no", "type": "invalid_request_error"}})
    name, location = leads_to()
    assert location == f"/ui/requests/{name}"
    assert name not in visitor.client.get("/ui/refused").text


@pytest.mark.parametrize("headers", [{}, STREAM])
def test_s13_10_nothing_is_asked_by_a_form_of_somebody_elses(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream, headers: dict[str, str]
) -> None:
    visitor = visit(one_gateway)
    assert visitor.ask(headers, csrf="0" * 64).status_code == 403
    assert visitor.ask(headers | {"origin": "http://elsewhere.example"}).status_code == 403
    assert visitor.ask(headers | {"sec-fetch-site": "cross-site"}).status_code == 403
    assert not upstream.chats


@pytest.mark.parametrize("key", ["sk-looks-at-acme", "sk-sees-all-1234"])
def test_s13_10_who_may_look_alone_spends_nothing(
    visit: Visits, keyed_gateway: GatewayProcess, upstream: MockUpstream, key: str
) -> None:
    visitor = visit(keyed_gateway, key)
    shown = visitor.client.get("/ui/try").text
    assert "<textarea" not in shown
    csrf = token_of(shown)
    for headers in ({}, STREAM):
        parts = [(name, (None, value)) for name, value in {"csrf": csrf, "model": "gpt-4o", "message": "Hi"}.items()]
        answer = visitor.client.post("/ui/try", files=parts, headers=headers)
        assert answer.status_code == 403
        assert "no role" in answer.text
        assert "user" in answer.text
    assert not upstream.chats


def test_s13_10_only_models_that_the_key_may_ask_are_offered(visit: Visits, keyed_gateway: GatewayProcess) -> None:
    for key, expected in (("sk-asks-small-alone", {"small"}), ("sk-both-of-acme", {"small", "gpt-4o"})):
        shown = visit(keyed_gateway, key).client.get("/ui/try").text
        assert {"small", "gpt-4o"} & set(re.findall(r"<option[^>]*>([^<]+)<", shown)) == expected


def test_s13_10_nobody_is_asked_without_a_login(
    visit: Visits, keyed_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """A key that is entered, or sent, is no login."""
    answer = visit(keyed_gateway).ask({"authorization": "Bearer sk-both-of-acme"}, key="sk-both-of-acme")
    assert answer.status_code == 303
    assert not upstream.chats


def test_s13_10_it_is_billed_to_who_is_logged_in(
    visit: Visits, keyed_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Whatever key is sent beside the form: the tenant is that of the login, and so are its conversations."""
    answer = visit(keyed_gateway, "sk-both-of-acme").ask({"authorization": "Bearer sk-of-the-others"})
    request = named(answer, "requests")
    url = f"{keyed_gateway.base_url}/chat/completions/{request}"
    assert httpx.get(url, headers={"authorization": "Bearer sk-both-of-acme"}).status_code == 200
    assert httpx.get(url, headers={"authorization": "Bearer sk-of-the-others"}).status_code == 404
    theirs = make_client(keyed_gateway, "sk-of-the-others").chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": "A secret."}]
    )
    asked = len(upstream.chats)
    conversation = (theirs.model_extra or {})["conversation"]["id"]
    refused = visit(keyed_gateway, "sk-both-of-acme").ask(conversation=conversation)
    assert refused.status_code == 404
    assert len(upstream.chats) == asked


@pytest.mark.parametrize("way", ["field", "header"])
def test_s13_10_a_key_that_is_entered_goes_up_and_is_kept_nowhere(
    visit: Visits, own_key_gateway: GatewayProcess, upstream: MockUpstream, way: str
) -> None:
    """Where the gateway has no key of its own; the tenant is the key's, as for a client that sends it."""
    secret = f"sk-mine-{way}-4711"
    visitor = visit(own_key_gateway)
    assert re.search(r'name="key"[^>]*required', visitor.client.get("/ui/try").text)
    bearer = {"authorization": f"Bearer {secret}"}
    answer = visitor.ask(key=secret) if way == "field" else visitor.ask(bearer)
    assert answer.status_code == 200, answer.text
    assert upstream.last.headers["authorization"] == f"Bearer {secret}"
    assert secret not in answer.text
    assert secret not in own_key_gateway.log_text()
    url = f"{own_key_gateway.base_url}/chat/completions/{named(answer, 'requests')}"
    assert httpx.get(url, headers=bearer).status_code == 200
    assert httpx.get(url, headers={"authorization": "Bearer sk-another"}).status_code == 404


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"message": "  "}, "message is required"),
        ({"model": ""}, "model is required"),
        ({"model": "gpt-44"}, "does not exist"),
        ({"max_input_tokens": "many"}, "context.max_input_tokens"),
        ({"max_input_tokens": "0"}, "context.max_input_tokens"),
        ({"mode": "<b>fast</b>"}, "context.mode"),
        ({"context_planner": "nobody"}, "context.models.context_planner"),
        ({"conversation": "conv_unknown"}, "conversation"),
        ({"model": "m" * 2000}, "model"),
    ],
)
def test_what_is_wrong_is_named_and_nobody_is_asked(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream, fields: dict[str, Any], says: str
) -> None:
    visitor = visit(one_gateway)
    page, stream = visitor.ask(**fields), visitor.ask(STREAM, **fields)
    assert page.status_code == stream.status_code
    assert 400 <= page.status_code < 500
    assert says in page.text
    assert says in stream.json()["error"]["message"]
    assert "<b>" not in page.text
    assert not upstream.chats


def test_what_is_no_form_is_refused(visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    visitor = visit(one_gateway)
    csrf = {"x-csrf-token": token_of(visitor.client.get("/ui/try").text)}
    for content, kind in ((b"{}", "application/json"), (b"no parts", "multipart/form-data; boundary=x"), (b"", "")):
        answer = visitor.client.post("/ui/try", content=content, headers=csrf | {"content-type": kind})
        assert answer.status_code == 415
    assert not upstream.chats


def test_a_fault_of_the_upstream_is_told(visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Before the answer begins as its status; in the midst of a stream as an event, after what came."""
    visitor = visit(one_gateway)
    for headers in ({}, STREAM):
        upstream.reply(status=429)
        refused = visitor.ask(headers)
        assert refused.status_code == 429
        assert "scripted 429" in refused.text
    upstream.reply(text="It breaks off after some words.", cut_after=4)
    *deltas, last = chunks_of(visitor.ask(STREAM).content)
    assert deltas
    assert "bill" not in last
    assert last["error"]["message"]


def test_whoever_leaves_ends_the_call(visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.reply(text="The first words, and then a long silence.", stall_after=4)
    visitor = visit(one_gateway)
    form = {"csrf": token_of(visitor.client.get("/ui/try").text), "model": "gpt-4o", "message": "STALL"}
    parts = [(name, (None, value)) for name, value in form.items()]
    with visitor.client.stream("POST", "/ui/try", files=parts, headers=STREAM) as answer:
        assert next(answer.iter_text())
        request = answer.headers["x-request-id"]
    wait_until(lambda: upstream.in_flight == 0, "the end of the upstream's call")
    assert one_gateway.logged(request)["error_code"] == "client_disconnected"
    kept = f"{one_gateway.base_url}/chat/completions/{request}"
    wait_until(lambda: httpx.get(kept).status_code == 200, "the bill")
    assert httpx.get(kept).json()["response_metadata"]["cost"]["estimated"] is True


TOOLS = {
    "chat": '[{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]',
    "responses": '[{"type": "function", "name": "look_up", "parameters": {"type": "object"}}]',
    "messages": '[{"name": "look_up", "input_schema": {"type": "object"}}]',
}


@pytest.mark.parametrize("api", TOOLS)
@pytest.mark.parametrize("headers", [{}, STREAM])
def test_s13_10_each_api_is_asked_with_all_that_is_entered(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream, api: str, headers: dict[str, str]
) -> None:
    """System message, parameters, tools and settings; its calls of tools are shown, and its conversation goes on."""
    upstream.reply(text="Let me <b>look</b>.", tool_calls=[("look_up", {"place": "<i>Brennick</i>"})])
    fields = {"api": api, "system": "Be brief.", "tools": TOOLS[api], "temperature": "0.5", "max_tokens": "77"}
    fields |= {"parameters": '{"top_p": 0.25}', "memory": "extracts", "recall": "false", "cite": "false"}
    answer = visit(one_gateway).ask(headers, **fields)
    assert answer.status_code == 200, answer.text
    sent = upstream.last.body
    assert [each["role"] for each in sent["messages"]] == ["system", "user"]
    assert sent["messages"][0]["content"] == "Be brief."
    assert (sent["temperature"], sent["top_p"]) == (0.5, 0.25)
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert sent["tools"][0]["function"]["name"] == "look_up"
    if headers:
        *deltas, last = chunks_of(answer.content)
        assert "".join(each["delta"] for each in deltas) == "Let me <b>look</b>."
        (call,) = last["calls"]
        conversation = last["conversation"]
        request = last["bill"][0]["text"]
    else:
        assert "Let me &lt;b&gt;look" in answer.text
        call = answer.text
        conversation, request = named(answer, "conversations"), named(answer, "requests")
        assert "what was sent, and why" in answer.text
    assert "look_up(" in call
    assert "Brennick" in call
    assert httpx.get(f"{one_gateway.url}/ui/requests/{request}").status_code == 200
    upstream.reply(text="Done.")
    again = visit(one_gateway).ask(headers, api=api, system="Be brief.", conversation=conversation, message="Go on.")
    assert again.status_code == 200, again.text
    roles = [each["role"] for each in upstream.last.body["messages"]]
    assert roles.count("system") == 1
    assert upstream.last.body["messages"][-1]["content"] == "Go on."
    assert len(roles) > 2


@pytest.mark.parametrize("api", TOOLS)
@pytest.mark.parametrize("headers", [{}, STREAM])
def test_a_fault_tells_its_code_and_its_request(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream, api: str, headers: dict[str, str]
) -> None:
    upstream.reply(status=429)
    refused = visit(one_gateway).ask(headers, api=api)
    assert refused.status_code == 429
    assert refused.headers["x-request-id"] in refused.text or headers
    assert "scripted 429" in refused.text
    if not headers:
        return
    upstream.reply(text="It breaks off after some words.", cut_after=4)
    *deltas, last = chunks_of(visit(one_gateway).ask(STREAM, api=api).content)
    assert deltas
    assert last["error"]["message"]
    assert not any("bill" in each for each in deltas)


@pytest.mark.parametrize("api", TOOLS)
def test_a_dry_run_shows_its_bill(visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream, api: str) -> None:
    answer = visit(one_gateway).ask(api=api, parameters='{"context": {"dry_run": true}}')
    assert answer.status_code == 200, answer.text
    assert named(answer, "requests")
    assert not upstream.chats


@pytest.mark.parametrize("api", TOOLS)
def test_a_picture_goes_as_a_part_of_the_message_in_the_words_of_the_api(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream, api: str
) -> None:
    pixel = ("files", ("dot.png", b"\x89PNG\r\n\x1a\n\xff", "image/png"))
    answer = visit(one_gateway).ask(api=api, files=[pixel])
    assert answer.status_code == 200, answer.text
    text, image = upstream.last.body["messages"][-1]["content"]
    assert (text["type"], text["text"]) == ("text", "Name a river.")
    assert image["image_url"]["url"].startswith("data:image/png;base64,")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"api": "smoke"}, "api must be one of"),
        ({"parameters": "{"}, "parameters must be JSON"),
        ({"parameters": "[1]"}, "parameters must be a JSON object"),
        ({"tools": "{}"}, "tools must be a JSON list"),
        ({"temperature": "warm"}, "temperature must be a number"),
        ({"temperature": "nan"}, "temperature must be a number"),
        ({"max_tokens": "9" * 400}, "max_tokens"),
        ({"system": "s" * 1_000_001}, "system must have at most"),
        ({"economy": "<b>"}, "context.economy"),
        ({"recall": "maybe"}, "context.recall"),
    ],
)
def test_what_is_entered_wrong_is_named(
    visit: Visits, one_gateway: GatewayProcess, upstream: MockUpstream, fields: dict[str, Any], says: str
) -> None:
    answer = visit(one_gateway).ask(**fields)
    assert answer.status_code == 400
    assert says in answer.text
    assert "<b>" not in answer.text
    assert not upstream.chats
