"""Traces of requests, as a collector receives them (guarantee §13.5)."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import user, wait_for_bill
from tests.support.documents import lamps
from tests.support.factory import ClientFactory, GatewayFactory, default_config
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.otlp import CLIENT, INTERNAL, SERVER, SOON, Collector, Span, tree
from tests.support.process import PATIENCE, wait_until

ROOT = "POST /v1/chat/completions"
ASK: dict[str, Any] = {"model": "small", "messages": [user("count for me")]}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def module_collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture
def collector(module_collector: Collector) -> Collector:
    module_collector.clear()
    return module_collector


@pytest.fixture(scope="module")
def module_traced(module_start_gateway: GatewayFactory, module_collector: Collector) -> GatewayProcess:
    telemetry = {"otlp_endpoint": module_collector.url, "service_name": "shop", "metrics": False}
    patience = {"planner_timeout": PATIENCE, "summarizer_timeout": PATIENCE}
    return module_start_gateway({"telemetry": telemetry, "context": {"planning": "auto", **patience}}, SOON)


@pytest.fixture
def traced(module_traced: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway that exports its traces."""
    return module_traced


def post(gateway: GatewayProcess, body: Any, path: str = "/chat/completions", **headers: str) -> httpx.Response:
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=PATIENCE) as client:
        return client.post(path, json=body, headers={"authorization": "Bearer sk-test", **headers})


