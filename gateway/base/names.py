"""Names as clients and operators write them: which known one was meant, and which tell that a value is a credential."""

import difflib
import re
from collections.abc import Iterable

MOST_NEAREST = 3
SHOWN_CHARS = 80
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


def nearest(name: str, known: Iterable[str], most: int = MOST_NEAREST) -> list[str]:
    """The known names that are most like this one, the likest first. Case and outer white space do not count."""
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.casefold(), each)
    wanted = name[:SHOWN_CHARS].strip().casefold()
    found = difflib.get_close_matches(wanted, folded, most, cutoff=LIKE)
    if not found and folded:
        likeness = difflib.SequenceMatcher(b=wanted)

        def rough(each: str) -> float:
            likeness.set_seq1(each)
            return likeness.quick_ratio()

        found = [max(folded, key=rough)]
    return [folded[each] for each in found]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "Did you mean 'a' or 'b'?", to stand behind a sentence that says that there is no such name; empty where no name
    is known at all."""
    found = [repr(each) for each in nearest(name, known)]
    if not found:
        return ""
    return f" Did you mean {' or '.join([', '.join(found[:-1]), found[-1]] if found[1:] else found)}?"


def shown(name: str) -> str:
    """A name of a client's, quoted, as a message repeats it."""
    return repr(name if len(name) <= SHOWN_CHARS else f"{name[:SHOWN_CHARS]}…")


def is_credential(header: str) -> bool:
    """Whether a header of that name carries a credential, by what providers and proxies call theirs (`x-api-key`,
    `cookie`, `x-auth-token`), or belongs to another provider's API (`anthropic-version`)."""
    low = header.lower()
    return low not in NO_SECRETS and (low.startswith(ANOTHER_PROVIDERS) or CREDENTIAL.search(low) is not None)
