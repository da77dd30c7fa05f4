"""An upstream that cannot be reached: answer and log name the host and what failed, and nothing that is secret."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support.answers import Json, stored, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.process import free_port

CHAT: Json = {"messages": [user("hello")]}
SECRETS = ("sk-upstream-secret", "/very/private", "tenant-7", "s3cr3t")
KINDS = {
    "refused": "the connection was refused",
    "nowhere": "its name cannot be resolved (DNS)",
    "no name": "its name cannot be resolved (DNS)",
    "no TLS": "the TLS connection could not be made",
    "silent": "it did not accept a connection in time (timeout)",
    "cut": "the connection was cut before an answer",
}
UNUSABLE = {"no address": "http://:0", "another scheme": "ftp://127.0.0.1"}


@contextmanager
def curt(said: bytes) -> Iterator[int]:
    """The port of a server that reads something, says the same to everyone and hangs up."""

    class Hang(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hang) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, str]]:
    """Addresses at which each thing goes wrong, by its name."""
    with ExitStack() as stack:
        plain = stack.enter_context(curt(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        cut = stack.enter_context(curt(b""))
        full = stack.enter_context(socket.socket())  # its queue is full: the next connection is not accepted
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield {
            "refused": f"http://user:s3cr3t@127.0.0.1:{free_port()}",
            "nowhere": "http://no-such-host.invalid:8080",
            "no name": f"http://{'a' * 70}.example:8080",
            "no TLS": f"https://127.0.0.1:{plain}",
            "silent": f"http://127.0.0.1:{full.getsockname()[1]}",
            "cut": f"http://127.0.0.1:{cut}",
            **UNUSABLE,
        }


@pytest.fixture(scope="module")
def module_lost(module_start_gateway: GatewayFactory, hosts: dict[str, str]) -> GatewayProcess:
    def entry(name: str, base: str) -> Json:
        params: dict[str, Any] = {"model": "openai/gpt-4o", "api_base": base, "api_key": "sk-upstream-secret"}
        return {"model_name": name, "litellm_params": {**params, "timeout": {"connect": 1.0}}}

    models = [entry(name, f"{base}/very/private/v1?key=tenant-7") for name, base in hosts.items()]
    return module_start_gateway({"model_list": models})


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("kind", [*KINDS, *UNUSABLE])
def test_s7_host_and_kind_of_failure_are_told(
    module_lost: GatewayProcess, hosts: dict[str, str], kind: str, streamed: bool
) -> None:
    """502 `upstream_unreachable` with both, in the log, too; no key, user, path or query in either. It cost nothing."""
    answer = module_lost.post("/chat/completions", json={**CHAT, "model": kind, "stream": streamed})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "upstream_unreachable")
    if kind in UNUSABLE:
        assert error["message"] == "The upstream's address is not usable."
    else:
        host = hosts[kind].rpartition("/")[2].rpartition("@")[2]
        assert f"The upstream {host} could not be reached: {KINDS[kind]}" in error["message"]
        line = module_lost.logged(answer.headers["x-request-id"])
        told = (line["error_code"], line["reason"], line["upstream"])
        assert told == ("upstream_unreachable", error["message"], host)
    bill = stored(module_lost, answer.headers["x-request-id"])
    cost = bill["response_metadata"]["cost"]
    assert (bill["status"], cost["total_cost"], cost["estimated"]) == ("failed", 0, False)
    assert not [secret for secret in SECRETS if secret in answer.text + module_lost.log_text()]
