"""Entries of `model_list` as deployments that calls go to, in groups of one name, and the order in which a group's
deployments are tried: a pure function of facts (guarantee §12.5)."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal
from urllib.parse import quote

from gateway.core import ids
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config import setting_sections
from gateway.core.config.litellm_table import ROUTER_PARAMETERS
from gateway.core.config.model_list import TIERED_PRICING, ModelEntry
from gateway.core.frozen_records import record
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.routing.catalogue import AZURE, THROUGH_LITELLM, named_base, origin_of, unsupported

RESPONSES: Literal["responses"] = "responses"
AZURE_API_VERSION = "2025-02-01-preview"
AZURE_V1 = ("v1", "latest", "preview")
"""Values of `api_version` that mean Azure's second API, whose paths are OpenAI's."""
OWN_PARAMETERS = {"base_url", "azure_ad_token"}
LITELLM_KNOBS = frozenset(
    {
        *("drop_params", "additional_drop_params", "allowed_openai_params", "modify_params", "base_model", "headers"),
        *("merge_reasoning_content_in_choices", "supports_system_message", "ensure_alternating_roles", TIERED_PRICING),
        *("user_continue_message", "assistant_continue_message", "enable_json_schema_validation", "request_timeout"),
        *("client_side_timeout", "turn_off_message_logging", "stream_chunk_size", "silent_model", "caching_groups"),
        *("client_id", "client_secret", "tenant_id", "bedrock_tags", "bucket_name", "cost_per_second"),
    }
)
"""Parameters that litellm understands and providers do not."""
OF_OTHER_SERVICES = (
    *("anthropic_", "arize_", "aws_", "azure_", "dd_", "gcs_", "humanloop_", "langfuse_", "langsmith_", "litellm_"),
    *("newrelic_", "posthog_", "regional_", "s3_", "signoz_", "vertex_", "wandb_", "watsonx_", "weave_"),
)
"""Prefixes of litellm's settings for clouds and monitoring services, whose keys are sent to no upstream."""
REQUEST_FIELDS = frozenset(
    {
        *("messages", "stream", "stream_options", "temperature", "top_p", "n", "stop", "max_tokens"),
        *("max_completion_tokens", "modalities", "prediction", "audio", "presence_penalty", "frequency_penalty"),
        *("logit_bias", "user", "response_format", "seed", "tools", "tool_choice", "parallel_tool_calls", "logprobs"),
        *("top_logprobs", "functions", "function_call", "reasoning_effort", "verbosity", "safety_identifier"),
        *("service_tier", "prompt_cache_key", "prompt_cache_retention", "thinking", "web_search_options"),
    }
)
"""Fields of a chat request that litellm translates; an entry may set defaults for them."""


@record
class DeploymentAccess:
    """The key that calls are made with, and whether it is the operator's."""

    key: str | None
    operator: bool


def deployment_of(
    model: str,
    entry: ModelEntry,
    served: tuple[str, str],
    base: str,
    access: DeploymentAccess,
    timeouts: setting_sections.UpstreamTimeouts,
) -> ModelDeployment:
    """Builds the deployment of an entry for `model`: served through OpenAI's protocol, Azure's form of it, or litellm.
    `served`: the provider and its name for the model; `base`: its address; empty for the provider's own, which litellm
    knows."""
    params = entry.litellm_params
    provider, name = served
    headers = dict(params.extra_headers)
    if params.organization:
        headers["OpenAI-Organization"] = params.organization
    shared: dict[str, Any] = {
        "model": model,
        "provider_model": name,
        "route": params.model,
        "api_base": base,
        "api_key": access.key,
        "operator_key": access.operator,
        "headers": headers,
        "connect_timeout": timeouts.connect,
        "first_byte_timeout": timeouts.first_byte,
        "idle_timeout": timeouts.idle,
        "origin": origin_of(provider, name, base),
        "provider": provider,
        "has_responses": _has_responses(entry),
    }
    unknown = params.model_extra or {}
    kept = OWN_PARAMETERS | ROUTER_PARAMETERS
    extras = {k: v for k, v in unknown.items() if k not in kept and "_cost" not in k}
    more = unknown.get("extra_body")
    more = dict(more) if isinstance(more, dict) else {}
    if provider in THROUGH_LITELLM:
        parameters = {k: v for k, v in extras.items() if k in REQUEST_FIELDS}
        options = {k: v for k, v in extras.items() if k not in REQUEST_FIELDS}
        options |= {k: v for k in ("custom_llm_provider", "api_version") if (v := getattr(params, k))}
        return ModelDeployment(**shared, parameters=parameters | more, options=options, protocol="litellm")
    own = {k: v for k, v in extras.items() if k not in LITELLM_KNOBS and not k.startswith(OF_OTHER_SERVICES)}
    shared["parameters"] = own | more
    if provider == AZURE:
        shared |= _azure(base, name, params.api_version, unknown.get("azure_ad_token"))
    return ModelDeployment(**shared)


