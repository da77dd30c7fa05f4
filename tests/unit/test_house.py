"""The house stays livable: rooms of a size to live in, and few files in the root (ADR 1). `make house` prints more."""

import functools

from tests.house.measure import House, measure

SMALL_WITH_REASON = {
    "__main__.py": "`python -m gateway`",
    "accounting/cost_table.py": "sums as CSV and JSON: written by a command and by the page alike",
    "storage/database/files.py": "tables of files, apart from those of conversations",
    "http/openapi/files.py": "schemas of files",
    "base/clock.py": "the one clock, passed in everywhere",
    "base/ids.py": "ids and digests",
    "base/names.py": "names in messages, credentials among them: asked by the edge, the settings and the routes",
    "base/tasks.py": "background tasks and threads",
    "operations/files/options.py": "arguments: read before anything of the command is loaded",
    "http/files/ranges.py": "HTTP's words for a range",
    "documents/legacy.py": "formats that are told and not read",
    "documents/picture.py": "one kind of document, read by a program",
    "documents/rtf.py": "one format, read by a library",
    "documents/subtitles.py": "one kind of document, as each reader",
    "errors/access.py": "keys, budgets and limits",
    "base/printing.py": "figures and CSV: written by commands and by the page alike",
    "models/large.py": "large documents as the steps see them",
    "models/repeats.py": "documents that came more than once, as context and window see them",
    "storage/database/large.py": "the tables of large documents, apart as those of files are",
    "context/repeated.py": "which documents came more than once, as the window is told",
    "context/large_documents.py": "the question of a request, for which large documents are read",
    "relevance/stored/read.py": "reads large documents for a question: for the context, `recall` and the past alike",
    "config/allowances.py": "budgets and limits, of keys and of settings alike",
    "config/exposure.py": "where a server with an operator's key may listen: asked by `serve` and by `check`",
    "guards/wiring.py": "guards and masking as they are wired, loaded where they are configured",
    "http/conversations/items.py": "what the Conversations API asks of items beyond what wire/ reads",
    "http/conversations/transfer.py": "conversations as documents, two small endpoints",
    "http/cors.py": "which pages of other origins may be clients",
    "http/near.py": "whether this machine or another site asks: for the page and the MCP server",
    "http/openapi/document.py": "two small endpoints that nothing else needs",
    "http/openapi/responses.py": "schemas of one API, beside the others that are large already",
    "http/openapi/things.py": "schemas of one API, beside the others that are large already",
    "http/responses/references.py": "what an item refers to: asked on create and by compaction",
    "http/responses/routes.py": "the list of paths of one API, which `routes.py` has no room for",
    "http/ui/routes.py": "the list of pages, which each of them is added to",
    "assembly/own_files.py": "files in the place of their ids, at the very last: pure",
    "models/guarding.py": "for whom models are called: asked by guards and by what calls models",
    "models/keys.py": "what is known of a key of ours",
    "models/internal.py": "what goes to internal models and comes back",
    "operations/storage_upkeep.py": "what a process does for its storage beside requests, started by `app.py`",
    "planning/resting.py": "when a planner rests, the one thing of planning that is kept in the cache beside summaries",
    "relevance/topics.py": "reads a data file",
    "operations/actor.py": "who runs a command: asked by each that changes or shows something",
    "http/openapi/trail.py": "schemas of one API, beside the others that are large already",
    "http/ui/seen.py": "which pages were seen, for the trail",
    "operations/reading.py": "how each command that only looks opens the storage",
    "operations/show/reasons.py": "codes in words, beside what is written with them",
    "storage/calibrations.py": "one table of its own",
    "storage/reports/parts.py": "how each list is read in parts",
    "tokens/estimate.py": "samples of long texts: pure, beside the counter that is large already",
    "upstream/routing/faults.py": "what an error says of a deployment: pure, beside its health",
    "upstream/routing/probes.py": "what runs beside requests, started by `app.py`",
    "upstream/routing/minute.py": "a window of a minute, for limits and failures alike",
    "upstream/litellm/rehearsal.py": "a call that goes nowhere, beside the provider's that it is made with",
    "storage/turns/questions.py": "how a conversation begins: asked by the commit, by deletion, and of older bills",
    "storage/secret.py": "the key of keyed hashes and what is made with it: asked by the store, the ledger and purges",
    "wire/responses/namespaces.py": "names of tools in one piece and apart: asked by reading and by wording",
    "wire/anthropic/faults.py": "errors in Anthropic's shape: asked by the outer edge and by streams",
    "storage/lookup/walk.py": "the query that nine others are made of",
}


@functools.cache
def house() -> House:
    return measure()


def test_the_root_holds_what_a_newcomer_looks_for_first() -> None:
    assert house().root <= 8


def test_no_module_is_a_hall_and_each_closet_has_a_reason() -> None:
    assert not house().halls
    assert house().closets.keys() <= SMALL_WITH_REASON.keys()
