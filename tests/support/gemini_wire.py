"""Gemini's generateContent as it goes over the wire: answers, events and errors."""

import json
from typing import Any

Json = dict[str, Any]


def text(words: str, **more: Any) -> Json:
    return {"text": words, **more}


def thought(words: str) -> Json:
    return {"text": words, "thought": True}


def call(name: str, signature: str | None = None, **arguments: Any) -> Json:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": name, "args": arguments}, **signed}


def usage(prompt: int = 10, completion: int = 5, *, thoughts: int = 0, cached: int = 0) -> Json:
    found = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": completion,
        "totalTokenCount": prompt + completion + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }
    if thoughts:
        found["thoughtsTokenCount"] = thoughts
    if cached:
        found |= {"cachedContentTokenCount": cached, "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": cached}]}
    return found


def answer(*parts: Json, spent: Json | None = None, finish: str | None = "STOP") -> Json:
    """A whole answer, or one event of a stream (`finish=None`, `spent={}`)."""
    candidate: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    found = {"candidates": [candidate], "modelVersion": "gemini-2.5-pro", "responseId": "mAitaLmkHPPlz7IPvtfUqQ4"}
    spent = usage() if spent is None else spent
    return {**found, "usageMetadata": spent} if spent else found


def events(whole: Json) -> list[bytes]:
    """The same answer as a stream, one part an event, the last with why it ended and the usage."""
    parts = whole["candidates"][0]["content"]["parts"]
    told = [answer(part, finish=None, spent={}) for part in parts]
    last = answer(text(""), spent=whole["usageMetadata"], finish=whole["candidates"][0]["finishReason"])
    return [event(one) for one in (*told, last)]


def event(data: Json) -> bytes:
    return f"data: {json.dumps(data)}\r\n\r\n".encode()


def error(code: int, status: str, words: str, reason: str | None = None) -> Json:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}] if reason else []
    return {"error": {"code": code, "message": words, "status": status, "details": details}}
