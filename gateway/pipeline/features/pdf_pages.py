"""Chooses pages of PDFs that matter to a question and hold pictures: they are sent upstream as PDFs of only those pages
(guarantee §14.13).

This serves PDFs that were read because they do not fit, and models that read PDFs. A question's pages follow its block,
and stay there as long as the block does. What is stored of a conversation holds only a reference, a `file` part that
names the PDF by its content and the pages by their numbers. The pages are cut out once and cached; their bytes replace
the reference as the last step, identical each time. A reference that was forwarded before is filled again, or
removed."""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gateway.context import ContextHooks, RequestRanking, WindowProposal, whole_files
from gateway.context.window import candidates
from gateway.core import errors, jsons, ports
from gateway.core.frozen_records import record
from gateway.core.tasks import offload_if
from gateway.core.types import artifacts, items, places, window
from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.core.types.relevance import Relevance
from gateway.core.types.window import ShownPages, WindowInputs
from gateway.documents import DocumentFile, DocumentOwner, DocumentReader, Reading, UnreadableDocument, file_reader
from gateway.retrieval import places_named

PAGES_REFERENCE = re.compile(r"pages:(pdf:[0-9a-f]{64}):(\d{1,6}(?:,\d{1,6}){0,99})\Z")
CUT_VERSION = 2
"""Incremented whenever pages are cut in another way: the cache may hold older ones."""
MAX_PAGES_BYTES = 8 * 2**20
"""Largest size of pages as base64: providers take 32 MB in a whole request."""
INLINE_CHARS = 100_000


@record
class CutPages:
    """Pages as a PDF of their own. `reading`: the text and layout read from them; `data`: the PDF in base64."""

    reading: Reading
    data: str


def reference(digest: str, numbers: Sequence[int]) -> dict[str, Any]:
    """Builds the `file` part that refers to pages of a PDF. `digest`: of the PDF (`DocumentFile.digest`)."""
    return {"type": "file", "file": {"file_id": f"pages:{digest}:{','.join(map(str, numbers))}"}}


def referenced(part: Any) -> tuple[str, str, tuple[int, ...]] | None:
    """Parses a reference: its id, the PDF's digest and the numbers of its pages; None for any other part."""
    name = items.named_file(part) if isinstance(part, dict) else None
    found = PAGES_REFERENCE.match(name) if name is not None else None
    return (found[0], found[1], tuple(map(int, found[2].split(",")))) if found is not None else None


def as_file(cut: CutPages, numbers: Sequence[int]) -> dict[str, Any]:
    """Builds the `file` that replaces the reference's own when it is sent upstream."""
    return {"filename": f"{places.named_pages(numbers)}.pdf", "file_data": f"data:application/pdf;base64,{cut.data}"}


class PageCutter:
    """Cuts pages out of PDFs, in a separate process."""

    def __init__(self, documents: DocumentReader, cache: ports.CacheBackend, ttl: float, most_pages: int) -> None:
        """`most_pages`: for one question, beside its block (`documents.native_pages`)."""
        self.most_pages = most_pages
        self._documents = documents
        self._cache = cache
        self._ttl = ttl

    async def kept(self, name: str, tenant: str) -> CutPages | None:
        """Reads the cached pages for a reference's id."""
        raw = await self._cache.get(_key(name, tenant))
        return None if raw is None else await offload_if(len(raw) > INLINE_CHARS, _cut_of, raw)

    async def cut(
        self, document: DocumentFile, reading: Reading, numbers: Sequence[int], name: str, owner: DocumentOwner
    ) -> CutPages | None:
        """Cuts out pages; None if they cannot be cut out, or are too large.
        `reading`: what was read of the whole PDF; `name`: the id of their reference."""
        if not numbers or max(numbers) > len(reading.pages):
            return None
        try:
            data = await self._documents.cut(document, owner.tenant, numbers)
        except (UnreadableDocument, errors.Overloaded):
            return None
        if len(data) > MAX_PAGES_BYTES:
            return None
        found = CutPages(reading.of_pages(numbers), data)
        if owner.keeps:
            raw = await offload_if(len(data) > INLINE_CHARS, _raw_of, found)
            group = artifacts.cache_group(owner.tenant, document.digest)
            await self._cache.set(_key(name, owner.tenant), raw, self._ttl, group=group)
        return found


def _key(name: str, tenant: str) -> str:
    return f"cut:{CUT_VERSION}:{tenant}:{name}"


