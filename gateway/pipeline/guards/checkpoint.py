"""The checkpoint on every path of a body to a model: guards, each under its deadline and a breaker (guarantee §12.9),
then masking (§12.10); on the way back, guards check streamed answers, and masked values are restored."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from gateway.core import errors, jsons, ports
from gateway.core.clock import SystemClock
from gateway.core.config import setting_sections
from gateway.core.config.config_file import ConfigurationError
from gateway.core.config.settings import Settings
from gateway.core.instrumentation import logs
from gateway.core.jsons import Json
from gateway.core.plugins import load_plugin, plugins_of
from gateway.core.tasks import Cooldown
from gateway.core.types import items, upstreams
from gateway.core.types.chat import ChunkStream, Headers, JsonAnswer, ModelDeployment, StreamAround
from gateway.core.types.relevance import EmbeddingFault, EmbeddingTariff, TextEmbeddings
from gateway.pipeline.guards.api import GROUP, PASS, GuardedCall, Said, Verdict
from gateway.pipeline.guards.masking import (
    ChoiceRestorer,
    PlaceholderMap,
    TenantMasker,
    TextRestorer,
    answers_json,
    restored,
    rules_of,
)
from gateway.pipeline.stages import PreparedRequest, RequestFeature
from gateway.upstream import PassthroughClient, RawAnswer, UpstreamPassage, UpstreamWrapper

log = logs.get_logger("gateway.pipeline.guards")
FAILURES = 3
"""Consecutive failures after which a guard rests."""
GUARD_COOLDOWN_SECONDS = 30.0
MAX_GUARD_COST_USD = Decimal(1000)
"""A guard that reports a higher cost is mistaken."""
Ask = Callable[..., Awaitable[Verdict]]


class RunningGuard:
    """One guard of this process."""

    def __init__(self, entry: setting_sections.GuardEntry, guard: Any, clock: ports.Clock) -> None:
        self.entry = entry
        self.before: Ask | None = getattr(guard, "before", None)
        self.after: Ask | None = getattr(guard, "after", None)
        self._clock = clock
        self._cooldown = Cooldown(FAILURES, GUARD_COOLDOWN_SECONDS)

    async def asked(self, scope: upstreams.CallScope, ask: Ask, *about: Any) -> Verdict:
        """Returns the guard's verdict; if it fails, is late or rests, and is `open`, everything passes.
        Raises ContentRefused: the guard refuses; GuardUnavailable: it cannot be asked, and is `closed`."""
        verdict = None
        began = self._clock.monotonic()
        if not self._cooldown.remaining(began):
            try:
                async with asyncio.timeout(self.entry.timeout):
                    verdict = _checked(await ask(*about))
                self._cooldown.answered(began)
            except (Exception, asyncio.CancelledError, SystemExit) as fault:  # code of others may fail in any way
                task = asyncio.current_task()
                if isinstance(fault, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise  # the request was cancelled, not what the guard waited for
                log.fault("guard_failed", fault, guard=self.entry.name)
                if self._cooldown.failed(self._clock.monotonic()):
                    self._cooldown.failures = 0  # after its rest it may fail as often again
        name = self.entry.name
        if verdict is None:
            if self.entry.on_failure == "closed":
                raise errors.GuardUnavailable(f"The guard {name} cannot be asked; try again.")
            scope.warn(f"guard_failed:{name}")
            return PASS
        if verdict.cost:
            scope.charge(name, verdict.cost)
        if verdict.refused is not None:
            raise errors.ContentRefused(f"Refused by the guard {name}: {verdict.refused}")
        return verdict


class GuardChain:
    """The guards in their order: each sees what the one before it left."""

    def __init__(self, guards: Sequence[RunningGuard]) -> None:
        self._before = [guard for guard in guards if guard.before is not None]
        self._after = [guard for guard in guards if guard.after is not None]

    @property
    def hold(self) -> int:
        """Characters of a stream that are held before the guards check them; 0: none checks answers."""
        return min((guard.entry.hold for guard in self._after), default=0)

    async def before(self, call: GuardedCall, scope: upstreams.CallScope) -> Mapping[str, Any]:
        """Returns the body to send. Raises ContentRefused, GuardUnavailable: it must not be sent."""
        for guard in self._before:
            assert guard.before is not None
            verdict = await guard.asked(scope, guard.before, call)
            if verdict.body is not None:
                call = GuardedCall(call.purpose, call.model, call.tenant, call.request_id, verdict.body)
        return call.body

    async def after(self, call: GuardedCall, said: Said, scope: upstreams.CallScope) -> str:
        """Returns the text for the client.
        Raises ContentRefused, GuardUnavailable: the client receives none; the model's call is charged."""
        for guard in self._after:
            assert guard.after is not None
            try:
                verdict = await guard.asked(scope, guard.after, call, said)
            except (errors.ContentRefused, errors.GuardUnavailable) as error:
                error.may_be_charged = True
                raise
            if verdict.text is not None:
                said = Said(said.choice, verdict.text, said.before, said.is_last)
        return said.text


