"""`GET /metrics`, read as Prometheus reads it."""

from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateway_process import GatewayProcess


def scrape(gateway: GatewayProcess, **headers: str) -> list[Any]:
    """All samples, read as Prometheus reads them."""
    answer = httpx.get(f"{gateway.url}/metrics", headers=headers, trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]


def total(samples: list[Any], name: str, **labels: str) -> float:
    """The sum of a metric over all samples with these labels."""
    return float(sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items()))
