"""Opens the configured embedder (guarantee §5)."""

from gateway.config.loading import ConfigurationError
from gateway.config.settings import LOCAL, Settings
from gateway.embeddings.minilm import MiniLM
from gateway.errors import GatewayError
from gateway.models.relevance import EmbeddingFault
from gateway.ports import Embedder
from gateway.tokens.counter import CounterRegistry
from gateway.upstream.openai.chat import HttpUpstream
from gateway.upstream.openai.embeddings import UpstreamEmbedder
from gateway.upstream.routing.router import ConfiguredRouter


def open_embedder(
    settings: Settings, http: HttpUpstream, router: ConfiguredRouter, counters: CounterRegistry
) -> Embedder | None:
    """The embedder, not loaded or called yet; None where none is configured.

    Raises:
        ConfigurationError: it cannot be used.
    """
    name = settings.context.embedding_model
    if name is None:
        return None
    try:
        return MiniLM() if name == LOCAL else UpstreamEmbedder(http, router, counters.counter, name)
    except EmbeddingFault as error:
        hint = "; install context-gateway[embeddings]" if name == LOCAL else ""
        raise ConfigurationError(f"context.embedding_model: {name}: {error}{hint}") from None
    except GatewayError as error:
        raise ConfigurationError(f"context.embedding_model: {name}: {error.message}") from None
