"""Models as servers list them."""

from typing import Any

VLLM: dict[str, Any] = {
    "id": "Qwen/Qwen3-8B", "object": "model", "created": 1700000000, "owned_by": "vllm", "root": "Qwen/Qwen3-8B",
    "parent": None, "max_model_len": 40960, "permission": [{"id": "modelperm-1", "object": "model_permission"}],
}  # fmt: skip


LLAMA_CPP: dict[str, Any] = {
    "id": "smollm2", "aliases": ["smollm2"], "tags": [], "object": "model", "created": 1795400390,
    "owned_by": "llamacpp",
    "meta": {"vocab_type": 2, "n_vocab": 49152, "n_ctx": 4096, "n_ctx_train": 8192, "n_embd": 576,
             "n_params": 134515008, "size": 96576768, "ftype": "Q4_1"},
}  # fmt: skip


OPENROUTER: dict[str, Any] = {
    "id": "openai/gpt-4o", "canonical_slug": "openai/gpt-4o", "name": "OpenAI: GPT-4o", "created": 1715558400,
    "context_length": 128000, "architecture": {"modality": "text+image->text", "tokenizer": "GPT"},
    "pricing": {"prompt": "0.0000025", "completion": "0.00001", "request": "0", "image": "0.003613",
                "web_search": "0", "internal_reasoning": "0", "input_cache_read": "0.00000125"},
    "top_provider": {"context_length": 64000, "max_completion_tokens": 16384, "is_moderated": True},
}  # fmt: skip


LM_STUDIO: dict[str, Any] = {
    "id": "meta-llama-3.1-8b-instruct", "object": "model", "type": "llm", "publisher": "lmstudio-community",
    "arch": "llama", "compatibility_type": "gguf", "quantization": "Q4_K_M", "state": "loaded",
    "max_context_length": 131072, "loaded_context_length": 4096,
}  # fmt: skip


OLLAMA: dict[str, Any] = {"id": "llama3.2:latest", "object": "model", "created": 1730000000, "owned_by": "library"}
