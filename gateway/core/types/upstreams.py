"""The deployments that may serve a request, the outcome of each attempt (guarantee §12.5, §12.8), what is sent upstream
and for whom, and by how much a model's token count differs from ours (ADR 13).

Facts about providers, as data: about protocols, makers' models, and routers. What an upstream reports of itself, and
what an operator configures, is elsewhere; which fields of messages are a provider's own is in `core/types/items.py`.
"""

import re
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.types.bill import PER_USD, InternalCall
from gateway.core.types.chat import Headers, ModelDeployment, RequestCaller


@record
class ProtocolFacts:
    """What the providers that speak a protocol accept."""

    is_openais: bool = False
    """Its endpoint is beside OpenAI's others."""
    knows_keys: bool = False
    """They know `Idempotency-Key`."""
    as_anthropics: bool = False
    """Messages for Claude are translated into Anthropic's before they are sent upstream."""
    takes_items: bool = False
    """They accept again what only Responses has (`core.types.items.RESPONSES_ALONE`)."""
    takes_blocks: bool = False
    """They accept Anthropic's blocks again, unchanged."""
    text_results: bool = False
    """A tool result is text only."""
    file_results: bool = False
    """A tool result may contain PDFs."""


PROTOCOLS: Mapping[str, ProtocolFacts] = MappingProxyType(
    {
        "openai": ProtocolFacts(is_openais=True, knows_keys=True, text_results=True),
        "responses": ProtocolFacts(is_openais=True, knows_keys=True, takes_items=True, file_results=True),
        "anthropic": ProtocolFacts(as_anthropics=True, takes_blocks=True, file_results=True),
        "litellm": ProtocolFacts(as_anthropics=True, text_results=True),
    }
)


@record
class TiledPictures:
    """A picture costs `base`, and `tile` for each of its tiles of 512 pixels: OpenAI's vision guide. gpt-4o-mini is
    billed 33 times as much, but this does not count against its window: counted here, it would cause refusals of
    prompts that the model accepts."""

    base: int
    tile: int


@record
class PatchedPictures:
    """A picture costs `factor` for each of its patches of 32 pixels: OpenAI's vision guide."""

    factor: float


@record
class ScaledPictures:
    """A picture, scaled so that its longer side is at most `long_side`, costs a token per `pixels_per_token`, at most
    `most`: Anthropic's "Vision"."""

    pixels_per_token: int
    long_side: int
    most: int


PictureCosts = TiledPictures | PatchedPictures | ScaledPictures
OPENAIS_PICTURES = TiledPictures(85, 170)
"""Also used for models of makers that publish no formula."""


@record
class ModelFamily:
    """Models of one maker. `names` is searched for in a name in lower case."""

    names: re.Pattern[str]
    pictures: PictureCosts = OPENAIS_PICTURES
    page: int | None = None
    """Tokens of a page of a PDF, its text included; None: its text, and a picture of it."""
    signs_thoughts: bool = False
    """Reasoning is signed, and usable only by the same maker's models, whichever cloud serves them; a request sets its
    length by `thinking`."""
    wants_breakpoints: bool = False
    """Prompts are cached only up to blocks with `cache_control`."""


CLAUDE = ModelFamily(re.compile("claude"), ScaledPictures(750, 1568, 1640), signs_thoughts=True, wants_breakpoints=True)
OTHER_FAMILY = ModelFamily(re.compile(""))
FAMILIES = (
    CLAUDE,
    ModelFamily(re.compile(r"^gemini-0*[0-2](?!\d)"), page=258),  # "Document understanding"
    ModelFamily(re.compile("^gemini"), page=560),  # "Media resolution": medium; the latest where no version is named
    ModelFamily(re.compile("^(gpt-5-mini|gpt-4\\.1-mini)"), PatchedPictures(1.62)),
    ModelFamily(re.compile("^(gpt-5-nano|gpt-4\\.1-nano)"), PatchedPictures(2.46)),
    ModelFamily(re.compile("^o4-mini"), PatchedPictures(1.72)),
    ModelFamily(re.compile("^gpt-5"), TiledPictures(70, 140)),
    ModelFamily(re.compile("^o[13]"), TiledPictures(75, 150)),
    OTHER_FAMILY,
)
"""The first family whose names match counts."""

EFFORT_MODELS = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")
"""OpenAI's reasoning models: of the limits they accept only `max_completion_tokens`, and they take an effort."""
EFFORT_PROVIDERS = ("openai", "azure")
EFFORTS = ((4096, "low"), (16384, "medium"))
"""Most reasoning tokens that correspond to an effort; more are `high`."""
EFFORT_LEVELS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""OpenAI's effort for each of Anthropic's."""

LIMITED_ROUTES = ("anthropic/", "vertex_ai/claude", "azure_ai/claude")
"""Anthropic's own models as litellm names them: they require `max_tokens`."""
ANSWER_LIMITS = ("max_completion_tokens", "max_tokens", "thinking", "reasoning_effort")
"""Fields that limit their answers. For the last two litellm sets `max_tokens` itself."""
GEMINI_ROUTES = ("gemini/", "vertex_ai/gemini", "vertex_ai_beta/")
"""Google's own models as litellm names them."""
ROUTERS = ("openrouter/", "litellm_proxy/")
"""Routers, which pass requests in OpenAI's protocol to others' models, with their cache breakpoints."""
ROUTER_ADDRESS = "openrouter.ai"


