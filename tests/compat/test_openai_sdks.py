"""The official SDKs, Python and JavaScript, current and previous major: all see the same."""

import json
from typing import Any

import pytest

from tests.compat.running import Results, run_node, run_python
from tests.compat.scripted import CALLS, COST, FORECAST, MODEL, REFUSAL, SEA, TRIP, USAGE
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

pytestmark = pytest.mark.compat

PYTHON = ["openai-3", "openai-2"]
NODE = ["openai", "openai-6"]
CANCELLED_WITHIN = 2.0
OTHER = f"{SEA} [choice 1]"


@pytest.fixture(scope="module", params=[*PYTHON, *(f"node:{package}" for package in NODE)])
def sdk(request: pytest.FixtureRequest) -> str:
    """The environment of a Python SDK, or `node:` and the package of a JavaScript one."""
    return str(request.param)


@pytest.fixture(scope="module")
def results(sdk: str, compat_gateway: GatewayProcess, scripted_upstream: MockUpstream) -> Results:
    """What the SDK's user saw."""
    if sdk.startswith("node:"):
        return run_node("openai_sdk", compat_gateway, scripted_upstream, sdk.removeprefix("node:"))
    return run_python(sdk, "openai_sdk", compat_gateway, scripted_upstream)


def _called(calls: list[list[str]]) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in calls]


def _assert_billed(found: dict[str, Any]) -> None:
    assert found["text"] == SEA
    assert found["cost"] == found["total"] == COST
    assert found["conversation"].startswith("conv_")
    assert found["named"] == found["conversation"]
    assert found["tokens"] == USAGE["total_tokens"]
    assert found["request_id"], "the SDK's own request id is the one in the bill"


def test_s6_a_plain_answer_carries_its_bill(results: Results) -> None:
    """§6: `usage.cost`, `response_metadata`; §3.5: `conversation.id`."""
    _assert_billed(results["plain"])


def test_s6_the_headers(results: Results) -> None:
    """§6: `x-gateway-response-cost`, `x-conversation-id`, `x-request-id`."""
    assert results["raw"] == {"cost": COST, "conversation": True, "request_id": True}


def test_s6_a_stream_carries_its_bill(results: Results) -> None:
    """§6: first chunk what is known, finish chunk the bill, no chunk without choices that nobody asked for."""
    expected = {"text": SEA, "first": True, "total": COST, "finish": "stop", "empty": 0}
    assert results["stream"] == expected


def test_s6_a_stream_with_usage(results: Results) -> None:
    """§6: the usage chunk that was asked for has `usage.cost` and `response_metadata`."""
    expected = {"text": SEA, "cost": COST, "total": COST, "finish_total": COST, "empty": 1}
    assert results["stream_with_usage"] == expected


def test_s6_what_clients_choke_on_stays_here(results: Results) -> None:
    """§6: no named event, no chunk without choices, whatever the upstream sends; its own fields ride on."""
    found = results["odd_stream"]
    assert found == {"text": SEA, "helper": SEA, "total": COST, "empty": 0, "kept": [{"queue": 3}]}


def test_s1_mode_off_has_a_bill(results: Results) -> None:
    """§1: `context.mode: off` is a plain proxy with a bill."""
    assert results["mode_off"] == [SEA, COST, COST]


def test_s6_the_stream_helper(results: Results, sdk: str) -> None:
    """§6: nothing that the gateway adds disturbs the SDK's accumulator; its last chunk has the bill.

    In Python the accumulated completion keeps no field that only a later chunk has.
    """
    found = results["stream_helper"]
    assert found["text"] == found["deltas"] == SEA
    assert found["id"]
    assert found["total"] == found["looked_up"] == COST
    assert found["final_total"] == (COST if sdk.startswith("node:") else None)
    with_usage = {"text": SEA, "cost": COST, "tokens": USAGE["total_tokens"]}
    assert results["stream_helper_with_usage"] == with_usage


@pytest.mark.parametrize("name", ["tool_loop", "tool_loop_streamed"])
def test_s1_parallel_tool_calls(results: Results, name: str) -> None:
    """§1: parallel calls, plain and streamed through the SDK's accumulator, and back."""
    found = results[name]
    assert _called(found["calls"]) == CALLS
    assert found["text"] == FORECAST
    assert found["total"] == COST


@pytest.mark.parametrize("name", ["tool_runner", "tool_runner_streamed"])
def test_s1_the_tool_runner(results: Results, sdk: str, name: str) -> None:
    """§1: `runTools`; §6: one bill for each step."""
    if not sdk.startswith("node:"):
        assert name not in results, "chat completions of the Python SDK have no runner"
        return
    found = results[name]
    assert _called(found["calls"]) == CALLS
    assert found["text"] == FORECAST
    assert found["totals"] == [COST, COST]


def test_s1_structured_output(results: Results) -> None:
    """§1: `parse()` with pydantic or zod, plain and streamed."""
    assert results["structured"] == {"parsed": TRIP, "cost": COST}
    assert results["structured_streamed"] == {"parsed": TRIP}