def _raw_of(cut: CutPages) -> bytes:
    return jsons.dumps({"reading": cut.reading.as_json(), "data": cut.data})


def _cut_of(raw: bytes) -> CutPages | None:
    """Decodes cached pages; None if they are damaged."""
    try:
        found = jsons.loads(raw)
        return CutPages(Reading.from_json(found["reading"]), str(found["data"]))
    except (ValueError, KeyError, TypeError):
        return None


Part = dict[str, Any]
MAX_INLINE_PDF_CHARS = 100_000
"""A PDF of more characters of base64 is decoded in a thread."""


async def with_kept_pages(
    history: ConversationHistory, natives: whole_files.NativeFiles, cutter: PageCutter
) -> ConversationHistory:
    """Removes from the forwarded forms of messages each reference to pages that cannot be filled, since the PDF was
    deleted or the model takes none; loads the pages of all others."""
    found = list(history.messages)
    for index in range(window.first_forwarded(history.frame, found), len(found)):
        message = found[index]
        for part in _page_parts(message):
            if not await _fill(part, history, natives, cutter):
                message = _without(message, part)
        found[index] = message
    changed = any(new is not old for new, old in zip(found, history.messages, strict=True))
    return replace(history, messages=tuple(found)) if changed else history


async def read_pdf(part: Part, natives: whole_files.NativeFiles) -> tuple[DocumentFile, Reading] | None:
    """Reads a PDF that a part holds or names; None if there is none, or it cannot be read now."""
    file, keep = part["file"], natives.tenant is not None
    try:
        if (file_id := items.named_file(part)) is not None:
            file, _ = await natives.files.own_pdf(file_id, natives.caller, keep=keep)
        if file is None:
            return None
        reading, digest = await natives.files.pdf(file, natives.owner, natives.known)
    except (errors.StorageUnavailable, errors.Overloaded):
        return None
    if reading is None or not reading.pages:
        return None
    natives.digests |= {digest: None} if keep else {}
    try:
        size = len(str(file.get("file_data") or ""))
        document = await offload_if(size > MAX_INLINE_PDF_CHARS, lambda: file_reader.inline_file(file, decode_pdf=True))
    except UnreadableDocument:
        return None
    return (document, reading) if document is not None and document.kind == "pdf" else None


def note_cut(name: str, numbers: Sequence[int], cut: CutPages, natives: whole_files.NativeFiles) -> None:
    """Notes for the request what a reference is replaced by, and what that costs."""
    natives.own[name] = as_file(cut, numbers)
    natives.counters.note_pdf(natives.facts, name, cut.reading)


def _page_parts(message: ConversationMessage) -> list[Part]:
    """Returns the references to pages in a message's forwarded form: they precede its own parts."""
    return [part for part in message.parts_before if referenced(part)]


async def _fill(part: Part, history: ConversationHistory, natives: whole_files.NativeFiles, cutter: PageCutter) -> bool:
    """Returns whether a reference can be replaced: from the cache, else from the PDF, if that still exists."""
    found = referenced(part)
    if found is None or not (natives.facts.supports_pdf_input and cutter.most_pages):
        return False
    name, digest, numbers = found
    if name in natives.own:
        return True
    tenant = natives.tenant
    cut = await cutter.kept(name, tenant) if tenant is not None else None
    if cut is None and (read := await _source(digest, history, natives)) is not None:
        cut = await cutter.cut(*read, numbers, name, natives.owner)
    if cut is None:
        return False
    natives.digests |= {digest: None} if tenant is not None else {}
    note_cut(name, numbers, cut, natives)
    return True


async def _source(
    digest: str, history: ConversationHistory, natives: whole_files.NativeFiles
) -> tuple[DocumentFile, Reading] | None:
    """Returns the PDF with this digest from the parts of messages and the attachments."""
    for part in _holding_pdfs(history):
        read = await read_pdf(part, natives)
        if read is not None and read[0].digest == digest:
            return read
    return None


def _holding_pdfs(history: ConversationHistory) -> Iterator[Part]:
    """Yields the parts that may hold or name a PDF, and one for each attachment that names a file."""
    for message in history.messages:
        content = message.body.get("content") if message.role == "user" else None
        for part in content if type(content) is list else ():
            if isinstance(part, dict) and (items.pdf_data(part) is not None or items.named_file(part) is not None):
                yield part
    yield from (part for artifact in history.attachments if (part := attached_file(artifact)) is not None)


