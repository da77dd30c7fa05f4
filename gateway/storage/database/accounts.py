"""The tables of what was spent, and of who may look at it (part of `schema`)."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    ForeignKey,
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

from gateway.storage.encryption.columns import SealedText

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


def index_where(name: str, *columns: str, where: str) -> Index:
    """An index of some of the rows: others cost nothing. Only migrations make it, and say the same for PostgreSQL; said
    here, it would load that dialect whenever a command starts."""
    return Index(name, *columns, sqlite_where=sa_text(where))


def sum_columns(*names: str) -> list[Column[int]]:
    """Columns for counts and for money; NULL where nothing was added yet."""
    return [Column(name, BigInteger) for name in names]


SORTED_FIGURES = ("known_cost_picousd", "net_saving_picousd", "total_ms")
"""By which requests are sorted."""
COVERED_COLUMNS = ("status", "model", *SORTED_FIGURES)
"""What stands in an index beside what it finds, so that no request is read to leave it out or to sort it."""


def amounts_of(kind: str, column: str) -> Index:
    """An index by which some requests are put in the order of an amount without reading them, of any tenant or one."""
    columns = (column, "created_at", "request_id", "tenant", *COVERED_COLUMNS)
    return index_where(f"ix_ledger_amounts_of_{kind}", *columns, where=f"{column} IS NOT NULL")


ledger = Table(
    "ledger",
    metadata,
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
"""One row for each request that called a model. `endpoint`: NULL for chat completions, else which API was asked.
`key_id`, `project`: of the key that asked. `known_cost_picousd`: of the calls that have a price, NULL if none has;
`total_cost_picousd` is NULL as soon as one has none. `direct_cost_picousd`, `net_saving_picousd`: NULL where nobody
knows what the client's own request would have cost. `held_out`: its conversation goes direct while others are
economised (true), or is one of these others (false); NULL where nothing is compared. `bounced_tokens` and
`bounced_cost_picousd`: of results that were read again soon after they had been cut. `planning_unpriced`: calls of
internal models without a price. `rolled_up`: it is counted in `usage_days` and in its conversation's sums; NULL as an
older version wrote it. `http_status`: of an error in the place of an answer, else NULL. `total_ms`: from its arrival to
its end. `failure`: how it failed and which tries did, as JSON; content, which goes with the conversation."""

ledger_calls = Table(
    "ledger_calls",
    metadata,
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

usage_days = Table(
    "usage_days",
    metadata,
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
and a shard: processes add to rows of their own, so that they do not wait for each other. The day stands first
in the key: what SQLite reads for some days lies together. `cost_picousd`: of the calls
that have a price; `priced`: requests with at least one such call, `unpriced`: with at least one other.
`metered`: requests whose direct cost is known, which alone are in that and in the net saving."""

ui_sessions = Table(
    "ui_sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("key_id", String(64), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    Column("revoked_at", DateTime(timezone=True)),
    sqlite_with_rowid=False,
)
"""Who is logged in at the page, by the keyed digest of the cookie. The key says what may be seen; a key that is gone
takes its sessions with it."""
