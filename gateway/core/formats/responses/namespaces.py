"""Names of tools in a namespace, as Codex has them of its agents and of MCP servers: a chat has them in one piece."""

from hashlib import sha256
from typing import Any

Json = dict[str, Any]
NAMESPACE = "namespace"
"""The type of such a group of tools, and the field of a call that names it."""
BETWEEN = "__"
MAX_NAME = 64
"""Characters that a function's name may have in a chat."""
DIGEST = 8


def joined(namespace: str, name: str) -> str:
    """The name in one piece. One that is too long for a chat ends with a digest of itself: it is always the same."""
    whole = f"{namespace}{BETWEEN}{name}"
    if len(whole) <= MAX_NAME:
        return whole
    return f"{whole[: MAX_NAME - DIGEST - 1]}_{sha256(whole.encode()).hexdigest()[:DIGEST]}"


def names_apart(tools: Any) -> dict[str, Json]:
    """`name` and `namespace` of each tool that stands in one, by its name in one piece; of tools that were read."""
    return {
        joined(group["name"], tool["name"]): {"name": tool["name"], NAMESPACE: group["name"]}
        for group in tools or ()
        if group.get("type") == NAMESPACE
        for tool in group["tools"]
    }
