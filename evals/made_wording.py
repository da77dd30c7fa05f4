"""Questions that say it in other words than the text, or in exactly its words; and code in several languages."""

import json
import random

from evals.words import CHAT, CITIES, PEOPLE, Json, Writer, asks, filler, says, step

TOPICS = (
    ("Which pet does {who} keep?", "{who} came by with a hamster called Biscuit on her shoulder."),
    ("Which instrument is {who} learning?", "{who} practises the cello until the neighbours knock."),
    ("Which country did {who} visit last year?", "{who} came back from Norway with a suitcase full of wool."),
    ("What illness did {who} have in spring?", "{who} lay in bed with the flu for all of April."),
    ("What does {who} do for exercise?", "{who} swims forty lengths before work, whatever the weather."),
    ("Which dessert did {who} bring?", "{who} came to the party with a plum cake, still warm."),
)
"""Only who knows that a hamster is a pet finds the answer among much else that is said of the same person."""
QUOTED = (
    ('Who wrote "not now, not here, and not like this"?', "not now, not here, and not like this"),
    ("In which note does it say `if n < 0 or n == 0`?", "if n < 0 or n == 0"),
    ('Where did I read "it is what it was, and so it will be"?', "it is what it was, and so it will be"),
)
METHODS = (
    "open",
    "close",
    "settle",
    "refund",
    "audit",
    "merge",
    "split",
    "freeze",
    "report",
    "archive",
    "renew",
    "sign",
)
LANGUAGES = {
    "python": ("class {c}:", "    def {m}(self, amount):", '        raise {c}Error("{m} {n} refused")', "", "        "),
    "typescript": (
        "export class {c} {{",
        "  {m}(amount: number): void {{",
        '    throw new {c}Error("{m} {n} refused");',
        "  }}",
        "    ",
    ),
    "go": (
        "package {c}",
        "func (x *{c}) {m}(amount int) error {{",
        '\treturn errors.New("{m} {n} refused")',
        "}}",
        "\t",
    ),
    "java": (
        "public class {c} {{",
        "    public void {m}(int amount) {{",
        '        throw new {c}Error("{m} {n} refused");',
        "    }}",
        "        ",
    ),
}


def wording() -> Writer:
    """Topics, quotations, methods of classes, and the extremes of nested values with units and dates."""
    suite = Writer("wording", (1000, 2000))
    _topics(suite)
    _quotations(suite)
    for number, language in enumerate(LANGUAGES):
        _methods(suite, random.Random(500 + number), language)
    _extremes(suite, random.Random(520))
    return suite


def _topics(suite: Writer) -> None:
    for number, (question, told) in enumerate(TOPICS):
        rng = random.Random(540 + number)
        who, fact = PEOPLE[number].split()[0], told.format(who=PEOPLE[number].split()[0])
        messages = [each for _ in range(60) for each in _chat(rng, who)]
        at = 2 * rng.randrange(10, 50)
        name = suite.history([*messages[:at], asks(fact), says("How nice!"), *messages[at:]])
        suite.case("topic", question.format(who=who), [fact], history=name)


def _chat(rng: random.Random, who: str) -> list[Json]:
    question, answer = rng.choice(CHAT)
    return [asks(f"{question} {who} asked me the same thing last week."), says(f"{answer} {filler(rng, 1)}")]


def _quotations(suite: Writer) -> None:
    for number, (question, phrase) in enumerate(QUOTED):
        rng = random.Random(560 + number)
        said = []
        for note in range(60):
            words = phrase.split()
            rng.shuffle(words)
            said.append(f"Note {note} of {rng.choice(PEOPLE)}: {filler(rng, 2)} {' '.join(words)}. {filler(rng, 2)}")
        said[rng.randrange(10, 50)] = fact = f"Note 77 of {rng.choice(PEOPLE)}: {filler(rng, 2)} {phrase}. Enough."
        name = suite.history([each for text in said for each in (asks(text), says("Noted."))])
        suite.case("quotation", question, [fact], history=name)


def _methods(suite: Writer, rng: random.Random, language: str) -> None:
    """Two classes with the same methods: only with its class above it is a method the one that is meant."""
    opening, head, refusal, end, indent = LANGUAGES[language]
    messages: list[Json] = [asks("Read the ledger and the wallet.")]
    for at, owner in enumerate(("Ledger", "Wallet")):
        lines = [opening.format(c=owner)]
        for method in METHODS:
            body = [f"{indent}step_{rng.randrange(99)}(amount, {rng.randrange(999)})" for _ in range(9)]
            refused = refusal.format(c=owner, m=method, n=owner.lower())
            lines += ["", head.format(c=owner, m=method), *body[:5], refused, *body[5:], end.format()]
        messages += step(f"r{at}", "read_file", f'{{"path": "src/{owner.lower()}.{language}"}}', "\n".join(lines))
    name = suite.history([*messages, says("I have read both.")])
    for owner, method in (("Ledger", "settle"), ("Wallet", "archive")):
        question = f"With which message does {method} of {owner} refuse?"
        suite.case(f"code {language}", question, [f"{method} {owner.lower()} refused"], history=name)


def _extremes(suite: Writer, rng: random.Random) -> None:
    sizes, days = rng.sample(range(100, 900), 60), rng.sample(range(1, 360), 60)
    machines = [
        {
            "machine": f"node-{n:02}",
            "site": {"city": CITIES[n % len(CITIES)]},
            "disk": {"size": f"{sizes[n] / 10} GB" if n % 2 else f"{sizes[n]} MB"},
            "installed": f"20{10 + days[n] % 14}-{1 + days[n] % 12:02}-{1 + days[n] % 28:02}",
            "note": filler(rng, 2),
        }
        for n in range(60)
    ]
    result = json.dumps({"page": 1, "machines": machines}, indent=2)
    name = suite.history([asks("List them."), *step("c1", "list_machines", "{}", result), says("Sixty machines.")])
    largest = max((n for n in range(60) if n % 2), key=lambda n: sizes[n])
    oldest = min(machines, key=lambda each: str(each["installed"]))
    for question, machine in (
        ("Which machine has the largest disk size?", machines[largest]),
        ("Which machine was installed earliest?", oldest),
    ):
        suite.case("superlative", question, [f'"machine": "{machine["machine"]}"'], history=name)
