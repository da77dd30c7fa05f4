"""Relevance by meaning: what it finds, what it costs, and that no fault of it costs an answer (guarantee §5, §6)."""

import json
import socket
import threading
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.ids import artifact_id
from tests.support.answers import Json, chat, stored, user
from tests.support.command import gateway_command
from tests.support.documents import WORDS, prose
from tests.support.factory import GatewayFactory, default_config
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Record
from tests.support.mock_embeddings import embeddings
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until
from tests.support.valkey import Valkey

EMBED = "POST /v1/embeddings"
PRICE = Decimal("0.00000002")
FILLER = " ".join(
    ["The committee met in the town hall and talked about roads, gardens and the budget of the library."] * 4
)
SECRET = "Nobody could get into the account until the credentials were recovered through the help desk in Lund."
DOCUMENT = "\n\n".join(
    [*(f"Chapter {n}. {FILLER}" for n in range(40)), SECRET, *(f"Part {n}. {FILLER}" for n in range(40))]
)
QUESTION = "How was the lost password reset?"
"""It shares no word with the passage that answers it."""


def model_list(upstream: MockUpstream, **info: Any) -> list[Json]:
    """The usual models, and `embed`."""
    models: list[Json] = default_config(upstream, "")["model_list"]
    params = {"model": "openai/text-embedding-3-small", "api_base": upstream.base_url, "api_key": "sk-embed"}
    return [*models, {"model_name": "embed", "litellm_params": params, "model_info": info}]


@pytest.fixture
def paid(start_gateway: GatewayFactory, upstream: MockUpstream) -> GatewayProcess:
    """A gateway whose embedder is the upstream's, with time enough."""
    context = {"embedding_model": "embed", "embedding_timeout": 5}
    return start_gateway({"context": context, "model_list": model_list(upstream)})


def ask(gateway: GatewayProcess, **more: Any) -> Json:
    """A question on a document that does not fit."""
    body = {"model": "small", "messages": [user(QUESTION)], "attachments": [{"content": DOCUMENT}], **more}
    return chat(gateway, **body)


def warned(answer: Json) -> list[str]:
    """The warnings, but for those of a full window."""
    found: list[str] = answer["response_metadata"]["context_utilization"]["warnings"]
    return [warning for warning in found if not warning.startswith("context_window")]


def asked(upstream: MockUpstream) -> list[Record]:
    """The calls of the embedder."""
    return [record for record in upstream.requests if record.path == "/v1/embeddings"]


def near(record: Record) -> Reply:
    """Vectors by which the question and its answer are one, and all else is far from both."""
    body = record.body or {}
    meant = [[1.0, 0.0] if text == QUESTION or SECRET in text else [0.0, 1.0] for text in body["input"]]
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(meant)]
    usage = {"prompt_tokens": 1000, "total_tokens": 1000}
    return Reply(json={"object": "list", "data": list(reversed(data)), "model": "e", "usage": usage})


def test_s5_what_no_word_finds_is_found_by_meaning_and_is_on_the_bill(
    paid: GatewayProcess, upstream: MockUpstream
) -> None:
    """§6: `embedder_cost`, tokens and calls, and the total with all of it; the audit adds the same up."""
    upstream.routes[EMBED] = near
    answer = ask(paid)
    assert SECRET in json.dumps(upstream.last.body)
    calls = asked(upstream)
    assert (calls[0].body or {})["input"][0] == QUESTION, "the question first"
    assert (calls[0].body or {})["model"] == "text-embedding-3-small"
    assert calls[0].headers["authorization"] == "Bearer sk-embed"
    bill = answer["response_metadata"]
    used, cost = bill["context_utilization"], bill["cost"]
    assert used["strategy"] == "heuristic"
    assert warned(answer) == []
    tokens = 1000 * len(calls)
    assert used["planning_usage"]["embedder"] == {"prompt_tokens": tokens, "completion_tokens": 0, "calls": len(calls)}
    details = answer["usage"]["cost_details"]
    assert details["embedder_cost"] == used["planning_cost"]["embedder_cost"] == cost["planning_cost"] == tokens * PRICE
    assert (
        cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] + tokens * PRICE == answer["usage"]["cost"]
    )
    assert cost["estimated"] is False
    assert stored(paid, answer["id"])["response_metadata"] == bill
    done = gateway_command("audit", "--config", str(paid.config_path), directory=paid.directory)
    assert (done.returncode, "all 1 rows balance" in done.stdout) == (0, True), done.stdout


