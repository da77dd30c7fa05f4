"""`GET /metrics` agrees with what the upstream counted and with the ledger (guarantee §9), and tells, as
`/health/ready?details=1` does, what the process keeps, and how often that was of use (§11.9)."""

import csv
import io
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.agent_session import AgentSession, breaks
from tests.support.answers import Json, usage_of, user
from tests.support.command import gateway_command
from tests.support.documents import lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.reply import Reply
from tests.support.scraping import scrape, total

ASK = [user("hello there")]
CHAT = {"model": "small", "messages": ASK}
PASSES = {"window_moved", "message_reworded"}
"""Reasons for a break where something had to leave."""


@pytest.fixture
def counted(start_gateway: GatewayFactory, upstream: MockUpstream) -> GatewayProcess:
    """A gateway after seven requests: three answered, one of them streamed; refused, cut, abandoned, unknown."""
    gateway = start_gateway()
    with gateway.http() as client:
        upstream.reply(text="x", usage=usage_of(100, 7))
        assert client.post("/chat/completions", json=CHAT).status_code == 200
        upstream.reply(text="x", usage=usage_of(11, 3))
        assert client.post("/chat/completions", json=CHAT | {"stream": True}).status_code == 200
        upstream.reply(text="x", usage=usage_of(5, 1))
        assert client.post("/chat/completions", json=CHAT | {"model": "gpt-4o"}).status_code == 200
        upstream.reply(status=429)
        assert client.post("/chat/completions", json=CHAT).status_code == 429
        upstream.reply(text="one two three", cut_after=3)
        client.post("/chat/completions", json=CHAT | {"stream": True})
        upstream.reply(text="one two three", stall_after=3)
        with client.stream("POST", "/chat/completions", json=CHAT | {"stream": True}) as stream:
            next(stream.iter_lines())
        assert client.post("/chat/completions", json=CHAT | {"messages": "none"}).status_code == 400
        client.get("/nothing-of-the-kind")
    wait_until(lambda: total(scrape(gateway), "gateway_bills_total") == 6, "all bills")
    return gateway


def test_s9_metrics_agree_with_upstream_and_ledger(counted: GatewayProcess, upstream: MockUpstream) -> None:
    """Requests, tokens, USD, errors: the same figures in all three places."""
    found = scrape(counted)
    chat: dict[str, str] = {"endpoint": "/v1/chat/completions"}
    assert total(found, "gateway_requests_total", **chat, status="200", stream="false") == 2
    streamed = [record for record in upstream.chats if record.body.get("stream")]
    assert total(found, "gateway_requests_total", **chat, stream="true") == len(streamed) == 3
    assert total(found, "gateway_requests_total", **chat, status="429", model="small") == 1
    assert total(found, "gateway_requests_total", **chat, status="400") == 1
    assert total(found, "gateway_requests_total", endpoint="other") == 1
    assert total(found, "gateway_request_duration_seconds_count", **chat) == 7
    assert total(found, "gateway_time_to_first_chunk_seconds_count", model="small") == 3
    assert total(found, "gateway_upstream_errors_total", code="upstream_429", model="small") == 1
    assert total(found, "gateway_upstream_errors_total", code="upstream_interrupted") == 1
    assert total(found, "gateway_upstream_errors_total") == 2
    assert total(found, "gateway_requests_in_flight") == 1  # this one
    done = gateway_command("audit", "--csv", "--config", str(counted.config_path), directory=counted.directory)
    rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    assert len(rows) == total(found, "gateway_bills_total") == len(upstream.chats)
    for model in ("small", "gpt-4o"):
        mine = [row for row in rows if row["model"] == model]
        for kind in ("prompt", "completion"):
            told = total(found, "gateway_tokens_total", model=model, kind=kind)
            assert told == sum(int(row[f"{kind}_tokens"]) for row in mine)
        cost = sum(Decimal(row["total_cost"]) for row in mine)
        assert total(found, "gateway_cost_usd_total", model=model) == pytest.approx(float(cost), rel=1e-12)
        for status in ("complete", "partial", "failed"):
            counted_here = total(found, "gateway_bills_total", model=model, status=status)
            assert counted_here == len([row for row in mine if row["status"] == status])


