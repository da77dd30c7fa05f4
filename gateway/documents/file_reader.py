"""Reads the documents of requests: the `file` parts of messages, and attachments. Texts that take long to read are
cached, by tenant and content.

Requests hold documents in `file` parts, data URLs, stored files, and texts that are HTML (guarantee §2). Each
attachment becomes a text, once; the conversation stores the text.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from operator import eq, is_
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes
from weakref import WeakValueDictionary

from gateway.core import errors, jsons, ports
from gateway.core.config import setting_sections
from gateway.core.tasks import offload_if
from gateway.core.types import artifacts, items, places, tool_steps
from gateway.core.types.artifacts import FilePlace, RequestAttachment
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.files import DOCUMENT_KINDS, FileText, document_digest
from gateway.documents.document import DocumentFile, DocumentOwner, Reading, ReadOptions, UnreadableDocument
from gateway.documents.document import read as read_document
from gateway.documents.plain import decodes, text_of
from gateway.documents.process import DocumentReader, Progress
from gateway.documents.sniff import OTHER_ZIP, is_picture, may_be_known, sniffed

PICTURE = "image"
NOT_TEXT = ("image/", "audio/", "video/")
"""Media types that outrank the ending of a name: a picture called `chart.csv` is no text."""
MERE_TEXT = ("text", "xml", "subtitles")
IN_CHARSETS = (*MERE_TEXT, "html")
"""Kinds in any encoding, which their sender may name."""
DATA_URL = re.compile(r"\s*data:([\w.+-]+/[\w.+-]+)?((?:;[\w-]+=[^;,\s]{0,100})*)(;base64)?,(?<!data:,)", re.IGNORECASE)
CHARSET = re.compile(r";\s*charset=\"?([\w.:-]+)", re.IGNORECASE)
UNKNOWN_TYPE = "application/octet-stream"
"""The media type by which a sender says that it knows none."""
HTML_HEAD = 4096
"""Characters at the beginning of a text that decide whether it is HTML."""
HTML_START = re.compile(
    r"\ufeff?(?:\s|<!--(?:(?!-->).)*-->|<\?xml[^<>]*>)*+<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
TAG_START = re.compile(r"\s*<[A-Za-z!]")
FILE_CONTROL_CHAR = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters of short binary data that looks like UTF-16."""
FILE_HEAD_CHARS = 1400
"""Characters of encoded data that hold its start; a PDF may have something before it. Whole groups of four."""


def inline_file(file: dict[str, Any], *, decode_pdf: bool) -> DocumentFile | None:
    """Decodes the document in a `file` part's inline data; None if the part is to be forwarded unchanged.
    Raises UnreadableDocument: the data is not base64."""
    data = file.get("file_data")
    if not isinstance(data, str):
        return None
    sent = _sent(data)
    name = str(file.get("filename") or "")
    kind = _kind(name, sent.media_type)
    if kind is not None and DOCUMENT_KINDS[kind].starts and _is_text(sent, DOCUMENT_KINDS[kind].starts):
        kind = "text"
    if kind is None and not _is_worth_a_look(sent, name):
        return None
    if kind == "pdf" and not decode_pdf:
        return None
    raw = sent.decoded()
    kind = _by_content(kind, raw) or _nameless(name, sent.media_type, raw)
    if kind is None or (kind == "pdf" and not decode_pdf):
        return None
    return DocumentFile(_in_utf8(kind, raw, sent.parameters), kind, name)


