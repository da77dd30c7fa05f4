"""What a document's reader may do where it has been taken over: next to nothing (guarantee §14.4).

The documents here are programs, and the reader of the process apart is one that runs them.
"""

import asyncio
import contextlib
import io
import os
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evals.corpus.folders import zipped
from gateway.core.errors import Overloaded
from gateway.documents import process
from gateway.documents.document import DocumentFile, Reading, ReadOptions, UnreadableDocument
from gateway.documents.process import DocumentReader, confinement
from tests.support.documents import docx, pdf

RUNS_WHAT_IT_READS = """
import sys
sys.path.insert(0, sys.argv[1])
from gateway.documents import docx
from gateway.documents.document import Reading
def read(raw, options):
    names = {}
    exec(raw.decode(), names)
    return Reading(str(names.get("found")))
docx.read = read
from gateway.documents.sandbox_worker import main
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def taken_over(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "program" in request.node.name:
        monkeypatch.setattr(process, "PROGRAM", RUNS_WHAT_IT_READS)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def run(program: str, reader: DocumentReader | None = None) -> str:
    return (await (reader or DocumentReader(seconds=20)).read(DocumentFile(program.encode(), "docx"), "t")).text


def ends(pid: int) -> bool:
    """Whether a process is gone soon."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


async def test_s14_4_a_program_reaches_no_network(listening: int) -> None:
    if not (await confinement())["network"]:
        pytest.skip("this kernel gives no namespaces")
    program = f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {listening}), 2)
    found = "connected"
except OSError as error:
    found = "refused"
"""
    assert await run(program) == "refused"


async def test_s14_4_a_program_finds_no_secret_and_no_open_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.set_inheritable(server.fileno(), True)
        program = """
