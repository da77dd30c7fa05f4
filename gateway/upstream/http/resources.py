"""`GET` requests beside an upstream's completions: its models, a client's files, and probes whether it can be reached:
for `gateway check`, and of deployments that rest (`routing.probe`; guarantee §12.8).

A probe costs nothing, unlike a request that fails. It shows that a server is reachable, not that a model answers: the
next request finds that out.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx

from gateway.core import errors, jsons
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.types.chat import ModelDeployment, RequestCaller, StoredFile
from gateway.upstream.http.mending import refusal
from gateway.upstream.http_client import NO_ADDRESS, get
from gateway.upstream.routing.health import HealthWatch
from gateway.upstream.routing.router import CLAUDE_NAMES, ConfiguredRouter

MODELS_SECONDS = 30.0
FILE_SECONDS = 60.0
PROBE_TIMEOUT_SECONDS = 10.0
"""For `gateway check`, for which somebody waits at a screen."""
FILE_ID_PATTERN = re.compile(r"[\w-]{1,128}\Z")
ANTHROPIC_VERSION = {"anthropic-version": "2023-06-01"}
PROBES = {
    "anthropic": ("https://api.anthropic.com", "/v1", "x-api-key", ANTHROPIC_VERSION),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta", "", "x-goog-api-key", {}),
}
"""Probes of providers that litellm calls: address, path of the list of models, the key's header, further headers."""


class UpstreamModels:
    """`GET /v1/models`: the configured names; without any, the default upstream's own list."""

    def __init__(self, client: httpx.AsyncClient, router: ConfiguredRouter) -> None:
        self._client = client
        self._router = router

    async def model(self, name: str, caller: RequestCaller) -> dict[str, Any]:
        """Returns one model object, of a model that chats may ask for.
        Raises ModelNotFound: they may not; UpstreamError: only the default upstream knows, and it did not answer."""
        if self._router.lists(name):
            return _listed(name)
        if self._router.serves_unlisted:
            of_anthropic = name.startswith(CLAUDE_NAMES) and self._router.asks_anthropic(caller)
            deployment = self._anthropic(caller) if of_anthropic else self._router.default("", caller)
            for model in await self._of(deployment):
                if model.get("id") == name:
                    return model
            unlisted = await self._unlisted(name, deployment)
            if unlisted is not None:
                return unlisted
        raise self._router.unknown(name, caller)

    async def _unlisted(self, name: str, deployment: ModelDeployment) -> dict[str, Any] | None:
        """Returns a model that the upstream has for the client's own key without listing it, such as an alias."""
        if deployment.operator_key or {"", ".", ".."} & set(name.split("/")):
            return None
        response = await get(self._client, deployment, f"models/{quote(name, safe='/:')}", MODELS_SECONDS)
        with contextlib.suppress(jsons.JSONDecodeError):
            found = jsons.loads(response.content)
            if response.status_code == 200 and isinstance(found, dict) and isinstance(found.get("id"), str):
                return found
        return None

    async def models(self, caller: RequestCaller) -> list[dict[str, Any]]:
        """Returns OpenAI's model objects. Raises UpstreamError: the default upstream did not return its list."""
        if self._router.names:
            return [_listed(name) for name in self._router.names]
        if self._router.serves_unlisted and self._router.asks_anthropic(caller):
            return await self._of(self._anthropic(caller))
        if self._router.serves_unlisted:
            return await self._of_default(caller)
        try:  # patterns alone: what the default upstream has of them
            return [model for model in await self._of_default(caller) if self._router.lists(str(model.get("id")))]
        except errors.ModelNotFound:
            return []

    def _anthropic(self, caller: RequestCaller) -> ModelDeployment:
        """Returns the deployment from which a client with a key of Anthropic's gets Anthropic's own list, all in one
        page."""
        found = self._router.anthropic("", caller)
        base, version = f"{found.api_base}/v1", ANTHROPIC_VERSION
        return replace(found, api_base=base, key_header="x-api-key", headers=version, query="?limit=1000")

    async def _of_default(self, caller: RequestCaller) -> list[dict[str, Any]]:
        return await self._of(self._router.default("", caller))

    async def _of(self, deployment: ModelDeployment) -> list[dict[str, Any]]:
        response = await get(self._client, deployment, "models", MODELS_SECONDS)
        if response.status_code >= 400:
            raise refusal(response.status_code, response.content, response.headers, deployment)
        try:
            return [model for model in jsons.loads(response.content)["data"] if isinstance(model, dict)]
        except (jsons.JSONDecodeError, KeyError, TypeError) as error:
            raise errors.UpstreamInvalidResponse("The upstream's list of models is not one.") from error


def _listed(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "gateway"}


NO_FILE = "There is no such file for this key at the upstream; `files.serve: on` keeps files here."


