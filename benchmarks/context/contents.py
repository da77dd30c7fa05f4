"""Made-up agent sessions of a given size, no two alike: programs, records, logs, listings and prose as tool results."""

import json
import random
from typing import Any

Json = dict[str, Any]
RESULT_CHARS = (2_000, 16_000)
_WORDS = """
order invoice parcel customer warehouse delivery payment refund account balance ticket queue worker retry index cache
storage session request answer budget window report table column record price amount discount supplier contract harbour
river mountain winter engine signal bridge market village museum letter journey garden machine paper window
"""
WORDS = _WORDS.split()
_SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo zu"
SYLLABLES = _SYLLABLES.split()
TOOLS = ("read_file", "query_orders", "read_log", "list_files", "fetch_page")
QUESTIONS = ("Why was {} refused, and what is its amount?", "Which of the files that we read mentions {}, and where?")


def session(tokens: int, seed: int) -> tuple[list[Json], str, str]:
    """Messages of about so many tokens up to a question, that question, and another one on the same results."""
    rng = random.Random(seed)
    words = 100 * WORDS + ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) for _ in range(1500)]  # one of four
    messages: list[Json] = []
    sought, chars, number = [], 0, 0
    while chars < 4 * tokens:
        maker = rng.randrange(len(TOOLS))
        size = rng.randint(*RESULT_CHARS)
        result = (_program, _records, _log, _listing, _prose)[maker](rng, words, size)
        function = {"name": TOOLS[maker], "arguments": json.dumps({"of": rng.choice(words), "at": number})}
        call = {"id": f"call_{seed}_{number}", "type": "function", "function": function}
        if number % 8 == 0:
            messages.append({"role": "user", "content": f"Please look at {_sentence(rng, words)}"})
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if number % 8 == 7:
            messages.append({"role": "assistant", "content": f"It says: {_sentence(rng, words)}"})
        sought.append(rng.choice(result.split()))
        chars, number = chars + len(result), number + 1
    first, second = (question.format(rng.choice(sought)) for question in QUESTIONS)
    return [*messages, {"role": "assistant", "content": "Done."}], first, second


def _program(rng: random.Random, words: list[str], size: int) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        one, two, three = rng.choices(words, k=3)
        parts.append(
            f"def {one}_{two}(self, {three}: int) -> {two.title()}:\n"
            f'    """{_sentence(rng, words)}"""\n'
            f"    if {three} > {rng.randrange(9999)}:\n"
            f"        raise {one.title()}Error(f'{two} of {{{three}}}')\n"
            f"    self._{two}.{one}({three} + {rng.randrange(99)})\n"
            f"    return {two.title()}({one}={three})\n\n"
        )
    return "\n".join(parts)


def _records(rng: random.Random, words: list[str], size: int) -> str:
    records = [
        {
            "order_id": f"W{rng.randrange(10**7):07}",
            "customer": {
                "name": " ".join(rng.choices(words, k=2)).title(),
                "email": f"{rng.choice(words)}@example.com",
            },
            "status": rng.choice(("pending", "delivered", "cancelled")),
            "total": round(rng.uniform(5, 900), 2),
            "placed_at": f"2024-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randrange(24):02}:15:00Z",
            "note": _sentence(rng, words),
        }
        for _ in range(size // 240)
    ]
    return json.dumps(records, indent=rng.choice((None, 2)))


def _log(rng: random.Random, words: list[str], size: int) -> str:
    return "\n".join(
        f"2024-05-{rng.randint(1, 28):02} {rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02},"
        f"{rng.randrange(999):03} {rng.choice(('INFO', 'INFO', 'WARN', 'ERROR'))} {rng.choice(words)}."
        f"{rng.choice(words)}: {_sentence(rng, words)} id=blk_{rng.randrange(10**12)} from 10.0.{rng.randrange(255)}.7"
        for _ in range(size // 140)
    )


def _listing(rng: random.Random, words: list[str], size: int) -> str:
    lines = []
    for _ in range(size // 100):
        folder, one, two = rng.choices(words, k=3)
        lines.append(f"src/{folder}/{one}_{two}.py:{rng.randrange(900)}: {_sentence(rng, words)}")
    return "\n".join(lines)


def _prose(rng: random.Random, words: list[str], size: int) -> str:
    parts = [f"# {_sentence(rng, words)}"]
    while sum(map(len, parts)) < size:
        parts.append(" ".join(_sentence(rng, words) for _ in range(rng.randint(2, 7))))
        if rng.random() < 0.2:
            parts.append(f"## {' '.join(rng.choices(words, k=3)).title()}")
    return "\n\n".join(parts)


def _sentence(rng: random.Random, words: list[str]) -> str:
    return " ".join(rng.choices(words, k=rng.randint(5, 12))).capitalize() + "."
