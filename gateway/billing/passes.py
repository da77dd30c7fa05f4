"""Which old tool results and inputs of calls leave a window, and when that pays: pure decisions on figures (guarantee
§4 I7).

Where the provider's cache of the prefix has expired, a rewrite is free, and old results leave. Else a pass is bought:
its price is what the changed end of the prompt costs once more, its return what carrying its results on would cost. It
is bought only out of what the branch has saved so far and a share of its bill, so that no session gets dearer by more
than that share. Old results near the end of a prompt are bought first, as little is written again behind them; what
they save pays for deeper passes.

Some results must not leave, whatever they cost: the model has to quote what it edits word for word, and works on what
it has just read. A bounce is a result that left, or became a label, and was read again within a few steps (guarantee
§6.12). What left is stored as digests with the sums of its branch, for as long as a second reading counts: no history
is walked.
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
"""Answers since a result was first forwarded, from which on a pass may clear it: a free pass, a bought one, one near
the end that makes room. After 4 answers, each further one adds the cost of carrying the result to its rent."""
MIN_RESULT_TOKENS = 200
"""A result of fewer tokens is hardly longer than its label."""
LABEL_TOKENS = 60
MIN_CLEARED_TOKENS = 500
"""A pass that clears less is not worth the change."""
MIN_RENT = Decimal(1)
"""A pass is made once carrying what it clears has cost this multiple of its price (the ski-rental rule)."""
MIN_RENT_ANEW = Decimal(4)
"""`MIN_RENT` of a pass that decides everything again, which clears old turns and steps too. Measured on recorded
sessions at 64,000 tokens (four made with the coding agent pi): at 4 the bill falls from 0.519 to 0.484 of the direct
one, with as many of the words and edits of the next step; at 2 to 0.473, with 96.0 instead of 98.0 % of the words."""
MAX_PAYBACK = Decimal("0.15")
"""A pass has to pay for itself within this share of the answers that a conversation has had."""
MAX_CREDIT = Decimal("1.008")
"""No pass is bought beyond so many times what direct requests would have cost."""
ROOM_SHARE = Decimal("0.01")
"""Share of the budget that a pass near the end of a window frees beyond the excess."""
DEEP_SHARE = Decimal("0.3")
"""Rough share of the budget that a pass that makes room and decides everything again writes to the cache again."""
MIN_SAVED = Decimal("0.1")
"""Share of the direct cost that a branch has to have saved before a pass that makes room keeps more than it must."""


@record
class CarriedResult:
    """A tool's result, or the inputs of a message's calls, that is in the window in full and may leave: the `index` of
    its message in the prompt, its tokens, and the answers since it was first forwarded."""

    index: int
    tokens: int
    age: int

    @property
    def spared(self) -> int:
        """Tokens that its label takes less."""
        return self.tokens - LABEL_TOKENS


@record
class PromptTokens:
    """The tokens of each message of a prompt, of which an earlier request forwarded the first `known`. `marked`: the
    indexes of the messages behind which the client set breakpoints, if it set all that a provider accepts; None: the
    prompt is read from the cache up to any change."""

    sizes: Sequence[int]
    known: int
    marked: tuple[int, ...] | None = None

    def read_until(self, index: int) -> int:
        """Returns how many messages before one are still read from the cache if it changes."""
        return index if self.marked is None else max((at + 1 for at in self.marked if at < index), default=0)


def cleared_when_cold(carried: Sequence[CarriedResult]) -> list[CarriedResult]:
    """Returns what a pass clears at no cost, when the cache has expired; empty where that is too little."""
    found = [each for each in carried if each.age >= COLD_AGE and each.tokens >= MIN_RESULT_TOKENS]
    return found if sum(each.spared for each in found) >= MIN_CLEARED_TOKENS else []


def credit(costs: bill.BranchCosts) -> Decimal:
    """Returns the USD that a branch may spend on a pass."""
    return costs.direct * MAX_CREDIT - costs.billed


def may_keep_more(costs: bill.BranchCosts | None) -> bool:
    """Returns whether a pass that makes room may keep more results whole than it must. That is paid out of savings,
    like all that costs more: a session that ends soon after its first pass recovers none of its price."""
    return costs is not None and costs.billed <= costs.direct * (1 - MIN_SAVED)


def cleared_when_paid(
    carried: Sequence[CarriedResult], prompt: PromptTokens, rates: CacheRates, answers: int, costs: bill.BranchCosts
) -> list[CarriedResult]:
    """Returns what the pass clears that pays best; empty where none pays, or where the branch has not saved enough.
    `answers`: how many the conversation has had: a pass has to pay within a share of them; `costs`: of the branch until
    now."""
    candidates = _worth_clearing(carried, PAID_AGE, prompt.known)
    most, best = credit(costs), (Decimal(0), 0)
    rent = Decimal(0)
    for cut in _cuts(candidates, prompt, rates):
        rent += rates.read * (cut.last.spared * (cut.last.age - PAID_AGE + 1))
        gain = _gain(cut.spared, cut.price, rates, answers)
        pays = cut.spared >= MIN_CLEARED_TOKENS and rent >= MIN_RENT * cut.price and cut.price <= most
        if pays and gain > best[0]:
            best = gain, cut.count
    return _latest(candidates, best[1])


def gain_of_clearing(
    cleared: Sequence[CarriedResult], prompt: PromptTokens, rates: CacheRates, answers: int
) -> Decimal:
    """Estimates the USD that a pass which clears these results saves, less its price; 0 for none.
    `answers`: as for `cleared_when_paid`."""
    cuts = list(_cuts(cleared, prompt, rates))
    return _gain(cuts[-1].spared, cuts[-1].price, rates, answers) if cuts else Decimal(0)


def gain_of_new_pass(
    stays: int, sizes: Sequence[int], ages: Sequence[int], rates: CacheRates, answers: int, costs: bill.BranchCosts
) -> Decimal:
    """Estimates the USD that a pass which decides everything again saves, less its price; 0 where it would not pay, or
    where the branch has not saved enough to buy it.
    `stays`: tokens of the prompt after the pass, all of them written again; `ages`: answers since each message of the
    prompt, and `sizes` its tokens; `answers, costs`: as for `cleared_when_paid`."""
    leaves = sum(sizes) - stays
    price = (rates.write - rates.read) * stays - rates.read * leaves
    latest_first = zip(reversed(sizes), reversed(ages), accumulate(reversed(sizes)), strict=True)
    carried = (size * max(0, age - PAID_AGE + 1) for size, age, tail in latest_first if tail > stays)
    rent = rates.read * sum(carried)  # what stays is roughly the latest
    if leaves < MIN_CLEARED_TOKENS or rent < MIN_RENT_ANEW * price or price > credit(costs):
        return Decimal(0)
    return max(Decimal(0), _gain(leaves, price, rates, answers))


def _gain(spared: int, price: Decimal, rates: CacheRates, answers: int) -> Decimal:
    return rates.read * spared * answers * MAX_PAYBACK - price


def cleared_for_room(
    carried: Sequence[CarriedResult], prompt: PromptTokens, rates: CacheRates, budget: int, costs: bill.BranchCosts
) -> list[CarriedResult]:
    """Returns the results to clear near the end of a window that is over budget, at the least price. Returns none if
    the branch's bill would exceed its bound, or if the branch can afford a pass that decides everything again: that is
    cheaper if the session continues, clearing near the end is cheaper if it stops.
    `costs`: as for `cleared_when_paid`; `budget`: tokens that the prompt may have."""
    sizes, known = prompt.sizes, prompt.known
    old, new = sum(sizes[:known]), sum(sizes[known:])
    unchanged = rates.prompt(old + new, old)
    most = credit(replace(costs, direct=costs.direct + unchanged)) - unchanged
    deep = DEEP_SHARE * budget
    if most >= (rates.write - rates.read) * deep - rates.read * (old - deep):
        return []
    candidates = _worth_clearing(carried, ROOM_AGE, known)
    enough = old + new - budget + ROOM_SHARE * budget
    cuts = [cut for cut in _cuts(candidates, prompt, rates) if cut.spared >= enough and cut.price <= most]
    return _latest(candidates, min(cuts, key=lambda cut: cut.price).count if cuts else 0)


@record
class _Cut:
    """A pass that begins at the result `last` and clears it and all candidates behind it, `count` in all."""

    last: CarriedResult
    count: int
    spared: int
    price: Decimal


def _cuts(candidates: Sequence[CarriedResult], prompt: PromptTokens, rates: CacheRates) -> Iterator[_Cut]:
    """Yields the passes that may be bought, from the end of what an earlier request forwarded to its beginning."""
    at = {each.index: each for each in candidates if each.index < prompt.known}
    ends = list(accumulate(prompt.sizes, initial=0))
    spared = 0
    for count, index in enumerate(sorted(at, reverse=True), 1):
        spared += at[index].spared
        written = ends[prompt.known] - ends[prompt.read_until(index)] - spared
        yield _Cut(at[index], count, spared, (rates.write - rates.read) * written - rates.read * spared)


def _worth_clearing(carried: Sequence[CarriedResult], age: int, known: int) -> list[CarriedResult]:
    """Returns the results of that age or older that an earlier request forwarded and that are long enough."""
    found = (each for each in carried if each.index < known)
    return [each for each in found if each.age >= age and each.tokens >= MIN_RESULT_TOKENS]


def _latest(candidates: Sequence[CarriedResult], count: int) -> list[CarriedResult]:
    return sorted(candidates, key=lambda each: each.index)[len(candidates) - count :]


WITHIN = 10
"""Answers after which a second reading is no longer a bounce."""
KEPT_FOR = 40
"""Answers for which a result that was cut and then called for again stays in full."""
MAX_CUT = 256
"""The latest results of one pass, of which a second reading is recognised as a bounce."""


def newly_cut(material: WindowInputs, fitted: PackedWindow) -> list[Artifact]:
    """Returns the tool results that were in the window in full and that a pass shortens or omits, oldest first."""
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
        if is_cut and index not in left and not material.was_reduced(artifact):
            found.append(artifact)
    return found[-MAX_CUT:]


def read_again(material: WindowInputs, since: int, costs: bill.BranchCosts) -> list[Artifact]:
    """Returns the bounces among the results that came with this request, from the message `since` on: a result that was
    cut lately came back, or its tool was called again with the same arguments."""
    cut = bill.ResultMarks.together(costs.cut)
    if not cut:
        return []
    new = (each for each in material.placed if (each.place.message or 0) >= since)
    return [each for each in new if each.artifact_type is ArtifactType.TOOL_RESULT and not cut.isdisjoint(marks(each))]


def recalled(
    messages: Sequence[Mapping[str, Any]], costs: bill.BranchCosts
) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """Yields the results of rounds of `recall` that are bounces, each with the mark of what was read.
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
    """Adds to the sums of a branch, after one more answer, the marks of what left in its request and what came back."""
    return replace(
        costs,
        cut=bill.ResultMarks.grown(costs.cut, [mark for each in cut for mark in marks(each)], WITHIN),
        bounced=bill.ResultMarks.grown(costs.bounced, bounced, KEPT_FOR),
    )