def attached_file(artifact: Artifact) -> Part | None:
    """Builds a part that names the attached file; None if only its text was attached."""
    file_id = artifact.metadata.get("file_id")
    return {"type": "file", "file": {"file_id": file_id}} if file_id is not None else None


def _without(message: ConversationMessage, part: Part) -> ConversationMessage:
    form = message.rendered or {}
    return replace(message, rendered={**form, "content": [each for each in form["content"] if each is not part]})


PAGES_SHARE = 0.25
"""Share of the budget that pages may take: they show what text cannot; the rest is needed for text."""
PAGES_FREE_SHARE = 0.75
"""Share of the free budget that pages may take where nothing has to leave; the rest is for later turns."""
MIN_SCORE = 0.5
"""Minimum score of a page, as a fraction of the best page's: a picture costs a thousand tokens."""
MAX_CUT_DOCUMENTS = 4
"""Most PDFs whose pages one question brings: each is cut in a process of its own."""
MAX_LOOKED_AT = 16
"""Most documents with pages that are checked for being PDFs for one question."""
MAX_PAGE_DIGITS = 6
"""Digits of a page's number: no PDF has a million pages."""
WEIGHED = 2
"""Pages whose cost is computed for each page that may be sent, since some do not fit."""
PAGES_LABEL_TOKENS = 80
"""Tokens of the block's label for one PDF's pages, roughly; all is counted before it is forwarded."""


@record
class _RankedPages:
    """A PDF with the numbers of its pages that the question calls for, with their scores, best first."""

    artifact: Artifact
    part: Part
    pages: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class _ChosenPages:
    """A PDF that was read, and the pages that are taken from it."""

    artifact: Artifact
    document: DocumentFile
    reading: Reading
    numbers: list[int]


async def shown_pages(
    proposal: WindowProposal, natives: whole_files.NativeFiles, ranking: RequestRanking, cutter: PageCutter
) -> tuple[ShownPages, ...]:
    """Returns the cut-out pages that fit beside the block of a new question; none if none matters."""
    material, inputs = proposal.measured.material, proposal.measured.inputs
    documents = list(_pdfs(material)) if cutter.most_pages and _may_have_pages(proposal) else []
    if not documents:
        return ()
    ranked = await ranking.run(inputs.is_small, _ranked, material, proposal.measured.callbacks.relevance, documents)
    chosen = await _chosen(ranked, _room(proposal), natives, cutter.most_pages) if ranked else []
    return tuple([found for each in chosen if (found := await _cut(each, natives, cutter)) is not None])


def _may_have_pages(proposal: WindowProposal) -> bool:
    measured, material = proposal.measured, proposal.measured.material
    is_new = bool(material.messages) and material.messages[material.current].message_id is None
    takes = measured.inputs.facts.supports_pdf_input and measured.limits.tokens is not None
    return is_new and takes and not (material.has_block or measured.inputs.request.is_worded)


def _pdfs(material: WindowInputs) -> Iterator[tuple[Artifact, Part]]:
    """Yields the documents of the conversation that may be PDFs, and the parts that hold or name them."""
    for artifact in material.placed:
        place = artifact.place
        if artifact.is_file and place.message is not None and place.part is not None:
            part = material.messages[place.message].body["content"][place.part]
            if items.pdf_data(part) is not None or items.named_file(part) is not None:
                yield artifact, part
    for artifact in material.attached:
        if (part := attached_file(artifact)) is not None:
            yield artifact, part


def _ranked(
    material: WindowInputs, relevance: Relevance, documents: Sequence[tuple[Artifact, Part]]
) -> list[_RankedPages]:
    """Returns the documents with pages, those with the page most relevant to the question first."""
    named = {number for kind, number in places_named(material.question).numbered if kind == "page"}
    last = {artifact.content_id for artifact in candidates.of_each_content([a for a, _ in documents], material.current)}
    parts = {artifact.content_id: (artifact, part) for artifact, part in documents if artifact.content_id in last}
    scores: dict[str, dict[int, float]] = {}
    marked: dict[str, list[tuple[int, int]]] = {}
    for name, (artifact, _) in parts.items():
        marked[name] = list(_marked_pages(artifact.content))
        scores[name] = dict.fromkeys(named & {number for _, number in marked[name]}, 1.0)
    searched = [artifact for name, (artifact, _) in parts.items() if marked[name]]
    found = candidates.candidates(material, searched, (), relevance) if material.question and searched else []
    best = max((each.passage.score for each in found), default=0.0)
    for each in found:
        score = each.passage.score
        if not isinstance(each.of, Artifact) or not each.passage.called or score < MIN_SCORE * best or score <= 0:
            continue
        here = marked[each.of.content_id]
        at = bisect_right(here, (each.passage.start, 10**9)) - 1
        if at >= 0:
            pages = scores[each.of.content_id]
            pages[here[at][1]] = max(pages.get(here[at][1], 0.0), score / best / 2)  # pages named in it come first
    ranked = [
        _RankedPages(*parts[name], tuple(sorted(pages.items(), key=lambda page: (-page[1], page[0]))))
        for name, pages in scores.items()
        if marked[name]
    ]
    return sorted(ranked, key=lambda each: -each.pages[0][1] if each.pages else 0.0)[:MAX_LOOKED_AT]


