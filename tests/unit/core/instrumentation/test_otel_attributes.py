"""What spans say of calls, answers, bills and errors (guarantee §13.5)."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.errors import StorageUnavailable, UpstreamOverflow, UpstreamRefused, UpstreamTimeout
from gateway.core.types.bill import CallCost
from gateway.core.types.chat import ModelDeployment
from gateway.core.types.turn import LedgerEntry
from gateway.operations.otel.attributes import (
    error_type,
    of_answer,
    of_bill,
    of_cost,
    of_request,
    of_server,
    of_usage,
    provider_of,
)


def deployment(**more: Any) -> ModelDeployment:
    known = {"model": "fast", "provider_model": "gpt-4o", "route": "openai/gpt-4o", "api_key": "sk-secret"}
    return ModelDeployment(**{"api_base": "https://api.example.org/v1", "operator_key": True, **known, **more})


def entry(**more: Any) -> LedgerEntry:
    known: dict[str, Any] = {"conversation_id": "conv_1", "completion_id": None, "model": "fast", "stream": False}
    known |= {"status": "complete", "created_at": datetime(2026, 1, 1, tzinfo=UTC), "metadata": {}, "calls": ()}
    return LedgerEntry(**{"request_id": "req_1", "tenant": "t", **known, **more})


@pytest.mark.parametrize(
    ("origin", "provider"),
    [
        ("openai https://api.openai.com/v1", "openai"),
        ("azure https://x", "azure.ai.openai"),
        ("anthropic claude", "anthropic"),
        ("bedrock claude", "aws.bedrock"),
        ("vertex_ai", "gcp.vertex_ai"),
        ("groq https://api.groq.com", "groq"),
    ],
)
def test_providers_have_the_names_of_the_conventions(origin: str, provider: str) -> None:
    assert provider_of(deployment(origin=origin)) == provider


@pytest.mark.parametrize(
    ("base", "found"),
    [
        ("https://api.example.org/v1", {"server.address": "api.example.org", "server.port": 443}),
        ("http://user:secret@10.0.0.1:8080/v1", {"server.address": "10.0.0.1", "server.port": 8080}),
        ("", {}),
    ],
)
def test_a_server_is_named_without_what_may_be_secret(base: str, found: dict[str, Any]) -> None:
    assert of_server(deployment(api_base=base)) == found


def test_a_request_tells_its_figures_and_none_of_its_words() -> None:
    body = {
        "messages": [{"role": "user", "content": "words"}],
        "stop": ["words"],
        "user": "words",
        "temperature": "words",
        "top_p": 0.5,
        "seed": True,
        "n": 2,
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "stream": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "words"}},
    }
    found = of_request(deployment(), body)
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gateway.model": "fast",
        "server.address": "api.example.org",
        "server.port": 443,
        "gen_ai.request.stream": True,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.request.max_tokens": 7,
        "gen_ai.request.choice.count": 2,
        "gen_ai.output.type": "json",
    }


@pytest.mark.parametrize("body", [{"response_format": "json"}, {"response_format": {}}, {"n": 1, "max_tokens": None}])
def test_odd_requests_tell_what_they_can(body: dict[str, Any]) -> None:
    assert set(of_request(deployment(), body)) == set(of_request(deployment(), {}))


def test_an_answer_tells_its_ends() -> None:
    choices = [{"finish_reason": "stop"}, {"finish_reason": None}, "odd", {"finish_reason": "x" * 500}]
    found = of_answer({"id": "up-1", "model": "gpt-4o-2024", "choices": choices, "usage": {"prompt_tokens": 3}})
    assert found == {
        "gen_ai.response.id": "up-1",
        "gen_ai.response.model": "gpt-4o-2024",
        "gen_ai.response.finish_reasons": ["stop", "x" * 128],
        "gen_ai.usage.input_tokens": 3,
    }


@pytest.mark.parametrize("answer", [{}, {"id": 5, "model": None, "choices": None, "usage": "much"}])
def test_an_odd_answer_tells_nothing(answer: dict[str, Any]) -> None:
    assert of_answer(answer) == {}


def test_usage_with_what_a_cache_did() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 6, "cache_creation_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert of_usage(usage) == {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 6,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
    }


def test_an_unknown_price_is_no_cost() -> None:
    assert of_cost(CallCost("primary", "m", {}, Decimal("0.1"), Decimal("0.2"))) == {"gen_ai.usage.cost": 0.3}
    assert of_cost(CallCost("primary", "m", {}, None, None)) == {}


def test_a_bill_tells_decisions_and_counts_and_no_names_of_artifacts() -> None:
    used = {
        "strategy": "llm_planned",
        "planning_reason": "near_limit",
        "fallback_reason": None,
        "utilization": 0.5,
        "warnings": [],
        "artifacts_processed": [
            {"artifact_id": "a", "source": "attachment:0:words", "strategy": "exclude"},
            {"artifact_id": "b", "source": "attachment:1:words", "strategy": "exclude"},
            {"artifact_id": "c", "source": "attachment:2:words", "strategy": "summarize"},
            {"artifact_id": "d", "source": "attachment:3:words", "strategy": "summarize", "standing": True},
        ],
        "artifacts_standing": {"count": 4, "chars": 10},
    }
    cost = {"total_cost": Decimal("0.25"), "planning_cost": None, "estimated": False}
    found = of_bill(entry(metadata={"context_utilization": used, "cost": cost}, end_user="u-1", agent="writer"))
    assert found == {
        "gateway.request_id": "req_1",
        "gateway.status": "complete",
        "gen_ai.conversation.id": "conv_1",
        "session.id": "conv_1",
        "user.id": "u-1",
        "gateway.agent": "writer",
        "gateway.context.strategy": "llm_planned",
        "gateway.context.planning_reason": "near_limit",
        "gateway.context.utilization": 0.5,
        "gateway.cost.total": 0.25,
        "gateway.cost.estimated": False,
        "gateway.context.artifacts.exclude": 2,
        "gateway.context.artifacts.summarize": 1,
        "gateway.context.artifacts.standing": 4,
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UpstreamTimeout("words"), "upstream_timeout"),
        (StorageUnavailable("words"), "storage_unavailable"),
        (asyncio.CancelledError("words"), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (ValueError("words"), "ValueError"),
    ],
)
def test_errors_have_a_kind_and_no_words(error: BaseException, kind: str) -> None:
    assert error_type(error) == kind


def test_an_upstreams_own_code_is_no_kind() -> None:
    refused = UpstreamRefused.__new__(UpstreamRefused)
    refused.status, refused.code = 429, "whatever-the-upstream-says"
    assert error_type(refused) == "429"
    overflow = UpstreamOverflow.__new__(UpstreamOverflow)
    assert error_type(overflow) == "context_length_exceeded"
