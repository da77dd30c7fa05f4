"""Windows and prices that nobody configured and LiteLLM's map lacks: the model's own upstream is asked, at the first
request for the model and with that request's key. The request waits a little and then goes on in any case. A window
that an upstream names in a refusal counts, too.

Impossible figures count as none. The shapes are those of vLLM, llama.cpp, Ollama, LM Studio, OpenRouter, Groq, Mistral,
Together and SambaNova.
"""

import asyncio
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from gateway.core import errors, jsons, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config.model_list import price_of
from gateway.core.frozen_records import record
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
"""USD for one token: ten times what any model costs. So prices of a million tokens are not taken for prices of one."""
OLLAMA_WINDOW = 4096
"""Ollama's window for a model that is not loaded and names no other; it truncates longer prompts silently."""
NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


class WindowKeeper(Protocol):
    """Windows that upstreams reported, stored over restarts (guarantee §4 I1). A port: `tokens` is beside
    `upstream`."""

    def window(self, model: str, served_at: str) -> tuple[int | None, datetime | None]:
        """Returns a model's window, and until when it need not be asked for; None, None if no window was reported."""

    def keep_window(self, model: str, served_at: str, window: int, until: datetime) -> None:
        """Stores a model's window, replacing an earlier one."""


@record
class ModelDescription:
    """What an upstream reports of a model. `certain`: the window is the one in force, not only the largest possible."""

    window: int | None = None
    max_output: int | None = None
    prices: dict[str, Decimal] = field(default_factory=dict)
    certain: bool = True


NOTHING_TOLD = ModelDescription()


def listed(body: Any) -> Iterator[dict[str, Any]]:
    """Yields the entries of a list of models: OpenAI's `{"data": […]}`, or the bare list."""
    entries = body.get("data") if isinstance(body, dict) else body
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            yield entry


def described(entry: dict[str, Any]) -> ModelDescription:
    """Parses an entry of a list of models."""
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
    """Returns a number of tokens, or None if no model could have that many."""
    possible = isinstance(value, int) and not isinstance(value, bool) and MIN_WINDOW <= value <= MAX_WINDOW
    return value if possible else None


def prices(pricing: Any) -> dict[str, Decimal]:
    """Returns prices by LiteLLM's names; none if prompt or answer has none, or a request costs something by itself."""
    if not isinstance(pricing, dict):
        return {}
    found = {name: price for name in PRICES if (price := price_of(pricing.get(name), MAX_PRICE)) is not None}
    alone = price_of(pricing.get("request", "0"), MAX_PRICE)
    if alone != 0 or any(name not in found for name in NEEDED):
        return {}
    return {PRICES[name]: price for name, price in found.items() if price or name in NEEDED}


def window_of_props(body: Any) -> int | None:
    """Returns the window of one slot, which a request has, from llama.cpp's `/props`."""
    settings = body.get("default_generation_settings") if isinstance(body, dict) else None
    return tokens(settings.get("n_ctx")) if isinstance(settings, dict) else None


def window_of_ps(body: Any, names: set[str]) -> int | None:
    """Returns the window of a loaded model from Ollama's `/api/ps`."""
    models = body.get("models") if isinstance(body, dict) else None
    for model in models if isinstance(models, list) else ():
        if isinstance(model, dict) and names & {str(model.get("name")), str(model.get("model"))}:
            return tokens(model.get("context_length"))
    return None


def window_of_show(body: Any) -> int | None:
    """Returns the window that a model will have when loaded, from Ollama's `/api/show`; None where it is not known."""
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
"""Upstreams whose lists are known to report neither windows nor prices."""
MODEL_INFO_WAIT_SECONDS = 2.0
"""Seconds that a request waits for its upstream's report."""
LOOK_SECONDS = 15.0
"""Seconds after which an upstream counts as having reported nothing."""
MODEL_INFO_TTL_SECONDS = 3600.0
UNCERTAIN_SECONDS = 60.0
"""Seconds until the next look where there was no answer, or the model is not loaded yet."""
MAX_LISTING_BYTES = 16 * 2**20
MODEL_INFO_LARGE_BYTES = 2**18
MAX_MODELS = 5000
MAX_KEPT_MODELS = 1000
OLLAMA, LLAMA_CPP, LM_STUDIO = "library", "llamacpp", "organization_owner"
"""Owners of models in OpenAI's list by which these servers are recognised."""
log = logs.get_logger("gateway.upstream")
Key = tuple[str, bytes]


@dataclass(slots=True)
class _ModelListing:
    """An upstream's list of models for one key, and until when it is not asked for again."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    until: float = 0.0
    table: "_DiscoveryTable | None" = None


@record
class _DiscoveryTable:
    models: dict[str, ModelDescription]
    owners: frozenset[str]

    def find(self, name: str) -> ModelDescription:
        """Returns a model's description. Ollama takes names without `:latest`; llama.cpp serves its one model by
        any."""
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
    """Returns whether the facts lack a window or prices that an upstream could add."""
    return (facts.max_input_tokens is None and facts.context_window is None) or not facts.prices


def completed(facts: ModelFacts, told: ModelDescription) -> ModelFacts:
    """Fills the gaps of facts with what an upstream reported. Configured values stay; a window that only LiteLLM's map
    knows does not, where the model's own server has a smaller one."""
    known = facts.context_window or facts.max_input_tokens
    stands = known is not None and (facts.window_is_configured or not told.certain or (told.window or known) >= known)
    if told.window and not stands:
        output = facts.max_output_tokens or told.max_output
        facts = replace(facts, max_input_tokens=told.window, context_window=told.window, max_output_tokens=output)
    return replace(facts, prices=told.prices) if told.prices and not facts.prices else facts


