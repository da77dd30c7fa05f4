"""The tables of large documents: texts in regions, indexes of their words (part of `schema`, guarantee §14.7)."""

from sqlalchemy import BigInteger, Column, DateTime, ForeignKeyConstraint, Index, Integer, String, Table

from gateway.storage.database.accounts import metadata
from gateway.storage.encryption.columns import SealedText

large_documents = Table(
    "large_documents",
    metadata,
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
"""Once a tenant, however many conversations hold it; it goes with the last of them. `indexed`: how many of its regions
are indexed. `status`: `building`, `ready`, or `failed`, if what is indexed is all that will be. `holder`: the process
that makes the index, until `held_until`."""

document_regions = Table(
    "document_regions",
    metadata,
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
"""`place`: where it stands, as `TextRegion.where` words it."""

document_postings = Table(
    "document_postings",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("bucket", Integer, primary_key=True),
    Column("segment", Integer, primary_key=True),
    Column("data", SealedText("document_postings.data", row="digest"), nullable=False),
    ForeignKeyConstraint(
        ["tenant", "digest"], ["large_documents.tenant", "large_documents.digest"], ondelete="CASCADE"
    ),
)
"""`data`: a bucket of `retrieval.stored.postings` in base 64: how often words occur tells of a text, so it is sealed
like one."""
