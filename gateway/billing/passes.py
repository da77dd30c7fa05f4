"""Which old tool results and inputs of calls leave a window, and when that pays: pure decisions on figures (guarantee
§4 I7).

Where the provider's cache of the prefix has expired, a rewrite is free, and old results leave. Else a pass is bought:
its price is what the changed end of the prompt costs once more, its return what its results cost to be carried on. It
is bought only out of what the branch has saved so far and a share of its bill, so that no session gets dearer by more
than that share. Old results near the end of a prompt are bought first, as little is written anew behind them; what they
save pays for deeper passes.

Some results must not leave, whatever they cost: what the model is editing has to be quoted word for word, and what it
has just read is what it is about. A bounce is a result that left, or became a label, and was read again within a few
steps (guarantee §6.12). What left is kept as digests with the sums of its branch, for as long as a second reading
counts: no history is walked.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import accumulate, islice
from typing import Any

from gateway.billing.prompt_cache import CacheRates
from gateway.core import jsons
from gateway.core.frozen_records import record
from gateway.core.types import bill, recall, window
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.window import PackedWindow, WindowInputs

COLD_AGE, PAID_AGE, ROOM_AGE = 3, 4, 1
"""Answers since a result was first forwarded, from which on a pass may clear it: a free one, one that is bought, one
near the end that makes room. Once 4 answers have followed, each further one adds the cost of carrying the result to its
rent."""
MIN_RESULT_TOKENS = 200
"""A result of fewer is hardly longer than its label."""
LABEL_TOKENS = 60
MIN_CLEARED_TOKENS = 500
"""A pass that clears less is not worth the change."""
MIN_RENT = Decimal(1)
"""Times the price of a pass that carrying has cost before it is bought (rent or buy)."""
MIN_RENT_ANEW = Decimal(4)
"""The same for a pass that decides everything anew, which takes old turns and steps along. Measured on recorded
sessions at 64,000 tokens (the four that pi made): at 4 the bill falls from 0.519 to 0.484 of the direct one, with as
many of the words and edits of the next step; at 2 to 0.473, with 96.0 instead of 98.0 % of the words."""
MAX_PAYBACK = Decimal("0.15")
"""Of the answers that a conversation has had, within how many further ones a pass has to pay for itself."""
MAX_CREDIT = Decimal("1.008")
"""Times what direct requests would have cost, beyond which no pass is bought."""
ROOM_SHARE = Decimal("0.01")
"""Of the budget, which a pass near the end of a window frees beside what has no room."""
DEEP_SHARE = Decimal("0.3")
"""Of the budget, about, which is written anew by a pass for room that decides everything anew."""
MIN_SAVED = Decimal("0.1")
"""Share of the direct cost that a branch has saved before a pass for room keeps more than it has to."""


@record
class CarriedResult:
    """A tool's result, or the inputs of a message's calls, that stand in full in the window and may leave: the `index`
    of the message in the prompt, the tokens, and the answers since it was first forwarded."""

    index: int
    tokens: int
    age: int

    @property
    def spared(self) -> int:
        """Tokens that its label takes less."""
        return self.tokens - LABEL_TOKENS


def cleared_when_cold(carried: Sequence[CarriedResult]) -> list[CarriedResult]:
    """What a pass clears that costs nothing; empty where that is too little."""
    return _enough([each for each in carried if each.age >= COLD_AGE and each.tokens >= MIN_RESULT_TOKENS])


def credit(costs: bill.BranchCosts) -> Decimal:
    """USD that a branch may spend on a pass."""
    return costs.direct * MAX_CREDIT - costs.billed


def may_keep_more(costs: bill.BranchCosts | None) -> bool:
    """Whether a pass for room may keep results whole beside what it fills: out of what was saved, like all that costs
    more. A session that ends soon after its first pass gets none of its price back."""
    return costs is not None and costs.billed <= costs.direct * (1 - MIN_SAVED)


def cleared_when_paid(
    carried: Sequence[CarriedResult],
    sizes: Sequence[int],
    known: int,
    rates: CacheRates,
    answers: int,
    costs: bill.BranchCosts,
) -> list[CarriedResult]:
    """What the pass clears that pays best; empty where none pays, or where the branch has not saved enough to buy it.
    `sizes`: tokens of each message of the prompt; `known`: how many of these an earlier request forwarded; `answers`:
    how many the conversation has had: it has to pay within a share of as many; `costs`: of the branch until now."""
    candidates = _worth_clearing(carried, PAID_AGE, known)
    most, best = credit(costs), (Decimal(0), 0)
    rent = Decimal(0)
    for cut in _cuts(candidates, sizes, known, rates):
        rent += rates.read * (cut.last.spared * (cut.last.age - PAID_AGE + 1))
        gain = _gain(cut.spared, cut.price, rates, answers)
        pays = cut.spared >= MIN_CLEARED_TOKENS and rent >= MIN_RENT * cut.price and cut.price <= most
        if pays and gain > best[0]:
            best = gain, cut.count
    return _latest(candidates, best[1])


def gain_of_clearing(
    cleared: Sequence[CarriedResult], sizes: Sequence[int], known: int, rates: CacheRates, answers: int
) -> Decimal:
    """USD that a pass which clears these is expected to save, less its price; 0 for none.
    `sizes, known, answers`: as for `cleared_when_paid`."""
    cuts = list(_cuts(cleared, sizes, known, rates))
    return _gain(cuts[-1].spared, cuts[-1].price, rates, answers) if cuts else Decimal(0)


def gain_of_anew(
    stays: int, sizes: Sequence[int], ages: Sequence[int], rates: CacheRates, answers: int, costs: bill.BranchCosts
) -> Decimal:
    """USD that a pass which decides everything anew is expected to save, less its price; 0 where it would not pay, or
    where the branch has not saved enough to buy it.
    `stays`: tokens of the prompt behind it, all of them written anew; `ages`: answers since each message of the prompt;
    `sizes, answers, costs`: as for `cleared_when_paid`."""
    leaves = sum(sizes) - stays
    price = (rates.write - rates.read) * stays - rates.read * leaves
    latest_first = zip(reversed(sizes), reversed(ages), accumulate(reversed(sizes)), strict=True)
    carried = (size * max(0, age - PAID_AGE + 1) for size, age, tail in latest_first if tail > stays)
    rent = rates.read * sum(carried)  # about what stays is the latest
    if leaves < MIN_CLEARED_TOKENS or rent < MIN_RENT_ANEW * price or price > credit(costs):
        return Decimal(0)
    return max(Decimal(0), _gain(leaves, price, rates, answers))


def _gain(spared: int, price: Decimal, rates: CacheRates, answers: int) -> Decimal:
    return rates.read * spared * answers * MAX_PAYBACK - price


def cleared_for_room(
    carried: Sequence[CarriedResult],
    sizes: Sequence[int],
    known: int,
    rates: CacheRates,
    budget: int,
    costs: bill.BranchCosts,
) -> list[CarriedResult]:
    """What leaves near the end of a window that has no room, where little is written anew, at the least price. Empty
    where the bill would exceed its bound, this request included; or where it would not with a pass that decides all
    anew: that one is cheaper if the session goes on, and this one if it ends.
    `sizes, known, costs`: as for `cleared_when_paid`; `budget`: tokens that the prompt may have."""
    old, new = sum(sizes[:known]), sum(sizes[known:])
    unchanged = rates.prompt(old + new, old)
    most = credit(replace(costs, direct=costs.direct + unchanged)) - unchanged
    deep = DEEP_SHARE * budget
    if most >= (rates.write - rates.read) * deep - rates.read * (old - deep):
        return []
    candidates = _worth_clearing(carried, ROOM_AGE, known)
    enough = old + new - budget + ROOM_SHARE * budget
    cuts = [cut for cut in _cuts(candidates, sizes, known, rates) if cut.spared >= enough and cut.price <= most]
    return _latest(candidates, min(cuts, key=lambda cut: cut.price).count if cuts else 0)


@record
class _Cut:
    """A pass that begins at the result `last` and clears it and all candidates behind it, `count` in all."""

    last: CarriedResult
    count: int
    spared: int
    price: Decimal


def _cuts(candidates: Sequence[CarriedResult], sizes: Sequence[int], known: int, rates: CacheRates) -> Iterator[_Cut]:
    """The passes that may be bought, from the end of what an earlier request forwarded to its beginning."""
    at = {each.index: each for each in candidates}
    suffix = spared = count = 0
    for index in range(known - 1, min(at, default=known) - 1, -1):
        suffix += sizes[index]
        if (found := at.get(index)) is not None:
            spared, count = spared + found.spared, count + 1
            price = (rates.write - rates.read) * (suffix - spared) - rates.read * spared
            yield _Cut(found, count, spared, price)


def _worth_clearing(carried: Sequence[CarriedResult], age: int, known: int) -> list[CarriedResult]:
    """Of that age, and among what an earlier request forwarded."""
    found = (each for each in carried if each.index < known)
    return [each for each in found if each.age >= age and each.tokens >= MIN_RESULT_TOKENS]


def _latest(candidates: Sequence[CarriedResult], count: int) -> list[CarriedResult]:
    return sorted(candidates, key=lambda each: each.index)[len(candidates) - count :]


def _enough(found: list[CarriedResult]) -> list[CarriedResult]:
    return found if sum(each.spared for each in found) >= MIN_CLEARED_TOKENS else []


WITHIN = 10
"""Answers after which a second reading is no bounce any more."""
KEPT_FOR = 40
"""Answers for which what was called for again, after it had been cut, stays in full."""
MAX_CUT = 256
"""Results of one pass whose second reading is looked for, the latest."""


def newly_cut(material: WindowInputs, fitted: PackedWindow) -> list[Artifact]:
    """The tool results that stood in full, and of which a pass leaves a part at the most, oldest first."""
    shown, left = set(fitted.forwarded.indexes), material.left
    found = []
    for artifact in material.placed:
        index = artifact.place.message
        if artifact.artifact_type is not ArtifactType.TOOL_RESULT or index is None:
            continue
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        is_whole = (
            rendering is None
            or rendering.strategy in window.WHOLE_STRATEGIES
            or rendering.shown_chars >= artifact.size_chars
        )
        is_cut = index not in shown or not is_whole
        if is_cut and index not in left and not material.stands_reduced(artifact):
            found.append(artifact)
    return found[-MAX_CUT:]


def read_again(material: WindowInputs, since: int, costs: bill.BranchCosts) -> list[Artifact]:
    """The results that came with this request, from the message `since` on, and that are bounces: what was cut lately
    came back, or its tool was called again in the same words."""
    cut = bill.ResultMarks.together(costs.cut)
    if not cut:
        return []
    new = (each for each in material.placed if (each.place.message or 0) >= since)
    return [each for each in new if each.artifact_type is ArtifactType.TOOL_RESULT and not cut.isdisjoint(marks(each))]


def recalled(
    messages: Sequence[Mapping[str, Any]], costs: bill.BranchCosts
) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """The results of rounds of `recall` that are bounces, each with the mark of what was read.
    `messages`: what the rounds added to the prompt: calls and their results."""
    cut = bill.ResultMarks.together(costs.cut)
    asked: dict[Any, bytes] = {}
    for message in messages if cut else ():
        for call in recall.recalls_of(message):
            if (mark := _mark_of_id(_wanted(call))) is not None and mark in cut:
                asked[call.get("id")] = mark
        if (found := asked.pop(message.get("tool_call_id"), None)) is not None:
            yield message, found


def with_marks(costs: bill.BranchCosts, cut: Sequence[Artifact], bounced: Sequence[bytes]) -> bill.BranchCosts:
    """The sums of a branch behind one more answer, with what left in its request, and what came back."""
    return replace(
        costs,
        cut=bill.ResultMarks.grown(costs.cut, [mark for each in cut for mark in marks(each)], WITHIN),
        bounced=bill.ResultMarks.grown(costs.bounced, bounced, KEPT_FOR),
    )


def marks(artifact: Artifact) -> tuple[bytes, ...]:
    """The digests of a result's text and of its call."""
    called = hashlib.blake2b(f"{artifact.title}\0{artifact.arguments}".encode("utf-8", "surrogatepass"))
    of_text = _mark_of_id(artifact.content_id)
    own = called.digest()[: bill.ResultMarks.SIZE]
    return (own,) if of_text is None else (of_text, own)


