"""Which deployments a request may be asked at, what becomes of each try (guarantee §12.5, §12.8), what goes up and for
whom, and by how much a model's count differs from ours (ADR 13).

What is known of providers, as data: of protocols, of makers' models, and of who hands requests on. What an upstream
tells of itself is not here, nor what an operator configures; which fields of messages are a provider's own is in
`core/types/items.py`.
"""

import re
from collections.abc import AsyncIterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.types.bill import PER_USD, InternalCall
from gateway.core.types.chat import Headers, ModelDeployment, RequestCaller


class RoutingAttempt(Protocol):
    """One try at a deployment, from the moment in which it is asked. Each is ended once; what comes after is ignored.

    A deployment that is not watched (the default upstream, a client's own key) has attempts that do nothing.
    """

    def answered(self) -> None:
        """The first byte of an answer that is no error has come: the deployment is well."""
        ...

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        """It is over: with an error, or at the end of the answer. A client that left (`CancelledError`) tells nothing
        of the deployment. Whether an error counts against it is decided there: faults of a request do not.
        `tokens`: those that the answer took beside the prompt, for a deployment with a limit of tokens."""
        ...


class RoutingCandidates(Protocol):
    """The deployments that one request may be asked at, best first."""

    @property
    def first(self) -> ModelDeployment:
        """Where it is asked first: facts, budget and context are made for this one."""
        ...

    @property
    def several(self) -> bool:
        """Whether there are others."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether `first` is asked for want of a better one: all of them rest or are at their limits. A model that may
        answer instead may be asked without asking here."""
        ...

    def next(self, after: ModelDeployment, error: errors.GatewayError) -> ModelDeployment | None:
        """Another that was not asked yet, as things stand now; None if there is none. A resting one is named if nothing
        else is left: whether to ask it is the caller's to say (`rests`).
        `after`: the one that was asked last; `error`: how it failed."""
        ...

    def rests(self, deployment: ModelDeployment) -> bool:
        """Whether that one is not to be asked now: it failed too often, or is at its limits."""
        ...

    def began(self, deployment: ModelDeployment, tokens: int = 0) -> RoutingAttempt:
        """A try begins there. `tokens`: what the prompt was counted at, for a deployment with a limit of tokens."""
        ...

    def remember(self, completion_id: str, deployment: ModelDeployment) -> None:
        """That completion was made there: a request that goes on behind it is asked there as well."""
        ...


@record
class ProtocolFacts:
    """What the providers that are called in a protocol take."""

    is_openais: bool = False
    """Its endpoint stands beside OpenAI's others."""
    knows_keys: bool = False
    """They know `Idempotency-Key`."""
    as_anthropics: bool = False
    """Messages for Claude go up translated into Anthropic's."""
    takes_items: bool = False
    """They take back what only Responses has (`core.types.items.RESPONSES_ALONE`)."""
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


@record
class TiledPictures:
    """A picture costs `base`, and `tile` for each of its tiles of 512 pixels: OpenAI's vision guide. gpt-4o-mini is
    billed 33 times as much; its window is not taken up by that, so that counting it here would refuse what the model
    accepts."""

    base: int
    tile: int


@record
class PatchedPictures:
    """A picture costs `factor` for each of its patches of 32 pixels: OpenAI's vision guide."""

    factor: float


@record
class ScaledPictures:
    """A picture costs a token for `pixels_per_token` once its longer side is no more than `long_side`, `most` at most:
    Anthropic's "Vision"."""

    pixels_per_token: int
    long_side: int
    most: int


PictureCosts = TiledPictures | PatchedPictures | ScaledPictures
OPENAIS_PICTURES = TiledPictures(85, 170)
"""Also taken for models of makers that publish no formula."""


@record
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


OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
"""The fields with which a request names how long its answer may be."""


@record
class CallScope:
    """For whom a model is called, what for, and where it is noted (guarantee §12.9). `calls` are those that will be on
    the bill; `warnings` those of the answer; `reported` is the usage of answers that somebody still looks at."""

    caller: RequestCaller = field(default_factory=lambda: RequestCaller(""))
    request_id: str | None = None
    purpose: str = "primary"
    calls: list[InternalCall] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reported: list[dict[str, Any]] = field(default_factory=list)

    def made_for(self, purpose: str) -> "CallScope":
        """The same for a call that is made for something else; it is on the same bill."""
        return replace(self, purpose=purpose, reported=[])

    def charge(self, guard: str, usd: Decimal) -> None:
        """Puts what a guard cost on the bill."""
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "units": {"usd": usd}}
        self.calls.append(InternalCall("guard", f"guard/{guard}", usage, {PER_USD: Decimal(1)}))

    def reports(self, usage: Any) -> None:
        """Notes the usage of a whole answer, whoever gets that."""
        if isinstance(usage, dict):
            self.reported[:] = [usage]

    def warn(self, warning: str) -> None:
        """Notes a warning once."""
        if warning not in self.warnings:
            self.warnings.append(warning)


@record
class UpstreamRequest:
    """What a model is asked. `body` is in the words of chat completions; `native` are the fields that the client said
    in the words of the API that the upstream speaks, None where its own API is another. `headers` are those of the
    client that go up."""

    body: dict[str, Any]
    native: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    scope: CallScope = field(default_factory=CallScope, repr=False)


@record
class RelayedCall:
    """A request as it goes up. `target` is path and query below the upstream's base, percent-encoded as they came.

    A body of bytes can be sent again if no connection came about; one in pieces is sent as it arrives.
    """

    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterable[bytes] | None = field(repr=False)
    scope: CallScope = field(default_factory=CallScope, repr=False)


MIN_MARGIN, MAX_MARGIN = 0.5, 3.0
CALL_TOKENS = 13
"""What frames a tool call beside its name and arguments, at most: as much as in OpenAI's open models (harmony)."""
MESSAGE_TOKENS = 4
"""What frames a message, its role included (OpenAI's cookbook)."""


@record
class ModelCalibration:
    """What is known of a model.

    Attributes:
        margin: the model's tokens for one token as counted.
        samples: how many reports it was learned from.
        saved_per_call: tokens that a tool call takes less than it is counted with.
        calls_seen: calls of the largest prompt that has shown so.
        streak: the latest reports in a row that show a larger saving, the least of these, and the most calls in one of
            them.
        added_per_message: tokens that each message takes more than it is counted with.
        told_window: that nobody configured, as the upstream told it, by its list or by a refusal.
        told_until: when it is asked for anew.
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
        """Tokens to take off for each of so many calls: together no more than was seen in one prompt, since what looked
        like the frame of calls may have been that of something else."""
        return self.saved_per_call if calls <= self.calls_seen else self.saved_per_call * self.calls_seen // calls
