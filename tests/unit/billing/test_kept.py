"""What the model is editing, and has just read, must not leave (guarantee §4 I7)."""

import json

import pytest

from gateway.billing.passes import (
    ALIVE_WITHIN,
    EDITED_WITHIN,
    KEPT_FOR,
    MAX_SMALL_CHANGE,
    MAX_SMALL_READING,
    PATH,
    READ_WITHIN,
    WRITTEN_WITHIN,
    ToolUse,
    free_calls,
    kept_results,
)
from tests.support.growth import is_linear


def use(index: int, tool: str, age: int, size: int = 1000, **arguments: str) -> ToolUse:
    return ToolUse(index, tool, json.dumps(arguments), size, age, index - 1)


PATCH = "*** Begin Patch\n*** Update File: src/pier.py\n@@\n-old\n+new\n*** End Patch"


@pytest.mark.parametrize(
    "edit",
    [
        use(9, "edit_file", 5, path="/repo/src/pier.py", old_string="a\nb"),
        use(9, "str_replace_based_edit_tool", 5, command="str_replace", path="src/pier.py"),
        use(9, "apply_patch", 5, input=PATCH),
        ToolUse(9, "apply_patch", PATCH, 10, 5),
        use(9, "bash", 5, command="cd /repo && sed -i 's/a/b/' src/pier.py"),
        use(9, "bash", 5, command="cat > src/pier.py <<'EOF'\nlamp = other.py\nEOF"),
        use(9, "bash", 5, command="echo x | tee -a src/pier.py"),
        use(9, "write", 5, file_path="C:\\repo\\src\\pier.py", content="x"),
    ],
    ids=lambda each: f"{each.tool} {each.arguments[:30]}",
)
def test_a_file_that_is_being_edited_stays_as_it_was_read(edit: ToolUse) -> None:
    read = use(2, "read", 60, path="src/pier.py")
    other = use(4, "read", 59, path="src/other.py")
    assert kept_results([read, other, edit]) == [2]
    assert kept_results([read, other]) == []


@pytest.mark.parametrize("path", ["Makefile", "a/Dockerfile", ".gitignore", "src/.env", "README", "C:\\x\\Kconfig"])
def test_a_file_needs_no_extension_to_be_known(path: str) -> None:
    read, edit = use(2, "read", 60, path=path), use(9, "edit_file", 5, path=path)
    assert kept_results([read, edit]) == [2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("make -C src/pier all", []),
        ("cat ./a/b.tar.gz, c.py; cd ..", ["./a/b.tar.gz", "c.py"]),
        ("cd .git/hooks/ && ls", []),
        ("sort Makefile:3 Profiles", ["Makefile"]),
    ],
)
def test_what_is_a_file(text: str, found: list[str]) -> None:
    assert PATH.findall(text) == found


def test_files_are_found_in_time_in_proportion() -> None:
    assert is_linear(lambda size: PATH.findall("a" * size), 2_000)


def test_the_latest_reading_and_the_latest_of_the_whole() -> None:
    """A page does not take the place of the whole, nor does what an edit says."""
    uses = [
        use(1, "read", 90, size=8000, path="pier.py"),
        use(2, "read", 80, size=9000, path="pier.py"),
        use(3, "read", 70, size=500, path="pier.py", offset="10"),
        use(4, "read", 60, size=700, path="pier.py", offset="90"),
        use(5, "edit", 3, size=40, path="pier.py"),
    ]
    assert kept_results(uses) == [4, 2]


def test_a_search_over_many_files_is_no_reading_of_one() -> None:
    uses = [
        use(1, "read", 60, size=800, path="pier.py"),
        use(2, "bash", 50, size=9000, command="grep -n lamp pier.py lock.py quay.py"),
        use(3, "edit", 2, path="pier.py"),
    ]
    assert kept_results(uses) == [1]


@pytest.mark.parametrize(("age", "kept"), [(READ_WITHIN - 1, [2]), (READ_WITHIN, [])])
def test_what_was_read_lately_stays(age: int, kept: list[int]) -> None:
    """Of one file the latest reading alone."""
    uses = [use(1, "read", age + 1, path="a/pier.py"), use(2, "read", age, path="pier.py")]
    assert kept_results(uses) == kept


