"""I7: what was forwarded stays as it was, at the beginning of what is forwarded next, until something has to leave; and
I2: steps that have left their turn stay out."""

from tests.properties.checks import tokens
from tests.properties.checks.budget import LABEL, MARGINS, budget_of
from tests.properties.checks.memory import summaries_of
from tests.properties.checks.seen import INSTRUCTIONS, Json, Seen, hold

RECALL_SHARE, RECALL_TOKENS = 0.07, 300
"""What a question may recall of what has left, with its labels: of the budget, and in a small one so many tokens."""


def check(seen: Seen, before: Seen | None) -> None:
    """`before`: the request before in the same branch, to the same model."""
    if before is None or not must_stay(seen, before):
        return
    if summaries_of(seen) != summaries_of(before):  # its turns leave when a summary is first shown (guarantee §3.11)
        return
    kept = seen.sent[: len(before.sent)]
    changed = next((i for i, (a, b) in enumerate(zip(kept, before.sent, strict=False)) if a != b), len(kept))
    hold("I7", kept == before.sent, f"nothing had to leave, and message {changed} of {len(kept)} is another")


def must_stay(seen: Seen, before: Seen) -> bool:
    """Whether all that was forwarded before fits beside all that is new."""
    new = seen.originals[len(before.originals) :]
    attached = seen.case.attachments[len(before.case.attachments) :]
    together = [*before.sent, *new, *({"role": "user", "content": a["content"]} for a in attached)]
    most = tokens.of_prompt(together, seen.case.body) + tokens.most_beside(together, seen.case.body)
    files = sum(LABEL for m in new if isinstance(m["content"], list))
    budget = budget_of(seen.case)
    recall = room_for_recall(budget) if _may_recall(before, new) else 0
    margin = MARGINS.get(seen.case.body["model"], 1.0)
    return (most + LABEL * (1 + len(attached)) + files) * margin + recall <= budget


def room_for_recall(budget: int) -> float:
    """Tokens that a pass may make room for, where a question may need what has left."""
    return max(RECALL_SHARE * budget, RECALL_TOKENS)


def _may_recall(before: Seen, new: list[Json]) -> bool:
    """Whether a new question may need what has left already: room for that is made where there is none (I6)."""
    told = [m for m in before.forwarded if m["role"] not in INSTRUCTIONS]
    lacking = len(told) < sum(m["role"] not in INSTRUCTIONS for m in before.originals)
    reduced = any(record["strategy"] != "include_full" for record in before.records)
    return any(m["role"] == "user" for m in new) and (lacking or reduced)


def left_steps(seen: Seen) -> set[int]:
    """The steps that are not in the window although the turn that they belong to is."""
    found: set[int] = set()
    asked = [i for i in seen.indexes if seen.originals[i]["role"] == "user"]
    for index in range(min(asked, default=len(seen.originals)), len(seen.originals)):
        if seen.originals[index]["role"] not in INSTRUCTIONS and index not in seen.indexes:
            found.add(index)
    return found


def check_left(seen: Seen, left: set[int]) -> None:
    """`left`: what had left its turn in earlier requests of the same branch."""
    back = sorted(left.intersection(seen.indexes))
    hold("I2 left", not back, f"messages {back} had left their turn, and are forwarded again")
