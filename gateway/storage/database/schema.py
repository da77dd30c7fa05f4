"""The tables. `migrations/` brings a database to exactly this shape (a test compares both).

Money is kept in whole picodollars (1e-12 USD): exact in both databases, and sums stay exact in SQL.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy import text as sa_text
from sqlalchemy.schema import SchemaItem

from gateway.storage.encryption.columns import SealedText, WithheldText

NOT_YET = "rolled_up IS NULL"
NOT_COMPLETE = "status <> 'complete'"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


def index_where(name: str, *columns: str, where: str) -> Index:
    """Returns a partial index: rows outside it cost nothing. Only migrations create it, with the same condition for
    PostgreSQL; stated here, that would load its dialect whenever a command starts."""
    return Index(name, *columns, sqlite_where=sa_text(where))


def sum_columns(*names: str) -> list[Column[int]]:
    """Returns columns for counts and for money; NULL where nothing was added yet."""
    return [Column(name, BigInteger) for name in names]


SORTED_FIGURES = ("known_cost_picousd", "net_saving_picousd", "total_ms")
"""Figures by which requests are sorted."""
COVERED_COLUMNS = ("status", "model", *SORTED_FIGURES)
"""Columns that an index covers beside its key, so that requests are filtered and sorted without being read."""


def amounts_of(kind: str, column: str) -> Index:
    """Returns an index that sorts some requests by an amount without reading them, for one tenant or all."""
    columns = (column, "created_at", "request_id", "tenant", *COVERED_COLUMNS)
    return index_where(f"ix_ledger_amounts_of_{kind}", *columns, where=f"{column} IS NOT NULL")


# The tables of what was spent, and of who may see it.

ledger = table(
    "ledger",
    Column("request_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("conversation_id", String(64)),
    Column("completion_id", String(64)),
    Column("model", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("error_code", Text),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("total_cost_picousd", BigInteger),
    Column("estimated", Boolean, nullable=False),
    Column("response_metadata", SealedText("ledger.response_metadata", row="request_id"), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("end_user", String(256)),
    Column("agent", Text),
    Column("endpoint", String(32)),
    Column("key_id", String(64)),
    Column("project", String(128)),
    *sum_columns("cached_tokens", "cache_write_tokens"),
    *sum_columns("known_cost_picousd", "planning_cost_picousd", "planning_unpriced", "saved_picousd"),
    *sum_columns("direct_cost_picousd", "net_saving_picousd"),
    Column("held_out", Boolean),
    *sum_columns("bounced_tokens", "bounced_cost_picousd"),
    Column("rolled_up", Boolean),
    Column("http_status", Integer),
    Column("total_ms", BigInteger),
    Column("failure", SealedText("ledger.failure", row="request_id")),
    UniqueConstraint("completion_id"),
    Index(None, "tenant", "conversation_id", "created_at"),
    Index("ix_ledger_amounts_of_time", "created_at", "request_id", "tenant", *COVERED_COLUMNS),
    Index("ix_ledger_amounts_of_tenant", "tenant", "created_at", "request_id", *COVERED_COLUMNS),
    Index(None, "model", "created_at"),
    amounts_of("user", "end_user"),
    amounts_of("key", "key_id"),
    index_where("ix_ledger_agent_created_at", "agent", "created_at", where="agent IS NOT NULL"),
    index_where("ix_ledger_endpoint_created_at", "endpoint", "created_at", where="endpoint IS NOT NULL"),
    index_where("ix_ledger_not_complete", "status", "created_at", where=NOT_COMPLETE),
    index_where("ix_ledger_not_rolled_up", "request_id", where=NOT_YET),
    *(
        index_where(f"ix_ledger_{name}_request_id", name, "request_id", where=f"{name} IS NOT NULL")
        for name in SORTED_FIGURES
    ),
)
"""One row for each request that called a model. `endpoint`: NULL for chat completions, else the API that was called.
`key_id`, `project`: of the calling key. `known_cost_picousd`: of the calls that have a price, NULL if none has;
`total_cost_picousd`: NULL if any call has none. `direct_cost_picousd`, `net_saving_picousd`: NULL where the cost of the
client's own request is unknown. `held_out`: true if its conversation goes direct while others are economised, false if
it is one of those others; NULL where nothing is compared. `bounced_tokens` and `bounced_cost_picousd`: of results that
were read again soon after they had been cut. `planning_unpriced`: calls of internal models without a price.
`rolled_up`: the row is counted in `usage_days` and in its conversation's sums; NULL if an older version wrote it.
`http_status`: of an error returned instead of an answer, else NULL. `total_ms`: from arrival to end. `failure`: how the
request failed and which tries did, as JSON; it is content, and is deleted with the conversation."""

ledger_calls = table(
    "ledger_calls",
    Column("request_id", ForeignKey("ledger.request_id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("purpose", String(32), nullable=False),
    Column("model", Text, nullable=False),
    Column("usage", Text, nullable=False),
    Column("rates", Text, nullable=False),
    Column("prompt_cost_picousd", BigInteger),
    Column("completion_cost_picousd", BigInteger),
    Column("estimated", Boolean, nullable=False),
)

usage_days = table(
    "usage_days",
    Column("day", Date, primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("model", Text, nullable=False),
    Column("key_id", String(64)),
    Column("project", String(128)),
    Column("end_user", String(256)),
    Column("agent", Text),
    Column("endpoint", String(32)),
    *sum_columns("requests", "partial", "failed", "prompt_tokens", "completion_tokens"),
    *sum_columns("cached_tokens", "cache_write_tokens"),
    *sum_columns("cost_picousd", "priced", "unpriced", "planning_cost_picousd", "planning_unpriced"),
    *sum_columns("estimated", "saved_picousd", "metered", "direct_cost_picousd", "net_saving_picousd"),
    *sum_columns("held_out_requests", "held_out_cost_picousd", "economised_requests", "economised_cost_picousd"),
    *sum_columns("bounced_tokens", "bounced_cost_picousd"),
    Index(None, "tenant", "day"),
    index_where("ix_usage_days_key_id_day", "key_id", "day", where="key_id IS NOT NULL"),
    index_where("ix_usage_days_project_day", "project", "day", where="project IS NOT NULL"),
    index_where("ix_usage_days_end_user_day", "tenant", "end_user", "day", where="end_user IS NOT NULL"),
    Index(None, "model", "day"),
    sqlite_with_rowid=False,
)
"""Daily roll-ups of the ledger, by the day (UTC) on which requests came and by who asked for what. `digest` names these
and a shard: processes add to rows of their own, so that they do not wait for each other. The day comes first in the
key, so that SQLite reads adjacent rows for a range of days. `cost_picousd`: of the calls that have a price; `priced`:
requests with at least one such call, `unpriced`: with at least one call without a price. `metered`: requests with a
known direct cost; only these are in the direct cost and the net saving."""

ui_sessions = table(
    "ui_sessions",
    Column("digest", LargeBinary, primary_key=True),
    Column("key_id", String(64), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    Column("revoked_at", DateTime(timezone=True)),
    sqlite_with_rowid=False,
)
"""Who is logged in to the web UI, by the keyed digest of the cookie. The key decides what may be seen; its sessions end
with it."""

# The tables of files that clients upload (guarantee §14.5).

files = table(
    "files",
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("key_id", String(64)),
    Column("name", SealedText("files.name"), nullable=False),
    Column("purpose", String(64), nullable=False),
    Column("media_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("status", String(16), nullable=False),
    Column("status_details", Text),
    Column("progress", Float),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Index(None, "tenant", "created_at", "id"),
    Index(None, "tenant", "digest"),
    Index(None, "expires_at"),
    index_where("ix_files_created_at", "created_at", where="status = 'uploaded'"),
)
"""`digest`: SHA-256 of the file's content. `status`: `uploaded`, `processed` after it was read, or `error`, explained
by `status_details`. `progress`: the part that is read, as a fraction of 1."""

file_contents = table(
    "file_contents",
    Column("tenant", String(128), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("place", String(16), nullable=False),
    Column("object", String(128), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index(None, "object"),
    sqlite_with_rowid=False,
)
"""Contents, one row per tenant however many files share it. `place`: `database`, `disk` or `s3`. `object`: its name
there; no name is used twice, so that a deletion never hits what another upload just stored."""

file_chunks = table(
    "file_chunks",
    Column("object", String(128), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""Contents in the database, in pieces; sealed where `storage.encryption_key` is set."""

