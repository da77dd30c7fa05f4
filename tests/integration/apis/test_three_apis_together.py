"""§10, §13: what the three APIs share at their edges: paths, sums, and what is kept of whom."""

from typing import Any

import httpx
import pytest

from tests.support.answers import Json
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

SAID: Json = {"role": "user", "content": "hello"}


@pytest.fixture
def nobody(start_gateway: GatewayFactory, upstream: MockUpstream) -> GatewayProcess:
    """A gateway that keeps nobody's name."""
    del upstream
    return start_gateway({"accounting": {"users": "off"}})


def post(gateway: GatewayProcess, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{gateway.base_url}/{path}", json={"model": "gpt-4o", **body}, timeout=30)


def three(gateway: GatewayProcess) -> None:
    """The same asked by each API."""
    assert post(gateway, "chat/completions", messages=[SAID]).status_code == 200
    assert post(gateway, "responses", input="hello").status_code == 200
    assert post(gateway, "messages", messages=[SAID], max_tokens=9).status_code == 200


def test_s13_4_usage_counts_what_each_api_asked(gateway: GatewayProcess) -> None:
    three(gateway)
    query: Json = {"start_time": 1_700_000_000, "bucket_width": "1d", "limit": 31}
    page: Json = {"next_page": ""}
    counted = 0
    while page["next_page"] is not None:
        asked = query | ({"page": page["next_page"]} if page["next_page"] else {})
        page = httpx.get(f"{gateway.base_url}/organization/usage/completions", params=asked, timeout=30).json()
        counted += sum(each["num_model_requests"] for bucket in page["data"] for each in bucket["results"])
    assert counted == 3


@pytest.mark.parametrize("path", ["responses/", "messages/"])
def test_s10_a_slash_behind_a_path_sends_nobody_elsewhere(gateway: GatewayProcess, path: str) -> None:
    body = {"input": "hello"} if path == "responses/" else {"messages": [SAID], "max_tokens": 9}
    found = httpx.post(
        f"{gateway.base_url}/{path}", json={"model": "gpt-4o", **body}, headers={"host": "elsewhere.local"}, timeout=30
    )
    assert (found.status_code, "location" in found.headers) == (200, False)


def test_s13_6_a_response_keeps_no_name_where_none_is_kept(nobody: GatewayProcess) -> None:
    made = post(nobody, "responses", input="hello", user="ann@example.org").json()
    found = httpx.get(f"{nobody.base_url}/responses/{made['id']}", timeout=30).json()
    assert found["output"] == made["output"]
    assert "ann@example.org" not in str(found)


def test_s10_5_a_response_that_is_unknown_is_told_under_its_own_name(gateway: GatewayProcess) -> None:
    name = "resp_0123456789abcdef"
    found = httpx.get(f"{gateway.base_url}/responses/{name}", timeout=30)
    assert (found.status_code, f"'{name}'" in found.json()["error"]["message"]) == (404, True)
    made = post(gateway, "responses", input="hello").json()
    stopped = httpx.post(f"{gateway.base_url}/responses/{made['id']}/cancel", json={}, timeout=30)
    assert (stopped.status_code, "synchronous" in stopped.json()["error"]["message"]) == (400, True)