def _mark_of_id(name: str) -> bytes | None:
    """Ids of contents are digests themselves."""
    try:
        return bytes.fromhex(name.partition("_")[2].partition("-")[0])[: bill.ResultMarks.SIZE] or None
    except ValueError:
        return None


def _wanted(call: Mapping[str, Any]) -> str:
    """The artifact that a call of `recall` asks for; "" where it names none."""
    written = (call.get("function") or {}).get("arguments") or "{}"
    try:
        given = jsons.loads(written) if isinstance(written, str) else written
    except ValueError:
        return ""
    return str(given.get("artifact_id") or "") if isinstance(given, dict) else ""


EDITED_WITHIN = KEPT_FOR
"""Answers: a file that was edited within so many is one that is being edited."""
READ_WITHIN, READ_WITHIN_COLD = 20, 12
"""Answers: the latest reading of a file within so many stays, while nothing has to leave; where all is written anew."""
READ_WITHIN_PASS = 6
"""The same where something has to leave: there each result that stays takes the room of another."""
MAX_SMALL_READING = 10_000
"""Characters of the latest whole reading of a file that stays, however old it is, while files are edited and nothing
has to leave: it costs little to carry, and may be edited yet."""
WRITTEN_WITHIN, ALIVE_WITHIN = 10, 25
"""Answers since a file was changed, within which what was written into it stays; and within which it stays unless the
whole file was read or written since. A call that failed is made once more before; what is edited again later is mostly
read again. On recorded sessions with a window of 200,000 tokens this takes the bill from 0.895 to 0.857 of the direct
one, and 480 instead of 487 of 491 edits find what they quote; without small readings that stay, to 0.821 and 465."""
WRITE_TOOL_NAME = re.compile(r"write|create", re.IGNORECASE)
"""How tools are named that write whole files."""
MAX_SMALL_CHANGE = 4_000
"""Characters of the last change of a file, of which the inputs stay."""
WHOLE_SHARE = 0.5
"""Share of a file's longest reading from which on another is a reading of the whole, and not of a page of it."""
PATH = re.compile(
    r"(?<![\w./\\-])[\w./\\-]*(?:[\w-]\.\w{1,6}(?!\w)|(?<![\w.-])(?:"
    r"[A-Z]\w{2,12}file|(?:make|docker|just)file|README|LICENSE|CHANGELOG|CODEOWNERS|Kconfig|\.[a-z]\w{1,30}"
    r")(?![\w./\\-]))"
)
"""A file with its folders, by its extension, the dot before its name, or a name that files without either have."""
EDIT_TOOL_NAME = re.compile(r"edit|write|patch|replace|insert|update", re.IGNORECASE)
"""How tools are named that change files."""
PATCH = re.compile(r"^\*\*\* (?:Update|Add) File: (\S+)", re.MULTILINE)
IN_SHELL = re.compile(r"\bsed\s+-i\S*|\btee\s+(?:-a\s+)?|(?<![0-9&<>-])>{1,2}(?![&>])")
"""How shells change files; the names stand behind."""
KEPT_LOOKAHEAD_CHARS = 400
"""Characters behind such a word in which they are looked for."""
MAX_NAME_CHARS, MAX_CALL_CHARS = 300, 4000
"""A longer argument is no name; a call whose arguments are longer names none of what it reads."""
MAX_NAMES = 50