def _marked_pages(content: str) -> Iterator[tuple[int, int]]:
    """Yields where pages begin, with their numbers. A text that is not a PDF may have lines that look like page marks,
    without a number in them."""
    for found in places.PLACE_MARKER.finditer(content):
        if found[1] == "page" and found[2].isdecimal() and len(found[2]) <= MAX_PAGE_DIGITS:
            yield found.start(), int(found[2])


async def _chosen(
    ranked: Sequence[_RankedPages], room: float, natives: whole_files.NativeFiles, most: int
) -> list[_ChosenPages]:
    """Chooses the pages that hold pictures and fit, best first. A PDF without any text cannot be ranked: its first
    pages are taken."""
    wanted: list[tuple[float, int, _ChosenPages]] = []
    count = 0
    for each in ranked:
        is_of_use = each.pages or places.pages_without_text(each.artifact.content)
        read = await read_pdf(each.part, natives) if is_of_use and count < MAX_CUT_DOCUMENTS else None
        if read is None:
            continue
        count += 1
        document, reading = read
        choice = _ChosenPages(each.artifact, document, reading, [])
        pictured = {number for number, page in enumerate(reading.pages, 1) if page.has_picture}
        pages = [(number, score) for number, score in each.pages if number in pictured or score == 1.0]
        if not pages and len(reading.empty) == len(reading.pages):
            pages = [(number, 0.0) for number in sorted(pictured)]
        wanted += [(score, number, choice) for number, score in pages if number <= len(reading.pages)]
    return await asyncio.to_thread(_taken, wanted, room, natives, most) if wanted else []


def _taken(
    wanted: Sequence[tuple[float, int, _ChosenPages]], room: float, natives: whole_files.NativeFiles, most: int
) -> list[_ChosenPages]:
    """Returns the documents with the pages that fit. Each page weighed takes a scan of long texts, so few are weighed:
    of a scanned document all pages match alike."""
    taken = 0
    for _, number, choice in sorted(wanted, key=lambda each: (-each[0], each[1]))[: WEIGHED * most]:
        if taken == most:
            break
        tokens = natives.counters.of_pdf(natives.facts, choice.reading.of_pages([number]))
        tokens += PAGES_LABEL_TOKENS if not choice.numbers else 0
        if tokens <= room:
            choice.numbers.append(number)
            room -= tokens
            taken += 1
    chosen = {id(choice): choice for _, _, choice in wanted if choice.numbers}
    return list(chosen.values())


def _room(proposal: WindowProposal) -> float:
    """Returns the tokens that pages may take."""
    limits, fitted = proposal.measured.limits, proposal.fitted
    share = PAGES_SHARE * (limits.tokens or 0)
    return share if fitted.new_pass else min(share, PAGES_FREE_SHARE * ((limits.usable or 0) - fitted.tokens))


async def _cut(chosen: _ChosenPages, natives: whole_files.NativeFiles, cutter: PageCutter) -> ShownPages | None:
    """Cuts out the pages to be sent upstream; None if they cannot be cut out."""
    numbers = tuple(sorted(chosen.numbers))
    part = reference(chosen.document.digest, numbers)
    name = part["file"]["file_id"]
    tenant = natives.tenant
    found = await cutter.kept(name, tenant) if tenant is not None else None
    found = found or await cutter.cut(chosen.document, chosen.reading, numbers, name, natives.owner)
    if found is None:
        return None
    note_cut(name, numbers, found, natives)
    return ShownPages(chosen.artifact, numbers, part)


def build(cutter: PageCutter) -> ContextHooks:
    return ContextHooks(
        on_forwarded=partial(with_kept_pages, cutter=cutter), on_proposal=partial(shown_pages, cutter=cutter)
    )
