"""Terms of many words at once are those of one word after the other."""

import random

from gateway.retrieval.corpus import MAX_WORD_CHARS, TermLexicon, numbered, numbers_of

TEXT = """
order Orders ORDERS HTTPServer getUserName user_id parseXMLFile2 v2.10.3 2024-05-17 10.0.12.7 12345 123456 W0042317
the The src/fitting/reduction.py:12 C:\\Users\\ann\\read_me.txt ann.lee@example.com a/b/c x i --- of_the it's e-mail
"""
WORDS = TEXT.split()


def _alike(words: list[str]) -> None:
    lexicon = TermLexicon()
    found = numbered(words, lexicon)
    assert len(found.counts) == len(words)
    at = 0
    for word, count in zip(words, found.counts.tolist(), strict=True):
        terms = lexicon.unstemmed(word)
        stems = lexicon.stems([term for term, _ in terms])
        assert found.numbers[at : at + count].tolist() == numbers_of([(stem, 0) for stem in stems]).tolist(), word
        assert found.kinds[at : at + count].tolist() == [kind for _, kind in terms], word
        at += count
    assert at == len(found.numbers) == len(found.kinds)


def test_words_in_ascii() -> None:
    _alike(WORDS)
    _alike(["alone"])
    _alike([])


def test_words_of_other_scripts_and_long_ones_keep_their_place_between_them() -> None:
    _alike(
        [
            "Grüße",
            "order",
            "配送状态",
            "user_id",
            "заказы",
            "",
            "a" * (MAX_WORD_CHARS + 9),
            "Ab1_" * MAX_WORD_CHARS,
            "запрос_id",
            "end",
        ]
    )


def test_any_characters() -> None:
    rng = random.Random(7)
    for _ in range(60):
        signs = rng.choice(("aZ", "aAbB019_./@\\-", "aAzZ09_", "aé1A_配-"))
        _alike(["".join(rng.choices(signs, k=rng.randint(1, 9))).strip("_./@\\-") for _ in range(40)])
