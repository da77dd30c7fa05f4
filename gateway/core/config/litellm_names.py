"""LiteLLM's names, and what becomes of each: kept, replaced by something else, or not supported (guarantee §9).

A name that is not here is not supported either: LiteLLM's next release must not keep a file from being read.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gateway.core.config.litellm_advice import ADVICE, Group

GROUPS: tuple[Group, ...] = ("kept", "replaced", "not supported")


@dataclass(frozen=True, slots=True)
class SettingFate:
    """What becomes of a setting of somebody else's, in one line. `path` is where it stands: `section.name`; `origin`
    whose it is."""

    path: str
    group: Group
    text: str
    origin: str = "LiteLLM"


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
        *("itpm", "otpm", "timeout_by_service_tier", "stream_timeout_by_service_tier", "provider_affinity_header"),
        *("keepalive_seconds", "allow_client_keepalive_override", "use_chat_completions_api", "use_xai_oauth"),
        *("fireworks_forward_user_id", "auto_router_max_input_chars", "auto_router_routing_compression"),
        *("auto_router_model_compression", "adaptive_router_default_model", "adaptive_router_config"),
        *("quality_router_config", "quality_router_default_model", "milvus_db_name", "milvus_partition_names"),
        *("valkey_host", "valkey_port", "valkey_password", "valkey_ssl", "valkey_text_field"),
        *(
            "openai_identity_provider_id",
            "openai_identity_token_file",
            "openai_service_account_id",
        ),
        "output_vector_size",
        *("valkey_embedding_field", "allowed_fails", "allowed_fails_policy"),
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


def fate_of(path: str) -> SettingFate:
    """What becomes of the setting at `path`, by the last of its names, or the last two of them."""
    *_, part, name = f".{path}".split(".")
    for group, text, names in ADVICE:
        if any(fnmatchcase(f"{part}.{name}" if "." in pattern else name, pattern) for pattern in names.split()):
            return SettingFate(path, group, text)
    return SettingFate(path, "not supported", "unknown here, and ignored")
