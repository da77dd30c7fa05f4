"""The configurations under which both gateways run, one gateway of each checkout for each."""

from pathlib import Path
from typing import Any

from tests.support.factory import SMALL_MODEL_INFO
from tests.support.mock_upstream import MockUpstream

Json = dict[str, Any]
ADMIN = "sk-the-administrator"
SECRET = b"0123456789abcdef0123456789abcdef"
"""Of keyed digests, so that rows of both storages are alike."""
EXACT = {"tokenizer": "o200k_base", "token_margin": 1.0, "max_output_tokens": 512}
CHEAP = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
BOTH = ["/v1/chat/completions", "/v1/responses"]
MODELS: dict[str, Json] = {
    "big": {**EXACT, **CHEAP, "max_input_tokens": 120_000},
    "small": {**SMALL_MODEL_INFO, "token_margin": 1.0},
    "dear": {**EXACT, "max_input_tokens": 9000, "input_cost_per_token": 1e-05, "output_cost_per_token": 3e-05},
    "both": {**EXACT, **CHEAP, "max_input_tokens": 6000, "supported_endpoints": BOTH},
    "learned": {"tokenizer": "o200k_base", "max_input_tokens": 5000, **CHEAP},
    "reads": {**EXACT, **CHEAP, "max_input_tokens": 6000, "supports_pdf_input": True},
    "falls": {**EXACT, **CHEAP, "max_input_tokens": 3000},
    "unknown": {},
    "unpriced": {**EXACT, "max_input_tokens": 5000},
    "hasty": {**EXACT, **CHEAP, "max_input_tokens": 5000},
    "gpt-4o-mini": {"token_margin": 1.0},
    "embed": {"mode": "embedding", "input_cost_per_token": 1e-07},
}
CLAUDE = {"max_input_tokens": 6000, "token_margin": 1.0, **CHEAP, "supports_prompt_caching": True}
ASKED = (
    "big",
    "small",
    "small",
    "small",
    "dear",
    "both",
    "both",
    "learned",
    "reads",
    "falls",
    "unknown",
    "unpriced",
    "claude",
    "claude",
    "two",
)
"""Names that cases choose from."""
PROFILES = {
    "core": "You help on a ship.",
    "modes": {
        "general": "Be kind.",
        "creation": "Make it whole.",
        "search": "Name where it stands.",
        "analysis": "Think.",
    },
    "tools": "Tools read the log.",
    "error_handling": "Say what failed.",
}


def models(upstream: MockUpstream) -> list[Json]:
    """`model_list` of both configurations."""

    def entry(name: str, info: Json, **params: Any) -> Json:
        known = {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "sk-upstream", **params}
        return {"model_name": name, "litellm_params": known, "model_info": info}

    found = [entry(name, info, **({"timeout": 0.3} if name == "hasty" else {})) for name, info in MODELS.items()]
    found.append(entry("claude", CLAUDE, model="anthropic/claude-sonnet-4-5", api_base=upstream.url))
    found.append(entry("two", {**EXACT, **CHEAP, "max_input_tokens": 6000}, order=1))
    found.append(entry("two", {**EXACT, "max_input_tokens": 4000}, model="openai/other", order=2))
    own = entry("own", {**EXACT, **CHEAP, "max_input_tokens": 5000})
    del own["litellm_params"]["api_key"]
    return [*found, own]


def configurations(upstream: MockUpstream, directory: Path) -> dict[str, Json]:
    """What each gateway is configured by, by name."""
    routing = {
        "allowed_fails": 1_000_000, "backoff": 0.001, "backoff_max": 0.002, "max_fallbacks": 2,
        "fallbacks": {"falls": ["small", "big"]},
        "context_window_fallbacks": {"falls": ["big"]},
        "content_policy_fallbacks": {"falls": ["both"]},
    }  # fmt: skip
    shared: Json = {
        "model_list": models(upstream),
        "upstream": {"api_base": upstream.base_url},
        "routing": routing,
        "server": {"log_level": "error", "keepalive": 0},
        "documents": {"ocr": "off"},
        "files": {"serve": "on"},
    }
    patient = {"planner_timeout": 60.0, "summarizer_timeout": 60.0, "planning_max_seconds": 300.0}
    return {
        "open": {**shared, "storage": _storage(directory, "open"), "context": patient},
        "keys": {
            **shared,
            "storage": _storage(directory, "keys"),
            "context": {**patient, "memory": "both", "embedding_model": "embed", "embedding_timeout": 60.0},
            "routing": {**routing, "retries": 1},
            "auth": {"keys": [{"key": ADMIN, "tenant": "ops", "roles": ["admin", "user"]}]},
            "conversation": {"max_turns": 4},
            "memory": {"things": True},
            "prompt_profiles": PROFILES,
            "masking": {"enabled": True},
            "documents": {"ocr": "off", "index_chars": 100_000},
            "limits": {"each_user": {"budgets": [{"usd": 0.02, "period": "total"}]}},
        },
    }


def _storage(directory: Path, name: str) -> Json:
    return {"url": f"sqlite:///{directory / name}.db"}
