"""Whether a deployment speaks the API that a request came by: then it is called by that API (ADR 27)."""

import re
from dataclasses import replace
from typing import Any, Literal

from gateway.core import errors, jsons, ports
from gateway.core.types import items, upstreams
from gateway.core.types.chat import ChatRequest, ModelDeployment, NativeRequest
from gateway.upstream.routing.catalogue import AZURE, OPENAI_BASES, OPENAI_COMPATIBLE
from gateway.upstream.routing.deployments import RESPONSES, by_responses

ANTHROPIC_BASE = "https://api.anthropic.com"
BEARERS = ("sk-ant-oat",)
"""Prefixes of the tokens of a subscription; they are sent in another header than keys."""
NOT_SPOKEN = (404, 405, 501)
"""Statuses of an upstream that has no such endpoint."""
OF_A_MODEL = re.compile(r"\bmodels?\b", re.IGNORECASE)
"""Such an answer may be about the model instead."""
FORGET_SECONDS = 600.0
"""How long an upstream that has no such endpoint is not called there again."""
PICTURE_ID = ".file_id"
"""Suffix, among the paths of `NativeRequest.needs`, of images named by a file's id, and of nothing else."""
Speaks = Literal["yes", "perhaps", "no"]
HOSTED = "hosted tools"
REFUSED_TOOLS = (400, 422)
"""Statuses by which an upstream that speaks an API refuses tools of that API that it lacks."""
OPENAIS_HOSTED = re.compile(
    r"web_search(_preview)?(_\d{4}_\d\d_\d\d)?|file_search|code_interpreter|image_generation|computer(_use_preview)?|mcp"
)
"""Types of the tools that OpenAI runs."""
MCP_FIELDS = {
    "type",
    "server_url",
    "server_label",
    "server_description",
    "headers",
    "allowed_tools",
    "require_approval",
}
"""Fields of an MCP server that litellm translates for Anthropic, or that are nothing to it."""


THINKS_AS = {"groq": "reasoning"}
"""The one field for thoughts that a provider has, where it refuses those of others."""


def is_openais(deployment: ModelDeployment) -> bool:
    """Returns whether an upstream is OpenAI itself, or Azure with its models."""
    return deployment.api_base in OPENAI_BASES or deployment.provider == AZURE


def is_mistrals(deployment: ModelDeployment) -> bool:
    """Returns whether an upstream is Mistral itself."""
    return deployment.provider == "mistral" or deployment.api_base == OPENAI_COMPATIBLE["mistral"]


def refused_fields(deployment: ModelDeployment) -> frozenset[str]:
    """Returns the fields of answers that an upstream surely lacks, and may refuse. None are known of litellm, and of
    whatever stands at an address that only its operator knows."""
    if deployment.protocol != "openai":
        return frozenset()
    if is_openais(deployment) or deployment.provider in THINKS_AS:
        return items.PROVIDER_FIELDS - {THINKS_AS.get(deployment.provider)}
    is_providers = deployment.provider != "openai" and OPENAI_COMPATIBLE.get(deployment.provider) is not None
    return items.NOT_OF_CHATS if is_providers else frozenset()


def takes_freeform(deployment: ModelDeployment) -> bool:
    """Returns whether an upstream is known to accept freeform tools (`custom`), and tools with items of their own:
    OpenAI, Azure, and those that serve responses by the operator's configuration, as such tools are part of that API.
    All others get functions."""
    return is_openais(deployment) or (deployment.protocol == RESPONSES and bool(deployment.has_responses))


