"""Documents inside user messages, the user's own words (guarantee §4 I4), what is pinned (guarantee §11.12), and what
is attached: files, and contents that are HTML or data URLs. All becomes text once; the conversation keeps the text."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, NamedTuple

from gateway.core import jsons
from gateway.core.errors import InvalidRequest, NotFound
from gateway.core.frozen_records import record
from gateway.core.ports import FileStore
from gateway.core.tasks import offload_if
from gateway.core.types.artifacts import Artifact, RequestAttachment
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationHistory, ConversationMessage, FormNotes
from gateway.core.types.memory import PinnedMessage
from gateway.core.types.places import PLACE_MARKER
from gateway.core.types.tool_steps import RESULT_ROLES, asked, calls_of, take_call, tool_of
from gateway.documents.document import DocumentFile, DocumentOwner, Reading, UnreadableDocument
from gateway.documents.file_reader import FilePlace, encoded_document, sent_document, stored_document
from gateway.documents.process import DocumentReader

DOCUMENT_CHARS = 1000
"""A shorter stretch of a text is not treated as a document: labels would take a good part of what that saves."""
MIN_MARKED_DOCUMENT_CHARS = 200
"""The same for a content part of its own that is fenced or tagged."""
MEMBERS_SHARE = 0.8
"""A tagged block is a mere wrapper if the blocks inside it are this share of it."""
MAX_DOCUMENT_LEVELS = 3
"""Wrappers inside wrappers that are looked into."""
EDGE_CHARS = 1000
"""In a text without paragraphs, the longest stretch that counts as its first or last paragraph."""
BESIDE_CHARS = 200
"""White space that is looked through for the edge of a line, or of a paragraph."""
QUESTION_HEAD_CHARS = 160
"""Characters at the outer end of such a text that are taken for the question, in whole sentences."""

Span = tuple[int, int]


@record
class Context:
    """Everything that may enter the model's window for one request, in the words of the project's
    description.

    `current` is the index of the message that begins the current turn; `placed` artifacts are inside messages,
    `restored` ones are tool results forwarded as text, `artifacts` are the attached ones."""

    conversation_history: tuple[ConversationMessage, ...]
    current: int
    placed: tuple[Artifact, ...] = ()
    restored: tuple[Artifact, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def all_artifacts(self) -> tuple[Artifact, ...]:
        """Artifacts of historical messages and of the current steps, then the attached ones."""
        return self.placed + self.restored + self.artifacts


def document_spans(text: str, min_chars: int, *, beside: bool) -> list[tuple[int, int]]:
    """Documents in a text of an over-long user message: fences and tagged blocks, else the middle of the text. Its
    first and last paragraph are the user's own words and stay (guarantee §4 I4).
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
    """What of a marked span in paragraphs is plainly a document; None if too little is. A tag in the midst of a line
    may be one of somebody's data: it says nothing of the rest of that, and the first and the last paragraph stay."""
    (start, end), (first, last) = span, between
    if text[start - 1] != ">" or (start <= first and end >= last):  # a fence; or tags beside the user's own words
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
    """Whether a tag begins or ends its line."""
    start, end = tag
    before, after = text[max(0, start - BESIDE_CHARS) : start], text[end : end + BESIDE_CHARS]
    return before.rstrip(" \t")[-1:] in ("", "\n") or after.lstrip(" \t\r")[:1] in ("", "\n")


def _is_a_paragraph(text: str, start: int, end: int) -> bool:
    """Whether a stretch is a whole paragraph, but for some words in its first and its last line."""
    above = text.rfind("\n", max(0, start - EDGE_CHARS), start)
    below = text.find("\n", end, end + EDGE_CHARS)
    before = text[max(0, above - BESIDE_CHARS) : max(0, above)]
    return before.rstrip(" \t")[-1:] == "\n" and PARAGRAPH.match(text, below) is not None if below > 0 else False


def _is_json(text: str) -> bool:
    """Whether all of a text is JSON, so that tags inside its strings mean nothing."""
    return text.strip()[:1] in ("{", "[") and jsons.is_json(text)


FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)
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
    """The insides of fences and tagged blocks that are longer than `min_chars`, in order. If a fence and a block
    overlap, the fence counts; of a block that merely wraps others, those count. One pass finds them all, also if a user
    sends millions of marks without a partner."""
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
    """Whether all of the text is one tagged block."""
    opening = OPENING.match(text)
    if opening is None:
        return False
    name = opening.group(1)
    return re.search(rf"</{re.escape(name)}\s*>\Z", text[-len(name) - 100 :]) is not None


def _members(text: str, span: Span, min_chars: int, levels: int) -> list[Span]:
    """The documents that a block wraps, if there are several, else the block."""
    start, end = span
    inner = [(start + a, start + b) for a, b in _tagged(text[start:end]) if b - a > min_chars] if levels else []
    if len(inner) < 2 or sum(b - a for a, b in inner) < MEMBERS_SHARE * (end - start):
        return [span]
    return [each for member in inner for each in _members(text, member, min_chars, levels - 1)]


def _fenced(text: str) -> Iterator[Span]:
    """The insides of fences, without the line ends beside them."""
    lines = [CodeFence(m.start(), m.end(), m[1][0], len(m[1]), m[2].strip()) for m in FENCE.finditer(text)]
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
            nests = nests and not is_markdown  # once is enough: looking to the end each time would take quadratic time
            closing = _closing(lines, number, nested=False) or len(lines) - 1
        end = text.rfind("\n", opening.end, lines[closing].start)
        yield opening.end + 1, max(opening.end + 1, end - (text[end - 1 : end] == "\r"))
        number = closing + 1


def _closing(lines: Sequence[CodeFence], number: int, *, nested: bool) -> int | None:
    """The next fence of that kind that is as long and has no info (CommonMark); if `nested`, as in pasted Markdown that
    has fences itself, the one that closes the outermost."""
    opening, depth = lines[number], 1
    for closing in range(number + 1, len(lines)):
        line = lines[closing]
        if line.sign == opening.sign and line.length >= opening.length:
            depth += 1 if line.info else -1
            if not line.info and (depth == 0 or not nested):
                return closing
    return None


def _longest_after(lines: Sequence[CodeFence]) -> list[dict[str, int]]:
    """For each fence the length of the longest later one of each kind that could close it."""
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
WORD = re.compile(r"\s++")
ASKING = re.compile(r"[?？؟][\"'”’»)\]]*\s*\Z")


def middle(text: str, most_chars: int) -> Span:
    """The document in an over-long text that nothing marks: all between its first and last paragraph, or line if it has
    no paragraphs. If one of these is longer than `most_chars`, only its outer edge is the user's own words."""
    breaks = [m.span() for m in PARAGRAPH.finditer(text)] or [m.span() for m in DOCUMENT_LINE_END.finditer(text)]
    if breaks:
        (first, start), (end, last) = breaks[0], breaks[-1]
        start = start if first <= most_chars else _first_edge(text, first)
        end = end if len(text) - last <= most_chars else _last_edge(text, last)
        if end - start > DOCUMENT_CHARS:
            return start, end
    return _first_edge(text, len(text)), _last_edge(text, 0)


