"""In which order things are taken while something has to leave and a plan says what matters (contract §5)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from gateway.fitting.candidates import Candidate, best_first
from gateway.fitting.choice import CHARS_PER_TOKEN, LABEL_TOKENS, Choice
from gateway.fitting.planned import Wishes
from gateway.models.artifacts import Artifact, ProcessingStrategy

HEURISTIC_SHARE = 0.5
"""Part of the room for artifacts that is filled in the heuristic's order before the plan's (contract §5)."""
DAMPING = 6
"""How slowly worth falls with rank."""
OWN = 0.3
"""What a passage's rank in its own artifact counts beside its rank among all."""


def apart(wishes: Wishes, found: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """What is taken as without a plan, and what a trusted one alone decides on."""
    if not wishes.trusted:
        return list(found), []
    free: list[Candidate] = []
    decided: list[Candidate] = []
    for candidate in found:
        (free if wishes.decision(candidate) is None else decided).append(candidate)
    return free, decided


def planned_order(
    wishes: Wishes,
    choice: Choice,
    room: float,
    relevant: list[Candidate],
    rest: list[Candidate],
    sought: Mapping[int, Candidate],
) -> tuple[list[Candidate], list[Candidate]]:
    """Fills the heuristic's half; returns what is to be taken then, and what of all that is left.

    Args:
        room: tokens of everything that may be taken, what was taken already among it.
        relevant, rest: what was not, in the heuristic's order.
        sought: all candidates, by `order`, as the plan's queries find them; what is left is ordered by them.

    Returns:
        What the plan wants comes first, what it excludes last of all, and not at all if the plan is trusted.
    """
    if not (wishes.decisions or wishes.searches):
        return relevant, rest
    if not wishes.trusted:
        first = _half(choice, room, relevant)
        relevant = [*choice.add(relevant[:first], room), *relevant[first:]]
    if wishes.searches:
        found = best_first(sought[c.order] for c in (*relevant, *rest))
        relevant = [c for c in found if c.relevant]
        rest = sorted((c for c in found if not c.relevant), key=lambda c: c.age)
    wanted = _wanted(wishes, [*relevant, *rest], (room - choice.used - LABEL_TOKENS) * CHARS_PER_TOKEN)
    gone = {id(c) for c in wanted}
    relevant, rest = ([c for c in some if not (id(c) in gone or wishes.forbids(c))] for some in (relevant, rest))
    late = [c for c in (*relevant, *rest) if wishes.excludes(c)]
    relevant, rest = ([c for c in some if not wishes.excludes(c)] for some in (relevant, rest))
    return _by_turns(wanted, relevant) if not wishes.trusted else [*wanted, *relevant], [*rest, *late]


def _by_turns(wanted: Sequence[Candidate], relevant: Sequence[Candidate]) -> list[Candidate]:
    """What a plan wants and what bears most on the question have equal parts of the room, in characters."""
    found: list[Candidate] = []
    others, ahead = iter(relevant), 0
    for candidate in wanted:
        found.append(candidate)
        if candidate.summary:
            continue
        ahead += len(candidate.text)
        while ahead > 0 and (other := next(others, None)) is not None:
            found.append(other)
            ahead -= len(other.text)
    return [*found, *others]


def _half(choice: Choice, room: float, relevant: Sequence[Candidate]) -> int:
    """How many are taken in the heuristic's order: up to that with which its half is full. What was taken of artifacts
    before counts as part of it."""
    of_artifacts = [each for each in choice.taken if each.candidate and isinstance(each.candidate.of, Artifact)]
    taken = sum(each.tokens for each in of_artifacts)
    left = (room - (choice.used - taken)) * HEURISTIC_SHARE - taken
    for number, candidate in enumerate(relevant):
        if left <= 0:
            return number
        left -= choice.counting.text(candidate.text)
    return len(relevant)


def _wanted(wishes: Wishes, left: Sequence[Candidate], chars: float) -> list[Candidate]:
    """What the plan wants of what is left, by priority; `chars` is the room for it."""
    by_artifact: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in left:
        if isinstance(candidate.of, Artifact):
            by_artifact[candidate.of.artifact_id].append(candidate)
    summaries = _summaries(wishes, by_artifact, chars)
    chars -= sum(len(candidate.text) for candidate in summaries)
    made = {candidate.of.artifact_id for candidate in summaries if isinstance(candidate.of, Artifact)}
    found: list[Candidate] = []
    extracts: list[list[Candidate]] = []  # of artifacts that follow each other: none of them takes all of the room
    for name, decision in wishes.decisions.items():
        if name in made:
            continue
        own = wishes.of(decision, by_artifact[name], chars)
        chars -= sum(len(candidate.text) for candidate in own)
        if decision.strategy is ProcessingStrategy.RAG_EXTRACT:
            extracts.append(own)
            continue
        found += [*_merged(extracts), *own]
        extracts = []
    return [*summaries, *found, *_merged(extracts)]


def _summaries(wishes: Wishes, left: Mapping[str, list[Candidate]], chars: float) -> list[Candidate]:
    """The summaries that were made, by priority: they are short and paid for, and no extract may take their room."""
    found: list[Candidate] = []
    for name, decision in wishes.decisions.items():
        if decision.strategy is ProcessingStrategy.SUMMARIZE and left.get(name):
            own = [candidate for candidate in wishes.of(decision, left[name], chars) if candidate.summary]
            chars -= sum(len(candidate.text) for candidate in own)
            found += own
    return found


def _merged(extracts: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Extracts of several artifacts by the reciprocal ranks that they have in their artifacts and among all of them."""
    every = best_first(candidate for own in extracts for candidate in own)
    worth = {id(candidate): 1 / (DAMPING + rank) for rank, candidate in enumerate(every)}
    for own in extracts:
        for rank, candidate in enumerate(own):
            worth[id(candidate)] += OWN / (DAMPING + rank)
    return sorted(every, key=lambda candidate: -worth[id(candidate)])