class KnownProtocols:
    """Which upstreams speak which API. Where that is not known, the first request finds out."""

    def __init__(self, clock: ports.Clock, hosted_tools: str = "drop") -> None:
        """`hosted_tools`: what becomes of hosted tools that an upstream lacks (`upstream.hosted_tools`)."""
        self._clock = clock
        self._refuses = hosted_tools == "refuse"
        self._silent: dict[tuple[str, str], float] = {}

    def of(self, deployment: ModelDeployment, native: NativeRequest) -> tuple[ModelDeployment, ModelDeployment | None]:
        """Returns the deployment to call, and the one to fall back on if that turns out not to speak the request's API.
        Raises InvalidRequest: the request needs what only its own API has, and the deployment does not speak that."""
        speaks = self._speaks(deployment, native.protocol)
        if speaks == "no":
            self._check_needs(native)
            return deployment, None
        spoken = _called_by(deployment, native.protocol)
        certain = speaks == "yes" or bool(native.needs)
        return spoken, None if certain else deployment

    def instead(
        self,
        asked: ModelDeployment,
        fallback: ModelDeployment | None,
        native: NativeRequest,
        refusal: errors.UpstreamRefused,
    ) -> ModelDeployment:
        """Returns the deployment to call instead of one that has refused; remembers that this one has no such endpoint.
        Raises UpstreamRefused: the given refusal, if it has another reason, or the upstream was known to speak the API;
        InvalidRequest: the request needs what no other API has."""
        says_so = refusal.status in NOT_SPOKEN and not OF_A_MODEL.search(jsons.dumps_text(refusal.original))
        if not says_so or self._speaks(asked, native.protocol) == "yes":
            raise refusal
        self._silent[asked.api_base, native.protocol] = self._clock.monotonic() + FORGET_SECONDS
        self._check_needs(native)
        if fallback is None:
            raise refusal
        return fallback

    def taken(self, deployment: ModelDeployment, native: NativeRequest) -> NativeRequest:
        """Returns what is sent of a native request to an upstream that speaks its API: without hosted tools if the
        upstream refused them lately.
        Raises InvalidRequest: they may not be left out."""
        is_silent = self._silent.get((deployment.api_base, HOSTED), 0.0) > self._clock.monotonic()
        if not native.hosted or not is_silent or deployment.protocol != native.protocol:
            return native
        self._check_needs(native)
        return native.without_hosted()

    def of_chat(self, deployment: ModelDeployment, request: ChatRequest) -> ChatRequest:
        """Returns a chat without the hosted tools that litellm cannot translate for its provider.
        Raises InvalidRequest: they may not be left out; `param` names `tools[i]`, or the choice that forces them."""
        tools = request.forward.get("tools")
        if deployment.protocol != "litellm" or not isinstance(tools, list):
            return request
        lacked = {
            i: str(tool["type"]) for i, tool in enumerate(tools) if _lacks(deployment, tool, alone=len(tools) == 1)
        }
        if not lacked:
            return request
        choice = request.forward.get("tool_choice")
        forced = isinstance(choice, dict) and choice.get("type") in lacked.values()
        needs = ("tool_choice",) if forced or (choice == "required" and len(lacked) == len(tools)) else ()
        hosted = tuple((f"tools[{index}]", kind) for index, kind in lacked.items())
        self._check_needs(NativeRequest("responses", needs=needs, hosted=hosted))
        kept = [tool for index, tool in enumerate(tools) if index not in lacked]
        without = () if kept else ("tools", "tool_choice", "parallel_tool_calls")
        forward = {name: value for name, value in {**request.forward, "tools": kept}.items() if name not in without}
        return replace(request, forward=forward, left_out=(*request.left_out, *lacked.values()))

    def without_refused(
        self, deployment: ModelDeployment, native: NativeRequest, refusal: errors.UpstreamRefused
    ) -> NativeRequest:
        """Removes from a native request the hosted tools that its upstream refused, and remembers the refusal.
        Raises UpstreamRefused: the given refusal, if it has another reason, or the tools may not be left out."""
        said = jsons.dumps_text(refusal.original)
        kinds = {kind for path, kind in native.hosted if path.startswith("tools[")}
        is_theirs = refusal.status in REFUSED_TOOLS and any(kind in said or "tools[" in said for kind in kinds)
        if not is_theirs or self._refuses or native.needs or takes_freeform(deployment):
            raise refusal
        self._silent[deployment.api_base, HOSTED] = self._clock.monotonic() + FORGET_SECONDS
        return native.without_hosted()

    def _check_needs(self, native: NativeRequest) -> None:
        for name in native.needs:
            raise _not_served(name, f"{name} is not served by the upstream of this model.")
        for name, kind in native.hosted if self._refuses else ():
            text = f"{name} ({kind}) is not served by the upstream of this model, and upstream.hosted_tools is refuse."
            raise _not_served(name, text)

    def _speaks(self, deployment: ModelDeployment, protocol: str) -> Speaks:
        if protocol == "anthropic":
            return "yes" if deployment.provider == "anthropic" else "no"
        if deployment.protocol not in ("openai", "responses"):
            return "no"
        if deployment.has_responses is not None:
            return "yes" if deployment.has_responses else "no"
        if is_openais(deployment):
            return "yes"
        until = self._silent.get((deployment.api_base, protocol), 0.0)
        return "no" if until > self._clock.monotonic() else "perhaps"


def _not_served(path: str, text: str) -> errors.InvalidRequest:
    """Builds the error of a path as the client sent it."""
    error = errors.InvalidRequest(text, param=path, code="unsupported_parameter")
    error.is_as_sent = True
    return error


def _lacks(deployment: ModelDeployment, tool: Any, *, alone: bool) -> bool:
    """Returns whether a tool is one that OpenAI runs, and that the provider of a deployment does not run.
    `alone`: it is the only one; Gemini then searches for it."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    is_gemini = "gemini" in deployment.route
    is_known = is_gemini or upstreams.family_in(deployment.route) is upstreams.CLAUDE
    if not is_known or upstreams.is_routed(deployment):
        return False
    if not isinstance(kind, str) or OPENAIS_HOSTED.fullmatch(kind) is None:
        return False
    if kind == "mcp" and deployment.provider == "anthropic":
        is_whole = isinstance(tool.get("server_url"), str) and isinstance(tool.get("server_label"), str)
        return not (is_whole and tool.keys() <= MCP_FIELDS and tool.get("require_approval") in (None, "never"))
    return not (is_gemini and alone and kind.startswith("web_search"))


def needs_no_pictures(native: NativeRequest) -> NativeRequest:
    """Removes image ids from a request's needs, where files are stored here: each is replaced by its image anyway."""
    return replace(native, needs=tuple(path for path in native.needs if not path.endswith(PICTURE_ID)))


def _called_by(deployment: ModelDeployment, protocol: Literal["responses", "anthropic"]) -> ModelDeployment:
    if protocol == "responses":
        return by_responses(deployment)
    header = "authorization" if (deployment.api_key or "").startswith(BEARERS) else "x-api-key"
    base = (deployment.api_base or ANTHROPIC_BASE).rstrip("/").removesuffix("/v1")
    return replace(deployment, protocol="anthropic", api_base=f"{base}/v1", key_header=header)