# The tables of large documents: texts in regions, indexes of their words (guarantee §14.7).

large_documents = table(
    "large_documents",
    Column("tenant", String(128), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("chars", BigInteger, nullable=False),
    Column("regions", Integer, nullable=False),
    Column("indexed", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("holder", String(64)),
    Column("held_until", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index(None, "status"),
)
"""One row per tenant, however many conversations hold the document; it is deleted with the last of them. `indexed`: how
many regions are indexed. `status`: `building`, `ready`, or `failed` if no more will be indexed. `holder`: the process
that builds the index, until `held_until`."""

document_regions = table(
    "document_regions",
    Column("tenant", String(128), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("start", BigInteger, nullable=False),
    Column("place", SealedText("document_regions.place", row="digest"), nullable=False),
    Column("text", SealedText("document_regions.text", row="digest"), nullable=False),
    ForeignKeyConstraint(
        ["tenant", "digest"], ["large_documents.tenant", "large_documents.digest"], ondelete="CASCADE"
    ),
)
"""`place`: where the region is in the document, as `TextRegion.where` renders it."""

document_postings = table(
    "document_postings",
    Column("tenant", String(128), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("bucket", Integer, primary_key=True),
    Column("segment", Integer, primary_key=True),
    Column("data", SealedText("document_postings.data", row="digest"), nullable=False),
    ForeignKeyConstraint(
        ["tenant", "digest"], ["large_documents.tenant", "large_documents.digest"], ondelete="CASCADE"
    ),
)
"""`data`: a bucket of `retrieval.stored.postings` in base 64; word frequencies reveal a text, so they are sealed like
one."""


# The tables of keys made at runtime, of what they may spend and ask, and of what administrators did (part of
# `schema`).

api_keys = table(
    "api_keys",
    Column("id", String(64), primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("previous_digest", LargeBinary, unique=True),
    Column("previous_until", DateTime(timezone=True)),
    Column("hint", String(16), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("name", String(128)),
    Column("owner", String(256)),
    Column("project", String(128)),
    Column("policy", Text, nullable=False),
    Column("created_by", String(64)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("rotated_at", DateTime(timezone=True)),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Index(None, "tenant", "created_at"),
    Index(None, "created_at"),
)
"""Keys made at runtime. `digest`: keyed, of the whole key; `previous_digest`: of the one before the last rotation,
which stays valid until `previous_until`. `hint`: its last characters, for people. `policy`: all fields of the key, as
JSON; those that lists filter by have columns, too. `created_by`: the id of the key that made it; NULL: a command."""

budget_leases = table(
    "budget_leases",
    Column("holder", LargeBinary, primary_key=True),
    Column("period_start", Date, primary_key=True),
    Column("process", String(64), primary_key=True),
    Column("amount_picousd", BigInteger, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""What processes may still spend of a hard budget without asking again (ADR 28). `holder`: a digest of whose budget it
is and of its period."""

rate_counters = table(
    "rate_counters",
    Column("key", LargeBinary, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""Counts of a minute, where there is PostgreSQL and no Valkey. `expires_at`: seconds since 1970."""

rate_slots = table(
    "rate_slots",
    Column("key", LargeBinary, primary_key=True),
    Column("request_id", String(64), primary_key=True),
    Column("expires_at", Float, nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""Requests under way that count against a limit of requests at once, where there is PostgreSQL and no Valkey."""

admin_events = table(
    "admin_events",
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("actor", String(64)),
    Column("actor_name", String(256)),
    Column("tenant", String(128)),
    Column("action", String(64), nullable=False),
    Column("object", Text),
    Column("ok", Boolean, nullable=False),
    Column("details", Text, nullable=False),
    Column("previous_digest", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Index(None, "at"),
)
"""What administrators created, changed, saw and deleted; rows are only added. `digest` is keyed, over the row and the
previous digest. `actor`: the id of the key; NULL: a command. `details`: JSON without content or secrets."""


REVISION = "0018"
"""The Alembic revision that this version of the code needs."""
OF_INSTRUCTIONS = "role IN ('system', 'developer')"
"""Selects system messages exactly as their index states it: a query with the same text uses the index."""

secrets = table("secrets", Column("name", String(64), primary_key=True), Column("value", LargeBinary, nullable=False))

conversations = table(
    "conversations",
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("head_id", String(64)),
    Column("attachments", Integer, nullable=False, default=0),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("metadata", SealedText("conversations.metadata")),
    Column("instructions_digest", String(64)),
    Column("forgotten_at", DateTime(timezone=True)),
    Column("used_until", DateTime(timezone=True)),
    Column("framed", Boolean),
    Column("team_task", SealedText("conversations.team_task")),
    Column("profile", String(32)),
    Column("pins", Integer),
    Column("summarized", Boolean),
    Column("question", SealedText("conversations.question", length=200)),
    Column("question_folded", WithheldText(200)),
    Column("end_user", String(256)),
    Column("model", Text),
    Column("retention_days", Float),
    *sum_columns("requests", "prompt_tokens", "completion_tokens"),
    *sum_columns("cost_picousd", "planning_cost_picousd", "unpriced", "estimated"),
    *sum_columns("metered", "direct_cost_picousd", "net_saving_picousd"),
    Index(None, "tenant", "updated_at"),
    Index(None, "tenant", "created_at"),
    Index(None, "updated_at"),
    index_where("ix_conversations_retention", "retention_days", "updated_at", where="retention_days IS NOT NULL"),
)

"""`instructions_digest`: the system messages in force while there is no message that could name them.
`forgotten_at`: when an item was last deleted, which a request that began earlier may quote. `used_until`: a request is
using the conversation, so it is not deleted as unused; set where it could expire before the request ends. `framed`: it
has frames. `team_task`: what its agents work on together. `profile`: the mode of its prompt profile. `pins`: how many
of its messages are pinned. `summarized`: it has summaries. `question`: how its first user message begins;
`question_folded`: the same text for a search that ignores case; both empty after a user message was deleted.
`end_user`, `model`: of its latest request. `retention_days`: the fewest set by a key that made or continued it. The
sums are over those rows of the ledger that are in the daily roll-ups."""

sessions = table(
    "sessions",
    Column("tenant", String(128), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False, index=True),
)

instructions = table(
    "instructions",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("body", SealedText("instructions.body", row="conversation_id"), nullable=False),
)

messages = table(
    "messages",
    Column("id", String(64), primary_key=True),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False),
    Column("parent_id", String(64)),
    Column("sequence_number", Integer, nullable=False),
    Column("role", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    Column("body", SealedText("messages.body"), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("weight", Integer, nullable=False),
    Column("rendered", SealedText("messages.rendered")),
    Column("standing", SealedText("messages.standing")),
    Column("reasoning_events", SealedText("messages.reasoning_events")),
    Column("instructions_digest", String(64)),
    Column("request_id", String(64), nullable=False, index=True),
    Column("choice", Integer),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("origin", Text),
    Column("path_digest", LargeBinary),
    Column("said_digest", LargeBinary),
    Column("plain", Boolean),
    Column("restored", Boolean),
    Column("tokens", Text),
    Column("agent", Text),
    Column("costs", Text),
    Index(None, "conversation_id", "sequence_number"),
    index_where("ix_messages_instructions", "conversation_id", "sequence_number", where=OF_INSTRUCTIONS),
)
"""`body` is empty where the table `reasoning_events` holds it. The column `reasoning_events` was filled by the previous
version. `restored` has three values. True: what the client does not send is restored in this branch. False: tool calls
of a client that had not proven that the conversation is its own; their ids are no evidence of that (guarantee §3.2).
NULL: neither. `costs`: of an answer, the sums of its branch up to it (guarantee §6)."""

reasoning_events = table(
    "reasoning_events",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("message_id", String(64), primary_key=True),
    Column("call_message_id", String(64)),
    Column("position", Integer),
    Column("tool", Text),
    Column("tool_call_id", Text, nullable=False),
    Column("arguments", SealedText("reasoning_events.arguments", row="message_id")),
    Column("result", SealedText("messages.body", row="message_id")),
    Column("answer_id", String(64)),
    Column("called_at", DateTime(timezone=True)),
    Column("answered_at", DateTime(timezone=True), nullable=False),
    sqlite_with_rowid=False,
)
"""Tool steps, one row each (ADR 19). `message_id`: the message that brought the result, and so its place in the chain.
`result`: that message's body; NULL while an older version may read it: `messages.body`, empty otherwise, holds it then.
The call is number `position` of the message `call_message_id`; NULL where the call is unknown. `answer_id`: the answer
that the step led to."""

message_links = table(
    "message_links",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("message_id", String(64), nullable=False),
    sqlite_with_rowid=False,
)
"""Where a chain of messages ends, by its digest: the chain as it is stored, and as clients send it (ADR 8)."""

chains = table(
    "chains",
    Column("digest", LargeBinary, primary_key=True),
    Column("calls", LargeBinary, primary_key=True),
    Column("conversation_id", String(64), primary_key=True),
    Column("whole", LargeBinary, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    sqlite_with_rowid=False,
)
"""The keyed digests that answered requests leave (guarantee §3.2). They outlive their conversation; without one
(`store: false`) its id is empty. `calls`: digest of the ids of an answer's tool calls, empty without any. `whole`: of
all messages and attachments. `request_id`: the latest request with this answer, `created_at`: its time."""

frames = table(
    "frames",
    Column("id", String(64), primary_key=True),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False),
    Column("model", Text, nullable=False),
    Column("message_id", String(64), nullable=False),
    Column("sequence_number", Integer, nullable=False),
    Column("full", Boolean, nullable=False),
    Column("body", SealedText("frames.body"), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index(None, "conversation_id", "sequence_number"),
)
"""What was forwarded, where the messages themselves do not show it (ADR 12): by the requested model and the last
forwarded message, whose number in its chain is `sequence_number`. `full`: no earlier frame counts."""

pins = table(
    "pins",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("message_id", String(64), primary_key=True),
    sqlite_with_rowid=False,
)
"""Messages that stay in every window (ADR 22)."""

summaries = table(
    "summaries",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("last_message_id", String(64), primary_key=True),
    Column("id", String(64), nullable=False),
    Column("after_message_id", String(64)),
    Column("first_number", Integer, nullable=False),
    Column("last_number", Integer, nullable=False),
    Column("first_turn", Integer, nullable=False),
    Column("last_turn", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    Column("text", SealedText("summaries.text"), nullable=False),
    Column("prompt_version", Integer, nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
"""Summaries of old turns (guarantee §11.13, ADR 23): of the messages with the sequence numbers `first_number` to
`last_number` on the path to `last_message_id`. `after_message_id`: the last message of the previous segment. `size`:
the characters that were summarized. `request_id`: the request whose bill holds the cost."""

replays = table(
    "replays",
    Column("id", String(64), primary_key=True),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("source_id", String(64), nullable=False),
    Column("from_turn", Integer, nullable=False),
    Column("to_turn", Integer, nullable=False),
    Column("asked", SealedText("replays.asked"), nullable=False),
    Column("at_id", String(64)),
    Column("turn", Integer),
    Column("request", Integer),
    Column("used_until", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)
"""Turns of a conversation that are run again on a branch. `source_id`: the last message of the replayed branch.
`asked`: what differs from the original. `at_id`: the last message replayed so far, which is request number `request` of
turn number `turn`; written with that turn. `used_until`: a process is running it until then."""

calibrations = table(
    "calibrations",
    Column("model", String(255), primary_key=True),
    Column("margin", Float, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("saved_per_call", Integer, nullable=False),
    Column("calls_seen", Integer, nullable=False),
    Column("added_per_message", Integer, nullable=False, server_default="0"),
    Column("told_window", Integer),
    Column("told_until", DateTime(timezone=True)),
)
"""By how much a model's own count of tokens differs from the gateway's, as its upstream reported it; and windows that
upstreams reported."""

attachments = table(
    "attachments",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("artifact_id", String(64), nullable=False),
    Column("size", Integer, nullable=False),
    Column("body", SealedText("attachments.body", row="conversation_id"), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("said_digest", LargeBinary),
    Column("file_id", String(64)),
    Column("document", String(64)),
    index_where("ix_attachments_file_id", "file_id", where="file_id IS NOT NULL"),
    index_where("ix_attachments_document", "document", where="document IS NOT NULL"),
)
"""`file_id`: the gateway's file that it was read from; deleting that deletes what conversations hold of it.
`document`: the digest of the large document that holds its text, which `body` lacks then."""

cached_contents = table(
    "cached_contents",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", String(128), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Index(None, "tenant", "digest"),
)
"""Which conversations hold content of which the cache holds something; that is evicted with the last of them."""

things = table(
    "things",
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("place", String(64), nullable=False),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE")),
    Column("type", String(64), nullable=False),
    Column("thing_id", String(256), nullable=False),
    Column("name", SealedText("things.name"), nullable=False),
    Column("aliases", SealedText("things.aliases"), nullable=False),
    Column("action", String(64), nullable=False),
    Column("times", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("mentioned_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    UniqueConstraint("place", "type", "thing_id"),
    Index(None, "place", "id"),
    Index(None, "tenant", "id"),
    Index(None, "tenant", "type", "thing_id"),
    Index(None, "conversation_id"),
    Index(None, "expires_at"),
)
"""What conversations are about (ADR 24): one row for each thing and place. `place`: the conversation's id, or a keyed
digest of a user, whose rows have no conversation."""

thing_aliases = table(
    "thing_aliases",
    Column("memory_id", ForeignKey("things.id", ondelete="CASCADE"), primary_key=True),
    Column("whole", Boolean, primary_key=True),
    Column("alias", String(256), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("place", String(64), nullable=False),
    Column("mentioned_at", DateTime(timezone=True), nullable=False),
    Index(None, "place", "whole", "alias", "mentioned_at", "memory_id"),
    Index(None, "tenant", "whole", "alias", "mentioned_at", "memory_id"),
    sqlite_with_rowid=False,
)
"""The words by which things are found. `whole`: the first words of an alias; else a single word of one."""

imported_requests = table(
    "imported_requests",
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("request_id", String(64), primary_key=True),
    Column("body", SealedText("imported_requests.body", row="request_id"), nullable=False),
)
"""Bills and completions that came with an imported conversation, for information: they were paid elsewhere."""

completions = table(
    "completions",
    Column("request_id", ForeignKey("ledger.request_id", ondelete="CASCADE"), primary_key=True),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("body", SealedText("completions.body", row="request_id"), nullable=False),
    Column("metadata", SealedText("completions.metadata", row="request_id")),
    Column("plan", SealedText("completions.plan", row="request_id")),
)

claims = table(
    "claims",
    Column("tenant", String(128), primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("process", String(64), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
)
"""Requests to be answered only once: by keyed digests of the client's key, and of the body."""

processes = table(
    "processes",
    Column("id", String(64), primary_key=True),
    Column("alive_until", DateTime(timezone=True), nullable=False),
)
"""Gateway processes that hold claims, or ask models; one that is no longer alive holds none."""

open_calls = table(
    "open_calls",
    Column("request_id", String(64), primary_key=True),
    Column("process", String(64), nullable=False, index=True),
    Column("facts", Text, nullable=False),
)
"""Requests that are asking a model: the content of their bill if their process dies. Figures and references only."""

schema_revisions = table(
    "schema_revisions",
    Column("revision", String(32), primary_key=True),
    Column("oldest", String(32), nullable=False),
)
"""For each migration, the oldest revision of the code that may run beside it (ADR 10)."""
