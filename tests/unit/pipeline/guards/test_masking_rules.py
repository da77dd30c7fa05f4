"""What each rule finds, and what it leaves alone (guarantee §12.10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.config.config_file import ConfigurationError
from gateway.core.config.setting_sections import MASK_RULES, MaskingSettings
from gateway.pipeline.guards.masking import (
    BUILT_IN,
    IBAN_LENGTHS,
    PLACEHOLDER,
    PlaceholderMap,
    RuleFinder,
    iban_length,
    rules_of,
)
from tests.support.growth import calls_of, is_linear
from tests.unit.pipeline.guards.values import PEM_LINE, SECRET, VALUES, vault

LEFT_ALONE = [
    "at 12:30:45 on 2024-01-15, build 1700000000000",
    "std::vector and a::b, ratio 3.14159, version 1.2.3",
    "order 1234567890123456 and 4111111111111112",
    "sk-learn-is-a-library-for-python and basic understanding of things",
    "call me at 555-1234, room 12-34-5678, ISBN 978-3-16-148410-0",
    "user@localhost, @mention, a@b, http://example.org:8080/path",
    "127.0.0.1 and ::1 and 0.0.0.0 and 300.1.2.3",
    "DE89370400440532013001 has a wrong sum; 000-12-3456 and 666-12-3456 are none",
    f"sha256 {'0123456789abcdef' * 4}, sha512-{PEM_LINE}abcDEF/+9==, {PEM_LINE}A, /{'lamps/' * 10}pier",
    "<EMAIL_abcdefg2> stands for something",
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_each_rule_finds_its_values_and_nothing_beside(kind: str, value: str) -> None:
    held = vault()
    masked = held.mask(f"It is {value}, as he said.")
    found = PLACEHOLDER.findall(masked)
    assert value not in masked
    assert masked.startswith("It is <")
    assert masked.endswith(", as he said.")
    assert [name.rpartition("_")[0] for name in found] == [f"<{kind}"]
    assert held.unmask(masked) == f"It is {value}, as he said."


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_is_none_stays(text: str) -> None:
    assert vault().mask(text) == text


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_is_found_again_wherever_it_was_put_back(kind: str, value: str) -> None:
    """§12.10: what stands around it does not decide."""
    name = vault().placeholder(kind, value)
    for text in ("{}", "({})", '"{}"', "see {} there", "a: {}\n", "'{}',"):
        assert vault().mask(text.format(value)) == text.format(name)


def test_the_same_value_has_one_placeholder_and_another_tenant_another() -> None:
    text = "Write to ann@example.org."
    assert vault().mask(text) == vault().mask(text)
    assert vault().mask(text) != vault(tenant="b").mask(text)
    assert vault().mask(text) != PlaceholderMap(RuleFinder(rules_of(MaskingSettings())), b"other", "a").mask(text)


def test_rules_are_switched() -> None:
    settings = MaskingSettings(rules=("card",))
    held = PlaceholderMap(RuleFinder(rules_of(settings)), SECRET, "a")
    assert held.mask("ann@example.org 4111 1111 1111 1111").startswith("ann@example.org <CARD_")


def test_rules_of_the_operators_own() -> None:
    settings = MaskingSettings.model_validate({"custom": [{"name": "STAFF", "pattern": r"\bE\d{6}\b"}]})
    held = PlaceholderMap(RuleFinder(rules_of(settings)), SECRET, "a")
    assert held.mask("ask E123456 or E12").startswith("ask <STAFF_")
    assert held.mask("ask E123456 or E12").endswith(" or E12")


@pytest.mark.parametrize("pattern", ["(", "a*", "(?=x)x"])
def test_a_pattern_that_cannot_be_used_is_refused_by_its_place(pattern: str) -> None:
    settings = MaskingSettings.model_validate({"custom": [{"name": "OWN", "pattern": pattern}]})
    with pytest.raises(ConfigurationError, match=r"masking.custom\[0\].pattern"):
        rules_of(settings)


HOSTILE = [
    "a.",
    "a@",
    "1 ",
    "1-",
    "+1",
    "1:",
    "1.",
    "AB12 ",
    "sk-",
    "://a:",
    "-----BEGIN PRIVATE KEY-----",
    "eyJa.",
    "=",
    "Bearer ",
    "a" * 30 + "@",
    "(((",
    "0",
]


@pytest.mark.long
@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_text_alone(piece: str) -> None:
    assert is_linear(lambda length: vault().mask((piece * length)[:length]), 160_000)


@given(st.lists(st.one_of(st.sampled_from([value for _, value in VALUES]), st.text(max_size=12)), max_size=6))
def test_masking_twice_changes_nothing_and_unmasking_gives_the_text(parts: list[str]) -> None:
    held, text = vault(), " ".join(parts)
    masked = held.mask(text)
    assert held.unmask(masked) == text
    assert held.mask(masked) == masked


def test_what_was_searched_before_is_masked_the_same() -> None:
    long = " ".join(f"{value} and so on" for _, value in VALUES) * 3
    finder = RuleFinder(rules_of(MaskingSettings()))
    first, again = (PlaceholderMap(finder, SECRET, "a").mask(long) for _ in range(2))
    assert first == again == PlaceholderMap(RuleFinder(rules_of(MaskingSettings())), SECRET, "a").mask(long)
    assert not any(value in first for _, value in VALUES)


def test_all_rules_have_examples() -> None:
    kinds = {kind for kind, _ in VALUES}
    assert kinds == {rule.kind for rule in rules_of(MaskingSettings())}
    assert {name.upper() for name in MASK_RULES} == kinds


@given(st.from_regex(r"\A[A-Z]{2}\d{2}(?: ?[A-Z0-9]){0,31}\Z"))
def test_an_account_is_found_up_to_where_its_checksum_holds(text: str) -> None:
    """As by its definition: each end in turn, the longest first."""
    found = 0
    for end in sorted({len(text), *(n for n, sign in enumerate(text) if sign == " ")}, reverse=True):
        account = text[:end].replace(" ", "")
        turned = "".join(str(int(sign, 36)) for sign in account[4:] + account[:4])
        if not found and len(account) in IBAN_LENGTHS and int(turned) % 97 == 1:
            found = end
    assert iban_length(text) == found
    whole = f"{text[:2]}00{text[4:]}"
    value = int("".join(str(int(sign, 36)) for sign in (whole[4:] + whole[:4]).replace(" ", ""))) % 97
    valid = f"{text[:2]}{98 - value:02}{text[4:]}"
    assert iban_length(valid) == len(valid) or len(valid.replace(" ", "")) not in IBAN_LENGTHS


def test_codes_that_look_like_accounts_take_no_longer_than_numbers_that_look_like_cards() -> None:
    """Each may begin one, and each blank may end it."""

    def calls(rule: str, text: str) -> int:
        return calls_of(lambda: [list(each.spans(text)) for each in BUILT_IN[rule]])

    assert calls("iban", "AB12 " * 500) < 2 * calls("card", "4111 " * 500)
