"""Archives: a source tree as ZIP and as TAR."""

import io
import tarfile
import zipfile

from evals.corpus import office
from evals.corpus.facts import Fact, Place
from evals.corpus.samples import Sample
from tests.support.documents import prose

PARTS = ("billing", "shipping", "returns", "stock", "mail", "search")


def samples() -> list[Sample]:
    """The same tree in both; the ZIP holds a workbook as well."""
    book = office.workbook()
    return [
        Sample("tree.zip", "application/zip", zipped({**tree(), "docs/depot.xlsx": book.raw}), asked("tree.zip")),
        Sample("tree.tar.gz", "application/gzip", tarred(tree()), asked("tree.tar.gz")),
    ]


def tree() -> dict[str, bytes]:
    """Python files of several functions each, a readme, and what is no text."""
    found = {"README.md": f"# A shop\n\n{prose(71, 150)}\n".encode(), "logo.png": b"\x89PNG\r\n\x1a\n" + bytes(200)}
    for number, part in enumerate(PARTS):
        for kind in range(4):
            found[f"src/{part}/step{kind}.py"] = _module(part, number * 4 + kind).encode()
    return found


def _module(part: str, number: int) -> str:
    head = f'"""Step {number} of {part}."""\n\n'
    functions = [
        f"def {part}_{word}_{number}(order):\n    # {prose(number * 10 + i, 12)}\n"
        f"    limit = {limit(number, i)}\n    return order.weigh() < limit\n"
        for i, word in enumerate(("check", "round", "close"))
    ]
    return head + "\n\n".join(functions)


def limit(number: int, function: int) -> int:
    """A figure that stands in one function alone."""
    return 70_000 + number * 101 + function * 7


def asked(_archive: str) -> tuple[Fact, ...]:
    """Figures out of functions in late files."""
    found = []
    for part, kind, index, word in (("search", 2, 2, "close"), ("stock", 1, 0, "check"), ("mail", 3, 1, "round")):
        number = PARTS.index(part) * 4 + kind
        question = f"What is the limit in the function {part}_{word}_{number}?"
        place = Place("file", f"src/{part}/step{kind}.py")
        found.append(Fact("function", question, f"limit = {limit(number, index)}", place))
    return tuple(found)


def zipped(files: dict[str, bytes]) -> bytes:
    """A ZIP of these."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 5, 1, 0, 0, 0)), raw, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    """A TAR of these, compressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, raw in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    return out.getvalue()
