"""Paths under `/v1/` that the gateway does not serve are relayed, here with the client's own key (guarantee §1)."""

import json

import pytest
from openai import OpenAI

from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.sockets import connect


@pytest.fixture
def client(own_key_gateway: GatewayProcess, make_client: ClientFactory) -> OpenAI:
    return make_client(own_key_gateway, api_key="sk-client")


@pytest.mark.parametrize("path", ["/v1/files/../../admin", "/v1/x/%2E%2E%2Fadmin", "/v1/x%0d%0ax: y"])
def test_s1_no_path_means_another_upstream(own_key_gateway: GatewayProcess, upstream: MockUpstream, path: str) -> None:
    """Nothing leads out of the upstream's base, or means to it something else than it says."""
    answer = raw_request(own_key_gateway, f"GET {path.replace(' ', '%20')} HTTP/1.1")
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_relayed"' in answer
    assert not upstream.requests


def raw_request(gateway: GatewayProcess, *lines: str) -> bytes:
    head = [*lines, "Host: gateway", "Authorization: Bearer sk-test", "Connection: close"]
    with connect(gateway.port) as connection:
        connection.send("\r\n".join([*head, "", ""]).encode())
        return connection.read_all()


def test_s1_characters_of_a_path_stay(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Percent-encoded characters go up as they came."""
    upstream.routes["GET /v1/x/ft:a%2Fb%20c~(1)"] = Reply(json={})
    assert raw_request(own_key_gateway, "GET /v1/x/ft:a%2Fb%20c~(1)?a[]=%5B HTTP/1.1").startswith(b"HTTP/1.1 200")
    assert upstream.requests[-1].query == "a[]=%5B"


def test_s1_a_websocket_is_refused(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`/v1/realtime` asks for an upgrade: a plain refusal, and no stack trace."""
    upgrade = ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    connection_line = "Connection: Upgrade"
    answer = raw_request(own_key_gateway, "GET /v1/realtime?model=m HTTP/1.1", *upgrade, connection_line)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "not_relayed"
    assert "Traceback" not in own_key_gateway.log_text()
    assert not upstream.requests
