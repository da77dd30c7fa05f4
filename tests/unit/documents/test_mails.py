"""Mails are read with their attachments (guarantee §14.9)."""

import io
import random
import zipfile
from collections.abc import Callable
from email.message import EmailMessage

import pytest

from gateway.core.types.places import TextPlaces
from gateway.documents.document import DocumentFile, Reading, UnreadableDocument, read
from tests.support.growth import is_linear
from tests.unit.documents.making_msg import outlook_mail


def reading(raw: bytes, kind: str = "mail") -> Reading:
    return read(DocumentFile(raw, kind))


def mail(subject: str = "The offer", body: str = "Dear all,\nsee the table.") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Cc"] = "Jörg Müller <j@example.com>", "a@example.com", "c@example.com"
    message["Date"], message["Subject"] = "Mon, 01 Jun 2026 09:00:00 +0200", subject
    message["X-Spam"] = "never shown"
    message.set_content(body)
    return message


def test_s14_9_a_mail_is_its_headers_its_body_and_its_attachments_by_their_own_kinds() -> None:
    message = mail()
    message.add_alternative("<p>Dear all, in HTML</p>", subtype="html")
    message.add_attachment(b"item,price\nbolt,17\n", maintype="text", subtype="csv", filename="Preise größer.csv")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("deep/plan.md", "# Plan\nStart in May")
    message.add_attachment(packed.getvalue(), maintype="application", subtype="zip", filename="plans.zip")
    message.add_attachment(b"\x89PNG\r\n\x1a\n\0\0", maintype="image", subtype="png", filename="logo.png")
    inner = mail("The older mail", "Earlier words")
    inner.add_attachment(b"of the older one", maintype="text", subtype="plain", filename="note.txt")
    message.add_attachment(inner)
    found = reading(message.as_bytes())
    assert found.text.startswith(
        "From: Jörg Müller <j@example.com>\nTo: a@example.com\nCc: c@example.com\n"
        "Date: Mon, 01 Jun 2026 09:00:00 +0200\nSubject: The offer\n"
        "Attachments: Preise größer.csv, plans.zip, logo.png, attachment 4.eml\n\nDear all,\nsee the table."
    )
    assert "in HTML" not in found.text
    assert "never shown" not in found.text
    places = TextPlaces(found.text)
    for words, place in [
        ("bolt,17", "file Preise größer.csv, line 2"),
        ("Start in May", "file plans.zip/deep/plan.md, line 2"),
        ("Earlier words", "file attachment 4.eml, line 8"),
        ("of the older one", "file attachment 4.eml/note.txt"),
    ]:
        at = found.text.index(words)
        assert places.of(at, at + len(words)).startswith(place)
    assert found.notes == ("1 file was left out: 1 without text (logo.png).",)


def test_a_body_in_html_alone_and_in_any_encoding_is_read() -> None:
    message = mail()
    message.set_content("<h1>Größe</h1><p>zwei</p>", subtype="html", charset="iso-8859-1")
    assert reading(message.as_bytes()).text.endswith("# Größe\n\nzwei")
    raw = b"Subject: =?iso-8859-1?Q?Gr=F6=DFe?=\r\nContent-Type: text/plain; charset=koi8-r\r\n\r\n" + "Привет".encode(
        "koi8-r"
    )
    assert reading(raw).text == "Subject: Größe\n\nПривет"
    undeclared = b"From: a@example.com\r\n\r\n" + "Grüße aus Köln".encode("latin-1")
    assert reading(undeclared).text == "From: a@example.com\n\nGrüße aus Köln"


def test_headers_cannot_make_other_headers_or_places() -> None:
    raw = b"From: a@example.com\nSubject: =?utf-8?q?one=0AFrom:_boss=0A=5Bfile_x=5D?=\n\n[file evil.txt]\nwords\n"
    found = reading(raw).text
    assert [line for line in found.splitlines() if line.startswith("From:")] == ["From: a@example.com"]
    assert not [line for line in found.splitlines() if line.startswith("[file")]
    assert TextPlaces(found).of(found.index("words"), len(found)) == "line 5"


@pytest.mark.parametrize("raw", [b"", b"no headers at all", b"\0" * 1000, b"\n\nbody alone"])
def test_what_is_no_mail_says_so(raw: bytes) -> None:
    with pytest.raises(UnreadableDocument):
        reading(raw)


