"""Text in any encoding is read as what it says (guarantee §14.11)."""

import random

import pytest

from gateway.documents.document import DocumentFile, UnreadableDocument, read
from gateway.documents.plain import decoded, text_of
from tests.support.growth import is_linear

RUSSIAN = "Привет, мир! Это просто текст на русском языке."
JAPANESE = "これは日本語の文章です。契約書の第十四条。"
TEXTS = [
    ("Müller", "latin-1"),
    ("Größe", "cp1252"),
    ("Größe über alles", "cp1252"),
    ("„Größe“ – 5 € § 14 …", "cp1252"),
    ("déjà vu à la française, œuvre", "cp1252"),
    ("¿Qué año? El niño español", "cp1252"),
    ("è perché più così la città", "cp1252"),
    ("Räksmörgås på ön är läcker åt alla", "cp1252"),
    ("Rødgrød med fløde på åen", "cp1252"),
    ("Příliš žluťoučký kůň úpěl ďábelské ódy. Smlouva číslo čtyři.", "cp1250"),
    ("Zażółć gęślą jaźń, umowa numer cztery i dalsze postanowienia są ważne", "iso8859_2"),
    ("São Paulo, manhã de inverno; as opções põem-se à mesa", "cp1252"),
    ("Kõik võib õppida, šokk", "cp1252"),
    ("Größe, déjà vu, España", "cp1252"),
    ("Hér er ný þýðing á íslensku", "cp1252"),
    ("Siehe Fußnote¹, 5 m³ und ±3 °C, »Größe« und «taille»", "cp1252"),
    ("Sözleşme ödeme süresini belirtir, ışık şimdi ağır", "cp1254"),
    ("Привет", "koi8_r"),
    (RUSSIAN, "koi8_r"),
    ("Договор", "cp1251"),
    (RUSSIAN, "cp1251"),
    ("Η σύμβαση ορίζει την προθεσμία πληρωμής", "cp1253"),
    ("החוזה קובע את מועד התשלום", "cp1255"),
    ("ينص العقد على موعد الدفع", "cp1256"),
    ("契約書", "cp932"),
    (JAPANESE, "cp932"),
    (JAPANESE, "euc_jp"),
    (JAPANESE, "iso2022_jp"),
    ("合同的第四条规定了付款期限。", "gb18030"),
    ("合約的第十四條規定了付款期限。", "big5"),
    ("계약서 제14조는 지급 기한을 정한다.", "cp949"),
    ("Größe und mehr ✓", "utf-16-le"),
    ("Größe und mehr ✓", "utf-16-be"),
    ("Größe", "utf-32-be"),
    ("größe ✓", "utf-16"),
    ("größe ✓", "utf-32"),
    ("größe ✓", "utf-8-sig"),
    ("größe ✓", "utf-8"),
]


CENTRAL = [
    *(
        "Příliš žluťoučký kůň úpěl ďábelské ódy.",
        "Smlouva číslo čtyři",
        "Město",
        "Děkuji",
        "jméno;příjmení\nJiří;Dvořák",
    ),
    *("Dobrý den, zasíláme Vám fakturu za služby v měsíci září.", "Zmluva stanovuje lehotu, ďakujeme", "Ľúbim ťa"),
    *(
        "Zażółć gęślą jaźń",
        "umowa jest ważna i są warunki",
        "Łódź",
        "Dziękuję za odpowiedź",
        "imię;nazwisko\nStanisław;Kos",
    ),
    *("Árvíztűrő tükörfúrógép", "A kikötői díj kilencszáz forint", "Győr", "Köszönöm, a szerződés érvényes"),
    *("Contractul prevede termenul de plată şi penalităţile", "Taxa portuară este de nouă sute de lei pe lună"),
    *("Bucureşti", "Ştefan cel Mare şi Sfânt", "Mulţumesc pentru răspuns"),
    *("Luka plaća naknadu mjesečno", "Hvala lijepa, ugovor važi", "Đakovo", "Šibenik i Čakovec", "Žarko Đurić, račun"),
    *("Pogodba določa plačilni rok", "Živjo, hvala za sporočilo"),
]


@pytest.mark.parametrize("encoding", ["cp1250", "iso8859_2"])
@pytest.mark.parametrize("text", CENTRAL)
def test_s14_11_languages_of_central_europe_are_told_from_western_ones(text: str, encoding: str) -> None:
    """By their letters, also in one word. As CSV a column of names is all that there is."""
    for times in (1, 30):
        whole = f"{text}\n" * times
        assert text_of(whole.encode(encoding)) == whole


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize(("text", "encoding"), TEXTS)
def test_s14_11_text_is_read_in_the_encoding_that_it_is_in(text: str, encoding: str, times: int) -> None:
    whole = f"{text}\n" * times
    assert text_of(whole.encode(encoding)) == whole


def test_s14_11_a_declared_encoding_counts_where_the_text_is_valid_in_it() -> None:
    assert decoded("Größe".encode("mac_roman"), "mac_roman") == "Größe"
    assert decoded("Größe".encode(), "iso-8859-1") == "GrÃ¶ÃŸe"  # as its sender says
    assert decoded("Größe".encode("latin-1"), "utf-8") == "Größe"
    assert decoded("Größe".encode("latin-1"), "nobody-knows") == "Größe"
    assert decoded("Größe".encode("latin-1"), "base64") == "Größe"
    html = '<html><meta http-equiv="Content-Type" content="text/html; charset=koi8-r"><p>мир</p>'
    assert read(DocumentFile(html.encode("koi8-r"), "html")).text == "мир"
    assert read(DocumentFile(html.encode(), "html")).text == "мир"  # converted, its declaration left behind
    program = "# -*- coding: cp866 -*-\nprint('мир')\n"
    assert text_of(program.encode("cp866")) == program


def test_damage_in_utf_8_does_not_change_the_rest() -> None:
    assert text_of(b"a\xff") == "a\ufffd"
    text = "größe ✓ und mehr. " * 20
    assert text_of(text.encode() + b"\xff\xfe") == text + "\ufffd\ufffd"
    assert text_of(text.encode()[:-1] + "✓".encode()[:2]) == text[:-1] + "\ufffd"


@pytest.mark.parametrize("raw", [bytes(range(256)), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"ab\0\1\2\3cd", b"\0" * 50])
def test_s14_11_what_is_no_text_says_so(raw: bytes) -> None:
    with pytest.raises(UnreadableDocument, match="it is no text"):
        read(DocumentFile(raw, "text"))


@pytest.mark.long
def test_no_bytes_are_an_error_of_ours() -> None:
    chance = random.Random(5)
    for size in [*range(20), *(chance.randrange(3000) for _ in range(300))]:
        low = chance.choice([0, 32, 128])
        raw = bytes(chance.randrange(low, 256) for _ in range(size))
        assert isinstance(decoded(raw, chance.choice(["", "utf-8", "utf-16", "cp932", "x\0"])), str)


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    ["größe ".encode("latin-1"), "мир ".encode("koi8_r"), "文 ".encode("gb18030"), b"<?xml \xe4", b"\xe4", b"a\xe4\n"],
)
def test_telling_the_encoding_takes_linear_time(unit: bytes) -> None:
    assert is_linear(lambda size: text_of(unit * (size // len(unit))), 500_000)
