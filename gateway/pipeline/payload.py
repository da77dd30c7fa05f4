"""Builds what is sent upstream for a prepared request: how long prompt and answer may be (guarantee §4 I1), the
messages as the deployment takes them, and the whole body: stored files in place of their ids (guarantee §14.6),
breakpoints of prompt caches (guarantee §4 I7), and Anthropic requests translated to chat completions (ADR 27).

Anthropic's models cache a prompt only up to content blocks with `cache_control`. Three are set: after the system
messages, which the tools precede; where the previous request ended, up to which its prompt is cached; and where this
one ends, for the next request. A fourth follows what a pass keeps, even if the client sets breakpoints itself:
Anthropic reads its cache only up to a breakpoint, or to one of the 20 blocks before it. Breakpoints are not part of
what is cached, so they can move on.

Signed thoughts depend on what precedes them: if that has changed, they are removed (guarantee §10.10). An answer is
stored with the digest of the prompt that its thoughts were made under. They are forwarded as long as the same prompt
precedes them, whatever may change it: a window that moves, a result that is reduced, other tools or another model. For
thoughts that come from a client and were never stored, only the client knows that prompt; they stay as long as nothing
before them is changed here.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from gateway.billing import prompt_cache
from gateway.context import BuiltContext, whole_files
from gateway.conversations import message_forms
from gateway.core import errors
from gateway.core.config.settings import ContextSettings
from gateway.core.formats import tool_calls
from gateway.core.formats.anthropic import edits, plain_blocks
from gateway.core.jsons import Json
from gateway.core.types import conversation, items, recall, upstreams
from gateway.core.types.chat import CacheMark, ChatRequest, ModelDeployment, ModelFacts, NativeRequest, PromptBudget
from gateway.core.types.content_parts import as_parts, dicts_of, map_parts, parts_of, texts_of
from gateway.core.types.prompt_digests import PromptDigests, without_mark
from gateway.pipeline.stages import PreparedRequest
from gateway.upstream.routing import protocols


class UpstreamPayload(NamedTuple):
    """The forwarded messages and fields in the deployment's protocol, without cache marks. `native`: fields only that
    protocol has, if they are the request's own; `said`: the messages with items that other APIs cannot express."""

    messages: list[Json]
    forward: Json
    native: Json | None
    said: list[Json]


def upstream_request(
    prepared: PreparedRequest, headers: dict[str, str], scope: upstreams.CallScope
) -> upstreams.UpstreamRequest:
    """Builds the upstream request, with cache breakpoints and an output limit for providers that want them."""
    request, recall, context = prepared.request, prepared.recall, prepared.context
    deployment, facts, budget = prepared.wire.deployment, prepared.facts, prepared.budget
    messages, forward, native, _ = build_payload(prepared)
    is_managed = context is not None and request.options.mode != "off"
    if context is not None and is_managed:
        if wants_breakpoints(deployment, facts):
            goes_on = bool(prepared.conversation_id or any(message["role"] == "assistant" for message in messages))
            lost = (
                request.native.fields.get(items.BREAKPOINT) if request.native is not None and native is None else None
            )
            translated = upstreams.PROTOCOLS[deployment.protocol].as_anthropics
            left = context.left_out
            kept = left.kept_messages if left is not None else 0
            messages = with_breakpoints(
                messages, {**forward, **(native or {})}, goes_on=goes_on, translated=translated, kept=kept, wanted=lost
            )
        forward = with_output_limit(
            forward,
            deployment,
            facts,
            window=budget.context_window,
            prompt=context.fitted.tokens + (recall.tokens if recall is not None else 0) + prepared.surplus,
            reserved=budget.reserved_output,
            refitted=prepared.refused_budget is not None,
        )
    body = request_body(forward, messages, deployment, stream=request.stream, ask_usage=prepared.wire.asks_usage)
    if is_managed:
        body, native = with_possible_thinking(body, native, deployment)
    return upstreams.UpstreamRequest(body, native, headers, scope)