def _has_responses(entry: ModelEntry) -> bool | None:
    """Returns whether an entry serves OpenAI's Responses API, stated as in LiteLLM's map; None if nothing is stated."""
    info = entry.model_info.model_extra or {}
    if info.get("mode") == RESPONSES:
        return True
    served = info.get("supported_endpoints")
    return f"/v1/{RESPONSES}" in served if isinstance(served, list) else None


def by_responses(deployment: ModelDeployment) -> ModelDeployment:
    """Returns the deployment as called by the Responses API. Azure serves that beside its second API only."""
    root, classic, _ = deployment.api_base.partition("/openai/deployments/")
    if classic:
        return replace(deployment, protocol=RESPONSES, api_base=f"{root}/openai/v1", query="")
    return replace(deployment, protocol=RESPONSES)


def _azure(base: str, name: str, version: str | None, token: str | None) -> dict[str, Any]:
    """Returns Azure's address of a deployment, by its first API or by the one called v1, and how it takes its key."""
    key = {"api_key": token, "operator_key": True} if token else {"key_header": "api-key"}
    if base.endswith("/openai/v1") or version in AZURE_V1:
        query = f"?api-version={version}" if version == "preview" else ""
        return {"api_base": f"{base.removesuffix('/openai/v1')}/openai/v1", "query": query, **key}
    if "/openai/deployments/" not in base:
        base = f"{base.removesuffix('/openai')}/openai/deployments/{quote(name, safe='')}"
    return {"api_base": base, "query": f"?api-version={version or AZURE_API_VERSION}", **key}


MAX_REMEMBERED_MODELS = 1000
"""Limit of cached models: names come from clients where there are patterns."""


@record
class GroupMember:
    """An entry in its group. `id` names it on all replicas alike, whatever else is in `model_list`; an entry that is
    listed again under another name has the same id, so that both share health and limits."""

    id: str
    entry: ModelEntry


Group = tuple[GroupMember, ...]
"""Entries in the order of `model_list`; without those that cannot be served, if any can be."""


class ModelGroups:
    """The groups of a configuration, by the names of models and by patterns (`*`, `openai/*`: LiteLLM's wildcards)."""

    def __init__(self, entries: Sequence[ModelEntry]) -> None:
        found: dict[str, list[GroupMember]] = {}
        members = list(_members(entries))
        for member in members:
            found.setdefault(member.entry.model_name, []).append(member)
        groups = {name: _told_apart(_served(members)) for name, members in found.items()}
        apart = {id(each.entry): each for group in groups.values() for each in group}
        self.members = tuple(apart.get(id(each.entry), each) for each in members)
        """All entries in order, also those that cannot be served."""
        self._by_name = {name: group for name, group in groups.items() if "*" not in name}
        self._by_pattern = [group for name, group in groups.items() if "*" in name]
        self._starred: BoundedCache[str, Group] = BoundedCache(MAX_REMEMBERED_MODELS)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def find(self, model: str) -> Group:
        """Returns the group of that name, else the first whose pattern matches, with the matched text in place of the
        star in the served models; empty if there is none."""
        group = self._by_name.get(model) or self._starred.peek(model)
        if group is not None:
            return group
        for pattern in self._by_pattern:
            star = pattern[0].entry.star(model)
            if star is not None:
                group = tuple(GroupMember(each.id, _starred(each.entry, star)) for each in pattern)
                return self._starred.put(model, group)
        return ()


def _starred(entry: ModelEntry, star: str) -> ModelEntry:
    served = entry.litellm_params.model.replace("*", star)
    return entry.model_copy(update={"litellm_params": entry.litellm_params.model_copy(update={"model": served})})


def _served(members: list[GroupMember]) -> list[GroupMember]:
    """Returns the members that can be served; if none can, only the first, which names the reason."""
    return [each for each in members if unsupported(each.entry) is None] or members[:1]


def _members(entries: Iterable[ModelEntry]) -> Iterable[GroupMember]:
    """Yields entries with their ids: LiteLLM's `model_info.id`, else the served model and its host, numbered where
    entries differ in other parameters (keys, regions)."""
    known: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for entry in entries:
        given = (entry.model_info.model_extra or {}).get("id")
        if isinstance(given, str) and given:
            yield GroupMember(given, entry)
            continue
        what = _identity(entry)
        if what not in known:
            name = _place(entry)
            taken[name] += 1
            known[what] = name if taken[name] == 1 else f"{name}#{taken[name]}"
        yield GroupMember(known[what], entry)


