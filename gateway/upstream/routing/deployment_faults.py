"""What an error says of the deployment that gave it (guarantee §12.8)."""

from dataclasses import dataclass
from datetime import datetime

from gateway.core.errors import (
    UpstreamAuth,
    UpstreamError,
    UpstreamRefused,
)
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.openai.provider_faults import waited_for

NO_CREDIT = (401, 402, 403)
"""Statuses by which an account may not ask, or not any more."""
SPENT = "insufficient_quota"
"""OpenAI's code for a 429 that stays one until somebody pays."""
FAILING = (408, 500, 502, 503, 504, 529)
"""Other statuses from 500 on are about what was asked (501: no such endpoint)."""
RATE_LIMITED = 429


@dataclass(frozen=True, slots=True)
class DeploymentFault:
    """Counts against a deployment. `at_once`: one is enough, no other request will fare better. `wait`: for how many
    seconds it wants to be left alone, if it says so."""

    code: str
    at_once: bool = False
    wait: float | None = None


def fault_of(error: BaseException, deployment: ModelDeployment, now: datetime) -> DeploymentFault | None:
    """What counts against the deployment; None for what is wrong with the request, with the client's own key, or with
    nothing at all (a client that left)."""
    if not isinstance(error, UpstreamError):
        return None
    if isinstance(error, UpstreamAuth):
        return DeploymentFault("upstream_auth", at_once=True)
    if not isinstance(error, UpstreamRefused):
        return DeploymentFault(type(error).code or "upstream_error")
    code, wait = f"upstream_{error.status}", waited_for(error.headers, now)
    if error.status in FAILING:
        return DeploymentFault(code, wait=wait)
    if not deployment.operator_key:  # the account is the client's
        return None
    if error.status in NO_CREDIT or (error.status == RATE_LIMITED and error.code == SPENT):
        return DeploymentFault(code, at_once=True)
    return DeploymentFault(code, wait=wait) if error.status == RATE_LIMITED else None
