"""Nothing heavy is loaded before it is needed, and what will be needed is loaded before its first request comes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import anthropic_wire
from tests.support.factory import default_config
from tests.support.http_server import Answer, Record, ThreadedHttpServer
from tests.support.mock_upstream import MockUpstream
from tests.support.schemas import sqlite_url

SCRIPT = """
import asyncio, json, sys
from gateway.app import Gateway
from gateway.app import create_app
from gateway.core.config.loading import load_settings
from gateway.operations.warm_up import WarmUp
from gateway.context.tokens.counter import _encoding
import httpx

done = asyncio.Event()
run = WarmUp.run

async def warm_up(self):
    if sys.argv[3] == "warm":
        self._after = 0
        await run(self)
        done.set()

WarmUp.run = warm_up

async def main():
    app = create_app(load_settings(sys.argv[1], {}))
    events = asyncio.Queue()
    await events.put({"type": "lifespan.startup"})
    told = asyncio.Queue()
    lifespan = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, events.get, told.put))
    assert (await told.get())["type"] == "lifespan.startup.complete"
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answered = 0
        while sys.argv[3] == "warm" and not done.is_set():
            assert (await client.get("/health/ready")).status_code == 200
            answered += not done.is_set()
            await asyncio.sleep(0.02)
        print(json.dumps([sorted(sys.modules), _encoding.cache_info().misses, answered]))
        for body in json.loads(sys.argv[2]):
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            print(json.dumps([sorted(sys.modules), _encoding.cache_info().misses, answered]))
    await events.put({"type": "lifespan.shutdown"})
    await lifespan

