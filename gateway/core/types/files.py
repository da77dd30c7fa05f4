"""Files that clients upload (guarantee §14.5), and kinds of documents: how each is recognised and read (§14.2)."""

from datetime import datetime
from typing import NamedTuple

from gateway.core.frozen_records import record

FILE_PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""OpenAI's purposes of files."""
READ_PURPOSES = ("assistants", "user_data")
"""Purposes of files that questions are asked about: these are read in the background after the upload."""
UPLOAD, UPLOAD_PART = "upload_", "part_"
"""How ids of what is no file yet begin: an upload in parts, and a part, whose purpose is the id of its upload."""
UPLOADED, PROCESSED, FAILED = "uploaded", "processed", "error"
"""OpenAI's status of a file that is to be read, that was read or needs no reading, and that cannot be read."""


@record
class FileRecord:
    """One upload of `size` bytes. `digest`: SHA-256 of its content. `status`: `uploaded` while it is to be read, then
    `processed` or `error`; `progress`: the part that has been read, from 0 to 1. `expires_at` None: it is stored until
    it is deleted."""

    id: str
    name: str
    purpose: str
    media_type: str
    size: int
    digest: bytes
    created_at: datetime
    expires_at: datetime | None = None
    key_id: str | None = None
    status: str = UPLOADED
    status_details: str | None = None
    progress: float | None = None


@record
class HeldFile:
    """A file as operators see it, with its tenant; for a single file also the store of its content, the ids of its
    tenant's other files with the same content, and the conversations that hold text read from it."""

    tenant: str
    file: FileRecord
    store: str = ""
    same_content: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()


SEALED_ENDING = ".s"
"""Suffix of the names of sealed contents, preceded by the id of the key."""


class FileText(str):
    """The text of a stored file. `name`: of its upload."""

    __slots__ = ("name",)
    name: str

    @classmethod
    def of(cls, text: str, name: str) -> "FileText":
        made = cls(text)
        made.name = name
        return made


class ContentPlace(NamedTuple):
    """Where a content is: its store, and its name there."""

    store: str
    object: str

    @property
    def sealed_under(self) -> str | None:
        """The id of the key under which the content is sealed; None: it is plain."""
        return (
            self.object.removesuffix(SEALED_ENDING).rpartition(".")[2] if self.object.endswith(SEALED_ENDING) else None
        )


@record
class FileQuery:
    """Selects a page of a tenant's files. `after`: the id of the last file of the page before."""

    limit: int
    after: str | None = None
    newest_first: bool = True
    purpose: str | None = None


@record
class KeptBytes:
    """Bytes of a tenant's stored files, and those among them that were uploaded with one key."""

    tenant: int
    key: int


TEXT_ENDINGS = """txt md markdown mdx rst adoc asciidoc org textile tex bib sty log diff patch
    csv tsv json jsonl ndjson json5 jsonc geojson yaml yml toml ini cfg conf env sql properties lock ics vcf proto
    graphql gql gitignore gitattributes gitmodules dockerignore editorconfig npmrc nvmrc htaccess
    py pyi pyx js mjs cjs ts mts jsx tsx java kt kts c h cc cpp cxx hpp hh hxx cs go mod rs rb erb php swift m mm
    scala sbt groovy gradle clj cljs edn r lua pl pm css scss sass less sh bash zsh fish bat cmd ps1 psm1 dart ex exs
    erl hrl elm hs lhs ml mli fs fsx vb vbs pas asm f f90 f95 for jl nim zig sv vhd vhdl sol cu cl glsl wgsl tf hcl
    tfvars nix bzl cmake mk ninja dockerfile vue svelte astro ejs pug hbs j2 jinja tmpl thrift tcl awk sed vim el lisp
    scm rkt d cob cbl abap apex"""
"""Extensions of prose, data and code."""
TEXT_TYPES = "json yaml x-yaml x-ndjson jsonl toml sql javascript x-sh csv"


@record
class DocumentKind:
    """How one kind of document is recognised and read.

    `reader` is the module whose `read(raw, options)` returns a `Reading` and raises `UnreadableDocument`; it is
    imported on first use. `starts`: its first bytes, if it is binary. `apart`: it is read in a process of its own with
    limits of memory and time (`documents/process.py`), since a valid file may be crafted to exhaust both.
    """

    reader: str
    endings: tuple[str, ...]
    media_types: frozenset[str]
    starts: bytes = b""
    apart: bool = True


