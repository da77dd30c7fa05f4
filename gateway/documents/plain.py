"""Plain text in any encoding, and which encoding a text without a declared one is in (guarantee §14.11)."""

import codecs
import re
from collections import Counter
from typing import Any

from gateway.documents.document import Reading, ReadOptions, UnreadableDocument

DECLARING_BYTES = 4096
"""Where a text declares its encoding."""
DECLARED = re.compile(
    rb"<\?xml[^>]{0,200}?\bencoding\s*=\s*[\"']([\w.:-]{1,40})"
    rb"|<meta\b[^>]{0,300}?\bcharset\s*=\s*[\"']?([\w.:-]{1,40})"
    rb"|\A[^\n]{0,200}\n?[^\n]{0,200}coding[:=]\s*([\w.-]{1,40})",
    re.IGNORECASE,
)
"""Declarations in XML, HTML and programs."""
NOT_PLAIN_TEXT = "it is no text"
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks. UTF-32's begins with UTF-16's, so it comes first."""
WESTERN = "cp1252"
OF_LANGUAGES = {
    WESTERN: "äöüß àâæçéèêëîïôœùûü áéíñóúü àèéìòù áâãàçéêíóôõúü åäöé æøåé ëïéèöüáó áðéíóúýþæö àçéèíïóòúü äöõüšž",
    "cp1250": (CENTRAL := "áčďéěíňóřšťúůýž áäčďéíĺľňóôŕšťúýž ąćęłńóśźż áéíóöőúüű ăâîşţ čćđšž"),
    "iso8859_2": CENTRAL,
    "cp1254": "çğıöşüâîû",
    "cp1257": "āčēģīķļņšūž ąčęėįšųūž",
}
"""The letters beyond ASCII of each language of an encoding; where several encodings fit, the first is taken."""
MIXED = 0.5
"""Weight of a letter of another language in Western texts, where foreign names are usual."""
ODD_CHARACTERS = re.compile(
    r"[\x80-\x9f\ufffd˙˛ˇ˘˝ÿ]|[A-Za-z][¡«»¿÷×°·](?=[a-z])|[ªº¹²³®©¥£¼½¾¬¦¯´¸¨¢¶±](?=[a-zß-ž])|(?<=[a-z])[±¶¬¦¥¼½¾](?![A-Z])"
    r"|(?<=[a-z])[À-ÞŸŽŠŒĄĆĘŁŃŚŹŻČĎĚŇŘŤŮĽĹŔŐŰĂĐŞŢ]|ľ(?=[eiéí])|(?<=ĺ)ľ"
)
"""Signs in words, damaged bytes, capitals after small letters, `ľ` where it is soft anyway: letters decoded in a wrong
encoding."""
ODD_IN_WESTERN = re.compile(
    r"(?i:è(?=[aeiouyíáé])|(?<=[ae])è|[ìù](?=[a-zà-ž])|(?<![aeouyi])ï|(?<=[aeiou])æ(?=[aeiou])|(?<=i)æ\b|\bð(?=[a-z])"
    r"|ã(?![oeis\W]|$)|ãs(?=[a-z])|(?<=y)õ|ñ(?![aeiouáéíóúy])|(?<=[aeiou])œ)"
)
"""Positions in which no Western language has these letters: `ì` except at the end of a word, `ñ` except before a
vowel."""
NOT_ESTONIAN, NO_PORTUGUESE_O = re.compile(r"[áéíóúû]"), re.compile(r"õ(?!e)")
FINAL_A, PORTUGUESE_AO = re.compile(r"ã\b"), re.compile(r"ã[oe]")
DOUBLE_BYTE = ["cp932", "euc_jp", "gb18030", "big5", "cp949"]
OTHER_ENCODINGS = ["cp1251", "koi8_r", *DOUBLE_BYTE, "cp1253", "cp1255", "cp1256"]
SAMPLE_BYTES = 2**16
HIGH_RUN = re.compile(rb"[\x80-\xff]+")
TURKISH, ICELANDIC = re.compile(rb"[A-Za-z][\xf0\xfe]|[\xdd\xde][a-z]"), re.compile(rb"[\xe1\xe6\xed]")
EUC_KANA = re.compile(rb"\xa4[\xa1-\xf3]")
NOT_HEBREW, NOT_CYRILLIC = re.compile(rb"[^\xe0-\xfa]"), re.compile(rb"[^\xc0-\xff\xa3\xb3\xa8\xb8]")
CYRILLIC = {"cp1251": re.compile(rb"[\xe0-\xff][\xc0-\xdf]"), "koi8_r": re.compile(rb"[\xc0-\xdf][\xe0-\xff]")}
"""A capital after a small letter, in each encoding: hardly ever in texts of that encoding, often in the other's."""
LETTERS_RUN = re.compile(rb"[A-Za-z\x80-\xff]+")
ENCODINGS_FEW_BYTES = 4
MAX_ODD = 0.15
"""Share of the letters and signs beyond ASCII that may be odd in a text of Latin letters."""
MANY_LETTERS = 20
CONTROLS = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f]")
MAX_CONTROLS = 0.1


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Decodes the text. Raises UnreadableDocument: it is no text."""
    return Reading(checked_text(raw))


def checked_text(raw: bytes) -> str:
    """Decodes the bytes. Raises UnreadableDocument: they are no text."""
    text = text_of(raw)
    if text is None:
        raise UnreadableDocument(NOT_PLAIN_TEXT)
    return text


def decoded(raw: bytes, charset: str = "") -> str:
    """Decodes the bytes, whatever they are; bytes that cannot be decoded become U+FFFD."""
    text = text_of(raw, charset)
    return raw.decode("utf-8-sig", "replace") if text is None else text


def text_of(raw: bytes, charset: str = "") -> str | None:
    """Decodes the bytes; None if they are no text.
    `charset`: the encoding that the sender names. It counts if the bytes are valid in it. The text's own declaration
    counts only after UTF-8: programs that convert texts forget to change it."""
    marked = any(raw.startswith(mark) for mark, _ in MARKS)
    for name in ("" if marked else _known(charset), "" if marked else "utf-8", "" if marked else _declared(raw)):
        if name and b"\x00" not in raw and b"\x1b$" not in raw and decodes(raw, name):
            found = encoding_of(raw) if name == "utf-8" and raw.isascii() else name
            return None if found is None else raw.decode(name)
    found = encoding_of(raw)
    return None if found is None else raw.decode(found, "replace")


def _declared(raw: bytes) -> str:
    found = DECLARED.search(raw[:DECLARING_BYTES])
    return _known(next(name for name in found.groups() if name).decode()) if found else ""


def _known(charset: str) -> str:
    """Returns the name of a text encoding; Latin-1 stands for CP1252, as in browsers."""
    try:
        info = codecs.lookup(charset)
    except (LookupError, ValueError):
        return ""
    if not getattr(info, "_is_text_encoding", True):
        return ""
    return "cp1252" if info.name in ("iso8859-1", "ascii") else info.name


def encoding_of(raw: bytes) -> str | None:
    """Detects the encoding of a text; None if it is no text. Bytes that are invalid in it are to be replaced."""
    marked = next((name for mark, name in MARKS if raw.startswith(mark)), None)
    if marked is not None:
        return marked
    if raw.isascii() and b"\x00" not in raw and b"\x1b$" not in raw:
        return "utf-8" if not _has_controls(raw) else None
    wide = _wide(raw)
    if wide is not None:
        return wide
    if _has_controls(raw):
        return None
    if b"\x1b$" in raw and decodes(raw, "iso2022_jp"):
        return "iso2022_jp"
    if decodes(raw, "utf-8"):
        return "utf-8"
    if b"\x00" in raw:
        return None
    return _single_or_double_byte(raw)


def decodes(raw: bytes, encoding: str) -> bool:
    """Returns whether all bytes are valid in that encoding."""
    try:
        raw.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def _has_controls(raw: bytes) -> bool:
    sample = raw[:SAMPLE_BYTES]
    return len(CONTROLS.findall(sample)) > MAX_CONTROLS * len(sample)


def _wide(raw: bytes) -> str | None:
    """Detects UTF-16 or UTF-32 without a mark: every second byte, or three of four, of ASCII characters is 0.

    At least a third must be such characters: short binary data looks like UTF-16 without them.
    """
    sample = raw[: SAMPLE_BYTES & ~3]
    if b"\x00" not in sample or len(raw) % 2:
        return None
    zeros = [sample[n::4].count(0) for n in range(4)]
    quarter = max(1, len(sample) // 4)
    if len(raw) % 4 == 0 and min(zeros[0:2]) > quarter * 0.9 and decodes(raw, "utf-32-be"):
        return "utf-32-be"
    if len(raw) % 4 == 0 and min(zeros[2:4]) > quarter * 0.9 and decodes(raw, "utf-32-le"):
        return "utf-32-le"
    even, odd = zeros[0] + zeros[2], zeros[1] + zeros[3]
    if min(even, odd) > max(even, odd) // 20 or max(even, odd) * 3 < quarter * 2:
        return None
    name = "utf-16-be" if even > odd else "utf-16-le"
    return name if decodes(raw, name) else None


def _single_or_double_byte(raw: bytes) -> str:
    sample = _sample(raw)
    text = sample.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    if sum(not letter.isascii() for letter in text) > 4 * damaged:
        return "utf-8"
    if _is_latin(sample):
        odd, name = _latin(sample)
        beyond = sum(byte >= 0x80 for byte in sample)
        if odd and beyond < ENCODINGS_FEW_BYTES:
            return "utf-8"
        return (_guess(sample, DOUBLE_BYTE) if odd > MAX_ODD * beyond else "") or name
    return _by_letters(sample) or _guess(sample, OTHER_ENCODINGS) or WESTERN


def _latin(sample: bytes) -> tuple[float, str]:
    """Returns how much is odd in a text of Latin letters in the encoding that fits it best, and that encoding."""
    scores = [(_oddness(sample.decode(name, "replace"), name), name) for name in OF_LANGUAGES]
    odd, name = min(scores, key=lambda each: each[0])
    is_turkish = name == WESTERN and (odd, "cp1254") in scores and _is_turkish(sample)
    return odd, "cp1254" if is_turkish else name


def _oddness(text: str, encoding: str) -> float:
    """Counts the letters and signs of a text that do not fit the languages of an encoding."""
    small = text.lower()
    counts = Counter(letter for letter in small if letter.isalpha() and not letter.isascii() and letter not in "ªºµ")
    alphabets = OF_LANGUAGES[encoding].split()
    foreign = min(sum(n for letter, n in counts.items() if letter not in alphabet) for alphabet in alphabets)
    odd = len(ODD_CHARACTERS.findall(text))
    if encoding != WESTERN:
        return foreign + odd
    if NOT_ESTONIAN.search(small):
        odd += len(NO_PORTUGUESE_O.findall(small))
    if not PORTUGUESE_AO.search(small):
        odd += max(0, len(FINAL_A.findall(small)) - 1)
    return foreign * MIXED + odd + len(ODD_IN_WESTERN.findall(text))


def _is_latin(sample: bytes) -> bool:
    """Returns whether letters beyond ASCII are in words with ASCII letters far more often than in their own."""
    words = [word for word in LETTERS_RUN.findall(sample) if not word.isascii()]
    own = sum(1 for word in words if len(word) > 1 and HIGH_RUN.fullmatch(word))
    mixed = sum(1 for word in words if not HIGH_RUN.fullmatch(word))
    return mixed >= 2 * own


def _is_turkish(sample: bytes) -> bool:
    """Returns whether `ğ`, `ı` and `ş` are in the place of Icelandic letters, which come with other vowels."""
    return bool(TURKISH.search(sample)) and not ICELANDIC.search(sample)


def _by_letters(sample: bytes) -> str:
    """Detects an encoding by the bytes themselves, where statistics of languages need longer texts."""
    runs = HIGH_RUN.findall(sample)
    letters = b"".join(runs)
    if len(EUC_KANA.findall(sample)) * 8 > len(letters) and decodes(sample, "euc_jp"):
        return "euc_jp"
    if len(letters) >= MANY_LETTERS and not NOT_HEBREW.search(letters):
        return "cp1255"
    if NOT_CYRILLIC.search(letters):
        return ""
    fits = [name for name, odd in CYRILLIC.items() if not any(odd.search(run) for run in runs)]
    return fits[0] if len(fits) == 1 else ""


def _guess(sample: bytes, encodings: list[str]) -> str:
    """Returns the encoding in which a sample looks most like a language; "" where it looks like none."""
    from charset_normalizer import from_bytes

    matches: list[Any] = list(from_bytes(sample, cp_isolation=encodings, enable_fallback=False))
    if not matches:
        return ""
    best, seen = matches[0], {match.encoding: match.coherence for match in matches}
    simplified = best.encoding == "big5" and seen.get("gb18030", -1.0) >= best.coherence
    return "gb18030" if simplified else str(best.encoding)


def _sample(raw: bytes) -> bytes:
    """Returns whole lines with more than ASCII, up to `SAMPLE_BYTES`."""
    lines, size = [], 0
    for line in raw.split(b"\n"):
        if not line.isascii():
            lines.append(line if len(line) < SAMPLE_BYTES else _cut(line))
            size += len(lines[-1])
            if size >= SAMPLE_BYTES:
                break
    return b"\n".join(lines)


def _cut(line: bytes) -> bytes:
    """Cuts a stretch of a long line around its first byte beyond ASCII, ending where no character is split."""
    first = HIGH_RUN.search(line)
    start = max(0, first.start() - 100) if first else 0
    stretch = line[start : start + SAMPLE_BYTES]
    end = max(stretch.rfind(b" "), stretch.rfind(b"\r"), stretch.rfind(b","))
    return stretch[:end] if end > SAMPLE_BYTES // 2 else stretch
