"""What telemetry tells, what it never tells, and what it may cost: nothing of the answer (guarantee §13.5)."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.answers import function_tool, system, tool_call, tool_result, user
from tests.support.command import config_file, gateway_command
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory, default_config
from tests.support.gateway_process import GatewayProcess, scrubbed_environment
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.otlp import SOON, Collector
from tests.support.postgres import Postgres
from tests.support.process import free_port, wait_until
from tests.support.schemas import sqlite_url

ASK: dict[str, Any] = {"model": "small", "messages": [user("the question-of-somebody")]}
NEVER: dict[str, Any] = {"metric_interval": 3600}
LATE = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}


def post(gateway: GatewayProcess, body: Any, **headers: str) -> httpx.Response:
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=30) as client:
        return client.post(
            "/chat/completions", json=body, headers={"authorization": "Bearer sk-of-a-client", **headers}
        )


def test_s13_5_nothing_secret_and_no_content_is_exported(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Not of question, document, tool call, answer, plan, summary or error; no key of anybody's."""
    with Collector() as collector:
        telemetry = {"otlp_endpoint": collector.url, "headers": {"x-collector-key": "the-collectors-key"}}
        settings = {"telemetry": {**telemetry, "metric_interval": 0.2}, "context": {"planning": "auto"}}
        gateway = start_gateway(settings, SOON)
        upstream.handler = InternalModels(
            every("summarize", summarization_focus="the-focus-of-the-plan"), primary=lambda body: None
        )
        document = {"title": "the-title", "source": "the-source", "content": lamps(60)}
        call = tool_call("call_1", "look_up", '{"a":"the-argument"}')
        tools = [function_tool("look_up", description="the-description")]
        result = tool_result("call_1", "the-result " * 900)
        said = [system("the-instruction"), *ASK["messages"]]
        asked = {"model": "small", "messages": [*said, {"role": "assistant", "tool_calls": [call]}, result]}
        bodies: list[Any] = [
            {**asked, "attachments": [document], "tools": tools},
            {**ASK, "stream": True, "metadata": {"note": "the-metadata"}},
            {**ASK, "context": {"session": "the-session"}},
            {**ASK, "messages": [user(5, x="the-mistake")]},
        ]
        ids = [post(gateway, body, **{"x-request-note": "the-header"}).headers["x-request-id"] for body in bodies]
        for request_id in ids[:3]:
            collector.trace(request_id, least=4)
        wait_until(lambda: "gateway_cost_usd" in collector.metrics, "metrics")
        exported = b"\n".join(collector.raw)
        assert {headers.get("x-collector-key") for headers in collector.headers} == {"the-collectors-key"}
    words = "question-of-somebody keeper lamp the-title the-source the-argument the-description the-result the-session"
    words += " the-instruction the-metadata the-mistake the-header the-focus-of-the-plan summary. echo: look_up"
    secrets = "sk-of-a-client sk-upstream the-collectors-key"
    for word in (*words.split(), *secrets.split()):
        assert word.encode() not in exported, word
    assert "the-collectors-key" not in gateway.log_text()


