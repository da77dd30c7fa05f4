"""Windows and prices that nobody configured and LiteLLM's map does not have: the model's own upstream is asked, at the
first request for it and with the key of that. The request waits a little; whatever comes of it, it goes on. What an
upstream says where it refuses counts, too.

Figures that cannot be are as good as none. The shapes are those of vLLM, llama.cpp, Ollama, LM Studio, OpenRouter,
Groq, Mistral, Together and SambaNova.
"""

import asyncio
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from gateway.core import errors, jsons, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks, offload_if
from gateway.core.types.chat import ModelDeployment, ModelFacts
from gateway.upstream.http_client import translated

WINDOWS = (
    *("loaded_context_length", "max_model_len", "n_ctx", "context_length", "context_window", "max_context_length"),
)
"""Fields that hold a model's window, prompt and answer together, the one that is in force before the largest."""
TRAINED = "n_ctx_train"
OUTPUTS = ("max_completion_tokens", "max_output_tokens")
PRICES = {
    "prompt": "input_cost_per_token",
    "completion": "output_cost_per_token",
    "input_cache_read": "cache_read_input_token_cost",
    "input_cache_write": "cache_creation_input_token_cost",
    "internal_reasoning": "output_cost_per_reasoning_token",
}
"""OpenRouter's names of prices, in USD for one token, and LiteLLM's."""
NEEDED = ("prompt", "completion")
MIN_WINDOW, MAX_WINDOW = 256, 100_000_000
MAX_PRICE = Decimal("0.01")
"""USD for one token: ten times what any model costs. A list that tells prices of a million tokens is not misread."""
OLLAMA_WINDOW = 4096
"""Ollama's window for a model that is not loaded and names no other; it cuts what is longer without a word."""
NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


class WindowKeeper(Protocol):
    """Windows that upstreams told, kept over restarts (guarantee §4 I1). A port since `tokens` is beside `upstream`."""

    def window(self, model: str, served_at: str) -> tuple[int | None, datetime | None]:
        """A model's window, and until when nobody need ask; None, None if nothing was told."""
        ...

    def keep_window(self, model: str, served_at: str, window: int, until: datetime) -> None:
        """Keeps it; the last that is told counts."""
        ...


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What is told of a model. `certain`: the window is the one in force, not only the largest that it can have."""

    window: int | None = None
    max_output: int | None = None
    prices: dict[str, Decimal] = field(default_factory=dict)
    certain: bool = True


NOTHING_TOLD = ModelDescription()


def listed(body: Any) -> Iterator[dict[str, Any]]:
    """The entries of a list of models: OpenAI's `{"data": […]}`, or the bare list."""
    entries = body.get("data") if isinstance(body, dict) else body
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            yield entry


def described(entry: dict[str, Any]) -> ModelDescription:
    """What an entry of a list of models says."""
    places = [entry, *(entry.get(name) for name in ("meta", "metadata", "top_provider"))]
    found = [place for place in places if isinstance(place, dict)]
    windows = [window for place in found if (window := _first(place, WINDOWS))]
    trained = next((window for place in found if (window := tokens(place.get(TRAINED)))), None)
    return ModelDescription(
        window=min(windows) if windows else trained,
        max_output=next((limit for place in reversed(found) if (limit := _first(place, OUTPUTS))), None),
        prices=prices(entry.get("pricing")),
        certain=bool(windows),
    )


