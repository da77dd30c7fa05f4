"""Valid documents that are made to take all time or memory: each is read in a process that can be ended (§7)."""

import asyncio
import functools
import io
import zipfile
import zlib
from collections.abc import Callable

import pytest

from gateway.documents.document import DocumentFile, UnreadableDocument
from gateway.documents.process import DocumentReader
from tests.support.documents import docx, pdf, pdf_of


@functools.cache
def operators() -> bytes:
    """110 MB of operators in 250 KB."""
    return pdf_of(zlib.compress(b"BT /F1 9 Tf (a) Tj ET\n" * 5_000_000), b"/Filter /FlateDecode")


def zeros() -> bytes:
    return pdf_of(zlib.compress(zlib.compress(bytes(2**28), 1)), b"/Filter [/FlateDecode /FlateDecode]")


def loop() -> bytes:
    return pdf_of(b"BT (a) Tj ET", kids=b"2 0 R 2 0 R 3 0 R")


def swollen() -> bytes:
    """A DOCX whose elements, with an attribute each, take more than half a gigabyte, from 30 KB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("word/document.xml", "<a>" + '<b c=""/>' * 1_750_000 + "</a>")
    return out.getvalue()


@pytest.mark.chaos
async def test_what_takes_too_long_is_ended_and_others_do_not_wait() -> None:
    reader = DocumentReader(seconds=1)
    reading = asyncio.ensure_future(reader.read(DocumentFile(operators(), "pdf"), "t"))
    others = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        others += 1
    with pytest.raises(UnreadableDocument, match="too much time or memory"):
        await reading
    assert others > 5, "the loop went on while the document was read"
    assert "keeper" in (await DocumentReader().read(DocumentFile(pdf(["the keeper"]), "pdf"), "t")).text


async def test_who_no_longer_waits_leaves_no_process_behind() -> None:
    reader = DocumentReader()
    waiting = [asyncio.ensure_future(reader.read(DocumentFile(operators(), "pdf"), "t")) for _ in range(6)]
    await asyncio.sleep(0.5)
    for each in waiting:
        each.cancel()
    assert all(
        isinstance(found, asyncio.CancelledError) for found in await asyncio.gather(*waiting, return_exceptions=True)
    )
    async with asyncio.timeout(10):  # every place is free again
        assert "keeper" in (await reader.read(DocumentFile(docx(["the keeper"]), "docx"), "t")).text


@pytest.mark.parametrize(
    ("make", "kind"),
    [*((swollen, "docx"), (zeros, "pdf")), *((lambda: b"%PDF-1.4 rubbish", "pdf"), (lambda: b"PK rubbish", "docx"))],
    ids=["a swollen DOCX", "zeros in zeros", "rubbish", "rubbish of another kind"],
)
async def test_what_cannot_be_read_says_so(make: Callable[[], bytes], kind: str) -> None:
    with pytest.raises(UnreadableDocument):
        await DocumentReader(seconds=5, memory_bytes=2**28).read(DocumentFile(make(), kind), "t")


async def test_a_page_tree_in_a_circle_has_an_end() -> None:
    assert len((await DocumentReader(seconds=20).read(DocumentFile(loop(), "pdf"), "t")).pages) == 1
