"""Conversations with PDFs at random: what goes up as it came, as text, and as pages alone (guarantee §14.1, §14.13)."""

import base64
import io
import random
from typing import Any

import pytest
from pypdf import PdfReader

from tests.support.answers import Json, ok, used, user
from tests.support.documents import file_part, keeper, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.pdfs import scanned, with_photos

TURNS = 6
PAGES = {
    "photos": with_photos([f"{keeper(n)}\n{prose(n, 60)}" for n in range(60)], side=60),
    "short": with_photos([f"{keeper(n)}\n{prose(n, 40)}" for n in range(60, 62)], side=60),
    "mixed": scanned([f"!{keeper(n)} {prose(n, 8)}" if n % 2 else " " for n in range(70, 90)]),
}
SMALLEST = {"gpt-4o": 4000, "small": 1500}


@pytest.fixture(scope="module")
def gateway(module_start_gateway: GatewayFactory) -> GatewayProcess:
    return module_start_gateway({"documents": {"ocr": "off"}, "files": {"serve": "on"}})


def part_of(rng: random.Random, ids: dict[str, str]) -> Json:
    name = rng.choice(list(PAGES))
    if rng.random() < 0.4:
        return {"type": "file", "file": {"file_id": ids[name]}}
    return file_part(f"{name}.pdf", PAGES[name], "application/pdf")


def said(rng: random.Random, ids: dict[str, str]) -> Json:
    """A user message with a question, now and then with a document."""
    number = rng.randrange(90)
    questions = (f"Who is the keeper of lamp {number}?", f"What does page {number % 25} show?", "Thank you.")
    question = rng.choice(questions)
    if rng.random() < 0.5:
        plain: Json = user(question)
        return plain
    parts = [part_of(rng, ids) for _ in range(rng.choice((1, 1, 2)))]
    message: Json = user([*parts, {"type": "text", "text": question}])
    return message


def check(message: Json, forwarded: list[Json], answer: Json, limit: int) -> None:
    """The budget holds, the question's own words are the last, and every file that goes up can be opened."""
    assert used(answer)["tokens_used"] <= limit
    last = next(each for each in reversed(forwarded) if each["role"] == "user")
    words = message["content"] if isinstance(message["content"], str) else message["content"][-1]["text"]
    here = last["content"] if isinstance(last["content"], str) else last["content"][-1]["text"]
    assert here.endswith(words)
    for each in forwarded:
        for part in each["content"] if isinstance(each["content"], list) else ():
            if part["type"] == "file":
                assert "file_id" not in part["file"], part
                raw = base64.b64decode(part["file"]["file_data"].partition(",")[2])
                count = len(PdfReader(io.BytesIO(raw)).pages)
                if part["file"]["filename"].startswith("page"):
                    assert count < 10


def check_frozen(before: list[Json], forwarded: list[Json], answer: Json) -> None:
    """Where nothing had to leave, no old block either, a request begins with all that the one before forwarded: also
    each file."""
    left = (
        used(answer)["messages_excluded"]
        or len(forwarded) < len(before)
        or blocks(forwarded[: len(before)]) < blocks(before)
    )
    reduced = any(each["strategy"] != "include_full" for each in used(answer)["artifacts_processed"])
    read = documents(forwarded)[: len(documents(before))] != documents(before)
    if not left and not reduced and not read:
        assert forwarded[: len(before)] == before


def blocks(messages: list[Json]) -> int:
    """How many messages stand with a block at their head."""
    heads = [m["content"][0].get("text", "") if isinstance(m["content"], list) else m["content"] for m in messages]
    return sum(head.startswith("<context_data note=") for head in heads if head)


def documents(messages: list[Json]) -> list[tuple[int, str]]:
    """The PDFs that go up as they came: their messages and names."""
    parts = [(n, p) for n, each in enumerate(messages) if isinstance(each["content"], list) for p in each["content"]]
    files = [(number, str(part["file"]["filename"])) for number, part in parts if part["type"] == "file"]
    return [(number, name) for number, name in files if not name.startswith("page")]


@pytest.mark.chaos
def test_s14_13_conversations_with_pdfs(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    ids = {name: uploaded(gateway, name) for name in PAGES}
    for seed in range(500):
        talk(gateway, upstream, random.Random(seed), ids)


def talk(gateway: GatewayProcess, upstream: MockUpstream, rng: random.Random, ids: dict[str, str]) -> None:
    more: Json = {}
    before: tuple[str, list[Json]] = ("", [])
    size = rng.choice((1, 2, 3))
    for _ in range(TURNS):
        model = rng.choice(("gpt-4o", "gpt-4o", "gpt-4o", "small"))
        limit = size * SMALLEST[model]
        message = said(rng, ids)
        body = {"model": model, "messages": [message], "context": {"max_input_tokens": limit}, **more}
        told: Json = ok(gateway.post("/chat/completions", json=body))
        forwarded: Any = upstream.last.body["messages"]
        check(message, forwarded, told, limit)
        if before[0] == model:
            check_frozen(before[1], forwarded, told)
        before = (model, forwarded)
        more = {"conversation": told["conversation"]["id"]}


def uploaded(gateway: GatewayProcess, name: str) -> str:
    made = gateway.post("/files", files={"file": (f"{name}.pdf", PAGES[name])}, data={"purpose": "user_data"})
    return str(made.json()["id"])