def _first(place: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((number for name in names if (number := tokens(place.get(name)))), None)


def tokens(value: Any) -> int | None:
    """A number of tokens, or None if it is none that a model could have."""
    possible = isinstance(value, int) and not isinstance(value, bool) and MIN_WINDOW <= value <= MAX_WINDOW
    return value if possible else None


def prices(pricing: Any) -> dict[str, Decimal]:
    """Prices by LiteLLM's names; none if prompt or answer has none, or a request costs something by itself."""
    if not isinstance(pricing, dict):
        return {}
    found = {name: price for name in PRICES if (price := _price(pricing.get(name))) is not None}
    alone = _price(pricing.get("request", "0"))
    if alone != 0 or any(name not in found for name in NEEDED):
        return {}
    return {PRICES[name]: price for name, price in found.items() if price or name in NEEDED}


def _price(value: Any) -> Decimal | None:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        return None
    return price if price.is_finite() and 0 <= price <= MAX_PRICE else None


def window_of_props(body: Any) -> int | None:
    """llama.cpp's `/props`: the window of one slot, which is what a request has."""
    settings = body.get("default_generation_settings") if isinstance(body, dict) else None
    return tokens(settings.get("n_ctx")) if isinstance(settings, dict) else None


def window_of_ps(body: Any, names: set[str]) -> int | None:
    """Ollama's `/api/ps`: the window of a model that is loaded."""
    models = body.get("models") if isinstance(body, dict) else None
    for model in models if isinstance(models, list) else ():
        if isinstance(model, dict) and names & {str(model.get("name")), str(model.get("model"))}:
            return tokens(model.get("context_length"))
    return None


def window_of_show(body: Any) -> int | None:
    """Ollama's `/api/show`: the window that a model will have once it is loaded, as far as that can be said."""
    if not isinstance(body, dict):
        return None
    parameters, info = body.get("parameters"), body.get("model_info")
    chosen = NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    if chosen and (window := tokens(int(chosen.group(1)))):
        return window
    largest = (
        (tokens(v) for k, v in info.items() if str(k).endswith(".context_length")) if isinstance(info, dict) else ()
    )
    return next((min(window, OLLAMA_WINDOW) for window in largest if window), None)


SILENT_UPSTREAMS = ("https://api.openai.com/v1",)
"""Upstreams whose lists are known to tell neither windows nor prices."""
MODEL_INFO_WAIT_SECONDS = 2.0
"""Seconds that a request waits for what its upstream tells."""
LOOK_SECONDS = 15.0
"""Seconds after which an upstream has told nothing."""
MODEL_INFO_TTL_SECONDS = 3600.0
UNCERTAIN_SECONDS = 60.0
"""Until the next look where there was no answer, or the model is not loaded yet."""
MAX_LISTING_BYTES = 16 * 2**20
MODEL_INFO_LARGE_BYTES = 2**18
MAX_MODELS = 5000
MAX_KEPT_MODELS = 1000
OLLAMA, LLAMA_CPP, LM_STUDIO = "library", "llamacpp", "organization_owner"
"""What servers name as the owner of their models in OpenAI's list, by which they are known."""
log = logs.get_logger("gateway.upstream")
Key = tuple[str, bytes]


@dataclass(slots=True)
class _ModelListing:
    """An upstream's list of models for one key, and until when it is not asked for again."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    until: float = 0.0
    table: "_DiscoveryTable | None" = None


@dataclass(frozen=True, slots=True)
class _DiscoveryTable:
    models: dict[str, ModelDescription]
    owners: frozenset[str]

    def find(self, name: str) -> ModelDescription:
        """Ollama takes a name without `:latest`; llama.cpp serves its one model by any name."""
        if self.owners == {LLAMA_CPP} and len(self.models) == 1:
            return next(iter(self.models.values()))
        return self.models.get(name) or self.models.get(f"{name}:latest") or NOTHING_TOLD


@dataclass(slots=True)
class _DiscoveredModel:
    """What is known of a model, and until when; `task` is looking since `since`."""

    description: ModelDescription = NOTHING_TOLD
    until: float = 0.0
    since: float = 0.0
    task: "asyncio.Task[None] | None" = None


def lacks(facts: ModelFacts) -> bool:
    """Whether an upstream could add to them."""
    return (facts.max_input_tokens is None and facts.context_window is None) or not facts.prices


def completed(facts: ModelFacts, told: ModelDescription) -> ModelFacts:
    """Facts with what was told in their gaps. What was configured stands; a window that only LiteLLM's map knows does
    not, where the model's own server has a smaller one."""
    known = facts.context_window or facts.max_input_tokens
    stands = known is not None and (facts.window_is_configured or not told.certain or (told.window or known) >= known)
    if told.window and not stands:
        output = facts.max_output_tokens or told.max_output
        facts = replace(facts, max_input_tokens=told.window, context_window=told.window, max_output_tokens=output)
    return replace(facts, prices=told.prices) if told.prices and not facts.prices else facts


class DiscoveredModels:
    """What upstreams told, by address, key and model: what one tenant's key is told is no other tenant's."""

    def __init__(self, client: httpx.AsyncClient, clock: ports.Clock, kept: WindowKeeper | None = None) -> None:
        """`kept`: windows that were told before this process began, or to others."""
        self._client = client
        self._kept = kept
        self._clock = clock
        self._tasks = BackgroundTasks()
        self._told: BoundedCache[tuple[Key, str], _DiscoveredModel] = BoundedCache(MAX_KEPT_MODELS)
        self._listings: BoundedCache[Key, _ModelListing] = BoundedCache(MAX_KEPT_MODELS)
        self._keys: BoundedCache[int, tuple[ModelDeployment, Key]] = BoundedCache(MAX_KEPT_MODELS)
        self._tables: dict[bytes, _DiscoveryTable] = {}

    def known(self, deployment: ModelDeployment) -> ModelDescription:
        """What was told of this model so far."""
        key = self._key(deployment)
        told = self._told.peek((key, deployment.provider_model))
        found = told.description if told else NOTHING_TOLD
        window = self._window(deployment, key)[0] if found.window is None else None
        return replace(found, window=window) if window is not None else found

    def _key(self, deployment: ModelDeployment) -> Key:
        """`_key`, made once of each that the operator configured; of a client's own key nothing is kept."""
        known = self._keys.peek(id(deployment))
        if known is not None and known[0] is deployment:
            return known[1]
        made = _key(deployment)
        return self._keys.put(id(deployment), (deployment, made))[1] if deployment.operator_key else made

    def refused(self, deployment: ModelDeployment, window: int) -> None:
        """A refusal told the model's window; the list is asked again later, since it may be another one by then."""
        key = _key(deployment), deployment.provider_model
        told = self._told.get(key) or self._told.put(key, _DiscoveredModel())
        told.description = replace(told.description, window=window, certain=True)
        told.until = self._clock.monotonic() + MODEL_INFO_TTL_SECONDS
        self._keep(deployment, told.description)

    def _window(self, deployment: ModelDeployment, key: Key) -> tuple[int | None, datetime | None]:
        return self._kept.window(deployment.provider_model, repr(key)) if self._kept is not None else (None, None)

    def _keep(self, deployment: ModelDeployment, told: ModelDescription) -> None:
        """Keeps a window for as long as it is not asked for again. Prices are kept nowhere: who told some is asked anew
        by each process."""
        if self._kept is None or told.window is None:
            return
        key, now = _key(deployment), self._clock.now()
        lasts = told.certain and not told.prices
        if lasts or self._window(deployment, key)[0] != told.window:
            until = now + timedelta(seconds=MODEL_INFO_TTL_SECONDS if lasts else 0)
            self._kept.keep_window(deployment.provider_model, repr(key), told.window, until)

    async def ask(self, deployment: ModelDeployment) -> None:
        """Asks the upstream of a model if it is time to; requests at once wait for one answer, each at most
        `MODEL_INFO_WAIT_SECONDS` seconds from the beginning of the look. It never fails."""
        if not _tells(deployment):
            return
        key = _key(deployment), deployment.provider_model
        told = self._told.get(key) or self._told.put(key, _DiscoveredModel())
        now = self._clock.monotonic()
        window, until = self._window(deployment, key[0])
        if until is not None and told.task is None and self._clock.now() < until:
            return
        if told.task is None and now >= told.until:
            told.since, told.task = now, self._tasks.start(self._look(deployment, told))
        left = MODEL_INFO_WAIT_SECONDS - (now - told.since)
        if told.task is not None and told.description is NOTHING_TOLD and window is None and left > 0:
            await asyncio.wait({told.task}, timeout=left)

    async def close(self) -> None:
        """Ends what is still being asked."""
        await self._tasks.cancel()

    async def _look(self, deployment: ModelDeployment, told: _DiscoveredModel) -> None:
        found = NOTHING_TOLD
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                found = await self._find(deployment)
        except (errors.GatewayError, httpx.HTTPError, OSError, TimeoutError, ValueError, RecursionError) as error:
            log.info("model_not_told", model=deployment.model, reason=type(error).__name__)
        finally:
            told.task = None
            usable = bool(found.window or found.prices)
            lasts = MODEL_INFO_TTL_SECONDS if usable and found.certain else UNCERTAIN_SECONDS
            told.until = self._clock.monotonic() + lasts
        if usable and found != told.description:
            log.info("model_told", model=deployment.model, context_window=found.window, priced=bool(found.prices))
            told.description = found
        self._keep(deployment, found)

    async def _find(self, deployment: ModelDeployment) -> ModelDescription:
        table = await self._listing(deployment)
        found = table.find(deployment.provider_model)
        if LLAMA_CPP in table.owners:
            name = quote(deployment.provider_model, safe="")  # `autoload`: looking at a model does not load it
            window = window_of_props(await self._json(deployment, f"/props?model={name}&autoload=false"))
            return replace(found, window=min(window, found.window or window), certain=True) if window else found
        if found.window is None and LM_STUDIO in table.owners:
            entries = {each["id"]: each for each in listed(await self._json(deployment, "/api/v0/models"))}
            return _of_lm_studio(entries.get(deployment.provider_model, {}))
        if found.window is None and OLLAMA in table.owners:
            return await self._of_ollama(deployment)
        return found

    async def _of_ollama(self, deployment: ModelDeployment) -> ModelDescription:
        name = deployment.provider_model
        if window := window_of_ps(await self._json(deployment, "/api/ps"), {name, f"{name}:latest"}):
            return ModelDescription(window)
        window = window_of_show(await self._json(deployment, "/api/show", {"model": name}))
        return ModelDescription(window, certain=False)  # once it is loaded, /api/ps tells

    async def _listing(self, deployment: ModelDeployment) -> _DiscoveryTable:
        """The list of models, once for all models of an upstream with one key."""
        key = _key(deployment)
        listing = self._listings.get(key) or self._listings.put(key, _ModelListing())
        async with listing.lock:
            if listing.table is None or self._clock.monotonic() >= listing.until:
                raw = await self._body(deployment, deployment.url("models"))
                listing.table = await self._shared(raw)
                listing.until = self._clock.monotonic() + UNCERTAIN_SECONDS
            return listing.table

    async def _shared(self, raw: bytes) -> _DiscoveryTable:
        """Equal lists are held once, however many keys they were told to."""
        digest = hashlib.sha256(raw).digest()
        if digest not in self._tables:
            used = {id(each.table) for each in self._listings.values()}
            self._tables = {name: table for name, table in self._tables.items() if id(table) in used}
            self._tables[digest] = await offload_if(len(raw) > MODEL_INFO_LARGE_BYTES, _table, raw)
        return self._tables[digest]

    async def _json(self, deployment: ModelDeployment, path: str, body: Any = None) -> Any:
        """What a server's own API says beside `/v1`; None where it has no such path."""
        root = deployment.api_base.removesuffix("/v1")
        try:
            return jsons.loads(await self._body(deployment, root + path, body))
        except (errors.GatewayError, httpx.HTTPError, ValueError, RecursionError):
            return None

    async def _body(self, deployment: ModelDeployment, url: str, body: Any = None) -> bytes:
        headers = {**deployment.headers, **deployment.authorization}
        timeout = httpx.Timeout(LOOK_SECONDS, connect=deployment.connect_timeout)
        method, content = ("GET", None) if body is None else ("POST", jsons.dumps(body))
        if content is not None:
            headers["content-type"] = "application/json"
        with translated(begun=False):
            request = self._client.stream(method, url, headers=headers, content=content, timeout=timeout)
            async with request as response:
                if response.status_code != 200:
                    raise ValueError(f"status {response.status_code}")
                raw = bytearray()
                async for piece in response.aiter_bytes():
                    raw += piece
                    if len(raw) > MAX_LISTING_BYTES:
                        raise ValueError("the list is too long")
                return bytes(raw)


def _key(deployment: ModelDeployment) -> Key:
    """The upstream's address, and a digest of the key and headers that it is asked with."""
    told = sorted({**deployment.headers, **deployment.authorization}.items())
    return deployment.api_base, hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).digest()


def is_direct(deployment: ModelDeployment) -> bool:
    """Whether an upstream is asked in OpenAI's own words, so that its figures are those of its own server."""
    return deployment.protocol == "openai" and deployment.api_base not in SILENT_UPSTREAMS


def _tells(deployment: ModelDeployment) -> bool:
    return is_direct(deployment) and deployment.key_header == "authorization" and not deployment.query


def _table(raw: bytes) -> _DiscoveryTable:
    entries = list(listed(jsons.loads(raw)))[:MAX_MODELS]
    owners = frozenset(str(entry.get("owned_by"))[:100] for entry in entries)
    return _DiscoveryTable({entry["id"]: described(entry) for entry in entries}, owners)


def _of_lm_studio(entry: dict[str, Any]) -> ModelDescription:
    """Of a model that is not loaded only the largest window is known."""
    found = described(entry)
    return replace(found, certain="loaded_context_length" in entry)