@dataclass(frozen=True)
class ToolUse:
    """A tool's result in the conversation, with its call: `index` of its message, `size` in characters, and `age`, the
    answers since it was first forwarded. `call`: index of the message that asked for it. `is_cut`: it no longer stands
    in full. `bounced`: the mark of its text, where that was read again soon after it had been cut."""

    index: int
    tool: str
    arguments: str
    size: int
    age: int
    call: int = 0
    is_cut: bool = False
    bounced: bytes | None = None

    @cached_property
    def texts(self) -> list[str]:
        """The texts in the call's arguments."""
        return list(_strings(self.arguments))

    @cached_property
    def changed(self) -> frozenset[str]:
        """The files that the call changes, by their names without folders."""
        return frozenset(_edited(self.tool, self.texts))

    @cached_property
    def read(self) -> list[str]:
        """The files that the call reads, by their names without folders, the first of them."""
        return [] if self.changed else list(islice(_named(self.texts), MAX_NAMES))


def kept_results(uses: Sequence[ToolUse], read_within: int = READ_WITHIN, small: int = 0) -> list[int]:
    """Indexes of the results that stay, the most needed first: of each file that is being edited the latest reading,
    and the latest of the whole of it; what was called for again after it had been cut; then the latest reading of any
    file, where that is recent, and the latest of the whole of it, where that is small.
    `uses`: all results of the conversation, oldest first; `read_within`: answers within which a reading is recent;
    `small`: characters of a small one."""
    readings, alone = _readings(uses)
    edited: set[str] = set()
    cut: set[tuple[str, str]] = set()
    again: dict[tuple[str, str], ToolUse] = {}
    bounced: dict[bytes, ToolUse] = {}
    for use in uses:
        call = use.tool, use.arguments
        if use.is_cut:
            cut.add(call)
        elif call in cut and use.age <= KEPT_FOR:
            again[call] = use
        if use.bounced is not None:
            bounced[use.bounced] = use
        if use.age <= EDITED_WITHIN:
            edited |= use.changed
    kept: set[int] = set()
    for name in edited & readings.keys():
        found = alone.get(name) or readings[name]
        kept |= {found[-1].index, _whole(found).index}
    kept.update(use.index for use in (*again.values(), *bounced.values()))
    recent = {each[-1].index for each in readings.values() if each[-1].age < read_within}
    if small and any(use.age <= ALIVE_WITHIN and use.changed and EDIT_TOOL_NAME.search(use.tool) for use in uses):
        recent |= {whole.index for each in readings.values() if (whole := _whole(each)).size <= small}
    return [*sorted(kept, reverse=True), *sorted(recent - kept, reverse=True)]


