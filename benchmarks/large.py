"""Large documents: 200 MB of text in a conversation, as four attachments of 50 MB (guarantee §14.7).

`python -m benchmarks.large [sqlite|postgres] [MB of each]`: how long it takes to send and to index them, what the
storage takes, what a question costs more than one without documents, and the gateway's memory.
"""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.services import own_postgres

DOCUMENTS = 4
QUESTIONS = 20
WORDS = 50_000
"""Different words of the text; how often each is in it falls off as in a language."""
MODEL = "gpt-4o"
BUDGET = 8_000


def text_of(number: int, chars: int) -> str:
    """A text with a fact in each of its parts, the same for the same number."""
    rng = random.Random(number)
    letters = "abcdefghijklmnopqrstuvwxyz"
    known = ["".join(rng.choices(letters, k=rng.randint(3, 10))) for _ in range(WORDS)]
    weights = [1 / (rank + 1) for rank in range(WORDS)]
    pieces: list[str] = []
    size = 0
    while size < chars:
        part = " ".join(rng.choices(known, weights, k=2_000))
        piece = f"{part}\n\nThe keeper of lighthouse{number}x{len(pieces)} is Name{len(pieces) * 7}y.\n\n"
        pieces.append(piece)
        size += len(piece)
    return "".join(pieces)


def ask(client: httpx.Client, conversation: Any, question: str, **more: Any) -> tuple[float, Any]:
    context = {"max_input_tokens": BUDGET}
    body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "context": context, **more}
    if conversation:
        body["conversation"] = conversation
    began = time.perf_counter()
    answer = client.post("/chat/completions", json=body)
    took = time.perf_counter() - began
    answer.raise_for_status()
    return took, answer.json()


def measure(gateway: GatewayProcess, upstream: MockUpstream, chars: int) -> None:
    """Prints all figures."""
    with httpx.Client(base_url=gateway.base_url, headers={"authorization": "Bearer sk-test"}, timeout=600) as client:
        _, plain = ask(client, None, "Hello.")
        for _ in range(5):
            ask(client, plain["conversation"], "Warm?")
        base = gateway.rss_mb()
        conversation, sent = None, 0.0
        for number in range(DOCUMENTS):
            document = {"title": f"Log {number}", "content": text_of(number, chars)}
            took, answer = ask(client, conversation, "Hello.", attachments=[document])
            conversation, sent = answer["conversation"], sent + took
            print(f"sent {number}: {took:.1f} s, RSS {gateway.rss_mb():.0f} MB, peak {gateway.peak_mb():.0f} MB")
        began = time.perf_counter()
        name = conversation["id"] if isinstance(conversation, dict) else conversation
        url = f"/conversations/{name}/attachments"
        while any(each["index"]["status"] != "ready" for each in client.get(url).json()["data"]):
            time.sleep(0.5)
        built = time.perf_counter() - began
        print(f"sent in {sent:.1f} s, indexed {built:.1f} s after the last; base {base:.0f} MB")
        without, within, missed = [], [], 0
        for number in range(QUESTIONS):
            part = number * 97 % (chars // 20_000)
            question = f"Who is the keeper of lighthouse{number % DOCUMENTS}x{part}?"
            without.append(ask(client, plain["conversation"], question)[0])
            within.append(ask(client, conversation, question)[0])
            if f"Name{part * 7}y" not in str(upstream.last.body):
                missed += 1
        one, other = (1000 * statistics.median(each) for each in (without, within))
        most = 1000 * max(within)
        print(
            f"a question: {other:.0f} ms (most {most:.0f}), {one:.0f} ms without documents; added {other - one:.0f} ms"
        )
        named = [ask(client, conversation, f"What does line {4 * n + 1003} of Log 2 say?")[0] for n in range(5)]
        print(f"a question that names a line: {1000 * statistics.median(named):.0f} ms")
        print(f"{QUESTIONS - missed} of {QUESTIONS} facts reached the model with {BUDGET} tokens")
        now = gateway.rss_mb()
        print(f"RSS {now:.0f} MB, {now - base:.0f} over its base; peak {gateway.peak_mb():.0f} MB")


@contextmanager
def storage(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'large.db'}"
        return
    with own_postgres() as server:
        yield server.new_database()


def sizes(url: str) -> None:
    """Prints the database's size."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        print(f"on disk: {sum(each.stat().st_size for each in path.parent.glob('large.db*')) / 1e6:.0f} MB")
        with sa.create_engine(url).connect() as connection:
            told = sa.text("SELECT sum(length(data)), count(*) FROM document_postings")
            print("index:", connection.execute(told).one())
        return
    import asyncio

    import asyncpg

    async def read() -> None:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        for name in ("document_regions", "document_postings"):
            size = await connection.fetchval(f"SELECT pg_total_relation_size('{name}')")
            print(f"on disk, {name}: {size / 1e6:.0f} MB")
        await connection.close()

    asyncio.run(read())


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "sqlite"
    size = sys.argv[2] if len(sys.argv) > 2 else "50"
    with tempfile.TemporaryDirectory() as name, MockUpstream() as upstream, storage(kind, Path(name)) as url:
        factory = GatewayFactory(upstream, Path(name))
        gateway = factory({"storage": {"url": url, "timeout": 60}, "server": {"max_body_bytes": 2**28}})
        try:
            measure(gateway, upstream, int(size) * 1_000_000)
            sizes(url)
        finally:
            factory.close()


if __name__ == "__main__":
    main()