def named(spans: list[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


def parent_of(headers: dict[str, str]) -> tuple[str, str, str]:
    """Trace, span and flags of a `traceparent`."""
    _, trace_id, span_id, flags = headers["traceparent"].split("-")
    return trace_id, span_id, flags


def test_s13_5_a_plain_chat(traced: GatewayProcess, upstream: MockUpstream, collector: Collector) -> None:
    answer = post(traced, {**ASK, "temperature": 0.5, "max_tokens": 20, "user": "u-7"})
    spans = collector.trace(answer.headers["x-request-id"], least=4)
    assert tree(spans) == {ROOT: {"rebuild": {}, "chat small": {}, "commit": {}}}
    assert [span.kind for span in spans] == [SERVER, INTERNAL, CLIENT, INTERNAL]
    assert not any(span.failed or span.events for span in spans)
    assert spans[0].resource["service.name"] == "shop"
    bill = answer.json()["response_metadata"]
    server, call = spans[0].attributes, spans[2].attributes
    assert server["http.request.method"] == "POST"
    assert server["http.route"] == "/v1/chat/completions"
    assert server["http.response.status_code"] == 200
    assert server["gateway.context.strategy"] == "passthrough"
    assert server["gateway.context.planning_reason"] == "no_artifacts"
    assert server["gateway.context.tokens_used"] == bill["context_utilization"]["tokens_used"]
    assert server["gateway.cost.total"] == bill["cost"]["total_cost"]
    for each in (server, call):
        assert each["gen_ai.conversation.id"] == each["session.id"] == bill["conversation_id"]
        assert each["user.id"] == "u-7"
    assert {name: call[name] for name in call if name.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 20,
        "gen_ai.response.id": bill["upstream_id"],
        "gen_ai.response.model": "small",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.conversation.id": bill["conversation_id"],
        "gen_ai.usage.input_tokens": bill["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": bill["usage"]["completion_tokens"],
        "gen_ai.usage.cost": bill["cost"]["total_cost"],
    }
    assert call["server.address"] == "127.0.0.1"
    assert call["server.port"] == int(upstream.url.rpartition(":")[2])


def test_s13_5_a_planned_request(traced: GatewayProcess, upstream: MockUpstream, collector: Collector) -> None:
    """The calls of planner and summarizer are spans of their own, with what they are for."""
    upstream.handler = InternalModels(every("summarize", summarization_focus="whole"))
    document = {"title": "Lamps", "content": lamps(60)}
    asked = {"model": "small", "messages": [user("Who is the keeper of lamp 41?")], "attachments": [document]}
    answer = post(traced, asked)
    spans = collector.trace(answer.headers["x-request-id"], least=8)
    internal: dict[str, Any] = {"chat gpt-4o-mini": {}, "chat gpt-4o-mini #2": {}}
    steps = {"rebuild": {}, "fit": {}, "plan": internal, "fit #2": {}, "chat small": {}, "commit": {}}
    assert tree(spans) == {ROOT: steps}
    purposes = [span.attributes["gateway.purpose"] for span in spans if span.kind == CLIENT]
    assert purposes == ["planner", "summarizer", "primary"]
    server, bill = spans[0].attributes, answer.json()["response_metadata"]
    assert server["gateway.context.planned"] is True
    assert server["gateway.context.planning_reason"] == "near_limit"
    assert server["gateway.context.artifacts.summarize"] == 1
    assert server["gateway.cost.planning"] == bill["cost"]["planning_cost"] > 0
    for record in upstream.chats:
        assert parent_of(record.headers)[0] == spans[0].trace_id
    planner = next(span for span in spans if span.attributes.get("gateway.purpose") == "planner")
    assert parent_of(upstream.chats[0].headers)[1] == planner.span_id


def test_s13_5_a_stream(traced: GatewayProcess, upstream: MockUpstream, collector: Collector) -> None:
    """The call's span ends with the stream, and knows what only its last chunks told."""
    upstream.reply(text="one two three four", chunk_delay=0.05)
    answer = post(traced, {**ASK, "stream": True})
    assert answer.text.endswith("data: [DONE]\n\n")
    spans = collector.trace(answer.headers["x-request-id"], least=4)
    assert tree(spans) == {ROOT: {"rebuild": {}, "chat small": {}, "commit": {}}}
    call, commit = named(spans, "chat small"), named(spans, "commit")
    assert call.attributes["gen_ai.request.stream"] is True
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert call.attributes["gen_ai.usage.output_tokens"] == 4
    assert call.attributes["gen_ai.usage.cost"] > 0
    assert 0 < call.attributes["gen_ai.response.time_to_first_chunk"] < (call.ended - call.began) / 1e9
    assert call.ended <= commit.began < commit.ended <= spans[0].ended


def test_s13_5_an_abandoned_stream(
    traced: GatewayProcess, upstream: MockUpstream, collector: Collector, make_client: ClientFactory
) -> None:
    """Its spans end when the client leaves, and tell the bill that is made behind its back."""
    upstream.reply(text="one two three four five", stall_after=4)
    stream = make_client(traced).chat.completions.create(**ASK, stream=True)
    seen = [next(stream) for _ in range(4)]
    stream.close()
    assert upstream.last.disconnected.wait(PATIENCE)
    bill = wait_for_bill(traced, seen[0].id)["response_metadata"]
    spans = collector.trace(bill["request_id"], least=4)
    server, call = spans[0], named(spans, "chat small")
    assert (call.failed, call.attributes["error.type"]) == (True, "cancelled")
    assert (server.failed, server.attributes["error.type"]) == (False, "client_disconnected")
    assert server.attributes["gateway.status"] == "partial"
    assert call.attributes["gen_ai.usage.output_tokens"] == 3
    costs = call.attributes["gen_ai.usage.cost"], server.attributes["gateway.cost.total"]
    assert set(costs) == {float(bill["cost"]["total_cost"])}


def test_s13_5_a_fault_of_the_upstream(traced: GatewayProcess, upstream: MockUpstream, collector: Collector) -> None:
    """The span has the kind of error, and not its words."""
    upstream.reply(status=500, json={"error": {"message": "the words of the fault", "type": "x", "code": "odd"}})
    answer = post(traced, ASK)
    assert answer.status_code == 500
    spans = collector.trace(answer.headers["x-request-id"], least=4)
    call = named(spans, "chat small")
    assert (call.failed, call.attributes["error.type"]) == (True, "500")
    assert (spans[0].failed, spans[0].attributes["http.response.status_code"]) == (True, 500)
    assert spans[0].attributes["gateway.status"] == "failed"
    assert not any(b"the words of the fault" in body for body in collector.raw)


def test_s13_5_a_refused_request(traced: GatewayProcess, collector: Collector) -> None:
    """What a client did wrong is no fault of the server's."""
    post(traced, {"model": "no-such-model", "messages": ASK["messages"]})
    span = collector.one(lambda each: each.attributes.get("error.type") == "model_not_found")
    assert (span.name, span.failed, span.attributes["http.response.status_code"]) == (ROOT, False, 404)


def test_s13_5_a_relayed_call(traced: GatewayProcess, upstream: MockUpstream, collector: Collector) -> None:
    sent = f"00-{TRACE}-{PARENT}-01"
    answer = post(traced, {"model": "gpt-4o-mini", "input": "hello"}, "/embeddings", traceparent=sent, tracestate="a=1")
    assert answer.status_code == 200
    server = collector.one(lambda span: span.kind == SERVER)
    call = collector.one(lambda span: span.kind == CLIENT)
    assert (server.name, call.name) == ("POST /v1/embeddings", "embeddings gpt-4o-mini")
    assert (server.trace_id, server.parent_id, call.parent_id) == (TRACE, PARENT, server.span_id)
    assert call.attributes["gen_ai.operation.name"] == "embeddings"
    assert call.attributes["http.response.status_code"] == 200
    (relayed,) = [record for record in upstream.requests if record.path.endswith("/embeddings")]
    assert parent_of(relayed.headers) == (TRACE, call.span_id, "01")
    assert relayed.headers["tracestate"] == "a=1"


def test_s13_5_the_call_of_an_embedder(
    start_gateway: GatewayFactory, upstream: MockUpstream, collector: Collector
) -> None:
    """It ranks passages, and is part of the request's trace."""
    params = {"model": "openai/embedder", "api_base": upstream.base_url, "api_key": "sk-embed"}
    models = [*default_config(upstream, "")["model_list"], {"model_name": "embed", "litellm_params": params}]
    context = {"embedding_model": "embed", "embedding_timeout": PATIENCE}
    telemetry = {"otlp_endpoint": collector.url, "metrics": False}
    gateway = start_gateway({"context": context, "model_list": models, "telemetry": telemetry}, SOON)
    asked = {"model": "small", "messages": [user("Who is the keeper of lamp 41?")]}
    answer = post(gateway, {**asked, "attachments": [{"title": "Lamps", "content": lamps(300)}]})
    root = collector.trace(answer.headers["x-request-id"])[0]

    def sent() -> set[str]:
        asked = [parent_of(each.headers) for each in upstream.requests if each.path == "/v1/embeddings"]
        return {span_id for trace_id, span_id, _ in asked if trace_id == root.trace_id}

    def calls() -> list[Span]:
        return [span for span in list(collector.spans) if span.name == "embeddings embedder"]

    wait_until(lambda: bool(sent()) and sent() <= {call.span_id for call in calls()}, "a span for each call")
    assert {call.attributes["gateway.purpose"] for call in calls()} == {"embedder"}
    assert {call.attributes["gen_ai.operation.name"] for call in calls()} == {"embeddings"}


def test_s13_5_the_callers_trace_goes_on(traced: GatewayProcess, upstream: MockUpstream, collector: Collector) -> None:
    """In as the parent of the request, out as the parent of what the upstream does; also on the log's line."""
    answer = post(traced, ASK, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="vendor=x")
    spans = collector.trace(answer.headers["x-request-id"], least=4)
    assert (spans[0].trace_id, spans[0].parent_id) == (TRACE, PARENT)
    assert parent_of(upstream.last.headers) == (TRACE, named(spans, "chat small").span_id, "01")
    assert upstream.last.headers["tracestate"] == "vendor=x"
    line = traced.logged(answer.headers["x-request-id"])
    assert (line["trace_id"], line["span_id"]) == (TRACE, spans[0].span_id)


def test_s13_5_a_mangled_traceparent_is_as_none(traced: GatewayProcess, collector: Collector) -> None:
    answer = post(traced, ASK, traceparent="00-zz--01", tracestate="=,=;")
    assert answer.status_code == 200
    spans = collector.trace(answer.headers["x-request-id"], least=4)
    assert spans[0].parent_id == ""


def test_s13_5_health_is_not_traced(traced: GatewayProcess, collector: Collector) -> None:
    for path in ("/health/live", "/health/ready", "/metrics"):
        httpx.get(traced.url + path, trust_env=False)
    answer = post(traced, ASK)
    collector.trace(answer.headers["x-request-id"], least=4)
    assert {span.name for span in collector.spans if span.kind == SERVER} == {ROOT}


def test_s13_5_requests_at_once_have_spans_of_their_own(
    traced: GatewayProcess, upstream: MockUpstream, collector: Collector
) -> None:
    """No step of one stands below another."""
    upstream.handler = InternalModels(every("include_full"))
    found: list[str] = []
    bodies = [ASK, {**ASK, "stream": True}] * 4
    threads = [
        threading.Thread(target=lambda body=body: found.append(post(traced, body).headers["x-request-id"]))
        for body in bodies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(found) == len(bodies)
    for request_id in found:
        assert tree(collector.trace(request_id, least=4)) == {ROOT: {"rebuild": {}, "chat small": {}, "commit": {}}}