def test_s13_5_content_where_it_is_asked_for(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """On the spans of model calls, of streams too; never where a request is not to be kept."""
    with Collector() as collector:
        telemetry = {"otlp_endpoint": collector.url, "content": True, "metrics": False}
        gateway = start_gateway({"telemetry": telemetry}, SOON)
        for streams in (False, True):
            upstream.reply(text="all is well", tool_calls=[("look_up", {"city": "Bern"})])
            answer = post(gateway, {**ASK, "stream": streams})
            spans = collector.trace(answer.headers["x-request-id"], least=4)
            (call,) = [span.attributes for span in spans if span.name == "chat small"]
            (asked,) = json.loads(call["gen_ai.input.messages"])
            assert asked["parts"] == [{"type": "text", "content": "the question-of-somebody"}]
            (said,) = json.loads(call["gen_ai.output.messages"])
            assert (said["role"], said["finish_reason"]) == ("assistant", "tool_calls")
            text, tool = said["parts"]
            assert text == {"type": "text", "content": "all is well"}
            assert (tool["type"], tool["name"], json.loads(tool["arguments"])) == (
                "tool_call",
                "look_up",
                {"city": "Bern"},
            )
        collector.clear()
        answer = post(gateway, {**ASK, "store": False})
        collector.trace(answer.headers["x-request-id"], least=3)
        assert not any(b"question-of-somebody" in body or b"echo" in body for body in collector.raw)


@pytest.mark.chaos
def test_s13_5_a_collector_that_is_down_costs_no_answer(start_gateway: GatewayFactory) -> None:
    """Answers come as always, the log has a line, and the process ends in time."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    gateway = start_gateway({"telemetry": {"otlp_endpoint": nowhere, "metric_interval": 0.1}}, SOON)
    assert all(post(gateway, ASK).status_code == 200 for _ in range(20))

    def lines() -> list[Any]:
        return [line for line in gateway.log_lines() if line["event"] == "telemetry_not_exported"]

    wait_until(lambda: bool(lines()), "a line in the log")
    assert post(gateway, {**ASK, "stream": True}).text.endswith("data: [DONE]\n\n")
    assert gateway.terminate() == 0
    assert len(lines()) == 1
    assert "Traceback" not in gateway.log_text()


@pytest.mark.chaos
def test_s13_5_a_collector_that_hangs_holds_up_nobody(start_gateway: GatewayFactory) -> None:
    """Neither an answer nor, for more than a few seconds, the end."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are taken, and nothing is said
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        gateway = start_gateway({"telemetry": {"otlp_endpoint": endpoint, **NEVER}}, SOON)
        assert all(post(gateway, ASK).status_code == 200 for _ in range(3))
        assert gateway.terminate() == 0
        assert "telemetry_lost" in gateway.log_text()


def test_s13_5_what_waits_is_exported_at_the_end(start_gateway: GatewayFactory) -> None:
    with Collector() as collector:
        gateway = start_gateway({"telemetry": {"otlp_endpoint": collector.url, **NEVER}}, LATE)
        answer = post(gateway, ASK)
        assert gateway.terminate() == 0
        assert len(collector.trace(answer.headers["x-request-id"])) == 4
        assert collector.metrics["gateway_bills"]


def test_s13_5_metrics_by_otlp_are_those_of_the_page(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """And the conventions' own; under the standard names of the environment."""
    with Collector() as collector:
        standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b"}
        gateway = start_gateway({"telemetry": {"metric_interval": 0.2, "traces": False}}, standard)
        post(gateway, ASK)
        post(gateway, {**ASK, "stream": True})
        upstream.reply(status=500)
        post(gateway, ASK)

        def billed() -> dict[str, float]:
            points = collector.metrics.get("gateway_bills", [])
            return {labels["status"]: point.as_double for labels, point in points}

        wait_until(lambda: billed() == {"complete": 2, "failed": 1}, "three bills")
        page = httpx.get(f"{gateway.url}/metrics", trust_env=False).text
        ((labels, cost),) = collector.metrics["gateway_cost_usd"]
        assert f'gateway_cost_usd_total{{model="small",purpose="primary"}} {cost.as_double}' in page
        assert labels == {"model": "small", "purpose": "primary"}
        durations = collector.metrics["gen_ai.client.operation.duration"]
        assert {(each.get("error.type"), point.count) for each, point in durations} == {(None, 2), ("500", 1)}
        tokens = {each["gen_ai.token.type"]: point for each, point in collector.metrics["gen_ai.client.token.usage"]}
        assert set(tokens) == {"input", "output"}
        assert tokens["input"].count == 2
        asked = [p for a, p in collector.metrics["http.server.request.duration"] if a["http.request.method"] == "POST"]
        assert sum(point.count for point in asked) == 3
        assert collector.metrics["gen_ai.client.operation.time_to_first_chunk"][0][1].count == 1
        assert collector.metrics["gateway_time_to_first_chunk"][0][1].count == 1
        assert collector.metrics["gateway_context_window"][0][1].count == 3
        assert {headers.get("x-key") for headers in collector.headers} == {"a b"}
        assert "traceparent" not in upstream.last.headers
        assert not collector.spans


@pytest.mark.chaos
def test_s13_5_workers_export_each_their_own(start_gateway: GatewayFactory, postgres: Postgres) -> None:
    """Told apart by the instance, so that a collector can add them up."""
    with Collector() as collector:
        settings = {"storage": {"url": postgres.new_database()}, "server": {"workers": 2}}
        gateway = start_gateway({**settings, "telemetry": {"otlp_endpoint": collector.url, **NEVER}}, SOON)

        def instances() -> set[str]:
            assert post(gateway, ASK).status_code == 200
            return {span.resource["service.instance.id"] for span in list(collector.spans)}

        wait_until(lambda: len(instances()) == 2, "spans of both workers")
        assert gateway.terminate() == 0


@pytest.mark.chaos
def test_s13_5_check_says_whether_the_collector_takes_it(tmp_path: Path, upstream: MockUpstream) -> None:
    def told(endpoint: str, signal: str) -> str:
        settings = {"otlp_endpoint": endpoint, signal: False}
        written = {**default_config(upstream, sqlite_url(tmp_path)), "telemetry": settings}
        config = config_file(tmp_path, json.dumps(written))
        ended = gateway_command("check", "--config", str(config), directory=tmp_path)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        (line,) = [line for line in ended.stdout.splitlines() if "telemetry" in line]
        return line

    with Collector() as collector:
        for signal in ("traces", "metrics"):
            assert "reached" in told(collector.url, signal)
        assert len(collector.raw) == 2
    assert "Failed to export spans" in told(collector.url, "metrics")
    for signal in ("traces", "metrics"):
        upstream.routes[f"POST /v1/{signal}"] = Reply(status=308, headers={"location": "https://elsewhere.invalid/"})
    for signal in ("traces", "metrics"):
        assert "HTTP 308: a redirect, which is not followed" in told(upstream.url, signal)


SCRIPT = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from gateway.cli import main
sys.exit(main(sys.argv[2:]))
"""


def test_s13_5_what_is_configured_and_not_installed_is_named(tmp_path: Path, upstream: MockUpstream) -> None:
    """The start is refused, and what to install is said."""
    config = tmp_path / "config.yaml"
    written = {**default_config(upstream, sqlite_url(tmp_path)), "telemetry": {"otlp_endpoint": "http://127.0.0.1:9"}}
    config.write_text(json.dumps(written))
    command = [sys.executable, "-c", SCRIPT, '["opentelemetry"]', "serve", "--config", str(config), "--port", "0"]
    ended = subprocess.run(
        command, env=scrubbed_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "telemetry.otlp_endpoint" in ended.stderr
    assert "context-gateway[telemetry]" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_s13_5_where_nothing_is_configured_nothing_is_sent(
    own_key_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """A caller's `traceparent` goes on with relayed calls as it came, and with chats not at all, as ever."""
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    post(own_key_gateway, ASK, traceparent=parent)
    assert "traceparent" not in upstream.last.headers
    with httpx.Client(base_url=own_key_gateway.base_url, trust_env=False) as client:
        headers = {"authorization": "Bearer sk-x", "traceparent": parent}
        client.post("/embeddings", json={"model": "e", "input": "hello"}, headers=headers)
    assert upstream.requests[-1].headers["traceparent"] == parent
    assert "trace_id" not in own_key_gateway.log_text()
