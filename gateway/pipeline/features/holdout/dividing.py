"""Divides conversations into those that are economised and a share that goes direct, so that what is saved is measured,
and not computed alone (guarantee §13.14)."""

import hashlib
from dataclasses import replace

from gateway.core.types.chain import chain_digests
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.economy import AUTO, OBSERVE
from gateway.pipeline.hooks import RequestFeature
from gateway.pipeline.stages import PreparedRequest

BITS = 64


class Holdout:
    """Tells requests which side their conversation is on.

    Args:
        share: of conversations that go direct, 0 to 1; with 0 nothing is divided.
    """

    def __init__(self, share: float) -> None:
        self._share = share

    def build(self) -> RequestFeature:
        """Builds the feature."""
        return RequestFeature(on_history=self._divided) if self._share else RequestFeature()

    async def _divided(self, prepared: PreparedRequest) -> PreparedRequest:
        """The request with its side. What goes direct is observed: no pass is made for economy, and no tool is offered
        that its client has not asked for."""
        options = prepared.request.options
        if options.economy != AUTO or options.mode == "off":
            return prepared
        options = replace(options, held_out=is_held_out(_named(prepared), self._share))
        if options.held_out:
            options = replace(options, economy=OBSERVE, recall=options.recall is True)
        return replace(prepared, request=replace(prepared.request, options=options))


def is_held_out(name: bytes, share: float) -> bool:
    """Whether the conversation of this name is among the share that goes direct: the same on all replicas, whenever."""
    digest = hashlib.blake2b(name, digest_size=BITS // 8, person=b"holdout").digest()
    return int.from_bytes(digest) < share * float(2**BITS)


def _named(prepared: PreparedRequest) -> bytes:
    """A conversation's id; of one that is not stored, its tenant's with the digest of how it begins."""
    history, asked = prepared.history, prepared.asked
    if (named := asked.conversation.conversation_id) is not None:
        return named.encode()
    if history is not None and history.conversation_id is not None and not history.unrecognised:
        return history.conversation_id.encode()
    said = [message for message in asked.messages if message["role"] not in INSTRUCTION_ROLES][:1]
    return asked.caller.tenant.encode() + b"\0" + b"".join(digest.path for digest in chain_digests(said))