def family_of(model: str) -> ModelFamily:
    """Returns the family of a model, by its name with or without its provider."""
    return family_in(model.rsplit("/", 1)[-1])


@lru_cache(1024)
def family_in(text: str) -> ModelFamily:
    """Returns the family whose name a route or an id contains anywhere."""
    return next(each for each in FAMILIES if each.names.search(text.lower()))


NOT_READ_BY_CLAUDE = {"input_audio": "sound", "video_url": "video"}
"""Parts that no model of Anthropic's takes, and what they are."""


def as_read_by_claude(part: dict[str, Any]) -> dict[str, Any]:
    """Returns a text in the place of a part that no model of Anthropic's takes; any other part unchanged."""
    name = NOT_READ_BY_CLAUDE.get(str(part.get("type")))
    return part if name is None else {"type": "text", "text": f"({name}: not readable here)"}


def is_routed(deployment: ModelDeployment) -> bool:
    """Returns whether a deployment is a router, which passes requests on."""
    return deployment.route.startswith(ROUTERS) or ROUTER_ADDRESS in deployment.api_base


def becomes_thinking(deployment: ModelDeployment) -> bool:
    """Returns whether an effort is sent to a deployment as a budget of signed thinking."""
    name = f"{deployment.route} {deployment.provider_model}"
    return PROTOCOLS[deployment.protocol].as_anthropics and family_in(name).signs_thoughts


OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
"""The fields by which a request limits the length of its answer."""


@record
class CallScope:
    """For whom and for what a model is called, and where that is recorded (guarantee §12.9). `calls` are those for the
    bill; `warnings` those of the answer; `reported` is the usage of answers that are still being checked. `reserve` is
    awaited before each call of an internal model, with the most that it can use, where a budget may refuse it."""

    caller: RequestCaller = field(default_factory=lambda: RequestCaller(""))
    request_id: str | None = None
    purpose: str = "primary"
    calls: list[InternalCall] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reported: list[dict[str, Any]] = field(default_factory=list)
    reserve: Callable[[InternalCall], Awaitable[None]] | None = None

    def made_for(self, purpose: str) -> "CallScope":
        """Returns the scope for a call with another purpose, on the same bill."""
        return replace(self, purpose=purpose, reported=[])

    def charge(self, guard: str, usd: Decimal) -> None:
        """Adds a guard's cost in USD to the bill."""
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "units": {"usd": usd}}
        self.calls.append(InternalCall("guard", f"guard/{guard}", usage, {PER_USD: Decimal(1)}))

    def reports(self, usage: Any) -> None:
        """Records the usage of a whole answer, whether or not the answer is returned to a client."""
        if isinstance(usage, dict):
            self.reported[:] = [usage]

    def warn(self, warning: str) -> None:
        """Adds a warning, unless it is there already."""
        if warning not in self.warnings:
            self.warnings.append(warning)


@record
class UpstreamRequest:
    """A request to a model. `body` is in the form of chat completions; `native` are the client's own fields of the API
    that the upstream speaks, None if the client used another API. `headers` are the client's that are sent upstream.
    `arrived` gets the pieces of a whole answer as they come, for a caller that wants to know what came of a broken
    one."""

    body: dict[str, Any]
    native: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    scope: CallScope = field(default_factory=CallScope, repr=False)
    arrived: list[bytes] | None = field(default=None, repr=False)


@record
class RelayedCall:
    """A request as sent upstream. `target` is path and query below the upstream's base, percent-encoded as received.

    A body of bytes can be sent again if no connection was established; one in pieces is sent as it arrives.
    """

    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterable[bytes] | None = field(repr=False)
    scope: CallScope = field(default_factory=CallScope, repr=False)


MIN_MARGIN, MAX_MARGIN = 0.5, 3.0
CALL_TOKENS = 13
"""Most tokens of a tool call's framing, beside name and arguments: as in OpenAI's open models (harmony)."""
MESSAGE_TOKENS = 4
"""Tokens of a message's framing, its role included (OpenAI's cookbook)."""


@record
class ModelCalibration:
    """What was learned of a model's token counts.

    Attributes:
        margin: the model's tokens per token as counted.
        samples: how many reports it was learned from.
        saved_per_call: by how many tokens a tool call is overcounted.
        calls_seen: calls of the largest prompt that has shown this.
        streak: the number of latest consecutive reports that show a larger saving, the least of these savings, and the
            most calls in one of them.
        added_per_message: by how many tokens each message is undercounted.
        told_window: a window that is not configured, as the upstream reported it, in its list or by a refusal.
        told_until: when it is queried again.
    """

    margin: float
    samples: int
    updated_at: datetime
    saved_per_call: int = 0
    calls_seen: int = 0
    streak: tuple[int, int, int] = (0, 0, 0)
    added_per_message: int = 0
    told_window: int | None = None
    told_until: datetime | None = None

    def saved(self, calls: int) -> int:
        """Returns the tokens to subtract for each of `calls` calls: together no more than was seen in one prompt, since
        what looked like the framing of calls may have been that of something else."""
        return self.saved_per_call if calls <= self.calls_seen else self.saved_per_call * self.calls_seen // calls
