"""One table of LiteLLM's settings: what becomes of each, in one line, and what reads it (guarantee §9, §12.14).

`litellm.py` imports a file by this table, `gateway check` reports from it, and docs/litellm.md is made of it (`make
docs`). A name that is not in it is not supported either: LiteLLM's next release must not keep a file from being read.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from gateway.core.config import litellm_draft as draft
from gateway.core.config.litellm_draft import Group, SettingFate, SettingReader


class SettingRule(NamedTuple):
    """What becomes of some settings.

    `names` are separated by blanks and may be patterns; a name with another meaning in an entry of `model_list` is
    listed as `litellm_params.…`, before the rule with the name alone. `read` puts the value into our sections; if it is
    None, `litellm.py` does, or nothing.
    """

    group: Group
    advice: str
    names: str
    read: SettingReader | None = None


BEHIND = "run the LiteLLM proxy behind the gateway for it: `model: litellm_proxy/NAME` with its `api_base`"
SETTING_RULES: tuple[SettingRule, ...] = (
    # -- entries of model_list
    SettingRule("kept", "the entry's share, its place, and how much it is asked, among the entries of one name",
     "litellm_params.weight litellm_params.order litellm_params.rpm litellm_params.tpm "
     "litellm_params.max_parallel_requests"),
    SettingRule("replaced",
     "`limits.models`, where the name has one entry: what is beyond it is a 429, not another deployment",
     "litellm_params.max_budget litellm_params.budget_duration"),
    SettingRule("not supported", "`routing.retries` and what else stands in `routing` hold for all models",
     "litellm_params.num_retries litellm_params.max_retries litellm_params.retry_policy "
     "litellm_params.cooldown_time litellm_params.allowed_fails*"),
    SettingRule("not supported",
     "`routing.fallbacks` and `routing.context_window_fallbacks`, by the names that clients ask for",
     "litellm_params.fallbacks litellm_params.context_window_fallback_dict longer_context_model_fallback_dict "
     "disable_fallbacks"),
    SettingRule("kept", "seconds until the answer begins, and between two chunks",
     "litellm_params.timeout litellm_params.stream_timeout"),
    SettingRule("not supported", "`limits.keys` limits each key for all models together", "default_api_key_*_limit"),
    SettingRule("kept", "prices, the provider's address, version and credentials, and what is known of the model",
     "litellm_params.*_cost* litellm_params.custom_llm_provider "
     "litellm_params.organization litellm_params.api_base litellm_params.api_key litellm_params.base_url "
     "litellm_params.api_version litellm_params.aws_* litellm_params.vertex_* litellm_params.watsonx_* "
     "litellm_params.azure_* litellm_params.client_secret litellm_params.client_id litellm_params.tenant_id "
     "litellm_params.extra_headers litellm_params.extra_body litellm_params.model litellm_params.model_info "
     "litellm_params.litellm_credential_name litellm_params.allowed_openai_params litellm_params.tiered_pricing "
     "litellm_params.anthropic_*"),
    SettingRule("not supported", "`…_cost…` fields say what is charged",
     "litellm_params.*_multiplier* litellm_params.cost_per_second"),
    SettingRule("not supported", "`api_key` of each entry, or `credential_list`",
     "litellm_params.openai_* use_xai_oauth proxy_auth token"),
    SettingRule("kept", "for models that are called through litellm, of each entry or of all",
     "drop_params additional_drop_params modify_params merge_reasoning_content_in_choices"),
    # -- several deployments, other models, another try
    SettingRule("kept", "`routing.fallbacks`; of `*` and of plain names `routing.default_fallbacks`",
     "fallbacks", draft.read_fallbacks),
    SettingRule("kept", "`routing.default_fallbacks`", "default_fallbacks", draft.read_default_fallbacks),
    SettingRule("kept", "`routing.context_window_fallbacks`, after everything was done to make the prompt fit",
     "context_window_fallbacks", draft.fallback_reader("context_window_fallbacks")),
    SettingRule("kept", "`routing.content_policy_fallbacks`",
     "content_policy_fallbacks", draft.fallback_reader("content_policy_fallbacks")),
    SettingRule("kept", "`routing.max_fallbacks`", "max_fallbacks", draft.read_max_fallbacks),
    SettingRule("kept", "`routing.retries`, ten at most; unset, each other deployment is tried once",
     "num_retries max_retries", draft.read_retries),
    SettingRule("replaced", "`routing.backoff`, which it sets; waits double, with jitter",
     "retry_after", draft.read_backoff),
    SettingRule("replaced",
     "`routing.retry_statuses` and the most of its counts as `routing.retries`, for all kinds alike",
     "retry_policy", draft.read_retry_policy),
    SettingRule("not supported", "`routing.retries` and `routing.retry_statuses` hold for all models",
     "model_group_retry_policy model_fallbacks num_retries_per_request retry "
     "disable_retry_on_max_parallel_request_limit_error"),
    SettingRule("kept", "`routing.allowed_fails`, one more: it counts the failure after which a deployment rests",
     "allowed_fails", draft.read_allowed_fails),
    SettingRule("replaced", "the least of its counts as `routing.allowed_fails`, for all kinds alike",
     "allowed_fails_policy", draft.read_allowed_fails_policy),
    SettingRule("replaced", "`routing.cooldown`, which it sets; rests double up to `routing.cooldown_max`",
     "cooldown_time", draft.read_cooldown),
    SettingRule("replaced", "a `routing.allowed_fails` that is never reached; a refused key still rests",
     "disable_cooldowns", draft.read_no_cooldowns),
    SettingRule("replaced",
     "`routing.strategy`: `simple-shuffle` is `weighted`, `least-busy` is `least_busy`, `latency-based-routing` "
     "is `latency`; the others become `weighted`. Conversations stay where their prompts are cached "
     "(`routing.sticky`)", "routing_strategy", draft.read_strategy),
    SettingRule("not supported", "quickness is a moving average of the time to the first byte",
     "routing_strategy_args"),
    SettingRule("replaced",
     "`routing.sticky`: `prompt_caching` is `auto`, an affinity is `always`; limits of entries are always kept",
     "optional_pre_call_checks", draft.read_checks),
    SettingRule("not supported", "`routing.sticky` holds for all models",
     "model_group_affinity_config deployment_affinity_* provider_affinity_header"),
    SettingRule("not supported", "`routing.strategy` holds for all models, `weight` stands with each entry",
     "routing_groups weights"),
    SettingRule("kept", "further names of all entries of a model; `hidden` ones are listed, too",
     "model_group_alias model_alias_map"),
    SettingRule("kept", "added to each model", "default_litellm_params"),
    SettingRule("kept", "for `litellm_credential_name`", "credential_list"),
    SettingRule("kept", "for `os.environ/NAME` in this file, and for the gateway's own settings",
     "environment_variables"),
    SettingRule("kept", "lists are appended, other sections replaced", "include"),
    SettingRule("replaced", "always on: a failed deployment is followed by another, by weight",
     "enable_weighted_failover"),
    SettingRule("replaced", "always on: an entry that cannot be served says why, the others are",
     "ignore_invalid_deployments"),
    SettingRule("replaced", "always on: a key asks only the models that it names, as fallbacks, too",
     "enforce_fallback_model_access"),
    SettingRule("replaced",
     "always on: what does not fit is made to fit, goes to a larger model of `routing.context_window_fallbacks`, "
     "or is a 400", "enable_pre_call_checks enable_pre_call_check"),
    SettingRule("replaced", "`routing.probe`, `GET /health/live`, `GET /health/ready` and `gateway check`",
     "background_health_check* health_check_* enable_health_check_routing disable_background_health_check "
     "use_shared_health_check allow_public_health_readiness_details model_list_healthy_only"),
    SettingRule("not supported",
     f"clients name the model, and nothing is chosen by tags, regions or what a prompt says; {BEHIND}",
     "enable_tag_filtering tag_filtering_match_any tag_routing_prefix region_name tags tag_regex "
     "allowed_model_region auto_router* complexity_router* adaptive_router* quality_router* autorouter* "
     "decisions* maximum_autorouter_*"),
    SettingRule("not supported", "no request waits in a queue: what is too much is a 429",
     "default_priority polling_interval priority_reservation* max_queued_requests_per_worker "
     "admission_queue_timeout_seconds max_in_flight_requests_per_worker"),
    SettingRule("not supported", "connections are kept as long as they are good",
     "client_ttl use_aiohttp_transport disable_aiohttp_transport in_memory_llm_clients_cache"),
    SettingRule("not supported", "answers come from models", "mock_* use_litellm_proxy network_mock"),
    SettingRule("replaced", "`upstream.first_byte`, which it sets: seconds until an answer begins",
     "request_timeout timeout", draft.timeout_reader("first_byte")),
    SettingRule("replaced", "`upstream.idle`, which it sets: seconds between two chunks",
     "stream_timeout", draft.timeout_reader("idle")),
    SettingRule("not supported", "`upstream.first_byte` and `upstream.idle` hold for all tiers and paths",
     "*timeout_by_service_tier pass_through_request_timeout responses_websocket_*"),
    # -- budgets and limits
    SettingRule("kept", "a budget in `limits.all`", "max_budget budget_duration", draft.note_spending),
    SettingRule("kept", "`concurrent` in `limits.all`", "global_max_parallel_requests", draft.read_concurrent),
    SettingRule("kept", "`max_parallel_requests` of each entry that has none",
     "default_max_parallel_requests", draft.read_each_entry),
    SettingRule("not supported", "`concurrent` in `limits.keys`, or `max_parallel_requests` of an entry",
     "max_parallel_requests"),
    SettingRule("kept",
     "budgets and limits in `limits.keys`: of each key that has none of its own, the master key among them",
     "default_key_generate_params", draft.note_spending),
    SettingRule("replaced",
     "budgets and limits in `limits.keys`, where nothing nearer is set: of each key, not of each person with all "
     "keys",
     "default_internal_user_params max_internal_user_budget default_max_internal_user_budget "
     "internal_user_budget_duration upperbound_key_generate_params", draft.note_spending),
    SettingRule("kept", "a budget in `limits.each_user` that never ends", "max_end_user_budget", draft.read_each_user),
    SettingRule("replaced", "a budget in `limits.models`, where that provider serves one name alone",
     "provider_budget_config", draft.read_provider_budgets),
    SettingRule("replaced", "`limits.when_down: closed`", "fail_closed_*", draft.read_closed),
    SettingRule("not supported",
     "`budgets` and `limits` of a key (`POST /v1/gateway/keys`), `limits.users`, `limits.projects`",
     "max_end_user_budget_id max_user_budget max_ui_session_budget default_soft_budget default_team_params "
     "default_team_settings team_settings tag_budget_config token_rate_limit_type validate_end_user_id_in_db "
     "apply_user_budget_to_team_keys *_rpm_limit *_tpm_limit itpm otpm"),
    SettingRule("not supported", "days, weeks and months are those of UTC, budgets begin anew with them",
     "budget_reset_time budget_rollover disable_reset_budget proxy_budget_rescheduler_* timezone"),
    SettingRule("not supported", "a budget is checked before a call and settled after it; beyond it is a 429",
     "disable_budget_reservation budget_exceeded_*"),
    SettingRule("not supported", "what has no known price is counted, and costs `null`; a budget cannot hold it",
     "block_requests_for_models_without_pricing"),
    SettingRule("not supported", "prices of an entry (`model_info`)",
     "cost_discount_config cost_margin_config model_cost model_cost_map_url apply_search_free_tier"),
    # -- keys
    SettingRule("kept", "a key of tenant `master` with the roles `user` and `admin`", "master_key LITELLM_MASTER_KEY"),
    SettingRule("replaced", "`POST /v1/gateway/keys`, for holders of a key of role `admin` alone",
     "key_generation_settings disable_key_generate_for_org_admin disable_custom_api_keys custom_key_* "
     "key_alias_pattern enable_key_alias_format_validation default_team_disabled "
     "disable_auto_add_proxy_admin_to_teams use_team_public_model_name"),
    SettingRule("replaced", "a key that was revoked is refused everywhere within five seconds",
     "user_api_key_cache_* enable_redis_auth_cache"),
    SettingRule("replaced", "`server.log_level` never shows a key",
     "disable_master_key_return disable_adding_master_key_hash_to_db log_auth_failure_key_identity "
     "redact_messages_in_exceptions log_client_error_tracebacks"),
    SettingRule("not supported", "say in `auth.jwt` whose tokens count and what their claims mean",
     "enable_jwt_auth litellm_jwtauth"),
    SettingRule("not supported", "the page `/ui` has viewers and admins, who log in with a key",
     "ui_* user_mcp_management_mode max_failed_login_* failed_login_* password_policy_* "
     "disable_password_login_when_sso_enabled disable_env_credential_login hide_default_credentials_hint "
     "enable_public_model_hub public_model_groups* public_agent_groups public_skills_index public_mcp_* "
     "control_plane_url blog_posts_url *_login_to_sso auto_redirect_*"),
    SettingRule("not supported", "name each key and its tenant in `auth.keys`, or make it at runtime",
     "custom_auth* custom_sso custom_ui_* custom_team_* virtual_key_* "
     "enable_oauth2_* oauth2_* enforce_user_param enforced_params allowed_ips allow_user_auth "
     "litellm_key_header_name service_account_settings role_permissions enforce_rbac use_x_forwarded_for "
     "user_header_* litellm_license reject_clientside_metadata_tags team_metadata_* scim_* sso_* *_sso* *_sso "
     "dangerously_permit_weak_or_unset_master_key trusted_proxy_ranges overwrite_user_with_key_hash "
     "add_user_information_to_llm_headers missing_session_id"),
    SettingRule("not supported", "set what it holds in the environment: `os.environ/NAME`",
     "use_*_kms use_azure_key_vault key_management_* secret_manager_client"),
    SettingRule("not supported", "it stands with each entry of `model_list`, or with `credential_list`",
     "api_base api_version organization project vertex_project vertex_location litellm_settings.*_key *_api_base "
     "*_tenant_id config_path enable_azure_ad_token_refresh common_cloud_provider_auth_params "
     "enable_model_config_credential_overrides"),
    SettingRule("not supported", "the operator's key is the only one that goes there",
     "allow_client_side_credentials configurable_clientside_auth_params provider_url_destination_allowed_hosts"),
    # -- storage, ledger, telemetry
    SettingRule("replaced", "`telemetry` (OpenTelemetry), `GET /metrics`, the ledger, `gateway audit` and the log",
     "*success_callback *failure_callback callbacks input_callback service_callback* audit_log_callbacks "
     "callback_settings langfuse* langsmith* argilla* datadog* newrelic_params pointfive_params zerobus_params "
     "aws_sqs_callback_params generic_logger_headers generic_api_use_v1 dynamodb_table_name s3_*callback_params "
     "gcs_pub_sub* prometheus* custom_prometheus* turn_off_message_logging redact_user_api_key_info "
     "*_end_user_cost_tracking* otel* tracing arize* sentry* logging cold_storage_custom_logger "
     "logged_real_time_event_types require_auth_for_metrics_endpoint extra_spend_tag_headers "
     "standard_logging_payload_excluded_fields log_raw_request_response request_correlation_in_logs "
     "disable_streaming_logging allow_dynamic_callback_disabling global_disable_no_log_param "
     "disable_add_user_agent_to_request_tags forward_traceparent_to_llm_provider error_logs"),
    SettingRule("replaced", "`usage.cost` stands in every answer, `usage` in streams where the client asks",
     "include_cost_in_streaming_usage always_include_stream_usage return_response_headers "
     "strip_anthropic_total_tokens include_call_id_in_error_body expose_*"),
    SettingRule("replaced", "the trail of what administrators did, always on", "store_audit_logs"),
    SettingRule("replaced", "a ledger without content, always on; conversations are kept as `conversation.store` says",
     "disable_spend_logs disable_spend_updates store_prompts_in_spend_logs disable_error_logs "
     "proxy_batch_write_at proxy_batch_polling_interval spend_logs_metadata_fields use_spend_logs_partitioning "
     "spend_capture_rate_check track_unmanaged_batch_cost scheduled_job_stagger"),
    SettingRule("replaced", "`conversation.retention_days`, for conversations; the ledger stays",
     "maximum_spend_logs_* maximum_*_retention_*"),
    SettingRule("replaced", "`storage.url` or `GATEWAY_STORAGE_URL`: LiteLLM's database is neither read nor changed",
     "database_* store_model_in_db supported_db_objects disable_prisma_schema_update "
     "use_redis_transaction_buffer proxy_config_reload_interval_seconds disable_model_info_refresh"),
    SettingRule("not supported",
     "a key made at runtime is not accepted while the storage cannot be asked; those of the configuration are",
     "allow_requests_on_db_unavailable"),
    SettingRule("replaced", "`cache.url`, where the gateway is to have Redis",
     "redis_* cache_kwargs coordination_redis force_redis_hash_tag_grouping"),
    SettingRule("replaced", "`server.log_level`", "set_verbose debug_level suppress_debug_info detailed_debug"),
    SettingRule("replaced", "`server.log_format`", "json_logs"),
    SettingRule("replaced", "`server.max_body_bytes`", "max_request_size_mb"),
    SettingRule("replaced", "always on: a stream that is left ends its call", "cancel_on_disconnect"),
    SettingRule("replaced", "`server.keepalive`: a stream gives signs of life while its model says nothing",
     "keepalive_seconds allow_client_keepalive_override *sse_*ping_interval_seconds"),
    SettingRule("replaced", "always on: `model_list` and its patterns are all that is served",
     "infer_model_from_keys check_provider_endpoint"),
    SettingRule("replaced", "always on: another tenant's response behaves as one that does not exist",
     "disable_responses_id_security allow_unmanaged_response_ids"),
    SettingRule("replaced", "breakpoints are set by the gateway at the frozen boundary",
     "cache_control_injection_points *_prompt_caching* openai_system_messages_first "
     "disable_anthropic_gemini_context_caching_transform"),
    SettingRule("replaced", "`upstream.forward_store` and what the client sends", "forward_openai_org_id"),
    SettingRule("replaced", "`server.relay` names further paths", "allowed_routes public_routes admin_only_routes"),
    # -- what the gateway does not do
    SettingRule("not supported", "watch `GET /metrics` and the log",
     "alerting* alert_* email* spend_report_frequency default_key_max_budget_alert_emails"),
    SettingRule("not supported", "answers are never kept for other requests; providers' prompt caches keep working",
     "cache cache_params cache_responses caching caching_* enable_caching_on_provider_specific_optional_params "
     "default_in_memory_ttl default_redis_* caching_groups preset_cache_key responses"),
    SettingRule("not supported",
     f"guards of installed packages look into requests and answers, and rules can mask secrets; {BEHIND}",
     "guardrails guardrail_list policies policy_attachments enable_content_filter llm_guard_mode llamaguard_* "
     "pillar* presidio* openai_moderations_model_name google_moderation_confidence_threshold "
     "banned_keywords_list blocked_user_list pre_call_rules post_call_rules guardrail_name_config_map "
     "skip_*_message_in_guardrail output_parse_pii azure_content_safety_params prompt_injection_params "
     "compression_interception_params"),
    SettingRule("not supported", "clients bring their tools",
     "mcp_* require_*_mcp_access_defined enable_mcp_registry search_tools search_tool_* vector_store_* "
     "web_search_* websearch_* code_interpreter_* tools_settings milvus_* valkey_* skill_search_* "
     "require_managed_files"),
    SettingRule("not supported", "clients bring their prompts",
     "prompts prompt_* global_prompt_directory global_bitbucket_config global_gitlab_config custom_prompt_dict "
     "initial_prompt_value roles final_prompt_value bos_token eos_token bitbucket_config dotprompt_config "
     "gitlab_config hf_model_name disable_add_prefix_to_prompt add_function_to_prompt"),
    SettingRule("not supported", "`server.relay` relays paths to the default upstream; no others are reached",
     "pass_through_endpoints passthrough_* use_in_pass_through use_client_credentials_pass_through_routes "
     "disable_bedrock_agent_runtime_passthrough enable_openai_websocket_passthrough"),
    SettingRule("not supported",
     "files, batches and the like go to the default upstream, with the client's own key or `server.relay`",
     "files_settings finetune_settings assistant_settings assistants_config batch_settings max_batch_* "
     "max_file_* *_file_extensions *_batch_input_file_* disable_vertex_batch_output_transformation "
     "enable_loadbalancing_on_batch_endpoints transcribe_media_buckets *bucket_name s3_* litellm_files* "
     "max_response_size_mb"),
    SettingRule("not supported", "clients name the model",
     "completion_model embedding_model image_generation_model moderation_model default_model"),
    SettingRule("not supported", "the gateway chooses what is sent, and how",
     "forward_client_headers_to_llm_api model_group_settings forward_llm_provider_auth_headers "
     "fireworks_forward_user_id use_chat_completions_* route_all_chat_openai_to_responses enable_gemini_* "
     "gemini_* bedrock_* reasoning_auto_summary vertex_ai_safety_* disable_copilot_* disable_add_transform_* "
     "disable_stop_sequence_limit filter_invalid_headers headers anthropic_beta_headers_url custom_provider_map "
     "max_tokens"),
    SettingRule("not supported", "tokens are counted by the gateway",
     "disable_token_counter disable_hf_tokenizer_download"),
    SettingRule("not supported", "an answer's schema is the provider's to keep",
     "enable_json_schema_validation enable_preview_features"),
    SettingRule("not supported", "connections use the system's certificates and addresses",
     "ssl_* force_ipv4 aiohttp_trust_env disable_aiohttp_trust_env http2"),
    SettingRule("not supported", "a URL in a request is never fetched by the gateway", "user_url_*"),
    SettingRule("not supported", "the gateway has no such part",
     "agent_list agents a2a* worker_config worker_registry telemetry litellm_session_id litellm_trace_id no-log "
     "plugins router_general_settings *_claude_code_* claude_code_* *drain_endpoint* safe_memory_mode "
     "agent_search_* force_timeout use_client litellm_mode "
     "fallback_*_check output_vector_size"),
)  # fmt: skip


LITELLM_SECTIONS = frozenset(
    {
        *("litellm_settings", "router_settings", "general_settings", "environment_variables", "include"),
        *("credential_list", "callback_settings", "guardrails", "policies", "policy_attachments", "prompts"),
        *("mcp_servers", "mcp_tools", "mcp_aliases", "mcp_semantic_tool_filter", "vector_store_registry"),
        *("search_tools", "files_settings", "finetune_settings", "assistant_settings", "batch_settings"),
        *("agent_list", "agents", "worker_config", "model_group_settings", "litellm_jwtauth", "default_team_settings"),
        *("pass_through_endpoints", "cache_params", "team_settings", "alerting", "custom_prompt_dict"),
    }
)
"""Top-level names that mark a file as LiteLLM's. Beside one of these, unknown names are taken for LiteLLM's, too."""
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
        *("openai_identity_provider_id", "openai_identity_token_file", "openai_service_account_id"),
        *("output_vector_size", "valkey_embedding_field", "allowed_fails", "allowed_fails_policy"),
    }
)
"""`litellm_params` that LiteLLM's router and proxy use themselves; they are not sent with requests."""
ON_HERE = frozenset(
    {
        *("ssl_verify", "enable_pre_call_checks", "enable_pre_call_check", "store_prompts_in_spend_logs", "json_logs"),
        "include_cost_in_streaming_usage",
    }
)
"""Settings that are, or may be, on here even if a file turns them off."""
SILENT = frozenset({"model_info", "extra_body", "litellm_credential_name"})
"""Router parameters that mean the same here."""


UNKNOWN_SETTING = SettingRule("not supported", "unknown here, and ignored", "")


def rule_of(path: str) -> SettingRule:
    """Returns the first rule for the setting at `path`, by name, or by section and name; a name may have dots."""
    named = path.removeprefix("model_list[].")
    name = named.partition(".")[2] or named
    for rule in SETTING_RULES:
        if any(fnmatchcase(named if "." in pattern else name, pattern) for pattern in rule.names.split()):
            return rule
    return UNKNOWN_SETTING


def fate_of(path: str) -> SettingFate:
    """Returns what becomes of the setting at `path`."""
    rule = rule_of(path)
    return SettingFate(path, rule.group, rule.advice)
