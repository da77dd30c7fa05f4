"""Which files inside of archives and mails are read, and as what (guarantee §14.9)."""

import re

from gateway.core.types.files import KINDS
from gateway.documents.plain import text_of
from gateway.documents.sniff import sniffed

MAX_MEMBER_BYTES = 128 * 2**20
PICTURES = "png svg jpg jpeg gif bmp ico webp tif tiff psd heic avif mp3 mp4 m4a wav ogg flac avi mov mkv webm"
PROGRAMS = "exe dll so dylib a o obj lib class jar pyc pyo pyd whl wasm bin dat iso dmg img pack idx"
OTHERS = "woff woff2 ttf otf eot 7z rar zst br lz4 pkl npy npz pt onnx safetensors gguf h5 glb blend p7s p7m"
NO_TEXT_ENDINGS = frozenset(f"{PICTURES} {PROGRAMS} {OTHERS}".split())
NAMES = """dockerfile makefile gnumakefile cmakelists.txt jenkinsfile vagrantfile procfile gemfile rakefile license
    licence copying readme changelog authors notice codeowners pipfile justfile build workspace"""
TEXT_NAMES = frozenset(NAMES.split())
HEAD_BYTES = 1024
LOOKED_AT = 65_536
UNSAFE = re.compile(r"^(?:/|\\|[A-Za-z]:)|(?:^|[/\\])\.\.(?:[/\\]|$)|\x00")
"""Absolute paths, and those that lead out of the archive."""
FOLDERS = """.git .svn .hg node_modules __pycache__ .venv venv .tox .mypy_cache .pytest_cache .ruff_cache .idea __macosx
    .gradle .next .terraform bower_components site-packages"""
TOOLS_FOLDERS = frozenset(FOLDERS.split())


def kind_of(name: str, raw: bytes, media_type: str = "") -> str | None:
    """The kind of a file inside of another, by its name, its bytes and its media type; None if it has no text."""
    lower = name.lower().replace("\\", "/").rpartition("/")[2]
    media = media_type.split(";")[0].strip().lower()
    ending = lower.rpartition(".")[2] if "." in lower else ""
    if ending in NO_TEXT_ENDINGS or media.startswith(("image/", "audio/", "video/")):
        return None
    for kind, known in KINDS.items():
        if lower.endswith(known.endings) or (media in known.media_types and not ending):
            return kind if not known.starts or known.starts in raw[:HEAD_BYTES] else _by_bytes(raw)
    if lower in TEXT_NAMES:
        return "text"
    return _by_bytes(raw)


def _by_bytes(raw: bytes) -> str | None:
    return sniffed(raw) or ("text" if text_of(raw[:LOOKED_AT]) is not None else None)


def why_not(path: str) -> str | None:
    """Why a member of an archive is left out by its path alone."""
    if UNSAFE.search(path):
        return "with paths that lead out of the archive"
    folders = path.lower().replace("\\", "/").split("/")[:-1]
    if any(folder in TOOLS_FOLDERS for folder in folders):
        return "in folders of tools such as .git and node_modules"
    if path.lower().rpartition(".")[2] in NO_TEXT_ENDINGS and "." in path:
        return "without text"
    return None


def listing(head: str, names: list[tuple[str, int]], most: int = 1000) -> str:
    """Paths and sizes, one to a line, of at most so many files."""
    lines = [f"{' '.join(name.split())[:300]} ({size:,} bytes)" for name, size in names[:most]]
    more = len(names) - most
    return "\n".join([head, *lines, *([f"and {more:,} more"] if more > 0 else [])])