def test_s9_metrics_tell_of_planning(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """A plan with a summary, the same again, and a planner that fails: told as on the bills."""
    gateway = start_gateway({"context": {"planning": "auto"}})
    upstream.handler = models = InternalModels(every("summarize"))
    ask = {"model": "small", "messages": ASK, "attachments": [{"title": "Lamps", "content": lamps(60)}]}
    bills = [gateway.post("/chat/completions", json=ask).json() for _ in range(2)]
    models.planner = lambda artifacts: Reply(text="no plan")
    bills.append(gateway.post("/chat/completions", json=ask).json())
    gateway.post("/chat/completions", json=CHAT)
    told = [bill["response_metadata"]["context_utilization"] for bill in bills]
    assert [each["llm_planning_used"] for each in told] == [True, True, False]
    found = scrape(gateway)
    reason = told[0]["planning_reason"]
    assert total(found, "gateway_planning_decisions_total", reason=reason, planned="true") == 2
    assert total(found, "gateway_planning_decisions_total", reason=reason, planned="false") == 1
    assert total(found, "gateway_planning_decisions_total", reason="no_artifacts", planned="false") == 1
    assert total(found, "gateway_planning_fallbacks_total") == 1
    assert total(found, "gateway_planning_fallbacks_total", reason=told[2]["fallback_reason"]) == 1
    assert total(found, "gateway_internal_calls_total", purpose="planner", outcome="ok") == 2
    assert total(found, "gateway_internal_calls_total", purpose="planner", outcome="rubbish") == 1
    assert total(found, "gateway_internal_calls_total", purpose="summarizer") == len(models.summarized) == 1
    for result in ("hit", "miss"):
        assert total(found, "gateway_summaries_total", result=result) == 1
    cost = sum(bill["response_metadata"]["cost"]["planning_cost"] for bill in bills)
    spent = [total(found, "gateway_cost_usd_total", purpose=purpose) for purpose in ("planner", "summarizer")]
    assert sum(spent) == pytest.approx(float(cost), rel=1e-12)
    assert min(spent) > 0


def test_s9_metrics_tell_of_windows(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§4 I7, §9: how full windows were, what left them, what was warned of, and where a prompt cache was of no use any
    more, as the bills and the upstream have it; the same in health."""
    gateway = start_gateway()
    session = AgentSession(upstream, [gateway], system="You answer.")
    for turn in range(12):
        session.turn(f"Who keeps lamp {turn}? {prose(turn, 60)}", [prose(100 + turn, 100)], "A keeper.")
    found, bills = scrape(gateway), session.bills
    shares = [bill["tokens_used"] / bill["context_window"] for bill in bills]
    of: dict[str, str] = {"model": "small"}
    assert total(found, "gateway_context_window_ratio_count", **of) == len(bills)
    assert total(found, "gateway_context_window_ratio_sum", **of) == pytest.approx(sum(shares))
    half = sum(share <= 0.5 for share in shares)
    assert total(found, "gateway_context_window_ratio_bucket", **of, le="0.5") == half < len(bills)
    excluded = sum(bill["messages_excluded"] for bill in bills)
    assert total(found, "gateway_messages_excluded_total", **of) == excluded > 0
    warned = sum("context_window_above_80_percent" in bill["warnings"] for bill in bills)
    assert total(found, "gateway_warnings_total", kind="context_window_above_80_percent") == warned > 0
    broken = len(breaks(session.forwarded))
    assert total(found, "gateway_prompt_cache_breaks_total", **of) == broken > 0
    assert {s.labels["reason"] for s in found if s.name == "gateway_prompt_cache_breaks_total"} <= PASSES
    session.system = "You answer in French."
    session.turn("Again?", [], "Oui.")
    found = scrape(gateway)
    assert total(found, "gateway_prompt_cache_breaks_total", reason="system_messages_changed") == 1
    edited = {"messages": [user("Another question"), {"role": "assistant", "content": "A keeper."}, user("And now?")]}
    ask = {"model": "small", "conversation": session.conversation, **edited}
    session.bills.append(gateway.post("/chat/completions", json=ask).json()["response_metadata"]["context_utilization"])
    session.forwarded.append(upstream.last.body["messages"])
    assert total(scrape(gateway), "gateway_prompt_cache_breaks_total", reason="branched") == 1
    windows = httpx.get(f"{gateway.url}/health/ready?details=1", trust_env=False).json()["details"]["windows"]
    used = [bill["tokens_used"] for bill in session.bills]
    assert windows["requests"] == len(used)
    assert windows["total_tokens"] == {"average": pytest.approx(sum(used) / len(used), abs=0.01), "max": max(used)}
    assert windows["history_tokens"]["max"] == max(bill["breakdown"]["history"] for bill in session.bills)
    assert windows["percent_of_window"]["max"] == pytest.approx(100 * max(shares), abs=0.01)
    assert windows["system_prompt_tokens"]["average"] > 0
    assert windows["workflow_spec_tokens"] == {"average": 0, "max": 0}
    assert windows["warnings"] == sum(len(bill["warnings"]) for bill in session.bills)
    assert windows["prompt_cache_breaks"] == len(breaks(session.forwarded))


@pytest.mark.parametrize("stored", [True, False])
def test_s4_i7_what_the_client_changes_breaks_the_prompt_cache(
    start_gateway: GatewayFactory, upstream: MockUpstream, stored: bool
) -> None:
    """§4 I7: an earlier message that is another, with `store: false` too; not a beginning that is sent again, not marks
    for caches that move on, not another model, not what a dry run asks."""
    gateway = start_gateway()
    answer = {"role": "assistant", "content": "Hello."}

    def ask(*said: Any, model: str = "small", system: str = "Be kind.", **fields: Any) -> None:
        first = {"role": "system", "content": [{"type": "text", "text": system, **fields.pop("mark", {})}]}
        body = {"model": model, "messages": [first, *said], "store": stored, **fields}
        assert client.post("/chat/completions", json=body).status_code == 200

    with gateway.http() as client:
        upstream.handler = lambda _: Reply(text="Hello.")
        whole = [user("one"), answer, user("two"), answer, user("three")]
        for count in (1, 3, 5, 3, 5):
            ask(*whole[:count], mark={"cache_control": {"type": "ephemeral"}} if count == 3 else {})
        ask(*whole, model="gpt-4o")
        ask(*whole, context={"dry_run": True}, system="Be short.")
        assert total(scrape(gateway), "gateway_prompt_cache_breaks_total") == 0
        ask(*whole, answer, user("four"), system="Be short.")
        assert total(scrape(gateway), "gateway_prompt_cache_breaks_total", reason="system_messages_changed") == 1
        assert total(scrape(gateway), "gateway_prompt_cache_breaks_total") == 1


def test_s4_i7_steps_that_go_on_or_go_back_break_no_prompt_cache(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """With `store: false`, where digests of what was forwarded are cached with those of what came."""
    gateway = start_gateway()
    upstream.handler = lambda _: Reply(text="Hello.")
    said = [user("one")]
    for number in range(4):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": call["id"], "content": f"line {number}"})
    for count, system in ((3, "Go."), (5, "Go."), (7, "Go."), (5, "Go."), (7, "Go."), (9, "Go."), (9, "Stop.")):
        messages = [{"role": "system", "content": system}, *said[:count]]
        asked = {"model": "small", "messages": messages, "store": False, "note": "x" * 9000}
        assert gateway.post("/chat/completions", json=asked).status_code == 200
    found = scrape(gateway)
    assert total(found, "gateway_prompt_cache_breaks_total", reason="system_messages_changed") == 1
    assert total(found, "gateway_prompt_cache_breaks_total") == 1


def test_s4_i7_a_system_message_at_the_end_that_goes_again_breaks_the_prompt_cache(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """With `store: false`, too, where what was said tells which request was the one before."""
    gateway, answer = start_gateway(), {"role": "assistant", "content": "Hello."}
    upstream.handler = lambda _: Reply(text="Hello.")
    noon, one = [{"role": "system", "content": f"It is {time}."} for time in ("noon", "one")]
    for said in ([user("1"), answer, user("2"), noon], [user("1"), answer, user("2"), answer, user("3"), one]):
        asked = {"model": "small", "messages": said, "store": False}
        assert gateway.post("/chat/completions", json=asked).status_code == 200
    assert total(scrape(gateway), "gateway_prompt_cache_breaks_total") == 1


def test_s9_metrics_of_the_process(counted: GatewayProcess) -> None:
    """What runs, and what it takes; no key, no tenant, no content."""
    found = scrape(counted)
    assert total(found, "gateway_build_info") == 1
    assert total(found, "process_resident_memory_bytes") > 10 * 2**20
    text = httpx.get(f"{counted.url}/metrics", trust_env=False).text
    assert not any(word in text for word in ("key_", "tenant", "sk-", "hello"))
    openmetrics = httpx.get(
        f"{counted.url}/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}, trust_env=False
    )
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


def test_s9_who_may_read_metrics(start_gateway: GatewayFactory) -> None:
    """`server.metrics`: open to all by default, also where keys are configured; else for keys, or for nobody."""
    keys = {"auth": {"keys": [{"key": "sk-gateway-key", "tenant": "a"}]}}
    assert scrape(start_gateway(keys))
    closed = start_gateway({**keys, "server": {"metrics": "key"}})
    assert httpx.get(f"{closed.url}/metrics", trust_env=False).status_code == 401
    assert scrape(closed, authorization="Bearer sk-gateway-key")
    off = start_gateway({"server": {"metrics": False}})  # as YAML reads the bare word
    assert httpx.get(f"{off.url}/metrics", trust_env=False).status_code == 404


KEY = {"auth": {"keys": [{"key": "sk-gateway-key", "tenant": "a"}]}}


def details(gateway: GatewayProcess, key: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{gateway.url}/health/ready?details=1", headers=headers, trust_env=False)


def test_s11_9_who_may_see_details(start_gateway: GatewayFactory) -> None:
    """§11.9: with keys their holders alone; without, whoever is on this machine. The plain answer stays."""
    keyed = start_gateway(KEY)
    assert details(keyed).status_code == details(keyed, "sk-other").status_code == 401
    assert set(details(keyed, "sk-gateway-key").json()) == {"status", "details"}
    plain = httpx.get(f"{keyed.url}/health/ready", trust_env=False)
    assert (plain.status_code, plain.json()) == (200, {"status": "ok"})
    assert details(start_gateway()).json()["details"]["schema"]


def test_s11_9_what_is_kept_is_counted(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§11.9: a conversation that goes on is read from memory, a summary that is asked for again from the cache; the
    same figures in `/metrics`, and no word of what was said."""
    gateway = start_gateway({"context": {"planning": "auto"}})
    before: Json = details(gateway).json()["details"]
    assert before["memory"]["paths"]["hit_rate"] is None
    conversation = None
    for number in range(5):
        body: Json = {"model": "small", "messages": [user(f"hello {number}")], "conversation": conversation}
        conversation = gateway.post("/chat/completions", json=body).json()["conversation"]["id"]
    upstream.handler = InternalModels(every("summarize"))
    ask = {"model": "small", "messages": [user("hello")], "attachments": [{"title": "Lamps", "content": lamps(60)}]}
    for _ in range(2):
        assert gateway.post("/chat/completions", json=ask).status_code == 200
    found: Json = details(gateway).json()["details"]
    paths = found["memory"]["paths"]
    assert (paths["hits"], paths["misses"]) == (3, 1), "the first that goes on reads, the others do not"
    assert paths["bytes"] > 0
    assert found["caches"]["summaries"] == {"hits": 1, "misses": 1, "hit_rate": 0.5}
    assert found["caches"]["kind"] == "memory"
    assert found["caches"]["bytes"] > 0
    assert found["turns_running"] == found["hooks"]["waiting"] == found["hooks"]["lost"] == 0
    samples = scrape(gateway)
    assert total(samples, "gateway_cache_reads_total", cache="paths", result="hit") == 3
    assert total(samples, "gateway_cache_bytes", cache="values") == found["caches"]["bytes"]
    assert total(samples, "gateway_cache_bytes", cache="indexes") == found["caches"]["indexes"]["bytes"]
    assert total(samples, "gateway_planners_resting") == found["planners_resting"] == 0
    assert "hello" not in str(found)
    assert "Lamp" not in str(found)
