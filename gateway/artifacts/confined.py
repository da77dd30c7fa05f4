"""Reads one PDF or DOCX in a process of its own, with little memory and time: a valid file may be made to take all of
both. Run by `gateway.artifacts.reading`: the kind and the package's folder are arguments, the file is the input, its
text the output, or the reason why there is none."""

import contextlib
import sys

CPU_SECONDS = 60
MEMORY_BYTES = 2**30
TEXT_BYTES = 64 * 2**20
UNREADABLE = 3
TOO_MUCH = 4


def main() -> int:
    """The exit code: 0, or why the output is no text of a document."""
    kind, folder = sys.argv[1:]
    _confine()
    sys.path.insert(0, folder)
    from gateway.artifacts.documents import InlineFile
    from gateway.artifacts.unreadable import UnreadableDocument

    try:
        text = InlineFile(sys.stdin.buffer.read(), kind).text().encode("utf-8", "replace")
    except UnreadableDocument as error:
        sys.stdout.write(str(error))
        return UNREADABLE
    except MemoryError:
        return TOO_MUCH
    if len(text) > TEXT_BYTES:
        return TOO_MUCH
    sys.stdout.buffer.write(text)
    return 0


def _confine() -> None:
    """Not every system knows these limits; the wall clock of whoever waits holds everywhere."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    sys.exit(main())