def _checked(verdict: Any) -> Verdict:
    """Raises TypeError: it is not a verdict."""
    if not isinstance(verdict, Verdict):
        raise TypeError("a guard answers with a Verdict")
    body, cost = verdict.body, verdict.cost
    if body is not None and not isinstance(body, Mapping):
        raise TypeError("the body of a Verdict is a dict")
    if cost is not None and not (isinstance(cost, Decimal) and cost.is_finite() and 0 <= cost <= MAX_GUARD_COST_USD):
        raise TypeError("the cost of a Verdict is a Decimal of USD")
    return verdict


def open_chain(entries: Sequence[setting_sections.GuardEntry], clock: ports.Clock) -> GuardChain:
    """Loads the guards of the configuration.
    Raises ConfigurationError: no installed package has a guard of that name, or it cannot be created."""
    known = {found.name: found for found in plugins_of(GROUP)}
    guards = []
    for number, entry in enumerate(entries):
        if entry.name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"guards[{number}].name: no guard {entry.name!r} is installed; there is: {names}")
        try:
            guard = load_plugin(known[entry.name])(entry.options)
        except Exception as fault:
            text = f"guards[{number}]: {entry.name}: {type(fault).__name__}: {fault}"
            raise ConfigurationError(text) from fault
        guards.append(RunningGuard(entry, guard, clock))
    return GuardChain(guards)


Chunks = list[Json]
SHOWN_BEFORE = 4000
"""Characters already sent to the client that a guard is shown."""


class PassingStream(StreamAround):
    """A stream whose chunks are changed as they pass."""

    def __init__(self, opened: ChunkStream) -> None:
        super().__init__(opened)
        self._last: Json = {}

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        """Yields the changed batches; see `ChunkStream.batches`."""
        async with aclosing(self._opened.batches()) as batches:
            async for batch in batches:
                found: Chunks = []
                refused = None
                self._came(batch)
                for chunk in batch:
                    self._last = chunk
                    try:
                        found += await self._passed(chunk)
                    except errors.GatewayError as error:  # after what may pass
                        refused = error
                        break
                if found:
                    yield found
                if refused is not None:
                    raise refused
        if rest := await self._end():
            yield rest

    def _came(self, batch: Chunks) -> None:
        """Observes the chunks that arrived."""

    async def _passed(self, chunk: Json) -> Chunks:
        """Returns the chunks that replace one."""
        raise NotImplementedError

    async def _end(self) -> Chunks:
        """Returns what is left when the stream is over."""
        raise NotImplementedError

    def _made(self, choices: list[Json]) -> Json:
        """Builds a chunk of our own beside upstream's."""
        kept = ("id", "object", "created", "model", "system_fingerprint")
        return {**{name: self._last[name] for name in kept if name in self._last}, "choices": choices}


