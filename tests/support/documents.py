"""Documents for the tests of the context: long ones that hold one fact each, files of all kinds, and exact counts."""

import base64
import io
import random
import zipfile
from functools import cache
from typing import Any

from pypdf import PdfWriter

from tests.support.answers import Json
from tests.support.o200k import text_tokens

VOCABULARY = (
    "harbour tide rope anchor gull mast deck hull storm chart bell lantern oar wind wave salt net cliff "
    "sand pier captain sailor island reef current compass barrel sail keel bow stern cabin shore channel beacon fog"
)
WORDS = VOCABULARY.split()


@cache
def prose(seed: int, words: int) -> str:
    """Sentences without meaning, the same for the same seed."""
    rng = random.Random(seed)
    chosen = [rng.choice(WORDS) for _ in range(words)]
    return " ".join(word + ("." if i % 12 == 11 else "") for i, word in enumerate(chosen)).capitalize() + "."


def lamps(number: int, words: int = 40) -> str:
    """A document of sections; section N alone says who keeps lamp N."""
    return "\n\n".join(f"## Lamp {i}\n\n{keeper(i)} {prose(i, words)}" for i in range(number))


def keeper(number: int) -> str:
    """The fact in section `number`."""
    return f"The keeper of lamp {number} is called Name{number * 7}x."


tokens = text_tokens


def prompt_tokens(body: Json) -> int:
    """What OpenAI counts of a forwarded request, by its published rule; tools only if they have no parameters."""
    total = 3
    for message in body["messages"]:
        total += 3 + tokens(message["role"])
        content = message.get("content") or ""
        for part in content if isinstance(content, list) else [{"text": content}]:
            total += tokens(part.get("text", ""))
        for call in message.get("tool_calls") or []:
            total += tokens(call["function"]["name"]) + tokens(call["function"]["arguments"])
    functions = [tool["function"] for tool in body.get("tools") or []]
    total += sum(7 + tokens(f"{f['name']}:{f.get('description', '').rstrip('.')}") for f in functions)
    return total + (12 if functions else 0)


def text_of(body: Json) -> str:
    """All texts of a forwarded request."""
    found: list[str] = []
    for message in body["messages"]:
        content = message.get("content") or ""
        found += [p.get("text", "") for p in content] if isinstance(content, list) else [content]
    return "\n".join(found)


def file_part(name: str, data: bytes, media: str | None) -> Json:
    """A `file` part with a data URL; without a media type, bare base64 as some clients send it."""
    encoded = base64.b64encode(data).decode()
    file: dict[str, Any] = {"filename": name, "file_data": f"data:{media};base64,{encoded}" if media else encoded}
    return {"type": "file", "file": file}


def docx(paragraphs: list[str]) -> bytes:
    """A DOCX of these paragraphs, with no more parts than Word needs."""
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{types}"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{word}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{kind}" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>',
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return out.getvalue()


def pdf(lines: list[str]) -> bytes:
    """A PDF of one page with these lines, in Helvetica."""
    shown = " T* ".join(f"({line}) Tj" for line in lines)
    return pdf_of(f"BT /F1 12 Tf 14 TL 50 750 Td {shown} ET".encode("latin-1"))


def locked_pdf(lines: list[str], *, modern: bool) -> bytes:
    """The same behind a password: by a cipher that anyone can read with it, or (`modern`) by AES-256."""
    whole = pdf(lines)
    if modern:
        head, trailer, rest = whole.rpartition(b"trailer\n<< ")
        names = {"O": 48, "U": 48, "OE": 32, "UE": 32, "Perms": 16}
        said = " ".join(f"/{name} <{'5a' * size}>" for name, size in names.items())
        cipher = "/CF << /StdCF << /CFM /AESV3 /AuthEvent /DocOpen /Length 32 >> >> /StmF /StdCF /StrF /StdCF"
        lock = f"/ID [<5a><5a>] /Encrypt << /Filter /Standard /V 5 /R 6 /Length 256 /P -4 {said} {cipher} >> "
        return head + trailer + lock.encode() + rest
    writer, out = PdfWriter(clone_from=io.BytesIO(whole)), io.BytesIO()
    writer.encrypt("a password", algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def pdf_of(content: bytes, fields: bytes = b"", kids: bytes = b"3 0 R") -> bytes:
    """A PDF of one page with this content stream, and these fields of it."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count 1 >>" % kids,
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), fields, content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(out)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return out + b"xref\n0 %d\n0000000000 65535 f \n%b" % (len(objects) + 1, table) + trailer