def marks(artifact: Artifact) -> tuple[bytes, ...]:
    """Computes the digests of a result's text, where it has one, and of its call."""
    called = hashlib.blake2b(f"{artifact.title}\0{artifact.arguments}".encode("utf-8", "surrogatepass"))
    of_text = _mark_of_id(artifact.content_id)
    own = called.digest()[: bill.ResultMarks.SIZE]
    return (own,) if of_text is None else (of_text, own)


def _mark_of_id(name: str) -> bytes | None:
    """Returns the mark in the id of a content, which is a digest itself; None where the id holds none."""
    try:
        return bytes.fromhex(name.partition("_")[2].partition("-")[0])[: bill.ResultMarks.SIZE] or None
    except ValueError:
        return None


def _wanted(call: Mapping[str, Any]) -> str:
    """Returns the artifact that a call of `recall` asks for; "" where it names none."""
    written = (call.get("function") or {}).get("arguments") or "{}"
    try:
        given = jsons.loads(written) if isinstance(written, str) else written
    except ValueError:
        return ""
    return str(given.get("artifact_id") or "") if isinstance(given, dict) else ""


EDITED_WITHIN = KEPT_FOR
"""Answers: a file that was edited within so many counts as being edited."""
READ_WITHIN, READ_WITHIN_COLD = 20, 12
"""Answers within which the latest reading of a file stays: while nothing has to leave; where all is written again."""
READ_WITHIN_PASS = 6
"""`READ_WITHIN` where something has to leave: there each result that stays takes the space of another."""
MAX_SMALL_READING = 10_000
"""Characters of the latest whole reading of a file that stays, however old it is, while files are edited and nothing
has to leave: it costs little to carry, and may be edited yet."""
WRITTEN_WITHIN, ALIVE_WITHIN = 10, 25
"""Answers since a file was changed, within which what was written into it stays; and within which it stays unless the
whole file was read or written since. A failed call is usually repeated sooner; a file that is edited again later is
mostly read again first. On recorded sessions with a window of 200,000 tokens this takes the bill from 0.895 to 0.857 of
the direct one, and 480 instead of 487 of 491 edits find what they quote; without small readings that stay, to 0.821 and
465."""
WRITE_TOOL_NAME = re.compile(r"write|create", re.IGNORECASE)
"""Names of tools that write whole files."""
MAX_SMALL_CHANGE = 4_000
"""Characters up to which the inputs of the last change of a file stay."""
WHOLE_SHARE = 0.5
"""Share of a file's longest reading from which on another counts as a reading of the whole file, not of a page."""
PATH = re.compile(
    r"(?<![\w./\\-])[\w./\\-]*(?:[\w-]\.\w{1,6}(?!\w)|(?<![\w.-])(?:"
    r"[A-Z]\w{2,12}file|(?:make|docker|just)file|README|LICENSE|CHANGELOG|CODEOWNERS|Kconfig|\.[a-z]\w{1,30}"
    r")(?![\w./\\-]))"
)
"""A file with its folders, by its extension, the dot before its name, or a name that files without either have."""
EDIT_TOOL_NAME = re.compile(r"edit|write|patch|replace|insert|update", re.IGNORECASE)
"""Names of tools that change files."""
PATCH = re.compile(r"^\*\*\* (?:Update|Add) File: (\S+)", re.MULTILINE)
IN_SHELL = re.compile(r"\bsed\s+-i\S*|\btee\s+(?:-a\s+)?|(?<![0-9&<>-])>{1,2}(?![&>])")
"""How shells change files; the names follow. Arrows (`=>`) and comparisons in code count too: on recorded sessions that
keeps what is edited later. Without them the bill falls from 0.832 to 0.815 of the direct one, but 21 instead of 7 of
491 edits do not find what they quote."""
KEPT_LOOKAHEAD_CHARS = 400
"""Characters after such a word in which the names are looked for."""
MAX_NAME_CHARS, MAX_CALL_CHARS = 300, 4000
"""A longer argument is no name; a call whose arguments are longer names none of what it reads."""
MAX_NAMES = 50


