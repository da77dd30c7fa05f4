"""`docs/guarantees.md` is the law: every rule that is cited exists, and every rule names a test that exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = "docs/guarantees.md"
SECTION = re.compile(r"^## §(\d+)", re.MULTILINE)
RULE = re.compile(r"^- \*\*§([\d.]+(?: I\d)?)\*\* .*?\n  `([\w/]+\.py)::(\w+)`$", re.MULTILINE | re.DOTALL)
NUMBERED = re.compile(r"^- \*\*§", re.MULTILINE)
CITED = re.compile(r"§ ?(\d+(?:\.\d+)?)((?:(?:,| and)? ?[-–]?I\d)*)")
INVARIANT = re.compile(r"I\d")
PREFIX = re.compile(r"^test_s(1[0-4]|[1-9])(?:_(\d+)(?=_)|_(i\d)(?=_))?")
"""What a test's name cites: `test_s4_i7_…`, `test_s3_2_…`, `test_s6_…`; a longer number is a figure of its own."""
DEFINED = re.compile(r"\bdef (test_\w+)\(")
CITED_ONE_BY_ONE = ("3", "4")
READ = ("gateway", "tests", "benchmarks", "evals", "docs", "migrations", "deploy")
LAW = (ROOT / PAGE).read_text()
RULES = {number: (file, test) for number, file, test in RULE.findall(LAW)}
KNOWN = {*RULES, *SECTION.findall(LAW)}


@cache
def cited_by_tests(file: Path) -> dict[str, set[str]]:
    """The test functions of a file, and the rules that each cites in its name, its docstring or its file's."""
    tree = ast.parse(file.read_text())
    module = cited(ast.get_docstring(tree) or "")
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = [node for node in functions if node.name.startswith("test_")]
    return {node.name: module | cited_by_name(node.name) | cited(ast.get_docstring(node) or "") for node in tests}


def cited(text: str) -> set[str]:
    """The rules that a text names: `§4 I1-I3` cites I1 and I3 of §4, `§3.2` itself."""
    found: set[str] = set()
    for number, invariants in CITED.findall(text):
        found |= {f"4 {name}" for name in INVARIANT.findall(invariants)}
        found |= {number} if number != "4" or not invariants else set()
    return found


def cited_by_name(test: str) -> set[str]:
    """The rule that a test's name begins with."""
    parts = PREFIX.match(test)
    if parts is None:
        return set()
    section, number, invariant = parts.groups()
    return {f"{section} {invariant.upper()}" if invariant else f"{section}.{number}" if number else section}


def test_every_rule_is_read() -> None:
    """None is written in a form that these tests pass over, none stands twice, and each is in its section."""
    assert len(RULE.findall(LAW)) == len(RULES) == len(NUMBERED.findall(LAW))
    assert SECTION.findall(LAW) == [*map(str, range(1, 15))]
    assert {number.partition(".")[0].partition(" ")[0] for number in RULES} == set(SECTION.findall(LAW))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_test_that_cites_it(rule: str) -> None:
    """By its number, or by its section's where the rules of a section are not cited one by one."""
    name, test = RULES[rule]
    file = ROOT / "tests" / name
    assert file.exists(), f"{PAGE}: §{rule} names tests/{name}, which does not exist"
    tests = cited_by_tests(file)
    assert test in tests, f"{PAGE}: §{rule} names {test}, which is not in tests/{name}"
    assert tests[test] & ({rule} if rule[0] in CITED_ONE_BY_ONE else {rule, rule[0]}), f"{test} does not cite §{rule}"


@pytest.mark.parametrize("folder", READ)
def test_every_rule_that_is_cited_exists(folder: str) -> None:
    """In code, in docstrings, and in the pages."""
    missing: dict[str, str] = {}
    for file in (path for ending in ("*.py", "*.md", "*.yaml") for path in (ROOT / folder).rglob(ending)):
        missing |= {rule: str(file.relative_to(ROOT)) for rule in cited(file.read_text()) - KNOWN}
    assert not missing


def test_the_names_of_tests_cite_rules_that_exist() -> None:
    tests = {name for file in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(file.read_text())}
    assert len(tests) > 1000
    assert not {name for name in tests if cited_by_name(name) - KNOWN}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("(guarantee §4 I7)", {"4 I7"}),
        ("§4 I1, I5 and I6", {"4 I1", "4 I5", "4 I6"}),
        ("§4 I1-I3", {"4 I1", "4 I3"}),
        ("§3.2: the same", {"3.2"}),
        ("§3.1, I3", {"3.1", "4 I3"}),
        ("§6, §9", {"6", "9"}),
        ("§5.10.", {"5.10"}),
    ],
)
def test_citations_are_read_in_all_their_forms(text: str, rules: set[str]) -> None:
    assert cited(text) == rules
