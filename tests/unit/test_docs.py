"""Documentation is tested: what exists is named, and what is named exists."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from gateway.api import wiring
from gateway.api.request.validation import CONTEXT_FIELDS
from gateway.core import errors
from gateway.core.config.loading import CLASSIC_NAMES, environment_names
from gateway.core.config.settings import SECTIONS, Settings
from gateway.core.instrumentation.metrics import METRICS
from gateway.core.types.audit_log import ACTIONS
from tests.reference import pages as reference

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs/configuration.md").read_text()
API = (ROOT / "docs/api.md").read_text()
README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs/operations.md").read_text()
TROUBLESHOOTING = (ROOT / "docs/troubleshooting.md").read_text()
GLOSSARY = (ROOT / "docs/glossary.md").read_text()
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "gateway").rglob("*.py")))
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("README.md")),
]


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", reference.PAGES, ids=shown)
def test_what_is_made_from_the_code_is_as_the_code_makes_it(page: Path) -> None:
    """`make docs` writes it."""
    assert page.read_text() == reference.made_anew(page.read_text())


def test_every_setting_is_documented_with_its_default_and_its_names_in_the_environment() -> None:
    """The tables have what there is; here it is seen that no section is without one."""
    assert set(re.findall(r"made by make docs: settings (\w+)", CONFIGURATION)) == {*SECTIONS}
    assert {"classic_names", "fields ApiKey"} <= set(re.findall(r"made by make docs: ([\w ]+) -->", CONFIGURATION))
    names = [*environment_names(), *(each.name for each in CLASSIC_NAMES)]
    assert not [name for name in names if f"`{name}`" not in CONFIGURATION]


def test_every_action_of_the_trail_is_documented_and_there_is_no_other() -> None:
    page = (ROOT / "docs/trail.md").read_text()
    assert not {action for action in ACTIONS if f"`{action}`" not in page}
    recorded = set(re.findall(r'(?:recorded|NewEvent|_record|tell_trail|seen=)\(?[^"\n]*"([a-z]+\.[a-z_]+)"', SOURCE))
    assert len(recorded) > 10
    assert recorded <= ACTIONS


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    """Not one that was renamed: `context.low_water` and the like, and the fields of a request's `context`."""
    known = {f"{s}.{k}" for s in SECTIONS for k in getattr(Settings.model_fields[s].annotation, "model_fields", {})}
    known |= {f"context.{name}" for name in CONTEXT_FIELDS} | ACTIONS
    named = set(re.findall(rf"`((?:{'|'.join(SECTIONS)})\.[a-z_]+)`", page.read_text()))
    assert not {name for name in named - known if not name.endswith((".py", ".md", ".yaml"))}


def test_every_error_code_is_documented_with_what_to_do() -> None:
    """Those of the classes are, by `make docs`; here it is seen that none is made up where an error is raised."""
    told = set(re.findall(r"^\| `([a-z_]+)` \| \d+ \| .+ \| .+ \|$", TROUBLESHOOTING, re.MULTILINE))
    assert {"internal_error", *errors.CODES} < told
    assert not set(re.findall(r'code="([a-z_]+)"', SOURCE)) - told


def test_every_endpoint_is_documented() -> None:
    found = re.findall(r'Route\("([^"]+)".*?methods=\["(\w+)"\]', inspect.getsource(wiring))
    assert len(found) >= 7
    for path, method in found:
        named = f"{method} {path.replace(':path', '')}"
        assert named in API, f"{named} is not in docs/api.md"


def test_every_field_of_context_is_documented() -> None:
    missing = sorted(name for name in CONTEXT_FIELDS if f"context.{name}" not in API)
    assert not missing


def test_every_metric_is_documented() -> None:
    """And none that is not counted any more."""
    counted = [*re.findall(r'yield [\w.]+\(\s*"(gateway_\w+)"', SOURCE), *(each.name for each in METRICS)]
    assert len(counted) > 5
    documented = set(re.findall(r"`(gateway_\w+)`", OPERATIONS))
    assert {re.sub("_(total|info)$", "", name) for name in documented} == set(counted)


def test_the_commands_of_the_readme_exist() -> None:
    """§9.2: what a newcomer is told to run with make."""
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"\bmake (\w+)(?=`|  )", README)
    assert {"demo", "run", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and to a heading that it has."""
    for linked in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if linked.startswith(("http://", "https://")):
            continue
        path, _, anchor = linked.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), linked
        if anchor:
            assert anchor in headings(target), linked


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    assert not [page.name for page in (ROOT / "docs/adr").glob("0*.md") if f"({page.name})" not in index]


def test_what_operators_are_told_is_explained() -> None:
    """Every reason why a plan was not followed, every warning of a bill and every event of the log."""
    reasons = re.findall(r'(?:InternalModelFailed|Over[A-Z][a-z]+|InvalidPlan)\(f?"(?:\{[^}]*\})?([a-z_]+)"', SOURCE)
    reasons += re.findall(r'fallback_reason="([a-z_]+)"', SOURCE)
    reasons += re.findall(
        r'^(?:NO_PLANNER|NOTHING_TO_PLAN|SAVES_TOO_LITTLE|FAULT|LATE) = "([a-z]+_[a-z_]+)"', SOURCE, re.MULTILINE
    )
    warnings = re.findall(r'warnings\.append\("([a-z_]+)"', SOURCE)
    events = re.findall(r'log\.(?:info|warning|fault|failure)\(\s*"([a-z_]+)"', SOURCE)
    events += re.findall(r'\b(?:postponed|failed)(?:: str)?\s?=\s?"([a-z_]+)"', SOURCE)  # of jobs
    assert min(len(reasons), len(warnings), len(events)) > 1
    missing = sorted(name for name in {*reasons, *warnings, *events} if f"{name}`" not in TROUBLESHOOTING)
    assert not missing


def test_the_names_of_the_glossary_are_those_of_the_code() -> None:
    terms = re.findall(r"^- \*\*(.+?)\*\* \(`([^`]+)`\): ", GLOSSARY, re.MULTILINE)
    assert len(terms) == GLOSSARY.count("\n- ")
    assert [term for term, _ in terms] == sorted((term for term, _ in terms), key=str.lower)
    words = {*re.findall(r"\w+", SOURCE)}
    for term, name in terms:
        if name.endswith(".py"):
            assert (ROOT / "gateway" / name).exists(), f"{term}: {name}"
        else:
            assert name in words or re.search(rf"\b{name}\b", SOURCE), f"{term}: {name}"


def test_the_places_of_the_architecture_exist() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", ARCHITECTURE)
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists() and not (ROOT / "gateway" / name).exists()]


def test_each_package_says_what_to_read_first_and_it_exists() -> None:
    for face in sorted((ROOT / "gateway").glob("*/__init__.py")):
        page = ast.get_docstring(ast.parse(face.read_text())) or ""
        assert "Read first:" in page, face
        assert "Never" in page or "never" in page, face
        named = re.findall(r"`([a-z_/]+\.py)`", page)
        assert not [name for name in named if not any((at / name).exists() for at in (face.parent, ROOT / "gateway"))]


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_python_of_a_page_is_python(page: Path) -> None:
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        ast.parse(code)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_clients_of_a_page_ask_the_gateway(page: Path) -> None:
    """Without an address an example would send a gateway's key to the provider."""
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for call in (each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id.endswith(("OpenAI", "Anthropic")):
                assert {"base_url", "api_base"} & {each.arg for each in call.keywords}, ast.unparse(call)
