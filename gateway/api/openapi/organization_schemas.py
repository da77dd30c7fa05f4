"""Schemas of usage and costs as OpenAI tells them (guarantee §13.4)."""

from gateway.api.openapi.schemas import FLAG, NUMBER, TEXT, WHOLE, Schema, many, obj, or_null, ref

GROUPED = ("project_id", "api_key_id")
USAGE_GROUPED = (*GROUPED, "user_id", "model")
KINDS = ("text", "audio", "image")


def organization_schemas() -> dict[str, Schema]:
    """Pages of buckets, by what their results tell of."""
    results = {
        "OrganizationCosts": ("OrganizationCost", _cost()),
        "OrganizationCompletions": ("CompletionsUsage", _completions()),
        "OrganizationEmbeddings": ("EmbeddingsUsage", _embeddings()),
    }
    found: dict[str, Schema] = {}
    for page, (name, result) in results.items():
        found |= {page: _page(name), f"{name}Bucket": _bucket(name), name: result}
    return found


def _page(name: str) -> Schema:
    return obj(
        "A page of buckets; the next one is `page=` its `next_page`.",
        "object data has_more:flag next_page?",
        object={"const": "page"},
        data=many(ref(f"{name}Bucket")),
    )


def _bucket(name: str) -> Schema:
    return obj(
        "A day, an hour or a minute (UTC), from `start_time` on and before `end_time`; empty where nobody asked.",
        "object start_time:unix end_time:unix results",
        object={"const": "bucket"},
        results=many(ref(name)),
    )


def _cost() -> Schema:
    named = {name: or_null(TEXT) for name in (*GROUPED, "line_item")}
    amount = obj("USD, with all their digits.", "value currency", value=NUMBER, currency={"const": "usd"})
    return obj(
        "What requests cost, as far as prices are known; null where it was not grouped by. With `include=net_saving` "
        "also what they would have cost without a gateway.",
        f"object amount quantity {' '.join(named)}",
        "unmetered_requests:whole conversation_id?",
        net_saving=or_null(amount),
        direct_cost=or_null(amount),
        object={"const": "organization.costs.result"},
        amount=amount,
        quantity=or_null(NUMBER),
        **named,
    )


def _completions() -> Schema:
    counted = ("input_tokens", "output_tokens", "input_cached_tokens", "input_cache_write_tokens",
               "input_uncached_tokens", "num_model_requests")  # fmt: skip
    unknown = [f"{side}_{kind}_tokens" for side in ("input", "input_cached", "output") for kind in KINDS]
    fields: dict[str, Schema] = {
        **dict.fromkeys(counted, WHOLE),
        **{name: or_null(TEXT) for name in (*USAGE_GROUPED, "service_tier")},
        **{name: or_null(WHOLE) for name in unknown},
        "batch": or_null(FLAG),
    }
    return obj(
        "Tokens of primary models; what is not counted apart is null.",
        f"object {' '.join(fields)}",
        object={"const": "organization.usage.completions.result"},
        **fields,
    )


def _embeddings() -> Schema:
    named = {name: or_null(TEXT) for name in USAGE_GROUPED}
    return obj(
        "Tokens that were embedded.",
        f"object input_tokens num_model_requests {' '.join(named)}",
        object={"const": "organization.usage.embeddings.result"},
        input_tokens=WHOLE,
        num_model_requests=WHOLE,
        **named,
    )