@dataclass(frozen=True)
class ToolUse:
    """A tool's result in the conversation, with its call: `index` of its message, `size` in characters, and `age`, the
    answers since it was first forwarded. `call`: index of the message that asked for it. `is_cut`: it is no longer in
    the window in full. `bounced`: the mark of its text, where that was read again soon after it had been cut."""

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
        """The files that the call reads, by their names without folders; at most `MAX_NAMES`."""
        return [] if self.changed else list(islice(_named(self.texts), MAX_NAMES))


def kept_results(uses: Sequence[ToolUse], read_within: int = READ_WITHIN, small: int = 0) -> list[int]:
    """Returns the indexes of the results that stay, the most needed first: of each file that is being edited the latest
    reading, and the latest of the whole file; what was called for again after it had been cut; then the latest reading
    of any file, where that is recent, and the latest of the whole file, where that is small.
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
    """Returns the readings of each file, oldest first; and among these the ones that name no other file."""
    readings: dict[str, list[ToolUse]] = {}
    alone: dict[str, list[ToolUse]] = {}
    for use in uses:
        for name in use.read:
            readings.setdefault(name, []).append(use)
            if len(use.read) == 1:
                alone.setdefault(name, []).append(use)
    return readings, alone


def _whole(readings: Sequence[ToolUse]) -> ToolUse:
    """Returns the latest reading of a file that covers the whole file."""
    longest = max(use.size for use in readings)
    return next(use for use in reversed(readings) if use.size >= WHOLE_SHARE * longest)


def free_calls(uses: Sequence[ToolUse]) -> dict[int, int]:
    """Returns the indexes of the messages whose calls' inputs may leave, with the answers since each. What was written
    into a file stays where an edit may have to quote it: while the file is being changed, until the whole of it is
    elsewhere in the window, and the last change where that is small.
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
    """Returns the results that a pass shows whole while budget is left, the most needed first."""
    results = {each.place.message: each for each in material.placed if each.artifact_type is ArtifactType.TOOL_RESULT}
    return [results[index] for index in kept_results(tool_uses(material, costs), READ_WITHIN_PASS)]