def _readings(uses: Sequence[ToolUse]) -> tuple[dict[str, list[ToolUse]], dict[str, list[ToolUse]]]:
    """What was read of each file, oldest first; and of these what names no other file."""
    readings: dict[str, list[ToolUse]] = {}
    alone: dict[str, list[ToolUse]] = {}
    for use in uses:
        for name in use.read:
            readings.setdefault(name, []).append(use)
            if len(use.read) == 1:
                alone.setdefault(name, []).append(use)
    return readings, alone


def _whole(readings: Sequence[ToolUse]) -> ToolUse:
    """The latest reading of a file that is one of the whole."""
    longest = max(use.size for use in readings)
    return next(use for use in reversed(readings) if use.size >= WHOLE_SHARE * longest)


def free_calls(uses: Sequence[ToolUse]) -> dict[int, int]:
    """The indexes of the messages of which the calls' inputs may leave, and the answers since each. What was written
    into a file stays where an edit may have to quote it: while the file is being changed, until the whole of it stands
    elsewhere, and the last change where that is small.
    `uses`: all results of the conversation, oldest first."""
    age: dict[str, int] = {}
    last: dict[str, int] = {}
    whole = {name: _whole(found).index for name, found in _readings(uses)[0].items()}
    calls: dict[int, list[ToolUse]] = {}
    for use in uses:
        calls.setdefault(use.call, []).append(use)
        age.update(dict.fromkeys(use.changed, use.age))
        last.update(dict.fromkeys(use.changed, use.call))
        if WRITE_TOOL_NAME.search(use.tool):
            whole.update({name: max(whole.get(name, 0), use.index) for name in use.changed})
    found: dict[int, int] = {}
    for call, made in calls.items():
        names = frozenset[str]().union(*(use.changed for use in made))
        is_small = sum(len(use.arguments) for use in made) <= MAX_SMALL_CHANGE
        end = made[-1].index
        is_kept = any(
            age[name] <= WRITTEN_WITHIN
            or (age[name] <= ALIVE_WITHIN and whole.get(name, 0) <= end)
            or (is_small and last[name] == call)
            for name in names
        )
        if made[-1].age >= WRITTEN_WITHIN and not is_kept:
            found[call] = made[-1].age
    return found


