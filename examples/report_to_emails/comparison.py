"""Two runs side by side: what they took, and whether their emails say what the company's summary says."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from workflow import Analysis, Email, Spent

FACT = re.compile(r"\b\d[\d.,]*\b|\b[A-Z][\w-]{3,}\b")
COMMON = frozenset(
    {
        *("about", "after", "also", "and", "because", "but", "dear", "for", "from", "have", "here", "however", "more"),
        *("that", "the", "their", "there", "these", "they", "this", "when", "where", "which", "while", "with", "your"),
        *("best", "regards", "subject"),
    }
)
"""Words that begin a sentence, or a letter, and are no names."""


@dataclass(frozen=True)
class Run:
    """What came of one run. `seconds` are those of the clock on the wall."""

    name: str
    analysis: Analysis
    emails: Sequence[Email]
    spent: Spent
    seconds: float


def facts_of(summary: str, told: Sequence[str]) -> list[str]:
    """The figures and proper names of a summary, each once; not those that writers are `told` anyway, with the names of
    stakeholders and what concerns them."""
    own = {word.lower() for text in told for word in re.findall(r"[\w.,-]*\w", text)}
    found = (fact.rstrip(".,") for fact in FACT.findall(summary))
    return list(dict.fromkeys(fact for fact in found if fact.lower() not in own | COMMON))


def mentioned(email: Email, facts: Sequence[str]) -> int:
    """How many of these facts an email mentions."""
    return sum(re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", email.text) is not None for fact in facts)


def table(runs: Sequence[Run], facts: Sequence[str]) -> str:
    """The comparison as text, a column for each run."""
    rows = [
        ("", *(run.name for run in runs)),
        ("requests", *(str(run.spent.requests) for run in runs)),
        ("prompt tokens", *(f"{run.spent.prompt_tokens:,}" for run in runs)),
        ("answer tokens", *(f"{run.spent.completion_tokens:,}" for run in runs)),
        ("cost in USD", *(money(run.spent.cost) for run in runs)),
        ("emails with a fact", *(f"{_with_fact(run, facts)} of {len(run.emails)}" for run in runs)),
        ("facts in all", *(str(sum(mentioned(each, facts) for each in run.emails)) for run in runs)),
        ("mean score", *(_mean_score(run.emails) for run in runs)),
        ("refined", *(str(sum(each.refined for each in run.emails)) for run in runs)),
        ("seconds", *(f"{run.seconds:.1f}" for run in runs)),
    ]
    return "\n".join(f"{name:20}" + "".join(f"{cell:>18}" for cell in cells) for name, *cells in rows)


def money(cost: Decimal | None) -> str:
    """A cost, or that a price is not known."""
    return "unknown" if cost is None else f"{cost:f}"


def _with_fact(run: Run, facts: Sequence[str]) -> int:
    return sum(mentioned(each, facts) > 0 for each in run.emails)


def _mean_score(emails: Sequence[Email]) -> str:
    scores = [each.score for each in emails if each.score is not None]
    return f"{sum(scores) / len(scores):.1f}" if scores else "-"
