"""Agent sessions: one long turn after the other of files read, searched and tested, within one tool loop."""

import random

from evals.words import Json, Writer, asks, says, step

MODULES = ("routing", "billing", "parser", "scheduler", "storage", "session", "retry", "export")


def agents() -> Writer:
    """What was read many steps ago, what was first, what was forbidden."""
    suite = Writer("agents", (2000, 4000, 8000))
    for number in range(2):
        rng = random.Random(300 + number)
        branch = f"release/{number + 3}.x"
        rule = f"Do not touch the branch {branch}, and never push without asking me."
        messages: list[Json] = [
            {"role": "system", "content": "You are a coding agent. Use the tools."},
            asks(f"Find out why the nightly export fails. {rule}"),
        ]
        raised: dict[str, str] = {}
        limits: dict[str, int] = {}
        for at, module in enumerate(rng.sample(MODULES, len(MODULES))):
            raised[module] = f'raise ExportError("{module} gave up after {at + 2} tries")'
            limits[module] = rng.randrange(1000, 9999)
            code = _code(rng, module, raised[module], limits[module])
            messages += step(f"r{at}", "read_file", f'{{"path": "src/{module}.py"}}', code)
            found = "\n".join(f"src/{m}.py:{rng.randrange(9, 300)}: def {m}_{n}(" for m in MODULES for n in range(12))
            messages += step(f"g{at}", "grep", f'{{"pattern": "def {module}"}}', found)
        first = next(iter(raised))
        messages.append(says("I have read all of them."))
        name = suite.history(messages)
        one, other = rng.sample(MODULES, 2)
        for module in (one, other):
            suite.case("lookup", f"Which error does the {module} module raise?", [raised[module]], history=name)
            wanted = {"key": f"{module.upper()}_LIMIT", "val": str(limits[module]), "within": 60}
            suite.case("lookup", f"What is {module.upper()}_LIMIT set to?", [wanted], history=name)
        suite.case("position", "Which file did you read first?", [f"src/{first}.py"], history=name)
        suite.case("constraint", "Which branch did I tell you to leave alone?", [rule], history=name)
        extra = [asks(f"Look at {one} again."), says(f"{one} raises an error when it gives up.")]
        suite.case("anaphora", "What does its message say?", [raised[one]], history=name, extra=extra)
    return suite


def _code(rng: random.Random, module: str, raised: str, limit: int) -> str:
    parts = [f'"""The {module} of the exporter."""\n\nimport time\n\n{module.upper()}_LIMIT = {limit}\n']
    for number in range(24):
        inside = (
            f"        {raised}"
            if number == 13
            else f"        return {module}_{(number + 5) % 24}(value + {rng.randrange(99)})"
        )
        parts.append(
            f"def {module}_{number}(value):\n    if value > {rng.randrange(999)}:\n{inside}\n    return value\n"
        )
    return "\n\n".join(parts)
