"""Numbers as spreadsheet programs show them; the forms are those that Excel gives for the same code and value."""

import pytest

from gateway.documents.xlsx import BUILT_IN, NumberFormat, _number
from tests.support.growth import is_linear


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ("0%", 0.25, "25%"),
        ("0%", 0.2537, "25% (0.2537)"),
        ("0.00%", 1.5, "150.00%"),
        ("0.0#%", 0.1234, "12.34%"),
        ("#,##0", 1234567, "1,234,567"),
        ("#,##0", 12, "12"),
        ("#,##0.00", 1234.5, "1,234.50"),
        ("#,##0.00", 0.1 + 0.2, "0.30"),
        ("#,##0.00", 1234.567, "1,234.57 (1234.567)"),
        ("0.00", 1.005, "1.01 (1.005)"),
        ("$#,##0.00", -1234.5, "-$1,234.50"),
        ("$#,##0.00_);[Red]($#,##0.00)", -1234.5, "($1,234.50)"),
        ("[$€-407] #,##0.00", 1234.5, "€ 1,234.50"),
        ('#,##0.00\\ "€"', -7, "-7.00 €"),
        ("[$CHF-807] #,##0", 5000, "CHF 5,000"),
        ("[$-409]0.0", 2.5, "2.5"),
        ('_(* #,##0.00_);_(* \\(#,##0.00\\);_(* "-"??_);_(@_)', -1234, "(1,234.00)"),
        ('_(* #,##0.00_);_(* \\(#,##0.00\\);_(* "-"??_);_(@_)', 0, "-"),
        ('_-* #,##0.00\\ "€"_-;\\-* #,##0.00\\ "€"_-;_-* "-"??\\ "€"_-;_-@_-', -3.5, "-3.50 €"),
        ('0 "pcs"', 12, "12 pcs"),
        ('"Q"0', 3, "Q3"),
        ("General\\ \\k\\g", 7.25, "7.25 kg"),
        ("General;(General)", -7, "(7)"),
        ("00000", 1234, "01234"),
        ("000-00-0000", 123456789, "123-45-6789"),
        ("(000) 000-0000", 5551234567, "(555) 123-4567"),
        ("#,##0,", 1234567, "1,235 (1234567)"),
        ('0.0,,"M"', 1200000, "1.2M"),
        ('#,##0,.0"k"', 12500, "12.5k"),
        ("0.00E+00", 12345, "1.23E+04 (12345)"),
        ("0.0E+0", 0.0015, "1.5E-3"),
        ("##0.0E+0", 12300, "12.3E+3"),
        ("0E+0", 9.7, "1E+1 (9.7)"),
        ("# ?/?", 2.5, "2 1/2"),
        ("# ??/??", 0.3333333, "1/3 (0.3333333)"),
        ("# ?/8", 1.25, "1 2/8"),
        ("?/?", 1.5, "3/2"),
        ("# ?/?", 0, "0"),
        ("#.##", 0.5, ".5"),
        ("0.##", 5, "5"),
        ('[<1]0.00%;[>=1]0"x"', 2, "2x"),
        ('[<1]0.00%;[>=1]0"x"', 0.5, "50.00%"),
        ('[=1]"yes";[=0]"no";0', 1, "yes (1)"),
        ('0;-0;"none"', 0, "none (0)"),
        ('"hidden";;', -4, "-4"),
        ("0" + "%" * 200, 0.5, "0.5"),
        ("0.00", 1e20, "1e+20"),
        ("0.00", float("inf"), "inf"),
    ],
)
def test_s14_10_a_number_is_read_as_its_cell_shows_it(code: str, value: float, shown: str) -> None:
    """The raw number stands behind it where the cell rounds, or shows none."""
    found = NumberFormat.of(code)
    assert found is not None
    assert found.number(value, _number(float(value))) == shown


@pytest.mark.parametrize("code", ["General", "@", "", ";;;", "yyyy-mm-dd", "[h]:mm", "d/m/yy h:mm AM/PM", "0" * 600])
def test_codes_of_dates_text_and_nothing_are_none(code: str) -> None:
    assert NumberFormat.of(code) is None


def test_text_has_its_section() -> None:
    found = NumberFormat.of('0;-0;0;"Ref: "@')
    accounting = NumberFormat.of(BUILT_IN[44] + ";_(@_)")
    assert found is not None
    assert accounting is not None
    assert (found.text("A7"), accounting.text(" A7")) == ("Ref: A7", " A7")


@pytest.mark.parametrize("piece", ['"', "[", "\\", "[$", "0,", "?/", "0E+", "%", "#.", "[<1]", ";0", "_", '"x"'])
def test_s12_16_a_code_made_to_take_long_takes_none(piece: str) -> None:
    def show(length: int) -> None:
        for _ in range(20):
            found = NumberFormat.of((piece * length)[:length])
            for value in (0.0, -1.5, 1e-300, 123456789012345.0) if found else ():
                assert isinstance(found.number(value, "raw") if found else "", str)

    assert is_linear(show, 500)