class RestoredStream(PassingStream):
    """A stream in which placeholders are replaced by the values of its request."""

    def __init__(self, opened: ChunkStream, vault: PlaceholderMap, *, is_json: bool) -> None:
        super().__init__(opened)
        self._is_json = is_json
        self._vault = vault
        self._choices: dict[int, ChoiceRestorer] = {}

    async def _passed(self, chunk: Json) -> Chunks:
        before: list[Json] = []
        choices: list[Any] = []
        for choice in chunk.get("choices") or ():
            if not isinstance(choice, dict) or not isinstance(choice.get("delta"), dict):
                choices.append(choice)
                continue
            index = choice.get("index", 0)
            known = self._choices.setdefault(index, ChoiceRestorer(self._vault, is_json=self._is_json))
            ends = bool(choice.get("finish_reason"))
            if rest := known.rest(choice["delta"]):
                before.append({"index": index, "delta": rest, "finish_reason": None})
            choices.append({**choice, "delta": known.delta(choice["delta"])})
            if ends and (rest := known.rest()):
                before.append({"index": index, "delta": choices[-1]["delta"], "finish_reason": None})
                before.append({"index": index, "delta": rest, "finish_reason": None})
                choices[-1] = {**choices[-1], "delta": {}}
        if not choices:
            return [chunk]
        return [*(self._made([each]) for each in before), {**chunk, "choices": choices}]

    async def _end(self) -> Chunks:
        rests = ((index, known.rest()) for index, known in self._choices.items())
        return [self._made([{"index": index, "delta": rest, "finish_reason": None}]) for index, rest in rests if rest]


class LookedAtStream(PassingStream):
    """A stream whose text guards check before the client receives it: when as much has come as they want, when
    something else comes, and at its end."""

    def __init__(
        self, opened: ChunkStream, chain: GuardChain, call: GuardedCall, sent: upstreams.UpstreamRequest
    ) -> None:
        super().__init__(opened)
        self._chain = chain
        self._call = call
        self._scope = sent.scope
        self._unfinished = set(range(choices if type(choices := sent.body.get("n")) is int else 1))
        self._held: dict[tuple[int, str], str] = {}
        """By choice and field, as `_sent`."""
        self._sent: dict[tuple[int, str], str] = {}
        self._reworded: set[int] = set()
        self._repeats: dict[int, Json] = {}
        """Lists that repeat a choice's text: they come when it is known whether a guard has changed that."""

    def _came(self, batch: Chunks) -> None:
        """Reports the usage of a complete answer: the client may leave while a guard still checks it."""
        for chunk in batch:
            ended = (choice for choice in chunk.get("choices") or () if isinstance(choice, dict))
            self._unfinished -= {choice.get("index", 0) for choice in ended if choice.get("finish_reason")}
            if not self._unfinished:
                self._scope.reports(chunk.get("usage"))

    async def _passed(self, chunk: Json) -> Chunks:
        before: list[Json] = []
        choices: list[Any] = []
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                choices.append(choice)
                continue
            index, ends = choice.get("index", 0), bool(choice.get("finish_reason"))
            repeats = self._repeats.setdefault(index, {})
            for name in delta.keys() & REPEATS:
                repeats[name] = [*repeats.get(name, ()), *(delta[name] or ())]
            kept = {name: value for name, value in delta.items() if name not in REPEATS}
            for field in TOLD:
                others = any(value for name, value in delta.items() if name not in (field, "role"))
                if isinstance(delta.get(field), str):
                    self._held[index, field] = self._held.get((index, field), "") + delta[field]
                    kept[field] = "" if field == "content" else None
                held = self._held.get((index, field), "")
                if held and (ends or others or len(held) >= self._chain.hold):
                    before.append(await self._shown(index, field, is_last=ends))
            if ends and repeats and index not in self._reworded:
                before.append({"index": index, "delta": repeats, "finish_reason": None})
            choices.append({**choice, "delta": kept})
        if not choices:
            return [chunk]
        # The first chunk of a choice carries its role, and stays first.
        now = {**chunk, "choices": choices}
        ends = any(choice.get("finish_reason") for choice in choices if isinstance(choice, dict))
        made = [self._made([each]) for each in before]
        return [*made, now] if ends or not _has_role(choices) else [now, *made]

    async def _shown(self, index: int, field: str, *, is_last: bool) -> Json:
        held = self._held.pop((index, field))
        sent = self._sent.get((index, field), "")
        text = await self._chain.after(self._call, Said(index, held, sent, is_last), self._scope)
        self._sent[index, field] = (sent + text)[-SHOWN_BEFORE:]
        if text != held:
            self._reworded.add(index)
        return {"index": index, "delta": {field: text}, "finish_reason": None}

    async def _end(self) -> Chunks:
        held = [place for place, text in self._held.items() if text]
        return [self._made([await self._shown(*place, is_last=True)]) for place in held]


