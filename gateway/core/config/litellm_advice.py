"""What becomes of each of LiteLLM's settings, in one line: the rows of the table in docs/litellm.md (guarantee §12.14).

A name may be a pattern. One that means another thing in an entry of `model_list` stands there as `litellm_params.…`,
in front of the rows that have its name alone.

What LiteLLM's settings say of our sections, before it is put beneath what the file itself says in them.

LiteLLM's names, and what becomes of each: kept, replaced by something else, or not supported (guarantee §9).

A name that is not here is not supported either: LiteLLM's next release must not keep a file from being read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Literal

from gateway.core.config.config_file import REFERENCE, ConfigurationError

MAX_LIMIT = 10**12
"""Beyond which a number is none that anybody means."""
NO_NUMBER = "is no number that could be taken over"


class UnreadableValue(ValueError):
    """A value of a setting that has none of the forms it may have. The message never repeats it."""


@dataclass(slots=True)
class LitellmDraft:
    """Sections of ours, and what they differ in from what was said.

    `spent` holds LiteLLM's settings of budgets by name, until all of them were read. `models` are the entries of
    `model_list`.
    """

    models: list[dict[str, Any]]
    routing: dict[str, Any] = field(default_factory=dict)
    upstream: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    spent: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of models that clients ask for, each once."""
        return list(dict.fromkeys(str(each.get("model_name")) for each in self.models))

    def differs(self, path: str, text: str) -> None:
        """Notes what a setting does not mean here."""
        self.warnings.append(f"{path}: {text}")

    def put_in(self, raw: dict[str, Any], origin: str) -> None:
        """Puts the sections beneath those of the file: what it says in ours counts.

        Raises:
            ConfigurationError: a section of the file is no mapping.
        """
        for name, values in (("routing", self.routing), ("limits", self.limits), ("upstream", self.upstream)):
            own = raw.get(name) or {}
            if not isinstance(own, Mapping):
                raise ConfigurationError(f"{origin}: {name}: must be a mapping")
            if values:
                raw[name] = _beneath(dict(own), values, name, self.warnings)


def _beneath(own: dict[str, Any], values: Mapping[str, Any], path: str, warnings: list[str]) -> dict[str, Any]:
    merged = dict(own)
    for name, value in values.items():
        if name not in own:
            merged[name] = value
        elif isinstance(own[name], dict) and isinstance(value, dict):
            merged[name] = _beneath(own[name], value, f"{path}.{name}", warnings)
        elif own[name] != value:
            warnings.append(f"{path}.{name} is set in this file: it counts, not what LiteLLM's sections say of it")
    return merged


def whole(value: Any, least: int = 0) -> Any:
    """A whole number, or a reference to one that is not resolved yet.

    Raises:
        Unreadable: it is none, or less than `least`.
    """
    found = number(value)
    if is_reference(found):
        return found
    if found != int(found) or found < least:
        raise UnreadableValue(NO_NUMBER)
    return int(found)


def number(value: Any) -> Any:
    """A number of 0 or more, or a reference to one that is not resolved yet.

    Raises:
        Unreadable: it is none.
    """
    if is_reference(value):
        return value
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        raise UnreadableValue(NO_NUMBER) from None
    if isinstance(value, bool) or not found.is_finite() or not 0 <= found < MAX_LIMIT:
        raise UnreadableValue(NO_NUMBER)
    return int(found) if found == found.to_integral_value() else float(found)


def is_reference(value: Any) -> bool:
    """Whether a value stands in the environment or in a file, and was not looked up."""
    return isinstance(value, str) and value.startswith((REFERENCE, "file:///"))


def looked_up(value: Any) -> Any:
    """A value that has to be known to be taken over.

    Raises:
        Unreadable: it stands in the environment.
    """
    if is_reference(value):
        raise UnreadableValue("stands in the environment: set what it stands for here by hand")
    return value


def mapping(value: Any) -> dict[str, Any]:
    """
    Raises:
        Unreadable: it is no mapping.
    """
    if not isinstance(looked_up(value), dict):
        raise UnreadableValue("is no mapping")
    return {str(name): each for name, each in value.items()}


