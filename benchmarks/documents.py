"""Large documents: seconds and memory of the process that reads each, and the gateway's own memory meanwhile.

python -m benchmarks.documents [--quick]
"""

import argparse
import asyncio
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.servers import end_on_sigterm
from evals.corpus.folders import zipped
from evals.corpus.office import photo_pdf
from tests.support.documents import prose

MB = 2**20


def pages(quick: bool) -> bytes:
    """200 pages of text with a photo of about 100 KB on each."""
    return photo_pdf([prose(number, 350) for number in range(10 if quick else 200)], 320)


def workbook(quick: bool) -> bytes:
    """An XLSX of 50 MB: one sheet of ten columns, numbers and texts that hardly compress."""
    rng, size = random.Random(5), (2 if quick else 50) * MB
    out = io.BytesIO()
    spaces = "http://schemas.openxmlformats.org/"
    office = f"{spaces}officeDocument/2006/relationships"
    package = f"{spaces}package/2006/relationships"
    main = f"{spaces}spreadsheetml/2006/main"
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{spaces}package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{types}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{types}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}"><Relationship Id="r1" Type="{office}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="Data" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
    }
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
        with archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            sheet.write(f'<worksheet xmlns="{main}"><sheetData>'.encode())
            row = 0
            while out.tell() < size:
                row += 1
                sheet.write(_row(row, rng))
            sheet.write(b"</sheetData></worksheet>")
    return out.getvalue()


def _row(number: int, rng: random.Random) -> bytes:
    numbers = "".join(f'<c r="{column}{number}"><v>{rng.random() * 1e6:.6f}</v></c>' for column in "ABCDEFGH")
    text = f'<c r="I{number}" t="inlineStr"><is><t>{rng.randbytes(12).hex()}</t></is></c>'
    return f'<row r="{number}">{numbers}{text}</row>'.encode()


def archive(quick: bool) -> bytes:
    """A ZIP of 10,000 source files of 2 KB each."""
    count = 300 if quick else 10_000
    return zipped({f"src/{n // 100}/part{n}.py": f"# {prose(n, 300)}\n".encode() for n in range(count)})


FILES: dict[str, tuple[str, Callable[[bool], bytes]]] = {
    "200 pages with photos": ("pages.pdf", pages),
    "50 MB XLSX": ("data.xlsx", workbook),
    "10,000 files in a ZIP": ("tree.zip", archive),
}


def read_apart(path: Path) -> dict[str, object]:
    """Reads one file as the gateway does, in the process apart; its memory is the largest of this one's children."""
    from gateway.documents.document import UnreadableDocument
    from gateway.documents.file_reader import stored_document
    from gateway.documents.process import DocumentReader

    file = stored_document(path.name, "", path.read_bytes())
    began = time.perf_counter()
    try:
        reading = asyncio.run(DocumentReader().read(file, "t"))
        told: object = f"{len(reading.text):,} characters"
    except UnreadableDocument as error:
        told = str(error)
    seconds = time.perf_counter() - began
    apart, own = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    megabytes = [usage.ru_maxrss * 1024 / MB for usage in (apart, own)]
    return {"seconds": seconds, "apart_mb": megabytes[0], "own_mb": megabytes[1], "told": told}


def main() -> int:
    """Each file in a process of its own, so that no figure holds another's memory."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.documents", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small files, to see that it runs")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(read_apart(given.one)))
        return 0
    print("| file | size | seconds | process apart | who waits | read |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name, (filename, make) in FILES.items():
            path = Path(folder, filename)
            path.write_bytes(make(given.quick))
            again = [sys.executable, "-m", "benchmarks.documents", "--one", str(path)]
            found = json.loads(subprocess.run(again, capture_output=True, check=True).stdout)
            figures = f"{found['seconds']:.1f} | {found['apart_mb']:.0f} MB | {found['own_mb']:.0f} MB"
            print(f"| {name} | {path.stat().st_size / MB:.0f} MB | {figures} | {found['told']} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
