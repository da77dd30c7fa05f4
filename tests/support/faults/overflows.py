"""How providers say that a prompt is too long: status, body, and the tokens counted and allowed where they say so."""

from typing import Any

OVERFLOWS: dict[str, tuple[int, Any, tuple[int | None, int | None]]] = {
    "OpenAI": (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages "
               "resulted in 9000 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}},
               (9000, 8192)),
    "Anthropic": (400, {"type": "error", "error": {"type": "invalid_request_error",
                  "message": "prompt is too long: 213400 tokens > 200000 maximum"}}, (213400, 200000)),
    "Gemini": (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT",
               "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}},
               (1200000, 1048576)),
    "llama.cpp": (400, {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9000,
                  "n_ctx": 8192, "message": "the request exceeds the available context size"}}, (9000, 8192)),
    "Groq": (413, {"error": {"message": "Please reduce the length of the messages or completion.",
             "type": "invalid_request_error", "code": "context_length_exceeded"}}, (None, None)),
    "Mistral": (400, {"object": "error", "message": "Prompt contains 40000 tokens, too large for model "
                "with 32768 maximum context length"}, (40000, 32768)),
    "vLLM, numbers with commas": (400, {"error": {"message": "maximum context length is 4,096 tokens, "
                                  "requested 5,000"}}, (5000, 4096)),
    "plain text": (400, "context window exceeded", (None, None)),
    "OpenAI, newer": (400, {"error": {"message": "Your input exceeds the context window of this model. Please adjust "
                      "your input and try again.", "type": "invalid_request_error", "code": None}}, (None, None)),
    "OpenAI, one long text": (400, {"error": {"message": "Invalid 'messages[1].content': string too long. Expected a "
                              "string with maximum length 1048576, but got a string with length 1540820 instead.",
                              "param": "messages[1].content", "code": "string_above_max_length"}}, (1540820, 1048576)),
    "Azure": (400, {"error": {"message": "Input tokens exceed the configured limit of 272000 tokens. Your messages "
              "resulted in 289650 tokens. Please reduce the length of the messages.", "code": None}}, (289650, 272000)),
    "DeepSeek": (400, {"error": {"message": "This model's maximum context length is 65536 tokens. However, you "
                 "requested 70000 tokens (62000 in the messages, 8000 in the completion).",
                 "type": "invalid_request_error", "code": "invalid_request_error"}}, (70000, 65536)),
    "Anthropic, with the answer": (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "input "
                                   "length and `max_tokens` exceed context limit: 188059 + 20000 > 200000"}},
                                   (208059, 200000)),
    "Gemini's list": (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count "
                      "exceeds the maximum number of tokens allowed 1048576."}}], (None, None)),
    "vLLM, flat": (400, {"object": "error", "type": "BadRequestError", "param": None, "code": 400,
                   "message": "The decoder prompt (length 9254) is longer than the maximum model length of 4096."},
                   (9254, 4096)),
    "SGLang": (400, {"error": {"message": "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens)."
               }}, (9000, 8192)),
    "TGI": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 "
            "`inputs` tokens and 512 `max_new_tokens`", "error_type": "validation"}, (4512, 4096)),
    "TGI, prompt alone": (422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: "
                          "1600", "error_type": "validation"}, (1600, 1024)),
    "Ollama": (400, {"error": '{"error":{"code":400,"message":"request (351 tokens) exceeds the available context size '
               '(256 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":351,"n_ctx":256}}'
               }, (351, 256)),
    "Ollama, in a message": (400, {"error": {"type": "invalid_request_error", "message": "prompt too long; exceeded "
                             "max context length by 120 tokens"}}, (None, None)),
    "LM Studio": (400, {"error": "Trying to keep the first 13058 tokens when context the overflows. However, the model "
                  "is loaded with context length of only 4096 tokens"}, (13058, 4096)),
    "xAI": (400, {"code": "invalid-argument", "error": "This model's maximum prompt length is 131072 but the request "
            "contains 537812 tokens."}, (537812, 131072)),
    "Cerebras": (400, {"message": "Please reduce the length of the messages or completion. Current length "
                 "is 8800 while limit is 8192", "code": "context_length_exceeded"}, (8800, 8192)),
    "Together": (422, {"error": {"message": "The input (180000 tokens) is longer than the model's context length "
                 "(131072 tokens)."}}, (180000, 131072)),
    "Fireworks": (400, {"error": {"object": "error", "type": "invalid_request_error", "message": "The prompt is too "
                  "long: 142000, model maximum context length: 131071"}}, (142000, 131071)),
    "Bedrock": (400, {"message": "Input is too long for requested model."}, (None, None)),
    "Bedrock's Titan": (400, {"message": "Too many input tokens. Max input tokens: 8192, request input token count: "
                        "9000 "}, (9000, 8192)),
    "Cohere": (400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received "
               "4292. Try using a shorter prompt"}, (4292, 4081)),
    "Kimi": (400, {"error": {"message": "Invalid request: Your request exceeded model token limit: 262144 (requested: "
             "291351)", "type": "invalid_request_error"}}, (291351, 262144)),
    "MiniMax": (400, {"error": {"message": "invalid params, context window exceeds limit (2013)"}}, (None, None)),
    "DashScope": (400, {"error": {"code": "invalid_parameter_error", "message": "<400> InternalError.Algo."
                  "InvalidParameter: Range of input length should be [1, 30720]"}}, (None, None)),
    "GitHub Copilot": (400, {"error": {"message": "prompt token count of 130000 exceeds the limit of 128000",
                       "code": "model_max_prompt_tokens_exceeded"}}, (130000, 128000)),
    "GitHub Models": (413, {"error": {"code": "tokens_limit_reached", "message": "Request body too large for gpt-4o "
                      "model. Max size: 8000 tokens.", "details": "Request body too large."}}, (None, None)),
    "OpenRouter": (400, {"error": {"message": "This endpoint's maximum context length is 32768 tokens. However, you "
                   "requested about 41000 tokens (40000 of text input, 1000 in the output).", "code": 400}},
                   (41000, 32768)),
}  # fmt: skip