def test_s1_several_choices(results: Results) -> None:
    """§1: `n` > 1, plain, streamed and accumulated."""
    both = [SEA, OTHER]
    assert results["two_choices"] == {"plain": both, "streamed": both, "helper": both, "total": COST}


def test_s1_refusals_logprobs_and_reasoning(results: Results) -> None:
    """§1: unknown fields in upstream answers come back untouched."""
    assert results["refusal"] == {"plain": REFUSAL, "streamed": REFUSAL}
    assert results["logprobs"] == [-0.5, -0.5]
    assert results["reasoning"] == {"plain": "Water, so wide.", "streamed": "Water, so wide."}


CLASSES = {
    400: "BadRequestError",
    404: "NotFoundError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "InternalServerError",
}


@pytest.mark.parametrize("status", CLASSES)
def test_s7_upstream_errors_keep_their_class(results: Results, status: int) -> None:
    """§7: status, code, param and `Retry-After` of the upstream's error."""
    found = results["errors"][str(status)]
    assert (found["class"], found["status"]) == (CLASSES[status], status)
    assert (found["code"], found["param"]) == (f"code_{status}", "temperature")
    assert f"the upstream says {status}" in found["message"]
    assert found["retry_after"] == ("7" if status == 429 else None)
    assert found["request_id"]


@pytest.mark.parametrize(
    ("name", "kind", "code", "param"),
    [
        ("streamed", "BadRequestError", "code_400", "temperature"),
        ("stranger", "AuthenticationError", "invalid_api_key", None),
        ("ours", "BadRequestError", "invalid_value", "attachments[0]"),
        ("unknown", "NotFoundError", "conversation_not_found", "conversation"),
    ],
)
def test_s7_our_errors_have_their_class(results: Results, name: str, kind: str, code: str, param: str | None) -> None:
    """§7: OpenAI's shape with the status an SDK maps to its error class, and the field's name."""
    found = results["errors"][name]
    assert (found["class"], found["code"], found["param"]) == (kind, code, param)


def test_s7_the_sdk_retries_a_rate_limit(results: Results) -> None:
    """§7: a 429 goes down with `Retry-After`, and the SDK's own second try succeeds."""
    assert results["retries"] == SEA


@pytest.mark.parametrize(
    ("name", "code"), [("error_in_stream", "server_error"), ("cut_stream", "upstream_interrupted")]
)
def test_s7_a_stream_that_breaks_raises(results: Results, name: str, code: str) -> None:
    """§7: an error event or a cut after the stream has begun is an exception, never a clean end."""
    found = results[name]
    assert (found["class"], found["code"]) == ("APIError", code)


def test_s3_a_conversation_continues(results: Results) -> None:
    """§3.1: by id in the body, by header, by session; §6: each bill can be looked up afterwards."""
    found = results["conversation"]
    assert found.pop("listed_cost") == pytest.approx(3 * COST)
    assert found == {"same": True, "session": True, "listed": True, "retrieved": SEA, "by_request": True}


def test_s2_attachments_and_context_options(results: Results) -> None:
    """§2: `attachments` and `context` by the SDK's way for further fields."""
    assert results["attachments"] == "attachment:0:Contract"


def test_s9_models(results: Results) -> None:
    """§9: `GET /v1/models`."""
    assert results["models"] == {"listed": ["gpt-4o", MODEL, "small", "bench"], "one": MODEL}


def test_s3_6_a_client_that_leaves_cancels_the_upstream(results: Results, sdk: str) -> None:
    """§3.6: an abandoned stream's upstream call is cancelled."""
    ways = ["abort", "abort_helper", *(["abort_by_break"] if sdk.startswith("node:") else [])]
    assert all(results[way] < CANCELLED_WITHIN for way in ways), {way: results[way] for way in ways}


def test_s6_what_one_language_has_alone(results: Results, sdk: str) -> None:
    """§6: the asynchronous Python client and models dumped and read again; tee'd and web streams in JavaScript."""
    if sdk.startswith("node:"):
        assert results["to_readable"] == {"text": SEA, "total": COST}
        return
    found = results["asynchronous"]
    _assert_billed(found["plain"])
    assert (found["text"], found["total"], found["parsed"]) == (SEA, COST, TRIP)
    assert found["cancelled"] < CANCELLED_WITHIN
    assert results["typed"] == COST


def test_s1_other_paths_are_relayed(results: Results) -> None:
    """§1: embeddings and responses, plain and streamed, with the operator's key; its batches are nobody's to read, and
    files are those that the client has uploaded here (§14.5)."""
    found = results["other_paths"]
    assert found["embedding"] == 64
    assert found["response"] == found["response_streamed"] == SEA
    assert (found["batches"]["class"], found["batches"]["code"]) == ("NotFoundError", "not_relayed")
    assert found["files"] == []
