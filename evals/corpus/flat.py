"""What LibreOffice and pandoc are given to write files from: flat OpenDocument and Markdown."""

from datetime import date, timedelta
from html import escape

from evals.corpus.facts import Fact, Place, Section, late, sections
from tests.support.documents import prose

NAMES = {
    "office": "office:1.0",
    "style": "style:1.0",
    "text": "text:1.0",
    "table": "table:1.0",
    "draw": "drawing:1.0",
    "presentation": "presentation:1.0",
    "fo": "xsl-fo-compatible:1.0",
    "svg": "svg-compatible:1.0",
    "number": "datastyle:1.0",
}
SPACES = " ".join(f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}"' for short, long in NAMES.items())
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<office:document {} office:version="1.2" office:mimetype="{}">'
KIND = "application/vnd.oasis.opendocument."
BREAK = (
    '<office:automatic-styles><style:style style:name="B" style:family="paragraph" '
    'style:parent-style-name="Heading_20_1"><style:paragraph-properties fo:break-before="page"/></style:style>'
    "</office:automatic-styles>"
)
DAYS = (
    '<office:automatic-styles><number:date-style style:name="N1"><number:day number:style="long"/><number:text>.'
    '</number:text><number:month number:style="long"/><number:text>.</number:text><number:year number:style="long"/>'
    '</number:date-style><style:style style:name="D" style:family="table-cell" style:data-style-name="N1"/>'
    "</office:automatic-styles>"
)
"""Days are shown as 01.05.2024, and are stored as numbers in some formats."""
GOODS = ("kettle", "lantern", "pump", "stool", "barrel", "blanket", "fan", "pan", "ladder", "bench")


def writer(seed: int) -> tuple[str, list[Section]]:
    """A text of twelve pages, a section on each; the ninth has a table."""
    told = sections(seed, 12)
    parts = []
    for number, each in enumerate(told):
        table = _text_table() if number == 8 else ""
        parts.append(
            f'<text:h text:style-name="B" text:outline-level="1">{each.title}</text:h>'
            f"<text:p>{each.before}</text:p><text:p>{each.sentence}</text:p>{table}<text:p>{each.after}</text:p>"
        )
    head = HEAD.format(SPACES, KIND + "text")
    body = f"<office:body><office:text>{''.join(parts)}</office:text></office:body></office:document>"
    return f"{head}{BREAK}{body}", told


def _text_table() -> str:
    rows = "".join(
        f"<table:table-row>{''.join(f'<table:table-cell><text:p>{cell}</text:p></table:table-cell>' for cell in row)}"
        "</table:table-row>"
        for row in (("Lamp", "Oil"), ("north", "colza"), ("south", "whale"))
    )
    return (
        f'<table:table table:name="Lamps"><table:table-column table:number-columns-repeated="2"/>{rows}</table:table>'
    )


def stock(seed: int) -> tuple[list[str], list[list[str]]]:
    """Heading and 150 rows: article, shelf, counted, price, day; the shelf of an article stands in its row alone."""
    rows = []
    for i in range(150):
        shelf, day = f"S{(i * 37 + seed) % 900 + 100}-{i}", date(2024, 1, 1) + timedelta(days=i)
        rows.append([f"{GOODS[i % 10]} {i + 200}", shelf, str(i * 3 % 97), f"{i * 7 % 50}.25", day.isoformat()])
    return ["Article", "Shelf", "Counted", "Price", "Day"], rows


SHEETS = ("Intro", "Stock", "Second hand")


def stock_facts(sheet: str, rows: list[list[str]], first_row: int = 2) -> list[Fact]:
    """Questions for cells by their row's label; `first_row`: where the rows begin in the sheet."""
    return [
        Fact("cell", f"On which shelf is the {rows[i][0]}?", rows[i][1], Place("sheet", sheet, i + first_row))
        for i in (141, 75, 148)
    ]


def day_fact(sheet: str, rows: list[list[str]], first_row: int = 2) -> Fact:
    """A question for a day, which is read in one form whatever the file shows."""
    return Fact(
        "day", f"On which day was the {rows[132][0]} counted?", rows[132][4], Place("sheet", sheet, 132 + first_row)
    )