def build_payload(prepared: PreparedRequest) -> UpstreamPayload:
    """Renders what is forwarded as its upstream takes it, identically on each call."""
    request, messages, forward = prepared.request, prepared.messages, prepared.request.forward
    rounds, deployment, context = prepared.recall, prepared.wire.deployment, prepared.context
    if rounds is not None:
        messages, forward = [*messages, *rounds.messages], recall.without_recall(forward) if rounds.closed else forward
    inlined = context.inlined if context is not None else prepared.inlined
    if inlined.files or inlined.pictures:
        messages = with_inlined_files(messages, inlined)
    as_sent, native = context is None or context.is_as_sent, None
    fields = set[str]().union(*messages)
    if "audio" in fields:
        messages = _heard(messages, request, deployment)
    if not as_sent and upstreams.becomes_thinking(deployment):  # what the client sent itself is refused by its place
        sent_now = set(map(id, request.messages))
        messages = [m if id(m) in sent_now else map_parts(m, upstreams.as_read_by_claude) for m in messages]
    if not as_sent and _shows_earlier(prepared.history) and _may_have_marks(messages, prepared):
        messages = with_sent_marks(messages, prepared.asked, forward)
    if request.native is not None or (not as_sent and has_blocks(messages, fields)):
        messages, forward, native, cleared = as_upstream_takes(messages, forward, request, deployment, context)
        if context is not None:
            context.utilization.without(cleared)
    said = bound_messages(prepared, messages) if items.SIGNED in fields or items.BOUND in fields else messages
    apart = not upstreams.PROTOCOLS[deployment.protocol].takes_items and not fields.isdisjoint(items.RESPONSES_ALONE)
    sent = without_items(said, request) if apart else said
    if not as_sent and request.api is None and deployment.protocol == "openai":
        sent = _with_fields_of_client(sent, prepared)
    if request.options.mode != "off" and (refused := protocols.refused_fields(deployment)):
        sent = message_forms.without_provider_fields(sent, refused)
    if deployment.route.startswith(upstreams.GEMINI_ROUTES):
        # Of marks litellm makes contents that Google stores at a price of their own, one for each request of an agent.
        sent, forward = list(map(_without_marks, sent)), _with_plain_tools(forward)
    if request.messages and not sent:  # hosted calls, or empty answers, and nothing else
        raise errors.InvalidRequest("Nothing in the request is a message that this model takes.", param="messages")
    return UpstreamPayload(sent, forward, native, said)


def _with_fields_of_client(messages: list[Json], prepared: PreparedRequest) -> list[Json]:
    """Adds to stored answers the fields that only the client sends with them: empty ones, as SDKs do (`refusal`: null),
    and its own. They are not stored, and nothing else of such a prompt may differ from what was sent (guarantee §1.2).
    Not thoughts, which are the gateway's to restore; not where an answer is another provider's, or messages left or
    were restored."""
    sent, history, origin = prepared.asked.messages, prepared.history, prepared.wire.deployment.origin
    names = set[str]().union(*sent) - USUAL_FIELDS
    if not names or history is None or len(sent) != len(messages):
        return messages
    if any(message.origin not in (None, origin) for message in history.messages):
        return messages
    found = list(messages)
    for at, (own, said) in enumerate(zip(messages, sent, strict=True)):
        if own["role"] == said["role"] == "assistant":
            alone = {name: value for name, value in said.items() if name in names and name not in own}
            found[at] = own | {name: value for name, value in alone.items() if not (value and name in NOT_THE_CLIENTS)}
    return found


def _heard(messages: list[Json], request: ChatRequest, deployment: ModelDeployment) -> list[Json]:
    """Converts stored answers with audio, which no upstream takes as it gave them: to ids while audio is asked for,
    else to transcripts. What the client sends is its own, but only the provider of an audio knows its id.
    Raises InvalidRequest: a message of the client's has an id alone, for another API; `param` names it."""
    own, knows_ids = list(map(_audio_id, request.messages)), deployment.protocol == "openai"
    by_id = knows_ids and "audio" in (request.forward.get("modalities") or ())
    now = request.arrived_at.timestamp() if by_id else None
    found = []
    for message in messages:
        named = _audio_id(message)
        at = own.index(named) if named is not None and named in own else None
        if at is not None and knows_ids:
            message = request.messages[at]
        elif message.get("audio") is not None:
            message = items.as_history(message, now=now)
            if at is not None and "audio" in message and not message.get("content"):
                text = "This model does not know the audio of another provider by its id; send its transcript."
                raise errors.InvalidRequest(text, param=f"messages[{at}].audio", code="unsupported_parameter")
        found.append(message)
    return found


def _audio_id(message: Json) -> Any:
    audio = message.get("audio")
    return audio.get("id") if isinstance(audio, dict) else audio


def bound_messages(prepared: PreparedRequest, messages: list[Json]) -> list[Json]:
    """Removes from forwarded messages the thoughts whose binding does not match their position, and the bindings
    themselves."""
    if prepared.context is None or not any(map(plain_blocks.is_signed, messages)):
        return [_unmarked(message) if items.BOUND in message else message for message in messages]
    sent_digests = _digests_as_sent(prepared)
    prefix, kept = _prefix(prepared), []
    for message in messages:
        if plain_blocks.is_signed(message):
            message = plain_blocks.with_whole_thoughts(message)
            bound = message.get(items.BOUND)
            fits = prefix.digest in sent_digests.get(plain_blocks.signatures(message), ())
            stays = prefix.fits(bound) if bound is not None else fits
            if not stays:
                message = plain_blocks.without_thoughts(message)
        if items.BOUND in message:
            message = _unmarked(message)
        prefix.add(message)
        kept.append(message)
    return kept