def kept_in_pass(material: WindowInputs, costs: bill.BranchCosts | None) -> list[Artifact]:
    """The results that a pass shows whole as far as they have room, the most needed first."""
    results = {each.place.message: each for each in material.placed if each.artifact_type is ArtifactType.TOOL_RESULT}
    return [results[index] for index in kept_results(tool_uses(material, costs), READ_WITHIN_PASS)]


def tool_uses(material: WindowInputs, costs: bill.BranchCosts | None) -> list[ToolUse]:
    """All results of the conversation, oldest first, with the answers since each; `costs` of its branch say what was
    read again."""
    bounced = bill.ResultMarks.together(costs.bounced) if costs is not None else frozenset()
    asked = list(accumulate((i if m.role == "assistant" else 0 for i, m in enumerate(material.messages)), max))
    before = list(accumulate(int(message.role == "assistant") for message in material.messages))
    left = material.left
    found = [
        ToolUse(
            at,
            artifact.title or "",
            artifact.arguments,
            artifact.size_chars,
            before[-1] - before[at],
            asked[at],
            is_cut=at in left or material.stands_reduced(artifact),
            bounced=next((mark for mark in marks(artifact) if mark in bounced), None) if bounced else None,
        )
        for artifact in material.placed
        if artifact.artifact_type is ArtifactType.TOOL_RESULT and (at := artifact.place.message) is not None
    ]
    return sorted(found, key=lambda use: use.index)


