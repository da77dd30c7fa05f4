"""`gateway export` and `gateway import`: conversations as files."""

import argparse
import asyncio
from pathlib import Path
from typing import BinaryIO, TextIO

from gateway.api.auth import ANONYMOUS
from gateway.api.conversations.import_check import parse_export
from gateway.api.conversations.transfer_endpoints import as_imported
from gateway.core.config.settings import Settings
from gateway.core.errors import GatewayError, StorageUnavailable
from gateway.core.ports import Clock
from gateway.core.types.records import ImportedConversation, ImportResult
from gateway.operations.actor import command_actor, tell_trail
from gateway.operations.progress import CommandProgress
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database.migrate import open_current, shown

STANDARD = "-"


def export_file(settings: Settings, options: argparse.Namespace, clock: Clock, out: BinaryIO, err: TextIO) -> int:
    """Writes the document to `--output`, else to `out`; returns 1 if there is no such conversation."""
    try:
        with CommandProgress(err, "reading the conversation"):
            pieces = asyncio.run(_read(settings, clock, options.tenant, options.conversation))
        if pieces is None:
            err.write("No such conversation.\n")
            return 1
        if options.output == STANDARD:
            out.writelines([*pieces, b"\n"])
        else:
            Path(options.output).write_bytes(b"".join(pieces) + b"\n")
    except StorageUnavailable as error:
        err.write(f"{shown(settings.storage.url)}: {error.message}\n")
        return 1
    except OSError as error:
        err.write(f"{options.output}: {error.strerror}\n")
        return 1
    return 0


def import_file(settings: Settings, options: argparse.Namespace, clock: Clock, out: TextIO, err: TextIO) -> int:
    """Prints the new conversation's id; returns 1 if the file is no export or cannot be stored.
    Raises ValueError: there are several tenants, and none is named."""
    tenant = options.tenant or _only_tenant(settings)
    try:
        with CommandProgress(err, "importing"):
            made = parse_export(Path(options.file).read_bytes())
            imported = asyncio.run(_write(settings, clock, tenant, made))
    except StorageUnavailable as error:
        err.write(f"{shown(settings.storage.url)}: {error.message}\n")
        return 1
    except GatewayError as error:
        err.write(f"{options.file}: {error.message}\n")
        return 1
    except OSError as error:
        err.write(f"{options.file}: {error.strerror}\n")
        return 1
    err.writelines(f"{warning}\n" for warning in as_imported(imported, made)["warnings"])
    out.write(f"{imported.conversation_id}\n")
    return 0


def _only_tenant(settings: Settings) -> str:
    tenants = {key.tenant for key in settings.auth.keys}
    if len(tenants) > 1:
        raise ValueError("--tenant is needed, as there are several: " + ", ".join(sorted(tenants)))
    if not tenants and settings.auth.wants_keys:
        raise ValueError("--tenant is needed, as auth.keys name none")
    return tenants.pop() if tenants else ANONYMOUS


async def _read(settings: Settings, clock: Clock, tenant: str | None, conversation_id: str) -> list[bytes] | None:
    transactions = await open_current(settings.storage)
    try:
        pieces = await ConversationTransfer(transactions, clock).export_conversation(tenant, conversation_id)
        if pieces is not None:
            await tell_trail(transactions, "conversation.exported", conversation_id, tenant)
        return None if pieces is None else list(pieces)
    finally:
        await transactions.close()


async def _write(settings: Settings, clock: Clock, tenant: str, made: ImportedConversation) -> ImportResult:
    transactions = await open_current(settings.storage)
    try:
        transfer = ConversationTransfer(transactions, clock, settings.documents.index_chars)
        return await transfer.import_conversation(tenant, made, command_actor())
    finally:
        await transactions.close()