import os
links = []
for name in os.listdir("/proc/self/fd"):
    try:
        links.append(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        pass
sockets = [each for each in links if each.startswith("socket:")]
found = repr((sorted(os.environ), sockets, os.getcwd(), os.listdir(".")))
"""
        names, sockets, folder, files = eval(await run(program))
    assert set(names) <= {"PATH", "LANG", "TMPDIR", "LC_CTYPE"}
    assert len(sockets) <= 2, "its own standard input and output alone"
    assert files == []
    assert not await asyncio.to_thread(os.path.exists, folder), "its folder goes with it"


@pytest.mark.parametrize("how", ["done", "late", "left"])
@pytest.mark.in_turn("how")
async def test_s14_4_a_program_leaves_no_process_behind(how: str, tmp_path: Path) -> None:
    """Neither where it ends by itself, nor in time, nor where nobody waits any more; where the kernel has
    namespaces also what went into a session of its own."""
    may_leave = how != "done" and (await confinement())["processes"]
    note = tmp_path / "pids"
    note.write_text("")
    for path in (tmp_path, note):
        path.chmod(0o777)
    program = f"""
import os, subprocess, sys, time
tell = "import os, time; open({str(note)!r}, 'a').write(os.readlink('/proc/self') + ' '); time.sleep({{}})"
for apart in (False, {may_leave}):
    subprocess.Popen([sys.executable, "-I", "-c", tell.format(60)], start_new_session=apart)
exec(tell.format(0))
while len(open({str(note)!r}).read().split()) < 3:
    time.sleep(0.01)
{"pass" if how == "done" else "time.sleep(60)"}
"""
    reading = asyncio.ensure_future(run(program, DocumentReader(seconds=3 if how == "late" else 20)))
    if how == "left":
        for _ in range(400):
            await asyncio.sleep(0.05)
            if len(note.read_text().split()) == 3:
                break
        reading.cancel()
    with contextlib.suppress(asyncio.CancelledError, UnreadableDocument):
        await reading
    pids = note.read_text().split()
    assert len(pids) == 3
    assert all(ends(int(pid)) for pid in pids)


async def test_s14_4_a_program_takes_no_more_memory_than_it_may() -> None:
    assert await run("found = len(bytes(2**27))", DocumentReader(memory_bytes=2**29)) == str(2**27)
    with pytest.raises(UnreadableDocument, match="too much time or memory"):
        await run("found = len(bytes(2**30))", DocumentReader(memory_bytes=2**29))


async def test_s14_4_a_program_starts_only_so_many_processes() -> None:
    if not (await confinement())["processes"]:
        pytest.skip("this kernel gives no namespaces")
    program = """
import os, time
started = 0
try:
    for _ in range(300):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        started += 1
except OSError:
    pass
found = started
"""
    count = int(await run(program))
    if os.geteuid() == 0 and count == 300:
        pytest.skip("root's processes are not counted where nobody else may read its Python")
    assert 0 < count < 64


async def test_s14_4_a_program_writes_no_long_file() -> None:
    program = """
try:
    with open("x", "wb") as out:
        for _ in range(600):
            out.write(bytes(2**20))
    found = "written"
except OSError as error:
    found = "refused"
"""
    assert await run(f"import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{program}") == "refused"


async def test_s14_4_a_program_that_writes_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "OUTPUT_BYTES", 2**20)
    with pytest.raises(UnreadableDocument, match="too much time or memory"):
        await run("import os\nwhile True:\n    os.write(1, bytes(65536))")
    assert await run("found = 1") == "1"


async def test_s14_4_a_program_tells_how_far_it_is() -> None:
    told: list[float] = []
    program = """
import time
from gateway.documents.sandbox_worker import tell_progress
for page in range(1, 6):
    tell_progress(page, 5)
    time.sleep(0.25)
found = "read"
"""
    reader = DocumentReader(seconds=20)
    reading: Reading = await reader.read(DocumentFile(program.encode(), "docx"), "t", progress=told.append)
    assert reading.text == "read"
    assert told
    assert told == sorted(told)
    assert all(0 < each <= 1 for each in told)


async def test_s14_4_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WAITING_BYTES", 10_000)
    reader = DocumentReader()
    file = DocumentFile(docx(["x" * 50]) + bytes(6000), "docx")
    first, second = await asyncio.gather(reader.read(file, "t"), reader.read(file, "t"), return_exceptions=True)
    assert not isinstance(first, Overloaded)
    assert isinstance(second, Overloaded)
    assert "keeper" in (await reader.read(DocumentFile(docx(["the keeper"]), "docx"), "t", ReadOptions())).text


CRASHES_IN_PDFIUM = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from gateway.documents import pdf
pdf._opened = lambda *a, **k: ctypes.string_at(0)
from gateway.documents.sandbox_worker import main
sys.exit(main())
"""


@pytest.mark.parametrize("packed", [False, True], ids=["alone", "in a ZIP"])
@pytest.mark.in_turn("packed")
async def test_s14_1_a_pdf_that_crashes_its_reader_is_read_by_another(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is not there is what a fault in PDFium comes to."""
    monkeypatch.setattr(process, "PROGRAM", CRASHES_IN_PDFIUM)
    raw = pdf(["the keeper"])
    file = DocumentFile(zipped({"a.pdf": raw, "b.txt": b"of the lamp"}), "zip") if packed else DocumentFile(raw, "pdf")
    read = await DocumentReader(seconds=20).read(file, "t")
    assert "[page 1]\nthe keeper" in read.text
    assert ("of the lamp" in read.text) is packed


async def test_s14_4_what_crashes_every_reader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = CRASHES_IN_PDFIUM.replace("pdf._opened", "pdf._by_pypdf = pdf._opened")
    monkeypatch.setattr(process, "PROGRAM", everything)
    with pytest.raises(UnreadableDocument, match="time or memory"):
        await DocumentReader(seconds=20).read(DocumentFile(pdf(["the keeper"]), "pdf"), "t")


async def test_s14_4_readers_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an archive how many of its files are read, and nothing of what its files say of themselves."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.pdf", pdf(["one page"]))
        for number in range(3):
            archive.writestr(f"b{number}.txt", "words")
    told: list[float] = []
    always = process.PROGRAM.replace(
        "sys.exit(", "import gateway.documents.sandbox_worker as a; a.TOLD_SECONDS = 0; sys.exit("
    )
    monkeypatch.setattr(process, "PROGRAM", always)
    await DocumentReader().read(DocumentFile(packed.getvalue(), "zip"), "t", progress=told.append)
    assert told
    assert told == sorted(told)
    assert set(told) <= {0, 0.25, 0.5, 0.75}
