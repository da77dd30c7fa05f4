"""A chat request as arguments of `litellm.acompletion`: what a client may say, and what only the operator may."""

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

from gateway.errors import InvalidRequest
from gateway.models.exchange import Deployment
from gateway.upstream.deployments import REQUEST_FIELDS

WITHHELD = ("model", "metadata", "store")
BODY_IS_MERGED = ("gemini/", "vertex_ai/gemini", "vertex_ai_beta/")
"""For these, litellm merges `extra_body` into the provider's body as it stands."""
NOT_A_CLIENTS = re.compile(
    r"(^|_)(key|token|secret|credential|credentials|password|url|uri|endpoint|host|base|headers?|region|project|role|"
    r"profile|account|tenant|client|model|provider|deployment|callbacks?|mock|fallbacks?|litellm|proxy|vertex|aws|azure|"
    r"gcs|s3|oci|sap|watsonx|ssl|session|router|logger|guardrails?|hf|prompt|cost|retries|timeout|version|id)(_|$)|^_"
)
NO_KEY = "no-key"


def arguments(deployment: Deployment, body: Mapping[str, Any], owned: Collection[str]) -> dict[str, Any]:
    """Keyword arguments without transport and timeouts.

    Fields that litellm knows are handed over as such; any other goes up as it is, unless its name could be taken for
    one of litellm's own settings: those are the operator's alone.

    Messages and tools are copies: litellm rewrites what it is given, and these are still to be stored.

    Args:
        owned: names that litellm keeps to itself.

    Raises:
        InvalidRequest: a field that cannot go up; names it.
    """
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in body.items():
        if name in REQUEST_FIELDS:
            found[name] = copy.deepcopy(value)
        elif name not in WITHHELD:
            if name not in deployment.parameters and (name in owned or NOT_A_CLIENTS.search(name)):
                text = f"The field {name!r} cannot be sent to the provider of {deployment.model!r}."
                raise InvalidRequest(text, param=name, code="unsupported_parameter")
            extra[name] = value
    if extra and deployment.route.startswith(BODY_IS_MERGED):
        extra = {"extra_body": extra}
    keyed = {"api_key": deployment.api_key or NO_KEY} if deployment.api_key or not deployment.operator_key else {}
    addressed = {"api_base": deployment.api_base} if deployment.api_base else {}
    headed = {"extra_headers": dict(deployment.headers)} if deployment.headers else {}
    own = {"model": deployment.route, "num_retries": 0, "max_retries": 0, "_skip_mcp_handler": True}
    options = {k: v for k, v in deployment.options.items() if k != "modify_params"}
    return {**extra, **found, **keyed, **addressed, **headed, **options, **own}
