"""`server.cors_origins`: which pages of other origins may be clients (guarantee §9)."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.answers import user
from tests.support.command import config_file, gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

PAGE, OTHER = "https://app.example.org", "https://elsewhere.example.org"
CHAT = {"model": "small", "messages": [user("hi")]}
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
ALLOWED = "access-control-allow-origin"


def send(
    gateway: GatewayProcess, method: str, path: str, origin: str | None, body: Any = None, **more: str
) -> httpx.Response:
    headers = {"authorization": "Bearer sk-test", **more} | ({"origin": origin} if origin else {})
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=30) as client:
        return client.request(method, path, headers=headers, json=body)


@pytest.fixture
def open_to_a_page(start_gateway: GatewayFactory) -> GatewayProcess:
    return start_gateway({"server": {"cors_origins": [PAGE]}})


def test_s9_no_origin_unless_configured(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Nor may it ask at all where it would spend an operator's key (guarantee §10.16)."""
    answer = send(one_gateway, "POST", "/chat/completions", PAGE, body=CHAT)
    assert answer.status_code == 403
    assert not upstream.chats
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_s9_a_page_of_a_configured_origin_is_a_client(open_to_a_page: GatewayProcess) -> None:
    """Preflight, answer, stream, error: it may read each of them, and their headers."""
    asked = send(open_to_a_page, "OPTIONS", "/chat/completions", PAGE, **ASKED)
    assert (asked.status_code, asked.headers[ALLOWED]) == (200, PAGE)
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "authorization" in asked.headers["access-control-allow-headers"]
    assert asked.headers["x-request-id"].startswith("req_")
    for body in (CHAT, {**CHAT, "stream": True}, {"model": "small"}, {"model": "no such model", **CHAT}):
        answer = send(open_to_a_page, "POST", "/chat/completions", PAGE, body=body)
        assert answer.headers[ALLOWED] == PAGE, body
        assert answer.headers["access-control-expose-headers"] == "*"
        assert "Origin" in answer.headers["vary"]
        assert "access-control-allow-credentials" not in answer.headers


def test_s9_a_page_of_another_origin_is_none(open_to_a_page: GatewayProcess) -> None:
    asked = send(open_to_a_page, "OPTIONS", "/chat/completions", OTHER, **ASKED)
    assert asked.status_code == 400
    assert ALLOWED not in asked.headers
    assert ALLOWED not in send(open_to_a_page, "POST", "/chat/completions", OTHER, body=CHAT).headers
    assert ALLOWED not in send(open_to_a_page, "POST", "/chat/completions", None, body=CHAT).headers


def test_s9_a_star_is_any_origin(start_gateway: GatewayFactory) -> None:
    gateway = start_gateway({"server": {"cors_origins": ["*"]}})
    assert send(gateway, "OPTIONS", "/chat/completions", OTHER, **ASKED).headers[ALLOWED] == "*"
    assert send(gateway, "POST", "/chat/completions", OTHER, body=CHAT).headers[ALLOWED] == "*"


def test_s9_relayed_answers_say_nothing_of_the_upstreams_pages(
    open_to_a_page: GatewayProcess, one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Who may read an answer is the gateway's to say."""
    for gateway, expected in ((one_gateway, None), (open_to_a_page, PAGE)):
        upstream.reply(headers={ALLOWED: "https://the-upstreams-own.example.org"})
        answer = send(gateway, "POST", "/embeddings", PAGE, body={"model": "small", "input": "x"})
        assert answer.headers.get(ALLOWED) == expected


@pytest.mark.parametrize("origin", ["app.example.org", "https://app.example.org/", "https://", "ftp://x", "null"])
def test_s9_what_is_no_origin_is_named(tmp_path: Path, origin: str) -> None:
    config = config_file(tmp_path, f"server: {{cors_origins: ['{origin}']}}")
    done = gateway_command("check", "--config", str(config), directory=tmp_path)
    assert done.returncode != 0
    assert "server.cors_origins" in done.stdout + done.stderr