class UpstreamFiles:
    """Files that a client stores at the default upstream, with its own key (a `FileStore`); nobody may read those of
    the operator's account (guarantee §1)."""

    def __init__(self, client: httpx.AsyncClient, router: ConfiguredRouter) -> None:
        self._client = client
        self._router = router

    @staticmethod
    def keeps(_caller: RequestCaller) -> bool:
        """Returns false: the files are stored upstream."""
        return False

    async def name(self, file_id: str, caller: RequestCaller) -> str:
        return await self._described(file_id, self._asked(file_id, caller))

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        """Fetches a file with its name and content.
        Raises NotFound: no such file, or not for this caller; UpstreamError: see `core/errors`."""
        deployment = self._asked(file_id, caller)
        name = await self._described(file_id, deployment)
        content = await self._get(f"files/{quote(file_id)}/content", deployment)
        return StoredFile(name, content.headers.get("content-type", ""), content.content)

    async def _described(self, file_id: str, deployment: ModelDeployment) -> str:
        try:
            described = jsons.loads((await self._get(f"files/{quote(file_id)}", deployment)).content)
        except jsons.JSONDecodeError as error:
            raise errors.UpstreamInvalidResponse("The upstream's description of the file is not JSON.") from error
        name = described.get("filename") if isinstance(described, dict) else None
        return str(name or file_id)

    def _asked(self, file_id: str, caller: RequestCaller) -> ModelDeployment:
        deployment = self._router.default("", caller)
        if deployment.operator_key or not FILE_ID_PATTERN.match(file_id):
            raise errors.NotFound(NO_FILE)
        return deployment

    async def _get(self, path: str, deployment: ModelDeployment) -> httpx.Response:
        response = await get(self._client, deployment, path, FILE_SECONDS)
        if response.status_code == 404:
            raise errors.NotFound(NO_FILE)
        if 300 <= response.status_code < 400:
            raise errors.UpstreamInvalidResponse(f"The upstream answered with status {response.status_code}.")
        if response.status_code >= 400:
            raise refusal(response.status_code, response.content, response.headers, deployment)
        return response


@record
class ProbeResult:
    """The result of a probe: `problem` is None if the upstream answers and does not refuse the key. `models` are the
    names in its list, where that is OpenAI's and names what may be asked for. `is_address`: whether its address
    can be called at all. `doubt`: why the address may be another's than the API's."""

    problem: str | None
    models: frozenset[str] | None = None
    is_address: bool = True
    doubt: str | None = None

    def lacks(self, model: str) -> bool:
        """Returns whether the upstream's list lacks that name. Ollama takes a name without `:latest`, Gemini without
        `models/`."""
        return self.models is not None and not {model, f"{model}:latest", f"models/{model}"} & self.models


def probed(deployment: ModelDeployment) -> ModelDeployment | None:
    """Returns the deployment that `GET models` is sent to in order to probe this one; None for a provider without such
    a list, or with one that only litellm can read."""
    if deployment.protocol == "openai":
        return deployment
    known = PROBES.get(deployment.origin.partition(" ")[0])
    if known is None:
        return None
    base, folder, key_header, headers = known
    address = f"{deployment.api_base or base}{folder}"
    return replace(deployment, api_base=address, key_header=key_header, headers={**headers, **deployment.headers})


async def reach(client: httpx.AsyncClient, deployment: ModelDeployment) -> ProbeResult:
    """Probes an upstream for `gateway check`: `GET models`."""
    try:
        response = await get(client, deployment, "models", PROBE_TIMEOUT_SECONDS)
    except errors.GatewayError as error:
        return ProbeResult(error.message, is_address=not isinstance(error.__cause__, NO_ADDRESS))
    if response.status_code in (401, 403) and deployment.api_key:
        return ProbeResult(f"the key was refused (status {response.status_code})")
    if response.status_code >= 500:
        return ProbeResult(f"answered with status {response.status_code}")
    if response.is_redirect:  # none is followed, with a key
        return ProbeResult(None, doubt=f"it redirects (status {response.status_code}): set api_base to where")
    if deployment.protocol != "openai" or deployment.key_header != "authorization":
        return ProbeResult(None)
    if response.status_code == 404 and not deployment.api_base.rstrip("/").endswith("/v1"):
        below = replace(deployment, api_base=f"{deployment.api_base.rstrip('/')}/v1")
        with contextlib.suppress(errors.GatewayError):
            if _names(await get(client, below, "models", PROBE_TIMEOUT_SECONDS)) is not None:
                return ProbeResult(None, doubt="its models are listed below /v1: let api_base end with it")
    if _is_page(response):
        return ProbeResult(None, doubt="its list of models is a web page: is api_base the API's address?")
    return ProbeResult(None, _names(response) or None)


def _names(response: httpx.Response) -> frozenset[str] | None:
    """Returns the names in an upstream's list of models; None if the response is no such list."""
    if response.status_code != 200:
        return None
    try:
        listed = jsons.loads(response.content)["data"]
        return frozenset(model["id"] for model in listed if isinstance(model["id"], str))
    except (jsons.JSONDecodeError, KeyError, TypeError):
        return None


def _is_page(response: httpx.Response) -> bool:
    return response.status_code == 200 and response.headers.get("content-type", "").startswith("text/html")


Reach = Callable[[ModelDeployment], Awaitable[ProbeResult]]
log = logs.get_logger("gateway.routing")


async def probe(health: HealthWatch, asked: Reach, seconds: float) -> None:
    """Probes each resting deployment once, all at the same time. One that is not reached rests on until the probe after
    the next; one that has no list of models is left alone.
    `seconds`: until the next."""
    resting = [watch.deployment for watch, rests in health.watched() if rests]
    await asyncio.gather(*(_probe(health, each, asked, seconds) for each in resting))


async def _probe(health: HealthWatch, deployment: ModelDeployment, asked: Reach, seconds: float) -> None:
    place = probed(deployment)
    if place is None:
        return
    try:
        problem = (await asked(place)).problem
    except Exception as error:  # noqa: BLE001 - a probe is worth nothing: requests go on without
        problem = type(error).__name__
    health.probed(deployment.id, reached=problem is None, wait=2 * seconds)
    log.info("deployment_probed", deployment=deployment.id, reached=problem is None)
