"""§12.6, §12.7: other tries and other models, before anything of an answer has gone to the client."""

from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support import anthropic_wire
from tests.support.answers import Json, assistant, exact, system, user
from tests.support.command import gateway_command
from tests.support.documents import lamps, prompt_tokens
from tests.support.factory import SMALL_MODEL_INFO, GatewayFactory
from tests.support.failing_over import APIS, HELLO, RESTING, ask, bill_of, entry, failing, is_whole, show
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.mock_upstream import Record as Asked
from tests.support.reply import Reply

pytestmark = pytest.mark.in_turn("stream")

LIMITED, ADMIN = "sk-gateway-limited", "sk-gateway-any"


@pytest.fixture(scope="module")
def module_failing_over(
    module_start_gateway: GatewayFactory, module_upstream: MockUpstream, module_elsewhere: MockUpstream
) -> GatewayProcess:
    here, there = module_upstream.base_url, module_elsewhere.base_url
    small = entry("tiny", "tiny", here)
    small["model_info"] = dict(SMALL_MODEL_INFO)
    return module_start_gateway(
        {
            "model_list": [
                entry("twins", "twin-a", here, order=1, timeout=0.5),
                entry("twins", "twin-b", here, order=2),
                entry("lone", "lone", here),
                entry("other", "other", there),
                entry("strict", "strict", here),
                entry("open", "open", here),
                {
                    "model_name": "claude",
                    "litellm_params": {
                        "model": "anthropic/claude-sonnet-4-5",
                        "api_base": module_upstream.url,
                        "api_key": "sk-ant",
                    },
                },
                small,
            ],
            "routing": {
                **RESTING,
                "fallbacks": {"lone": ["nobody", "other"], "other": "tiny", "claude": "other", "open": "claude"},
                "context_window_fallbacks": {"tiny": "other"},
                "content_policy_fallbacks": {"strict": "other"},
            },
        }
    )


