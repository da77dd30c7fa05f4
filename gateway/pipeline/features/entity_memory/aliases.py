"""By which words a thing may be called: "Task Management", a workflow, is "my task workflow", too (guarantee §11.14).

Words are compared without case, width and punctuation: "Task-Management" and "task_management" are the same
two words. In scripts without spaces each sign is a word.
"""

import re
import unicodedata
from collections.abc import Iterable

from gateway.core.types.memory import KEY_WORDS, MAX_ALIASES, MAX_KEY_CHARS, ThingNote, as_line

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
FILE = "file"
MIN_CHARS = 3
"""Of a name of one word; a shorter one counts only where it has letters and digits."""
MIN_ID_CHARS = 4
"""Of an id of one word that may stand alone: a "7" in a question is no order."""
MAX_QUESTION_WORDS = 64
"""Words at the beginning of a question, and as many at its end, in which things are looked for."""
_LITTLE = (
    "the and for are was you your our their this that with from have has not but all any can will what which who how "
    "why when where there here into out about new old get set add use see let yes"
)
_COMMON = "main test data list item file name type user read write open"
LITTLE = frozenset(_LITTLE.split())
"""Words that name nothing, not even beside a type: "which workflow" is none in particular."""
COMMON = LITTLE | frozenset(_COMMON.split())
"""Words that stand in questions about anything: alone they name nothing."""


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def phrase(text: str) -> str:
    """The words of a text with a space between."""
    return " ".join(words_of(text))


def aliases_of(kind: str, thing_id: str, name: str | None, given: Iterable[str] = ()) -> tuple[str, ...]:
    """All aliases of a thing, given ones first, each once.

    "Task Management", a workflow, wf_12: task management, task management workflow, workflow task management, my task
    management, my task, task workflow, my task workflow, wf 12, workflow wf 12.
    """
    found = [phrase(alias) for alias in given]
    of_type = phrase(kind)
    names = words_of(name) if name else []
    if names:
        found += _of_name(names, of_type)
    if kind == FILE and name and (stem := words_of(name.rpartition(".")[0])):
        found += _of_name(stem, of_type)
    own = words_of(thing_id)
    if own and own != names:
        if len(own) > 1 or len(own[0]) >= MIN_ID_CHARS:
            found.append(" ".join(own))
        found.append(" ".join([of_type, *own]))
    return tuple(dict.fromkeys(alias for alias in found if alias))[:MAX_ALIASES]


def _of_name(names: list[str], of_type: str) -> list[str]:
    """What a name of these words may be shortened to."""
    whole, first = " ".join(names), names[0]
    found = [f"{of_type} {whole}"]
    if len(names) > 1 or _is_word(whole, LITTLE):
        found = [f"{whole} {of_type}", *found, f"my {whole}"]
    if len(names) > 1 or _is_word(whole, COMMON):
        found.insert(0, whole)
    if _is_word(first, COMMON):
        found += [f"my {first}", f"{first} {of_type}", f"my {first} {of_type}"]
    return found


def _is_word(word: str, but: frozenset[str]) -> bool:
    """Whether a word can name something by itself."""
    short = len(word) < MIN_CHARS and word.isascii() and (word.isalpha() or word.isdigit())
    return word not in but and not short


def noted(kind: str, thing_id: str, name: str | None, action: str, given: Iterable[str] = ()) -> ThingNote:
    """A thing to remember with all of its aliases."""
    return ThingNote(kind, thing_id, name, aliases_of(kind, thing_id, name, given), action)


def file_name(path: str) -> str:
    """What a file of that path is called."""
    return as_line(re.split(r"[/\\]", path.rstrip("/\\"))[-1], MAX_KEY_CHARS) or path


def question_words(text: str) -> list[str]:
    """The words of a question in which things are looked for: of a long one its beginning and its end."""
    found = words_of(text[:4000]) if len(text) <= 4000 else [*words_of(text[:2000]), "\n", *words_of(text[-2000:])]
    if len(found) <= 2 * MAX_QUESTION_WORDS:
        return found
    return [*found[:MAX_QUESTION_WORDS], "\n", *found[-MAX_QUESTION_WORDS:]]


def runs_of(words: list[str]) -> tuple[str, ...]:
    """Each run of one to four of these words, as aliases are looked up by; the longest first."""
    found = (
        " ".join(words[start : start + size])[:MAX_KEY_CHARS]
        for size in range(KEY_WORDS, 0, -1)
        for start in range(len(words) - size + 1)
    )
    return tuple(dict.fromkeys(run for run in found if "\n" not in run))
