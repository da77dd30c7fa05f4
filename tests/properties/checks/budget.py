"""I1: what is forwarded fits, the figures say so, and what was refused could not have been made to fit."""

from tests.properties.cases import Case
from tests.properties.checks import tokens
from tests.properties.checks.memory import with_results
from tests.properties.checks.seen import INSTRUCTIONS, Json, Seen, amid, hold, text_of, turn_begin

LABEL = 90
"""Tokens that a label may take, with names and titles in it."""
ESTIMATED_FRAME = 4
"""Tokens that an estimate may add to each message: what is small beside its pictures is not counted."""
UNFILLED = 300
"""Tokens that may stay free where the next passage does not fit."""
LOSSY = ("exclude", "rag_extract")
MARGINS = {"loose": 1.2}
COMPACTED = 3
"""How many times as long as its compaction a prompt may be, few apart."""


def budget_of(case: Case) -> int:
    """min(model's maximum input, window - reserved output, what the request asks for)."""
    if case.body["model"] != "narrow":
        return case.budget
    reserved = case.body.get("max_completion_tokens") or case.body.get("max_tokens") or 500
    return min(case.budget, 4000 - int(reserved))


def check(seen: Seen) -> None:
    """Counted anew, and added up."""
    allowed = budget_of(seen.case)
    figures, body = seen.figures, seen.case.body
    hold("I1", figures["budget_tokens"] == allowed, f"a budget of {figures['budget_tokens']}, not {allowed}")
    margin = MARGINS.get(body["model"], 1.0)
    counted = tokens.of_prompt(seen.sent, body)
    pictures = tokens.of_pictures(seen.sent)
    least = int((counted - pictures) * margin) + pictures
    hold("I1", least <= allowed, f"{counted} tokens (margin {margin}) of {allowed}")
    used = figures["tokens_used"]
    hold("I1", used <= allowed, f"tokens_used {used} of {allowed}")
    hold("I1", sum(figures["breakdown"].values()) == used, "the breakdown does not add up")
    share = figures["utilization"]
    hold("I1", abs(share - used / allowed) < 0.001, f"{share} is not the share of {used} in {allowed}")
    hold("I1", share <= 0.8 or "context_window_above_80_percent" in figures["warnings"], "a full window is no warning")
    hold("I1", min(figures["breakdown"].values()) >= 0, "a negative share in the breakdown")
    most = (counted + tokens.most_beside(seen.sent, body)) * margin
    if used > allowed / 2:
        framed = 1.03 * most + ESTIMATED_FRAME * len(seen.forwarded)
        hold("I1", used <= framed + 4, f"tokens_used {used} of a prompt that takes {counted} to {most:.0f}")
    if most > allowed * 0.9:  # so near to the edge it must have been counted
        hold("I1", used >= least - 1, f"tokens_used {used} of a prompt that takes at least {counted}")
    included = figures["messages_included"]
    hold("I1", included == len(seen.forwarded), f"messages_included {included} of {len(seen.forwarded)}")
    total = included + figures["messages_excluded"]
    hold("I1", total == len(seen.originals), f"messages add up to {total}, not {len(seen.originals)}")


def check_refusal(case: Case, originals: list[Json]) -> None:
    """What was refused: system messages, the current user's own words, the last tool step and tools do not fit."""
    least, margin = needed(case, originals), MARGINS.get(case.body["model"], 1.0)
    hold("I1", least * margin > budget_of(case), f"refused, and {least} of {budget_of(case)} tokens would do")


def needed(case: Case, originals: list[Json]) -> int:
    """Tokens, generously, of what must be forwarded in any case."""
    current, leaving = max(turn_begin(originals), 0), amid(originals)[:-1]
    indexes = [i for i in range(current, len(originals)) if i not in leaving]
    now = [m for i in indexes if (m := originals[i])["role"] not in INSTRUCTIONS]
    calls = [n for n, m in enumerate(now) if m.get("tool_calls")]
    kept, labels = [m for m in originals if m["role"] in INSTRUCTIONS], 0
    pinned = with_results(originals, case.pinned)
    kept += [{"role": "user", "content": _told(originals[index])} for index in sorted(pinned) if index < current]
    labels += len(pinned)
    stays = steps_with(originals, pinned)
    for number, message in enumerate(now):
        if any(message is originals[index] for index in stays):
            kept.append(message)
            continue
        if calls and number < calls[-1] and (message["role"] == "tool" or message.get("tool_calls")):
            continue
        reduced = message
        if message["role"] == "tool":
            reduced, labels = {**message, "content": _shorter(text_of(message["content"]))}, labels + 1
        elif message["role"] == "user":
            content = message["content"]
            reduced = {**message, "content": _own(case, content)}
            labels += len(content) if isinstance(content, list) else 4
        kept.append(reduced)
    return tokens.of_prompt(kept, case.body) + tokens.most_beside(kept, case.body) + LABEL * labels