def _told_apart(members: list[GroupMember]) -> Group:
    """Gives the members of a group different ids, also where nothing distinguishes them."""
    ids: set[str] = set()
    found = []
    for member in members:
        name, number = member.id, 2
        while name in ids:
            name, number = f"{member.id}/{number}", number + 1
        ids.add(name)
        found.append(GroupMember(name, member.entry))
    return tuple(found)


def _place(entry: ModelEntry) -> str:
    host = named_base(entry).partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f"{entry.litellm_params.model}@{host}" if host else entry.litellm_params.model


def _identity(entry: ModelEntry) -> str:
    """Computes a digest of the parameters of an entry's calls."""
    params = entry.litellm_params
    said = {name: value for name, value in params.model_dump().items() if name not in ROUTER_PARAMETERS}
    said["api_key"] = params.api_key.get_secret_value() if params.api_key else None
    return ids.content_digest(repr(sorted(said.items())))


Strategy = Literal["weighted", "latency", "least_busy"]
Draw = Callable[[str], float]
"""A number within (0, 1) for the id of a deployment: random, or constant for a conversation."""
AS_QUICK = 1.1
"""Deployments count as quick up to this many times the latency of the quickest: smaller differences are chance."""


@record
class DeploymentRank:
    """The state of a deployment. `order` is infinite where none is configured; `weight`, `rpm` and `tpm` are LiteLLM's,
    0 where they are not configured; `rest` are the seconds that it still rests, `latency` those until its answers
    begin, None: not known of late."""

    id: str
    order: float = math.inf
    weight: float = 0.0
    rpm: float = 0.0
    tpm: float = 0.0
    rest: float = 0.0
    full: bool = False
    in_flight: int = 0
    latency: float | None = None

    @property
    def tier(self) -> int:
        """0: may be called; 1: at one of its limits; 2: rests."""
        return 2 if self.rest > 0 else int(self.full)


def ranked(
    states: Sequence[DeploymentRank], strategy: Strategy, draw: Draw, placed: str | None = None
) -> list[DeploymentRank]:
    """Sorts deployments, best first: those that may be called before those that may not, then the lowest `order`, then
    by the strategy. Resting ones are sorted by the end of their rest.
    `placed`: where the conversation was before; it goes first among those of the same health and order."""
    found: list[DeploymentRank] = []
    for (tier, _), group in groupby(sorted(states, key=_rank), key=_rank):
        equals = list(group)
        if tier == 2:
            found += sorted(equals, key=lambda state: state.rest)
            continue
        best = [*_by_strategy(equals, strategy, draw)]
        best.sort(key=lambda state: state.id != placed)
        found += best
    return found


def _rank(state: DeploymentRank) -> tuple[int, float]:
    return state.tier, state.order


def _by_strategy(states: list[DeploymentRank], strategy: Strategy, draw: Draw) -> Iterator[DeploymentRank]:
    if len(states) == 1:
        yield from states
        return
    weights = weights_of(states)
    scores = {state.id: score(weight, draw(state.id)) for state, weight in zip(states, weights, strict=True)}
    if strategy == "least_busy":
        yield from sorted(states, key=lambda state: (state.in_flight, scores[state.id]))
    elif strategy == "latency":
        slowness = _slowness(states)
        yield from sorted(states, key=lambda state: (slowness[state.id], scores[state.id]))
    else:
        yield from sorted(states, key=lambda state: scores[state.id])


def weights_of(states: Sequence[DeploymentRank]) -> list[float]:
    """Returns the weights, as LiteLLM's simple shuffle: by the first of `weight`, `rpm` and `tpm` that any deployment
    has; those without it are called only if nothing else is left. Equal where none has any."""
    for weights in ([s.weight for s in states], [s.rpm for s in states], [s.tpm for s in states]):
        if any(weights):
            return weights
    return [1.0] * len(states)


def score(weight: float, drawn: float) -> tuple[bool, float]:
    """Computes a score that is the lowest of all as often as the deployment's share of the sum of weights (weighted
    rendezvous hashing). It depends on no other deployment: when one leaves, only its own conversations move."""
    return weight <= 0, -math.log(drawn) / (weight if weight > 0 else 1.0)


def _slowness(states: Sequence[DeploymentRank]) -> dict[str, float]:
    """Returns 0 for a deployment that was not called of late, so that it is tried; 1 for the quickest and those as
    quick; for the others more, by their latency. One that is being called for the first time counts as quick."""
    known = [state.latency for state in states if state.latency is not None]
    best = min(known, default=0.0)

    def of(state: DeploymentRank) -> float:
        if state.latency is None:
            return 1.0 if state.in_flight else 0.0
        return 1.0 if state.latency <= best * AS_QUICK else 2.0 + state.latency

    return {state.id: of(state) for state in states}
