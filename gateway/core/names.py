"""Names as clients and operators write them: which known one was meant, and which tell that a value is a credential."""

import difflib
import functools
import re
from collections.abc import Iterable

MAX_NEAREST = 3
MAX_SHOWN_NAME_CHARS = 80
"""Of a name that may be as long as its sender likes: what is compared, and what a message repeats."""
LIKE = 0.6
"""Similarity from which a name may be a slip of another."""

CREDENTIAL = re.compile(
    r"(?:^|[-_])(?:(?:api|access|subscription|functions?|account|service|client|secret|private|master|virtual)?[-_]?key|"
    r"token|secret|auth|authorization|authentication|credentials?|password|passwd|cookies?2?|jwt|assertion)(?:$|[-_])",
    re.IGNORECASE,
)
ANOTHER_PROVIDERS = ("anthropic-", "x-amz-", "x-goog-", "x-ms-", "cf-access-")
"""How the names of headers begin that other providers' credentials and settings travel in."""
NO_SECRETS = frozenset({"idempotency-key", "x-idempotency-key", "sec-websocket-key", "surrogate-key", "x-cache-key"})


def has_nul(*names: str | None) -> bool:
    """Tells whether one of these names holds a NUL: PostgreSQL takes none, so that nothing stored has such a name."""
    return any(name is not None and "\x00" in name for name in names)


def nearest(name: str, known: Iterable[str], most: int = MAX_NEAREST) -> list[str]:
    """The known names that are most like this one, the likest first. Case and outer white space do not count."""
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
    """ "Did you mean 'a' or 'b'?", behind a sentence that there is no such name; empty where no name is known."""
    found = [repr(each) for each in nearest(name, known)]
    if not found:
        return ""
    return f" Did you mean {' or '.join([', '.join(found[:-1]), found[-1]] if found[1:] else found)}?"


SECRET_PARAMETERS = ("password", "passfile", "sslpassword")
"""Of a database's address."""
OWN_FIELDS = ("conversation", "attachments", "context", "agent", "memory")
"""The gateway's own of a request (guarantee §2)."""
ELSEWHERE = {
    **{name: f"context.{name}" for name in ("max_input_tokens", "session", "planning", "dry_run", "economy", "cite")},
    "workflow_spec": "workflow_spec of /api/v1/chat",
    "session_id": "context.session",
    "file_ids": "attachments",
}
"""Fields that are the gateway's own in another place, or by another name."""
OTHERS = frozenset({"content", "contents", "context_management"})
"""Fields of providers that look like ours."""
OF_A_FIELD = re.compile(r"_?(?:ids?|names?|mode|planning|max_input_tokens|session|objects?|lists?)\Z")
"""What names of fields are lengthened by."""
VERY_LIKE, ALIKE = 0.82, 0.95


@functools.lru_cache(maxsize=1024)
def near_miss(name: str) -> str | None:
    """The own field that a client may have meant by a field that is none; None for any that looks like no such."""
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
    """A name of a client's, quoted, as a message repeats it."""
    return repr(name if len(name) <= MAX_SHOWN_NAME_CHARS else f"{name[:MAX_SHOWN_NAME_CHARS]}…")


def is_credential(header: str) -> bool:
    """Whether a header of that name carries a credential, by what providers and proxies call theirs (`x-api-key`,
    `cookie`, `x-auth-token`), or belongs to another provider's API (`anthropic-version`)."""
    low = header.lower()
    return low not in NO_SECRETS and (low.startswith(ANOTHER_PROVIDERS) or CREDENTIAL.search(low) is not None)
