"""What the process keeps, and how often that was of use: `/health/ready?details=1` and `/metrics` (guarantee §11.9)."""

import httpx

from tests.support.answers import Json, http, user
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.unit.pipeline.test_metrics import scrape, total

KEY = {"auth": {"keys": [{"key": "sk-gateway-key", "tenant": "a"}]}}


def details(gateway: GatewayProcess, key: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{gateway.url}/health/ready?details=1", headers=headers, trust_env=False)


def test_s11_9_who_may_see_details(start_gateway: GatewayFactory) -> None:
    """§11.9: with keys their holders alone; without, whoever reaches a server on loopback. The plain answer stays."""
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
    with http(gateway) as client:
        for number in range(5):
            body: Json = {"model": "small", "messages": [user(f"hello {number}")], "conversation": conversation}
            conversation = client.post("/chat/completions", json=body).json()["conversation"]["id"]
        upstream.handler = InternalModels(every("summarize"))
        ask = {"model": "small", "messages": [user("hello")], "attachments": [{"title": "Lamps", "content": lamps(60)}]}
        for _ in range(2):
            assert client.post("/chat/completions", json=ask).status_code == 200
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
