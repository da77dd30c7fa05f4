"""LiteLLM's names, and what becomes of each: kept, replaced by something else, or not supported (guarantee §9).

A name that is not here is not supported either: LiteLLM's next release must not keep a file from being read.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Group = Literal["kept", "replaced", "not supported"]
GROUPS: tuple[Group, ...] = ("kept", "replaced", "not supported")


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a setting of somebody else's, in one line. `path` is where it stands: `section.name`; `origin`
    whose it is."""

    path: str
    group: Group
    text: str
    origin: str = "LiteLLM"


BEHIND = "run the LiteLLM proxy behind the gateway for it: `model: litellm_proxy/NAME` with its `api_base`"
LIMITS = "the provider's own limits hold"
ADVICE: tuple[tuple[Group, str, str], ...] = (
    # group, what instead, names
    (
        "replaced",
        "`telemetry` (OpenTelemetry), `GET /metrics`, the ledger, `gateway audit` and the log",
        "success_callback failure_callback callbacks service_callbacks audit_log_callbacks callback_settings langfuse* "
        "datadog* s3_callback_params gcs_pub_sub* prometheus* custom_prometheus* turn_off_message_logging redact_* "
        "disable_end_user_cost_tracking* otel* arize* sentry* include_cost_in_streaming_usage logging "
        "extra_spend_tag_headers add_function_to_prompt standard_logging_payload_excluded_fields",
    ),
    (
        "replaced",
        "a ledger without content, always on; conversations are kept as `conversation.store` says",
        "disable_spend_logs disable_spend_updates store_prompts_in_spend_logs disable_error_logs proxy_batch_*",
    ),
    (
        "replaced",
        "`conversation.retention_days`, for conversations; the ledger stays",
        "maximum_spend_logs_* maximum_*_retention_*",
    ),
    (
        "replaced",
        "`storage.url` or `GATEWAY_STORAGE_URL`: LiteLLM's database is neither read nor changed",
        "database_* store_model_in_db supported_db_objects disable_prisma_schema_update use_redis_transaction_buffer "
        "allow_requests_on_db_unavailable disable_adding_master_key_hash_to_db",
    ),
    ("replaced", "`cache.url`, where the gateway is to have Redis", "redis_* cache_kwargs"),
    ("replaced", "`server.log_level`", "set_verbose debug_level suppress_debug_info detailed_debug"),
    ("replaced", "`server.log_format`", "json_logs"),
    ("replaced", "`server.max_body_bytes`", "max_request_size_mb"),
    (
        "replaced",
        "`GET /health/live`, `GET /health/ready` and `gateway check`",
        "background_health_checks health_check_* enable_health_check_routing disable_background_health_check",
    ),
    (
        "replaced",
        "always on: what does not fit is made to fit, or is a 400",
        "enable_pre_call_checks enable_pre_call_check context_window_fallbacks",
    ),
    (
        "replaced",
        "always on: `model_list` and its patterns are all that is served",
        "infer_model_from_keys check_provider_endpoint",
    ),
    ("replaced", "breakpoints are set by the gateway at the frozen boundary", "cache_control_injection_points"),
    ("replaced", "`upstream.forward_store` and what the client sends", "forward_openai_org_id"),
    ("replaced", "`server.relay` names further paths", "allowed_routes public_routes admin_only_routes"),
    (
        "not supported",
        f"nothing is balanced, tried again or sent elsewhere; {BEHIND}",
        "fallbacks default_fallbacks content_policy_fallbacks max_fallbacks num_retries max_retries retry_* "
        "routing_strategy* allowed_fails* cooldown_* disable_cooldowns enable_tag_filtering tag_filtering_match_any "
        "tags tag_regex weight order enable_weighted_failover optional_pre_call_checks model_group_retry_policy "
        "provider_budget_config auto_router* complexity_router* default_priority polling_interval client_ttl "
        "ignore_invalid_deployments allowed_model_region region_name use_litellm_proxy context_window_fallback_dict "
        "disable_fallbacks mock_*",
    ),
    (
        "not supported",
        f"{LIMITS}; {BEHIND}",
        "rpm tpm max_parallel_requests default_max_parallel_requests global_max_parallel_requests *_rpm_limit "
        "*_tpm_limit token_rate_limit_type disable_retry_on_max_parallel_request_limit_error max_file_size_mb",
    ),
    (
        "not supported",
        "`gateway audit` tells what was spent; nothing stops at a sum",
        "max_budget *_max_budget budget_duration soft_budget *_budget_* disable_reset_budget "
        "max_internal_user_budget internal_user_budget_duration default_max_internal_user_budget cost_* "
        "spend_report_frequency",
    ),
    (
        "not supported",
        "name each key and its tenant in `auth.keys`",
        "custom_auth custom_auth_settings custom_sso custom_ui_* custom_key_* enable_jwt_auth litellm_jwtauth "
        "enable_oauth2_* oauth2_* key_generation_settings key_management_* default_internal_user_params "
        "default_team_* team_* upperbound_key_generate_params enforce_user_param enforced_params allowed_ips "
        "allow_user_auth user_* ui_* litellm_key_header_name disable_master_key_return service_account_settings "
        "role_permissions use_x_forwarded_for enable_key_alias_format_validation user_header_* "
        "litellm_license virtual_key_* reject_clientside_metadata_tags",
    ),
    ("not supported", "set what it holds in the environment: `os.environ/NAME`", "use_*_kms use_azure_key_vault"),
    ("not supported", "watch `GET /metrics` and the log", "alerting* alert_* email*"),
    (
        "not supported",
        "answers are never kept for other requests; providers' prompt caches keep working",
        "cache cache_params caching caching_groups enable_caching_on_provider_specific_optional_params",
    ),
    (
        "not supported",
        f"nothing looks into requests and answers; {BEHIND}",
        "guardrails policies policy_attachments enable_content_filter llm_guard_mode pillar* presidio* "
        "google_moderation_confidence_threshold llamaguard_* banned_keywords_list blocked_user_list post_call_rules",
    ),
    ("not supported", "clients bring their tools", "mcp_* search_tools vector_store_* web_search_* tools_settings"),
    ("not supported", "clients bring their prompts", "prompts prompt_* global_prompt_directory custom_prompt_dict "
     "initial_prompt_value roles final_prompt_value bos_token eos_token bitbucket_config dotprompt_config "
     "gitlab_config hf_model_name"),
    (
        "not supported",
        "`server.relay` relays paths to the default upstream; no others are reached",
        "pass_through_endpoints use_in_pass_through use_client_credentials_pass_through_routes",
    ),
    (
        "not supported",
        "files, batches and the like go to the default upstream, with the client's own key or `server.relay`",
        "files_settings finetune_settings assistant_settings batch_* s3_* aws_batch_* litellm_files*",
    ),
    ("not supported", "clients name the model", "completion_model embedding_model image_generation_model "
     "moderation_model default_model"),
    ("not supported", "the gateway chooses what is sent", "forward_client_headers_to_llm_api model_group_settings "
     "forward_llm_provider_auth_headers"),
    (
        "not supported",
        "the operator's key is the only one that goes there",
        "allow_client_side_credentials configurable_clientside_auth_params",
    ),
    ("not supported", "connections use the system's certificates and addresses", "ssl_* force_ipv4 "
     "aiohttp_trust_env network_mock"),
    ("not supported", "the gateway has no such part", "agent_list agents a2a* worker_config telemetry "
     "litellm_session_id litellm_trace_id no-log preset_cache_key"),
)  # fmt: skip
SECTIONS = frozenset(
    {
        *("litellm_settings", "router_settings", "general_settings", "environment_variables", "include"),
        *("credential_list", "callback_settings", "guardrails", "policies", "policy_attachments", "prompts"),
        *("mcp_servers", "mcp_tools", "mcp_aliases", "mcp_semantic_tool_filter", "vector_store_registry"),
        *("search_tools", "files_settings", "finetune_settings", "assistant_settings", "batch_settings"),
        *("agent_list", "agents", "worker_config", "model_group_settings", "litellm_jwtauth", "default_team_settings"),
        *("pass_through_endpoints", "cache_params", "team_settings", "alerting", "custom_prompt_dict"),
    }
)
"""Top-level names that make a file LiteLLM's. Others are taken for its own where one of these stands beside them."""
ROUTER_PARAMETERS = frozenset(
    {
        *("rpm", "tpm", "weight", "order", "max_retries", "num_retries", "tags", "tag_regex", "model_info"),
        *("max_budget", "budget_duration", "max_parallel_requests", "max_file_size_mb", "mock_response", "fallbacks"),
        *("use_in_pass_through", "use_litellm_proxy", "litellm_credential_name", "configurable_clientside_auth_params"),
        *("default_api_key_tpm_limit", "default_api_key_rpm_limit", "extra_body", "caching", "cache", "callbacks"),
        *("success_callback", "failure_callback", "context_window_fallback_dict", "retry_policy", "cooldown_time"),
        *("cache_control_injection_points", "guardrails", "prompt_id", "prompt_variables", "prompt_label"),
        *("custom_prompt_dict", "initial_prompt_value", "roles", "final_prompt_value", "bos_token", "eos_token"),
        *("hf_model_name", "ssl_verify", "allowed_model_region", "mock_timeout", "mock_tool_calls", "no-log"),
        *("litellm_session_id", "litellm_trace_id", "preset_cache_key", "disable_fallbacks", "logging"),
        *("s3_bucket_name", "s3_region_name", "s3_access_key_id", "s3_secret_access_key", "s3_encryption_key_id"),
        *("aws_batch_role_arn", "auto_router_config", "auto_router_config_path", "auto_router_default_model"),
        *("auto_router_embedding_model", "complexity_router_config", "complexity_router_default_model"),
        *("vector_store_id", "vector_store_ids", "milvus_text_field", "force_timeout", "region_name"),
    }
)
"""`litellm_params` that LiteLLM's router and proxy keep to themselves; they are not sent with requests."""
ON_HERE = frozenset(
    {
        *("ssl_verify", "enable_pre_call_checks", "enable_pre_call_check", "store_prompts_in_spend_logs", "json_logs"),
        "include_cost_in_streaming_usage",
    }
)
"""What is, or may be, on here although a file has it off."""
SILENT = frozenset({"model_info", "extra_body", "litellm_credential_name"})
"""Those of them that mean the same here."""


def fate_of(path: str) -> Fate:
    """What becomes of the setting at `path`, by the last of its names."""
    name = path.rpartition(".")[2]
    for group, text, names in ADVICE:
        if any(fnmatchcase(name, pattern) for pattern in names.split()):
            return Fate(path, group, text)
    return Fate(path, "not supported", "unknown here, and ignored")
