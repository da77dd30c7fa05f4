"""What `gateway check` asks of an upstream."""

from dataclasses import dataclass, replace

import httpx

from gateway.base import jsons
from gateway.errors import GatewayError
from gateway.models.exchange import Deployment
from gateway.upstream.http.client import get

SECONDS = 10.0


PROBES = {
    "anthropic": ("https://api.anthropic.com", "/v1", "x-api-key", {"anthropic-version": "2023-06-01"}),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta", "", "x-goog-api-key", {}),
}
"""Of providers that litellm calls: address, the folder of its list of models, the key's header, further headers."""


def probed(deployment: Deployment) -> Deployment | None:
    """Whom to ask for its models in place of a deployment; None for a provider that has no such list, or none that
    can be asked for without litellm."""
    if deployment.protocol == "openai":
        return deployment
    known = PROBES.get(deployment.origin.partition(" ")[0])
    if known is None:
        return None
    base, folder, key_header, headers = known
    address = f"{deployment.api_base or base}{folder}"
    return replace(deployment, api_base=address, key_header=key_header, headers={**headers, **deployment.headers})


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What came of asking: `problem` is None where it answers and the key, if there is one, is not refused. `models`
    are the names in its list, where it is OpenAI's and names what may be asked for."""

    problem: str | None
    models: frozenset[str] | None = None

    def lacks(self, model: str) -> bool:
        """Whether that name is not in the list. Ollama takes a name without `:latest`."""
        return self.models is not None and not {model, f"{model}:latest"} & self.models


async def reach(client: httpx.AsyncClient, deployment: Deployment) -> ProbeResult:
    """Asks for `GET /models`."""
    try:
        response = await get(client, deployment, "models", SECONDS)
    except GatewayError as error:
        return ProbeResult(error.message)
    if response.status_code in (401, 403) and deployment.api_key:
        return ProbeResult(f"the key was refused (status {response.status_code})")
    if response.status_code >= 500:
        return ProbeResult(f"answered with status {response.status_code}")
    is_openai = deployment.protocol == "openai" and deployment.key_header == "authorization"
    return ProbeResult(None, _names(response.content) if is_openai and response.status_code == 200 else None)


def _names(content: bytes) -> frozenset[str] | None:
    try:
        names = frozenset(model["id"] for model in jsons.loads(content)["data"] if isinstance(model["id"], str))
    except (jsons.JSONDecodeError, KeyError, TypeError):
        return None
    return names or None
