"""Pages of PDFs that matter to a question and hold pictures go up as those pages alone (guarantee §14.13).

They are for PDFs that were read because they do not fit, and for models that read PDFs. A question's pages stand behind
its block, and stay there as long as the block does.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.artifacts.cut_pages import CutPages, as_file, reference, referenced
from gateway.base.tasks import offload_if
from gateway.config.settings import ContextSettings
from gateway.context.draft import Draft, Run, make_draft
from gateway.context.native_files import NativeFiles
from gateway.documents.document import DocumentFile, Reading, UnreadableDocument
from gateway.documents.recognize import inline_file
from gateway.errors import ContextLengthExceeded, Overloaded, StorageUnavailable
from gateway.models.artifacts import Artifact
from gateway.models.conversation import ConversationMessage, History
from gateway.models.items import named_file, pdf_data
from gateway.models.places import MARKER, pages_without_text
from gateway.models.window import ShownPages, first_forwarded
from gateway.relevance.named_places import named_places
from gateway.window.candidates import candidates, of_each_content

Part = dict[str, Any]
PAGES_SHARE = 0.25
"""Share of the budget that pages may take: what they show, a text cannot; what else is needed is text."""
FREE_SHARE = 0.75
"""Share of what is free that pages may take where nothing has to leave; the rest is for turns to come."""
LEAST_SCORE = 0.5
"""Minimum score of a page, as a fraction of the best page's: a picture costs a thousand tokens."""
MOST_DOCUMENTS = 4
"""PDFs of which one question brings pages: each is cut in a process of its own."""
MOST_LOOKED_AT = 16
"""Documents with pages of which one question looks whether they are PDFs."""
MOST_DIGITS = 6
"""Of a page's number: no PDF has a million pages."""
WEIGHED = 2
"""For each page that may go up so many are asked what they cost, since some have no room."""
LABEL_TOKENS = 80
"""Tokens of what the block says of one PDF's pages, roughly; all is counted before it is forwarded."""
INLINE_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A PDF with the numbers of its pages that the question calls for, with their scores, best first."""

    artifact: Artifact
    part: Part
    pages: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class _Chosen:
    """A PDF that was read, and the pages that are taken of it."""

    artifact: Artifact
    document: DocumentFile
    reading: Reading
    numbers: list[int]


async def with_pages(
    draft: Draft, natives: NativeFiles, run: Run, settings: ContextSettings, *, has_planner: bool
) -> Draft:
    """The draft with pages beside the block of a new question; as it is where none matters, or where they would make a
    turn leave.

    Args:
        run: runs a step in a thread, where it is long.
        has_planner: a planner may be asked.
    """
    documents = list(_pdfs(draft)) if natives.files.most_pages and _may_have_pages(draft, natives) else []
    if not documents:
        return draft
    ranked: list[_Ranked] = await run(_ranked, draft, documents)
    chosen = await _chosen(draft, ranked, natives) if ranked else []
    pages = [found for each in chosen if (found := await _cut(each, natives)) is not None]
    if not pages:
        return draft
    try:
        fuller: Draft = await run(make_draft, draft.with_pages(tuple(pages), settings), settings, has_planner)
    except ContextLengthExceeded:
        return draft
    return draft if _drops_more(fuller, draft) else fuller


async def with_kept_pages(history: History, natives: NativeFiles) -> History:
    """The conversation in which each reference to pages can be filled: those that cannot, since the PDF was deleted or
    the model takes none, are left out of the forms in which messages were forwarded."""
    found = list(history.messages)
    for index in range(first_forwarded(history.frame, found), len(found)):
        message = found[index]
        for part in _page_parts(message):
            if not await _fill(part, history, natives):
                message = _without(message, part)
        found[index] = message
    changed = any(new is not old for new, old in zip(found, history.messages, strict=True))
    return replace(history, messages=tuple(found)) if changed else history


def _may_have_pages(draft: Draft, natives: NativeFiles) -> bool:
    material = draft.material
    is_new = bool(material.messages) and material.messages[material.current].message_id is None
    takes = natives.facts.supports_pdf_input and draft.limits.tokens is not None
    return is_new and takes and not (material.has_block or draft.source.request.is_worded)


def _pdfs(draft: Draft) -> Iterator[tuple[Artifact, Part]]:
    """The documents of the conversation that may be PDFs, and the parts that hold or name them."""
    material = draft.material
    for artifact in material.placed:
        place = artifact.place
        if artifact.is_file and place.message is not None and place.part is not None:
            part = material.messages[place.message].body["content"][place.part]
            if pdf_data(part) is not None or named_file(part) is not None:
                yield artifact, part
    for artifact in material.attached:
        if (part := _attached_file(artifact)) is not None:
            yield artifact, part


def _ranked(draft: Draft, documents: Sequence[tuple[Artifact, Part]]) -> list[_Ranked]:
    """The documents with pages, those first of which one is most relevant to the question."""
    material = draft.material
    named = {number for kind, number in named_places(material.question).numbered if kind == "page"}
    last = {artifact.content_id for artifact in of_each_content([a for a, _ in documents], material.current)}
    parts = {artifact.content_id: (artifact, part) for artifact, part in documents if artifact.content_id in last}
    scores: dict[str, dict[int, float]] = {}
    marked: dict[str, list[tuple[int, int]]] = {}
    for name, (artifact, _) in parts.items():
        marked[name] = list(_marked_pages(artifact.content))
        scores[name] = dict.fromkeys(named & {number for _, number in marked[name]}, 1.0)
    searched = [artifact for name, (artifact, _) in parts.items() if marked[name]]
    found = candidates(material, searched, (), draft.tools.relevance) if material.question and searched else []
    best = max((each.passage.score for each in found), default=0.0)
    for each in found:
        score = each.passage.score
        if not isinstance(each.of, Artifact) or not each.passage.called or score < LEAST_SCORE * best or score <= 0:
            continue
        here = marked[each.of.content_id]
        at = bisect_right(here, (each.passage.start, 10**9)) - 1
        if at >= 0:
            pages = scores[each.of.content_id]
            pages[here[at][1]] = max(pages.get(here[at][1], 0.0), score / best / 2)  # a page that is named comes first
    ranked = [
        _Ranked(*parts[name], tuple(sorted(pages.items(), key=lambda page: (-page[1], page[0]))))
        for name, pages in scores.items()
        if marked[name]
    ]
    return sorted(ranked, key=lambda each: -each.pages[0][1] if each.pages else 0.0)[:MOST_LOOKED_AT]


def _marked_pages(content: str) -> Iterator[tuple[int, int]]:
    """Where pages begin, with their numbers. A text that is no PDF may have lines that look like marks, and no number
    in them."""
    for found in MARKER.finditer(content):
        if found[1] == "page" and found[2].isdecimal() and len(found[2]) <= MOST_DIGITS:
            yield found.start(), int(found[2])


async def _chosen(draft: Draft, ranked: Sequence[_Ranked], natives: NativeFiles) -> list[_Chosen]:
    """The pages that hold pictures and have room, the best first. Of a PDF without any text nothing can be ranked: its
    first pages are taken."""
    room = _room(draft)
    wanted: list[tuple[float, int, _Chosen]] = []
    count = 0
    for each in ranked:
        is_of_use = each.pages or pages_without_text(each.artifact.content)
        read = await _read(each.part, natives) if is_of_use and count < MOST_DOCUMENTS else None
        if read is None:
            continue
        count += 1
        document, reading = read
        choice = _Chosen(each.artifact, document, reading, [])
        pictured = {number for number, page in enumerate(reading.pages, 1) if page.has_picture}
        pages = [(number, score) for number, score in each.pages if number in pictured or score == 1.0]
        if not pages and len(reading.empty) == len(reading.pages):
            pages = [(number, 0.0) for number in sorted(pictured)]
        wanted += [(score, number, choice) for number, score in pages if number <= len(reading.pages)]
    return await asyncio.to_thread(_taken, wanted, room, natives) if wanted else []


def _taken(wanted: Sequence[tuple[float, int, _Chosen]], room: float, natives: NativeFiles) -> list[_Chosen]:
    """The documents with the pages that have room. Long texts are looked through for each page, so that few are
    weighed: of a scan all pages are wanted alike."""
    taken, most = 0, natives.files.most_pages
    for _, number, choice in sorted(wanted, key=lambda each: (-each[0], each[1]))[: WEIGHED * most]:
        if taken == most:
            break
        tokens = natives.counters.of_pdf(natives.facts, choice.reading.of_pages([number]))
        tokens += LABEL_TOKENS if not choice.numbers else 0
        if tokens <= room:
            choice.numbers.append(number)
            room -= tokens
            taken += 1
    chosen = {id(choice): choice for _, _, choice in wanted if choice.numbers}
    return list(chosen.values())


def _room(draft: Draft) -> float:
    """Tokens that pages may take."""
    budget, usable = draft.limits.tokens or 0, draft.limits.usable or 0
    share = PAGES_SHARE * budget
    return share if draft.fitted.new_pass else min(share, FREE_SHARE * (usable - draft.fitted.tokens))


async def _read(part: Part, natives: NativeFiles) -> tuple[DocumentFile, Reading] | None:
    """A PDF that a part holds or names; None if there is none, or it cannot be read now."""
    file, keep = part["file"], natives.tenant is not None
    try:
        if (file_id := named_file(part)) is not None:
            file, _ = await natives.files.own_pdf(file_id, natives.caller, keep=keep)
        if file is None:
            return None
        reading, digest = await natives.files.pdf(file, natives.owner, natives.known)
    except (StorageUnavailable, Overloaded):
        return None
    if reading is None or not reading.pages:
        return None
    natives.digests |= {digest: None} if keep else {}
    try:
        size = len(str(file.get("file_data") or ""))
        document = await offload_if(size > INLINE_CHARS, lambda: inline_file(file, decode_pdf=True))
    except UnreadableDocument:
        return None
    return (document, reading) if document is not None and document.kind == "pdf" else None


async def _cut(chosen: _Chosen, natives: NativeFiles) -> ShownPages | None:
    """The pages, ready to go up; None if they cannot be cut out."""
    numbers = tuple(sorted(chosen.numbers))
    part = reference(chosen.document.digest, numbers)
    name = part["file"]["file_id"]
    cutter, tenant = natives.files.pages, natives.tenant
    found = await cutter.kept(name, tenant) if tenant is not None else None
    found = found or await cutter.cut(chosen.document, chosen.reading, numbers, name, natives.owner)
    if found is None:
        return None
    _note(name, numbers, found, natives)
    return ShownPages(chosen.artifact, numbers, part)


def _note(name: str, numbers: Sequence[int], cut: CutPages, natives: NativeFiles) -> None:
    """The request knows from now on what the reference stands for, and what that costs."""
    natives.own[name] = as_file(cut, numbers)
    natives.counters.note_pdf(natives.facts, name, cut.reading)


def _page_parts(message: ConversationMessage) -> list[Part]:
    """The references to pages in the form in which a message was forwarded: they stand before its own parts."""
    return [part for part in message.parts_before if referenced(part)]


async def _fill(part: Part, history: History, natives: NativeFiles) -> bool:
    """Whether it is known what the reference stands for: from the cache, else from the PDF, if that is still there."""
    found = referenced(part)
    if found is None or not (natives.facts.supports_pdf_input and natives.files.most_pages):
        return False
    name, digest, numbers = found
    if name in natives.own:
        return True
    cutter, tenant = natives.files.pages, natives.tenant
    cut = await cutter.kept(name, tenant) if tenant is not None else None
    if cut is None and (read := await _source(digest, history, natives)) is not None:
        cut = await cutter.cut(*read, numbers, name, natives.owner)
    if cut is None:
        return False
    natives.digests |= {digest: None} if tenant is not None else {}
    _note(name, numbers, cut, natives)
    return True


async def _source(digest: str, history: History, natives: NativeFiles) -> tuple[DocumentFile, Reading] | None:
    """The PDF with this digest among the parts of messages and the attachments."""
    for part in _holding_pdfs(history):
        read = await _read(part, natives)
        if read is not None and read[0].digest == digest:
            return read
    return None


def _holding_pdfs(history: History) -> Iterator[Part]:
    """The parts that may hold or name a PDF, and one for each attachment that names a file."""
    for message in history.messages:
        content = message.body.get("content") if message.role == "user" else None
        for part in content if type(content) is list else ():
            if isinstance(part, dict) and (pdf_data(part) is not None or named_file(part) is not None):
                yield part
    yield from (part for artifact in history.attachments if (part := _attached_file(artifact)) is not None)


def _attached_file(artifact: Artifact) -> Part | None:
    """A part that names the file that was attached; None where there is no file but its text."""
    file_id = artifact.metadata.get("file_id")
    return {"type": "file", "file": {"file_id": file_id}} if file_id is not None else None


def _without(message: ConversationMessage, part: Part) -> ConversationMessage:
    form = message.rendered or {}
    return replace(message, rendered={**form, "content": [each for each in form["content"] if each is not part]})


def _drops_more(new: Draft, old: Draft) -> bool:
    """Whether more leaves than before."""
    if new.fitted.new_pass and not old.fitted.new_pass:
        return True
    after, before = new.fitted.selection, old.fitted.selection
    return after.first > before.first or bool(after.left_out - before.left_out)
