"""What relayed calls cost stands on the ledger, and nothing of them changes for that (guarantee §13.8)."""

from decimal import Decimal

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.metered_relay import audited, billed, post
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import PostgresProcess
from tests.support.process import wait_until
from tests.support.relayed import total
from tests.support.sockets import connect


def test_s13_8_a_request_that_never_came_whole_has_no_bill(
    own_key_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """No model was asked: the client left while it sent."""
    before = len(audited(own_key_gateway))
    opened = upstream.connections_opened
    head = "POST /v1/embeddings HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer sk-test\r\nContent-Length: 100\r\n\r\n"
    client = connect(own_key_gateway.port)
    client.send(head.encode() + b'{"model": "m", ')
    wait_until(lambda: upstream.connections_opened > opened, "what is passed on")
    client.close()
    wait_until(lambda: "client_disconnected" in own_key_gateway.log_text(), "the end of the call")
    answer = post(own_key_gateway, "/embeddings", {"model": "text-embedding-3-small", "input": "x"})
    billed(own_key_gateway, answer)
    assert len(audited(own_key_gateway)) == before + 1


def test_s13_8_storage_that_is_away_costs_a_call_nothing(
    start_gateway: GatewayFactory, chaos_postgres: PostgresProcess, upstream: MockUpstream
) -> None:
    """The answer comes; the bill waits in memory until it can be written."""
    config = {"storage": {"url": chaos_postgres.new_database(), "timeout": 0.4}, "model_list": []}
    served = {"api_base": upstream.base_url, "api_key": "sk-operator"}
    gateway = start_gateway({**config, "upstream": served})
    asked = {"model": "text-embedding-3-small", "input": "one two"}
    billed(gateway, post(gateway, "/embeddings", asked))
    chaos_postgres.kill9()
    answer = post(gateway, "/embeddings", asked)
    assert answer.json()["usage"]["prompt_tokens"] == 2
    wait_until(lambda: "bill_not_recorded_yet" in gateway.log_text(), "the waiting bill")
    chaos_postgres.start()
    assert total(billed(gateway, answer)) == 2 * Decimal("2e-08")
