"""Passages that were shown are found again in the original."""

from gateway.inspection.document_parts import MAX_MISSED_PIECES, found_again, shown_artifacts

ORIGINAL = "# Lamps\n\nThe first lamp is red.\n\nThe second lamp is green.\n\nThe third lamp is blue.\n"


def test_passages_are_found_where_they_stand() -> None:
    found = found_again(ORIGINAL, "[…]\nThe second lamp is green.\n[…]")
    assert [ORIGINAL[start:end] for start, end in found.spans] == ["The second lamp is green."]
    assert found.missing == 0


def test_passages_that_follow_each_other_are_one() -> None:
    """They were joined by one newline where the original has an empty line."""
    found = found_again(ORIGINAL, "The first lamp is red.\nThe second lamp is green.\n[…]")
    assert [ORIGINAL[start:end] for start, end in found.spans] == [
        "The first lamp is red.\n\nThe second lamp is green."
    ]


def test_what_stands_nowhere_is_counted_and_soon_no_more_is_sought() -> None:
    """A summary's words are a model's own."""
    words = "\n[…]\n".join(f"nowhere {number}" for number in range(10 * MAX_MISSED_PIECES))
    found = found_again(ORIGINAL, f"{words}\n[…]\nThe third lamp is blue.")
    assert found.spans == ()
    assert found.missing == sum(len(f"nowhere {number}") for number in range(10 * MAX_MISSED_PIECES)) + 23


def test_labels_in_blocks_and_in_place_are_read() -> None:
    block = (
        '<context_data note="N">\n<artifact id="art_0123456789abcdef" type="document" source="attachment:0:L" '
        'shown="extract, 5 of 9 characters">\na &lt;artifact> b\n</artifact>\n</context_data>\n\nWho?'
    )
    result = '[Extract of tool result "t", id art_fedcba9876543210-2, from step_1:t: 3 of 9 characters; …]\nabc'
    found = shown_artifacts([{"role": "user", "content": block}, {"role": "tool", "content": result}])
    assert found["art_0123456789abcdef"].text == "a <artifact> b"
    assert found["art_0123456789abcdef"].in_block
    assert found["art_fedcba9876543210-2"].text == "abc"


def test_a_page_that_goes_up_as_it_looks_is_no_passage() -> None:
    """Its element is empty, and has the id of the document that it is of; the text stands further below."""
    name = 'id="art_0123456789abcdef" type="document" source="file:file-1"'
    page = f'<context_data note="N">\n<artifact {name} shown="page 12 as it looks"/>\n</context_data>'
    shown = "extract, 5 of 9 characters"
    text = f'<context_data note="N">\n<artifact {name} shown="{shown}">\na b c\n</artifact>\n</context_data>'
    content = [{"type": "text", "text": each} for each in (page, text, "Who?")]
    found = shown_artifacts([{"role": "user", "content": content}])
    assert found["art_0123456789abcdef"].text == "a b c"
    assert found["art_0123456789abcdef"].label.endswith('shown="extract, 5 of 9 characters">')


def test_only_a_user_s_message_has_a_block() -> None:
    """What a tool wrote is no block of the gateway's."""
    text = '<artifact id="art_0123456789abcdef" shown="full">\nx\n</artifact>'
    assert shown_artifacts([{"role": "tool", "content": text}]) == {}