def unused(draft: LitellmDraft, path: str, names: Iterable[str]) -> None:
    """Notes the parts of a setting that nothing here stands for."""
    if found := ", ".join(names):
        draft.differs(path, f"{found} of it: nothing here stands for that")


Group = Literal["kept", "replaced", "not supported"]

BEHIND = "run the LiteLLM proxy behind the gateway for it: `model: litellm_proxy/NAME` with its `api_base`"
ADVICE: tuple[tuple[Group, str, str], ...] = (
    # group, what stands for it here, names
    # -- entries of model_list
    ("kept", "the entry's share, its place, and how much it is asked, among the entries of one name",
     "litellm_params.weight litellm_params.order litellm_params.rpm litellm_params.tpm "
     "litellm_params.max_parallel_requests"),
    ("replaced",
     "`limits.models`, where the name has one entry: what is beyond it is a 429, not another deployment",
     "litellm_params.max_budget litellm_params.budget_duration"),
    ("not supported", "`routing.retries` and what else stands in `routing` hold for all models",
     "litellm_params.num_retries litellm_params.max_retries litellm_params.retry_policy "
     "litellm_params.cooldown_time litellm_params.allowed_fails*"),
    ("not supported",
     "`routing.fallbacks` and `routing.context_window_fallbacks`, by the names that clients ask for",
     "litellm_params.fallbacks litellm_params.context_window_fallback_dict longer_context_model_fallback_dict "
     "disable_fallbacks"),
    ("kept", "seconds until the answer begins, and between two chunks",
     "litellm_params.timeout litellm_params.stream_timeout"),
    ("not supported", "`limits.keys` limits each key for all models together", "default_api_key_*_limit"),
    ("kept", "prices, the provider's address, version and credentials, and what is known of the model",
     "litellm_params.*_cost* litellm_params.*_multiplier* litellm_params.custom_llm_provider "
     "litellm_params.organization litellm_params.api_base litellm_params.api_key litellm_params.base_url "
     "litellm_params.api_version litellm_params.aws_* litellm_params.vertex_* litellm_params.watsonx_* "
     "litellm_params.azure_* litellm_params.client_secret litellm_params.client_id litellm_params.tenant_id "
     "litellm_params.extra_headers litellm_params.extra_body litellm_params.model litellm_params.model_info "
     "litellm_params.litellm_credential_name litellm_params.allowed_openai_params litellm_params.tiered_pricing "
     "litellm_params.cost_per_second litellm_params.anthropic_*"),
    ("not supported", "`api_key` of each entry, or `credential_list`",
     "litellm_params.openai_* use_xai_oauth proxy_auth token"),
    ("kept", "for models that are called through litellm, of each entry or of all",
     "drop_params additional_drop_params modify_params merge_reasoning_content_in_choices"),
    # -- several deployments, other models, another try
    ("kept", "`routing.fallbacks`; of `*` and of plain names `routing.default_fallbacks`", "fallbacks"),
    ("kept", "`routing.default_fallbacks`", "default_fallbacks"),
    ("kept", "`routing.context_window_fallbacks`, after everything was done to make the prompt fit",
     "context_window_fallbacks"),
    ("kept", "`routing.content_policy_fallbacks`", "content_policy_fallbacks"),
    ("kept", "`routing.max_fallbacks`", "max_fallbacks"),
    ("kept", "`routing.retries`, ten at most; unset, each other deployment is tried once",
     "num_retries max_retries"),
    ("replaced", "`routing.backoff`, which it sets; waits double, with jitter", "retry_after"),
    ("replaced", "`routing.retry_statuses` and the most of its counts as `routing.retries`, for all kinds alike",
     "retry_policy"),
    ("not supported", "`routing.retries` and `routing.retry_statuses` hold for all models",
     "model_group_retry_policy model_fallbacks num_retries_per_request retry "
     "disable_retry_on_max_parallel_request_limit_error"),
    ("kept", "`routing.allowed_fails`, one more: it counts the failure after which a deployment rests",
     "allowed_fails"),
    ("replaced", "the least of its counts as `routing.allowed_fails`, for all kinds alike",
     "allowed_fails_policy"),
    ("replaced", "`routing.cooldown`, which it sets; rests double up to `routing.cooldown_max`", "cooldown_time"),
    ("replaced", "a `routing.allowed_fails` that is never reached; a refused key still rests",
     "disable_cooldowns"),
    ("replaced",
     "`routing.strategy`: `simple-shuffle` is `weighted`, `least-busy` is `least_busy`, `latency-based-routing` "
     "is `latency`; the others become `weighted`. Conversations stay where their prompts are cached "
     "(`routing.sticky`)", "routing_strategy"),
    ("not supported", "quickness is a moving average of the time to the first byte", "routing_strategy_args"),
    ("replaced",
     "`routing.sticky`: `prompt_caching` is `auto`, an affinity is `always`; limits of entries are always kept",
     "optional_pre_call_checks"),
    ("not supported", "`routing.sticky` holds for all models",
     "model_group_affinity_config deployment_affinity_* provider_affinity_header"),
    ("not supported", "`routing.strategy` holds for all models, `weight` stands with each entry",
     "routing_groups weights"),
    ("kept", "further names of all entries of a model; `hidden` ones are listed, too",
     "model_group_alias model_alias_map"),
    ("kept", "added to each model", "default_litellm_params"),
    ("kept", "for `litellm_credential_name`", "credential_list"),
    ("kept", "for `os.environ/NAME` in this file, and for the gateway's own settings", "environment_variables"),
    ("kept", "lists are appended, other sections replaced", "include"),
    ("replaced", "always on: a failed deployment is followed by another, by weight", "enable_weighted_failover"),
    ("replaced", "always on: an entry that cannot be served says why, the others are",
     "ignore_invalid_deployments"),
    ("replaced", "always on: a key asks only the models that it names, as fallbacks, too",
     "enforce_fallback_model_access"),
    ("replaced",
     "always on: what does not fit is made to fit, goes to a larger model of `routing.context_window_fallbacks`, "
     "or is a 400", "enable_pre_call_checks enable_pre_call_check"),
    ("replaced", "`routing.probe`, `GET /health/live`, `GET /health/ready` and `gateway check`",
     "background_health_check* health_check_* enable_health_check_routing disable_background_health_check "
     "use_shared_health_check allow_public_health_readiness_details model_list_healthy_only"),
    ("not supported",
     f"clients name the model, and nothing is chosen by tags, regions or what a prompt says; {BEHIND}",
     "enable_tag_filtering tag_filtering_match_any tag_routing_prefix region_name tags tag_regex "
     "allowed_model_region auto_router* complexity_router* adaptive_router* quality_router* autorouter* "
     "decisions* maximum_autorouter_*"),
    ("not supported", "no request waits in a queue: what is too much is a 429",
     "default_priority polling_interval priority_reservation* max_queued_requests_per_worker "
     "admission_queue_timeout_seconds max_in_flight_requests_per_worker"),
    ("not supported", "connections are kept as long as they are good",
     "client_ttl use_aiohttp_transport disable_aiohttp_transport in_memory_llm_clients_cache"),
    ("not supported", "answers come from models", "mock_* use_litellm_proxy network_mock"),
    ("replaced", "`upstream.first_byte`, which it sets: seconds until an answer begins",
     "request_timeout timeout"),
    ("replaced", "`upstream.idle`, which it sets: seconds between two chunks", "stream_timeout"),
    ("not supported", "`upstream.first_byte` and `upstream.idle` hold for all tiers and paths",
     "*timeout_by_service_tier pass_through_request_timeout responses_websocket_*"),
    # -- budgets and limits
    ("kept", "a budget in `limits.all`", "max_budget budget_duration"),
    ("kept", "`concurrent` in `limits.all`", "global_max_parallel_requests"),
    ("kept", "`max_parallel_requests` of each entry that has none", "default_max_parallel_requests"),
    ("not supported", "`concurrent` in `limits.keys`, or `max_parallel_requests` of an entry",
     "max_parallel_requests"),
    ("kept",
     "budgets and limits in `limits.keys`: of each key that has none of its own, the master key among them",
     "default_key_generate_params"),
    ("replaced",
     "budgets and limits in `limits.keys`, where nothing nearer is set: of each key, not of each person with all "
     "keys",
     "default_internal_user_params max_internal_user_budget default_max_internal_user_budget "
     "internal_user_budget_duration upperbound_key_generate_params"),
    ("kept", "a budget in `limits.each_user` that never ends", "max_end_user_budget"),
    ("replaced", "a budget in `limits.models`, where that provider serves one name alone",
     "provider_budget_config"),
    ("replaced", "`limits.when_down: closed`", "fail_closed_*"),
    ("not supported",
     "`budgets` and `limits` of a key (`POST /v1/gateway/keys`), `limits.users`, `limits.projects`",
     "max_end_user_budget_id max_user_budget max_ui_session_budget default_soft_budget default_team_params "
     "default_team_settings team_settings tag_budget_config token_rate_limit_type validate_end_user_id_in_db "
     "apply_user_budget_to_team_keys *_rpm_limit *_tpm_limit itpm otpm"),
    ("not supported", "days, weeks and months are those of UTC, budgets begin anew with them",
     "budget_reset_time budget_rollover disable_reset_budget proxy_budget_rescheduler_* timezone"),
    ("not supported", "a budget is checked before a call and settled after it; beyond it is a 429",
     "disable_budget_reservation budget_exceeded_*"),
    ("not supported", "what has no known price is counted, and costs `null`; a budget cannot hold it",
     "block_requests_for_models_without_pricing"),
    ("not supported", "prices of an entry (`model_info`)",
     "cost_discount_config cost_margin_config model_cost model_cost_map_url apply_search_free_tier"),
    # -- keys
    ("kept", "a key of tenant `master` with the roles `user` and `admin`", "master_key"),
    ("replaced", "`POST /v1/gateway/keys`, for holders of a key of role `admin` alone",
     "key_generation_settings disable_key_generate_for_org_admin disable_custom_api_keys custom_key_* "
     "key_alias_pattern enable_key_alias_format_validation default_team_disabled "
     "disable_auto_add_proxy_admin_to_teams use_team_public_model_name"),
    ("replaced", "a key that was revoked is refused everywhere within five seconds",
     "user_api_key_cache_* enable_redis_auth_cache"),
    ("replaced", "`server.log_level` never shows a key",
     "disable_master_key_return disable_adding_master_key_hash_to_db log_auth_failure_key_identity "
     "redact_messages_in_exceptions log_client_error_tracebacks"),
    ("not supported", "say in `auth.jwt` whose tokens count and what their claims mean",
     "enable_jwt_auth litellm_jwtauth"),
    ("not supported", "name each key and its tenant in `auth.keys`, or make it at runtime",
     "custom_auth* custom_sso custom_ui_* custom_team_* virtual_key_* "
     "enable_oauth2_* oauth2_* enforce_user_param enforced_params allowed_ips allow_user_auth "
     "litellm_key_header_name service_account_settings role_permissions enforce_rbac use_x_forwarded_for "
     "user_header_* litellm_license reject_clientside_metadata_tags team_metadata_* scim_* sso_* *_sso* *_sso "
     "dangerously_permit_weak_or_unset_master_key trusted_proxy_ranges overwrite_user_with_key_hash "
     "add_user_information_to_llm_headers missing_session_id"),
    ("not supported", "the page `/ui` has viewers and admins, who log in with a key",
     "ui_* user_mcp_management_mode max_failed_login_* failed_login_* password_policy_* "
     "disable_password_login_when_sso_enabled disable_env_credential_login hide_default_credentials_hint "
     "enable_public_model_hub public_model_groups* public_agent_groups public_skills_index public_mcp_* "
     "control_plane_url blog_posts_url *_login_to_sso auto_redirect_*"),
    ("not supported", "set what it holds in the environment: `os.environ/NAME`",
     "use_*_kms use_azure_key_vault key_management_* secret_manager_client"),
    ("not supported", "it stands with each entry of `model_list`, or with `credential_list`",
     "api_base api_version organization project vertex_project vertex_location litellm_settings.*_key *_api_base "
     "*_tenant_id config_path enable_azure_ad_token_refresh common_cloud_provider_auth_params "
     "enable_model_config_credential_overrides"),
    ("not supported", "the operator's key is the only one that goes there",
     "allow_client_side_credentials configurable_clientside_auth_params provider_url_destination_allowed_hosts"),
    # -- storage, ledger, telemetry
    ("replaced", "`telemetry` (OpenTelemetry), `GET /metrics`, the ledger, `gateway audit` and the log",
     "*success_callback *failure_callback callbacks input_callback service_callback* audit_log_callbacks "
     "callback_settings langfuse* langsmith* argilla* datadog* newrelic_params pointfive_params zerobus_params "
     "aws_sqs_callback_params generic_logger_headers generic_api_use_v1 dynamodb_table_name s3_*callback_params "
     "gcs_pub_sub* prometheus* custom_prometheus* turn_off_message_logging redact_user_api_key_info "
     "*_end_user_cost_tracking* otel* tracing arize* sentry* logging cold_storage_custom_logger "
     "logged_real_time_event_types require_auth_for_metrics_endpoint extra_spend_tag_headers "
     "standard_logging_payload_excluded_fields log_raw_request_response request_correlation_in_logs "
     "disable_streaming_logging allow_dynamic_callback_disabling global_disable_no_log_param "
     "disable_add_user_agent_to_request_tags forward_traceparent_to_llm_provider error_logs"),
    ("replaced", "`usage.cost` stands in every answer, `usage` in streams where the client asks",
     "include_cost_in_streaming_usage always_include_stream_usage return_response_headers "
     "strip_anthropic_total_tokens include_call_id_in_error_body expose_*"),
    ("replaced", "the trail of what administrators did, always on", "store_audit_logs"),
    ("replaced", "a ledger without content, always on; conversations are kept as `conversation.store` says",
     "disable_spend_logs disable_spend_updates store_prompts_in_spend_logs disable_error_logs "
     "proxy_batch_write_at proxy_batch_polling_interval spend_logs_metadata_fields use_spend_logs_partitioning "
     "spend_capture_rate_check track_unmanaged_batch_cost scheduled_job_stagger"),
    ("replaced", "`conversation.retention_days`, for conversations; the ledger stays",
     "maximum_spend_logs_* maximum_*_retention_*"),
    ("replaced", "`storage.url` or `GATEWAY_STORAGE_URL`: LiteLLM's database is neither read nor changed",
     "database_* store_model_in_db supported_db_objects disable_prisma_schema_update "
     "use_redis_transaction_buffer proxy_config_reload_interval_seconds disable_model_info_refresh"),
    ("not supported",
     "a key made at runtime is not accepted while the storage cannot be asked; those of the configuration are",
     "allow_requests_on_db_unavailable"),
    ("replaced", "`cache.url`, where the gateway is to have Redis",
     "redis_* cache_kwargs coordination_redis force_redis_hash_tag_grouping"),
    ("replaced", "`server.log_level`", "set_verbose debug_level suppress_debug_info detailed_debug"),
    ("replaced", "`server.log_format`", "json_logs"),
    ("replaced", "`server.max_body_bytes`", "max_request_size_mb"),
    ("replaced", "always on: a stream that is left ends its call", "cancel_on_disconnect"),
    ("replaced", "`server.keepalive`: a stream gives signs of life while its model says nothing",
     "keepalive_seconds allow_client_keepalive_override *sse_*ping_interval_seconds"),
    ("replaced", "always on: `model_list` and its patterns are all that is served",
     "infer_model_from_keys check_provider_endpoint"),
    ("replaced", "always on: another tenant's response behaves as one that does not exist",
     "disable_responses_id_security allow_unmanaged_response_ids"),
    ("replaced", "breakpoints are set by the gateway at the frozen boundary",
     "cache_control_injection_points *_prompt_caching* openai_system_messages_first "
     "disable_anthropic_gemini_context_caching_transform"),
    ("replaced", "`upstream.forward_store` and what the client sends", "forward_openai_org_id"),
    ("replaced", "`server.relay` names further paths", "allowed_routes public_routes admin_only_routes"),
    # -- what the gateway does not do
    ("not supported", "watch `GET /metrics` and the log",
     "alerting* alert_* email* spend_report_frequency default_key_max_budget_alert_emails"),
    ("not supported", "answers are never kept for other requests; providers' prompt caches keep working",
     "cache cache_params cache_responses caching caching_* enable_caching_on_provider_specific_optional_params "
     "default_in_memory_ttl default_redis_* caching_groups preset_cache_key responses"),
    ("not supported",
     f"guards of installed packages look into requests and answers, and rules can mask secrets; {BEHIND}",
     "guardrails guardrail_list policies policy_attachments enable_content_filter llm_guard_mode llamaguard_* "
     "pillar* presidio* openai_moderations_model_name google_moderation_confidence_threshold "
     "banned_keywords_list blocked_user_list pre_call_rules post_call_rules guardrail_name_config_map "
     "skip_*_message_in_guardrail output_parse_pii azure_content_safety_params prompt_injection_params "
     "compression_interception_params"),
    ("not supported", "clients bring their tools",
     "mcp_* require_*_mcp_access_defined enable_mcp_registry search_tools search_tool_* vector_store_* "
     "web_search_* websearch_* code_interpreter_* tools_settings milvus_* valkey_* skill_search_* "
     "require_managed_files"),
    ("not supported", "clients bring their prompts",
     "prompts prompt_* global_prompt_directory global_bitbucket_config global_gitlab_config custom_prompt_dict "
     "initial_prompt_value roles final_prompt_value bos_token eos_token bitbucket_config dotprompt_config "
     "gitlab_config hf_model_name disable_add_prefix_to_prompt add_function_to_prompt"),
    ("not supported", "`server.relay` relays paths to the default upstream; no others are reached",
     "pass_through_endpoints passthrough_* use_in_pass_through use_client_credentials_pass_through_routes "
     "disable_bedrock_agent_runtime_passthrough enable_openai_websocket_passthrough"),
    ("not supported",
     "files, batches and the like go to the default upstream, with the client's own key or `server.relay`",
     "files_settings finetune_settings assistant_settings assistants_config batch_settings max_batch_* "
     "max_file_* *_file_extensions *_batch_input_file_* disable_vertex_batch_output_transformation "
     "enable_loadbalancing_on_batch_endpoints transcribe_media_buckets *bucket_name s3_* litellm_files* "
     "max_response_size_mb"),
    ("not supported", "clients name the model",
     "completion_model embedding_model image_generation_model moderation_model default_model"),
    ("not supported", "the gateway chooses what is sent, and how",
     "forward_client_headers_to_llm_api model_group_settings forward_llm_provider_auth_headers "
     "fireworks_forward_user_id use_chat_completions_* route_all_chat_openai_to_responses enable_gemini_* "
     "gemini_* bedrock_* reasoning_auto_summary vertex_ai_safety_* disable_copilot_* disable_add_transform_* "
     "disable_stop_sequence_limit filter_invalid_headers headers anthropic_beta_headers_url custom_provider_map "
     "max_tokens"),
    ("not supported", "tokens are counted by the gateway", "disable_token_counter disable_hf_tokenizer_download"),
    ("not supported", "an answer's schema is the provider's to keep",
     "enable_json_schema_validation enable_preview_features"),
    ("not supported", "connections use the system's certificates and addresses",
     "ssl_* force_ipv4 aiohttp_trust_env disable_aiohttp_trust_env http2"),
    ("not supported", "a URL in a request is never fetched by the gateway", "user_url_*"),
    ("not supported", "the gateway has no such part",
     "agent_list agents a2a* worker_config worker_registry telemetry litellm_session_id litellm_trace_id no-log "
     "plugins router_general_settings *_claude_code_* claude_code_* *drain_endpoint* safe_memory_mode "
     "agent_search_* force_timeout use_client litellm_mode allow_cli_sso_verification_uri_complete "
     "fallback_*_check output_vector_size"),
)  # fmt: skip


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
