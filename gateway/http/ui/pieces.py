"""What pages show of texts that somebody wrote: bounded, with how much more there is (guarantee §13.3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.explain.artifacts import EXCLUDED, ExplainedArtifact
from gateway.explain.lines import Line, text_of_message
from gateway.explain.messages import MessageChange
from gateway.explain.passages import Span, found_again

TEXT_CHARS = 3000
"""Of one text on a page; its address has all of it."""
LINE_CHARS = 400
MOST_LINES = 300
"""Lines of one difference on a page."""
AROUND_CHARS = 240
"""Of what was left out between passages: its beginning and its end."""
MARKED_CHARS = 12_000
"""Of one marked original on a page."""
MOST_MESSAGES = 150
"""Messages that a page tells one by one; of runs of unchanged ones the first and the last."""
RUN = 2
MOST_ARTIFACTS = 60


@dataclass(frozen=True, slots=True)
class Text:
    """A text as a page shows it; `more` are characters that it does not."""

    text: str
    more: int = 0

    @classmethod
    def of(cls, text: str, most: int = TEXT_CHARS) -> "Text":
        return cls(text[:most], max(0, len(text) - most))


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an original. `kind`: `shown` was forwarded, `left` was not, `skipped` is not on the page: then `count`
    are its characters."""

    kind: str
    text: str = ""
    count: int = 0


def marked(artifact: ExplainedArtifact) -> list[Piece]:
    """The original with its passages, as far as a page shows it."""
    found: list[Piece] = []
    chars = 0
    for piece in _pieces(artifact.original or "", artifact.passages.spans):
        if chars >= MARKED_CHARS:
            rest = len(artifact.original or "") - sum(len(each.text) + each.count for each in found)
            return [*found, Piece("skipped", "", rest)] if rest > 0 else found
        left = MARKED_CHARS - chars
        if len(piece.text) > left:
            piece = Piece(piece.kind, piece.text[:left], 0)
        found.append(piece)
        chars += len(piece.text)
    rest = len(artifact.original or "") - sum(len(each.text) + each.count for each in found)
    return [*found, Piece("skipped", "", rest)] if rest > 0 else found


def marked_part(artifact: ExplainedArtifact, text: str) -> list[Piece]:
    """A part of a large document, all of it, with what was shown of the document marked."""
    shown = artifact.shown.text if artifact.shown is not None and artifact.record.get("strategy") != EXCLUDED else ""
    found: list[Piece] = []
    at = 0
    for start, end in found_again(text, shown).spans if shown else ():
        found += [Piece("left", text[at:start])] if start > at else []
        found.append(Piece("shown", text[start:end]))
        at = end
    return [*found, Piece("left", text[at:])] if at < len(text) else found


def _pieces(text: str, spans: Sequence[Span]) -> Iterator[Piece]:
    at = 0
    for start, end in spans:
        yield from _left(text[at:start])
        yield Piece("shown", text[start:end])
        at = end
    yield from _left(text[at:])


def _left(text: str) -> Iterator[Piece]:
    """What was not forwarded: short, or how it begins and ends."""
    if len(text) <= 2 * AROUND_CHARS:
        if text:
            yield Piece("left", text)
        return
    yield Piece("left", text[:AROUND_CHARS])
    yield Piece("skipped", "", len(text) - 2 * AROUND_CHARS)
    yield Piece("left", text[-AROUND_CHARS:])


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message on the page; `index` names it in addresses. Of a run of messages in which nothing changed `count` says
    how many they are, and the rest is of no matter."""

    index: int
    change: str = "skipped"
    origin: str = ""
    role: str = ""
    agent: str | None = None
    before_chars: int = 0
    after_chars: int = 0
    said: Text | None = None
    forwarded: Text | None = None
    lines: tuple[Line, ...] = ()
    lines_left: int = 0
    is_whole: bool = True
    count: int = 1


def shown_messages(changes: Sequence[MessageChange]) -> list[ShownMessage]:
    """The messages as a page tells them: long runs of the same kind in short, the latest in full."""
    found: list[ShownMessage] = []
    index = 0
    while index < len(changes):
        end = index
        plain = changes[index].change in ("unchanged", "left_out")
        while plain and end < len(changes) and _alike(changes[end], changes[index]):
            end += 1
        if end - index > 2 * RUN + 1:
            found += [_shown(n, changes[n]) for n in range(index, index + RUN)]
            found.append(ShownMessage(index, "skipped", changes[index].change, count=end - index - 2 * RUN))
            found += [_shown(n, changes[n]) for n in range(end - RUN, end)]
        else:
            end = max(end, index + 1)
            found += [_shown(n, changes[n]) for n in range(index, end)]
        index = end
    if len(found) > MOST_MESSAGES:
        skipped = len(found) - MOST_MESSAGES
        found = [ShownMessage(0, "skipped", "", count=skipped), *found[-MOST_MESSAGES:]]
    return found


def _alike(one: MessageChange, other: MessageChange) -> bool:
    return one.change == other.change and one.origin == other.origin


def _shown(index: int, each: MessageChange) -> ShownMessage:
    lines = each.lines.lines if each.lines is not None else ()
    cut = tuple(Line(line.kind, line.text[:LINE_CHARS], line.count) for line in lines[:MOST_LINES])
    same = each.after is each.before or each.change == "unchanged"
    return ShownMessage(
        index,
        each.change,
        each.origin,
        each.role,
        each.agent,
        each.before_chars,
        each.after_chars,
        Text.of(text_of_message(each.before)) if each.before is not None else None,
        Text.of(text_of_message(each.after)) if each.after is not None and not same else None,
        cut,
        max(0, len(lines) - MOST_LINES),
        each.lines.is_whole if each.lines is not None else True,
    )
