"""What changed in a message is told line by line, in bounded time."""

from gateway.inspection.message_changes import MAX_COMPARED_LINES, DiffLine, line_diff, text_of_message


def test_what_begins_and_ends_alike_is_skipped_and_the_change_is_told() -> None:
    before = "\n".join(f"line {number}" for number in range(100))
    after = before.replace("line 50\n", "line fifty\nand more\n")
    found = line_diff(before, after)
    assert found.is_whole
    assert [line for line in found.lines if line.kind in ("added", "removed")] == [
        DiffLine("removed", "line 50"),
        DiffLine("added", "line fifty"),
        DiffLine("added", "and more"),
    ]
    assert [line.count for line in found.lines if line.kind == "skipped"] == [47, 46]


def test_a_difference_that_is_too_long_is_counted_and_not_told() -> None:
    found = line_diff("same\n" + "x\n" * (MAX_COMPARED_LINES + 1) + "end", "same\nyy\nend")
    assert not found.is_whole
    assert DiffLine("removed", "", MAX_COMPARED_LINES + 1) in found.lines
    assert found.lines[0] == DiffLine("same", "same")
    assert found.lines[-1] == DiffLine("same", "end")


def test_equal_texts_have_no_change() -> None:
    assert all(line.kind == "skipped" for line in line_diff("a\nb", "a\nb").lines)


def test_a_message_is_told_with_its_parts_calls_and_other_fields() -> None:
    body = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:"}}],
        "tool_calls": [{"id": "c", "function": {"name": "find", "arguments": '{"q":1}'}}],
        "refusal": "no",
    }
    lines = text_of_message(body).split("\n")
    assert lines[0] == "Look:"
    assert lines[1].startswith("[image_url: ")
    assert lines[2] == '→ find({"q":1})'
    assert lines[3] == '{"refusal":"no"}'


def test_a_file_is_told_by_its_name_and_id() -> None:
    """Else nobody could tell two of them apart, and the size of an id is none of the file's."""
    files = [{"file_id": "file-1"}, {"file_id": "file-1", "filename": "a.pdf"}, {"filename": "b.pdf", "file_data": "x"}]
    parts = [{"type": "file", "file": file} for file in files]
    content = [*parts, {"type": "input_image", "file_id": "file-2", "detail": "auto"}, {"type": "file"}]
    assert text_of_message({"role": "user", "content": content}).split("\n") == [
        "[file: file-1]",
        "[file: a.pdf, file-1]",
        "[file: b.pdf, 59 bytes]",
        "[input_image: file-2]",
        "[file: 15 bytes]",
    ]