def without_unknown_thoughts(prepared: PreparedRequest, refusal: errors.UpstreamRefused) -> PreparedRequest | None:
    """Returns the request without thoughts whose origin only the client vouches for, if its upstream has refused a
    signature: an earlier request may have changed what precedes them, and its frame may be lost. None if nothing would
    change."""
    said = str(refusal.original)
    names_it = refusal.status in REFUSED_SIGNATURES and "signature" in said and "thinking" in said
    if not names_it or prepared.context is None or not prepared.wire.trusts_clients:
        return None
    if not any(plain_blocks.is_signed(each) and items.BOUND not in each for each in prepared.messages):
        return None
    return replace(prepared, wire=replace(prepared.wire, trusts_clients=False))


def _unmarked(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != items.BOUND}


def with_binding(answer: Json, prepared: PreparedRequest, said: Iterable[Json]) -> Json:
    """Adds to an answer to be stored the digest of what its thoughts are bound to.
    `said`: the messages that it answers, as they were sent upstream."""
    if not plain_blocks.is_signed(answer):
        return answer
    prefix = _prefix(prepared)
    for message in said:
        prefix.add(message)
    return {**answer, items.BOUND: prefix.digest}


def with_possible_thinking(body: Json, native: Json | None, deployment: ModelDeployment) -> tuple[Json, Json | None]:
    """Removes thinking from a body and its native fields where the provider would refuse it: in the middle of a tool
    loop whose last step has no thought, because it was removed or another model took that step. For Claude an effort
    becomes thinking on its way up, which it does not do where a tool is forced."""
    asked = [fields["thinking"] for fields in (body, native or {}) if "thinking" in fields]
    by_effort = body.get(EFFORT) is not None and upstreams.becomes_thinking(deployment)
    if not (by_effort or any(map(plain_blocks.is_enabled, asked))):
        return body, native
    is_forced = by_effort and body.get("tool_choice") not in (*recall.UNFORCED, "none")
    lacks_thoughts = plain_blocks.lacks_thoughts(body["messages"])
    if by_effort and (is_forced or lacks_thoughts):
        body = {name: value for name, value in body.items() if name != EFFORT}
    if not lacks_thoughts:
        return body, native
    return plain_blocks.without_thinking(body), plain_blocks.without_thinking(native) if native is not None else None


def _digests_as_sent(prepared: PreparedRequest) -> dict[tuple[str, ...], set[str]]:
    """Returns the digests before thoughts of unknown binding, by their signatures, computed from the messages as the
    client sent them."""
    history, request = prepared.history, prepared.request
    if not prepared.wire.trusts_clients or (history is not None and (history.unread or history.doubts_thoughts)):
        return {}
    messages: Iterable[Json] = request.messages
    if history is not None and history.messages:
        messages = (*history.instructions, *(message.body for message in history.messages))
    prefix, found = _prefix(prepared), dict[tuple[str, ...], set[str]]()
    for message in messages:
        if plain_blocks.is_signed(message):
            message = plain_blocks.with_whole_thoughts(message)
            found.setdefault(plain_blocks.signatures(message), set()).add(prefix.digest)
        prefix.add(message)
    return found


def _prefix(prepared: PreparedRequest) -> plain_blocks.PromptDigest:
    deployment = prepared.wire.deployment
    return plain_blocks.PromptDigest(deployment.provider_model, _tools(prepared.request), deployment.protocol)


def _tools(request: ChatRequest) -> list[Any]:
    own = request.native.fields.get("tools") if request.native is not None else None
    return [*(request.forward.get("tools") or ()), *(own if isinstance(own, list) else ())]


USUAL_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
"""Fields of messages that are stored also where they are empty, or that no chat takes empty."""
NOT_THE_CLIENTS = items.THOUGHTS | items.RESPONSES_ALONE
EFFORT = "reasoning_effort"
REFUSED_SIGNATURES = (400, 422)
"""Statuses with which providers refuse thoughts that were made in another place."""
LIMITS = ("The model's max_input_tokens", "The request's max_input_tokens", "The gateway's context.max_input_tokens")
"""Names of a prompt's limits other than the window."""
OUTPUT_DIVISOR = 4
"""If the request names no output limit, at most one fourth of the window is reserved for the answer."""
REFIT_SHARE = 0.8
"""Share of a refused prompt to try next, if upstream did not say by how much it was too long."""
REFIT_SHARE_KNOWN = 0.95
"""Largest share of a refused prompt to try next, if upstream did say so."""
REPORTED_SHARE = 0.98
"""Usable share of a limit that upstream reported: the ratio of two tokenizers varies a little with the text."""


