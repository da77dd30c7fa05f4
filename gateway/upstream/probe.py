"""What `gateway check` asks of an upstream."""

from dataclasses import replace

import httpx

from gateway.errors import GatewayError
from gateway.models.exchange import Deployment
from gateway.upstream.client import get

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


async def reach(client: httpx.AsyncClient, deployment: Deployment) -> str | None:
    """None if `GET /models` answers and the key, where there is one, is not refused; else what is wrong."""
    try:
        response = await get(client, deployment, "models", SECONDS)
    except GatewayError as error:
        return error.message
    if response.status_code in (401, 403) and deployment.api_key:
        return f"the key was refused (status {response.status_code})"
    if response.status_code >= 500:
        return f"answered with status {response.status_code}"
    return None
