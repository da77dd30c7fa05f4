"""The mock upstream's `POST /v1/embeddings`: deterministic, and near for texts that share words."""

import base64
import hashlib
import math
import re
import struct
from typing import Any

from tests.support.reply import JsonDict, count_words

_DIMENSIONS = 64


def embeddings(body: JsonDict) -> JsonDict:
    """The answer to an embeddings request: hashed bags of words, as floats or (the SDK's default) base64."""
    inputs = body.get("input")
    if not isinstance(inputs, list) or (inputs and isinstance(inputs[0], int)):
        inputs = [inputs]
    data: list[JsonDict] = []
    for index, text in enumerate(inputs):
        vector = _bag_of_words(str(text), body.get("dimensions") or _DIMENSIONS)
        packed: Any = vector
        if body.get("encoding_format") == "base64":
            packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": packed})
    tokens = sum(count_words(str(text)) for text in inputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.get("model"), "usage": usage}


def _bag_of_words(text: str, dimensions: int) -> list[float]:
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()):
        vector[int(hashlib.sha256(word.encode()).hexdigest()[:8], 16) % dimensions] += 1.0
    norm = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / norm for value in vector]
