"""Configurations as the documentation of the LiteLLM proxy teaches them: the same settings, written anew.

`UP_A`, `UP_B` and `UP_C` are addresses of upstreams, `HOUSE_KEY` the operator's key.
"""

import yaml

from tests.support.answers import Json

ENVIRONMENT = {
    "UP_A": "http://127.0.0.1:1/a/v1",
    "UP_B": "http://127.0.0.1:1/b/v1",
    "UP_C": "http://127.0.0.1:1/c/v1",
    "HOUSE_KEY": "sk-of-the-house",
    "LITELLM_MASTER_KEY": "sk-master-1234",
}


def _entry(name: str, place: str, more: str = "") -> str:
    served = f"model: openai/{name}, api_base: os.environ/UP_{place}, api_key: os.environ/HOUSE_KEY"
    return f"  - {{model_name: {name}, litellm_params: {{{served}{', ' if more else ''}{more}}}}}\n"


def _models(*entries: str) -> str:
    return "model_list:\n" + "".join(entries)


SMALL, LARGE = _entry("small", "A"), _entry("large", "B")
PAIR = _models(SMALL, LARGE)
EXAMPLES: dict[str, str] = {
    "first steps": _models(
        """\
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: os.environ/UP_A
      api_key: os.environ/HOUSE_KEY
      rpm: 6
""",
        _entry("vllm-model", "B"),
    )
    + "litellm_settings: {drop_params: true, success_callback: [langfuse]}\n"
    "general_settings: {master_key: os.environ/LITELLM_MASTER_KEY, alerting: [slack]}\n",
    "load balancing": _models(
        _entry("small", "A", "rpm: 6"), _entry("small", "B", "rpm: 6"), _entry("small", "C", "rpm: 10")
    )
    + """\
router_settings:
  routing_strategy: simple-shuffle
  model_group_alias: {gpt-4: small}
  num_retries: 2
  timeout: 30
  redis_host: os.environ/REDIS_HOST
  redis_password: os.environ/REDIS_PASSWORD
  redis_port: 1992
""",
    "weights": _models(_entry("small", "A", "weight: 9"), _entry("small", "B", "weight: 1"))
    + "router_settings: {routing_strategy: simple-shuffle}\n",
    "order": _models(_entry("small", "A", "order: 1"), _entry("small", "B", "order: 2"))
    + "router_settings: {enable_pre_call_checks: true}\n",
    "least busy": _models(SMALL, _entry("small", "B")) + "router_settings: {routing_strategy: least-busy}\n",
    "latency": _models(SMALL, _entry("small", "B"))
    + "router_settings:\n  routing_strategy: latency-based-routing\n  routing_strategy_args: {ttl: 10}\n",
    "usage": _models(_entry("small", "A", "tpm: 100000, rpm: 10000"), _entry("small", "B", "tpm: 200000"))
    + "router_settings: {routing_strategy: usage-based-routing-v2, enable_pre_call_checks: true}\n",
    "lowest cost": _models(_entry("small", "A", "input_cost_per_token: 3.0e-05"), _entry("small", "B"))
    + "router_settings: {routing_strategy: cost-based-routing}\n",
    "reliability": PAIR
    + """\
litellm_settings:
  num_retries: 3
  request_timeout: 10
  fallbacks: [{small: [large]}]
  context_window_fallbacks: [{small: [large]}]
  allowed_fails: 3
  cooldown_time: 30
""",
    "fallbacks": PAIR + "router_settings:\n  fallbacks: [{small: [large]}]\n  num_retries: 0\n",
    "default fallbacks": PAIR + "litellm_settings: {default_fallbacks: [large]}\n",
    "fallbacks of all": PAIR + 'litellm_settings:\n  fallbacks: [{"*": [large]}]\n  max_fallbacks: 1\n',
    "content policy": PAIR + "router_settings:\n  content_policy_fallbacks: [{small: [large]}]\n",
    "context window": PAIR
    + "router_settings: {enable_pre_call_checks: true}\n"
    + "litellm_settings:\n  context_window_fallbacks: [{small: [large]}]\n",
    "retries": PAIR + "litellm_settings: {num_retries: 2}\n",
    "retry policy": PAIR
    + """\
router_settings:
  retry_policy:
    AuthenticationErrorRetries: 3
    TimeoutErrorRetries: 3
    RateLimitErrorRetries: 0
    ContentPolicyViolationErrorRetries: 4
    InternalServerErrorRetries: 4
  model_group_retry_policy: {small: {RateLimitErrorRetries: 1}}
  allowed_fails_policy:
    ContentPolicyViolationErrorAllowedFails: 1000
    RateLimitErrorAllowedFails: 100
    InternalServerErrorAllowedFails: 20
""",
    "no cooldowns": PAIR + "router_settings: {disable_cooldowns: true}\n",
    "parallel requests": _models(_entry("small", "A", "max_parallel_requests: 10"), LARGE)
    + "router_settings: {default_max_parallel_requests: 20}\n"
    + "general_settings: {global_max_parallel_requests: 50, max_parallel_requests: 5}\n",
    "providers' budgets": _models(
        SMALL, "  - {model_name: claude, litellm_params: {model: anthropic/claude, api_key: os.environ/HOUSE_KEY}}\n"
    )
    + """\
router_settings:
  provider_budget_config:
    openai: {budget_limit: 10.5, time_period: 1d}
    anthropic: {budget_limit: 100, time_period: 7d}
    azure: {budget_limit: 100, time_period: 30d}
""",
    "deployments' budgets": _models(_entry("small", "A", "max_budget: 10.5, budget_duration: 1d"), LARGE),
    "the proxy's budget": PAIR
    + "general_settings: {master_key: os.environ/LITELLM_MASTER_KEY}\n"
    + "litellm_settings: {max_budget: 10.5, budget_duration: 30d}\n",
    "users' budgets": PAIR + "litellm_settings: {max_internal_user_budget: 10, internal_user_budget_duration: 1mo}\n",
    "end users": PAIR + "litellm_settings: {max_end_user_budget: 10.5}\n",
    "new keys": PAIR
    + """\
litellm_settings:
  default_key_generate_params:
    max_budget: 1.5
    models: [small]
    duration: 30d
    rpm_limit: 60
  upperbound_key_generate_params: {max_budget: 100, budget_duration: 10d, tpm_limit: 1000, max_parallel_requests: 7}
""",
    "new users": PAIR
    + """\
litellm_settings:
  default_internal_user_params:
    user_role: internal_user
    max_budget: 100
    budget_duration: 30d
    models: [small]
""",
    "aliases": PAIR
    + "router_settings:\n  model_group_alias: {gpt-4: small, gpt-3.5-turbo: {model: large, hidden: true}}\n",
    "wildcards": """\
model_list:
  - model_name: house/*
    litellm_params: {model: openai/*, api_base: os.environ/UP_A, api_key: os.environ/HOUSE_KEY}
  - model_name: "*"
    litellm_params: {model: openai/*, api_base: os.environ/UP_B, api_key: os.environ/HOUSE_KEY}
router_settings:
  model_group_alias: {best: house/best}
""",
    "prompt caching": PAIR + "router_settings: {optional_pre_call_checks: [prompt_caching]}\n",
    "affinity": PAIR
    + "router_settings:\n  optional_pre_call_checks: [responses_api_deployment_check, session_affinity]\n",
    "credentials": """\
model_list:
  - {model_name: small, litellm_params: {model: openai/small, litellm_credential_name: house}}
credential_list:
  - credential_name: house
    credential_values: {api_key: os.environ/HOUSE_KEY, api_base: os.environ/UP_A}
    credential_info: {description: ours}
""",
    "tags": _models(_entry("small", "A", "tags: [free]"), _entry("small", "B", "tags: [paid]"))
    + "router_settings: {enable_tag_filtering: true}\n",
    "closed when down": PAIR
    + "general_settings: {fail_closed_budget_enforcement: true, database_url: os.environ/DATABASE_URL}\n",
}  # fmt: skip


def example(name: str) -> Json:
    """An example as its YAML reads."""
    found: Json = yaml.safe_load(EXAMPLES[name])
    return found
