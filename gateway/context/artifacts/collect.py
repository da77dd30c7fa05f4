"""Finds the artifacts of a request: tool results, attachments, files, and documents inside user messages, beside the
user's own text (guarantee §4 I4).

Restored tool steps that cannot be messages become artifacts, too (guarantee §3.3): many providers refuse calls and
results in a request without tools, or calls that another provider's model made. They are shown as text in the block of
§4 I6, and stay text for the provider that was sent them as text. The provider that made the calls gets them back
unchanged, with signatures (§1).
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import unescape
from math import inf
from typing import Any, NamedTuple

from gateway.core import ids, jsons
from gateway.core.frozen_records import record
from gateway.core.types import artifacts, items, places, tool_steps
from gateway.core.types.artifacts import (
    Artifact,
    ArtifactPosition,
    ArtifactType,
    FilePlace,
    RequestAttachment,
    ToolCall,
)
from gateway.core.types.content_parts import parts_of
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, FoundResults, MessageCache
from gateway.core.types.files import FileText

DOCUMENT_CHARS = 1000
"""A shorter stretch of a text is not treated as a document: labels would take a good part of what that saves."""
MIN_MARKED_DOCUMENT_CHARS = 200
"""Lower limit for a content part of its own that is fenced or tagged."""
MEMBERS_SHARE = 0.8
"""A tagged block is a mere wrapper if the blocks inside it are this share of it."""
MAX_DOCUMENT_LEVELS = 3
"""Nested wrappers that are searched."""
EDGE_CHARS = 1000
"""In a text without paragraphs, the longest stretch that counts as its first or last paragraph."""
BESIDE_CHARS = 200
"""White space that is skipped in search of the edge of a line, or of a paragraph."""
QUESTION_HEAD_CHARS = 160
"""Characters at the outer end of such a text that count as the question, in whole sentences."""

Span = tuple[int, int]


@record
class Context:
    """Everything that may enter the model's window for one request, in the terms of the project's description.

    `current` is the index of the message that begins the current turn; `placed` artifacts are inside messages,
    `restored` ones are tool results forwarded as text, `artifacts` are the attached ones."""

    conversation_history: tuple[ConversationMessage, ...]
    current: int
    placed: tuple[Artifact, ...] = ()
    restored: tuple[Artifact, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def all_artifacts(self) -> tuple[Artifact, ...]:
        """Returns artifacts of historical messages and of the current steps, then the attached ones."""
        return self.placed + self.restored + self.artifacts


def document_spans(text: str, min_chars: int, *, beside: bool) -> list[tuple[int, int]]:
    """Finds the documents in a text of an over-long user message: fences and tagged blocks, else the middle of the
    text. Its first and last paragraph are the user's own text and stay (guarantee §4 I4).
    `min_chars`: texts longer than this are over-long. `beside`: the text is a content part of its own beside the
    question. All of it is a document, unless it is short and neither fenced nor tagged."""
    if beside and (len(text) > DOCUMENT_CHARS or (len(text) > MIN_MARKED_DOCUMENT_CHARS and _is_marked(text.strip()))):
        return [(0, len(text))]
    if len(text) <= min_chars:
        return []
    between, spans = middle(text, min_chars), marked_spans(text, DOCUMENT_CHARS)
    if PARAGRAPH.search(text):
        spans = [kept for span in spans if (kept := _plainly_marked(text, span, between))]
    if sum(end - start for start, end in spans) > len(text) / 2 and not _is_json(text[slice(*between)]):
        return spans
    return [between]


def _plainly_marked(text: str, span: Span, between: Span) -> Span | None:
    """Returns the part of a marked span in paragraphs that is plainly a document; None if too little is. A tag inside a
    line may be part of pasted data: it proves nothing about the rest, and the first and last paragraph stay."""
    (start, end), (first, last) = span, between
    if text[start - 1] != ">" or (start <= first and end >= last):  # a fence; or tags beside the user's own text
        return span
    opening, closing = (text.rindex("<", 0, start), start), (end, text.index(">", end) + 1)
    begins, ends = _has_own_line(text, opening), _has_own_line(text, closing)
    if not (begins or ends) and first < start and end < last:
        return span if _is_a_paragraph(text, opening[0], closing[1]) else None
    if (begins and ends) or not PARAGRAPH.search(text, *span):
        return span
    start, end = max(start, first), min(end, last)
    return (start, end) if end - start > DOCUMENT_CHARS else None


def _has_own_line(text: str, tag: Span) -> bool:
    """Returns whether a tag begins or ends its line."""
    start, end = tag
    before, after = text[max(0, start - BESIDE_CHARS) : start], text[end : end + BESIDE_CHARS]
    return before.rstrip(" \t")[-1:] in ("", "\n") or after.lstrip(" \t\r")[:1] in ("", "\n")


def _is_a_paragraph(text: str, start: int, end: int) -> bool:
    """Returns whether a stretch is a whole paragraph, except some words in its first and its last line."""
    above = text.rfind("\n", max(0, start - EDGE_CHARS), start)
    below = text.find("\n", end, end + EDGE_CHARS)
    before = text[max(0, above - BESIDE_CHARS) : max(0, above)]
    return before.rstrip(" \t")[-1:] == "\n" and PARAGRAPH.match(text, below) is not None if below > 0 else False


def _is_json(text: str) -> bool:
    """Returns whether all of a text is JSON, so that tags inside its strings mean nothing."""
    return text.strip()[:1] in ("{", "[") and jsons.is_json(text)


FENCE_MARK = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)
OPENING = re.compile(r"<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>")
CLOSING = re.compile(r"</([A-Za-z][\w:.-]*)\s*>")
MARKDOWN = frozenset({"markdown", "md", "mdx", "rst"})


class CodeFence(NamedTuple):
    """A line of at least three backticks or tildes; `info` is the text after them."""

    start: int
    end: int
    sign: str
    length: int
    info: str


def marked_spans(text: str, min_chars: int) -> list[Span]:
    """Returns the insides of fences and tagged blocks that are longer than `min_chars`, in order. If a fence and a
    block overlap, the fence counts; if a block merely wraps others, the inner ones count. One pass finds them all, even
    in millions of unmatched marks."""
    fenced = [(start, end) for start, end in _fenced(text) if end - start > min_chars]
    starts = [start for start, _ in fenced]
    tagged = []
    for start, end in _tagged(text):
        after = bisect_left(starts, end)
        if end - start > min_chars and (after == 0 or fenced[after - 1][1] <= start):
            tagged += _members(text, (start, end), min_chars, MAX_DOCUMENT_LEVELS)
    return sorted(fenced + tagged)


def _is_marked(text: str) -> bool:
    return text.startswith("```") or is_tagged(text)


def is_tagged(text: str) -> bool:
    """Returns whether all of the text is one tagged block."""
    opening = OPENING.match(text)
    if opening is None:
        return False
    name = opening.group(1)
    return re.search(rf"</{re.escape(name)}\s*>\Z", text[-len(name) - 100 :]) is not None


def _members(text: str, span: Span, min_chars: int, levels: int) -> list[Span]:
    """Returns the documents that a block wraps, if there are several, else the block."""
    start, end = span
    inner = [(start + a, start + b) for a, b in _tagged(text[start:end]) if b - a > min_chars] if levels else []
    if len(inner) < 2 or sum(b - a for a, b in inner) < MEMBERS_SHARE * (end - start):
        return [span]
    return [each for member in inner for each in _members(text, member, min_chars, levels - 1)]


def _fenced(text: str) -> Iterator[Span]:
    """Yields the insides of fences, without the line ends beside them."""
    lines = [CodeFence(m.start(), m.end(), m[1][0], len(m[1]), m[2].strip()) for m in FENCE_MARK.finditer(text)]
    longest = _longest_after(lines)
    number, nests = 0, True
    while number < len(lines):
        opening = lines[number]
        if longest[number].get(opening.sign, 0) < opening.length:
            number += 1
            continue
        is_markdown = opening.info.partition(" ")[0].lower() in MARKDOWN
        closing = _closing(lines, number, nested=True) if is_markdown and nests else None
        if closing is None:
            nests = nests and not is_markdown  # once is enough: searching to the end each time would be quadratic
            closing = _closing(lines, number, nested=False) or len(lines) - 1
        end = text.rfind("\n", opening.end, lines[closing].start)
        yield opening.end + 1, max(opening.end + 1, end - (text[end - 1 : end] == "\r"))
        number = closing + 1


def _closing(lines: Sequence[CodeFence], number: int, *, nested: bool) -> int | None:
    """Returns the next fence of that kind that is as long and has no info (CommonMark); if `nested`, as in pasted
    Markdown that has fences itself, the one that closes the outermost."""
    opening, depth = lines[number], 1
    for closing in range(number + 1, len(lines)):
        line = lines[closing]
        if line.sign == opening.sign and line.length >= opening.length:
            depth += 1 if line.info else -1
            if not line.info and (depth == 0 or not nested):
                return closing
    return None


def _longest_after(lines: Sequence[CodeFence]) -> list[dict[str, int]]:
    """Returns for each fence the length of the longest later one of each kind that could close it."""
    found: list[dict[str, int]] = []
    longest: dict[str, int] = {}
    for line in reversed(lines):
        found.append(longest)
        if not line.info and line.length > longest.get(line.sign, 0):
            longest = {**longest, line.sign: line.length}
    return found[::-1]


def _tagged(text: str) -> Iterator[Span]:
    ends: dict[str, list[Span]] = defaultdict(list)
    for match in CLOSING.finditer(text):
        ends[match.group(1)].append(match.span())
    position = 0
    for opening in OPENING.finditer(text):
        if opening.start() < position or opening.group(1) not in ends:
            continue
        closings = ends[opening.group(1)]
        at = bisect_left(closings, (opening.end(), 0))
        if at < len(closings):
            yield opening.end(), closings[at][0]
            position = closings[at][1]


PARAGRAPH = re.compile(r"\n[ \t]*\n")
DOCUMENT_LINE_END = re.compile(r"\n")
DOCUMENT_SENTENCE_END = re.compile(r"[.!?…]++[\"'”’»)\]]*+\s++|[。！？؟।]++|\n")
WORD_END = re.compile(r"\s++")
ASKING = re.compile(r"[?？؟][\"'”’»)\]]*\s*\Z")


def middle(text: str, most_chars: int) -> Span:
    """Finds the document in an over-long text without marks: all between its first and last paragraph, or line if it
    has no paragraphs. If one of these is longer than `most_chars`, only its outer edge is the user's own text."""
    breaks = [m.span() for m in PARAGRAPH.finditer(text)] or [m.span() for m in DOCUMENT_LINE_END.finditer(text)]
    if breaks:
        (first, start), (end, last) = breaks[0], breaks[-1]
        start = start if first <= most_chars else _first_edge(text, first)
        end = end if len(text) - last <= most_chars else _last_edge(text, last)
        if end - start > DOCUMENT_CHARS:
            return start, end
    return _first_edge(text, len(text)), _last_edge(text, 0)


