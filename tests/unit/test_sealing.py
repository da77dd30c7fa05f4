"""What is sealed opens for the same key and purpose alone, and unchanged alone (guarantee §10.6)."""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.formats.compaction_items import MAX_EXTRACT_CHARS, CompactionMark, extract_of, opened
from gateway.core.formats.sealing import MAX_OPENED_BYTES, seal, unsealed
from gateway.core.types.content_parts import content_text

KEY, OTHER = b"k" * 32, b"o" * 32
ROLES = st.sampled_from(["user", "assistant", "tool", "system"])


@given(st.binary(max_size=2000))
def test_s10_6_what_was_sealed_opens(text: bytes) -> None:
    """For its key and purpose; the text does not show."""
    sealed = seal(KEY, b"a", text)
    assert unsealed(KEY, b"a", sealed) == text
    assert unsealed(OTHER, b"a", sealed) is None
    assert unsealed(KEY, b"b", sealed) is None
    raw = urlsafe_b64decode(sealed)
    assert len(text) < 8 or (text not in raw and zlib.compress(text, 6) not in raw)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_s10_6_what_was_changed_does_not_open(text: bytes, data: st.DataObject) -> None:
    """Whichever bit it is, and wherever it is cut."""
    raw = bytearray(urlsafe_b64decode(seal(KEY, b"a", text)))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    assert unsealed(KEY, b"a", urlsafe_b64encode(raw).decode()) is None
    assert unsealed(KEY, b"a", urlsafe_b64encode(bytes(raw[:at])).decode()) is None


def test_s10_6_what_a_version_before_sealed_is_read_on() -> None:
    """Clients hold such items for as long as they like; a changed one does not open."""
    before = (
        "Aa-1aVoerK7zmwWc_ZY-9MxLLjWWttgAf74sIDxNKZulNy45i35p5dVp0jn"
        "O9XUgcyDdPa9k3tLYg5_hwPfLbuS-SK-CWWGKxToJYXkytOuxhmo="
    )
    assert unsealed(KEY, b"a", before) == b"sealed by an older version"
    assert unsealed(OTHER, b"a", before) is None
    assert unsealed(KEY, b"b", before) is None
    raw = bytearray(urlsafe_b64decode(before))
    for at in range(len(raw)):
        raw[at] ^= 1
        assert unsealed(KEY, b"a", urlsafe_b64encode(raw).decode()) is None
        assert unsealed(KEY, b"a", urlsafe_b64encode(raw[:at]).decode()) is None
        raw[at] ^= 1


@given(st.text(max_size=100))
def test_s10_6_any_other_text_does_not_open(text: str) -> None:
    """Without an error."""
    assert unsealed(KEY, b"a", text) is None


def test_s10_6_a_small_text_does_not_unfold_to_a_large_one() -> None:
    """As who holds the key would have sealed it."""
    assert unsealed(KEY, b"a", seal(KEY, b"a", b"x" * (MAX_OPENED_BYTES + 1))) is None


@given(
    st.lists(st.tuples(ROLES, st.text(max_size=9000)), max_size=12),
    st.text(max_size=30_000) | st.none(),
    st.sampled_from([1, 2, 100, 1000, MAX_EXTRACT_CHARS]),
)
@example([("user", "a" * 9000), ("assistant", "b" * 9000), ("user", "c" * 9000)], None, 500)
@example([("user", "a" * 300)] * 9, "d" * 2000, 1000)
def test_s10_6_an_extract_is_bounded(said: list[tuple[str, str]], before: str | None, most: int) -> None:
    """Whatever was said; sealed and opened it is the same."""
    extract = extract_of([{"role": role, "content": text} for role, text in said], before, most=most)
    assert extract is None or len(extract) <= most
    made = CompactionMark("msg_1", extract)
    item = made.sealed_for("tenant", KEY)
    assert opened(item["encrypted_content"], "tenant", KEY) == made
    assert opened(item["encrypted_content"], "another", KEY) is None
    assert content_text(item["encrypted_content"]) != extract
