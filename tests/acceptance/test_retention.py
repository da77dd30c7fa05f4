"""Conversations that nothing is added to for long go by themselves, or by `gateway purge`."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.answers import Json, chat, user
from tests.support.command import config_file, gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until

BODY = {"model": "gpt-4o", "messages": [user("remember me")]}


def known(gateway: GatewayProcess, conversation: str) -> bool:
    """Whether the conversation can be asked for."""
    return gateway.get("/chat/completions", params={"conversation": conversation}).status_code == 200


def start(gateway: GatewayProcess) -> str:
    """A new conversation's id."""
    return str(chat(gateway, **BODY)["conversation"]["id"])


def test_what_nothing_was_added_to_goes_by_itself(start_gateway: GatewayFactory, storage_url: str) -> None:
    """`conversation.retention_days`; afterwards its id is a 404, and its bill stays."""
    gateway = start_gateway({"conversation": {"retention_days": 2e-5}, "storage": {"url": storage_url}})
    conversation = start(gateway)
    wait_until(lambda: not known(gateway, conversation), "the conversation is still there")
    answer = gateway.post("/chat/completions", json={**BODY, "conversation": conversation})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "conversation_not_found")
    audit = gateway_command("audit", "--config", str(gateway.config_path), directory=gateway.directory)
    assert (audit.returncode, "all 1 rows balance" in audit.stdout) == (0, True), audit.stdout


def test_what_a_request_is_at_work_on_stays(
    start_gateway: GatewayFactory, storage_url: str, upstream: MockUpstream
) -> None:
    """§3.6: a turn counts as answered once the client got it, so its conversation is there, however long it took."""
    gateway = start_gateway({"conversation": {"retention_days": 2e-5}, "storage": {"url": storage_url}})
    named = {"context": {"session": "new"}}
    gate = threading.Event()
    for text in ("late", "later"):
        upstream.reply(text=text, gate=gate)

    def ask(more: Json) -> Json:
        found: Json = gateway.post("/chat/completions", json={**BODY, **more}).json()
        kept = gateway.get(f"/conversations/{found['conversation']['id']}")
        return {**found, "kept": kept.status_code}

    with gateway.http() as client, ThreadPoolExecutor() as pool:
        used, unused = (client.post("/conversations", json={}).json()["id"] for _ in range(2))
        asked = [pool.submit(ask, more) for more in ({"conversation": used}, named)]
        upstream.wait_for_chats(2)
        gone = f"/conversations/{unused}"
        wait_until(lambda: client.get(gone).status_code == 404, "the other one is still there")
        gate.set()
        assert [each.result()["kept"] for each in asked] == [200, 200]
    wait_until(lambda: not known(gateway, used), "its time is over, too")


def test_purge_says_how_many_and_deletes_them(gateway: GatewayProcess) -> None:
    """§9: beside a running server; `--dry-run` deletes nothing."""
    conversation = start(gateway)
    config = ("--config", str(gateway.config_path))

    def purge(*options: str) -> tuple[int, str]:
        done = gateway_command("purge", *config, *options, directory=gateway.directory)
        return done.returncode, done.stdout + done.stderr

    assert purge() == (2, "--older-than is needed, as conversation.retention_days is not set\n")
    assert purge("--older-than", "soon")[0] == 2
    code, text = purge("--older-than", "0s", "--dry-run")
    assert (code, text.endswith("would be deleted\n")) == (0, True), text
    code, text = purge("--older-than", "1d")
    assert (code, text.startswith("0 conversations")) == (0, True), text
    code, text = purge("--older-than", "0s", "--tenant", "nobody")
    assert (code, text.startswith("0 conversations")) == (0, True), text
    assert known(gateway, conversation)
    code, text = purge("--older-than", "0s")
    assert (code, text.endswith(": deleted\n")) == (0, True), text
    assert not known(gateway, conversation)


def test_purge_makes_no_database_where_there_is_none(tmp_path: Path) -> None:
    """A wrong address is told, not made true."""
    config = config_file(tmp_path, "storage: {url: 'sqlite:///nowhere.db'}")
    done = gateway_command("purge", "--config", str(config), "--older-than", "1d", directory=tmp_path)
    assert (done.returncode, "There is no database file at nowhere.db." in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "nowhere.db").exists()