def own_words(text: str, spans: Sequence[Span]) -> str:
    """Returns the text without the documents in it. If nothing separates a document from the text around it, most of
    that text belongs to it, too: only the outermost sentences count, and questions."""
    pieces = []
    at = 0
    for start, end in sorted(spans):
        before = text[at:start]
        pieces.append(before if before.rstrip(" \t")[-1:] in ("", "\n", ">") else _question(before, first=True))
        at = end
    after = text[at:]
    is_parted = not spans or after.lstrip(" \t")[:1] in ("", "\r", "\n", "<")
    return "\n".join([*pieces, after if is_parted else _question(after, first=False)])


def _first_edge(text: str, until: int) -> int:
    """Returns the end of the user's own text at the beginning: a line, else whole sentences, else words."""
    most = min(EDGE_CHARS, len(text) // 4)
    line = text.find("\n", 0, min(until, most))
    if line > 0:
        return line + 1
    for pattern in (DOCUMENT_SENTENCE_END, WORD_END):
        found = [m.end() for m in pattern.finditer(text, 0, most)]
        if found:
            return found[-1]
    return most


def _last_edge(text: str, since: int) -> int:
    """Returns the beginning of the user's own text at the end."""
    least = len(text) - min(EDGE_CHARS, len(text) // 4)
    line = text.rfind("\n", max(since, least), len(text.rstrip()))
    if line >= 0:
        return line
    for pattern in (DOCUMENT_SENTENCE_END, WORD_END):
        found = pattern.search(text, least)
        if found and found.end() < len(text):
            return found.end()
    return least


def _question(piece: str, *, first: bool) -> str:
    ends = [*(m.end() for m in DOCUMENT_SENTENCE_END.finditer(piece)), len(piece)]
    sentences = [piece[start:end] for start, end in zip([0, *ends], ends, strict=False) if piece[start:end].strip()]
    outer = sentences if first else sentences[::-1]
    taken, chars = set(), 0
    for number, sentence in enumerate(outer):
        if chars < QUESTION_HEAD_CHARS and (not number or chars + len(sentence) <= QUESTION_HEAD_CHARS):
            taken.add(number if first else len(outer) - 1 - number)
            chars += len(sentence)
        else:
            break
    return "".join(s for n, s in enumerate(sentences) if n in taken or ASKING.search(s))


# Names of documents inside user messages: from their tags, their fences, or the lines above them.

DOCUMENT_TITLE_CHARS = 100
TITLE_SEARCHED = 600
"""Characters before a document that are searched for its name."""
TAG_BEFORE = re.compile(r"<([A-Za-z][\w:.-]*)((?:\s[^<>]*)?)>\s*\Z")
ATTRIBUTE = re.compile(
    r"""\b(title|name|filename|file_name|path|file|source|src|href|id)\s*=\s*(?:"([^"]*)"|'([^']*)')"""
)
ATTRIBUTES = ("title", "name", "filename", "file_name", "path", "file", "source", "src", "href", "id")
"""In order of preference."""
MEMBER = re.compile(r"<(title|source|name|path|filename|file_name)>\s*([^<>]{1,200}?)\s*</\1>")
FENCE_BEFORE = re.compile(r"(?:^|\n) {0,3}(?:`{3,}|~{3,})([^\n`]*)\n\Z")
INFO_NAME = re.compile(
    r"""(?:title|name|filename|file|path)\s*=\s*["']?([^"'\s}]+)|([\w./\\-]*\w\.\w{1,8})(?::\d+)?(?=\s|\Z)"""
)
FILE_NAME_AT_END = re.compile(r"(?:^|[\s`*\"'(\[#:])([\w./\\-]*\w\.[A-Za-z]\w{0,7})[`*\"')\]]*:?\s*\Z")


def title_of(text: str, span: tuple[int, int]) -> str | None:
    """Returns the document's name, on one line: from its tag, its fence, or the line above it; None if it has none."""
    before = text[max(0, span[0] - TITLE_SEARCHED) : span[0]]
    found = _of_tag(before, text[span[0] : span[1]][:TITLE_SEARCHED]) or _of_fence(before) or _of_line(before)
    return " ".join(unescape(found).split())[:DOCUMENT_TITLE_CHARS] or None if found else None


def _of_tag(before: str, inside: str) -> str | None:
    """Returns the name in `<file path="a.py">`, or `<source>a.py</source>` before or after the content's tag."""
    tag = TAG_BEFORE.search(before)
    if tag is None:
        return None
    named: dict[str, str] = {name: double or single for name, double, single in ATTRIBUTE.findall(tag.group(2))}
    for name in ATTRIBUTES[:-1]:
        if named.get(name, "").strip():
            return named[name]
    above = MEMBER.search(before, max(0, before.rfind("</", 0, before.rfind("</"))))
    if above and before[above.end() : tag.start()].strip():
        above = None
    member = MEMBER.match(inside.lstrip()) or above
    return member[2] if member else named.get("id") or None


def _of_fence(before: str) -> str | None:
    """Returns the name in ```python title="a.py"` or ```src/a.py`, else the file named above the fence."""
    fence = FENCE_BEFORE.search(before)
    if fence is None:
        return None
    named = INFO_NAME.search(fence.group(1).strip())
    if named:
        return named.group(1) or named.group(2)
    return _of_line(before[: fence.start() + 1])


def _of_line(before: str) -> str | None:
    """Returns the file name at the end of the line above, as in `Here is src/app.py:`."""
    line = before.rstrip().rpartition("\n")[2]
    named = FILE_NAME_AT_END.search(line[-200:])
    return named.group(1) if named else None


NOTHING_FOUND = FoundResults((), 0, (), 0, ())


def extract_artifacts_from_messages(
    messages: Sequence[ConversationMessage], current: int, cache: MessageCache | None = None
) -> list[Artifact]:
    """Extracts tool results: `history:msg_N:tool` for earlier turns, `step_N:tool` from index `current` on.
    `cache` of stored results, shared with later requests."""
    if cache is None:
        return list(_found_in(messages, current, NOTHING_FOUND, {}).artifacts)
    before = cache.found if cache.found and cache.found.begins(messages, current) else NOTHING_FOUND
    count = len(before.messages)
    while count < len(messages) and messages[count].message_id is not None:
        count += 1
    cache.found = _found_in(messages[:count], current, before, cache.results)
    return list(_found_in(messages, current, cache.found, {}).artifacts)


def _found_in(
    messages: Sequence[ConversationMessage],
    current: int,
    before: FoundResults,
    known: dict[int, tuple[dict[str, Any], tuple[str, str, str, str]]],
) -> FoundResults:
    """Returns the results in messages that begin with those of `before`; `known` caches results of stored forms."""
    found, calls, step = list(before.artifacts), list(before.calls), before.step
    first = len(before.messages)
    for index, message in enumerate(messages[first:], first):
        if message.role not in tool_steps.RESULT_ROLES:
            if made := tool_steps.calls_of(message.body):
                step = step + 1 if index >= current else 0
                calls = made
            continue
        call = tool_steps.take_call(calls, message.body)
        cached = known.get(id(message.body))
        result = cached[1] if cached is not None else tool_steps.result_of(message.body, call)
        if cached is None and message.is_stored_form:
            known[id(message.body)] = message.body, result
        name, text, tool, arguments = result
        number = message.sequence_number if message.sequence_number is not None else index
        artifact = Artifact(
            name,
            ArtifactType.TOOL_RESULT,
            text,
            len(text),
            f"step_{step}:{tool}" if index >= current else f"history:msg_{number}:{tool}",
            message.created_at,
            tool,
            index < current,
            ArtifactPosition(index),
            arguments=arguments,
            pinned=message.pinned,
        )
        found.append(_with_texts(artifact, message.content, items.search_results(message.content)))
    return FoundResults(tuple(messages), current, tuple(found), step, tuple(calls))


def with_documents(
    results: Sequence[Artifact], messages: Sequence[ConversationMessage], files: Mapping[FilePlace, str]
) -> list[Artifact]:
    """Returns the tool results with their documents' texts, each in its place and below a mark with its name.
    `files`: texts of `file` parts, for those that are not forwarded as they are."""
    inside: dict[int, dict[int, str]] = {}
    for (index, number), text in files.items():
        if messages[index].role in tool_steps.RESULT_ROLES:
            part = messages[index].body["content"][number]
            inside.setdefault(index, {})[number] = f"{_mark_of(part)}\n{text}"
    if not inside:
        return list(results)
    found = []
    for artifact in results:
        at = artifact.place.message
        if at is not None and at in inside:
            content = messages[at].content
            artifact = _with_texts(artifact, content, items.search_results(content) | inside[at])
        found.append(artifact)
    return found


def _with_texts(artifact: Artifact, content: object, documents: Mapping[int, str]) -> Artifact:
    """Returns a tool's result with these texts in place of the parts of its content that they are of."""
    if not documents:
        return artifact
    text = tool_steps.text_of(content, documents)
    name = ids.artifact_id(text)
    return replace(artifact, artifact_id=name, content=text, size_chars=len(text), documents=documents)


def _mark_of(part: Mapping[str, Any]) -> str:
    """Returns the mark of a document in a tool's result, with the tool's description of it."""
    file, context = part.get("file") or {}, part.get("context")
    named = places.marker("file", str(file.get("filename") or file.get("file_id") or "document"))
    return f"{named}\n{places.plain_lines(context)}" if isinstance(context, str) and context else named


def attachments_to_artifacts(attachments: Sequence[RequestAttachment], first: int = 0) -> list[Artifact]:
    """Converts attached documents to artifacts `attachment:N:title`; N counts on in the conversation from `first`."""
    found = []
    for number, attachment in enumerate(attachments, first):
        title = attachment.title or attachment.source or attachment.attachment_id or attachment.file_id or "untitled"
        source = f"attachment:{number}:{' '.join(title.split())[:DOCUMENT_TITLE_CHARS]}"
        metadata = {"attachment_type": attachment.attachment_type, "label": attachment.source}
        if attachment.file_id is not None:
            metadata["file_id"] = attachment.file_id
        found.append(_artifact(ArtifactType.DOCUMENT, attachment.content or "", source, title, metadata=metadata))
    return found


def next_number(attached: Iterable[Artifact]) -> int:
    """Returns the number of the next attachment: no number is reused, even if attachments in between were deleted."""
    return max((int(artifact.source.split(":")[1]) + 1 for artifact in attached), default=0)


def documents_in_messages(
    messages: Sequence[ConversationMessage],
    current: int,
    min_chars: int,
    files: Mapping[FilePlace, str],
    spoken: tuple[int, int] | None = None,
) -> list[Artifact]:
    """Finds documents in user messages: `file` parts, search results, and what is plainly a document in a text
    (guarantee §4 I4). `min_chars`: texts, or search results, of a message that are longer together may be documents;
    `files`: texts of `file` parts, for those that are not forwarded as they are; `spoken`: the part of the current
    message's first text that may hold some; None: all of it."""
    found: list[Artifact] = []
    for index, message in [each for each in enumerate(messages) if each[1].role == "user"]:
        if isinstance(message.content, str) and len(message.content) <= min_chars:
            continue
        prefix = "" if index >= current else f"history:msg_{message.sequence_number}:"
        time: dict[str, Any] = {"historical": index < current, "timestamp": message.created_at}
        if message.pinned:
            time["pinned"] = True
        is_list = isinstance(message.content, list)
        parts = message.content if is_list else [{"type": "text", "text": message.content}]
        last_text = max((i for i, p in enumerate(parts) if _is_text(p)), default=-1)
        start, end = spoken if spoken is not None and index == current else (0, None)
        own = sum(len(p["text"][start:end]) for p in parts if _is_text(p))
        searched = items.search_results(parts)
        over_long, are_long = own > min_chars, sum(map(len, searched.values())) > min_chars
        for number, part in enumerate(parts):
            place = ArtifactPosition(index, number if is_list else None)
            if _is_text(part) and over_long:
                beside = is_list and number != last_text
                for found_at in document_spans(part["text"][start:end], min_chars, beside=beside):
                    span = (start + found_at[0], start + found_at[1])
                    text, source = part["text"][slice(*span)], f"{prefix}document:{span[0]}-{span[1]}"
                    title = title_of(part["text"], span) or "document in the message"
                    here = replace(place, span=span)
                    found.append(_artifact(ArtifactType.DOCUMENT, text, source, title, place=here, **time))
            elif (index, number) in files or (are_long and number in searched):
                text = files[index, number] if (index, number) in files else searched[number]
                file = part.get("file") or {"filename": text.partition("\n")[0]}
                label = f"file:{file.get('file_id') or ids.artifact_id(text)}"
                name = file.get("filename") or (text.name if isinstance(text, FileText) else "") or "file"
                title, source, text = str(name), f"{prefix}{label}", str(text)
                found.append(_artifact(ArtifactType.DOCUMENT, text, source, title, place=place, label=label, **time))
    return found


def artifacts_of_earlier(
    messages: Sequence[ConversationMessage], files: Mapping[FilePlace, str], min_chars: int, known: Iterable[Artifact]
) -> tuple[Artifact, ...]:
    """Returns the artifacts of messages that can be recalled but not forwarded: the latest of each content, without
    those that are `known` already. `place.message` is the index by which `WindowInputs` knows the message."""
    count = len(messages)
    found = with_documents(extract_artifacts_from_messages(messages, count), messages, files)
    found += documents_in_messages(messages, count, min_chars, files)
    names = {artifact.artifact_id for artifact in known}
    latest = {artifact.artifact_id: artifact for artifact in sorted(found, key=lambda a: a.place.message or 0)}
    shift = artifacts.LAST_EARLIER + 1 - count
    return tuple(
        replace(each, place=replace(each.place, message=(each.place.message or 0) + shift))
        for name, each in latest.items()
        if name not in names
    )


def without_repeats(attached: Iterable[Artifact]) -> list[Artifact]:
    """Returns the first artifact of each content: the same document attached again is the same artifact."""
    first: dict[str, Artifact] = {}
    for artifact in attached:
        first.setdefault(artifact.artifact_id, artifact)
    return list(first.values())


def unique_ids(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Makes the ids of the artifacts unique in this request: later ones of the same content get `-2`, `-3` …, so that
    the ids of earlier ones do not change."""
    result = list(artifacts)
    if len({artifact.artifact_id for artifact in result}) == len(result):
        return result
    seen: Counter[str] = Counter()
    in_messages = {artifact.artifact_id for artifact in result if artifact.is_file}
    for number in sorted(range(len(result)), key=lambda number: _appeared(result[number], in_messages)):
        artifact = result[number]
        seen[artifact.artifact_id] += 1
        count = seen[artifact.artifact_id]
        if count > 1:
            result[number] = replace(artifact, artifact_id=f"{artifact.artifact_id}-{count}")
    return result


def _appeared(artifact: Artifact, in_messages: Container[str]) -> tuple[float, int, int]:
    """Returns the sort key by time: what came with this request is last, attachments come before the messages of their
    turn, and behind them if a message holds them, too, since the message is shown."""
    when = artifact.timestamp.timestamp() if artifact.timestamp else inf
    if artifact.place.message is None and artifact.call is None:
        return when, 2 if artifact.artifact_id in in_messages else 0, 0
    return when, 1, artifact.place.message or 0


def current_turn(history: ConversationHistory) -> int:
    """Returns the index of the message that begins the current turn (`turn_starts`); 0 if there is no user message."""
    return max(tool_steps.turn_starts(message.role for message in history.messages), default=0)


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _artifact(kind: ArtifactType, text: str, source: str, title: str, **more: Any) -> Artifact:
    return Artifact(ids.artifact_id(text), kind, text, len(text), source, title=title, **more)


SPOKEN = ("content", "refusal", "audio")
"""Fields of an assistant's message beside its calls."""
WithoutItems = Callable[[dict[str, Any], frozenset[int]], dict[str, Any]]
"""Removes from a message the items with these numbers among those that its block shows in full."""


@record
class StepsAsText:
    """A conversation without the tool steps that are shown as text, and the artifacts that show them. `removed` is
    the number of removed messages."""

    history: ConversationHistory
    artifacts: tuple[Artifact, ...] = ()
    removed: int = 0
    results: tuple[ConversationMessage, ...] = ()
    """The messages that became the artifacts, one for each."""

    def with_documents(self, files: Mapping[FilePlace, str]) -> "StepsAsText":
        """Adds the documents in the results to the artifacts. `files`: texts of `file` parts in `results`."""
        if not files:
            return self
        each = [replace(artifact, place=ArtifactPosition(index)) for index, artifact in enumerate(self.artifacts)]
        found = with_documents(each, self.results, files)
        shown = (
            before if with_texts is placed else _as_text(with_texts, result.content)
            for before, placed, with_texts, result in zip(self.artifacts, each, found, self.results, strict=True)
        )
        return replace(self, artifacts=tuple(shown))


@record
class _StepSpan:
    """Messages `start` to `end` (exclusive): an assistant's calls and all of their results. `results` are the ids of
    the result messages."""

    start: int
    end: int
    results: frozenset[str]


def steps_as_text(
    history: ConversationHistory, without_items: WithoutItems, *, has_tools: bool, origin: str | None
) -> StepsAsText:
    """Removes the restored steps that cannot be messages in this request, and shows them as text.

    What the client sent itself is never touched, and neither are the steps of the current turn. A step that this
    provider was shown as text stays in place, with tools or without (§4 I7). Steps shown only to others are removed
    from blocks that this provider is sent, and so are steps that the client now sends as messages.
    `has_tools`: whether the request has `tools` or `functions`; `origin`: the provider that will answer; None if no
    other can have answered before. Results that are to be answered stay if an answer of their turn precedes them."""
    steps = _restored_steps(history)
    blocks = _BlockResults(history, origin)
    shown = blocks.own | blocks.of_others
    if not steps and not shown:
        return StepsAsText(history)
    new = enumerate(history.messages)
    sent = {m.message_id for i, m in new if m.role in tool_steps.RESULT_ROLES and not _is_restored(history, i)}
    if not steps and sent.isdisjoint(shown):
        return StepsAsText(history)
    can_write_block = _can_write_block(history)
    as_text: list[_StepSpan] = []
    shown_elsewhere: set[str] = set()
    for step in steps:
        made_here = not _is_of_another(history.messages[step.start], origin)
        if step.results <= blocks.own or (can_write_block and not (made_here and has_tools)):
            as_text.append(step)
        elif not can_write_block and not made_here and step.results <= shown:
            as_text.append(step)  # the block of this turn is fixed: what other providers were shown has to suffice
            continue
        shown_elsewhere |= step.results & blocks.of_others
    indexes = range(len(history.messages))
    messages = tuple(blocks.without(index, sent, shown_elsewhere, without_items) for index in indexes)
    history = replace(history, messages=messages)
    found = _without(history, as_text)
    if messages[-1].role in tool_steps.RESULT_ROLES and found.history.messages[-1].role == "assistant":
        # without the results that are to be answered, an earlier answer would be asked for again
        current = current_turn(history)
        found = _without(history, [each for each in as_text if each.start < current or each.results <= blocks.own])
    return found


class _BlockResults:
    """The results that blocks show in full: `own` are in blocks that `origin` was sent, `of_others` in blocks that only
    other providers were sent."""

    def __init__(self, history: ConversationHistory, origin: str | None) -> None:
        self._messages = history.messages
        holders = [index for index, message in enumerate(history.messages) if message.shown_in_full]
        self._others = {index for index in holders if _is_of_another(self._answer_to(index), origin)}
        self.own = {n for index in holders if index not in self._others for n in history.messages[index].shown_in_full}
        self.of_others = {n for index in self._others for n in history.messages[index].shown_in_full}
        if history.frame is not None:  # including results that were reduced or left out because they did not fit
            self.own |= history.frame.decided

    def without(
        self, index: int, sent: set[str | None], shown_elsewhere: set[str], without_items: WithoutItems
    ) -> ConversationMessage:
        """Returns the message, its block without results that the client sends itself; if other providers were sent
        this block, also without results that are shown elsewhere."""
        message = self._messages[index]
        leaving = sent | shown_elsewhere if index in self._others else sent
        numbers = frozenset(number for number, name in enumerate(message.shown_in_full) if name in leaving)
        if not numbers or message.rendered is None:
            return message
        shown_in_full = tuple(name for name in message.shown_in_full if name not in leaving)
        return replace(message, rendered=without_items(message.rendered, numbers), shown_in_full=shown_in_full)

    def _answer_to(self, index: int) -> ConversationMessage | None:
        return next((m for m in self._messages[index + 1 :] if m.role == "assistant"), None)


def _is_of_another(message: ConversationMessage | None, origin: str | None) -> bool:
    """Returns whether another provider than `origin` made that message."""
    return message is not None and None not in (origin, message.origin) and message.origin != origin


def _restored_steps(history: ConversationHistory) -> list[_StepSpan]:
    """Returns the whole steps of which the client sent nothing in this request."""
    if not history.restored_count:
        return []
    messages, steps = history.messages, []
    at = 0
    while at < history.stored:
        end = at + 1
        if tool_steps.calls_of(messages[at].body):
            while end < len(messages) and messages[end].role in tool_steps.RESULT_ROLES:
                end += 1
            results = messages[at + 1 : end]
            if results and all(_is_restored(history, index) for index in range(at, end)):
                steps.append(_StepSpan(at, end, frozenset(m.message_id or "" for m in results)))
        at = end
    return steps


def _is_restored(history: ConversationHistory, index: int) -> bool:
    ids = history.restored_ids
    return index < history.stored and (ids is None or history.messages[index].message_id in ids)


def _can_write_block(history: ConversationHistory) -> bool:
    """Returns whether this turn's block is still to be written: its first step fixes it (§4 I6)."""
    current = current_turn(history)
    message = history.messages[current]
    if message.role != "user" or current >= history.stored:
        return message.role == "user"
    return message.rendered is None and not any(m.role in tool_steps.RESULT_ROLES for m in history.new_messages)


def _without(history: ConversationHistory, steps: Sequence[_StepSpan]) -> StepsAsText:
    """Removes the steps. What an assistant said beside its calls stays, as a message without them."""
    replaced: dict[int, ConversationMessage | None] = {}
    leaving: list[ConversationMessage] = []
    calls: list[ToolCall] = []
    for step in steps:
        first, results = history.messages[step.start], history.messages[step.start + 1 : step.end]
        replaced |= dict.fromkeys(range(step.start, step.end))
        if any(first.body.get(name) for name in SPOKEN):
            replaced[step.start] = replace(first, body=tool_steps.without_calls(first.body), rendered=None)
        leaving += [first, *results]
        waiting = tool_steps.calls_of(first.body)
        calls += [
            ToolCall(result.message_id or "", tool_steps.asked(tool_steps.take_call(waiting, result.body))[1])
            for result in results
        ]
    kept = [replaced.get(index, message) for index, message in enumerate(history.messages)]
    messages = tuple(message for message in kept if message is not None)
    removed = len(history.messages) - len(messages)
    found = extract_artifacts_from_messages(leaving, len(leaving))
    results = tuple(leaving[artifact.place.message or 0] for artifact in found)
    artifacts = tuple(
        _as_text(replace(artifact, call=call), result.content)
        for artifact, call, result in zip(found, calls, results, strict=True)
    )
    history = replace(history, messages=messages, stored=history.stored - removed)
    return StepsAsText(history, artifacts, removed, results)


def _as_text(artifact: Artifact, content: object) -> Artifact:
    """Returns a tool's result that is in no message, with a note of the images that it cannot show."""
    parts = enumerate(parts_of(content))
    kinds = [str(p.get("type")) for number, p in parts if isinstance(p, dict) and number not in artifact.documents]
    others = [kind for kind in kinds if kind != "text"]
    artifact = replace(artifact, place=ArtifactPosition(), documents=artifacts.NO_DOCUMENTS)
    if not others:
        return artifact
    text = f"{artifact.content}\n[Not shown, as it is no text: {', '.join(others)}]".lstrip("\n")
    return replace(artifact, content=text, size_chars=len(text))