def test_s4_nothing_is_asked_where_everything_fits(paid: GatewayProcess, upstream: MockUpstream) -> None:
    answer = chat(paid, model="gpt-4o", messages=[user(QUESTION)], attachments=[{"content": DOCUMENT}])
    assert not asked(upstream)
    assert "embedder" not in answer["response_metadata"]["context_utilization"]["planning_usage"]
    assert "embedder_cost" not in answer["usage"]["cost_details"]


def test_s2_mode_simple_calls_no_model_that_is_paid_for(paid: GatewayProcess, upstream: MockUpstream) -> None:
    ask(paid, context={"mode": "simple"})
    assert not asked(upstream)


def test_s5_a_dry_run_leaves_the_bill_of_the_embedder_alone(paid: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.routes[EMBED] = near
    shown = ask(paid, context={"dry_run": True})
    assert not upstream.chats
    assert SECRET in json.dumps(shown["messages"])
    bill = stored(paid, shown["response_metadata"]["request_id"])["response_metadata"]
    assert bill["cost"]["total_cost"] == 1000 * len(asked(upstream)) * PRICE
    assert bill["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert shown["response_metadata"]["context_utilization"]["planning_cost"]["embedder_cost"] == 1000 * PRICE


def test_s6_a_request_that_fails_before_the_primary_call_pays_for_the_embedder(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """§6: once any model was called there is one row, also where the client left meanwhile."""
    context = {"embedding_model": "embed", "embedding_timeout": 120}
    gateway = start_gateway({"context": context, "model_list": model_list(upstream)})
    gate = threading.Event()
    upstream.routes[EMBED] = lambda record: Reply(json=embeddings(record.body or {}), gate=gate)
    body = json.dumps({"model": "small", "messages": [user(QUESTION)], "attachments": [{"content": DOCUMENT}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        client.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        wait_until(lambda: bool(asked(upstream)), "the call of the embedder")

    def audit(*options: str) -> str:
        return gateway_command(
            "audit", *options, "--config", str(gateway.config_path), directory=gateway.directory
        ).stdout

    wait_until(lambda: "all 1 rows balance" in audit(), "the bill", interval=0.5)
    gate.set()
    assert not upstream.chats
    csv = audit("--csv")
    row = dict(zip(*(line.split(",") for line in csv.splitlines()), strict=True))
    assert (row["status"], row["estimated"], row["prompt_tokens"]) == ("failed", "true", "0")
    assert Decimal(row["total_cost"]) == Decimal(row["planning_cost"]) > 0


def base64_of(record: Record) -> Reply:
    return Reply(json=embeddings({**(record.body or {}), "encoding_format": "base64"}))


def changed(record: Record, **changes: Any) -> Reply:
    made = embeddings(record.body or {})
    return Reply(json={**made, **{name: change(made) for name, change in changes.items()}})


WELL = {"base64": base64_of, "plain": lambda record: Reply(json=embeddings(record.body or {}))}
FAULTS: dict[str, Any] = {
    "500": Reply(status=500),
    "429": Reply(status=429, headers={"retry-after": "30"}),
    "401": Reply(status=401),
    "cut before the status": Reply(cut_after=-1),
    "cut in the body": lambda record: Reply(json=embeddings(record.body or {}), cut_after=200),
    "no JSON": Reply(body=b"<html>"),
    "another shape": Reply(json={"data": 7}),
    "an error in a 200": Reply(json={"error": {"message": "no"}}),
    "10 MB": Reply(body=b'{"data": [' + b" " * 50_000_000 + b"]}"),
    "NaN": Reply(body=b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'),
    "too few": lambda record: changed(record, data=lambda made: made["data"][:-1]),
    "too many": lambda record: changed(record, data=lambda made: [*made["data"], made["data"][0]]),
    "one twice": lambda record: changed(record, data=lambda made: [made["data"][0], *made["data"][:-1]]),
    "of two lengths": lambda record: changed(record, data=lambda made: [{"embedding": [1.0]}, *made["data"][1:]]),
    "empty": lambda record: changed(record, data=lambda made: [{**each, "embedding": []} for each in made["data"]]),
    "zeros": lambda record: changed(record, data=lambda made: [{**e, "embedding": [0, 0]} for e in made["data"]]),
    "no numbers": lambda record: changed(record, data=lambda made: [{**e, "embedding": ["x"]} for e in made["data"]]),
    "huge": lambda record: changed(record, data=lambda made: [{**e, "embedding": [1e308, 1]} for e in made["data"]]),
}
UNPAID = ("500", "429", "401", "cut before the status")


def test_s5_vectors_are_understood_in_both_encodings(paid: GatewayProcess, upstream: MockUpstream) -> None:
    for name, reply in WELL.items():
        upstream.routes[EMBED] = reply
        answer = ask(paid, store=False)
        assert warned(answer) == [], name
        used = answer["response_metadata"]["context_utilization"]
        assert used["planning_usage"]["embedder"]["prompt_tokens"] > 1000


def test_s5_no_fault_of_the_embedder_costs_the_answer(paid: GatewayProcess, upstream: MockUpstream) -> None:
    """§5: a model that fails or answers rubbish costs quality, and what it cost is billed."""
    upstream.routes[EMBED] = Reply(status=500)
    words_alone = ask(paid, store=False, attachments=[{"content": DOCUMENT + " The password was reset in Oslo."}])
    assert "Oslo" in json.dumps(upstream.last.body)
    assert warned(words_alone) == ["embedder_failed"]
    for name, reply in FAULTS.items():
        upstream.routes[EMBED] = reply
        answer = ask(paid, store=False)
        used = answer["response_metadata"]["context_utilization"]
        assert warned(answer) == ["embedder_failed"], name
        assert answer["response_metadata"]["cost"]["estimated"] is (name not in UNPAID), name
        assert (used["planning_usage"]["embedder"]["prompt_tokens"] > 0) is (name not in UNPAID), name
    assert "Traceback" not in paid.log_text()


def test_s12_6_an_embedder_is_asked_at_its_other_deployment(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """The question is not left to words alone because one of two deployments is down."""
    models = model_list(upstream)
    away = json.loads(json.dumps(models[-1]))
    away["litellm_params"] |= {"model": "openai/away", "order": 1}
    models[-1]["litellm_params"]["order"] = 2
    context = {"embedding_model": "embed", "embedding_timeout": 5}
    gateway = start_gateway({"context": context, "model_list": [*models, away]})
    upstream.routes[EMBED] = lambda record: Reply(status=503) if record.body["model"] == "away" else near(record)
    assert not warned(ask(gateway))
    assert [record.body["model"] for record in asked(upstream)] == ["away", "text-embedding-3-small"]
    assert SECRET in str(upstream.chats[-1].body)


def test_s5_vectors_are_kept_for_the_next_question_and_go_with_the_conversation(
    start_gateway: GatewayFactory, upstream: MockUpstream, valkey: Valkey
) -> None:
    context = {"embedding_model": "embed", "embedding_timeout": 5}
    cache = {"url": valkey.url, "timeout": 2}
    gateway = start_gateway({"context": context, "cache": cache, "model_list": model_list(upstream)})

    def vectors() -> list[str]:
        return [key for key in valkey.keys() if ":vector:" in key]  # noqa: SIM118 - no dictionary

    ask(gateway, store=False)
    first = ask(gateway)
    everything = sum(len((record.body or {})["input"]) for record in asked(upstream)) // 2
    assert everything > 60
    wait_until(lambda: len(vectors()) == everything, "the vectors that a stored request leaves")
    upstream.requests.clear()
    again = ask(gateway)
    assert not asked(upstream)
    assert "embedder" not in again["response_metadata"]["context_utilization"]["planning_usage"]
    assert not any(DOCUMENT[:20] in key or QUESTION in key for key in vectors())
    with gateway.http() as client:
        for answer in (first, again):
            assert client.delete(f"/conversations/{answer['conversation']['id']}").status_code == 200
    assert vectors() == []


@pytest.mark.chaos
def test_s5_a_model_on_this_machine_finds_by_meaning_without_any_provider(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """The real MiniLM: what is not ready by the deadline is made after the answer, for the next question."""
    gateway = start_gateway({"context": {"embedding_model": "local", "embedding_timeout": 60}})
    body = {"model": "small", "messages": [user(QUESTION)], "attachments": [{"content": DOCUMENT}]}
    answer = chat(gateway, **body)
    assert SECRET in json.dumps(upstream.last.body)
    assert "embedder" not in answer["response_metadata"]["context_utilization"]["planning_usage"]
    assert not asked(upstream)
    hasty = start_gateway({"context": {"embedding_model": "local", "embedding_timeout": 0.001}})
    late = chat(hasty, **body)
    assert warned(late) == ["embedder_late"]
    again = {"model": "small", "messages": [user(QUESTION)], "attachments": [{"content": DOCUMENT}]}

    def found() -> bool:
        return not warned(chat(hasty, **again)) and SECRET in json.dumps(upstream.last.body)

    wait_until(found, "vectors of the whole document", interval=1)


def test_s9_an_embedder_may_be_one_that_a_wildcard_serves(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """As any other model: LiteLLM's `openai/*`."""
    star = {"litellm_params": {"model": "openai/*", "api_base": upstream.base_url, "api_key": "sk-upstream"}}
    models = [*default_config(upstream, "")["model_list"], {"model_name": "vectors/*", **star}]
    context = {"embedding_model": "vectors/embed-3", "embedding_timeout": 5}
    gateway = start_gateway({"context": context, "model_list": models})
    upstream.routes[EMBED] = lambda record: Reply(json=embeddings(record.body or {}))
    answer = chat(gateway, model="small", messages=[user(QUESTION)], attachments=[{"content": DOCUMENT}])
    assert not warned(answer)
    assert {(record.body or {})["model"] for record in asked(upstream)} == {"embed-3"}


def test_s9_an_embedder_that_cannot_be_used_is_said_at_the_start(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    for context, models, word in (
        ({"embedding_model": "nobody"}, model_list(upstream), "model_list has no 'nobody'"),
        (
            {"embedding_model": "claude"},
            [{"model_name": "claude", "litellm_params": {"model": "anthropic/claude", "api_key": "k"}}],
            "does not speak OpenAI's protocol",
        ),
    ):
        gateway = start_gateway({"context": context, "model_list": models}, start=False)
        gateway.config_path.write_text(json.dumps(gateway.config))
        done = gateway_command("serve", "--config", str(gateway.config_path), directory=gateway.directory)
        assert done.returncode == 2
        assert word in done.stderr


@pytest.mark.chaos
def test_s14_7_vectors_of_a_large_document_are_those_of_its_passages(
    start_gateway: GatewayFactory, upstream: MockUpstream, valkey: Valkey
) -> None:
    """§14.7: kept for other questions, in other conversations too; under one name, and gone with the document."""
    settings = {"embedding_model": "embed", "embedding_timeout": 5}
    cache = {"url": valkey.url, "timeout": 2}
    storage = {"context": settings, "cache": cache, "documents": {"index_chars": 100_000}}
    gateway = start_gateway({**storage, "model_list": model_list(upstream)})
    text = "\n\n".join(f"{prose(n, 90)} Nobody but warden{n}x was there." for n in range(1200))
    document = [{"content": text}]

    def embedded(conversation: str | None, question: str) -> tuple[int, str]:
        """How many texts are embedded for a question, once what it leaves is kept."""
        more: Json = {"conversation": conversation} if conversation else {"attachments": document}
        upstream.requests.clear()
        before = len(vectors())
        answer = chat(gateway, model="small", messages=[user(question)], **more)
        texts = {text for record in asked(upstream) for text in (record.body or {})["input"]}
        wait_until(lambda: len(vectors()) == before + len(texts), "the vectors are kept")
        return len(texts), answer["conversation"]["id"]

    def vectors() -> list[str]:
        return [key for key in valkey.keys() if ":vector:" in key]  # noqa: SIM118 - no dictionary

    _, first = embedded(None, "Hello.")
    _, second = embedded(None, "Hello there.")

    def is_indexed() -> bool:
        found: Json = gateway.get(f"/conversations/{first}/attachments").json()["data"][0]
        return bool(found["index"]["status"] == "ready")

    wait_until(is_indexed, "the index")
    questions = [f"What about warden{n}x, the {WORDS[n % 30]} and the {WORDS[n % 29]}?" for n in (11, 111, 211, 311)]
    counts = [embedded(first, question)[0] for question in questions]
    assert counts[-1] < counts[0], "each question knows what the ones before it have made"
    assert embedded(second, questions[1])[0] < counts[0] // 2, "in another conversation, too"
    with gateway.http() as client:
        for conversation in (first, second):
            name = artifact_id(text)
            assert client.delete(f"/conversations/{conversation}/attachments/{name}").status_code == 200
    assert len(vectors()) < 20, "those of what was said stay"
