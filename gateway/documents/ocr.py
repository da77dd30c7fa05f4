"""Text of scanned pages, by `tesseract` where it is installed (guarantee §14.3).

Runs in the process that reads, within its limits: one thread, some seconds for a page, and some for all. A note lists
the pages that were not finished by then.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.types import places
from gateway.documents.document import ReadOptions
from gateway.documents.sandbox_worker import tell_progress

TESSERACT = "tesseract"
OCR_TIME_SHARE = 0.6
"""Share of the seconds that a document may take; the rest is for reading it."""
PAGE_SECONDS = 20.0
DPI = 200
POINTS_PER_INCH = 72
MAX_PIXELS = 12_000_000
"""A page that would have more pixels is rendered smaller."""
DIES_WITH_PARENT, KILL = 1, 9


@record
class RecognizedText:
    """Texts by page number, and the notes on them."""

    texts: dict[int, str]
    notes: list[str]


def recognized(document: Any, numbers: Sequence[int], options: ReadOptions) -> RecognizedText:
    """Recognizes the texts of those pages of PDFium's document that have any; none without `tesseract`."""
    program = shutil.which(TESSERACT)
    if program is None:
        return RecognizedText({}, [])
    languages = _languages(program, options.ocr_languages)
    until = time.monotonic() + OCR_TIME_SHARE * options.seconds
    texts: dict[int, str] = {}
    missed: list[int] = []
    for done, number in enumerate(numbers):
        tell_progress(done, len(numbers))
        left = until - time.monotonic()
        text = _text(program, languages, _picture(document[number - 1]), min(PAGE_SECONDS, left)) if left > 0 else None
        if text is None:
            missed.append(number)
        elif text:
            texts[number] = text
    notes = []
    if texts:
        which = "Pages {} were" if len(texts) > 1 else "Page {} was"
        notes.append(f"{which.format(places.page_list(list(texts)))} recognized from pictures (OCR).")
    if missed:
        notes.append(f"The text of page {places.page_list(missed)} could not be recognized (OCR).")
    return RecognizedText(texts, notes)


def is_installed() -> bool:
    """Returns whether the program that recognizes text is installed."""
    return shutil.which(TESSERACT) is not None


def recognized_pages(picture: bytes, options: ReadOptions) -> list[str] | None:
    """Recognizes the texts of the pages of a picture, "" where there is none; None if it takes too long or fails. Some
    versions end the last page as well, so that there is one text too many.
    `picture`: in a format whose first bytes `tesseract` knows."""
    program = shutil.which(TESSERACT)
    if program is None:
        return None
    raw = _output(
        program, ["-l", _languages(program, options.ocr_languages)], picture, OCR_TIME_SHARE * options.seconds
    )
    if raw is None:
        return None
    return [text.strip() for text in raw.split("\f")]


def _picture(page: Any) -> bytes:
    """Renders the page in grey, as a PGM: the simplest format that tesseract reads."""
    width, height = page.get_size()
    scale = DPI / POINTS_PER_INCH
    scale = min(scale, (MAX_PIXELS / max(1.0, width * height)) ** 0.5)
    bitmap = page.render(scale=scale, grayscale=True)
    rows = bytes(bitmap.buffer)
    lines = (rows[n * bitmap.stride : n * bitmap.stride + bitmap.width] for n in range(bitmap.height))
    return b"P5 %d %d 255\n" % (bitmap.width, bitmap.height) + b"".join(lines)


def _text(program: str, languages: str, picture: bytes, seconds: float) -> str | None:
    """Recognizes the text of a picture; None if it takes too long or fails."""
    raw = _output(program, ["-l", languages, "--dpi", str(DPI)], picture, seconds)
    return None if raw is None else raw.replace("\f", "").strip()


def _output(program: str, options: Sequence[str], picture: bytes, seconds: float) -> str | None:
    environment = {"PATH": os.environ.get("PATH", ""), "OMP_THREAD_LIMIT": "1"}
    if prefix := os.environ.get("TESSDATA_PREFIX"):
        environment["TESSDATA_PREFIX"] = prefix
    try:
        done = subprocess.run(  # noqa: S603 - no argument comes from a document
            [program, "stdin", "stdout", *options],
            input=picture,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            env=environment,
            preexec_fn=_die_with_parent,
            check=True,
        )
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.decode("utf-8", "replace")


def _die_with_parent() -> None:
    """Ends this process with its parent: the process that reads may be killed, and nobody would wait for this one."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, KILL)


@lru_cache(maxsize=8)
def _languages(program: str, wanted: str) -> str:
    """Returns the wanted languages that are installed; English if none is."""
    try:
        listed = subprocess.run(  # noqa: S603 - its arguments are fixed
            [program, "--list-langs"], capture_output=True, timeout=PAGE_SECONDS, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return wanted
    there = set(listed.stdout.decode("utf-8", "replace").split())
    return "+".join(name for name in wanted.split("+") if name in there) or "eng"
