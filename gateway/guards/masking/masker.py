"""Masking as a process has it: the rules, and the secret that its placeholders are keyed with."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from gateway.base.tasks import offload_if
from gateway.config.guards import MaskingSettings
from gateway.guards.masking.bodies import BodyMasker
from gateway.guards.masking.finding import Finder
from gateway.guards.masking.rules import rules_of
from gateway.guards.masking.vault import Vault
from gateway.models.upstream import UpstreamRequest
from gateway.ports import TokenCounter

LONG = 50_000
"""Characters of a body from which on it is masked in a thread."""
MANY = 64
"""Messages from which on nobody counts them."""


class Masker:
    """Masks bodies for tenants.

    Raises, when it is made:
        ConfigurationError: a rule cannot be used.
    """

    def __init__(self, settings: MaskingSettings, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._finder = Finder(rules_of(settings))
        self._secret = secret
        self.refuses = settings.on_unreadable == "refuse"

    async def vault(self, tenant: str) -> Vault:
        """A new vault for a request of that tenant.

        Raises:
            StorageUnavailable: the secret is not known yet, and the storage cannot be asked.
        """
        return Vault(self._finder, await self._secret(), tenant)

    async def masked(self, request: UpstreamRequest) -> tuple[UpstreamRequest, Vault]:
        """The request with placeholders, and what they stand for.

        Raises:
            ContentRefused: it has a part that cannot be read, and such are refused.
            StorageUnavailable: see `vault`.
        """
        vault = await self.vault(request.scope.caller.tenant)
        masker = BodyMasker(vault, refuse=self.refuses)

        def masked() -> UpstreamRequest:
            native = masker.masked(request.native) if request.native is not None else None
            return replace(request, body=masker.masked(request.body), native=native)

        return await offload_if(_is_long(request.body), masked), vault

    async def surplus(self, messages: list[dict[str, Any]], tenant: str, counter: TokenCounter) -> int:
        """Tokens that the placeholders of messages take more than what they stand for; below 0 where they take less.

        Raises:
            StorageUnavailable: see `vault`.
        """
        masker = BodyMasker(await self.vault(tenant), refuse=False)
        return await offload_if(_is_long({"messages": messages}), _surplus, messages, masker, counter)


def _surplus(messages: list[dict[str, Any]], masker: BodyMasker, counter: TokenCounter) -> int:
    masked = masker.masked({"messages": messages})["messages"]
    pairs = zip(messages, masked, strict=True)
    return sum(counter.message(new) - counter.message(old) for old, new in pairs if new is not old)


def _is_long(body: Mapping[str, Any]) -> bool:
    messages = body.get("messages") or body.get("input") or ()
    if isinstance(messages, str):
        return len(messages) > LONG
    if not isinstance(messages, list) or len(messages) > MANY:
        return True
    return sum(len(str(each.get("content") if isinstance(each, dict) else each)) for each in messages) > LONG