asyncio.run(main())
"""
HEAVY = {
    "litellm",
    "numpy",
    "Stemmer",
    "pypdf",
    "redis",
    "asyncpg",
    "prometheus_client",
    "opentelemetry",
    "mcp",
    "joserfc",
    "rich",
}
COLD, WARM = "cold", "warm"
DOCUMENT = "\n\n".join(f"The keeper of lamp {n} is called Name{n}." for n in range(2000))


class Loaded:
    """What is loaded at a moment: modules, vocabularies; and how often the server answered while it was warmed up."""

    def __init__(self, line: str) -> None:
        modules, self.vocabularies, self.answered = json.loads(line)
        self.modules = set(modules)
        self.packages = {name.partition(".")[0] for name in modules}


def run(config: Path, how: str, *bodies: Any) -> list[Loaded]:
    """Sends chats to a gateway in a process of its own. Returns what is loaded before them, and after each."""
    command = [sys.executable, "-c", SCRIPT, str(config), json.dumps(bodies), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert "warm_up_failed" not in done.stderr
    return [Loaded(line) for line in done.stdout.splitlines()]


def test_heavy_packages_are_loaded_when_they_are_needed_and_not_before(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    short = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    question = [{"role": "user", "content": "Who keeps lamp 77?"}]
    long = {"model": "small", "messages": question, "attachments": [{"content": DOCUMENT}]}
    with MockUpstream() as upstream:
        config.write_text(json.dumps(default_config(upstream, sqlite_url(tmp_path))))
        _, after_short, after_long = run(config, COLD, short, long)
    assert not HEAVY & after_short.packages
    assert "jinja2" not in after_short.packages, "the page is loaded when it is opened"
    assert {"numpy", "Stemmer", "tiktoken"} <= after_long.packages
    assert "litellm" not in after_long.packages, "traffic in OpenAI's protocol needs nothing of it"


@pytest.mark.chaos
def test_what_counts_an_abandoned_stream_is_loaded_once_the_server_answers(tmp_path: Path) -> None:
    """§6.5: answers without usage are counted here. No request waits for a vocabulary of a configured model."""
    config = tmp_path / "config.json"
    with MockUpstream() as upstream:
        served = {"api_base": upstream.base_url, "api_key": "sk-x"}
        names = ("gpt-4o", "gpt-4")  # by two vocabularies
        models = [{"model_name": each, "litellm_params": {"model": f"openai/{each}", **served}} for each in names]
        config.write_text(json.dumps({**default_config(upstream, sqlite_url(tmp_path)), "model_list": models}))
        bodies: list[Any] = [{"model": each, "messages": [{"role": "user", "content": "hi"}]} for each in names]
        for _ in bodies:
            upstream.reply(text="an answer that is not counted", usage=None)
        ready, *_, counted = run(config, WARM, *bodies)
    assert "tiktoken" in ready.packages
    assert ready.vocabularies == counted.vocabularies == len(names)


@pytest.mark.chaos
def test_the_first_reduced_request_loads_nothing_more(tmp_path: Path) -> None:
    """With no model configured; the server answers while it is warmed up."""
    config = tmp_path / "config.json"
    question = [{"role": "user", "content": "Who keeps lamp 77?"}]
    context = {"max_input_tokens": 2000, "planning": "never"}
    body = {"model": "gpt-4o", "messages": question, "attachments": [{"content": DOCUMENT}], "context": context}
    with MockUpstream() as upstream:
        config.write_text(
            json.dumps({"upstream": {"api_base": upstream.base_url}, "storage": {"url": sqlite_url(tmp_path)}})
        )
        ready, asked = run(config, WARM, body)
        assert len(str(upstream.last.body)) < len(DOCUMENT), "it was not reduced"
    assert {"numpy", "Stemmer", "tiktoken"} <= ready.packages
    assert "litellm" not in ready.packages, "no configured model goes through it"
    assert asked.modules - ready.modules == set()
    assert asked.vocabularies == ready.vocabularies
    assert ready.answered > 0


@pytest.mark.chaos
def test_the_first_request_through_litellm_loads_nothing_more(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    answer = json.dumps(anthropic_wire.message(anthropic_wire.text("Hello."))).encode()
    asked: list[Record] = []

    def respond(record: Record) -> Answer:
        asked.append(record)
        return Answer(200, [("content-type", "application/json")], [answer])

    server = ThreadedHttpServer(respond)
    server.start()
    try:
        served = {"api_base": f"http://127.0.0.1:{server.port}", "api_key": "sk-x"}
        entry = {"model_name": "claude", "litellm_params": {"model": "anthropic/claude-sonnet-4-5", **served}}
        config.write_text(json.dumps({"model_list": [entry], "storage": {"url": sqlite_url(tmp_path)}}))
        body = {"model": "claude", "messages": [{"role": "user", "content": "Hello?"}]}
        ready, after = run(config, WARM, body)
    finally:
        server.stop()
    assert "litellm.main" in ready.modules
    assert after.modules - ready.modules == set()
    assert len(asked) == 1, "what was rehearsed went nowhere"
    assert ready.answered > 0


LOOKING: dict[str, set[str]] = {
    "keys list": {"gateway.storage.store", "gateway.pipeline", "gateway.core.types.records"},
    "requests": {"gateway.storage.store", "gateway.pipeline"},
    "show req_x": {
        *("gateway.storage.store", "gateway.pipeline", "gateway.documents", "gateway.upstream"),
        *("gateway.context.assembly.render", "gateway.core.types.records", "gateway.core.types.chat"),
    },
    "files ls": {"gateway.storage.store", "gateway.pipeline", "gateway.documents", "gateway.upstream"},
    "config": {"sqlalchemy"},
}
"""Commands, and what else none of them needs."""


@pytest.mark.parametrize("words", LOOKING)
def test_a_command_that_looks_loads_little(tmp_path: Path, words: str) -> None:
    """Its start is what most of its time goes to."""
    code = "import json, sys; from gateway.cli import main; main(sys.argv[1:]); print(json.dumps([*sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    unwanted = {*HEAVY, "rich", "starlette", "httpx", "sqlalchemy.dialects.postgresql", *LOOKING[words]}
    assert not loaded & unwanted