def budget_for(
    facts: ModelFacts, forward: dict[str, Any], requested: int | None, settings: ContextSettings
) -> PromptBudget:
    """Computes the prompt budget: min(model's maximum input, window - reserved output, `max_input_tokens`).
    Raises ContextLengthExceeded: the output that the request reserves leaves nothing for a prompt."""
    window = facts.context_window or facts.max_input_tokens
    given = zip((facts.max_input_tokens, requested, settings.max_input_tokens), LIMITS, strict=True)
    max_input = min([(limit, whose) for limit, whose in given if limit], default=None)
    limits = [max_input[0]] if max_input is not None else []
    field, reserved = output_limit(forward)
    if window:
        if field is None:
            longest = facts.max_output_tokens or window
            reserved = min(longest, settings.reserved_output_tokens, window // OUTPUT_DIVISOR)
        if window - reserved <= 0:
            why = f"you requested more than {reserved} tokens ({field}), which leaves no room for your messages"
            text = f"This model's maximum context length is {window} tokens. However, {why}."
            raise errors.ContextLengthExceeded(text, param=field)
        limits.append(window - reserved)
    tokens = min(limits) if limits else None
    return PromptBudget(tokens, window, reserved if window else 0, field is not None, max_input=max_input)


def output_limit(forward: dict[str, Any]) -> tuple[str | None, int]:
    """Returns the field with which the request limits the answer, and its tokens; `(None, 0)` if there is none."""
    for name in upstreams.OUTPUT_LIMITS:
        value = forward.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return name, value
    return None, 0


def writable(forward: dict[str, Any], facts: ModelFacts) -> dict[str, Any]:
    """Cuts the output limit to what the model can write. Messages requires a limit, so clients name what the models
    they know can write: for other models it is cut to their maximum, and to a share of the window where it would leave
    nothing for a prompt."""
    field, named = output_limit(forward)
    window = facts.context_window or facts.max_input_tokens
    limit = min(named, facts.max_output_tokens or named)
    if window and limit >= window:
        limit = window // OUTPUT_DIVISOR
    return forward if field is None or limit == named else {**forward, field: limit}


def tightened(budget: PromptBudget, counted: int, reported: int | None, limit: int | None) -> PromptBudget:
    """Tightens the budget for one refit after upstream reported an overflow (guarantee §4 I1).
    `counted`: tokens of the refused prompt as counted here; `reported`: tokens of the same prompt as counted upstream,
    if reported; `limit`: tokens that upstream allows, prompt and answer together, if reported."""
    refused = min(budget.tokens or counted, counted)
    tokens = int(refused * REFIT_SHARE)
    if reported and limit and reported > limit:
        reserved = budget.reserved_output
        if not budget.reserve_named:
            reserved = min(reserved, limit // OUTPUT_DIVISOR)
        allowed = max(1, limit - reserved) * counted / reported
        tokens = min(int(refused * REFIT_SHARE_KNOWN), int(allowed * REPORTED_SHARE))
    return replace(budget, tokens=max(1, tokens))


READABLE_THOUGHTS = frozenset({"reasoning_content", "reasoning"})
SPARE_SHARE = 0.05
"""Share of the prompt by which the provider's count may exceed the gateway's."""


def with_output_limit(
    forward: Json,
    deployment: ModelDeployment,
    facts: ModelFacts,
    *,
    window: int | None,
    prompt: int,
    reserved: int,
    refitted: bool,
) -> Json:
    """Adds `max_tokens`, if neither request nor deployment names it: what the model can write, or what the prompt
    leaves of the window; never less than was reserved when the prompt was fitted (guarantee §4 I1).

    Anthropic requires `max_tokens`, and refuses a request whose prompt and `max_tokens` together exceed the window.
    litellm's default is the most that the model can write, which does not fit beside a long prompt.
    `prompt`: tokens of the prompt as counted; `reserved`: tokens reserved for the answer; `refitted`: the provider has
    refused the prompt once as too long; then no more than `reserved` is requested."""
    named = {**deployment.parameters, **deployment.options, **forward}
    if not upstreams.PROTOCOLS[deployment.protocol].as_anthropics or not deployment.route.startswith(
        upstreams.LIMITED_ROUTES
    ):
        return forward
    if any(named.get(name) is not None for name in upstreams.ANSWER_LIMITS):
        return forward
    if window is None or facts.max_output_tokens is None or reserved <= 0:
        return forward
    room = 0 if refitted else window - int(prompt * (1 + SPARE_SHARE))
    return {**forward, "max_tokens": min(facts.max_output_tokens, max(reserved, room))}


def without_items(messages: list[Json], request: ChatRequest) -> list[Json]:
    """Removes what only Responses take back, for an upstream that is called by another API: hosted calls are rendered
    as text (guarantee §1.14), and messages that are then empty are dropped. What a chat client itself sends is
    unchanged."""
    found = [message for message in messages if not items.RESPONSES_ALONE.isdisjoint(message)]
    if not found:
        return messages
    own = frozenset(map(id, request.messages)) if request.api is None else frozenset()
    taken = frozenset(id(message) for message in found) - own
    cleaned = ((_without_items(message), True) if id(message) in taken else (message, False) for message in messages)
    return [message for message, changed in cleaned if not (changed and tool_calls.is_silent(message))]


def _without_items(message: Json) -> Json:
    dropped = items.RESPONSES_ALONE if _are_readable(message) else items.RESPONSES_ALONE | READABLE_THOUGHTS
    return tool_calls.with_told(
        {name: value for name, value in message.items() if name not in dropped},
        tool_calls.told_items(message.get("output_items")),
    )


def has_blocks(messages: list[Json], fields: Set[str]) -> bool:
    """Returns whether a message holds what not every upstream takes as it is. `fields` are those of all messages."""
    if not fields.isdisjoint((items.ANTHROPIC_BLOCKS, *plain_blocks.UNTHOUGHT)):
        return True
    with_parts = [message for message in messages if type(message.get("content")) is list]
    known = {items.ANTHROPIC_BLOCK, *plain_blocks.UNSAID_PARTS}
    has_known = any(not known.isdisjoint(part) for message in with_parts for part in message["content"])
    return has_known or any(map(plain_blocks.is_shown, with_parts))


def _are_readable(message: Json) -> bool:
    """Returns whether a message's thoughts are plain text. What accompanies sealed ones, mostly a summary, is bound to
    the provider that sealed them."""
    items = [*(message.get("reasoning_items") or ()), *(message.get("output_items") or ())]
    thoughts = [each for each in items if isinstance(each, dict) and each.get("type") == "reasoning"]
    return all(each.get("content") and not each.get("encrypted_content") for each in thoughts)


def request_body(
    forward: Json, messages: list[Json], deployment: ModelDeployment, *, stream: bool, ask_usage: bool
) -> Json:
    """Builds the body from the client's fields, unchanged, and the deployment's where it names none. `ask_usage`: the
    stream is to end with its usage (guarantee §6)."""
    body = {**deployment.parameters, **forward, "model": deployment.provider_model, "messages": messages}
    if stream:
        body["stream"] = True
        options = dict(forward.get("stream_options") or {})
        options.pop("include_usage", None)
        if ask_usage:
            options["include_usage"] = True
        body.pop("stream_options", None)
        if options:
            body["stream_options"] = options
    return body


def with_inlined_files(messages: Sequence[Json], inlined: whole_files.InlinedFiles) -> list[Json]:
    """Replaces file ids in the messages by these files. The same files yield the same JSON each time."""
    return [map_parts(message, lambda part: _part(part, inlined)) for message in messages]


def _part(part: Json, inlined: whole_files.InlinedFiles) -> Json:
    name, picture = items.named_file(part), items.named_picture(part)
    if name is not None and name in inlined.files:
        return {**part, "file": inlined.files[name]}
    return _picture(part, inlined.pictures[picture]) if picture is not None and picture in inlined.pictures else part


def _picture(part: Json, shown: Json) -> Json:
    """Returns what is shown of a picture, with all other fields of its part."""
    rest = {name: value for name, value in part.items() if name not in ("type", "file_id", "image_url", "detail")}
    if "image_url" in shown and part.get("detail") is not None:
        return {**shown, "image_url": {**shown["image_url"], "detail": part["detail"]}, **rest}
    return {**shown, **rest}


EPHEMERAL = {"type": "ephemeral"}
INJECTION_POINTS = "cache_control_injection_points"
"""LiteLLM's own setting, with which the operator sets the breakpoints."""
MIN_CACHED_CHARS = 4 * 1024
"""Characters of a prompt worth caching: Anthropic caches no less than 1,024 tokens, of about four characters."""


def wants_breakpoints(deployment: ModelDeployment, facts: ModelFacts) -> bool:
    """Returns whether the model's prompts are cached only up to breakpoints."""
    if not upstreams.family_in(f"{deployment.route} {deployment.provider_model}").wants_breakpoints:
        return False
    if INJECTION_POINTS in deployment.options or INJECTION_POINTS in deployment.parameters:
        return False
    if upstreams.PROTOCOLS[deployment.protocol].as_anthropics:
        known = facts.supports_prompt_caching
        return deployment.route.startswith("anthropic/") if known is None else known
    return upstreams.is_routed(deployment)


def takes_breakpoints(deployment: ModelDeployment) -> bool:
    """Returns whether a deployment accepts `cache_control` to learn where to cache: others may refuse the field."""
    return deployment.protocol == "litellm" or upstreams.is_routed(deployment)


def with_breakpoints(
    messages: list[Json], forward: Json, *, goes_on: bool, translated: bool, kept: int = 0, wanted: Any = None
) -> list[Json]:
    """Adds breakpoints to copies of the messages. If the client set any itself, only the one behind what is kept.
    `forward`: the other fields of the body, with its tools. `goes_on`: another request may continue this one; otherwise
    its end is not cached, as writing costs more. `translated`: the body becomes one of Anthropic's, for which a tool
    result's breakpoint is expected on the message; routers expect it on a part. `kept`: how many leading messages stay
    as an earlier request forwarded them, if later ones were changed. Providers look back only a little from the other
    breakpoints, and would write these messages to the cache again. `wanted`: the client's breakpoint for the whole
    prompt, where its API alone has one."""
    tools = [each for name in ("tools", "functions") for each in forward.get(name) or ()]
    own = [mark for each in (forward, *tools, *messages) for mark in prompt_cache.breakpoints_in(each)]
    if own and (not kept or len(own) >= prompt_cache.MAX_BREAKPOINTS):
        return messages
    sizes = accumulate(map(_size, messages), initial=sum(len(str(tool)) for tool in tools))
    first = next((index for index, size in enumerate(sizes, -1) if size >= MIN_CACHED_CHARS), len(messages))
    marked = list(messages)
    default = wanted if isinstance(wanted, dict) else EPHEMERAL
    behind_kept = {at for at in (_last_possible(messages, min(kept, len(messages)) - 1),) if at is not None}
    for at in behind_kept if own else behind_kept | _positions(messages, goes_on=goes_on):
        if at >= first and not any(prompt_cache.breakpoints_in(messages[at])):
            behind = (mark for message in messages[at + 1 :] for mark in prompt_cache.breakpoints_in(message))
            mark = next(behind, own[-1]) if own else dict(default)  # none may live shorter than the one behind it
            whole = translated and messages[at]["role"] == "tool"
            marked[at] = _marked(messages[at], mark, whole=whole) or messages[at]
    return marked


def _positions(messages: Sequence[Json], *, goes_on: bool) -> set[int]:
    """Returns the indexes of the messages after which a breakpoint is due."""
    roles = [message["role"] for message in messages]
    system = next((i for i, role in enumerate(roles) if role not in conversation.INSTRUCTION_ROLES), len(roles)) - 1
    answers = [i for i, role in enumerate(roles[:-1]) if role == "assistant"]
    ends = [system, answers[-1] - 1 if answers else -1, len(messages) - 1 if goes_on else -1]
    return {at for end in ends if (at := _last_possible(messages, end)) is not None}


def _last_possible(messages: Sequence[Json], last: int) -> int | None:
    """Returns the last message up to `last` that can have a breakpoint; the model's own may have to stay unchanged."""
    return next((i for i in range(last, -1, -1) if messages[i]["role"] != "assistant" and _marked(messages[i])), None)


def _marked(message: Json, mark: Any = None, *, whole: bool = False) -> Json | None:
    """Returns the message with a breakpoint after its last text, or on the message if `whole`; None if it has no text,
    as providers refuse a breakpoint on nothing."""
    parts = as_parts(message.get("content"))
    for at in range(len(parts) - 1, -1, -1):
        if isinstance(parts[at], dict) and str(parts[at].get("text") or "").strip():
            if whole:
                return {**message, items.BREAKPOINT: mark}
            return {**message, "content": [*parts[:at], {**parts[at], items.BREAKPOINT: mark}, *parts[at + 1 :]]}
    return None


def _size(message: Json) -> int:
    """Counts the characters of a message's texts, roughly."""
    return sum(map(len, texts_of(message.get("content"))))


class TranslatedPrompt(NamedTuple):
    """Messages and fields in a deployment's protocol, and native fields if they are the request's own."""

    messages: list[Json]
    forward: Json
    native: Json | None
    cleared: tuple[Json, ...] = ()
    """What the request's edits removed, as its API reports them."""


def as_upstream_takes(
    messages: list[Json],
    forward: Json,
    request: ChatRequest,
    deployment: ModelDeployment,
    context: BuiltContext | None = None,
) -> TranslatedPrompt:
    """Translates a request for its deployment. In requests of other APIs only content stored by Messages changes.
    `context`: its figures; edits depend on them."""
    cleared: list[Json] = []
    native, protocol = request.native, upstreams.PROTOCOLS[deployment.protocol]
    speaks = native is not None and native.protocol == deployment.protocol
    fields = dict(native.fields) if native is not None and speaks else None
    if native is None or request.api != "messages":
        if not protocol.takes_blocks:
            plain = plain_blocks.without_unsaid(
                map(plain_blocks.without_blocks, messages), request.messages, thoughts=takes_breakpoints(deployment)
            )
            pairs = zip(plain, messages, strict=True)
            messages = [each for each, message in pairs if each is message or not tool_calls.is_silent(each)]
        if request.api == "responses" and not protocol.takes_items:
            messages = [message for message in messages if not tool_calls.is_silent(message)]
        if protocol.text_results:
            own = plain_blocks.results_of(request.messages) if request.api is None else ()
            messages = list(plain_blocks.with_shown_apart(messages, own))
        return TranslatedPrompt(messages, forward, fields)
    if edits.EDITS in native.fields:
        relayed = fields is not None and messages == list(request.messages)
        if fields is not None and not relayed:  # the window has been cleared already
            del fields[edits.EDITS]
        if not relayed:
            asked = edits.edits_of(native.fields[edits.EDITS])
            if context is None:
                messages, cleared = edits.edited(messages, asked, None)
            else:
                messages, cleared = edits.edited(messages, asked, context.fitted.tokens, _counted_in(context, messages))
    stays = speaks or request.options.sent_elsewhere  # a client that asks the model itself speaks Anthropic's API
    takes = stays or takes_breakpoints(deployment)
    if not stays:
        messages = plain_blocks.plain_messages(messages, thoughts=takes)
        forward = _plain_fields(forward if takes else _with_plain_tools(forward), native, deployment)
    if takes and native.marks:
        messages = with_marks(messages, request.messages, native.marks, whole=stays or protocol.as_anthropics)
    return TranslatedPrompt(messages, forward, fields, tuple(cleared))


def _counted_in(context: BuiltContext, messages: list[Json]) -> Callable[[Json], float]:
    """Returns what counts the tokens of a message, as the context does: where it was forwarded without being examined,
    by its share of what the context says of all messages."""
    if context.counting is not None:
        return context.counting.message
    said = context.fitted.tokens - (context.utilization.breakdown or {}).get("tools", 0)
    if said <= 0:  # nobody counted
        return edits.by_chars
    rate = said / sum(len(str(message)) for message in messages)
    return lambda message: rate * len(str(message))


def with_marks(
    messages: Sequence[Json], sent: Sequence[Json], marks: Sequence[CacheMark], *, whole: bool = True
) -> list[Json]:
    """Adds the client's marks to the messages: to the leading system messages that it sent; others count from the
    end. `whole`: a mark after a message is on the message; routers expect it on its last text."""
    marked, leading = list(messages), _leading(sent)
    for mark in marks:
        number = mark.message
        at = _system_at(messages, sent, number) if number < leading else number + len(messages) - len(sent)
        if 0 <= at < len(marked) and marked[at].get("role") == sent[number].get("role"):
            on_text = _marked(marked[at], mark.value) if mark.part is None and not whole else None
            marked[at] = on_text or _with_mark(marked[at], mark)
    return marked


def _shows_earlier(history: conversation.ConversationHistory | None) -> bool:
    """Returns whether a prompt may hold messages in the form that an earlier request brought."""
    return history is not None and (history.stored > 0 or history.frame is not None)


def _may_have_marks(messages: list[Json], prepared: PreparedRequest) -> bool:
    """Returns whether a message of a prompt or of its request may have a mark. The digests of the request before tell
    it of those with which both begin."""
    asked, history = prepared.asked, prepared.history
    before, known = (history.cache.forwarded if history is not None else None) or ((), PromptDigests())
    beginning = known if conversation.begin_with(messages, before) else PromptDigests()
    both = ((messages, beginning), (asked.messages, asked.known.sent))
    return any(digests.marked or prompt_cache.are_marked(each[digests.count :]) for each, digests in both)


def with_sent_marks(messages: list[Json], asked: ChatRequest, forward: Json) -> list[Json]:
    """Moves the marks in messages to where the client has them now: stored messages have those of the request that
    brought them. The latest that are not sent again keep theirs, as many as a provider accepts. Instructions that lead
    the request stand as it sent them. Marks of Messages stand beside the request's messages, and are set later."""
    sent = asked.messages
    fields = (forward, asked.native.fields) if asked.native is not None else (forward,)
    tools = [each for of in fields for name in ("tools", "functions") for each in dicts_of(of.get(name))]
    beside = sum(len(prompt_cache.breakpoints_in(each)) for each in (*fields, *tools, *sent))
    beside += len(asked.native.marks) if asked.native is not None else 0
    leading, shift, marked = _leading(sent), len(messages) - len(sent), list(messages)
    room = prompt_cache.MAX_BREAKPOINTS - beside
    for at in range(len(messages) - 1, (_leading(messages) if leading else 0) - 1, -1):
        number, marks = at - shift, prompt_cache.breakpoints_in(messages[at])
        if number < leading or sent[number].get("role") != messages[at].get("role"):
            room -= len(marks)
            if marks and room < 0:
                marked[at] = _without_marks(messages[at])
        elif marks != prompt_cache.breakpoints_in(sent[number]):
            marked[at] = _without_marks(messages[at])
            for mark in _marks_of(sent[number], number):
                marked[at] = _with_mark(marked[at], mark)
    return marked


def _without_marks(message: Json) -> Json:
    plain: Json = map_parts(without_mark(message), without_mark)
    calls = plain.get("tool_calls")
    return {**plain, "tool_calls": list(map(without_mark, calls))} if calls else plain


def _marks_of(message: Json, number: int) -> list[CacheMark]:
    mark = items.BREAKPOINT
    parts = enumerate(parts_of(message.get("content")))
    found = [CacheMark(number, at, part[mark]) for at, part in parts if isinstance(part, dict) and mark in part]
    return [*found, CacheMark(number, None, message[mark])] if mark in message else found


def _leading(messages: Iterable[Json]) -> int:
    """Counts the instructions with which these messages begin."""
    return sum(1 for _ in takewhile(lambda each: each.get("role") in conversation.INSTRUCTION_ROLES, messages))


def _system_at(messages: Sequence[Json], sent: Sequence[Json], number: int) -> int:
    """Returns where a leading system message of the client's stands: others, as of a prompt profile, may precede it."""
    said = sent[number].get("content")
    leading = takewhile(lambda each: each.get("role") in conversation.INSTRUCTION_ROLES, messages)
    alike = [at for at, each in enumerate(leading) if each.get("content") == said]
    before = sum(each.get("content") == said for each in sent[:number])
    return alike[before] if before < len(alike) else number


def _with_mark(message: Json, mark: CacheMark) -> Json:
    content = message.get("content")
    if mark.part is None:
        return {**message, items.BREAKPOINT: mark.value}
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    at = min(mark.part, len(parts) - 1)
    if at < 0 or not isinstance(parts[at], dict):
        return message
    parts[at] = {**parts[at], items.BREAKPOINT: mark.value}
    return {**message, "content": parts}


def _with_plain_tools(forward: Json) -> Json:
    """Returns fields whose tools have no marks."""
    tools = forward.get("tools")
    return {**forward, "tools": list(map(without_mark, tools))} if isinstance(tools, list) else forward


def _plain_fields(forward: Json, native: NativeRequest, deployment: ModelDeployment) -> Json:
    found = dict(forward)
    thinking = native.fields.get("thinking")
    if deployment.protocol == "litellm" and upstreams.family_in(deployment.route).signs_thoughts:
        if thinking is not None:
            found["thinking"] = thinking
    elif deployment.provider in upstreams.EFFORT_PROVIDERS and upstreams.EFFORT_MODELS.search(
        deployment.provider_model
    ):
        if "max_tokens" in found:
            found["max_completion_tokens"] = found.pop("max_tokens")
        effort = _effort(thinking, native.fields.get("output_config"))
        if effort is not None:
            found.setdefault(EFFORT, effort)
    return found


def _effort(thinking: Any, config: Any) -> str | None:
    """Returns the reasoning effort in OpenAI's terms; None where none is named."""
    said = config.get("effort") if isinstance(config, dict) else None
    if isinstance(said, str) and said in upstreams.EFFORT_LEVELS:
        return upstreams.EFFORT_LEVELS[said]
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if not isinstance(budget, int):
        return None
    return next((name for most, name in upstreams.EFFORTS if budget <= most), "high")
