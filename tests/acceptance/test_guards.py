"""Guards of third parties, as installed packages have them (guarantee §12.9)."""

import textwrap
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.answers import Json, exact, read_stream, user, wait_for_bill
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream, Reply

PACKAGE = """
    import asyncio
    from decimal import Decimal
    from gateway.guards.api import PASS, Verdict  # as packages for 0.1 do

    class Polite:
        def __init__(self, options):
            self.word = options["word"]
            self.cost = Decimal(options["usd"])

        async def before(self, call):
            text = str(call.body)
            if self.word in text:
                return Verdict(refused=f"{call.purpose} says {self.word}", cost=self.cost)
            messages = [{**m, "content": m["content"].replace("damn", "very")} if type(m.get("content")) is str else m
                        for m in call.messages]
            return Verdict(body={**call.body, "messages": messages}, cost=self.cost)

        async def after(self, call, said):
            if "forbidden" in said.before + said.text:
                return Verdict(refused="the answer says it")
            return Verdict(text=said.text.replace("rude", "kind"))

    class Unsteady:
        def __init__(self, options):
            pass

        async def before(self, call):
            if "break" in str(call.body):
                raise RuntimeError("not today")
            if "sleep" in str(call.body):
                await asyncio.sleep(60)
            return PASS

    class Strict(Unsteady):
        async def before(self, call):
            if "strictly" in str(call.body):
                raise RuntimeError("not today")
            return PASS
"""
ENTRY_POINTS = """
    [gateway.guards]
    polite = third_party_guards:Polite
    unsteady = third_party_guards:Unsteady
    strict = third_party_guards:Strict
"""
GUARDS: Json = {
    "guards": [
        {"name": "polite", "word": "swearword", "usd": "0.000123456789", "hold": 20},
        {"name": "unsteady", "on_failure": "open", "timeout": 0.2},
        {"name": "strict"},
    ]
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a gateway with that package on its path."""
    package = tmp_path_factory.mktemp("packages")
    info = package / "third_party_guards-1.0.dist-info"
    info.mkdir()
    (package / "third_party_guards.py").write_text(textwrap.dedent(PACKAGE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party-guards\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    return {"PYTHONPATH": str(package)}


@pytest.fixture(scope="module")
def module_guarded(module_start_gateway: GatewayFactory, packages: dict[str, str]) -> GatewayProcess:
    return module_start_gateway({**GUARDS, "context": {"planning": "auto"}}, packages)


def post(gateway: GatewayProcess, text: str, **more: object) -> tuple[int, Json]:
    response = gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": [user(text)], **more})
    return response.status_code, exact(response.content)


def test_s12_9_guards_change_and_refuse_what_is_sent(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.9: a refusal is a 400 of ours, and nothing is sent; what a guard cost is on the bill, to the last digit."""
    status, answer = post(guarded, "A damn good day.")
    assert status == 200
    assert upstream.last.body["messages"] == [user("A very good day.")]
    usage = answer["usage"]
    assert usage["cost_details"]["guard_cost"] == Decimal("0.000123456789")
    assert usage["cost"] == usage["cost_details"]["upstream_inference_cost"] + Decimal("0.000123456789")
    planning = answer["response_metadata"]["context_utilization"]["planning_cost"]
    assert planning["total_cost"] == planning["guard_cost"] == Decimal("0.000123456789")
    sent = len(upstream.requests)
    status, refused = post(guarded, "A swearword.")
    assert (status, refused["error"]["code"]) == (400, "content_refused")
    assert "primary says swearword" in refused["error"]["message"]
    assert len(upstream.requests) == sent


def test_s12_9_answers_are_looked_at_whole_and_as_they_come(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.9: of a stream as much is held as the guard is to see; a refusal ends it by an error event."""
    upstream.reply(text="You are rude.")
    assert post(guarded, "Hi")[1]["choices"][0]["message"]["content"] == "You are kind."
    upstream.reply(text="You are rude. " + "And on it goes. " * 10)
    body = {"model": "gpt-4o", "messages": [user("Hi")], "stream": True}
    told = read_stream(guarded, body)
    assert told.text == "You are kind. " + "And on it goes. " * 10
    upstream.reply(text="All is well so far, and then comes what is forbidden here, and more.")
    told = read_stream(guarded, body)
    assert told.error is not None
    assert told.error["code"] == "content_refused"
    assert "forbidden" not in told.text
    assert told.text
    upstream.reply(text="This is forbidden.", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
    with guarded.http() as client:
        refused = client.post("/chat/completions", json={"model": "gpt-4o", "messages": [user("Hi")]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "content_refused")
        name = refused.headers["x-request-id"]
        kept = client.get(f"/chat/completions/{name}").json()
        listed, without_bill = [client.get(f"{guarded.url}/ui/{page}").text for page in ("requests", "refused")]
    assert (name in listed, name in without_bill) == (True, False)
    assert kept["response_metadata"]["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert not kept["response_metadata"]["cost"]["estimated"]


def test_s12_9_a_refusal_of_the_model_is_looked_at_as_its_text(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.9: OpenAI's models refuse in a field of its own."""
    refusal = {"role": "assistant", "content": None, "refusal": "No, that is rude."}
    upstream.reply(message=refusal)
    assert post(guarded, "Hi")[1]["choices"][0]["message"]["refusal"] == "No, that is kind."
    pieces = ["No, that ", "is ru", "de."]
    chunks: list[Json] = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": "", "refusal": None}}]}]
    chunks += [{"choices": [{"index": 0, "delta": {"refusal": piece}}]} for piece in pieces]
    upstream.reply(chunks=[*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}])
    told = read_stream(guarded, {"model": "gpt-4o", "messages": [user("Hi")], "stream": True})
    found = [choice["delta"].get("refusal") or "" for chunk in told.chunks for choice in chunk["choices"]]
    assert "".join(found) == "No, that is kind."


def test_s12_9_a_guard_that_fails_is_open_or_closed(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.9: late or broken it lets requests pass, with a warning, or answers for them with a 503; then it rests."""
    for text in ("sleep", "break", "break"):
        status, answer = post(guarded, text)
        assert status == 200
        assert "guard_failed:unsteady" in answer["response_metadata"]["context_utilization"]["warnings"]
    status, answer = post(guarded, "nothing")  # it rests
    assert "guard_failed:unsteady" in answer["response_metadata"]["context_utilization"]["warnings"]
    sent = len(upstream.requests)
    status, refused = post(guarded, "strictly")
    assert (status, refused["error"]["code"]) == (503, "guard_unavailable")
    assert len(upstream.requests) == sent


def test_s12_9_internal_models_are_guarded(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.9: a planner that may not be asked costs its plan, not the answer."""
    models = InternalModels(every("summarize"), lambda text: Reply(text="Short."))
    upstream.handler = models
    document = "Lamp 1 was lit by the keeper. " * 800
    more: Json = {"attachments": [{"content": document}], "context": {"planning": "always"}}
    status, answer = post(guarded, "What?", **more)
    assert status == 200
    used = answer["response_metadata"]["context_utilization"]
    assert used["planning_usage"]["guard"]["calls"] == 1 + len(models.planned) + len(models.summarized)
    assert wait_for_bill(guarded, answer["id"])["usage"]["cost"] == answer["usage"]["cost"]


def test_s12_9_a_guard_that_is_not_there_is_named_at_the_start(tmp_path: Path) -> None:
    """§12.9: and `gateway check` says so."""
    (tmp_path / "config.yaml").write_text("guards: [{name: nobody}]\n")
    ended = gateway_command("check", "--config", "config.yaml", directory=tmp_path)
    assert ended.returncode != 0
    assert "nobody" in ended.stdout + ended.stderr
