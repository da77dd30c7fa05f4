"""`/ui/admin/models` and `/ui/admin/configuration`: the served models, their prices, and the gateway's settings."""

import re
from collections.abc import Mapping
from decimal import Decimal

from gateway.api.ui.dependencies import PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, PageRoute
from gateway.core.config.model_list import ModelEntry
from gateway.core.frozen_records import record
from gateway.core.types.chat import ModelFacts
from gateway.inspection import settings_in_force
from gateway.storage.encryption import open_vault, rewrite
from gateway.storage.reports import storage_health
from gateway.upstream.routing import catalogue, health

MILLION = 1_000_000
KINDS = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "input from the cache",
    "cache_creation_input_token_cost": "written to the cache",
    "input_cost_per_audio_token": "audio input",
    "output_cost_per_audio_token": "audio output",
    "output_cost_per_reasoning_token": "reasoning",
}
"""Prices that most models have, by LiteLLM's names, in the order in which they are shown."""
CONFIGURED, MAP, TOLD = "the configuration", "LiteLLM's price map", "the upstream"
PRICE_TIER_NAME = re.compile(r"(.+?)_above_(\d+)k_tokens(.*)")
SERVICE = re.compile(r"(.+)_(priority|flex|batches|balanced|ultrafast)")


@record
class PriceShown:
    """A price in USD for a million tokens, or for one of the units in its name; `tier`: when it applies."""

    kind: str
    usd: Decimal
    unit: str
    tier: str = ""


@record
class DeploymentShown:
    """An entry of `model_list`, with what is known of its model and its recent state."""

    id: str
    entry: ModelEntry
    api_base: str
    place: str
    facts: ModelFacts
    prices: tuple[PriceShown, ...]
    prices_from: str
    window_from: str
    problem: str | None
    watch: health.DeploymentWatch | None
    rests: bool
    cools_for: float


class ModelPages:
    """Pages that change nothing."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts

    def routes(self) -> tuple[PageRoute, ...]:
        return (
            PageRoute("GET", "/admin/models", self.models, seen="models.seen", is_admin=True),
            PageRoute("GET", "/admin/configuration", self.configuration, seen="configuration.seen", is_admin=True),
        )

    async def models(self, page: PageRequest) -> PageAnswer:
        """Shows the models (`GET /ui/admin/models`)."""
        parts = self._parts
        watched = {watch.deployment.id: (watch, rests) for watch, rests in parts.router.health.watched()}
        places = parts.settings.origins
        found = []
        for number, (member, known, facts) in enumerate(parts.router.listed()):
            watch, rests = watched.get(member.id, (None, False))
            entry = member.entry
            found.append(
                DeploymentShown(
                    id=member.id,
                    entry=entry,
                    api_base=settings_in_force.address(entry.litellm_params.api_base or ""),
                    place=places.get(f"model_list[{number}]", ""),
                    facts=facts,
                    prices=prices_of(facts.prices),
                    prices_from=_prices_from(known, facts),
                    window_from=_window_from(known, facts),
                    problem=catalogue.unsupported(entry),
                    watch=watch,
                    rests=rests,
                    cools_for=parts.router.health.cools_for(member.id),
                )
            )
        return await page.render(
            "admin_models.html",
            deployments=found,
            routing=settings_in_force.without_secrets(parts.settings.routing),
            serves_unlisted=parts.settings.serves_unlisted,
            default_base=settings_in_force.address(parts.settings.upstream.api_base),
        )

    async def configuration(self, page: PageRequest) -> PageAnswer:
        """Shows the settings (`GET /ui/admin/configuration`)."""
        parts, settings = self._parts, self._parts.settings
        vault = open_vault(settings.storage)
        return await page.render(
            "admin_configuration.html",
            sections=settings_in_force.settings_in_force(settings),
            default=settings_in_force.DEFAULT,
            warnings=settings.warnings,
            moved=settings.moved,
            guards=settings.guards,
            profiles=settings_in_force.prompt_texts(settings),
            origins=settings.origins,
            current=None if vault is None else vault.current,
            before=() if vault is None else tuple(each for each in vault.key_ids if each != vault.current),
            noted=sorted(await parts.transactions.run(rewrite.noted_keys)),
            kept=await parts.transactions.run(storage_health.read_kept),
            configured=settings,
        )


def _prices_from(known: ModelFacts, facts: ModelFacts) -> str:
    if not facts.prices:
        return ""
    return CONFIGURED if known.prices_are_configured else MAP if known.prices else TOLD


def _window_from(known: ModelFacts, facts: ModelFacts) -> str:
    if facts.max_input_tokens is None and facts.context_window is None:
        return ""
    if known.window_is_configured:
        return CONFIGURED
    return MAP if facts.max_input_tokens == known.max_input_tokens else TOLD


def prices_of(prices: Mapping[str, Decimal]) -> tuple[PriceShown, ...]:
    """Converts prices from LiteLLM's names to those that a person reads: the usual ones first, each with its tiers."""
    found = []
    for name, usd in prices.items():
        base, tier = name, []
        if match := SERVICE.fullmatch(base):
            base = match[1]
            tier.append(f"service tier {match[2]}")
        if match := PRICE_TIER_NAME.fullmatch(base):
            base = match[1] + match[3]
            tier.insert(0, f"prompts above {match[2]},000 tokens")
        of_tokens = "token" in base
        kind = KINDS.get(base, base.replace("_", " "))
        shown = PriceShown(
            kind, usd * MILLION if of_tokens else usd, "1M tokens" if of_tokens else "unit", ", ".join(tier)
        )
        order = list(KINDS).index(base) if base in KINDS else len(KINDS)
        found.append(((order, base, shown.tier), shown))
    return tuple(shown for _, shown in sorted(found, key=lambda pair: pair[0]))
