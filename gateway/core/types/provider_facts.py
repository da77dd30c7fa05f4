"""What is known of providers, as data: of the protocols that they are called in, of makers' models, and of who hands
requests on to others. What an upstream tells of itself is not here, nor what an operator configures.

Where a fact is used: `context/assembly/` (fields, breakpoints, translations), `context/tokens/` (pictures, pages),
`context/` (files), `pipeline/` and `upstream/routing/`. Which fields of messages are a provider's own is in
`core/types/items.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from gateway.core.types.chat import ModelDeployment


@dataclass(frozen=True, slots=True)
class ProtocolFacts:
    """What the providers that are called in a protocol take."""

    is_openais: bool = False
    """Its endpoint stands beside OpenAI's others."""
    knows_keys: bool = False
    """They know `Idempotency-Key`."""
    as_anthropics: bool = False
    """Messages for Claude go up translated into Anthropic's."""
    takes_items: bool = False
    """They take back what only Responses has (`core.types.items.OF_RESPONSES`)."""
    takes_blocks: bool = False
    """They take back Anthropic's blocks as they came."""
    text_results: bool = False
    """The result of a tool is a text, and nothing else."""
    file_results: bool = False
    """It may hold PDFs."""


PROTOCOLS: Mapping[str, ProtocolFacts] = MappingProxyType(
    {
        "openai": ProtocolFacts(is_openais=True, knows_keys=True, text_results=True),
        "responses": ProtocolFacts(is_openais=True, knows_keys=True, takes_items=True, file_results=True),
        "anthropic": ProtocolFacts(as_anthropics=True, takes_blocks=True, file_results=True),
        "litellm": ProtocolFacts(as_anthropics=True, text_results=True),
    }
)


@dataclass(frozen=True, slots=True)
class TiledPictures:
    """A picture costs `base`, and `tile` for each of its tiles of 512 pixels: OpenAI's vision guide. gpt-4o-mini is
    billed 33 times as much; its window is not taken up by that, so that counting it here would refuse what the model
    accepts."""

    base: int
    tile: int


@dataclass(frozen=True, slots=True)
class PatchedPictures:
    """A picture costs `factor` for each of its patches of 32 pixels: OpenAI's vision guide."""

    factor: float


@dataclass(frozen=True, slots=True)
class ScaledPictures:
    """A picture costs a token for `pixels_per_token` once its longer side is no more than `long_side`, `most` at most:
    Anthropic's "Vision"."""

    pixels_per_token: int
    long_side: int
    most: int


PictureCosts = TiledPictures | PatchedPictures | ScaledPictures
OPENAIS_PICTURES = TiledPictures(85, 170)
"""Also taken for models of makers that publish no formula."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Models of one maker. `names` is looked for in a name in small letters."""

    names: re.Pattern[str]
    pictures: PictureCosts = OPENAIS_PICTURES
    page: int | None = None
    """Tokens of a page of a PDF, its text included; None: its text, and a picture of it."""
    signs_thoughts: bool = False
    """Thoughts are signed, and of use to the same maker's models alone, whichever cloud serves them; a request says by
    `thinking` how much is to be thought."""
    wants_breakpoints: bool = False
    """Prompts are cached only up to blocks with `cache_control`."""


CLAUDE = ModelFamily(re.compile("claude"), ScaledPictures(750, 1568, 1640), signs_thoughts=True, wants_breakpoints=True)
OTHERS = ModelFamily(re.compile(""))
FAMILIES = (
    CLAUDE,
    ModelFamily(re.compile(r"^gemini-0*[0-2](?!\d)"), page=258),  # "Document understanding"
    ModelFamily(re.compile("^gemini"), page=560),  # "Media resolution": medium; the latest where no version is named
    ModelFamily(re.compile("^(gpt-5-mini|gpt-4\\.1-mini)"), PatchedPictures(1.62)),
    ModelFamily(re.compile("^(gpt-5-nano|gpt-4\\.1-nano)"), PatchedPictures(2.46)),
    ModelFamily(re.compile("^o4-mini"), PatchedPictures(1.72)),
    ModelFamily(re.compile("^gpt-5"), TiledPictures(70, 140)),
    ModelFamily(re.compile("^o[13]"), TiledPictures(75, 150)),
    OTHERS,
)
"""The first whose names fit counts."""

EFFORT_MODELS = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")
"""Models of OpenAI's that think: they take `max_completion_tokens` alone, and an effort."""
EFFORT_PROVIDERS = ("openai", "azure")
EFFORTS = ((4096, "low"), (16384, "medium"))
"""Up to which tokens of thoughts an effort is meant; more are `high`."""
EFFORT_LEVELS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""What Anthropic's words for an effort are to OpenAI's models."""

LIMITED_ROUTES = ("anthropic/", "vertex_ai/claude", "azure_ai/claude")
"""Anthropic's own models as litellm names them: they want `max_tokens`."""
ANSWER_LIMITS = ("max_completion_tokens", "max_tokens", "thinking", "reasoning_effort")
"""Fields that limit their answer. For the last two litellm sets `max_tokens` itself."""
ROUTERS = ("openrouter/", "litellm_proxy/")
"""Who hands requests on, in OpenAI's protocol, to others' models, and tells those where to cache."""
ROUTER_ADDRESS = "openrouter.ai"


def family_of(model: str) -> ModelFamily:
    """The family of a model, by its name with or without its provider."""
    return family_in(model.rsplit("/", 1)[-1])


@lru_cache(1024)
def family_in(text: str) -> ModelFamily:
    """The family that a route or an id names, wherever it does."""
    return next(each for each in FAMILIES if each.names.search(text.lower()))


def is_routed(deployment: ModelDeployment) -> bool:
    """Whether it hands requests on."""
    return deployment.route.startswith(ROUTERS) or ROUTER_ADDRESS in deployment.api_base