def calc(seed: int) -> tuple[str, list[Fact]]:
    """Three sheets: a note, and two of stock, of which the last one is asked for."""
    notes = "".join(_row([line]) for line in prose(seed, 300).split(". "))
    sheets = [f'<table:table table:name="{SHEETS[0]}">{notes}</table:table>']
    facts: list[Fact] = []
    for number, name in enumerate(SHEETS[1:]):
        head, rows = stock(seed + number)
        if number:
            rows = [[row[0].replace(" ", " old "), *row[1:4], row[4].replace("2024", "2023")] for row in rows]
        cells = "".join(_row(row, typed=True) for row in rows)
        sheets.append(f'<table:table table:name="{name}">{_row(head)}{cells}</table:table>')
        facts = [*stock_facts(name, rows), day_fact(name, rows)]
    head_ = HEAD.format(SPACES, KIND + "spreadsheet") + DAYS
    body = f"<office:body><office:spreadsheet>{''.join(sheets)}</office:spreadsheet></office:body></office:document>"
    return head_ + body, facts


def _row(values: list[str], *, typed: bool = False) -> str:
    return f"<table:table-row>{''.join(_cell(value, typed=typed) for value in values)}</table:table-row>"


def _cell(value: str, *, typed: bool) -> str:
    kind = 'office:value-type="string"'
    if typed and value.replace(".", "").isdigit():
        kind = f'office:value-type="float" office:value="{value}"'
    elif typed and len(value) == 10 and value[4] == value[7] == "-":
        kind = f'table:style-name="D" office:value-type="date" office:date-value="{value}"'
    return f"<table:table-cell {kind}><text:p>{escape(value)}</text:p></table:table-cell>"


def impress(seed: int) -> tuple[str, list[Section]]:
    """Eighteen slides: a title, three bullets, notes."""
    told = sections(seed, 18, 120)
    pages = []
    for number, each in enumerate(told, 1):
        bullets = "".join(f"<text:p>{part}</text:p>" for part in (each.before, each.sentence, each.after))
        notes = f"Say this slowly, for the hall of slide {number} is large."
        pages.append(
            f'<draw:page draw:name="Slide{number}" draw:master-page-name="Default">'
            f"{_frame('title', 1, f'<text:p>{each.title}</text:p>')}{_frame('outline', 5, bullets)}"
            f"<presentation:notes>{_frame('notes', 14, f'<text:p>{notes}</text:p>')}</presentation:notes></draw:page>"
        )
    layout = (
        '<office:automatic-styles><style:page-layout style:name="PM"><style:page-layout-properties '
        'fo:page-width="28cm" fo:page-height="21cm"/></style:page-layout></office:automatic-styles>'
        '<office:master-styles><style:master-page style:name="Default" style:page-layout-name="PM"/>'
        "</office:master-styles>"
    )
    body = f"<office:body><office:presentation>{''.join(pages)}</office:presentation></office:body></office:document>"
    return HEAD.format(SPACES, KIND + "presentation") + layout + body, told


def _frame(kind: str, top: int, inside: str) -> str:
    size = f'svg:width="25cm" svg:height="8cm" svg:x="1cm" svg:y="{top}cm"'
    return f'<draw:frame presentation:class="{kind}" {size}><draw:text-box>{inside}</draw:text-box></draw:frame>'


def markdown(seed: int) -> tuple[str, list[Section]]:
    """Twelve chapters for pandoc, in one of them a table, in another code."""
    told = sections(seed, 12)
    return "---\ntitle: Keepers\n---\n\n" + "\n".join(chapters(told)), told


def chapters(told: list[Section]) -> list[str]:
    """Each section as a chapter of Markdown."""
    extra = {3: "| Lamp | Oil |\n|---|---|\n| north | colza |\n", 6: "```python\nlamp = 'lit'\n```\n"}
    return [
        f"# {each.title}\n\n{each.before}\n\n{each.sentence}\n\n{extra.get(number, '')}\n{each.after}\n"
        for number, each in enumerate(told)
    ]


def asked(told: list[Section], kind: str, place: str | None = None) -> list[Fact]:
    """The late sections' facts, at the place of the section's number."""
    places = {i: Place(place, str(i + 1)) if place else None for i in late(len(told))}
    return [told[i].fact(kind, places[i]) for i in sorted(places, reverse=True)]