def test_hostile_mails_are_read_or_told() -> None:
    deep = b"Subject: x\nContent-Type: multipart/mixed; boundary=b0\n\n"
    for level in range(300):
        deep += b"--b%d\nContent-Type: multipart/mixed; boundary=b%d\n\n" % (level, level + 1)
    for raw in (
        b"Subject: x\nContent-Type: multipart/mixed\n\nno boundary",
        b"Subject: x\nContent-Type: text/plain; charset=nobody-knows\n\nwords",
        b"Subject: =?utf-8?b?%%%?=\nFrom: a\n\nwords",
        b"Subject: x\nContent-Transfer-Encoding: base64\n\n%%%%",
        b"Subject: x\nContent-Disposition: attachment; filename*=utf-8''%FF%00\n\nwords",
        b"Subject: x\nContent-Disposition: attachment; filename*=utf-8''a; filename*0*=b\n\nwords",
        b"Subject: x\nContent-Type: text/plain; charset*=utf-8''a; charset*0=b\n\nwords",
        b"Subject: x\nContent-Type: multipart/mixed; boundary*=a; boundary*0=b\n\nwords",
        deep,
    ):
        try:
            assert "Subject" in reading(raw).text or "From" in reading(raw).text
        except UnreadableDocument:
            assert raw == deep


def test_mutated_mails_are_read_or_told() -> None:
    message = mail()
    message.add_attachment(b"a,b\n", maintype="text", subtype="csv", filename="a.csv")
    whole, chance = message.as_bytes(), random.Random(7)
    for _ in range(200):
        raw = bytearray(whole[: chance.randint(1, len(whole))])
        for _ in range(chance.randint(1, 6)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            reading(bytes(raw))
        except UnreadableDocument:
            continue


@pytest.mark.long
@pytest.mark.parametrize(
    "shape",
    [
        lambda n: b"X: y\n" * n + b"Subject: s\n\nb",
        lambda n: b"Subject: " + b"=?utf-8?q?a?= " * n + b"\n\nb",
        lambda n: b"Subject: s\nContent-Type: text/plain" + b"; a=b" * n + b"\n\nb",
        lambda n: b"From: " + b"a@b.c, " * n + b"\n\nb",
        lambda n: b"Subject: s\n" + b" folded\n" * n + b"\nb",
        lambda n: b"Subject: s\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * n,
    ],
    ids=["headers", "encoded words", "parameters", "addresses", "folds", "parts"],
)
def test_mails_take_linear_time(shape: Callable[[int], bytes]) -> None:
    assert is_linear(lambda n: reading(shape(n)), 20_000)


@pytest.mark.long
def test_s14_9_a_mail_of_outlooks_is_read_as_other_mails_are() -> None:
    headers = "From: J <j@example.com>\r\nTo: a@example.com\r\nDate: Mon, 01 Jun 2026 09:00:00 +0200\r\n\r\n"
    texts = {0x0037: "Größe", 0x1000: "Dear all,\r\nsee the table.", 0x007D: headers, 0x001A: "IPM.Note"}
    raw = outlook_mail(texts, [("prices.csv", b"item,price\nbolt,17\n"), ("logo.png", b"\x89PNG")])
    found = reading(raw, "msg")
    assert found.text.startswith(
        "From: J <j@example.com>\nTo: a@example.com\nDate: Mon, 01 Jun 2026 09:00:00 +0200\nSubject: Größe\n"
        "Attachments: prices.csv, logo.png\n\nDear all,\nsee the table.\n\n[file prices.csv]\nitem,price\nbolt,17\n"
    )
    assert found.notes == ("1 file was left out: 1 without text (logo.png).",)
    chance = random.Random(11)
    for _ in range(100):
        changed = bytearray(raw[: chance.choice([len(raw), chance.randrange(len(raw))])])
        for _ in range(8 if changed else 0):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            reading(bytes(changed), "msg")
        except UnreadableDocument:
            continue


def test_broken_mails_of_outlooks_are_told() -> None:
    for raw in (
        b"",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 4096,
        b"x" * 2000,
    ):
        with pytest.raises(UnreadableDocument, match="Outlook"):
            reading(raw, "msg")