def _told(message: Json) -> str | list[Json]:
    """A pinned message as the memory message has it, calls included."""
    calls = "".join(str(call["function"]) for call in message.get("tool_calls") or ())
    content = message["content"]
    return [*content, {"type": "text", "text": calls}] if isinstance(content, list) else f"{content or ''}{calls}"


def steps_with(messages: list[Json], pinned: set[int]) -> set[int]:
    """The messages of the tool steps in which something is pinned: they do not leave the current turn."""
    found: set[int] = set()
    step: list[int] = []
    for index, message in enumerate(messages):
        step = [*step, index] if message["role"] == "tool" else [index]
        if pinned.intersection(step):
            found.update(step)
    return found


def _shorter(text: str) -> str:
    return text if len(text) < 400 else ""


def _own(case: Case, content: str | list[Json]) -> str | list[Json]:
    """The current message without what may be treated as a document: the first and last thousand characters at least
    of what is over-long stay, or the first and the last paragraph."""
    whole = len(text_of(content))
    if isinstance(content, str):
        return content if whole <= case.document_chars else _edges(content)
    kept = []
    for part in content:
        if part["type"] == "text" and whole > case.document_chars:
            kept.append({**part, "text": _edges(part["text"])})
        elif part["type"] != "file":
            kept.append(part)
    return kept


def _edges(text: str) -> str:
    return text if len(text) <= 3000 else text[:2000] + text[-2000:]


def check_filled(seen: Seen) -> None:
    """Where something was left out and there is more to show, the budget is used."""
    figures, allowed = seen.figures, budget_of(seen.case)
    lossy = [r for r in seen.records if r["strategy"] in LOSSY]
    left = figures["messages_excluded"] or lossy
    if not left or seen.case.body.get("store") is not False or seen.standing:
        return  # in a conversation that goes on, room is left for its next turns, and what stands stands (I7)
    if seen.case.planned == "trusted" or is_thinned(seen):
        return  # a plan leaves out what would have had room
    free = allowed - figures["tokens_used"]
    full = free <= max(0.03 * allowed, UNFILLED) or not _is_more_to_show(figures)
    hold("fill", full, f"{free} of {allowed} tokens are free")


def is_thinned(seen: Seen) -> bool:
    """Whether a plan may have made less of what fits in full, compacted perhaps: it costs less then, and fills
    nothing. No message leaves for that."""
    if not seen.case.planned or seen.figures["messages_excluded"]:
        return False
    everything = [*seen.originals, *({"role": "user", "content": a["content"]} for a in seen.case.attachments)]
    return tokens.of_prompt(everything, seen.case.body) <= COMPACTED * budget_of(seen.case)


def _is_more_to_show(figures: Json) -> bool:
    """Whether anything that was left out could be shown in part. What a turn that ended the run said is quoted in the
    block: where all of it is, only its pictures are missing, and nothing smaller than the turn would bring these. What
    was left out of one artifact may stand in full in another that says the same."""
    records: list[Json] = figures["artifacts_processed"]
    quoted = any(r["source"].startswith("turns:") for r in records)
    full = {_content(r) for r in records if r["strategy"] == "include_full"}
    lossy = [r for r in records if r["strategy"] in LOSSY and _content(r) not in full]
    reduced = any(r["processed_size_chars"] < r["original_size_chars"] for r in lossy)
    return reduced or bool(figures["messages_excluded"] and not quoted)


def _content(record: Json) -> str:
    name: str = record["artifact_id"]
    return name.partition("-")[0]