TOLD = ("content", "refusal")
"""Fields with the text of an answer."""
REPEATS = frozenset({items.ITEM_ORDER, items.ANTHROPIC_BLOCKS})


def _without_repeats(said: Json) -> Json:
    """Removes what repeats an answer's text for another API, or to cite it."""
    found = {name: value for name, value in said.items() if name not in REPEATS}
    if isinstance(own := found.get("provider_specific_fields"), dict):
        found["provider_specific_fields"] = {name: value for name, value in own.items() if name != "citations"}
    return found


def _has_role(choices: list[Any]) -> bool:
    deltas = [choice.get("delta") for choice in choices if isinstance(choice, dict)]
    return any(isinstance(delta, dict) and delta.get("role") for delta in deltas)


NATIVE = "untranslated"
"""The field in which guards see what only the client's own API can express."""


class GuardCheckpoint:
    """What every body passes before it is sent upstream. Either part may be missing."""

    def __init__(self, chain: GuardChain | None, masker: TenantMasker | None) -> None:
        self.chain = chain
        self.masker = masker

    async def passed(
        self, request: upstreams.UpstreamRequest, model: str
    ) -> tuple[upstreams.UpstreamRequest, GuardedCall, PlaceholderMap | None]:
        """Returns the request to send upstream, the call as guards know it, and what was masked in it.
        Raises ContentRefused, GuardUnavailable, StorageUnavailable: it must not be sent."""
        scope, native = request.scope, request.native
        shown = request.body if native is None else {**request.body, NATIVE: native}
        call = GuardedCall(scope.purpose, model, scope.caller.tenant, scope.request_id, shown)
        if self.chain is not None:
            sent = dict(await self.chain.before(call, scope))
            own = sent.pop(NATIVE, None) if native is not None else None
            request = replace(request, body=sent, native=own if isinstance(own, dict) else None)
        if self.masker is None:
            return request, call, None
        masked, vault = await self.masker.masked(request)
        return masked, call, vault if vault.values else None