class DiscoveredModels:
    """What upstreams reported, by address, key and model: what one tenant's key is shown reaches no other tenant."""

    def __init__(self, client: httpx.AsyncClient, clock: ports.Clock, kept: WindowKeeper | None = None) -> None:
        """`kept`: windows that upstreams reported before this process began, or to other processes."""
        self._client = client
        self._kept = kept
        self._clock = clock
        self._tasks = BackgroundTasks()
        self._told: BoundedCache[tuple[Key, str], _DiscoveredModel] = BoundedCache(MAX_KEPT_MODELS)
        self._listings: BoundedCache[Key, _ModelListing] = BoundedCache(MAX_KEPT_MODELS)
        self._keys: BoundedCache[int, tuple[ModelDeployment, Key]] = BoundedCache(MAX_KEPT_MODELS)
        self._tables: dict[bytes, _DiscoveryTable] = {}

    def known(self, deployment: ModelDeployment) -> ModelDescription:
        """Returns what the upstream has reported of a model so far."""
        key = self._key(deployment)
        told = self._told.peek((key, deployment.provider_model))
        found = told.description if told else NOTHING_TOLD
        window = self._window(deployment, key)[0] if found.window is None else None
        return replace(found, window=window) if window is not None else found

    def _key(self, deployment: ModelDeployment) -> Key:
        """Computes `_key`, once for each deployment that the operator configured; a client's own key is not cached."""
        known = self._keys.peek(id(deployment))
        if known is not None and known[0] is deployment:
            return known[1]
        made = _key(deployment)
        return self._keys.put(id(deployment), (deployment, made))[1] if deployment.operator_key else made

    def refused(self, deployment: ModelDeployment, window: int) -> None:
        """Stores the window that a refusal named; the list is read again later, since it may have changed by then."""
        key = _key(deployment), deployment.provider_model
        told = self._told.get(key) or self._told.put(key, _DiscoveredModel())
        told.description = replace(told.description, window=window, certain=True)
        told.until = self._clock.monotonic() + MODEL_INFO_TTL_SECONDS
        self._keep(deployment, told.description)

    def _window(self, deployment: ModelDeployment, key: Key) -> tuple[int | None, datetime | None]:
        return self._kept.window(deployment.provider_model, repr(key)) if self._kept is not None else (None, None)

    def _keep(self, deployment: ModelDeployment, told: ModelDescription) -> None:
        """Stores a window for as long as it is not asked for again. Prices are stored nowhere: each process asks again
        for them."""
        if self._kept is None or told.window is None:
            return
        key, now = _key(deployment), self._clock.now()
        lasts = told.certain and not told.prices
        if lasts or self._window(deployment, key)[0] != told.window:
            until = now + timedelta(seconds=MODEL_INFO_TTL_SECONDS if lasts else 0)
            self._kept.keep_window(deployment.provider_model, repr(key), told.window, until)

    async def ask(self, deployment: ModelDeployment) -> None:
        """Asks the upstream of a model if that is due; concurrent requests wait for one answer, each at most
        `MODEL_INFO_WAIT_SECONDS` seconds from the beginning of the look. Never fails."""
        if not is_direct(deployment) or deployment.key_header != "authorization" or deployment.query:
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
        """Cancels all pending looks."""
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
        return ModelDescription(window, certain=False)  # when the model is loaded, /api/ps has the window

    async def _listing(self, deployment: ModelDeployment) -> _DiscoveryTable:
        """Returns the list of models, read once for all models of an upstream with one key."""
        key = _key(deployment)
        listing = self._listings.get(key) or self._listings.put(key, _ModelListing())
        async with listing.lock:
            if listing.table is None or self._clock.monotonic() >= listing.until:
                raw = await self._body(deployment, deployment.url("models"))
                listing.table = await self._shared(raw)
                listing.until = self._clock.monotonic() + UNCERTAIN_SECONDS
            return listing.table

    async def _shared(self, raw: bytes) -> _DiscoveryTable:
        """Returns the parsed list; equal lists are stored once, however many keys they were returned to."""
        digest = hashlib.sha256(raw).digest()
        if digest not in self._tables:
            used = {id(each.table) for each in self._listings.values()}
            self._tables = {name: table for name, table in self._tables.items() if id(table) in used}
            self._tables[digest] = await offload_if(len(raw) > MODEL_INFO_LARGE_BYTES, _table, raw)
        return self._tables[digest]

    async def _json(self, deployment: ModelDeployment, path: str, body: Any = None) -> Any:
        """Requests a server's own API beside `/v1`; None where there is no such path."""
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
    """Returns the upstream's address, and a digest of the key and headers of the call."""
    told = sorted({**deployment.headers, **deployment.authorization}.items())
    return deployment.api_base, hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).digest()


def is_direct(deployment: ModelDeployment) -> bool:
    """Returns whether an upstream is called in OpenAI's protocol and reports its own server's figures."""
    return deployment.protocol == "openai" and deployment.api_base not in SILENT_UPSTREAMS


def _table(raw: bytes) -> _DiscoveryTable:
    entries = list(listed(jsons.loads(raw)))[:MAX_MODELS]
    owners = frozenset(str(entry.get("owned_by"))[:100] for entry in entries)
    return _DiscoveryTable({entry["id"]: described(entry) for entry in entries}, owners)


def _of_lm_studio(entry: dict[str, Any]) -> ModelDescription:
    """Describes a model; of one that is not loaded only the largest window is known."""
    found = described(entry)
    return replace(found, certain="loaded_context_length" in entry)
