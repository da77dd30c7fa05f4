"""How the passages that were taken are shown: extracts of artifacts, and excerpts of old turns."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.fitting.candidates import Candidate
from gateway.fitting.tools import in_full
from gateway.fitting.transcript import Said, as_artifact
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.selection import Excerpt, Recalled, Rendering

Spans = list[tuple[int, int]]


def extract(artifact: Artifact, taken: Iterable[Candidate]) -> Rendering:
    """The artifact by those passages of it; in full where they are the whole of it. By its summary as well if that was
    taken, unless both together say no less than all of it."""
    taken = list(taken)
    summary = next((c for c in taken if c.summary), None)
    ordered = sorted((c.passage for c in taken if not c.summary), key=lambda p: p.start)
    spans: Spans = []
    headings = [p.heading for p in ordered if _add(spans, artifact.content, p.start, p.end)]
    if _whole(spans, artifact.content):
        return in_full(artifact, artifact.content)
    shown = Rendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=tuple(spans), headings=tuple(headings))
    if summary is None or len(summary.summary) + shown.extract_chars >= len(artifact.content):
        return shown if spans else Rendering(artifact, ProcessingStrategy.EXCLUDE)
    return replace(shown, strategy=ProcessingStrategy.SUMMARIZE, text=summary.summary, focus=summary.focus)


def recalled(told: Sequence[Said], taken: Iterable[Candidate]) -> Recalled | None:
    """Excerpts, in the order of the conversation, of what was `told` outside the window; None without any."""
    spans: dict[int, Spans] = {}
    for candidate in sorted(taken, key=lambda c: (c.message or 0, c.passage.start)):
        here = spans.setdefault(candidate.message or 0, [])
        if isinstance(candidate.of, Said):
            _add(here, candidate.of.text, candidate.passage.start, candidate.passage.end)
    excerpts: list[Excerpt] = []
    complete = True  # whether everything up to here is shown
    for each in told:
        if each.index not in spans:
            complete = False
            continue
        here = spans[each.index]
        whole = _whole(here, each.text)
        shown = ((0, len(each.text)),) if whole else tuple(here)
        excerpts.append(Excerpt(each.turn, each.speaker, each.text, shown, follows=complete))
        complete = True
    return Recalled(as_artifact(told), tuple(excerpts), more=not complete) if excerpts else None


def _add(spans: Spans, text: str, start: int, end: int) -> bool:
    """Adds a span behind the others; False if it went on from the last of them."""
    if spans and not text[spans[-1][1] : start].strip():
        spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        return False
    spans.append((start, end))
    return True


def _whole(spans: Spans, text: str) -> bool:
    return len(spans) == 1 and not (text[: spans[0][0]].strip() or text[spans[0][1] :].strip())
