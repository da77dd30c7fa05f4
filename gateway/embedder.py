"""Which embedder `context.embedding_model` names."""

from gateway.configuration import ConfigurationError
from gateway.embeddings.minilm import MiniLM
from gateway.errors import GatewayError
from gateway.models.embedding import EmbeddingFault
from gateway.ports import Embedder, Router, TokenCounters
from gateway.settings import LOCAL, Settings
from gateway.upstream.embeddings import UpstreamEmbedder
from gateway.upstream.openai_compatible import HttpUpstream


def open_embedder(settings: Settings, http: HttpUpstream, router: Router, counters: TokenCounters) -> Embedder | None:
    """The embedder, not loaded or called yet; None where none is configured.

    Raises:
        ConfigurationError: it cannot be used.
    """
    name = settings.context.embedding_model
    if name is None:
        return None
    try:
        return MiniLM() if name == LOCAL else UpstreamEmbedder(http, router, counters, name)
    except EmbeddingFault as error:
        hint = "; install context-gateway[embeddings]" if name == LOCAL else ""
        raise ConfigurationError(f"context.embedding_model: {name}: {error}{hint}") from None
    except GatewayError as error:
        raise ConfigurationError(f"context.embedding_model: {name}: {error.message}") from None