class GuardedUpstream(UpstreamWrapper):
    """An `Upstream` whose calls and answers pass a checkpoint.
    Raises ContentRefused, GuardUnavailable: nothing was sent; or the answer is withheld, and is charged."""

    def __init__(self, inner: ports.Upstream, checkpoint: GuardCheckpoint) -> None:
        super().__init__(inner)
        self._checkpoint = checkpoint

    @asynccontextmanager
    async def passing(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> AsyncIterator[UpstreamPassage]:
        """Passes a request through the checkpoint; see `UpstreamWrapper`."""
        sent, call, vault = await self._checkpoint.passed(request, deployment.provider_model)
        yield UpstreamPassage(
            deployment,
            sent,
            lambda answer: self._answered(answer, sent, call, vault),
            lambda stream: self._opened(stream, sent, call, vault),
        )

    async def _answered(
        self, answer: JsonAnswer, sent: upstreams.UpstreamRequest, call: GuardedCall, vault: PlaceholderMap | None
    ) -> JsonAnswer:
        choices, chain = answer.body.get("choices"), self._checkpoint.chain
        if not isinstance(choices, list):
            return answer
        if vault is not None:
            is_json = answers_json(sent.body)
            choices = [_restored(choice, vault, is_json=is_json) for choice in choices]
        if chain is not None and chain.hold:
            sent.scope.reports(answer.body.get("usage"))
            try:
                choices = [await _looked_at(chain, call, sent.scope, choice) for choice in choices]
            except errors.GatewayError as error:
                usage = answer.body.get("usage")
                error.usage = usage if isinstance(usage, dict) else None
                raise
        if choices is answer.body["choices"]:
            return answer
        return JsonAnswer({**answer.body, "choices": choices}, answer.headers)

    def _opened(
        self, stream: ChunkStream, sent: upstreams.UpstreamRequest, call: GuardedCall, vault: PlaceholderMap | None
    ) -> ChunkStream:
        chain = self._checkpoint.chain
        if vault is not None:
            stream = RestoredStream(stream, vault, is_json=answers_json(sent.body))
        return LookedAtStream(stream, chain, call, sent) if chain is not None and chain.hold else stream


async def _looked_at(chain: GuardChain, call: GuardedCall, scope: upstreams.CallScope, choice: Json) -> Json:
    message = choice.get("message")
    for field in TOLD:
        if not isinstance(message, dict) or not isinstance(message.get(field), str):
            continue
        text = await chain.after(call, Said(choice.get("index", 0), message[field]), scope)
        if text != message[field]:
            message = {**_without_repeats(message), field: text}
    return choice if message is choice.get("message") else {**choice, "message": message}


def _restored(choice: Any, vault: PlaceholderMap, *, is_json: bool) -> Any:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    return {**choice, "message": restored(choice["message"], vault, is_json=is_json)}


class GuardedEmbedder:
    """An `Embedder` whose texts pass a checkpoint. A guard's cost here is on the bill of the request that asks, if
    there is one."""

    def __init__(self, embedder: ports.Embedder, checkpoint: GuardCheckpoint) -> None:
        self._embedder = embedder
        self._checkpoint = checkpoint
        # Vectors of masked texts differ from those of the texts.
        self.name = f"{embedder.name} masked" if checkpoint.masker is not None else embedder.name

    @property
    def at_once(self) -> int:
        """See `Embedder`."""
        return self._embedder.at_once

    def tariff(self) -> EmbeddingTariff | None:
        """Returns the tariff; see `Embedder`."""
        return self._embedder.tariff()

    async def embed(self, texts: Sequence[str], scope: upstreams.CallScope) -> TextEmbeddings:
        """Embeds texts after the checkpoint; what must not be sent has no vectors. See `Embedder`."""
        request = upstreams.UpstreamRequest({"input": list(texts)}, scope=scope.made_for("embedder"))
        try:
            sent, _, _ = await self._checkpoint.passed(request, self._embedder.name)
        except (errors.ContentRefused, errors.GuardUnavailable, errors.StorageUnavailable) as error:
            raise EmbeddingFault(error.message) from error
        return await self._embedder.embed(_texts(sent.body.get("input"), len(texts)), scope)

    def close(self) -> None:
        """Closes the embedder; see `Embedder`."""
        self._embedder.close()


def _texts(given: Any, count: int) -> list[str]:
    """Raises EmbeddingFault: a guard left something other than one text for each."""
    if not isinstance(given, list) or len(given) != count or not all(isinstance(text, str) for text in given):
        raise EmbeddingFault("a guard left no text for each")
    return given


# Relayed calls, whose bodies pass the checkpoint where they are JSON (guarantee §12.9, §12.10).

ENCODINGS = (b"accept-encoding", b"content-encoding")
READABLE_TYPES = re.compile(rb"^(?:application/(?:[\w.+-]*json|x-ndjson)|text/event-stream)\b", re.IGNORECASE)


class GuardedPassthrough(PassthroughClient):
    """Opens relayed calls as a `PassthroughClient` does."""

    def __init__(self, upstream: PassthroughClient, checkpoint: GuardCheckpoint) -> None:
        self._upstream = upstream
        self._checkpoint = checkpoint

    @asynccontextmanager
    async def open(self, deployment: ModelDeployment, call: upstreams.RelayedCall) -> AsyncIterator[RawAnswer]:
        """Opens a relayed call, and yields its answer when it has begun, with masked values restored.
        Raises ContentRefused, GuardUnavailable: nothing was sent; UpstreamError: see `core/errors`."""
        vault = None
        if call.body is not None:
            call, vault = await self._passed(deployment, call)
        async with self._upstream.open(deployment, call) as answer:
            yield RestoredAnswer(answer, vault) if vault is not None else answer

    async def _passed(
        self, deployment: ModelDeployment, call: upstreams.RelayedCall
    ) -> tuple[upstreams.RelayedCall, PlaceholderMap | None]:
        named = dict(call.headers)
        packed = named.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity")
        form = named.get(b"content-type", b"").lower().startswith((b"multipart/", b"application/octet"))
        body, raw = None, b""
        if not packed and not form:
            raw = call.body if isinstance(call.body, bytes) else await _whole(call.body)
            call = replace(call, body=raw)
            body = jsons.object_in(raw)
        if body is None:
            masker = self._checkpoint.masker
            if masker is not None and masker.refuses and (raw or packed or form):
                raise errors.ContentRefused("Nothing can be masked in this body, and such bodies are refused here.")
            return call, None
        request = upstreams.UpstreamRequest(body, scope=call.scope)
        passed, _, vault = await self._checkpoint.passed(request, str(body.get("model") or deployment.provider_model))
        sent = passed.body
        if sent == body:
            return call, None
        headers = [pair for pair in call.headers if pair[0] not in (*ENCODINGS, b"content-length")]
        return replace(call, body=jsons.dumps(sent), headers=[*headers, (b"accept-encoding", b"identity")]), vault


class RestoredAnswer(RawAnswer):
    """An answer as it came, with placeholders replaced by the values of its request. A placeholder that a stream splits
    across several events stays masked."""

    def __init__(self, answer: RawAnswer, vault: PlaceholderMap) -> None:
        self._answer = answer
        self._vault = vault
        self.status, self.refusal = answer.status, answer.refusal
        kind = dict(answer.headers).get(b"content-type", b"")
        self._is_text = bool(READABLE_TYPES.match(kind.strip()))
        lengthless = [pair for pair in answer.headers if pair[0] != b"content-length"]
        self.headers: Headers = lengthless if self._is_text else answer.headers

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yields the restored pieces; see `RawAnswer.pieces`."""
        text = TextRestorer(self._vault, is_json=True)
        async for piece in self._answer.pieces():
            if not self._is_text:
                yield piece
            # Placeholders are ASCII: all other bytes stay as they are.
            elif ready := text.push(piece.decode("latin-1")):
                yield _bytes(ready)
        if rest := text.rest():
            yield _bytes(rest)

    async def aclose(self) -> None:
        """Closes the answer; see `RawAnswer.aclose`."""
        await self._answer.aclose()


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


async def _whole(body: Any) -> bytes:
    return b"".join([piece async for piece in body])


class ActiveGuards:
    """Puts the checkpoint around every path to a model (in place of `pipeline.guards.factory.NoGuards`).

    Raises, when it is made:
        ConfigurationError: a guard or a rule cannot be used.
    """

    def __init__(self, settings: Settings, secret: Callable[[], Awaitable[bytes]], clock: ports.Clock) -> None:
        self._masker = TenantMasker(settings.masking, secret) if settings.masking.enabled else None
        chain = open_chain(settings.guards, clock) if settings.guards else None
        self._checkpoint = GuardCheckpoint(chain, self._masker)

    def build(self) -> RequestFeature:
        """Builds the feature that counts the tokens masking adds to a prompt."""
        masker = self._masker
        if masker is None:
            return RequestFeature()

        async def surplus(prepared: PreparedRequest, counter: ports.TokenCounter) -> int:
            return await masker.surplus(prepared.messages, prepared.request.caller.tenant, counter)

        return RequestFeature(on_payload=surplus)

    def upstream(self, upstream: ports.Upstream) -> ports.Upstream:
        """Wraps calls of models, internal ones included."""
        return GuardedUpstream(upstream, self._checkpoint)

    def embedder(self, embedder: ports.Embedder | None) -> ports.Embedder | None:
        """Wraps calls of an embedder, except one without a tariff, which runs in this process and sends nothing."""
        if embedder is None or embedder.tariff() is None:
            return embedder
        return GuardedEmbedder(embedder, self._checkpoint)

    def passthrough(self, upstream: PassthroughClient) -> PassthroughClient:
        """Wraps relayed calls."""
        return GuardedPassthrough(upstream, self._checkpoint)


def what_guards(settings: Settings) -> str:
    """Describes what is configured, for `gateway check`.
    Raises ConfigurationError: a guard or a rule cannot be used."""
    open_chain(settings.guards, SystemClock())
    rules: list[str] = []
    if settings.masking.enabled:
        rules_of(settings.masking)
        rules = [*settings.masking.rules, *(each.name for each in settings.masking.custom)]
    found = [entry.name for entry in settings.guards]
    return ", ".join([*found, *([f"masking by {', '.join(rules)}"] if rules else [])])
