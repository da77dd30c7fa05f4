"""Nothing heavy is loaded before it is needed: neither litellm, numpy nor a tokenizer for a chat that surely fits."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.factory import default_config, sqlite_url
from tests.support.mock_upstream import MockUpstream

SCRIPT = """
import asyncio, json, sys
import httpx
from gateway.app import create_app
from gateway.config.loading import load_settings

async def main():
    app = create_app(load_settings(sys.argv[1], {}))
    events = asyncio.Queue()
    await events.put({"type": "lifespan.startup"})
    told = asyncio.Queue()
    lifespan = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, events.get, told.put))
    assert (await told.get())["type"] == "lifespan.startup.complete"
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        for body in json.loads(sys.argv[2]):
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
    await events.put({"type": "lifespan.shutdown"})
    await lifespan

asyncio.run(main())
"""
HEAVY = {"litellm", "numpy", "tiktoken", "Stemmer", "pypdf", "redis", "asyncpg", "prometheus_client"}


def test_heavy_packages_are_loaded_when_they_are_needed_and_not_before(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    document = "\n\n".join(f"The keeper of lamp {n} is called Name{n}." for n in range(2000))
    short = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    question = [{"role": "user", "content": "Who keeps lamp 77?"}]
    long = {"model": "small", "messages": question, "attachments": [{"content": document}]}
    with MockUpstream() as upstream:
        config.write_text(json.dumps(default_config(upstream, sqlite_url(tmp_path))))
        command = [sys.executable, "-c", SCRIPT, str(config), json.dumps([short, long])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    after_short, after_long = (set(json.loads(line)) for line in done.stdout.splitlines())
    assert not HEAVY & after_short
    assert {"numpy", "Stemmer", "tiktoken"} <= after_long
    assert "litellm" not in after_long, "traffic in OpenAI's protocol needs nothing of it"