@pytest.fixture(scope="module")
def module_trying_again(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    here = module_upstream.base_url
    models = [entry("lone", "lone", here), entry("twins", "twin-a", here, order=1), entry("twins", "twin-b", here)]
    settings = {**RESTING, "retries": 2, "backoff": 0.01, "backoff_max": 1}
    return module_start_gateway({"model_list": models, "routing": settings})


@pytest.fixture
def failing_over(
    module_failing_over: GatewayProcess, upstream: MockUpstream, elsewhere: MockUpstream
) -> GatewayProcess:
    """Retries as they are by default, and models that answer for others."""
    upstream.count_prompt = elsewhere.count_prompt = prompt_tokens
    return module_failing_over


@pytest.fixture
def trying_again(module_trying_again: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """Two further tries, wherever."""
    upstream.count_prompt = prompt_tokens
    return module_trying_again


def audit(gateway: GatewayProcess) -> None:
    """Every bill so far adds up."""
    done = gateway_command("audit", "--config", str(gateway.config_path), directory=gateway.directory)
    assert done.returncode == 0, done.stdout + done.stderr


def test_s12_6_what_a_failed_try_may_have_cost_is_on_the_bill(
    failing_over: GatewayProcess, upstream: MockUpstream
) -> None:
    """The first deployment is too slow: it may charge its prompt. The other's prices are others."""
    failing(upstream, "twin-a", delay_first=2.0)
    answer = ask(failing_over, "twins")
    bill, usage = bill_of(failing_over, answer), exact(answer.text)["usage"]
    slow, quick = upstream.chats_of("twin-a")[0].body, upstream.chats_of("twin-b")[0].body
    spent = prompt_tokens(slow) * Decimal("3e-06")
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    assert prompt == prompt_tokens(quick), "the usage of who answered, alone"
    expected = spent + prompt * Decimal("7e-06") + completion * Decimal("11e-06")
    assert bill["cost"]["total_cost"] == usage["cost"] == expected
    assert bill["cost"]["estimated"] is True
    assert bill["cost"]["planning_cost"] == 0
    audit(failing_over)
    assert any("failed_try" in line for line in show(failing_over, answer))


@pytest.mark.parametrize("stream", [False, True])
def test_s12_6_the_same_deployment_is_asked_again(
    trying_again: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    """By one key, so that nobody does the work twice."""
    upstream.reply(status=429, headers={"retry-after": "0.1"})
    upstream.reply(status=503)
    answer = ask(trying_again, "lone", stream=stream)
    assert answer.status_code == 200
    keys = [asked.headers.get("idempotency-key") for asked in upstream.chats]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert keys[0]
    assert bill_of(trying_again, answer)["routing_path"] == ["lone", "openai/lone"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
def test_s12_7_another_model_answers(
    failing_over: GatewayProcess, upstream: MockUpstream, elsewhere: MockUpstream, api: str, stream: bool
) -> None:
    """One that is not served is passed over; the answer says who gave it."""
    failing(upstream, "lone", status=500)
    answer = ask(failing_over, "lone", api, stream=stream)
    assert answer.status_code == 200, answer.text
    assert is_whole(answer)
    assert answer.headers["x-gateway-model"] == "other"
    bill = bill_of(failing_over, answer)
    assert (bill["model"], bill["routing_path"]) == ("lone", ["lone", "openai/lone", "openai/other"])
    assert "answered_by_fallback" in bill["context_utilization"]["warnings"]
    assert bill["context_utilization"]["model_name"] == "other"
    assert len(elsewhere.chats) == 1


def test_s12_7_a_request_may_opt_out(failing_over: GatewayProcess, upstream: MockUpstream) -> None:
    failing(upstream, "lone", status=500)
    assert ask(failing_over, "lone", headers={"x-gateway-fallbacks": "off"}).status_code == 500
    wrong = ask(failing_over, "lone", headers={"x-gateway-fallbacks": "maybe"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "x-gateway-fallbacks")


def test_s12_7_the_context_is_built_for_who_answers(
    failing_over: GatewayProcess, upstream: MockUpstream, elsewhere: MockUpstream
) -> None:
    """`other` fails as well; `tiny` has a window of 4,096 tokens, and the document is longer."""
    failing(upstream, "lone", status=503)
    failing(elsewhere, "other", status=503)
    document = lamps(300)
    answer = ask(
        failing_over,
        "lone",
        text="Who is the keeper of lamp 233?",
        attachments=[{"title": "The lamps", "content": document}],
    )
    assert answer.status_code == 200, answer.text
    first, last = upstream.chats_of("lone")[0].body, upstream.chats_of("tiny")[0].body
    assert prompt_tokens(first) > 4096
    assert prompt_tokens(last) <= 4096 - 512
    assert "lamp 233" in str(last)
    used = bill_of(failing_over, answer)["context_utilization"]
    assert (used["model_name"], used["budget_tokens"]) == ("tiny", 4096 - 512)
    assert answer.headers["x-gateway-model"] == "tiny"
    after = ask(failing_over, "lone", text="And of lamp 234?", conversation=answer.json()["conversation"]["id"])
    assert after.status_code == 200, "the conversation goes on with what stands for the asked model"


def test_s12_7_what_cannot_be_made_to_fit_goes_to_a_larger_window(
    failing_over: GatewayProcess, upstream: MockUpstream, elsewhere: MockUpstream
) -> None:
    """By our own count before anything is asked, and where the provider says so after the refit."""
    rules = system("word " * 6000)
    answer = ask(failing_over, "tiny", text=[rules, user(HELLO)])
    assert answer.status_code == 200, answer.text
    assert (len(upstream.chats), len(elsewhere.chats)) == (0, 1)
    assert bill_of(failing_over, answer)["routing_path"] == ["tiny", "openai/other"]
    upstream.context_limit = 1
    answer = ask(failing_over, "tiny")
    assert answer.headers["x-gateway-model"] == "other"
    assert bill_of(failing_over, answer)["routing_path"] == ["tiny", "openai/tiny", "openai/other"]


def test_s12_6_a_model_that_answers_for_another_pauses_for_no_compaction(
    failing_over: GatewayProcess, elsewhere: MockUpstream
) -> None:
    """It is asked in place of one whose window the rules alone exceed: a pause would be no answer."""
    talk = [part for n in range(8) for part in (user(f"Question {n}"), assistant(lamps(20)))]
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 8000}}
    wanted: Any = {"context_management": {"edits": [{**edit, "pause_after_compaction": True}]}}
    wanted |= {"system": "word " * 6000, "headers": {"anthropic-beta": "compact-2026-01-12"}}
    answer = ask(failing_over, "tiny", "messages", [*talk, user(HELLO)], **wanted)
    assert answer.status_code == 200, answer.text
    assert len(elsewhere.chats_of("other")) == 1


def test_s12_7_what_one_provider_refuses_to_talk_about(failing_over: GatewayProcess, upstream: MockUpstream) -> None:
    error = {"error": {"message": "The content was refused.", "code": "content_policy_violation", "param": None}}
    failing(upstream, "strict", "lone", status=400, json=error)
    assert ask(failing_over, "strict").headers["x-gateway-model"] == "other"
    assert ask(failing_over, "lone").status_code == 400, "only where a model is named for that"


def test_s12_7_thoughts_stay_with_who_thought_them(
    failing_over: GatewayProcess, upstream: MockUpstream, elsewhere: MockUpstream
) -> None:
    """Stored ones and those that the client sends again; its own provider has them back as long as it answers."""
    upstream.reply(message={"content": "four", "reasoning_content": "two and two"})
    first = ask(failing_over, "lone", text="2 + 2?")
    conversation = first.json()["conversation"]["id"]
    ask(failing_over, "lone", text="more?", conversation=conversation)
    assert "two and two" in str(upstream.last.body)
    failing(upstream, "lone", status=500)
    ask(failing_over, "lone", text="and more?", conversation=conversation)
    assert "four" in str(elsewhere.last.body)
    assert "two and two" not in str(elsewhere.last.body)
    said = [user("1 + 1?"), assistant("two", reasoning_content="one and one"), user("sure?")]
    ask(failing_over, "lone", text=said)
    assert "one and one" in str(upstream.chats_of("lone")[-1].body)
    assert "two" in str(elsewhere.last.body)
    assert "one and one" not in str(elsewhere.last.body)


@pytest.mark.parametrize("stream", [False, True])
def test_s12_7_signed_thoughts_stay_behind_in_a_tool_loop(
    failing_over: GatewayProcess, elsewhere: MockUpstream, provider: MockProvider, stream: bool
) -> None:
    """Anthropic thinks and calls a tool; with the result it is overloaded, and another provider goes on."""
    tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    signed = {"type": "thinking", "thinking": "I must look", "signature": "c2lnbmVk"}
    used = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    provider.reply(anthropic_wire.message(signed, used, stop="tool_use"))
    body: Json = {"max_tokens": 2000, "thinking": thinking, "tools": tools, "stream": stream}
    said = [user("Is it there?")]
    assert ask(failing_over, "claude", "messages", said, **body).status_code == 200
    said += [assistant([signed, used]), user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "It is."}])]
    provider.fail(529, anthropic_wire.error("overloaded_error", "Overloaded"))
    answer = ask(failing_over, "claude", "messages", said, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-gateway-model"] == "other"
    assert "signature" in str(provider.last.body)
    assert "It is." in str(elsewhere.last.body)
    assert not {word for word in ("I must look", "c2lnbmVk") if word in str(elsewhere.last.body)}
    assert not elsewhere.violations


def test_s12_7_the_rounds_of_recall_begin_anew_with_who_answers(
    failing_over: GatewayProcess, upstream: MockUpstream, elsewhere: MockUpstream
) -> None:
    """The first model reads once and fails; what that cost is on the bill, beside the answer of the other."""
    upstream.reply(tool_calls=[("recall", {"question": "lamp 7"})])
    upstream.reply(status=500)
    answer = ask(failing_over, "lone", text="Who keeps lamp 7?", context={"recall": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-gateway-model"] == "other"
    assert [len(upstream.chats), len(elsewhere.chats)] == [2, 1]
    told = exact(answer.text)
    usage, bill = told["usage"], told["response_metadata"]
    assert bill["routing_path"] == ["lone", "openai/lone", "openai/other"]
    assert usage["prompt_tokens"] == prompt_tokens(elsewhere.last.body)
    own = usage["prompt_tokens"] * Decimal("13e-06") + usage["completion_tokens"] * Decimal("17e-06")
    (asked,) = [call for call in show(failing_over, answer) if "failed_try" in call]
    assert "openai/lone" in asked
    assert usage["cost"] > own
    audit(failing_over)


def test_s12_7_metrics_count_tries_and_other_models(failing_over: GatewayProcess, upstream: MockUpstream) -> None:
    failing(upstream, "twin-a", "lone", status=500)
    ask(failing_over, "twins")
    ask(failing_over, "lone")
    page = httpx.get(f"{failing_over.url}/metrics", timeout=30).text
    assert 'gateway_upstream_retries_total{reason="upstream_500"}' in page
    assert 'gateway_fallbacks_total{kind="general"}' in page


def test_s12_7_a_key_asks_no_model_that_it_does_not_name(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    keys = [{"key": LIMITED, "tenant": "a", "models": ["lone"]}, {"key": ADMIN, "tenant": "b"}]
    models = [entry("lone", "lone", upstream.base_url), entry("other", "other", upstream.base_url)]
    settings = {**RESTING, "default_fallbacks": ["other"]}
    gateway = start_gateway({"model_list": models, "routing": settings, "auth": {"keys": keys}})
    failing(upstream, "lone", status=500)
    found = [ask(gateway, "lone", headers={"authorization": f"Bearer {key}"}).status_code for key in (LIMITED, ADMIN)]
    assert found == [500, 200]


FAILURES = [
    pytest.param({"status": 500}, 1, id="500"),
    pytest.param({"status": 429, "headers": {"retry-after": "30"}}, 1, id="429"),
    pytest.param({"status": 401}, 1, id="the operator's key"),
    pytest.param({"cut_after": -1}, 2, id="cut before the first byte"),
    pytest.param({"raw_sse": b'data: {"error": {"message": "overloaded", "code": 503}}\n\n'}, 1, id="error event"),
    pytest.param({"raw_sse": b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n\n'}, 1, id="given up"),
    pytest.param({"finish_reason": "error", "text": ""}, 1, id="a finish reason"),
    pytest.param({"body": b"<html>oops</html>"}, 1, id="broken"),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("script", "asked"), FAILURES)
def test_s12_6_the_next_deployment_answers(
    failing_over: GatewayProcess, upstream: MockUpstream, api: str, stream: bool, script: Json, asked: int
) -> None:
    """A connection that was cut is tried once more by itself, as ever."""
    failing(upstream, "twin-a", **script)
    answer = ask(failing_over, "twins", api, stream=stream)
    assert answer.status_code == 200, answer.text
    assert is_whole(answer)
    assert [len(upstream.chats_of(name)) for name in ("twin-a", "twin-b")] == [asked, 1]
    bill = bill_of(failing_over, answer)
    assert (bill["model"], bill["routing_path"]) == ("twins", ["twins", "openai/twin-a", "openai/twin-b"])
    assert "idempotency-key" not in upstream.chats_of("twin-b")[0].headers
    assert "x-gateway-model" not in answer.headers


@pytest.mark.parametrize("api", APIS)
def test_s12_7_a_provider_of_another_api_answers(
    failing_over: GatewayProcess, upstream: MockUpstream, provider: MockProvider, api: str
) -> None:
    failing(upstream, "open", status=500)
    answer = ask(failing_over, "open", api)
    assert (answer.status_code, answer.headers["x-gateway-model"]) == (200, "claude"), answer.text
    assert len(provider.calls) == 1
    assert "ok" in answer.text


def relayed(upstream: MockUpstream, **script: Any) -> None:
    """What `twin-a` answers to relayed calls; the others have vectors."""

    def answer(asked: Asked) -> Reply | None:
        return Reply(**script) if (asked.body or {})["model"] == "twin-a" else None

    upstream.routes["POST /v1/embeddings"] = answer


def embed(gateway: GatewayProcess, **headers: str) -> httpx.Response:
    body = {"model": "twins", "input": "one two three"}
    return gateway.post("/embeddings", json=body, headers=headers, key=None)


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_s12_6_a_relayed_call_is_tried_elsewhere(
    failing_over: GatewayProcess, upstream: MockUpstream, status: int
) -> None:
    """The other deployment gets its own name of the model, and is on the bill with its own price."""
    relayed(upstream, status=status)
    answer = embed(failing_over)
    assert answer.status_code == 200, answer.text
    assert [asked.body["model"] for asked in upstream.requests] == ["twin-a", "twin-b"]
    bill = bill_of(failing_over, answer)
    assert bill["routing_path"] == ["twins", "openai/twin-a", "openai/twin-b"]
    assert bill["cost"]["total_cost"] == 3 * Decimal("7e-06")
    audit(failing_over)


def test_s12_6_what_a_relayed_try_may_have_cost_is_on_the_bill(
    failing_over: GatewayProcess, upstream: MockUpstream
) -> None:
    relayed(upstream, delay_first=2.0)
    answer = embed(failing_over)
    bill = bill_of(failing_over, answer)
    assert bill["usage"]["prompt_tokens"] == 3
    assert bill["cost"]["total_cost"] == 3 * Decimal("3e-06") + 3 * Decimal("7e-06")
    assert bill["cost"]["estimated"] is True
    assert any("failed_try" in line for line in show(failing_over, answer))
    audit(failing_over)


def test_s12_3_what_a_relayed_try_may_have_cost_is_held_beside_the_next(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """A budget that has room for the next alone is not asked for both."""
    budgets = {LIMITED: "0.00003", ADMIN: "0.00005"}
    keys = [{"key": key, "tenant": key, "budgets": [{"usd": usd, "period": "total"}]} for key, usd in budgets.items()]
    here = upstream.base_url
    models = [entry("twins", "twin-a", here, order=1, timeout=0.5), entry("twins", "twin-b", here, order=2)]
    gateway = start_gateway({"model_list": models, "routing": RESTING, "auth": {"keys": keys}})
    relayed(upstream, delay_first=2.0)
    assert [embed(gateway, authorization=f"Bearer {key}").status_code for key in budgets] == [504, 200]
    assert [asked.body["model"] for asked in upstream.requests] == ["twin-a", "twin-a", "twin-b"]


def test_s12_6_a_relayed_try_is_billed_though_the_next_refuses(
    failing_over: GatewayProcess, upstream: MockUpstream
) -> None:
    upstream.routes["POST /v1/embeddings"] = lambda asked: (
        Reply(delay_first=2.0) if asked.body["model"] == "twin-a" else Reply(status=500)
    )
    answer = embed(failing_over)
    assert answer.status_code == 500
    bill = bill_of(failing_over, answer)
    assert bill["routing_path"] == ["twins", "openai/twin-a", "openai/twin-b"]
    assert bill["cost"]["total_cost"] == 3 * Decimal("3e-06")
    audit(failing_over)


def test_s12_6_of_a_relayed_call_the_last_refusal_comes_down(
    failing_over: GatewayProcess, upstream: MockUpstream
) -> None:
    upstream.routes["POST /v1/embeddings"] = lambda asked: Reply(
        status=429 if asked.body["model"] == "twin-b" else 503, headers={"retry-after": "7"}
    )
    answer = embed(failing_over)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.headers["x-gateway-managed"] == "false"
    assert len(upstream.requests) == 2


def test_s12_6_a_relayed_form_is_tried_elsewhere(failing_over: GatewayProcess, upstream: MockUpstream) -> None:
    """It is written anew, with the other deployment's name of the model."""
    path = "POST /v1/audio/transcriptions"
    upstream.routes[path] = lambda asked: Reply(status=503) if b"twin-a" in asked.raw else Reply(json={"text": "hi"})
    form: Any = {"file": ("a.wav", b"RIFF" * 1000, "audio/wav"), "model": (None, "twins")}
    answer = failing_over.post("/audio/transcriptions", files=form, key=None)
    assert answer.json() == {"text": "hi"}
    first, second = upstream.requests
    assert b"twin-a" in first.raw
    assert b"twin-b" in second.raw
    assert b"RIFF" * 1000 in second.raw
    assert bill_of(failing_over, answer)["routing_path"] == ["twins", "openai/twin-a", "openai/twin-b"]


@pytest.mark.parametrize("status", [400, 404, 422])
def test_s12_6_a_relayed_call_at_fault_is_told_at_once(
    failing_over: GatewayProcess, upstream: MockUpstream, status: int
) -> None:
    relayed(upstream, status=status)
    assert embed(failing_over).status_code == status
    assert len(upstream.requests) == 1
