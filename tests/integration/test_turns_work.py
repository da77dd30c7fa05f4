"""What a turn of a long conversation costs the database, where what was forwarded is frozen (guarantee §4 I7)."""

import statistics
from collections.abc import Iterator

import pytest

from benchmarks.history.databases import Sqlite, Work
from benchmarks.history.forms import FORMS, Form
from benchmarks.history.talk import Client, Talk, answering
from benchmarks.servers import gateway_config
from tests.support.documents import prompt_tokens
from tests.support.mock_upstream import MockUpstream

SHORT, LONG = 20, 160
GROWN, MEASURED = 10, 5
"""Turns by which the long one has grown since it was told, each of which may leave a frame; and turns measured."""


COUNTED = [form for form in FORMS if form.name in ("id", "session", "agent-id", "agent-id-all", "agent-all")]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Sqlite]]:
    """A client of a gateway whose work is counted, and the database where it is."""
    folder = tmp_path_factory.mktemp("counted")
    database = Sqlite(folder)
    with MockUpstream() as upstream:
        upstream.handler, upstream.strict, upstream.count_prompt = answering, False, prompt_tokens
        config = gateway_config(int(upstream.url.rpartition(":")[2]), store=True)
        config["storage"] = {"url": database.url}
        config["context"] = {**config.get("context", {}), "recall_bytes": 0}  # a read of its own, bounded by itself
        with database.counting(config, folder) as gateway:
            client = Client(gateway.port)
            yield client, database
            client.close()


OFTEN = ("id",)
"""New messages alone; the others are `make chaos`'s."""


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, id=form.name, marks=[] if form.name in OFTEN else pytest.mark.chaos) for form in COUNTED],
)
def test_s4_i7_a_turn_reads_and_writes_no_more_however_long_the_conversation(
    form: Form, counted: tuple[Client, Sqlite]
) -> None:
    """By id, by session and sent again, at 20 and at 160 messages: as many statements, rows and bytes."""
    client, database = counted
    own = 2 * COUNTED.index(form)
    short, long = Talk(form, own + 1), Talk(form, own + 2)
    short.begin(client, SHORT, at_once=False)
    long.begin(client, LONG)
    for _ in range(GROWN):
        long.turn(client)
    few, many = (_work(talk, client, database) for talk in (short, long))
    if many.statements > few.statements:  # on a slow machine what is done by the second falls into most turns of one
        few, many = (_work(talk, client, database) for talk in (short, long))
    assert 0 < many.statements <= few.statements
    assert many.rows <= 1.2 * few.rows
    assert many.written <= 1.3 * few.written


def _work(talk: Talk, client: Client, database: Sqlite) -> Work:
    """The median of what turns cost."""
    found, before = [], database.work()
    for _ in range(MEASURED):
        talk.turn(client)
        after = database.work()
        found.append(after - before)
        before = after
    names = ("rows", "steps", "written", "statements")
    return Work(*(round(statistics.median(getattr(each, name) for each in found)) for name in names))