def tool_uses(material: WindowInputs, costs: bill.BranchCosts | None) -> list[ToolUse]:
    """Returns all results of the conversation, oldest first, with the answers since each; `costs` of its branch tell
    which were read again."""
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
            is_cut=at in left or material.was_reduced(artifact),
            bounced=next((mark for mark in marks(artifact) if mark in bounced), None) if bounced else None,
        )
        for artifact in material.placed
        if artifact.artifact_type is ArtifactType.TOOL_RESULT and (at := artifact.place.message) is not None
    ]
    return sorted(found, key=lambda use: use.index)


def changed_files(uses: Sequence[ToolUse]) -> set[str]:
    """Returns the files that any of these calls changes, by their names without folders."""
    return {name for use in uses for name in use.changed}


def named_files(arguments: str) -> frozenset[str]:
    """Returns the files that a call names, by their names without folders; empty if the text is too long for a call."""
    return frozenset(_named(list(_strings(arguments))))


def _named(texts: Sequence[str]) -> dict[str, None]:
    """Returns the files that a call with these texts names, each once, in order; empty if the texts are too long."""
    if sum(map(len, texts)) > MAX_CALL_CHARS:
        return {}
    return dict.fromkeys(_name(path) for text in texts for path in PATH.findall(text))


def _edited(tool: str, texts: Sequence[str]) -> Iterator[str]:
    """Yields the files that a call changes, by their names without folders."""
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
    """Yields the texts in a call's arguments, parsed as JSON or else as they are."""
    try:
        return jsons.texts_in(jsons.loads(arguments) if arguments else {})
    except (ValueError, TypeError):
        return iter([arguments])
