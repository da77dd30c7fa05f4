"""What goes upstream of an exchange: its messages as the deployment takes them, and the whole body."""

from gateway.assembly.body import has_blocks, request_body, with_output_limit, without_items
from gateway.assembly.cache_breakpoints import wants_breakpoints, with_breakpoints
from gateway.assembly.own_files import with_own_files
from gateway.assembly.translated import Translated, as_upstream_takes
from gateway.models.items import BOUND, OF_RESPONSES, SIGNED
from gateway.models.provider_facts import PROTOCOLS
from gateway.models.recall import without_recall
from gateway.models.upstream import UpstreamRequest
from gateway.turn.bound_thinking import bound_messages, with_possible_thinking
from gateway.turn.exchange import Exchange


def upstream_request(exchange: Exchange, headers: dict[str, str]) -> UpstreamRequest:
    """What goes upstream. Providers that want it are told where to cache, and how long the answer may be."""
    request, recall = exchange.request, exchange.recall
    deployment, facts, budget, built = exchange.deployment, exchange.facts, exchange.budget, exchange.built
    messages, forward, native, _ = as_it_goes_up(exchange)
    if built is not None and request.options.mode != "off":
        if wants_breakpoints(deployment, facts):
            goes_on = bool(exchange.conversation_id or any(message["role"] == "assistant" for message in messages))
            own = request.native.fields if request.native is not None else {}
            translated = PROTOCOLS[deployment.protocol].as_anthropics
            messages = with_breakpoints(messages, {**forward, **own}, goes_on=goes_on, translated=translated)
        forward = with_output_limit(
            forward,
            deployment,
            facts,
            window=budget.context_window,
            prompt=built.fitted.tokens + (recall.tokens if recall is not None else 0) + exchange.surplus,
            reserved=budget.reserved_output,
            refitted=exchange.refused_budget is not None,
        )
    body = request_body(forward, messages, deployment, stream=request.stream, ask_usage=exchange.ask_usage)
    if built is not None and request.options.mode != "off":
        body, native = with_possible_thinking(body, native)
    return UpstreamRequest(body, native, headers, exchange.scope)


def as_it_goes_up(exchange: Exchange) -> Translated:
    """What is forwarded, as its upstream takes it; without marks for caches."""
    request, messages, forward = exchange.request, exchange.messages, exchange.request.forward
    recall, deployment, built = exchange.recall, exchange.deployment, exchange.built
    if recall is not None:
        messages, forward = [*messages, *recall.messages], without_recall(forward) if recall.closed else forward
    own = built.own if built is not None else exchange.own
    if own.files or own.pictures:
        messages = with_own_files(messages, own)
    as_sent, native = built is None or built.is_as_sent, None
    fields = set[str]().union(*messages)
    if request.native is not None or (not as_sent and has_blocks(messages, fields)):
        tokens = built.fitted.tokens if built is not None else None
        messages, forward, native, cleared = as_upstream_takes(messages, forward, request, deployment, tokens)
        if built is not None:
            built.utilization.without(cleared)
    if SIGNED in fields or BOUND in fields:
        messages = bound_messages(exchange, messages)
    exchange.sent = messages
    if not PROTOCOLS[deployment.protocol].takes_items and not fields.isdisjoint(OF_RESPONSES):
        messages = without_items(messages, request)
    return Translated(messages, forward, native)
