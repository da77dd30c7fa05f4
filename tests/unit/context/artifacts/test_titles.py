"""A document inside a message goes by the name that its tag, its fence or the line above gives it."""

import pytest

from gateway.context.artifacts.collect import title_of
from tests.support.growth import is_linear

BODY = "the content"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (f'<document title="Lamps &amp; oil">{BODY}</document>', "Lamps & oil"),
        (f"<file path='src/a b.py' id=\"7\">\n{BODY}\n</file>", "src/a b.py"),
        (f'<doc id="7">{BODY}</doc>', "7"),
        (f"<doc>{BODY}</doc>", None),
        (f'<document><source>a.txt</source>\n<document_content>\n{BODY}</document_content></document>', "a.txt"),
        (f"<document><title>T</title> {BODY}</document>", "T"),
        (f"```python\n{BODY}\n```", None),
        (f"```src/app.py\n{BODY}\n```", "src/app.py"),
        (f'```python title="app.py"\n{BODY}\n```', "app.py"),
        (f"```12:40:src/app.py\n{BODY}\n```", "src/app.py"),
        (f"Here is `orders.csv`:\n```\n{BODY}\n```", "orders.csv"),
        (f"### notes.md\n\n~~~text\n{BODY}\n~~~", "notes.md"),
        (f"My list (lamps.csv):\n\n{BODY}\n\nWhat?", "lamps.csv"),
        (f"Please read this. It is 3.14 long.\n\n{BODY}\n\nWhat?", None),
        (f'<document title="">{BODY}</document>', None),
        (f'<document title="{"x" * 300}">{BODY}</document>', "x" * 100),
        (BODY, None),
    ],
)  # fmt: skip
def test_the_name_of_a_document_in_a_message(text: str, title: str | None) -> None:
    start = text.index("<title>") if "<title>" in text else text.index(BODY)
    assert title_of(text, (start, text.index(BODY) + len(BODY))) == title


@pytest.mark.parametrize("piece", ["<", "<a ", "a.", "`", "'", '="', "<title>", "[", "/", " x=", "\n```", "./\\"])
def test_s7_no_text_takes_long_to_look_through(piece: str) -> None:
    def look(count: int) -> None:
        text = piece * count
        title_of(text, (len(text) // 2, len(text)))

    assert is_linear(look, 20_000)
