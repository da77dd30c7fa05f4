"""`gateway export` and `gateway import`: conversations as files."""

from pathlib import Path

from gateway.api import ANONYMOUS, as_imported, parse_export
from gateway.core import errors, printing
from gateway.core.config.settings import Settings
from gateway.operations.actor import command_actor, tell_trail
from gateway.operations.progress import CommandProgress
from gateway.operations.screen import CommandCall, byte_output
from gateway.operations.storage_reader import run_changing
from gateway.storage.conversations import ConversationTransfer
from gateway.storage.database import DatabaseTransactions

MAX_NAMED_TENANTS = 10


def export_file(call: CommandCall) -> int:
    """Exports a conversation to `--output`, else to standard output; returns 1 if there is no such conversation."""
    tenant, name = call.options.tenant, call.options.conversation

    async def work(transactions: DatabaseTransactions) -> int:
        with CommandProgress(call.err, "reading the conversation"):
            found = await ConversationTransfer(transactions, call.clock).export_conversation(tenant, name)
            if found is not None:
                await tell_trail(transactions, "conversation.exported", name, tenant)
            pieces = list(found or ())
        if found is None:
            call.err.write("No such conversation.\n")
            return 1
        with byte_output(call) as target:
            target.writelines([*pieces, b"\n"])
        return 0

    try:
        return run_changing(call, work)
    except OSError as error:
        call.err.write(f"{call.options.output}: {error.strerror}\n")
        return 1


def import_file(call: CommandCall) -> int:
    """Imports a conversation and prints its new id; returns 1 if the file is no export or cannot be stored.
    Raises ValueError: `--tenant` is missing, and there is more than one."""
    settings, file = call.settings, call.options.file
    named = call.options.tenant or _only_tenant(settings)

    async def work(transactions: DatabaseTransactions) -> int:
        with CommandProgress(call.err, "importing"):
            transfer = ConversationTransfer(transactions, call.clock, settings.documents.index_chars)
            tenant = named or _only(await transfer.owners(MAX_NAMED_TENANTS)) or ANONYMOUS
            imported = await transfer.import_conversation(tenant, made, command_actor())
        call.err.writelines(f"{warning}\n" for warning in as_imported(imported, made)["warnings"])
        call.out.write(f"{imported.conversation_id}\n")
        return 0

    try:
        made = parse_export(Path(file).read_bytes())
        return run_changing(call, work)
    except errors.GatewayError as error:
        call.err.write(f"{file}: {error.message}\n")
        return 1
    except OSError as error:
        call.err.write(f"{file}: {error.strerror}\n")
        return 1


def _only_tenant(settings: Settings) -> str | None:
    """Returns the only tenant of `auth.keys`; None if none is needed."""
    tenants = {key.tenant for key in settings.auth.keys}
    if not tenants and settings.auth.wants_keys:
        raise ValueError("--tenant is needed, as auth.keys name none")
    return _only(sorted(tenants))


def _only(tenants: list[str]) -> str | None:
    if len(tenants) > 1:
        raise ValueError(f"--tenant is needed, as there are several: {printing.in_short(tenants)}")
    return tenants[0] if tenants else None
