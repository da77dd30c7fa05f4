"""Pages of PDFs that matter to a question and hold pictures go up as those pages alone (guarantee §14.13).

They are for PDFs that were read because they do not fit, and for models that read PDFs. A question's pages stand behind
its block, and stay there as long as the block does.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.context.build import RequestRanking, WindowProposal
from gateway.context.whole_files import NativeFiles
from gateway.context.window.candidates import candidates, of_each_content
from gateway.core.types.artifacts import Artifact
from gateway.core.types.items import named_file, pdf_data
from gateway.core.types.places import MARKER, pages_without_text
from gateway.core.types.relevance import Relevance
from gateway.core.types.window import ShownPages, WindowInputs
from gateway.documents.document import DocumentFile, Reading
from gateway.pipeline.features.pdf_pages.cutting import PageCutter, reference
from gateway.pipeline.features.pdf_pages.kept_pages import attached_file, note_cut, read_pdf
from gateway.retrieval.named_places import named_places

Part = dict[str, Any]
PAGES_SHARE = 0.25
"""Share of the budget that pages may take: what they show, a text cannot; what else is needed is text."""
FREE_SHARE = 0.75
"""Share of what is free that pages may take where nothing has to leave; the rest is for turns to come."""
MIN_SCORE = 0.5
"""Minimum score of a page, as a fraction of the best page's: a picture costs a thousand tokens."""
MAX_DOCUMENTS = 4
"""PDFs of which one question brings pages: each is cut in a process of its own."""
MAX_LOOKED_AT = 16
"""Documents with pages of which one question looks whether they are PDFs."""
MAX_DIGITS = 6
"""Of a page's number: no PDF has a million pages."""
WEIGHED = 2
"""For each page that may go up so many are asked what they cost, since some have no room."""
LABEL_TOKENS = 80
"""Tokens of what the block says of one PDF's pages, roughly; all is counted before it is forwarded."""


@dataclass(frozen=True, slots=True)
class _RankedPages:
    """A PDF with the numbers of its pages that the question calls for, with their scores, best first."""

    artifact: Artifact
    part: Part
    pages: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class _ChosenPages:
    """A PDF that was read, and the pages that are taken of it."""

    artifact: Artifact
    document: DocumentFile
    reading: Reading
    numbers: list[int]


async def shown_pages(
    proposal: WindowProposal, natives: NativeFiles, ranking: RequestRanking, cutter: PageCutter
) -> tuple[ShownPages, ...]:
    """Returns the pages that have room beside the block of a new question, cut out; none where none matters."""
    material, inputs = proposal.measured.material, proposal.measured.inputs
    documents = list(_pdfs(material)) if cutter.most_pages and _may_have_pages(proposal) else []
    if not documents:
        return ()
    ranked = await ranking.run(inputs.is_small, _ranked, material, proposal.measured.tools.relevance, documents)
    chosen = await _chosen(ranked, _room(proposal), natives, cutter.most_pages) if ranked else []
    return tuple([found for each in chosen if (found := await _cut(each, natives, cutter)) is not None])


def _may_have_pages(proposal: WindowProposal) -> bool:
    measured, material = proposal.measured, proposal.measured.material
    is_new = bool(material.messages) and material.messages[material.current].message_id is None
    takes = measured.inputs.facts.supports_pdf_input and measured.limits.tokens is not None
    return is_new and takes and not (material.has_block or measured.inputs.request.is_worded)


def _pdfs(material: WindowInputs) -> Iterator[tuple[Artifact, Part]]:
    """The documents of the conversation that may be PDFs, and the parts that hold or name them."""
    for artifact in material.placed:
        place = artifact.place
        if artifact.is_file and place.message is not None and place.part is not None:
            part = material.messages[place.message].body["content"][place.part]
            if pdf_data(part) is not None or named_file(part) is not None:
                yield artifact, part
    for artifact in material.attached:
        if (part := attached_file(artifact)) is not None:
            yield artifact, part


def _ranked(
    material: WindowInputs, relevance: Relevance, documents: Sequence[tuple[Artifact, Part]]
) -> list[_RankedPages]:
    """The documents with pages, those first of which one is most relevant to the question."""
    named = {number for kind, number in named_places(material.question).numbered if kind == "page"}
    last = {artifact.content_id for artifact in of_each_content([a for a, _ in documents], material.current)}
    parts = {artifact.content_id: (artifact, part) for artifact, part in documents if artifact.content_id in last}
    scores: dict[str, dict[int, float]] = {}
    marked: dict[str, list[tuple[int, int]]] = {}
    for name, (artifact, _) in parts.items():
        marked[name] = list(_marked_pages(artifact.content))
        scores[name] = dict.fromkeys(named & {number for _, number in marked[name]}, 1.0)
    searched = [artifact for name, (artifact, _) in parts.items() if marked[name]]
    found = candidates(material, searched, (), relevance) if material.question and searched else []
    best = max((each.passage.score for each in found), default=0.0)
    for each in found:
        score = each.passage.score
        if not isinstance(each.of, Artifact) or not each.passage.called or score < MIN_SCORE * best or score <= 0:
            continue
        here = marked[each.of.content_id]
        at = bisect_right(here, (each.passage.start, 10**9)) - 1
        if at >= 0:
            pages = scores[each.of.content_id]
            pages[here[at][1]] = max(pages.get(here[at][1], 0.0), score / best / 2)  # a page that is named comes first
    ranked = [
        _RankedPages(*parts[name], tuple(sorted(pages.items(), key=lambda page: (-page[1], page[0]))))
        for name, pages in scores.items()
        if marked[name]
    ]
    return sorted(ranked, key=lambda each: -each.pages[0][1] if each.pages else 0.0)[:MAX_LOOKED_AT]


def _marked_pages(content: str) -> Iterator[tuple[int, int]]:
    """Where pages begin, with their numbers. A text that is no PDF may have lines that look like marks, and no number
    in them."""
    for found in MARKER.finditer(content):
        if found[1] == "page" and found[2].isdecimal() and len(found[2]) <= MAX_DIGITS:
            yield found.start(), int(found[2])


async def _chosen(ranked: Sequence[_RankedPages], room: float, natives: NativeFiles, most: int) -> list[_ChosenPages]:
    """The pages that hold pictures and have room, the best first. Of a PDF without any text nothing can be ranked: its
    first pages are taken."""
    wanted: list[tuple[float, int, _ChosenPages]] = []
    count = 0
    for each in ranked:
        is_of_use = each.pages or pages_without_text(each.artifact.content)
        read = await read_pdf(each.part, natives) if is_of_use and count < MAX_DOCUMENTS else None
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
    wanted: Sequence[tuple[float, int, _ChosenPages]], room: float, natives: NativeFiles, most: int
) -> list[_ChosenPages]:
    """The documents with the pages that have room. Long texts are looked through for each page, so that few are
    weighed: of a scan all pages are wanted alike."""
    taken = 0
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


def _room(proposal: WindowProposal) -> float:
    """Tokens that pages may take."""
    limits, fitted = proposal.measured.limits, proposal.fitted
    share = PAGES_SHARE * (limits.tokens or 0)
    return share if fitted.new_pass else min(share, FREE_SHARE * ((limits.usable or 0) - fitted.tokens))


async def _cut(chosen: _ChosenPages, natives: NativeFiles, cutter: PageCutter) -> ShownPages | None:
    """The pages, ready to go up; None if they cannot be cut out."""
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
