"""What a client is told of an error answer to a relayed call (contract §7)."""

import zlib
from collections.abc import Mapping

from gateway.errors import UpstreamError, UpstreamRefused
from gateway.models.exchange import Deployment
from gateway.upstream.faults import refusal

MAX_ERROR_BYTES = 2**20


def check_refusal(method: str, status: int, raw: bytes, headers: Mapping[str, str], deployment: Deployment) -> None:
    """Returns if the answer may go down as it came: an error in OpenAI's shape that names no key of the operator's.

    Raises:
        UpstreamError: what the client is told in its stead.
    """
    plain = _decoded(raw, headers.get("content-encoding", ""))
    fault: UpstreamError = refusal(status, plain or b"", headers, deployment)
    secret = deployment.api_key.encode() if deployment.operator_key and deployment.api_key else None
    readable = plain is not None or secret is None
    if readable and type(fault) is UpstreamRefused and not (secret and secret in (plain or b"")):
        shaped = isinstance(fault.original, dict) and isinstance(fault.original.get("error"), dict)
        if shaped or plain is None or method == "HEAD":
            return
    raise fault


def _decoded(raw: bytes, coding: str) -> bytes | None:
    """The body in plain; None where its coding is not one that we read."""
    if coding in ("", "identity"):
        return raw
    if coding not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(47).decompress(raw, MAX_ERROR_BYTES)
    except zlib.error:
        return None
