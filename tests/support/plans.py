"""How PostgreSQL carries out the statements of a turn beside very many messages of others: its own word of it."""

import re
from pathlib import Path

from tests.support.postgres import PostgresProcess

EXPLAINED = (
    "SET session_preload_libraries = 'auto_explain'",
    "SET auto_explain.log_min_duration = 0",
    "SET auto_explain.log_nested_statements = on",
)
MAX_SORTED = 1000
COPIES = """INSERT INTO conversations (id, tenant, head_id, attachments, created_at, updated_at)
    SELECT id || '-' || n, tenant || '-' || n, head_id || '-' || n, 0, created_at, updated_at
    FROM conversations, generate_series(1, {copies}) n"""
MESSAGES = """INSERT INTO messages (id, conversation_id, parent_id, sequence_number, role, status, body, digest, weight,
        request_id, choice, created_at, path_digest, said_digest, plain)
    SELECT id || '-' || n, conversation_id || '-' || n, parent_id || '-' || n, sequence_number, role, status, '{{}}',
        digest, weight, request_id || '-' || n, choice, created_at, path_digest, said_digest, plain
    FROM messages, generate_series(1, {copies}) n"""
LINKS = """INSERT INTO message_links SELECT conversation_id || '-' || n, digest, message_id || '-' || n
    FROM message_links, generate_series(1, {copies}) n"""
CHAINS = """INSERT INTO chains (digest, calls, conversation_id, whole, tenant, request_id, created_at)
    SELECT sha256(digest || n::text::bytea), calls, conversation_id || '-' || n, whole, tenant || '-' || n,
        request_id || '-' || n, created_at
    FROM chains, generate_series(1, {copies}) n"""
LEDGER = """INSERT INTO ledger SELECT (jsonb_populate_record(l, jsonb_build_object('request_id', request_id || '-' || n,
        'completion_id', completion_id || '-' || n, 'conversation_id', conversation_id || '-' || n))).*
    FROM ledger l, generate_series(1, {copies}) n"""


def multiply(server: PostgresProcess, url: str, copies: int) -> int:
    """Copies every conversation so many times, as other tenants' with the same history; returns how many messages
    there are then."""
    for statement in (COPIES, MESSAGES, LINKS, CHAINS, LEDGER):
        server.query(url, statement.format(copies=copies))
    for table in ("conversations", "messages", "message_links", "chains", "ledger"):
        server.query(url, f"ANALYZE {table}")
    return int(server.query(url, "SELECT count(*) AS n FROM messages")[0]["n"])


def explain(server: PostgresProcess, url: str) -> None:
    """From now on, every statement of new connections to that database is explained in the server's log."""
    name = url.rpartition("/")[2]
    for setting in EXPLAINED:
        server.query(server.admin_url, f'ALTER DATABASE "{name}" {setting}')


def plans(log: Path) -> list[tuple[str, str]]:
    """Statements with their plans, in the order in which they were carried out."""
    found = []
    for entry in re.split(r"^(?=\S)", log.read_text("utf-8", "replace"), flags=re.MULTILINE):
        _, marked, text = entry.partition("plan:\n")
        if marked:
            query, _, plan = text.partition("\n\t")
            while plan and not re.match(r"\S.*\(cost=", plan):  # a statement may have several lines
                more, _, plan = plan.partition("\n\t")
                query += " " + more
            found.append((" ".join(query.removeprefix("\tQuery Text:").split()), plan))
    return found


def large_steps(plan: str, tables: frozenset[str]) -> list[str]:
    """The lines of a plan that read one of these tables whole, or that sort more than a window holds."""
    lines = []
    for line in plan.splitlines():
        scan = re.search(r"Seq Scan on (\w+)", line)
        sort = re.search(r"Sort  \(cost=\S+ rows=(\d+)", line)
        if (scan and scan[1] in tables) or (sort and int(sort[1]) > MAX_SORTED):
            lines.append(line.strip())
    return lines
