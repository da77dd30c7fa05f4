"""Where models are served, and the calls to them. The only home of the HTTP client and of litellm.

Offers an adapter for each protocol, and what is asked of providers beside answers; `routing/`, with a face of its own,
says who is asked. Read first: `routing/router.py` (who is asked) and `openai/answers.py` (how). Never changes what is
asked but for the protocol's sake, and never retries by itself: the pipeline does.
"""

import sys
from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.upstream.anthropic_adapter import AnthropicUpstream
    from gateway.upstream.http_client import ConnectionPool, new_client
    from gateway.upstream.identity import HttpIdentityDocuments
    from gateway.upstream.litellm.provider import LitellmUpstream, rehearse
    from gateway.upstream.litellm.wire import LitellmLibrary
    from gateway.upstream.openai import passthrough, resources
    from gateway.upstream.openai.answers import HttpUpstream
    from gateway.upstream.openai.embeddings import UpstreamEmbedder
    from gateway.upstream.openai.model_info import DiscoveredModels, lacks
    from gateway.upstream.openai.passthrough import PassthroughClient, RawAnswer
    from gateway.upstream.responses_adapter import ResponsesUpstream
    from gateway.upstream.s3 import S3Contents, reach_bucket
    from gateway.upstream.wrapper import UpstreamPassage, UpstreamWrapper
else:
    __getattr__ = lazy_face(
        __name__,
        {
            "AnthropicUpstream": "anthropic_adapter",
            "ConnectionPool": "http_client",
            "DiscoveredModels": "openai.model_info",
            "HttpIdentityDocuments": "identity",
            "HttpUpstream": "openai.answers",
            "LitellmLibrary": "litellm.wire",
            "LitellmUpstream": "litellm.provider",
            "PassthroughClient": "openai.passthrough",
            "RawAnswer": "openai.passthrough",
            "ResponsesUpstream": "responses_adapter",
            "S3Contents": "s3",
            "UpstreamEmbedder": "openai.embeddings",
            "UpstreamPassage": "wrapper",
            "UpstreamWrapper": "wrapper",
            "lacks": "openai.model_info",
            "new_client": "http_client",
            "passthrough": "openai.passthrough",
            "reach_bucket": "s3",
            "rehearse": "litellm.provider",
            "resources": "openai.resources",
        },
    )

__all__ = [
    "AnthropicUpstream",
    "ConnectionPool",
    "DiscoveredModels",
    "HttpIdentityDocuments",
    "HttpUpstream",
    "LitellmLibrary",
    "LitellmUpstream",
    "PassthroughClient",
    "RawAnswer",
    "ResponsesUpstream",
    "S3Contents",
    "UpstreamEmbedder",
    "UpstreamPassage",
    "UpstreamWrapper",
    "lacks",
    "new_client",
    "passthrough",
    "reach_bucket",
    "rehearse",
    "resources",
]

# httpx's own command, which it does without: it would bring rich and pygments to each start.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