OLE = b"\xd0\xcf\x11\xe0"
"""First bytes of files of Microsoft's older programs."""


def _kind(
    reader: str, endings: str, media_types: str, starts: bytes = b"", *, apart: bool = True, prefix: str = ""
) -> DocumentKind:
    types = frozenset(f"{prefix}{each}" for each in media_types.split())
    return DocumentKind(reader, tuple(f".{each}" for each in endings.split()), types, starts, apart)


def _office(reader: str, endings: str, media_types: str) -> DocumentKind:
    """Makes a kind that is a ZIP of XML. Its media types come without `application/vnd.`; `openxml.` abbreviates
    `openxmlformats-officedocument.`."""
    types = media_types.replace("openxml.", "openxmlformats-officedocument.")
    return _kind(reader, endings, types, b"PK", prefix="application/vnd.")


XML_TYPES = "application/xml text/xml application/rss+xml application/atom+xml"
TAR_TYPES = "application/x-tar application/gzip application/x-gzip application/x-bzip2 application/x-xz"
WORD_TYPES = "openxml.wordprocessingml.document openxml.wordprocessingml.template ms-word.document.macroenabled.12"
SHEET_TYPES = """openxml.spreadsheetml.sheet openxml.spreadsheetml.template ms-excel.sheet.macroenabled.12
    ms-excel.sheet.binary.macroenabled.12"""
SLIDE_TYPES = """openxml.presentationml.presentation openxml.presentationml.slideshow openxml.presentationml.template
    ms-powerpoint.presentation.macroenabled.12 ms-powerpoint.slideshow.macroenabled.12"""
DOCUMENT_KINDS = {
    "pdf": _kind("pdf", "pdf", "application/pdf", b"%PDF"),
    "html": _kind("html", "html htm xhtml", "text/html application/xhtml+xml", apart=False),
    # Office formats.
    "docx": _office("docx", "docx docm dotx dotm", WORD_TYPES),
    "xlsx": _office("xlsx", "xlsx xlsm xltx xltm xlsb", SHEET_TYPES),
    "pptx": _office("pptx", "pptx pptm ppsx ppsm potx potm", SLIDE_TYPES),
    "ods": _office("xlsx", "ods ots", "oasis.opendocument.spreadsheet"),
    "odp": _office("odt", "odp otp", "oasis.opendocument.presentation"),
    "odt": _office("odt", "odt ott", "oasis.opendocument.text"),
    "epub": _kind("epub", "epub", "application/epub+zip", b"PK"),
    "rtf": _kind("rtf", "rtf", "application/rtf text/rtf text/richtext", b"{\\rtf"),
    # No media type: browsers send `application/vnd.ms-excel` for CSV. Without a name its bytes identify it.
    "xls": _kind("xlsx", "xls xlt", "", OLE),
    "doc": _kind("legacy", "doc dot", "application/msword", OLE),
    "ppt": _kind("legacy", "ppt pps pot", "application/vnd.ms-powerpoint", OLE),
    "protected": _kind("legacy", "", "", OLE),
    # Mails, archives, data.
    "mail": _kind("mail", "eml", "message/rfc822"),
    "msg": _kind("msg", "msg", "application/vnd.ms-outlook", OLE),
    "zip": _kind("archive_zip", "zip", "application/zip application/x-zip-compressed", b"PK"),
    "tar": _kind("archive_tar", "tar tgz tbz2 txz gz bz2 xz", TAR_TYPES),
    "notebook": _kind("ipynb", "ipynb", "application/x-ipynb+json"),
    "parquet": _kind("parquet", "parquet", "application/vnd.apache.parquet", b"PAR1"),
    "sqlite": _kind("sqlite", "sqlite sqlite3 db db3", "application/vnd.sqlite3 application/x-sqlite3", b"SQLite"),
    "subtitles": _kind("subtitles", "srt vtt", "text/vtt application/x-subrip", apart=False),
    # Attached pictures of text; no name or media type leads there: parts with pictures are sent upstream unchanged.
    "image": _kind("picture", "", ""),
    "xml": _kind("xml", "xml xsd xsl xslt rss atom wsdl plist kml gpx", XML_TYPES),
    "text": _kind("plain", TEXT_ENDINGS, TEXT_TYPES, apart=False, prefix="application/"),
}
"""The first kind that matches a name or a media type counts."""


def document_digest(kind: str, sha256: str) -> str:
    """Returns the digest that names a content read as one kind; cache groups and conversations use it."""
    return f"{kind}:{sha256}"
