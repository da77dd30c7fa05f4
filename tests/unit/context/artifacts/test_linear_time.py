"""Texts made to be slow to look through take time in proportion to their length (guarantee §7: no crash, no 5xx)."""

from collections.abc import Callable

import pytest

from gateway.context.artifacts.collect import document_spans, is_tagged, marked_spans
from gateway.documents.html import html_text
from gateway.retrieval.chunks.split import passages
from tests.support.growth import is_linear
from tests.support.marks import few_or_many

PIECES = [
    "<a>",
    "<a><b>",
    "</a ",
    "```a\n",
    "```\n",
    "<",
    "<!--",
    "</",
    "<?",
    "<![",
    "<!",
    "<a ",
    "<a b='",
    '<a b="c',
    "<script>",
]
PIECES += ["```md\n```x\n```\n", "```md\n", "~~~a\n```\n", "<a><a>x</a></a>", "<a x='", "a.b:\n```x.y\n"]
PIECES += ["<table><tr><td>x<td>", "<td rowspan=9 colspan=9><tr>", "<pre> \n"]
PIECES += ["<x" * 3, "&amp", "\n", " \n", "[", "[{", '"', '"a":[', "a,b\n", ". ", "~~~~"]


def spans(text: str) -> object:
    return document_spans(text, 8000, beside=False)


@pytest.mark.long
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("look", [spans, passages, html_text], ids=["spans", "passages", "html"])
@few_or_many(40_000, 300_000)
def test_s7_no_text_takes_quadratic_time(piece: str, look: Callable[[str], object], number: int) -> None:
    """Of tens of thousands of characters, or a third of a million; quadratic time would be seconds, or minutes."""

    def both(size: int) -> None:
        look(piece * (size // len(piece)))
        look("<" + "a" * size)

    assert is_linear(both, number)


def test_fences_and_tags_are_found() -> None:
    body = "x" * 50
    text = f"ask\n```py\n{body}\n```\nthen <doc id='1'>{body}</doc> and <open> and ~~~\n~~~~\n{body}\n~~~~\nend"
    assert [text[start:end].strip() for start, end in marked_spans(text, 40)] == [body] * 3
    assert marked_spans(text, 60) == []


def test_a_longer_fence_closes_and_a_shorter_one_is_content() -> None:
    body = "x\n```\ny\n~~~\n" + "z" * 50
    assert inside(f"a\n````py\n{body}\n`````\nb") == [body]
    assert inside(f"a\r\n```py\r\n{'z' * 50}\r\n```\r\nb") == ["z" * 50]
    assert inside("```py\n" + "z" * 50) == []


def test_markdown_that_was_pasted_may_hold_fences_itself() -> None:
    body = "# A\n```sh\nls\n```\nmore " + "z" * 50 + "\n```\nx\n```py\ny\n```"
    assert inside(f"```markdown\n# A\n```sh\nls\n```\n{'z' * 50}\n```\nb") == [f"# A\n```sh\nls\n```\n{'z' * 50}"]
    assert inside(f"```md\n{body}\n") != []


def test_of_a_block_that_holds_documents_each_is_one() -> None:
    members = "".join(f"<document index='{n}'>{str(n) * 600}</document>\n" for n in range(1, 4))
    assert inside(f"Read <documents>\n{members}</documents> What?") == [str(n) * 600 for n in range(1, 4)]
    mixed = f"<doc>{'own words ' * 20}<i>{'x' * 50}</i><i>{'y' * 50}</i></doc>"
    assert inside(mixed) == [mixed[5:-6]]


def inside(text: str) -> list[str]:
    return [text[start:end] for start, end in marked_spans(text, 40)]


def test_a_tag_inside_a_fence_is_part_of_it() -> None:
    text = "```\n<a>" + "x" * 50 + "</a>\n```\n"
    assert marked_spans(text, 10) == [(4, text.rindex("\n```"))]


@pytest.mark.parametrize(
    ("text", "tagged"),
    [("<a>x</a>", True), ('<a b="c">x</a >', True), ("<a>x</b>", False), ("<a>x</a> y", False), ("x <a>x</a>", False)],
)
def test_a_text_that_is_one_tagged_block(text: str, tagged: bool) -> None:
    assert is_tagged(text) is tagged


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>T</h1><p>a &lt; b</p>", "# T\n\na < b"),
        ("<p title='a > b'>x</p>", "x"),
        ("a<script>if (a<b) '<p>'</script>b<style>c</style>", "ab"),
        ("a<!-- <p>no</p> -->b<!doctype html><?xml?>", "ab"),
        ("<template>no</template><td>1<td>2", "1\t2"),
        ("1 < 2 and <![CDATA[x]]>", "1 < 2 and"),
        ("open <!-- never closed <p>x", "open"),
    ],
)
def test_visible_text_of_html(html: str, text: str) -> None:
    assert html_text(html) == text
