"""Masking as a process has it: the rules, and the secret that its placeholders are keyed with."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from gateway.core import jsons
from gateway.core.config.setting_sections import MaskingSettings
from gateway.core.errors import ContentRefused
from gateway.core.ports import TokenCounter
from gateway.core.tasks import offload_if
from gateway.core.types.items import ANTHROPIC_BLOCKS, SIGNED
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.guards.masking.finding import RuleFinder
from gateway.pipeline.guards.masking.placeholders import PlaceholderMap
from gateway.pipeline.guards.masking.rules import rules_of

# Masks what people and models wrote in the body of a call, in the order in which it stands there.
#
# Of a message only what stands before it decides how it is masked, so that what was forwarded stays append-only (§4
# I7). Names of tools, ids, schemas, and what a provider sealed or signed stay as they are.

Json = dict[str, Any]
WRITTEN = (
    *("instructions", "system", "messages", "input", "prompt", "prediction", "query", "documents", "suffix", "text"),
    *("texts", "content", "question", "title"),
)
"""Fields of a body in which somebody wrote something, as far as they are no settings."""
OF_THE_GATEWAY = frozenset(
    {
        *(
            "role",
            "type",
            "id",
            "call_id",
            "tool_call_id",
            "tool_use_id",
            "name",
            "status",
            "index",
            "detail",
            "format",
        ),
        *("signature", "thought_signature", "encrypted_content", "file_id", "media_type", "mime_type", "server_label"),
        *("cache_control", "provider_specific_fields", "thinking_bound", "phase", "url", "image_url", "file_url"),
        *("file_data", "data", "filename", "finish_reason", "stop_reason", "server_name"),
    }
)
"""Fields of messages that nobody wrote as text, or that break when they are changed."""
UNREADABLE = frozenset(
    {
        *("image_url", "input_image", "image", "input_audio", "file", "input_file", "video_url", "audio"),
        *("container_upload",),
    }
)
"""Types of parts in which nothing can be masked."""
THOUGHTS = (SIGNED, ANTHROPIC_BLOCKS)
Walk = Callable[[str], str]


class BodyMasker:
    """Masks one body with one vault. `refuse`: a part in which nothing can be masked is refused."""

    def __init__(self, vault: PlaceholderMap, *, refuse: bool) -> None:
        self._vault = vault
        self._refuse = refuse

    def masked(self, body: Mapping[str, Any]) -> Json:
        """The body; what holds nothing to be masked is the same object in it.
        Raises ContentRefused: it has a part that cannot be read."""
        found = dict(body)
        for name in WRITTEN:
            if name == "text" and not isinstance(found.get(name), str):  # how a response is to be formatted
                continue
            if name in found:
                if self._refuse and _has_tokens(found[name]):
                    text = (
                        f"Nothing can be masked in token numbers, and such a {name} is refused here: send it as text."
                    )
                    raise ContentRefused(text, param=name)
                found[name] = self._said(found[name])
        return found

    def _said(self, value: Any) -> Any:
        """What stands below a field of the body."""
        if isinstance(value, str):
            return self._vault.mask(value)
        if isinstance(value, list):
            return _same(value, [self._message(each) for each in value])
        return self._message(value)

    def _message(self, value: Any) -> Any:
        """A message, or an item of an endpoint that has no messages. What a model says may hold a value where no rule
        finds it, as it was put back there: values that are known are masked wherever they stand."""
        if not isinstance(value, dict):
            return self._said(value) if isinstance(value, str | list) else value
        is_models = value.get("role") == "assistant" or value.get("type") in ("reasoning", "function_call", "message")
        if any(name in value for name in THOUGHTS):  # what is signed decides how the rest is masked
            value = {**{name: value[name] for name in THOUGHTS if name in value}, **value}
        return self._dict(value, self._models_text if is_models else self._vault.mask)

    def _models_text(self, text: str) -> str:
        return self._vault.mask(self._vault.mask_known(text))

    def _any(self, value: Any, walk: Walk) -> Any:
        if isinstance(value, str):
            return walk(value)
        if isinstance(value, list):
            return _same(value, [self._any(each, walk) for each in value])
        return self._dict(value, walk) if isinstance(value, dict) else value

    def _dict(self, value: Json, walk: Walk) -> Json:
        kind = value.get("type")
        source = value.get("source")
        plain = kind == "document" and isinstance(source, dict) and source.get("type") in ("text", "content")
        if self._refuse and not plain and (kind in UNREADABLE or kind == "document"):
            text = f"Nothing can be masked in a part of type {kind}, and such parts are refused here."
            raise ContentRefused(text, param="messages")
        if "signature" in value and isinstance(value.get("thinking"), str):
            thought = self._vault.mask_signed(value["thinking"])
            return value if thought == value["thinking"] else {**value, "thinking": thought}
        changed: Json = {}
        for name, each in value.items():
            new = self._field(value, name, each, walk)
            if new is not each:
                changed[name] = new
        return {**value, **changed} if changed else value

    def _field(self, within: Json, name: str, value: Any, walk: Walk) -> Any:
        if name == "arguments" and isinstance(value, str):
            return self._arguments(value, walk)
        if name == "input" and isinstance(value, dict | list):  # of a call: its fields are the model's own
            return self._free(value, walk)
        if name == "data" and within.get("type") == "text":
            return self._any(value, walk)
        if name in OF_THE_GATEWAY and not isinstance(value, dict | list):
            return value
        if name in ("image_url", "cache_control", "provider_specific_fields", "input_audio"):
            return value
        return self._any(value, walk)

    def _arguments(self, text: str, walk: Walk) -> str:
        """The arguments of a call: a JSON text stays one."""
        try:
            given = jsons.loads_exact(text.encode("utf-8", "surrogatepass"))
        except jsons.JSONDecodeError:
            return walk(text)
        masked = self._free(given, walk)
        return text if masked is given else jsons.dumps_text(masked)

    def _free(self, value: Any, walk: Walk) -> Any:
        """A value of which every text may be anything, and a number may be one of a card."""
        if isinstance(value, str):
            masked = walk(value)
            return value if masked == value else masked
        if isinstance(value, list):
            return _same(value, [self._free(each, walk) for each in value])
        if isinstance(value, dict):
            changed = {name: new for name, each in value.items() if (new := self._free(each, walk)) is not each}
            return {**value, **changed} if changed else value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**12:
            written = str(value)
            masked = walk(written)
            return value if masked == written else masked
        return value


def _has_tokens(value: Any) -> bool:
    """Whether a text, or one of several, is said by the numbers of its tokens."""
    return isinstance(value, list) and any(
        isinstance(each, int) or (isinstance(each, list) and any(isinstance(one, int) for one in each))
        for each in value
    )


def _same(old: list[Any], new: list[Any]) -> list[Any]:
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new


LONG = 50_000
"""Characters of a body from which on it is masked in a thread."""
MANY = 64
"""Messages from which on nobody counts them."""


class TenantMasker:
    """Masks bodies for tenants.

    Raises, when it is made:
        ConfigurationError: a rule cannot be used.
    """

    def __init__(self, settings: MaskingSettings, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._finder = RuleFinder(rules_of(settings))
        self._secret = secret
        self.refuses = settings.on_unreadable == "refuse"

    async def vault(self, tenant: str) -> PlaceholderMap:
        """A new vault for a request of that tenant.
        Raises StorageUnavailable: the secret is not known yet, and the storage cannot be asked."""
        return PlaceholderMap(self._finder, await self._secret(), tenant)

    async def masked(self, request: UpstreamRequest) -> tuple[UpstreamRequest, PlaceholderMap]:
        """The request with placeholders, and what they stand for.
        Raises ContentRefused: it has a part that cannot be read, and such are refused; StorageUnavailable: see
        `vault`."""
        vault = await self.vault(request.scope.caller.tenant)
        masker = BodyMasker(vault, refuse=self.refuses)

        def masked() -> UpstreamRequest:
            native = masker.masked(request.native) if request.native is not None else None
            return replace(request, body=masker.masked(request.body), native=native)

        return await offload_if(_is_long(request.body), masked), vault

    async def surplus(self, messages: list[dict[str, Any]], tenant: str, counter: TokenCounter) -> int:
        """Tokens that the placeholders of messages take more than what they stand for; below 0 where they take less.
        Raises StorageUnavailable: see `vault`."""
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