def own_words(text: str, spans: Sequence[Span]) -> str:
    """The text without the documents in it. If nothing separates a document from the words around it, most of those
    belong to it, too: only the outermost sentences count, and questions."""
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
    """End of the words that a text begins with: a line, else whole sentences, else words."""
    most = min(EDGE_CHARS, len(text) // 4)
    line = text.find("\n", 0, min(until, most))
    if line > 0:
        return line + 1
    for pattern in (DOCUMENT_SENTENCE_END, WORD):
        found = [m.end() for m in pattern.finditer(text, 0, most)]
        if found:
            return found[-1]
    return most


def _last_edge(text: str, since: int) -> int:
    """Beginning of the words that a text ends with."""
    least = len(text) - min(EDGE_CHARS, len(text) // 4)
    line = text.rfind("\n", max(since, least), len(text.rstrip()))
    if line >= 0:
        return line
    for pattern in (DOCUMENT_SENTENCE_END, WORD):
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


def with_whole_steps(history: ConversationHistory) -> ConversationHistory:
    """The conversation in which the results of pinned calls are pinned, too."""
    if not any(message.pinned for message in history.messages):
        return history
    found: list[ConversationMessage] = []
    is_pinned = False
    for message in history.messages:
        if message.role not in RESULT_ROLES:
            is_pinned = message.pinned
        found.append(replace(message, pinned=True) if is_pinned and not message.pinned else message)
    return replace(history, messages=tuple(found))


def pinned_messages(
    history: ConversationHistory,
    files: Mapping[FilePlace, str],
    older_files: Mapping[FilePlace, str],
    restored: Sequence[Artifact] = (),
) -> tuple[PinnedMessage, ...]:
    """All that is pinned, the oldest first. System messages are in any window as what they are.
    `files`: texts of `file` parts that are not forwarded as they are; `older_files` of `history.older_kept`;
    `restored`: tool results that cannot be messages of this request."""
    older: tuple[ConversationMessage, ...] = ()
    if history.older_kept:
        older = with_whole_steps(replace(history, messages=history.older_kept)).messages
    found = (
        *(replace(each, index=None) for each in _pinned(older, older_files)),
        *(_as_text(artifact) for artifact in restored if artifact.pinned),
        *_pinned(history.messages, files),
    )
    return tuple(each for each in found if each.body["role"] not in INSTRUCTION_ROLES)


def _pinned(messages: Sequence[ConversationMessage], files: Mapping[FilePlace, str]) -> Iterator[PinnedMessage]:
    if not any(message.pinned for message in messages):
        return
    calls: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        body, tool, arguments = message.body, "", ""
        if message.role in RESULT_ROLES:
            call = take_call(calls, body)
            tool, arguments = tool_of(body, call), asked(call)[1]
        else:
            calls = calls_of(body)
        if message.pinned:
            texts = {part: text for (at, part), text in files.items() if at == index}
            speaker = message.role if message.role in RESULT_ROLES else message.speaker  # `tool` names it
            yield PinnedMessage(body, speaker, message.message_id, index, tool, arguments, texts)


def _as_text(artifact: Artifact) -> PinnedMessage:
    name = artifact.call.message_id if artifact.call is not None else None
    body = {"role": "tool", "content": artifact.content}
    arguments = artifact.call.arguments if artifact.call is not None else ""
    return PinnedMessage(body, "tool", name, tool=artifact.title or "", arguments=arguments)


def with_in_full(
    history: ConversationHistory, context: Context, names: AbstractSet[str]
) -> tuple[ConversationHistory, Context]:
    """The same with these artifacts pinned, by their content ids, and with each stored message that holds one: that
    stays, or comes back in the memory message. For a dry run that shows what a past request would have been with them
    in full (guarantee §13.3)."""

    def marked(artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        return tuple(replace(each, pinned=True) if each.content_id in names else each for each in artifacts)

    placed = marked(context.placed)
    held = {a.place.message for a in placed if a.pinned and (a.place.message or 0) < history.stored}
    messages = tuple(
        replace(message, pinned=True) if index in held else message for index, message in enumerate(history.messages)
    )
    return replace(history, messages=messages, notes=FormNotes()), replace(
        context,
        conversation_history=messages,
        placed=placed,
        restored=marked(context.restored),
        artifacts=marked(context.artifacts),
    )


INLINE_CHARS = 100_000
"""A longer content is decoded in a thread."""
Kept = Callable[[DocumentFile, DocumentOwner], Awaitable[tuple[Reading, str]]]
"""`FileReader.best`: what a document says, from the cache if it is there."""


async def with_contents(request: ChatRequest, files: FileStore, documents: DocumentReader, kept: Kept) -> ChatRequest:
    """The request with a text as the content of each attachment.
    `kept`: reads files that are kept here, unless nothing may outlive the request.
    Raises NotFound: no such file for this client; names its field; InvalidRequest: an attachment is no readable
    document, or has no text; names its field."""
    found = []
    owner = DocumentOwner(request.caller.tenant, keeps=False)
    for index, attachment in enumerate(request.attachments):
        where = f"attachments[{index}]"
        if attachment.file_data is not None:
            found.append(await _sent(attachment, f"{where}.file_data", documents, owner))
        elif attachment.content is None:
            by = "attachment_id" if attachment.attachment_id is not None else "file_id"
            found.append(await _fetched(attachment, f"{where}.{by}", request, files, documents, kept))
        else:
            found.append(await _decoded(attachment, f"{where}.content", documents, owner))
    return replace(request, attachments=tuple(found))


async def _fetched(
    attachment: RequestAttachment,
    where: str,
    request: ChatRequest,
    files: FileStore,
    documents: DocumentReader,
    kept: Kept,
) -> RequestAttachment:
    file_id = attachment.attachment_id or attachment.file_id or ""
    try:
        file = await files.fetch(file_id, request.caller)
        name = attachment.filename or file.name
        document = stored_document(name, file.media_type, file.content, pictures=True)
    except NotFound as error:
        raise NotFound(error.message, param=where, code="attachment_not_found") from error
    except UnreadableDocument as error:
        raise _unreadable(f"The file {file_id!r} of {where}", error, where) from error
    owner = DocumentOwner(request.caller.tenant, keeps=file.own and request.store)
    text = await _text(document, f"The file {file_id!r} of {where}", where, documents, owner, kept)
    title = attachment.title or attachment.filename or file.name
    return attachment.model_copy(update={"content": text, "title": title, "file_id": file_id if file.own else None})


async def _sent(
    attachment: RequestAttachment, where: str, documents: DocumentReader, owner: DocumentOwner
) -> RequestAttachment:
    """The attachment with the text of the file that was sent with it; its bytes are not kept."""
    data, name = attachment.file_data or "", attachment.filename or attachment.title or ""
    try:
        document = await offload_if(len(data) > INLINE_CHARS, sent_document, data, name)
    except UnreadableDocument as error:
        raise _unreadable(where, error, where) from error
    text = await _text(document, where, where, documents, owner)
    title = attachment.title or attachment.filename
    return attachment.model_copy(update={"content": text, "title": title, "file_data": None})


async def _decoded(
    attachment: RequestAttachment, where: str, documents: DocumentReader, owner: DocumentOwner
) -> RequestAttachment:
    """The attachment itself, if its content is text as it is."""
    content = attachment.content or ""
    hints = (attachment.attachment_type, attachment.title or attachment.filename or "")
    try:
        document = await offload_if(len(content) > INLINE_CHARS, encoded_document, content, *hints)
    except UnreadableDocument as error:
        raise _unreadable(where, error, where) from error
    titled = {} if attachment.title or not attachment.filename else {"title": attachment.filename}
    if document is None:
        return attachment.model_copy(update=titled) if titled else attachment
    return attachment.model_copy(update={"content": await _text(document, where, where, documents, owner), **titled})


async def _text(
    document: DocumentFile,
    what: str,
    where: str,
    documents: DocumentReader,
    owner: DocumentOwner,
    kept: Kept | None = None,
) -> str:
    try:
        if kept is not None and owner.keeps:
            reading, _ = await kept(document, owner)
        else:
            reading = await documents.read(document, owner.tenant)
    except UnreadableDocument as error:
        raise _unreadable(what, error, where) from error
    if reading.pages and len(reading.empty) == len(reading.pages):
        raise _unreadable(what, UnreadableDocument("it has no text, but pictures alone"), where)
    said = PLACE_MARKER.sub("", reading.text) if reading.pages else reading.text
    if not said or said.isspace():
        raise _unreadable(what, UnreadableDocument("it has no text"), where)
    return reading.told


def _unreadable(what: str, error: UnreadableDocument, where: str) -> InvalidRequest:
    return InvalidRequest(f"{what} cannot be read: {error}.", param=where, code="invalid_value")
