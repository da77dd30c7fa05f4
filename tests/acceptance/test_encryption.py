"""Stored content under a key, seen from outside (guarantee §12.11): what databases and caches hold, and what starts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from redis import Redis

from tests.chaos.audit import all_rows
from tests.support.answers import Json, user
from tests.support.command import gateway_command
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import ProcessError
from tests.support.summaries import Chat
from tests.support.tool_loop import TOOLS, call, calls, result
from tests.support.valkey import Valkey
from tests.support.web_page import PageClient

FIRST, SECOND = "11" * 32, "22" * 32
NAME = "GATEWAY_STORAGE_ENCRYPTION_KEY"
CANARY = "zanzibar"
IN_CLEAR = re.compile(CANARY, re.IGNORECASE)
ASKED: Json = {"type": "workflow", "id": "wf_1", "name": f"{CANARY} orders", "aliases": [f"{CANARY} lamps"]}


def posted(gateway: GatewayProcess, path: str, body: Json) -> Json:
    answer = gateway.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json() if answer.headers["content-type"].startswith("application/json") else {}
    return found


def chat(gateway: GatewayProcess, *messages: Json, **more: Any) -> Json:
    return posted(gateway, "/chat/completions", {"model": "small", "messages": list(messages), **more})


def lived_in(gateway: GatewayProcess, upstream: MockUpstream) -> str:
    """A conversation with all that can be kept of one, each with the canary in it. Returns its id."""
    models = InternalModels(every("summarize", summarization_focus=CANARY), lambda _: Reply(text=f"All {CANARY}."))
    upstream.handler = models
    document = {"title": f"{CANARY} list", "content": f"{CANARY}\n{lamps(60)}"}
    system = {"role": "system", "content": f"You know {CANARY}."}
    more: Json = {"metadata": {"note": CANARY}, "memory": {"remember": [ASKED]}}
    answer = chat(gateway, system, user(f"What of {CANARY}?"), attachments=[document], **more)
    conversation = str(answer["conversation"]["id"])
    with OpenAI(base_url=gateway.base_url, api_key="sk-test") as client:  # to the first summary of old turns
        Chat(gateway, models, client, memory="summary", conversation=conversation).fill(2)
    upstream.handler = None
    upstream.reply(message=calls(call("call_1", query=CANARY)), finish_reason="tool_calls")
    chat(gateway, user(f"Look {CANARY} up"), tools=TOOLS, conversation=conversation, context={"planning": "never"})
    upstream.reply(text=f"{CANARY} was found")
    chat(gateway, result("call_1", CANARY), tools=TOOLS, conversation=conversation, context={"planning": "never"})
    upstream.handler = lambda record: Reply(text=f"again {CANARY}")
    tool = {"type": "function", "function": {"name": "look", "description": CANARY}}
    posted(gateway, f"/conversations/{conversation}/replay", {"from_turn": 2, "parameters": {"tools": [tool]}})
    chat(gateway, user(f"And {CANARY}?"), conversation=conversation, agent={"id": "max", "type": "claude-code"})
    gateway.post(f"/conversations/{conversation}", json={"metadata": {"about": CANARY}, "team_task": CANARY})
    upstream.handler = None
    return conversation


def in_clear(storage_url: str) -> list[str]:
    """Columns with the canary, by table."""
    found = set()
    for table, each in all_rows(storage_url).items():
        found |= {f"{table}.{name}" for row in each for name, value in row.items() if IN_CLEAR.search(_text(value))}
    return sorted(found)


def _text(value: Any) -> str:
    return bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value)


def cached_in_clear(valkey: Valkey) -> tuple[list[str], int]:
    """Keys of Valkey with the canary in them or in what they hold; how many hold anything."""
    found, count = [], 0
    with Redis.from_url(valkey.url) as client:
        for key in client.scan_iter():
            if client.type(key) == b"string":
                count += 1
                value: Any = client.get(key)
                if IN_CLEAR.search(_text(key + value)):
                    found.append(key.decode())
    return found, count


@pytest.fixture
def start(start_gateway: GatewayFactory, storage_url: str, valkey: Valkey) -> Callable[..., GatewayProcess]:
    """Starts a gateway on one storage and Valkey, with these keys in its environment."""

    def starting(key: str | None = None, before: str | None = None, **more: Any) -> GatewayProcess:
        env = {name: value for name, value in ((NAME, key), (f"{NAME}S_BEFORE", before)) if value is not None}
        cache = {"url": valkey.url, "timeout": 2.0}
        config = {"storage": {"url": storage_url}, "cache": cache, "context": {"planning": "auto"}}
        return start_gateway(config, env, **more)

    return starting


def test_s12_11_nothing_of_a_whole_conversation_is_kept_in_clear(
    start: Callable[..., GatewayProcess], upstream: MockUpstream, storage_url: str, valkey: Valkey
) -> None:
    gateway = start(FIRST)
    conversation = lived_in(gateway, upstream)
    assert in_clear(storage_url) == []
    found, count = cached_in_clear(valkey)
    assert (found, count > 0) == ([], True)
    items = gateway.get(f"/conversations/{conversation}/items").text
    exported = gateway.get(f"/conversations/{conversation}/export").text
    things = gateway.get(f"/memory?query={CANARY}").text
    assert all(CANARY in text and "\\u001aenc" not in text for text in (items, exported, things))


@pytest.mark.chaos
def test_s12_11_a_process_without_the_key_does_not_start(
    start: Callable[..., GatewayProcess], upstream: MockUpstream
) -> None:
    gateway = start(FIRST)
    chat(gateway, user(CANARY), context={"planning": "never"})
    for key in (None, SECOND):
        other = start(key, start=False)
        with pytest.raises(ProcessError):
            other.start()
        assert "keys that are not configured" in other.log_text()
        done = gateway_command("check", "--config", str(other.config_path), directory=other.directory, env=other.env)
        assert done.returncode == 1
        assert "keys that are not configured" in done.stdout
    upstream.reply(text="ok")
    other = start(SECOND, FIRST)
    chat(other, user("next"), context={"planning": "never"})


@pytest.mark.chaos
def test_s12_11_the_command_seals_what_was_stored_before(
    start: Callable[..., GatewayProcess], upstream: MockUpstream, storage_url: str, valkey: Valkey
) -> None:
    """Plain rows first, in which the canary is found; then a second key takes the place of the first, beside a running
    server."""
    conversation = lived_in(start(), upstream)
    tables = {name.partition(".")[0] for name in in_clear(storage_url)}
    assert {"conversations", "messages", "reasoning_events", "attachments", "completions", "instructions"} <= tables
    assert {"things", "thing_aliases", "replays", "ledger", "summaries"} <= tables
    assert cached_in_clear(valkey)[0]

    def command(gateway: GatewayProcess, *words: str) -> str:
        done = gateway_command(
            *words, "--config", str(gateway.config_path), directory=gateway.directory, env=gateway.env
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    gateway = start(FIRST)
    assert "rows plain" in command(gateway, "check")
    assert re.search(r"^messages: \d+ rows plain, sealed now$", command(gateway, "encrypt"), re.MULTILINE)
    assert in_clear(storage_url) == []
    assert "all of it is under storage.encryption_key" in command(gateway, "check")
    second = start(SECOND, FIRST)
    assert "nothing is under these keys any more" in command(second, "encrypt")
    assert command(second, "trail", "list", "--action", "storage.encrypted").count("storage.encrypted") == 2
    alone = start(SECOND)
    assert CANARY in alone.get(f"/conversations/{conversation}/items").text
    assert CANARY in alone.get(f"/memory?query={CANARY}").text


def test_s13_9_a_search_of_sealed_text_says_that_it_can_find_none(start: Callable[..., GatewayProcess]) -> None:
    gateway = start(FIRST)
    chat(gateway, user(CANARY), context={"planning": "never"})
    for command in ("ls", "requests"):
        for words, is_told in (((CANARY,), True), ((), False)):
            done = gateway_command(
                command, *words, *("--config", str(gateway.config_path)), directory=gateway.directory, env=gateway.env
            )
            assert ("messages are encrypted" in done.stderr) == is_told, command
            assert (CANARY in done.stdout) != is_told
    with PageClient(gateway.url) as browser:
        for page in ("conversations", "requests"):
            assert "Messages are encrypted" in browser.page(f"/ui/{page}?text={CANARY}").text
            assert "Messages are encrypted" not in browser.page(f"/ui/{page}").text


@pytest.mark.in_turn("store")
@pytest.mark.parametrize("store", ["database", "disk"])
@pytest.mark.chaos
def test_s14_5_the_command_seals_contents_of_files(
    start_gateway: GatewayFactory, storage_url: str, tmp_path: Path, store: str
) -> None:
    """A key that contents of files are under is noted until they are not, also where they cannot be read now."""

    def gateway(key: str | None, before: str | None = None, folder: str = "kept") -> GatewayProcess:
        env = {name: value for name, value in ((NAME, key), (f"{NAME}S_BEFORE", before)) if value is not None}
        files = {"serve": "on", "store": store, "path": str(tmp_path / folder)}
        return start_gateway({"storage": {"url": storage_url}, "files": files}, env)

    def command(of: GatewayProcess, *words: str) -> tuple[int, str]:
        done = gateway_command(*words, "--config", str(of.config_path), directory=of.directory, env=of.env)
        return done.returncode, done.stdout

    with OpenAI(base_url=gateway(None).base_url, api_key="sk-test") as client:
        made = client.files.create(file=("a.txt", CANARY.encode() * 400_000), purpose="user_data")
    first = gateway(FIRST)
    assert "contents of files: 1 row plain, sealed now" in command(first, "encrypt")[1]
    if store == "database":
        assert in_clear(storage_url) == []
    else:
        assert [CANARY.encode() in each.read_bytes() for each in tmp_path.glob("kept/*/*")] == [False]
    assert "all of it is under storage.encryption_key" in command(first, "check")[1]
    if store == "disk":
        elsewhere = gateway(SECOND, FIRST, "other")
        code, told = command(elsewhere, "encrypt")
        assert (code, "1 left as they are" in told, "nothing is under these keys" in told) == (1, True, False)
    second = gateway(SECOND, FIRST)
    assert re.search(r"\d+ rows? under key", command(second, "check")[1])
    code, told = command(second, "encrypt")
    assert (code, "nothing is under these keys any more" in told) == (0, True)
    with OpenAI(base_url=gateway(SECOND).base_url, api_key="sk-test") as client:
        assert client.files.content(made.id).content == CANARY.encode() * 400_000