class SentData(NamedTuple):
    """Data as a client sends it: base64, or a data URL (RFC 2397), with its media type, in lower case, and its
    parameters."""

    content: str
    media_type: str = ""
    parameters: str = ""
    is_base64: bool = True

    def decoded(self) -> bytes:
        """Decodes all of it. Raises UnreadableDocument: it is not base64."""
        return _decoded(self.content) if self.is_base64 else unquote_to_bytes(self.content)

    def start(self) -> bytes:
        """Decodes its start. Raises ValueError: it is not base64."""
        if not self.is_base64:
            return unquote_to_bytes(self.content[:FILE_HEAD_CHARS])
        head = "".join(self.content[:FILE_HEAD_CHARS].split())
        head = head if len(self.content) <= FILE_HEAD_CHARS else head[: len(head) // 4 * 4]
        return base64.b64decode(head, validate=True)


def _sent(data: str) -> SentData:
    header, comma, content = data.partition(",")
    if not comma or not items.is_data_url(header):
        return SentData(data)
    media_type, _, parameters = header[5:].partition(";")
    parameters = f";{parameters}" if parameters else ""
    return SentData(content, media_type.strip().lower(), parameters, ";base64" in parameters.lower())


def sent_document(data: str, name: str) -> DocumentFile:
    """Decodes a file that a client sent as base64, or as a data URL.
    Raises UnreadableDocument: it is not base64, or no kind of document that has a text."""
    sent = _sent(data)
    raw = _in_utf8(_kind(name, sent.media_type), sent.decoded(), sent.parameters)
    return stored_document(name, sent.media_type, raw, pictures=True)


def stored_document(name: str, media_type: str, content: bytes, *, pictures: bool = False) -> DocumentFile:
    """Returns a stored file as a document.
    `pictures`: those of text are documents, too, as they are where a file is attached.
    Raises UnreadableDocument: neither its name nor its content shows that it is text."""
    kind = _by_content(_kind(name, media_type), content)
    if kind is None and pictures and is_picture(content):
        kind = PICTURE
    if kind is None and not _reads_as_text(content, media_type):
        raise UnreadableDocument("it is no text document, and of no other kind that is read")
    return DocumentFile(content, kind or "text", name)


def may_be_document(name: str, media_type: str, head: bytes) -> bool:
    """Returns whether `stored_document` may find a document, as far as the beginning of its content shows."""
    return _kind(name, media_type) is not None or may_be_known(head) or _reads_as_text(head, media_type)


def encoded_document(content: str, media_type: str = "", name: str = "") -> DocumentFile | None:
    """Decodes the document that a text holds if it is a data URL or HTML; None for any other text.
    `media_type`: what the client names as its type, or `html`; `name`: its title. They count for parts of HTML, and the
    name for a data URL without a media type.
    Raises UnreadableDocument: the data URL cannot be decoded, or is of a kind that has no text."""
    url = DATA_URL.match(content)
    if url is not None:
        return _of_data_url(url, content[url.end() :], name)
    named = _kind(name, media_type) == "html" or media_type.strip().lower() == "html"
    head = content[:HTML_HEAD]
    if HTML_START.match(head) or (named and TAG_START.match(head)):
        return DocumentFile(content.encode("utf-8", "replace"), "html")
    return None


def _of_data_url(url: re.Match[str], data: str, name: str) -> DocumentFile:
    media_type, parameters, is_base64 = url.groups()
    raw = _decoded(data) if is_base64 else unquote_to_bytes(data)
    kind = _by_content(_kind("", media_type) if media_type else _named(name, raw), raw)
    if kind is None and is_picture(raw):
        kind = PICTURE
    if kind is None:
        raise UnreadableDocument(f"{media_type} is no kind of document that has a text")
    return DocumentFile(_in_utf8(kind, raw, parameters), kind)


def _decoded(encoded: str) -> bytes:
    """Decodes base64, also in lines, as many encoders write it. Raises UnreadableDocument: it is not base64."""
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableDocument("its data is not base64") from None


def _named(name: str, raw: bytes) -> str:
    """Returns the kind of data without a media type: by its name, unless its bytes contradict; else text (RFC 2397)."""
    kind = _kind(name, "") or "text"
    return kind if DOCUMENT_KINDS[kind].starts in raw[:HTML_HEAD] else "text"


def _in_utf8(kind: str | None, raw: bytes, parameters: str) -> bytes:
    """Converts a text to UTF-8, if the parameters of its media type name a charset in which the bytes are valid."""
    charset = CHARSET.search(parameters)
    text = text_of(raw, charset[1]) if charset is not None and kind in IN_CHARSETS else None
    return raw if text is None else text.encode("utf-8", "replace")


def _kind(name: str, media_type: str) -> str | None:
    name, media = name.lower(), media_type.split(";")[0].strip().lower()
    for kind, known in DOCUMENT_KINDS.items():
        if media in known.media_types or name.endswith(known.endings):
            return None if kind in MERE_TEXT and media.startswith(NOT_TEXT) else kind
    return "text" if media.startswith("text/") or media.endswith("+json") else None


def _by_content(kind: str | None, raw: bytes) -> str | None:
    """Returns the kind by the bytes, where name and media type name none, or only the container."""
    return sniffed(raw) or kind if kind is None or kind == OTHER_ZIP else kind


def _is_worth_a_look(sent: SentData, name: str) -> bool:
    """Returns whether data of unknown kind may be a document, as far as its start shows."""
    if sent.media_type.startswith(NOT_TEXT):
        return False
    try:
        head = sent.start()
    except ValueError:
        return False
    return may_be_known(head) or _nameless(name, sent.media_type, head) is not None


def _nameless(name: str, media_type: str, content: bytes) -> str | None:
    """Returns the kind of data of which neither name nor media type says anything: text, if it reads as text."""
    says_nothing = media_type in ("", UNKNOWN_TYPE) and "." not in name
    return "text" if says_nothing and content and _reads_as_text(content, media_type) else None


def _reads_as_text(content: bytes, media_type: str) -> bool:
    """Returns whether content of unknown kind is text: in any encoding, but of a picture (SVG) in UTF-8."""
    if media_type.startswith(NOT_TEXT):
        return decodes(content, "utf-8")
    text = text_of(content)
    return text is not None and (b"\x00" not in content or FILE_CONTROL_CHAR.search(text[:FILE_HEAD_CHARS]) is None)


def _is_text(sent: SentData, start: bytes) -> bool:
    """Returns whether data that its sender calls text is text, whatever its name suggests."""
    if not sent.media_type.startswith("text/"):
        return False
    try:
        return start not in sent.start()
    except ValueError:
        return False


Known = dict[tuple[str, str], Reading]
"""What a request has read, by the method of reading and the document's digest."""
HOLDERS = ("user", *tool_steps.RESULT_ROLES)
"""Roles whose messages may hold documents."""
READING_VERSION = 4
"""Increased when readings of older versions, which the cache may hold, become useless."""
DEFAULTS = setting_sections.DocumentSettings()
DELETED_DOCUMENT = "(This document was deleted.)"
"""The text of a file that no longer exists."""
INLINE_FILE_CHARS = 100_000
INLINE_FILES = 100
"""More than this is read in a thread, since it takes milliseconds for which other requests would wait."""
BEFORE_OCR = 0.2
"""Share of the work on a PDF before its pictures of text are recognized."""


class ArrivedMessages(NamedTuple):
    """The messages that came with a request: those from index `first` on. `sent` are all of them, unchanged."""

    first: int
    sent: Sequence[dict[str, Any]]


class FileReader:
    """Texts of documents by (message, part). `hits` and `misses` count the look-ups of texts in the cache."""

    def __init__(
        self,
        cache: ports.CacheBackend,
        ttl: float,
        settings: setting_sections.DocumentSettings = DEFAULTS,
        store: ports.FileStore | None = None,
    ) -> None:
        """`store`: the gateway's own file store, if there is one."""
        options = ReadOptions(settings.ocr == "auto", settings.ocr_languages, settings.seconds)
        self.documents = DocumentReader(settings.seconds, options, settings.memory_bytes)
        self.store = store
        self._cache = cache
        self._ttl = ttl
        self.hits = self.misses = 0
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(
        self,
        messages: Sequence[ConversationMessage],
        arrived: ArrivedMessages,
        caller: RequestCaller,
        *,
        decode_pdf: bool,
        keep: bool,
        natively: Container[FilePlace] = (),
        known: Known | None = None,
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        """Reads all documents that are not forwarded unchanged; returns their texts, and the digests of contents that
        the cache holds something of.
        `arrived`: what came with this request, so that an error can name the part; `keep`: whether texts may outlive
        the request (`store`); `natively`: PDFs that are forwarded unchanged, although others are read; `known`: what
        this request has read already, which is added to.
        Raises InvalidRequest: a part of this request is no readable document; names it. Of a stored part the text says
        so instead: its client did not send it now, and the conversation must go on; NotFound: a part of this request
        names a file that does not exist, where files are stored here; names it."""
        parts = dict(_file_parts(messages))
        if not parts:
            return {}, ()
        texts: dict[FilePlace, str] = {}
        slow: dict[FilePlace, DocumentFile] = {}

        def reported(place: FilePlace) -> AbstractContextManager[None]:
            index, number = place
            part = messages[index].body["content"][number]
            return _unreadable_reported(place, part, arrived.sent if index >= arrived.first else None, texts)

        def read_quick() -> None:
            for place, file in parts.items():
                with reported(place):
                    document = inline_file(file, decode_pdf=decode_pdf and place not in natively)
                    if document is not None and document.is_slow:
                        slow[place] = document
                    elif document is not None:
                        texts[place] = read_document(document).told

        chars = sum(len(str(file.get("file_data") or "")) for file in parts.values())
        await offload_if(chars > INLINE_FILE_CHARS or len(parts) > INLINE_FILES, read_quick)
        kept: dict[str, None] = {}
        for place, file_id in self._own(parts, caller):
            if place in natively:
                continue
            with reported(place):
                texts[place], digest = await self._own_text(file_id, caller, keep=keep, known=known)
                kept |= dict.fromkeys((digest, file_id) if keep else ())
        for place, document in slow.items():
            with reported(place):
                texts[place], digest = await self._told(document, DocumentOwner(caller.tenant, keeps=keep), known)
                kept |= {digest: None} if keep else {}
        return texts, tuple(kept)

    async def pdf(self, data: dict[str, Any], owner: DocumentOwner, known: Known) -> tuple[Reading | None, str]:
        """Reads the pages of a `file` part's PDF that a model reads itself; returns them with the digest under which
        the cache holds them; None if the PDF cannot be read: then the provider will report that."""
        try:
            size = len(str(data.get("file_data") or ""))
            document = await offload_if(size > INLINE_FILE_CHARS, lambda: inline_file(data, decode_pdf=True))
            return (None, "") if document is None else await self._reading(document, owner, known)
        except UnreadableDocument:
            return None, ""

    async def own_pdf(self, file_id: str, caller: RequestCaller, *, keep: bool) -> tuple[dict[str, Any] | None, str]:
        """Returns a PDF that is stored here in the form of a `file` part, and its digest; None if the file is anything
        else, or is gone. It has the name of its upload, whatever a part calls it, so that the part stays equal.
        Raises StorageUnavailable: it cannot be read now."""
        if self.store is None or not self.store.keeps(caller):
            return None, ""
        read = await self._cache.get(_reading_key(file_id, caller.tenant)) if keep else None
        if read is not None and not read.startswith(b"pdf:"):
            return None, ""
        try:
            found = await self.store.fetch(file_id, caller)
        except errors.NotFound:
            return None, ""
        if not found.content.startswith(b"%PDF"):
            return None, ""
        data = (await asyncio.to_thread(base64.b64encode, found.content)).decode("ascii")
        return {"filename": found.name, "file_data": f"data:application/pdf;base64,{data}"}, document_digest(
            "pdf", found.digest
        )

    async def _told(self, document: DocumentFile, owner: DocumentOwner, known: Known | None) -> tuple[str, str]:
        """Returns the document's text with its notes, and the document's digest."""
        reading, digest = await self.best(document, owner, known)
        return reading.told, digest

    async def best(
        self, document: DocumentFile, owner: DocumentOwner, known: Known | None = None, progress: Progress | None = None
    ) -> tuple[Reading, str]:
        """Reads the document, its pictures of text too, and returns the reading with the document's digest.
        Raises UnreadableDocument, Overloaded: see `DocumentReader.read`."""
        may_recognize = self.documents.options.ocr and document.kind == "pdf"
        first = _part_of(progress, 0.0, BEFORE_OCR) if may_recognize else progress
        reading, digest = await self._reading(document, owner, known, progress=first)
        if reading.empty and self.documents.options.ocr:
            rest = _part_of(progress, BEFORE_OCR, 1 - BEFORE_OCR)
            reading, digest = await self._reading(document, owner, known, ocr=True, progress=rest)
        return reading, digest

    def _own(self, parts: dict[FilePlace, dict[str, Any]], caller: RequestCaller) -> list[tuple[FilePlace, str]]:
        """Returns the parts that name files stored here: no upstream knows their ids."""
        if self.store is None or not self.store.keeps(caller):
            return []
        named = ((place, file) for place, file in parts.items() if not isinstance(file.get("file_data"), str))
        return [(place, file["file_id"]) for place, file in named if isinstance(file.get("file_id"), str)]

    async def _own_text(
        self, file_id: str, caller: RequestCaller, *, keep: bool, known: Known | None
    ) -> tuple[FileText, str]:
        """Returns the text of a file that is stored here, cached if possible, and the document's digest. Messages store
        only the id: what was read of a file is deleted with it (`cache_group` of its id, and of its digest)."""
        named = _reading_key(file_id, caller.tenant)
        digest = await self._cache.get(named) if keep else None
        if self.store is None:
            raise errors.NotFound("There is no such file for this key.")
        if digest is not None and (text := await self._kept_text(digest.decode(), caller.tenant)) is not None:
            name = await self.store.name(file_id, caller)  # another process may have deleted it, or it has expired
            return FileText.of(text, name), digest.decode()
        file = await self.store.fetch(file_id, caller)
        document = await asyncio.to_thread(stored_document, file.name, file.media_type, file.content)
        if keep:
            text, read = await self.read_and_keep(document, file_id, caller.tenant, known)
        else:
            text, read = await self._told(document, DocumentOwner(caller.tenant, keeps=False), known)
        return FileText.of(text, file.name), read

    async def read_and_keep(
        self,
        document: DocumentFile,
        file_id: str,
        tenant: str,
        known: Known | None = None,
        progress: Progress | None = None,
    ) -> tuple[str, str]:
        """Reads a file that is stored here, caches its text and digest where requests look them up, and returns both.
        Raises UnreadableDocument, Overloaded: see `DocumentReader.read`."""
        owner = DocumentOwner(tenant, keeps=True)
        reading, digest = await self.best(document, owner, known, progress)
        key, group = _reading_key(file_id, tenant), artifacts.cache_group(tenant, file_id)
        await self._cache.set(key, digest.encode(), self._ttl, group=group)
        return reading.told, digest

    async def _kept_text(self, digest: str, tenant: str) -> str | None:
        """Returns the cached text of a document; None if the cache does not hold all of it."""
        found = _reading_of(await self._cache.get(self._key(digest, tenant, ocr=False)))
        if found is not None and found.empty and self.documents.options.ocr:
            found = _reading_of(await self._cache.get(self._key(digest, tenant, ocr=True)))
        self.hits += found is not None
        return found.told if found is not None else None

    async def _reading(
        self,
        document: DocumentFile,
        owner: DocumentOwner,
        known: Known | None,
        *,
        ocr: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Reading, str]:
        """Returns the reading of the document, from the cache if it is there, and the document's digest."""
        digest = await offload_if(len(document.raw) >= INLINE_FILE_CHARS, lambda: document.digest)
        way = self._way(ocr=ocr)
        found = known.get((way, digest)) if known is not None else None
        if found is None:
            options = replace(self.documents.options, ocr=ocr)
            if owner.keeps:
                found = await self._kept_reading(document, digest, owner.tenant, options, progress)
            else:
                found = await self.documents.read(document, owner.tenant, options, progress)
        if known is not None:
            known[way, digest] = found
        return found, digest

    async def _kept_reading(
        self, document: DocumentFile, digest: str, tenant: str, options: ReadOptions, progress: Progress | None
    ) -> Reading:
        """Returns the reading from the cache, or reads and caches it: once, however many ask for it at once."""
        key = self._key(digest, tenant, ocr=options.ocr)
        async with self._alone.setdefault(key, asyncio.Lock()):
            found = _reading_of(await self._cache.get(key))
            self.hits += found is not None
            self.misses += found is None
            if found is None:
                found = await self.documents.read(document, tenant, options, progress)
                raw = jsons.dumps(found.as_json())
                await self._cache.set(key, raw, self._ttl, group=artifacts.cache_group(tenant, digest))
            return found

    def _way(self, *, ocr: bool) -> str:
        return f"{READING_VERSION}:{self.documents.options.ocr_languages if ocr else ''}"

    def _key(self, digest: str, tenant: str, *, ocr: bool) -> str:
        return f"document:{self._way(ocr=ocr)}:{tenant}:{digest}"


def _reading_key(file_id: str, tenant: str) -> str:
    """Returns the cache key of the digest of the document in a file stored here."""
    return f"file:{tenant}:{file_id}"


def _part_of(progress: Progress | None, start: float, share: float) -> Progress | None:
    """Returns a callback for the progress of a part of the work."""
    return (lambda done: progress(start + share * done)) if progress is not None else None


def _reading_of(raw: bytes | None) -> Reading | None:
    """Parses a cached reading; None also if it is damaged."""
    try:
        return Reading.from_json(jsons.loads(raw)) if raw is not None else None
    except (ValueError, KeyError, TypeError):
        return None


def has_files(messages: Sequence[ConversationMessage]) -> bool:
    """Returns whether any user message or tool result has a `file` part."""
    return next(_file_parts(messages), None) is not None


def has_named_pictures(messages: Sequence[ConversationMessage]) -> bool:
    """Returns whether any message names a picture by the id of a file."""
    lists = (message.body["content"] for _, message in _with_parts(messages))
    return any(isinstance(part, dict) and items.named_picture(part) is not None for parts in lists for part in parts)


def _with_parts(messages: Sequence[ConversationMessage]) -> list[tuple[int, ConversationMessage]]:
    """Returns the messages whose content is a list of parts, with their indexes."""
    return [(i, message) for i, message in enumerate(messages) if type(message.body.get("content")) is list]


def _file_parts(messages: Sequence[ConversationMessage]) -> Iterator[tuple[FilePlace, dict[str, Any]]]:
    """Yields the contents of the `file` parts of user messages and tool results."""
    for index, message in _with_parts(messages):
        for number, part in enumerate(message.body["content"] if message.role in HOLDERS else ()):
            if isinstance(part, dict) and part.get("type") == "file":
                yield (index, number), part.get("file") or {}


def place_of(part: dict[str, Any], sent: Sequence[dict[str, Any]], field: str) -> str:
    """Returns the path of a part's field in the messages that a client sent; `messages` where none holds the part."""
    for is_it in (is_, eq):
        for index in reversed(range(len(sent))):
            content = sent[index].get("content")
            for number, each in enumerate(content if type(content) is list else ()):
                if is_it(each, part):
                    return f"messages[{index}].content[{number}]{field}"
    return "messages"


@contextmanager
def _unreadable_reported(
    place: FilePlace, part: dict[str, Any], sent: Sequence[dict[str, Any]] | None, texts: dict[FilePlace, str]
) -> Iterator[None]:
    """Reports an unreadable document: as the client's error, or, where it was not sent now, as its text."""
    try:
        yield
    except errors.NotFound as error:
        if sent is None:
            texts[place] = DELETED_DOCUMENT
            return
        raise errors.NotFound(error.message, param=place_of(part, sent, ".file.file_id"), code=error.code) from error
    except UnreadableDocument as error:
        if sent is None:
            texts[place] = f"(This document cannot be read: {error}.)"
            return
        where = place_of(part, sent, ".file")
        raise errors.InvalidRequest(f"The document in {where} cannot be read: {error}.", param=where) from error


INLINE_CHARS = 100_000
"""Fewer characters are decoded in less time than a thread takes to start."""


class HeldDocument(NamedTuple):
    """The document that an attachment holds or names, None where its content is plain text already. `fields`: changes
    to the attachment; `keeps`: its reading may outlive the request."""

    document: DocumentFile | None
    fields: dict[str, Any]
    keeps: bool = False


class AttachmentReader:
    """Puts texts into the attachments of requests.
    `files`: the store of the files that attachments name; `reader`: reads these as it reads those of messages."""

    def __init__(self, files: ports.FileStore, reader: FileReader) -> None:
        self._files = files
        self._reader = reader

    async def with_contents(self, request: ChatRequest) -> ChatRequest:
        """Returns the request with a text as the content of each attachment.
        Raises NotFound: no such file for this client; names its field; InvalidRequest: an attachment is no readable
        document, or has no text; names its field."""
        found = []
        for index, attachment in enumerate(request.attachments):
            where = f"attachments[{index}].{_field_of(attachment)}"
            found.append(await self._with_content(attachment, where, request))
        return replace(request, attachments=tuple(found))

    async def _with_content(self, attachment: RequestAttachment, where: str, request: ChatRequest) -> RequestAttachment:
        what, by_id = where, _id_of(attachment)
        if attachment.file_data is None and attachment.content is None:
            what = f"The file {by_id!r} of {where}"
        try:
            held = await self._held(attachment, request)
            if held.document is None:
                return attachment.model_copy(update=held.fields) if held.fields else attachment
            text = await self._text(held.document, DocumentOwner(request.caller.tenant, keeps=held.keeps))
        except errors.NotFound as error:
            raise errors.NotFound(error.message, param=where, code="attachment_not_found") from error
        except UnreadableDocument as error:
            raise errors.InvalidRequest(
                f"{what} cannot be read: {error}.", param=where, code="invalid_value"
            ) from error
        return attachment.model_copy(update={"content": text, **held.fields})

    async def _held(self, attachment: RequestAttachment, request: ChatRequest) -> HeldDocument:
        """Returns the document of an attachment; the bytes that were sent are not stored."""
        title = attachment.title or attachment.filename
        if (data := attachment.file_data) is not None:
            document = await offload_if(
                len(data) > INLINE_CHARS, sent_document, data, attachment.filename or title or ""
            )
            return HeldDocument(document, {"title": title, "file_data": None})
        if (content := attachment.content) is not None:
            hints = (attachment.attachment_type, title or "")
            encoded = await offload_if(len(content) > INLINE_CHARS, encoded_document, content, *hints)
            return HeldDocument(encoded, {"title": title} if title else {})
        file = await self._files.fetch(_id_of(attachment), request.caller)
        name = attachment.filename or file.name
        fields = {"title": title or file.name, "file_id": _id_of(attachment) if file.own else None}
        document = stored_document(name, file.media_type, file.content, pictures=True)
        return HeldDocument(document, fields, keeps=file.own and request.store)

    async def _text(self, document: DocumentFile, owner: DocumentOwner) -> str:
        """Returns the text of a document with its notes; from the cache if it may be there.
        Raises UnreadableDocument: also where it has no text."""
        if owner.keeps:
            reading, _ = await self._reader.best(document, owner)
        else:
            reading = await self._reader.documents.read(document, owner.tenant)
        if reading.pages and len(reading.empty) == len(reading.pages):
            raise UnreadableDocument("it has no text, but pictures alone")
        said = places.PLACE_MARKER.sub("", reading.text) if reading.pages else reading.text
        if not said or said.isspace():
            raise UnreadableDocument("it has no text")
        return reading.told


def _field_of(attachment: RequestAttachment) -> str:
    """Returns the field that holds or names what is attached."""
    if attachment.file_data is not None:
        return "file_data"
    if attachment.content is not None:
        return "content"
    return "attachment_id" if attachment.attachment_id is not None else "file_id"


def _id_of(attachment: RequestAttachment) -> str:
    return attachment.attachment_id or attachment.file_id or ""
