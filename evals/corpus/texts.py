"""Plain texts in encodings that are not UTF-8, and subtitles."""

from evals.corpus import flat
from evals.corpus.facts import Fact, sections
from evals.corpus.samples import Sample

GERMAN = "Der Wärter füllte täglich das Öl auf, prüfte die Gläser und schloß die Tür für die Nacht."
JAPANESE = "灯台の係員は毎晩ランプに油を入れて、扉を閉めた。港には霧がかかっていた。"


def samples() -> list[Sample]:
    """Four encodings and both forms of subtitles."""
    return [
        encoded("latin", "latin-1", "Der Schlüssel hängt bei Frau Gröbenzell.", GERMAN, "Wo hängt der Schlüssel?"),
        encoded("sjis", "shift_jis", "鍵は小松崎さんの机の引き出しにあります。", JAPANESE, "鍵はどこにありますか。"),
        wide(),
        *subtitles(),
    ]


def encoded(name: str, encoding: str, sentence: str, filler: str, question: str) -> Sample:
    """A long text of one sentence, numbered, and another near its end."""
    lines = [f"{number}. {filler}" for number in range(160)]
    lines.insert(150, sentence)
    evidence = sentence.rstrip(".")
    raw = "\n".join(lines).encode(encoding)
    return Sample(f"{name}.txt", "text/plain", raw, (Fact("sentence", question, evidence),))


def wide() -> Sample:
    """UTF-16 with its mark."""
    told = sections(61, 12)
    text = "\r\n\r\n".join(each.text for each in told)
    return Sample("wide.txt", "text/plain", text.encode("utf-16"), tuple(flat.asked(told, "sentence")))


def subtitles() -> list[Sample]:
    """One sentence a cue."""
    told = sections(62, 20, 60)
    said = [part.strip() + "." for each in told for part in (each.before, each.sentence.rstrip("."), each.after)]
    times = [(f"00:{n // 20:02}:{n % 20 * 3:02}", f"00:{n // 20:02}:{n % 20 * 3 + 2:02}") for n in range(len(said))]
    srt = "\n".join(
        f"{n}\n{a},000 --> {b},500\n<i>{text}</i>\n"
        for n, ((a, b), text) in enumerate(zip(times, said, strict=True), 1)
    )
    vtt = "WEBVTT\n\n" + "\n".join(
        f"{a}.000 --> {b}.500 align:start\n<v Guide>{text}\n" for (a, b), text in zip(times, said, strict=True)
    )
    asked = tuple(flat.asked(told, "cue"))
    return [
        Sample("tour.srt", "application/x-subrip", srt.encode(), asked),
        Sample("tour.vtt", "text/vtt", vtt.encode(), asked),
    ]
