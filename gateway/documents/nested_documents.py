"""Reads files inside of files: members of archives and attachments of mails, each by its own kind, within one set of
bounds (guarantee §14.9)."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from gateway.core.types import places
from gateway.core.types.files import DOCUMENT_KINDS
from gateway.documents.document import LeftOut, Reading, ReadOptions, UnreadableDocument, unpackable
from gateway.documents.plain import text_of
from gateway.documents.sandbox_worker import tell_nothing
from gateway.documents.sniff import sniffed

MAX_MEMBER_BYTES = 128 * 2**20
MEDIA_ENDINGS = "png svg jpg jpeg gif bmp ico webp tif tiff psd heic avif mp3 mp4 m4a wav ogg flac avi mov mkv webm"
PROGRAMS = "exe dll so dylib a o obj lib class jar pyc pyo pyd whl wasm bin dat iso dmg img pack idx"
OTHER_BINARY_ENDINGS = (
    "woff woff2 ttf otf eot 7z rar zst br lz4 pkl npy npz pt onnx safetensors gguf h5 glb blend p7s p7m"
)
NO_TEXT_ENDINGS = frozenset(f"{MEDIA_ENDINGS} {PROGRAMS} {OTHER_BINARY_ENDINGS}".split())
TEXT_NAME_WORDS = """dockerfile makefile gnumakefile cmakelists.txt jenkinsfile vagrantfile procfile gemfile rakefile
    license licence copying readme changelog authors notice codeowners pipfile justfile build workspace"""
TEXT_NAMES = frozenset(TEXT_NAME_WORDS.split())
KIND_BYTES = 1024
SNIFFED_BYTES = 65_536
UNSAFE = re.compile(r"^(?:/|\\|[A-Za-z]:)|(?:^|[/\\])\.\.(?:[/\\]|$)|\x00")
"""Absolute paths, and those that lead out of the archive."""
FOLDERS = """.git .svn .hg node_modules __pycache__ .venv venv .tox .mypy_cache .pytest_cache .ruff_cache .idea __macosx
    .gradle .next .terraform bower_components site-packages"""
TOOLS_FOLDERS = frozenset(FOLDERS.split())


def kind_of(name: str, raw: bytes, media_type: str = "") -> str | None:
    """Returns the kind of a file inside another, by its name, its bytes and its media type; None if it has no text."""
    lower = name.lower().replace("\\", "/").rpartition("/")[2]
    media = media_type.split(";")[0].strip().lower()
    ending = lower.rpartition(".")[2] if "." in lower else ""
    if ending in NO_TEXT_ENDINGS or media.startswith(("image/", "audio/", "video/")):
        return None
    for kind, known in DOCUMENT_KINDS.items():
        if lower.endswith(known.endings) or (media in known.media_types and not ending):
            return kind if not known.starts or known.starts in raw[:KIND_BYTES] else _by_bytes(raw)
    if lower in TEXT_NAMES:
        return "text"
    return _by_bytes(raw)


def _by_bytes(raw: bytes) -> str | None:
    return sniffed(raw) or ("text" if text_of(raw[:SNIFFED_BYTES]) is not None else None)


def why_not(path: str) -> str | None:
    """Returns why a member of an archive is left out by its path alone; None: it is not."""
    if UNSAFE.search(path):
        return "with paths that lead out of the archive"
    folders = path.lower().replace("\\", "/").split("/")[:-1]
    if any(folder in TOOLS_FOLDERS for folder in folders):
        return "in folders of tools such as .git and node_modules"
    if path.lower().rpartition(".")[2] in NO_TEXT_ENDINGS and "." in path:
        return "without text"
    return None


def listing(names: list[tuple[str, int]], most: int = 1000) -> str:
    """Renders the size of an archive, and paths and sizes, one per line, of at most so many files."""
    size = sum(size for _, size in names)
    head = f"Archive of {len(names):,} {'file' if len(names) == 1 else 'files'}, {size:,} bytes unpacked:"
    lines = [f"{' '.join(name.split())[:300]} ({size:,} bytes)" for name, size in names[:most]]
    more = len(names) - most
    return "\n".join([head, *lines, *([f"and {more:,} more"] if more > 0 else [])])


MAX_NEST_UNPACKED = 512 * 2**20
"""Bytes of all files inside one, unpacked."""
MAX_NESTED_DEPTH = 3
"""Levels of archives and mails inside each other."""
NAMED_IN_NOTE = 5
"""Files that a note names, for each reason."""
NAME_IN_NOTE = 80


@dataclass(slots=True)
class NestBudget:
    """What reading all files inside one may still take: bytes unpacked, files, bytes of text."""

    unpacked: int = MAX_NEST_UNPACKED
    members: int = 50_000
    text: int = 48 * 2**20
    left_out: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    untold: int = 0


class NestedPlace:
    """The position of a file inside others, and the bounds that are left for all of them."""

    def __init__(self, options: ReadOptions, budget: NestBudget | None = None, path: str = "", depth: int = 0) -> None:
        self.options = options
        self.budget = budget or NestBudget()
        self._path = path
        self._depth = depth

    def leave_out(self, why: str, name: str) -> None:
        """Records, for the note, that a file was not read."""
        self.budget.counts[why] += 1
        names = self.budget.left_out.setdefault(why, [])
        if len(names) < NAMED_IN_NOTE:
            names.append(" ".join(f"{self._path}{name}".split())[-NAME_IN_NOTE:])

    def notes(self) -> tuple[str, ...]:
        """Returns what was left out and why, as sentences, and the notes of the members' readers."""
        reasons = []
        for why, count in self.budget.counts.most_common():
            names = ", ".join(self.budget.left_out[why])
            reasons.append(f"{count} {why} ({names}{', …' if count > NAMED_IN_NOTE else ''})")
        total = sum(self.budget.counts.values())
        first = f"{total} {'file was' if total == 1 else 'files were'} left out: {'; '.join(reasons)}."
        untold = LeftOut(f"{self.budget.untold} more notes on the files in it are not shown.")
        return (*((LeftOut(first),) if total else ()), *self.budget.notes, *((untold,) if self.budget.untold else ()))

    def can_take(self, name: str) -> bool:
        """Returns whether the bounds allow one more file, and counts it if so; else records that it was left out."""
        if self.budget.members <= 0:
            self.leave_out("beyond the most files that are read", name)
        elif self.budget.text <= 0:
            self.leave_out("beyond the longest text that is read", name)
        elif self.budget.unpacked <= 0:
            self.leave_out("beyond the most bytes that are unpacked", name)
        else:
            self.budget.members -= 1
            return True
        return False

    def member(self, name: str, raw: bytes, media_type: str = "") -> str:
        """Returns a file's marker and its text; "" if it has no readable text, which the notes report."""
        try:
            with tell_nothing():
                text = self._text(name, raw, media_type)
        except UnreadableDocument as error:
            self.leave_out(f"not readable, since {error}", name)
            return ""
        except RecursionError:
            self.leave_out("not readable, since it is nested too deep", name)
            return ""
        if text is None:
            self.leave_out("without text", name)
            return ""
        marked = f"{places.marker('file', self._path + name)}\n{text}"
        return self._within(marked, name)

    def _within(self, text: str, name: str) -> str:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if size > self.budget.text:
            self.leave_out("cut at the longest text that is read", name)
            text = text.encode("utf-8", "replace")[: self.budget.text].decode("utf-8", "ignore")
        self.budget.text -= size
        return text

    def _text(self, name: str, raw: bytes, media_type: str) -> str | None:
        kind = kind_of(name, raw, media_type)
        if kind is None:
            return None
        module = import_module(f"gateway.documents.{DOCUMENT_KINDS[kind].reader}")
        if hasattr(module, "read_nested"):
            if self._depth + 1 >= MAX_NESTED_DEPTH:
                raise UnreadableDocument("it stands too deep in other files")
            inner = NestedPlace(self.options, self.budget, f"{self._path}{name}/", self._depth + 1)
            return str(module.read_nested(raw, inner))
        reading = module.read(raw, self.options)
        named = name[-NAME_IN_NOTE:]
        for number, note in enumerate(reading.notes):
            if number < NAMED_IN_NOTE and len(self.budget.notes) < 4 * NAMED_IN_NOTE:
                self.budget.notes.append(type(note)(f"{named}: {note}"))
            else:
                self.budget.untold += 1
        return places.plain_lines(reading.text) if kind == "text" else str(reading.text)


def reading_of(read_nested: Callable[[bytes, NestedPlace], str], raw: bytes, options: ReadOptions) -> Reading:
    """Reads a file that holds others, with full bounds. Raises UnreadableDocument: see the reader."""
    nesting = NestedPlace(options, NestBudget(unpacked=unpackable(len(raw), MAX_NEST_UNPACKED)))
    text = read_nested(raw, nesting)
    return Reading(text, nesting.notes())
