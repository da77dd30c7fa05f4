"""Documentation is tested: what exists is named, and what is named exists."""

import inspect
import re
from pathlib import Path

import pytest

from gateway import app, errors
from gateway.config.loading import environment_names
from gateway.config.settings import SECTIONS, Settings
from gateway.http.chat.validation import CONTEXT_FIELDS

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs/configuration.md").read_text()
API = (ROOT / "docs/api.md").read_text()
README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs/operations.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_documented_with_its_default(section: str) -> None:
    model = Settings.model_fields[section].annotation
    assert model is not None
    for name, field in model.model_fields.items():
        row = re.search(rf"^\| `{section}\.{name}` \|.*$", CONFIGURATION, re.MULTILINE)
        assert row, f"{section}.{name} is not in docs/configuration.md"
        default = field.get_default(call_default_factory=True)
        if isinstance(default, int | float | str) and not isinstance(default, bool):
            assert f"`{default}`" in row.group(), f"the default of {section}.{name} is {default}"


def test_every_environment_name_is_documented() -> None:
    missing = [name for name in environment_names() if f"`{name}`" not in CONFIGURATION]
    assert not missing


def test_every_documented_setting_exists() -> None:
    known = {f"{s}.{k}" for s in SECTIONS for k in getattr(Settings.model_fields[s].annotation, "model_fields", {})}
    documented = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", CONFIGURATION, re.MULTILINE))
    assert documented == known


def test_every_error_code_is_documented() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    codes = {c.code for c in classes if issubclass(c, errors.GatewayError) and c.code}
    codes |= {m for f in (ROOT / "gateway").rglob("*.py") for m in re.findall(r'code="([a-z_]+)"', f.read_text())}
    missing = sorted(code for code in codes if f"`{code}`" not in API)
    assert not missing


def test_every_endpoint_is_documented() -> None:
    routes = re.findall(r'Route\("([^"]+)".*?methods=\["(\w+)"\]', inspect.getsource(app))
    assert len(routes) >= 7
    for path, method in routes:
        shown = f"{method} {path.replace(':path', '')}"
        assert shown in API, f"{shown} is not in docs/api.md"


def test_every_field_of_context_is_documented() -> None:
    missing = sorted(name for name in CONTEXT_FIELDS if f"context.{name}" not in API)
    assert not missing


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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


def test_what_operators_are_told_is_explained() -> None:
    """Every reason why a plan was not followed, every warning of a bill and every event of the log."""
    source = "\n".join(path.read_text() for path in (ROOT / "gateway").rglob("*.py"))
    reasons = re.findall(r'(?:InternalModelFailed|OverCeiling|RubbishPlan)\(f?"(?:\{[^}]*\})?([a-z_]+)"', source)
    reasons += re.findall(r'fallback_reason="([a-z_]+)"', source)
    reasons += re.findall(
        r'^(?:NO_PLANNER|NOTHING_TO_PLAN|SAVES_TOO_LITTLE|FAULT|LATE) = "([a-z]+_[a-z_]+)"', source, re.MULTILINE
    )
    warnings = re.findall(r'warnings\.append\("([a-z_]+)"', source)
    events = re.findall(r'\blog\.(?:info|warning|fault)\(\s*"([a-z_]+)"', source)
    assert min(len(reasons), len(warnings), len(events)) > 1
    missing = sorted(name for name in {*reasons, *warnings, *events} if f"{name}`" not in OPERATIONS)
    assert not missing