@pytest.mark.parametrize(("age", "kept"), [(EDITED_WITHIN, [1]), (EDITED_WITHIN + 1, [])])
def test_an_edit_of_long_ago_keeps_nothing(age: int, kept: list[int]) -> None:
    assert kept_results([use(1, "read", 90, path="pier.py"), use(2, "edit", age, path="pier.py")]) == kept


@pytest.mark.parametrize(
    ("age", "is_cut", "kept"), [(KEPT_FOR, True, [5]), (KEPT_FOR, False, []), (KEPT_FOR + 1, True, [])]
)
def test_what_was_called_for_again_after_it_had_been_cut_stays(age: int, is_cut: bool, kept: list[int]) -> None:
    """It was worth its room, whatever it is; the same call of old that stood was no loss."""
    uses = [
        ToolUse(1, "bash", "make", 9000, 60, is_cut=is_cut),
        ToolUse(3, "bash", "ls", 9, 50),
        ToolUse(5, "bash", "make", 9, age),
    ]
    assert kept_results(uses) == kept


@pytest.mark.parametrize("arguments", ["", "null", "[1, {}]", '{"path": 3}', "{broken", '"pier.py"', "\ud800"])
def test_arguments_may_be_anything(arguments: str) -> None:
    assert kept_results([ToolUse(0, "", arguments, 1, 50)]) == []


@pytest.mark.parametrize(("size", "kept"), [(MAX_SMALL_READING, [1]), (MAX_SMALL_READING + 1, [])])
def test_a_small_reading_stays_while_files_are_edited(size: int, kept: list[int]) -> None:
    reading = use(1, "read", 400, size, path="notes.md")
    edit = use(3, "edit_file", ALIVE_WITHIN, path="pier.py")
    assert kept_results([reading, edit], small=MAX_SMALL_READING) == kept
    assert kept_results([reading, edit]) == []
    assert kept_results([reading, use(3, "bash", 0, command="make > log.txt")], small=MAX_SMALL_READING) == []


LONG = "lamp\n" * MAX_SMALL_CHANGE


@pytest.mark.parametrize(
    ("later", "is_free"),
    [
        ([], True),
        ([use(5, "edit", WRITTEN_WITHIN, path="pier.py")], False),
        ([use(5, "edit", WRITTEN_WITHIN + 1, path="pier.py")], False),
        ([use(5, "read", 30, 1000, path="pier.py"), use(7, "edit", WRITTEN_WITHIN + 1, path="pier.py")], True),
        ([use(5, "write", WRITTEN_WITHIN + 1, path="pier.py", content=LONG)], True),
        ([use(5, "edit", ALIVE_WITHIN + 1, path="pier.py")], True),
        ([use(5, "edit", WRITTEN_WITHIN, path="other.py")], True),
    ],
    ids=["alone", "edited now", "edited lately", "read since", "written since", "edited long ago", "another edited"],
)
def test_s4_i7_what_was_written_leaves_once_no_edit_quotes_it(later: list[ToolUse], is_free: bool) -> None:
    written = use(2, "write", 50, path="pier.py", content=LONG)
    assert (free_calls([written, *later]).get(1) == 50) is is_free


def test_s4_i7_what_was_just_written_stays_and_so_does_a_last_small_change() -> None:
    assert free_calls([use(2, "write", WRITTEN_WITHIN - 1, path="pier.py", content=LONG)]) == {}
    assert free_calls([use(2, "edit", 90, path="pier.py", new="x" * 100)]) == {}
    assert free_calls([use(2, "edit", 90, path="pier.py", new="x"), use(4, "edit", 80, path="pier.py")]) == {1: 90}
    assert free_calls([use(2, "bash", 90, command="python - <<'EOF'\n" + LONG)]) == {1: 90}


def test_s4_i7_calls_of_one_message_leave_together() -> None:
    calls = [ToolUse(n, "write", json.dumps({"path": f"f{n}.py", "content": LONG}), 9, 50, 1) for n in (2, 3)]
    assert free_calls(calls) == {1: 50}
    assert free_calls([*calls, use(5, "edit", 3, path="f3.py")]) == {}
