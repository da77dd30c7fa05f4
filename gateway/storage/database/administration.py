"""The tables of keys made at runtime, of what they may spend and ask, and of what administrators did (part of
`schema`)."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Float,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from gateway.storage.database.accounts import metadata

api_keys = Table(
    "api_keys",
    metadata,
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
which counts until `previous_until`. `hint`: its last characters, for people. `policy`: all that was said of it, as
JSON; what lists look for stands in columns, too. `created_by`: the id of the key that made it; NULL: a command."""

budget_leases = Table(
    "budget_leases",
    metadata,
    Column("holder", LargeBinary, primary_key=True),
    Column("period_start", Date, primary_key=True),
    Column("process", String(64), primary_key=True),
    Column("amount_picousd", BigInteger, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""What processes may still spend of a hard budget without asking again (ADR 28). `holder`: a digest of whose budget it
is and of its period."""

rate_counters = Table(
    "rate_counters",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""Counts of a minute, where there is PostgreSQL and no Valkey. `expires_at`: seconds since 1970."""

rate_slots = Table(
    "rate_slots",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("request_id", String(64), primary_key=True),
    Column("expires_at", Float, nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""Requests under way that count against a limit of requests at once, where there is PostgreSQL and no Valkey."""

admin_events = Table(
    "admin_events",
    metadata,
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
"""What administrators made, changed, saw and deleted; rows are only added. `digest` is keyed, over the row and the
digest before it. `actor`: the id of the key; NULL: a command. `details`: JSON without content or secrets."""
