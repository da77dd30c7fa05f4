"""The example `examples/report_to_emails` against a scripted model: agents that share a conversation, and agents that
do not, by the official client alone."""

import importlib
import json
import re
import runpy
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from tests.support.answers import Json, exact
from tests.support.command import printed
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply

EXAMPLE = REPOSITORY / "examples" / "report_to_emails"
PEOPLE = [{"name": "Ingrid Aas", "concern": "the Petrel lamp"}, {"name": "Tomas Vrba", "concern": "late glass"}]
SUMMARY = "Halden sold 412 lamps in Skerrow."
POOR = "I am a small model, and this is no JSON {"


def scripted(record: Record) -> Reply:
    """Answers as a model would that uses what it is shown and nothing else."""
    messages = record.body["messages"]
    instruction = [m["content"] for m in messages if m["role"] == "system"][-1]
    if instruction.startswith("You read reports"):
        return Reply(text=json.dumps({"company_summary": SUMMARY, "stakeholders": PEOPLE}))
    if instruction.startswith("You plan emails"):
        return Reply(
            text="```json\n"
            + json.dumps({"tasks": [{"stakeholder": "Tomas Vrba", "point": "late glass is made good"}]})
            + "```"
        )
    if instruction.startswith("You score"):
        return Reply(
            text=json.dumps(
                {"score": 9 if "better" in asked(record) or "once more" in asked(record) else 5, "advice": "Be better."}
            )
        )
    fact = " We sold 412 lamps." if any("412" in str(m["content"]) for m in messages) else ""
    return Reply(text=f"{asked(record).splitlines()[0]}{fact}")


def asked(record: Record) -> str:
    """The message itself, behind what an agent reads as context."""
    return str(record.body["messages"][-1]["content"].rpartition("[MESSAGE]\n")[2])


def run(gateway: GatewayProcess, *arguments: str) -> str:
    """What the example prints."""
    program = EXAMPLE / "report_to_emails.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [str(program), "--model", "gpt-4o", *arguments])
        patch.syspath_prepend(str(EXAMPLE))
        example = partial(runpy.run_path, str(program), run_name="__main__")
        return printed(example, EXAMPLE, OPENAI_API_KEY="sk-example", OPENAI_BASE_URL=gateway.base_url)


def compared(output: str, row: str) -> list[str]:
    """The cells of a row of the comparison: with shared context, and without."""
    found = re.search(rf"^{row} +(.+)$", output, re.MULTILINE)
    assert found, output
    return re.split(r" {2,}", found.group(1).strip())


def conversation(one_gateway: GatewayProcess, upstream: MockUpstream) -> Json:
    """The one that the agents shared, with its totals and turns."""
    page = one_gateway.get("/conversations", key="sk-example").json()["data"]
    assert len(page) == 1, "what is not shared is not stored"
    found: Json = exact(one_gateway.get(f"/conversations/{page[0]['id']}", key="sk-example").text)
    return found


def test_a_report_becomes_emails(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What agents share is in their emails, what it costs is what the bills say."""
    upstream.handler = scripted
    output = run(one_gateway)
    assert compared(output, "requests") == ["10", "10"]
    assert compared(output, "emails with a fact") == ["2 of 2", "0 of 2"]
    assert compared(output, "refined") == ["2", "2"]
    tokens = [int(cell.replace(",", "")) for cell in compared(output, "prompt tokens")]
    assert tokens[0] > tokens[1]
    costs = [Decimal(cell) for cell in compared(output, "cost in USD")]
    assert costs[0] > costs[1] > 0
    shared = conversation(one_gateway, upstream)["totals"]
    assert shared["cost"]["total_cost"] == costs[0]
    assert shared["requests"] == 10
    agents = {each["agent"]: each["requests"] for each in shared["agents"]}
    writers = {"email_writer: Ingrid Aas": 2, "email_writer: Tomas Vrba": 2}
    assert agents == {"orchestrator": 1, "task_planner": 1, "reviewer": 4, **writers}
    assert any("Its point: late glass is made good." in asked(record) for record in upstream.chats)


def test_the_user_chooses(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """By the numbers that the example shows."""
    upstream.handler = scripted
    output = run(one_gateway, "--choose", "2,7")
    assert re.findall(r"^--- to (\w+ \w+)", output, re.MULTILINE) == ["Tomas Vrba", "Tomas Vrba"]


def test_a_model_without_json_is_made_up_for(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """By what the report says itself, and the output tells it."""
    upstream.handler = lambda _: Reply(text=POOR)
    output = run(one_gateway, "--first", "4")
    assert output.count("taken from the report") == 2
    assert "3. Mirela Kos: head of the workshop: needs two glass cutters before autumn" in output
    assert compared(output, "mean score") == ["-", "-"]
    assert compared(output, "emails with a fact") == ["0 of 4", "0 of 4"]


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module("replies")
