"""From a report to emails, with and without shared context: `report_to_emails.py --help` tells how it is called."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import openai
from comparison import Run, facts_of, table
from replies import Json
from workflow import Stakeholder, Workflow

HERE = Path(__file__).parent
NAMES = {True: "shared", False: "not shared"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit code."""
    given = _parser().parse_args(arguments)
    if not given.demo:
        return report_to_emails(given, openai.OpenAI(base_url=given.base_url), given.model)
    from with_demo_model import MAX_INPUT_TOKENS, OPTIONS, demo_model

    context = {"max_input_tokens": MAX_INPUT_TOKENS}
    with demo_model() as (client, model):
        return report_to_emails(given, client, model, {**OPTIONS, "extra_body": {"context": context}})


def report_to_emails(given: argparse.Namespace, client: openai.OpenAI, model: str, options: Json | None = None) -> int:
    """Both runs, their emails, and the comparison.

    Args:
        options: further fields of each request.
    """
    report = Path(given.report).read_text(encoding="utf-8")
    runs = []
    for shared in (True, False):
        print(f"\n=== {NAMES[shared]} context")
        runs.append(_run(Workflow(client, model, shared=shared, options=options), report, given, NAMES[shared]))
    first = runs[0]
    told = [f"{each.name} {each.concern}" for run in runs for each in run.analysis.stakeholders]
    facts = facts_of(first.analysis.summary, told)
    print(f"\n=== compared, by the facts of the summary: {', '.join(facts) or 'none'}\n\n{table(runs, facts)}")
    return 0


def _run(workflow: Workflow, report: str, given: argparse.Namespace, name: str) -> Run:
    started = time.monotonic()
    analysis = workflow.analyse(report)
    print(f"summary: {analysis.summary}")
    if analysis.fell_back:
        print("(the model's answer was incomplete: what it lacks is taken from the report)")
    for number, each in enumerate(analysis.stakeholders, 1):
        print(f"  {number}. {each.name}: {each.concern}")
    chosen = choice(analysis.stakeholders, given.choose, given.first)
    emails = workflow.write(chosen, workflow.plan(chosen))
    for email in emails:
        refined = ", refined" if email.refined else ""
        print(f"\n--- to {email.to.name} (score {email.score or 'none'}{refined})\n{email.text}")
    return Run(name, analysis, emails, workflow.spent, time.monotonic() - started)


def choice(stakeholders: Sequence[Stakeholder], numbers: str | None, first: int) -> list[Stakeholder]:
    """Those whom the user chose by their numbers, else the first few."""
    if numbers is None:
        return list(stakeholders[:first])
    wanted = [int(number) for number in numbers.split(",") if number.strip().isdigit()]
    return [stakeholders[number - 1] for number in dict.fromkeys(wanted) if 1 <= number <= len(stakeholders)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", nargs="?", default=str(HERE / "report.md"), help="a text file (default: report.md)")
    parser.add_argument("--choose", metavar="N,N", help="numbers of the stakeholders who get an email")
    parser.add_argument("--first", type=int, default=2, metavar="N", help="without --choose: the first N (2)")
    parser.add_argument("--model", default="gpt-4o-mini", help="as the gateway knows it (gpt-4o-mini)")
    address = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    parser.add_argument("--base-url", default=address, help=f"the gateway ({address})")
    parser.add_argument("--demo", action="store_true", help="start a gateway before the demo's local model")
    return parser


if __name__ == "__main__":
    sys.exit(main())
