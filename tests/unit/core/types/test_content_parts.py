from typing import Any

import pytest

from gateway.core.types.content_parts import as_parts, dicts_of, map_parts, parts_of, texts_of

TEXT, PICTURE = {"type": "text", "text": "Hello"}, {"type": "image_url", "image_url": {"url": "https://a.example"}}
THOUGHT, ODD = {"type": "thinking", "text": "Well"}, {"type": "text", "text": 5}


@pytest.mark.parametrize(
    ("content", "parts", "texts", "said"),
    [
        ("Hello", [], ["Hello"], ["Hello"]),
        ("", [], [""], [""]),
        (None, [], [], []),
        ({"text": "none"}, [], [], []),
        ([], [], [], []),
        ([TEXT, PICTURE, THOUGHT, ODD, "loose", None], [TEXT, PICTURE, THOUGHT, ODD], ["Hello", "Well"], ["Hello"]),
    ],
)
def test_a_content_has_parts_and_texts(
    content: Any, parts: list[dict[str, Any]], texts: list[str], said: list[str]
) -> None:
    assert list(parts_of(content)) == (content if isinstance(content, list) else [])
    assert list(dicts_of(content)) == parts
    assert list(texts_of(content)) == texts
    assert list(texts_of(content, "text")) == said


def test_a_text_is_one_part_that_says_the_same() -> None:
    parts = [PICTURE, TEXT]

    assert as_parts("Hello") == [TEXT]
    assert as_parts(parts) is parts


def test_a_message_with_other_parts_is_another_message() -> None:
    message = {"role": "user", "content": [TEXT, "loose", PICTURE]}

    changed = map_parts(message, lambda part: {"type": "text", "text": "a picture"} if part is PICTURE else part)

    assert changed == {"role": "user", "content": [TEXT, "loose", {"type": "text", "text": "a picture"}]}
    assert message["content"] == [TEXT, "loose", PICTURE]


@pytest.mark.parametrize("content", ["Hello", None, [], [TEXT, PICTURE]])
def test_a_message_whose_parts_stay_is_the_same(content: Any) -> None:
    message = {"role": "user", "content": content}

    assert map_parts(message, lambda part: part) is message