def changed_files(uses: Sequence[ToolUse]) -> set[str]:
    """The files that any of these calls changes, by their names without folders."""
    return {name for use in uses for name in use.changed}


def named_files(arguments: str) -> frozenset[str]:
    """The files that a call names, by their names without folders; none of what is too long to be a call."""
    return frozenset(_named(list(_strings(arguments))))


def _named(texts: Sequence[str]) -> dict[str, None]:
    """The files that a call with these texts names, each once, in their order; none if it is too long to be one."""
    if sum(map(len, texts)) > MAX_CALL_CHARS:
        return {}
    return dict.fromkeys(_name(path) for text in texts for path in PATH.findall(text))


def _edited(tool: str, texts: Sequence[str]) -> Iterator[str]:
    """The files that a call changes, by their names without folders."""
    for text in texts:
        yield from map(_name, PATCH.findall(text))
        if len(text) <= MAX_NAME_CHARS and "\n" not in text and EDIT_TOOL_NAME.search(tool):
            yield from map(_name, PATH.findall(text))
        for found in islice(IN_SHELL.finditer(text), MAX_NAMES):
            line = text[found.end() : found.end() + KEPT_LOOKAHEAD_CHARS].partition("\n")[0]
            yield from map(_name, PATH.findall(line)[:1] if found[0].startswith((">", "tee")) else PATH.findall(line))


def _name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _strings(arguments: str) -> Iterator[str]:
    """The texts in a call's arguments, as JSON or as they are."""
    try:
        return jsons.texts_in(jsons.loads(arguments) if arguments else {})
    except (ValueError, TypeError):
        return iter([arguments])
