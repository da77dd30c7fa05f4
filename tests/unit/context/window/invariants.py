"""Guarantee §4 as checks of what is forwarded for a conversation."""

import re
from html import escape
from typing import Any

from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.manager import BuiltContext
from gateway.core.types.artifacts import Artifact
from gateway.retrieval.chunks.split import passages
from tests.properties.checks import escapes
from tests.support.o200k import prompt_tokens
from tests.support.strict_chat import violations
from tests.unit.context.window.histories import DOCUMENT_CHARS, Talk
from tests.unit.making import material_of

ELISION = "[…]"
LABEL_TOKENS = 150
DELIMITERS = re.compile(r"<(?=/?(?:context_data|artifact)\b)")


def all_text(message: dict[str, Any]) -> str:
    """Everything that a message says."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def key_of(message: dict[str, Any]) -> str:
    """What names a message of a `Talk`, however much of it was reduced."""
    if message["role"] == "tool":
        return f"tool {message['tool_call_id']}"
    if message.get("tool_calls"):
        return f"calls {message['tool_calls'][0]['id']}"
    found = re.findall(r"(?:asked|said)-\d+-", all_text(message))
    return f"{message['role']} {found[-1] if found else '?'}"


def check_budget(talk: Talk, built: BuiltContext, budget: int) -> None:
    """I1, by an independent count; the figures in the bill agree."""
    counted = prompt_tokens(built.fitted.forwarded.messages, talk.forward)
    assert counted <= budget
    utilization = built.utilization
    assert (utilization.tokens_used, utilization.breakdown) == (built.fitted.tokens, built.fitted.breakdown)
    assert sum(built.fitted.breakdown.values()) == built.fitted.tokens <= budget
    total = len(talk.messages) + len(talk.instructions)
    assert utilization.messages_included + utilization.messages_excluded == total
    assert utilization.messages_included == len(built.fitted.forwarded.messages)
    if built.fitted.exact:
        assert counted <= built.fitted.tokens


def check_run(talk: Talk, messages: list[dict[str, Any]]) -> None:
    """I2 and I3: system messages, then whole turns without a gap; of the current turn only oldest steps may lack."""
    systems = len(talk.instructions)
    assert messages[:systems] == talk.instructions
    got = [key_of(message) for message in messages[systems:]]
    everything = [key_of(message) for message in talk.messages]
    starts = [start for start, _ in talk.turns]
    suffixes = [everything[start:] for start in starts]
    if got not in suffixes:
        current = everything[talk.current :]
        steps = [n for n, key in enumerate(current) if key.startswith("calls ")]
        assert got in [current[:1] + current[step:] for step in steps[1:]], "a gap in the run"
    assert violations({"model": "gpt-4o", "messages": messages}) == []


def check_current_message(talk: Talk, messages: list[dict[str, Any]]) -> None:
    """I4: the current user message is the last one and keeps its own words, in their order."""
    last = [message for message in messages if message["role"] == "user"][-1]
    assert key_of(last) == key_of(talk.messages[talk.current])
    text = all_text(last)
    places = [text.find(words) for words in talk.own_words]
    assert -1 not in places
    assert places == sorted(places)
    original = talk.messages[talk.current]["content"]
    if isinstance(original, str) and len(original) <= DOCUMENT_CHARS:
        assert text.endswith(original)
    if isinstance(original, list):
        images = [part for part in original if part["type"] == "image_url"]
        assert [part for part in last["content"] if part["type"] == "image_url"] == images


def check_labels(talk: Talk, built: BuiltContext) -> None:
    """I6: what is reduced says what it is, whence, how much was left out, and its id; the block has one delimiter."""
    forwarded = built.fitted.forwarded
    text = "\n".join(all_text(message) for message in forwarded.messages)
    artifacts = {artifact.artifact_id: artifact for artifact in material_of(built).artifacts}
    records = built.utilization.artifacts_processed
    assert [record.artifact_id for record in records][: len(artifacts)] == list(artifacts)
    check_excerpts(talk, built)
    for record in records[: len(artifacts)]:
        artifact = artifacts[record.artifact_id]
        assert record.original_size_chars == len(artifact.content)
        gone = artifact.place.message is not None and artifact.place.message not in forwarded.indexes
        if record.strategy == "include_full" or (gone and record.strategy == "exclude"):
            continue
        if artifact.place.message is None and record.artifact_id not in built.fitted.selection.renderings:
            # An attachment of which nothing is shown is named in the metadata alone where not even that fits.
            assert (record.strategy, record.processed_size_chars) == ("exclude", 0)
            continue
        assert record.artifact_id in text
        label = artifact.label or artifact.source
        assert label in text or escape(label) in text
        assert f"{len(artifact.content):,} characters" in text
        if record.strategy == "exclude":
            assert record.processed_size_chars == 0
        else:
            assert 0 < record.processed_size_chars < record.original_size_chars
    if forwarded.block:
        assert forwarded.block.lower().count("</context_data") == 1
        assert forwarded.block.count("<artifact ") == len(re.findall(r"</artifact>|/>\n", forwarded.block))


def check_excerpts(talk: Talk, built: BuiltContext) -> None:
    """I6: what old turns said is quoted word for word, labelled, and only what the window does not hold."""
    forwarded, turns = built.fitted.forwarded, built.fitted.selection.turns
    records = built.utilization.artifacts_processed[len(material_of(built).artifacts) :]
    assert len(records) == (turns is not None)
    if turns is None:
        assert 'type="conversation"' not in forwarded.block
        return
    (record,) = records
    assert (record.strategy, record.artifact_type) == ("rag_extract", "conversation")
    assert 0 < record.processed_size_chars <= record.original_size_chars
    assert f'id="{record.artifact_id}" type="conversation" source="{record.source}"' in forwarded.block
    first, last = map(int, record.source.removeprefix("turns:").split("-"))
    outside = {
        m for n, (start, end) in enumerate(talk.turns, 1) if n in range(first, last + 1) for m in range(start, end)
    }
    gone = outside - set(forwarded.indexes)
    said = [(talk.messages[index]["role"], all_text(talk.messages[index])) for index in sorted(gone)]
    for excerpt in turns.excerpts:
        assert f"[{excerpt.turn} {excerpt.speaker}] " in forwarded.block
        quotes = [excerpt.text[start:end].strip() for start, end in excerpt.spans]
        plain = [quote for quote in quotes if not quote.startswith("called ") and ELISION not in quote]
        assert any(
            role == excerpt.speaker and all(q.split("\ncalled ")[0] in text for q in plain) for role, text in said
        )
        assert all(DELIMITERS.sub("&lt;", quote) in forwarded.block for quote in quotes)


def check_nothing_invented(talk: Talk, messages: list[dict[str, Any]], artifacts: tuple[Artifact, ...]) -> None:
    """An extract in a tool message is made of stretches of the result, in their order."""
    originals = {m["tool_call_id"]: m["content"] for m in talk.messages if m["role"] == "tool"}
    for message in messages:
        if message["role"] != "tool" or not message["content"].startswith("[Extract of "):
            continue
        original = compact(originals[message["tool_call_id"]])
        body = message["content"].split("\n", 1)[1]
        at = 0
        header = header_of(original)
        for piece in (piece.strip("\n") for piece in body.split(ELISION)):
            piece = piece.removeprefix(header).strip("\n") if header else piece
            piece = piece if piece in original else escapes.plain(piece)
            heading, _, rest = piece.partition("\n")
            if piece not in original and heading.startswith("#") and f"\n{heading}" in f"\n{original}":
                piece = rest  # a passage says under which heading it stands, or how that begins
            found = original.find(piece, at)
            assert found >= 0, f"words that the result does not hold: {piece[:300]!r}"
            at = found + len(piece)


def check_untouched(talk: Talk, messages: list[dict[str, Any]]) -> None:
    """What fits without doubt is forwarded as the client sent it, equal as JSON values (§1)."""
    assert messages == [*talk.instructions, *talk.messages]


def needed_at_least(talk: Talk) -> int:
    """Tokens of what must stand: system messages, the current words, the calls of the latest step, and labels."""
    current = talk.messages[talk.current :]
    steps = [n for n, message in enumerate(current) if message.get("tool_calls")]
    kept = [current[0], *(current[steps[-1] :] if steps else [])]
    bare = []
    labels = len(talk.attached) + len(talk.attachments)
    for message in kept:
        content = message["content"]
        if message["role"] == "tool":
            labels += 1
            content = ""
        elif message["role"] == "user":
            labels += 1
            content = _own(content, talk.own_words)
        bare.append({**message, "content": content})
    return prompt_tokens([*talk.instructions, *bare], talk.forward) + LABEL_TOKENS * labels


def _own(content: Any, own_words: list[str]) -> Any:
    """The current message without what may be treated as a document."""
    if isinstance(content, str):
        return content if len(content) <= DOCUMENT_CHARS else "\n".join(own_words)
    images = [part for part in content if part["type"] == "image_url"]
    return [{"type": "text", "text": "\n".join(own_words)}, *images]


def header_of(text: str) -> str:
    """What stands above the first passage that needs it."""
    return next((chunk.heading for chunk in passages(text) if chunk.heading), "")
