"""Names as clients and operators write them: which known one was meant, and which ones mark credentials."""

import difflib
import functools
import re
from collections.abc import Iterable

MAX_NEAREST = 3
MAX_SHOWN_NAME_CHARS = 80
"""Characters of a name (of any length) that are compared, and that a message repeats."""
LIKE = 0.6
"""Similarity from which a name may be a misspelling of another."""

CREDENTIAL = re.compile(
    r"(?:^|[-_])(?:(?:api|access|subscription|functions?|account|service|client|secret|private|master|virtual)?[-_]?key|"
    r"token|secret|auth|authorization|authentication|credentials?|password|passwd|cookies?2?|jwt|assertion)(?:$|[-_])",
    re.IGNORECASE,
)
ANOTHER_PROVIDERS = ("anthropic-", "x-amz-", "x-goog-", "x-ms-", "cf-access-")
"""Prefixes of the headers that carry other providers' credentials and settings."""
NO_SECRETS = frozenset({"idempotency-key", "x-idempotency-key", "sec-websocket-key", "surrogate-key", "x-cache-key"})


def has_nul(*names: str | None) -> bool:
    """Returns whether one of these names contains a NUL. PostgreSQL accepts none, so nothing stored has such a name."""
    return any(name is not None and "\x00" in name for name in names)


def nearest(name: str, known: Iterable[str], most: int = MAX_NEAREST) -> list[str]:
    """Returns the known names that are most similar to `name`, best first. Case and outer white space are ignored."""
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.casefold(), each)
    wanted = name[:MAX_SHOWN_NAME_CHARS].strip().casefold()
    found = difflib.get_close_matches(wanted, folded, most, cutoff=LIKE)
    if not found and folded:
        likeness = difflib.SequenceMatcher(b=wanted)

        def rough(each: str) -> float:
            likeness.set_seq1(each)
            return likeness.quick_ratio()

        found = [max(folded, key=rough)]
    return [folded[each] for each in found]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Renders " Did you mean 'a' or 'b'?", to follow a sentence that a name is unknown; empty if no name is known."""
    found = [repr(each) for each in nearest(name, known)]
    if not found:
        return ""
    return f" Did you mean {' or '.join([', '.join(found[:-1]), found[-1]] if found[1:] else found)}?"


SECRET_PARAMETERS = ("password", "passfile", "sslpassword")
"""Parameters of a database URL that hold a secret."""
OWN_FIELDS = ("conversation", "attachments", "context", "agent", "memory")
"""The gateway's own fields of a request (guarantee §2)."""
ELSEWHERE = {
    **{name: f"context.{name}" for name in ("max_input_tokens", "session", "planning", "dry_run", "economy", "cite")},
    "workflow_spec": "workflow_spec of /api/v1/chat",
    "session_id": "context.session",
    "file_ids": "attachments",
}
"""The gateway's own fields in a wrong place, or by another name."""
OTHERS = frozenset({"content", "contents", "context_management"})
"""Providers' fields that look like ours."""
OF_A_FIELD = re.compile(r"_?(?:ids?|names?|mode|planning|max_input_tokens|session|objects?|lists?)\Z")
"""Suffixes that clients add to names of fields."""
VERY_LIKE, ALIKE = 0.82, 0.95


@functools.lru_cache(maxsize=1024)
def near_miss(name: str) -> str | None:
    """Returns the gateway's field that a client may have meant by an unknown one; None if it resembles none."""
    said = name[:MAX_SHOWN_NAME_CHARS].strip().casefold().replace("-", "_")
    if name in OWN_FIELDS or said in OTHERS:
        return None
    if said in ELSEWHERE:
        return ELSEWHERE[said]
    for text in (said, OF_A_FIELD.sub("", said)):
        if found := difflib.get_close_matches(text, OWN_FIELDS, 1, cutoff=VERY_LIKE):
            return found[0]
    near = difflib.get_close_matches(said, ELSEWHERE, 1, cutoff=ALIKE)
    return ELSEWHERE[near[0]] if near else None


def shown(name: str) -> str:
    """Quotes a client's name for a message, cut to `MAX_SHOWN_NAME_CHARS`."""
    return repr(name if len(name) <= MAX_SHOWN_NAME_CHARS else f"{name[:MAX_SHOWN_NAME_CHARS]}…")


def is_credential(header: str) -> bool:
    """Returns whether a header of that name carries a credential, by the names that providers and proxies use
    (`x-api-key`, `cookie`, `x-auth-token`), or belongs to another provider's API (`anthropic-version`)."""
    low = header.lower()
    return low not in NO_SECRETS and (low.startswith(ANOTHER_PROVIDERS) or CREDENTIAL.search(low) is not None)
