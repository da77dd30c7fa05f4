"""Data of all forms: CSV as Excel writes it, Parquet, SQLite, YAML, JSON lines, XML."""

import csv
import io
import json
import sqlite3
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

import yaml

from evals.corpus import flat
from evals.corpus.facts import Fact, Place
from evals.corpus.samples import Sample

HEAD, ROWS = flat.stock(51)


def samples() -> list[Sample]:
    """The same rows in each form."""
    return [sheet(), parquet(), database(), yaml_list(), json_lines(), xml()]


def asked(kind: str, place: Place | None = None, rows: tuple[int, ...] = (141, 75, 148)) -> tuple[Fact, ...]:
    """Questions for values by another value of the same record."""
    return tuple(Fact(kind, f"On which shelf is the {ROWS[i][0]}?", ROWS[i][1], place) for i in rows)


def sheet() -> Sample:
    """As a German Excel writes it: semicolons, CRLF, CP1252, decimal commas."""
    out = io.StringIO()
    table = csv.writer(out, delimiter=";", lineterminator="\r\n")
    table.writerow(["Gerät", "Regal", "Gezählt", "Preis", "Tag"])
    table.writerows([row[0], row[1], row[2], row[3].replace(".", ","), row[4]] for row in ROWS)
    return Sample("lager.csv", "text/csv", out.getvalue().encode("cp1252"), asked("cell"))


def parquet() -> Sample:
    """A sample is shown of the rows: the last ones are asked for."""
    import pyarrow
    from pyarrow import parquet as files

    columns = {name: [row[i] for row in ROWS] for i, name in enumerate(HEAD)}
    out = io.BytesIO()
    files.write_table(pyarrow.table(columns), out)
    return Sample("stock.parquet", "application/vnd.apache.parquet", out.getvalue(), asked("record", rows=(148, 149)))


def database() -> Sample:
    """Two tables; the second has few rows, so that a sample holds all of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stock.sqlite"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE movements (article TEXT, shelf TEXT, counted INTEGER, price REAL, day TEXT)")
        connection.executemany(
            "INSERT INTO movements VALUES (?,?,?,?,?)", [[f"moved {row[0]}", "-", *row[2:]] for row in ROWS * 4]
        )
        connection.execute("CREATE TABLE stock (article TEXT PRIMARY KEY, shelf TEXT NOT NULL)")
        connection.executemany("INSERT INTO stock VALUES (?,?)", [row[:2] for row in ROWS[-12:]])
        connection.commit()
        connection.close()
        raw = path.read_bytes()
    return Sample(
        "stock.sqlite", "application/vnd.sqlite3", raw, asked("record", Place("table", "stock"), rows=(148, 147))
    )


def records() -> list[dict[str, str]]:
    """A record for each row."""
    return [dict(zip(map(str.lower, HEAD), row, strict=True)) for row in ROWS]


def yaml_list() -> Sample:
    """A list of records under a key."""
    raw = yaml.safe_dump({"stock": records()}, sort_keys=False).encode()
    return Sample("stock.yaml", "application/yaml", raw, asked("record"))


def json_lines() -> Sample:
    """One record a line."""
    raw = "".join(json.dumps(record) + "\n" for record in records()).encode()
    return Sample("stock.jsonl", "application/x-ndjson", raw, asked("record"))


def xml() -> Sample:
    """Elements with attributes, in UTF-16."""
    parts = [
        f'  <article name="{escape(r["article"])}" day="{r["day"]}">\n    <shelf>{r["shelf"]}</shelf>\n'
        f"    <counted>{r['counted']}</counted>\n  </article>\n"
        for r in records()
    ]
    text = f'<?xml version="1.0" encoding="UTF-16"?>\n<stock>\n{"".join(parts)}</stock>\n'
    return Sample("stock.xml", "application/xml", text.encode("utf-16"), asked("record"))
