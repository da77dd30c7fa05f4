"""Makes the kept files of the corpus anew, by LibreOffice and pandoc. `python -m evals.corpus`."""

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from evals.corpus import flat
from evals.corpus.facts import Fact, Json
from evals.corpus.samples import FILES, MANIFEST, REFUSED

MAX_BYTES = 80_000
"""Of one file; all of them stay under half a megabyte."""
OFFICE = "application/vnd.openxmlformats-officedocument."
MEDIA = {
    "docx": OFFICE + "wordprocessingml.document",
    "xlsx": OFFICE + "spreadsheetml.sheet",
    "pptx": OFFICE + "presentationml.presentation",
    "odt": flat.KIND + "text",
    "ods": flat.KIND + "spreadsheet",
    "odp": flat.KIND + "presentation",
    "xls": "application/vnd.ms-excel",
    "doc": "application/msword",
    "rtf": "application/rtf",
    "epub": "application/epub+zip",
    "pdf": "application/pdf",
    "html": "text/html",
    "ipynb": "application/x-ipynb+json",
}


def by_libreoffice(folder: Path) -> Iterator[tuple[Path, list[Fact]]]:
    """Texts, sheets and slides in all formats of each."""
    text, told = flat.writer(11)
    for ending in ("docx", "odt", "rtf", "epub", "pdf", "doc"):
        place = "page" if ending == "pdf" else None
        yield _converted(folder, text, "fodt", ending), flat.asked(told, "sentence", place)
    text, facts = flat.calc(12)
    for ending in ("xlsx", "ods", "xls"):
        yield _converted(folder, text, "fods", ending), facts
    text, told = flat.impress(13)
    for ending in ("pptx", "odp"):
        yield _converted(folder, text, "fodp", ending), flat.asked(told, "bullet", "slide")


def _converted(folder: Path, text: str, source: str, ending: str) -> Path:
    (folder / f"libreoffice.{source}").write_text(text)
    given = ["soffice", "--headless", f"-env:UserInstallation=file://{folder}/profile", "--convert-to", ending]
    # Its own name of the folder goes into no file.
    subprocess.run([*given, f"libreoffice.{source}"], cwd=folder, check=True, capture_output=True, timeout=180)
    return folder / f"libreoffice.{ending}"


def by_pandoc(folder: Path) -> Iterator[tuple[Path, list[Fact]]]:
    """One book in all formats of text."""
    text, told = flat.markdown(21)
    (folder / "book.md").write_text(text)
    cells = "".join(f"::: {{.cell .markdown}}\n{part}\n:::\n\n" for part in flat.chapters(told))
    (folder / "cells.md").write_text(cells)
    for ending in ("docx", "odt", "rtf", "epub", "html", "ipynb"):
        target = folder / f"pandoc.{ending}"
        subprocess.run(
            ["pandoc", "-s", "cells.md" if ending == "ipynb" else "book.md", "-o", target.name],
            cwd=folder,
            check=True,
            timeout=60,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        )
        yield target, flat.asked(told, "sentence", "cell" if ending == "ipynb" else None)


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return re.sub(r"\([^)]*\)", "", said.splitlines()[0]).split("Build")[0].strip()


def tells_of_its_maker(raw: bytes) -> list[str]:
    """Names of this machine and its folders that stand in a file, unpacked where it is an archive."""
    whole = [raw]
    if zipfile.is_zipfile(io.BytesIO(raw)):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            whole += [archive.read(name) for name in archive.namelist()]
    names = ["/tmp/", "/home/", "file:///"]
    names += [host for host in (socket.gethostname(),) if len(host) > 4]  # shorter ones stand anywhere by chance
    return [name for name in names if any(name.encode() in part for part in whole)]


def main() -> int:
    """Writes the files and the manifest; 1 if one is too large or tells of the machine."""
    if missing := [name for name in ("soffice", "pandoc") if not shutil.which(name)]:
        print(f"not installed: {', '.join(missing)}")
        return 1
    listed: list[Json] = []
    wrong = []
    FILES.mkdir(exist_ok=True)
    for program, make in (("soffice", by_libreoffice), ("pandoc", by_pandoc)):
        with tempfile.TemporaryDirectory() as folder:
            for path, facts in make(Path(folder)):
                raw = path.read_bytes()
                told = tells_of_its_maker(raw)
                if len(raw) > MAX_BYTES or told:
                    wrong.append(f"{path.name}: {len(raw)} bytes, names {told}")
                (FILES / path.name).write_bytes(raw)
                ending = path.suffix[1:]
                listed.append(
                    {
                        "name": path.name,
                        "media": MEDIA[ending],
                        "program": _version(program),
                        "refused": ending in REFUSED,
                        "facts": [fact.as_json() for fact in facts],
                    }
                )
    MANIFEST.write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    print("\n".join(wrong) or f"{len(listed)} files in {FILES.name}/")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
