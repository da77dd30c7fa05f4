"""The body that goes upstream."""

from typing import Any

from gateway.models.exchange import Deployment


def request_body(
    forward: dict[str, Any], messages: list[dict[str, Any]], deployment: Deployment, *, stream: bool, ask_usage: bool
) -> dict[str, Any]:
    """The client's fields untouched over the deployment's own; of a stream, usage is always asked for (contract §6)."""
    body = {**deployment.parameters, **forward, "model": deployment.provider_model, "messages": messages}
    if stream:
        body["stream"] = True
        options = dict(forward.get("stream_options") or {})
        options.pop("include_usage", None)
        if ask_usage:
            options["include_usage"] = True
        body.pop("stream_options", None)
        if options:
            body["stream_options"] = options
    return body
