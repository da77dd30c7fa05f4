"""What a provider's error body says: its message, its status, and whether the window is exceeded (guarantee §7)."""

import re
from contextlib import suppress
from typing import Any

from gateway.core import jsons

OVERFLOW_STATUS = (400, 413, 422, 500)
OVERFLOW_CODES = {
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",  # llama.cpp
    "model_max_prompt_tokens_exceeded",  # GitHub Copilot
    "tokens_limit_reached",  # GitHub Models
}
OVERFLOW_WORDS = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|maximum (prompt|model) length|"  # OpenAI, vLLM, xAI
    r"(prompt|input|context) (is |was )?too long|context the overflows|"  # Anthropic, Bedrock, Ollama, LM Studio
    r"too many (input )?tokens|model token limit|input tokens exceed|"  # Cohere, Bedrock, Kimi, Azure
    r"(input )?token count.*exceeds|input length.*exceeds|exceeds the maximum number of tokens|"  # Gemini, SGLang
    r"reduce the length of the (messages|prompt|input)|range of input length|"  # Groq, Cerebras, DashScope
    r"`inputs` (tokens \+|must have less than)|messages?\[\d+\]\.content.*string too long",  # TGI, OpenAI
    re.IGNORECASE | re.DOTALL,
)
LIMIT_OF_RATE = re.compile(r"rate.?limit|per[ -]?(minute|min|hour|day)\b|\b(tpm|tpd)\b|quota", re.IGNORECASE)
"""Such a message may name tokens, and yet another prompt is no remedy (Groq sends it with 413)."""
LIMIT_OF_ANSWER = re.compile(r"(completion|output) tokens", re.IGNORECASE)
PROMPT_WORDS = re.compile(r"prompt|input|messages", re.IGNORECASE)
STATUS = re.compile(r"[45]\d\d")
NUMBER = re.compile(r"(?<!<)\b\d[\d,]{2,}")
ONE_LIMIT = re.compile(
    r"(?:context (?:length|window|size)|maximum|max size|limit|<=)"
    r"(?: (?:is|of|only|allowed|number|length|model|prompt|tokens|at|to))*[ :=]+(\d[\d,]{2,})"
    r"|input length should be \[\d, ?(\d+)\]",  # DashScope
    re.IGNORECASE,
)
"""Where an error names nothing but the limit."""
LIMIT = re.compile(r"(?:context length (?:is|of)|limit of|<=|>)\s*(\d[\d,]*)")


def error_object(original: Any) -> dict[str, Any]:
    """The object that holds code and message, wherever this provider puts it: under `error`, at the top (Mistral,
    Cerebras), in a list of one (Gemini), or as JSON in a text (Ollama)."""
    if isinstance(original, list) and len(original) == 1:
        return error_object(original[0])
    if not isinstance(original, dict):
        return {"message": jsons.dumps_text(original)[:4000]}
    error = original.get("error", original)
    found: dict[str, Any] = error if isinstance(error, dict) else {**original, "message": error}
    inner = found.get("message")
    if isinstance(inner, str) and inner.startswith("{"):
        with suppress(jsons.JSONDecodeError):
            return {**found, **error_object(jsons.loads(inner))}
    return found


def message_of(original: Any) -> str | None:
    """What the provider says; None if it says nothing that can be shown."""
    if not isinstance(original, dict | list) or not original:
        return None
    error = error_object(original)
    return next((t for t in (error.get("message"), error.get("detail")) if isinstance(t, str) and t), None)


def status_of(original: Any) -> int | None:
    """The status that an error names in its body, whatever the status of the answer."""
    error = error_object(original)
    for code in (error.get("code"), error.get("status"), error.get("status_code")):
        number = int(code) if isinstance(code, str) and STATUS.fullmatch(code) else code
        if isinstance(number, int) and 400 <= number < 600:
            return number
    return None


def is_overflow(status: int, original: Any) -> bool:
    """Whether an error says that the prompt exceeds the model's window, rather than a limit of tokens a minute."""
    if status not in OVERFLOW_STATUS:
        return False
    error = error_object(original)
    names = {str(error.get("code")), str(error.get("type"))}
    if names & OVERFLOW_CODES:
        return True
    text = error.get("message")
    text = text if isinstance(text, str) else jsons.dumps_text(error)[:4000]
    if LIMIT_OF_RATE.search(" ".join((text, *names))):
        return False
    if LIMIT_OF_ANSWER.search(text) and not PROMPT_WORDS.search(text):
        return False
    return bool(OVERFLOW_WORDS.search(text))


def reported_tokens(original: Any) -> tuple[int | None, int | None]:
    """How many tokens the provider counted and how many it allows, where its error says so."""
    error = error_object(original)
    if isinstance(error.get("n_prompt_tokens"), int) and isinstance(error.get("n_ctx"), int):  # llama.cpp
        return error["n_prompt_tokens"], error["n_ctx"]
    text = str(error.get("message") or "")
    counts = sorted({int(n.replace(",", "")) for n in NUMBER.findall(text)})
    if len(counts) == 2:
        return counts[1], counts[0]
    named = LIMIT.search(text)
    if len(counts) < 3 or named is None:
        return None, None
    limit = int(named.group(1).replace(",", ""))  # prompt and answer are told apart: their sum is the largest, or none
    total = counts[-1] if counts[-1] > limit else sum(count for count in counts if count != limit)
    return (total, limit) if total > limit else (None, None)


def limit_alone(original: Any) -> int | None:
    """How many tokens the provider allows, where its error says that and no more."""
    text = message_of(original) or ""
    named = ONE_LIMIT.search(text)
    return int((named.group(1) or named.group(2)).replace(",", "")) if named else None
