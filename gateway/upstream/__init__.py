"""Calls the providers that serve models. The only home of the HTTP client and of litellm.

Offers an adapter for each protocol, and the calls to providers beside completions; `routing/`, a package with its own
exports, decides which deployment is called. Read first: `routing/router.py` (which deployment) and `http/answers.py`
(the call). Changes a request only where the protocol requires it, and never retries: the pipeline does.
"""

import sys
from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.upstream.http import passthrough, resources
    from gateway.upstream.http.answers import HttpUpstream
    from gateway.upstream.http.embeddings import UpstreamEmbedder
    from gateway.upstream.http.model_info import DiscoveredModels, lacks
    from gateway.upstream.http.passthrough import PassthroughClient, RawAnswer
    from gateway.upstream.http_client import ConnectionPool, new_client
    from gateway.upstream.identity import HttpIdentityDocuments
    from gateway.upstream.litellm.provider import warm_up_call
    from gateway.upstream.litellm.wire import LitellmLibrary
    from gateway.upstream.s3 import S3Contents, reach_bucket
    from gateway.upstream.wiring import WiredUpstreams
    from gateway.upstream.wrapper import UpstreamPassage, UpstreamWrapper
else:
    __getattr__ = lazy_face(__name__)

# httpx's command-line tool, which it works without: it would load rich and pygments at each start.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
