"""Dockerfile and compose.yaml as far as they can be read; `make compat` runs their commands (guarantee §8)."""

import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import __version__
from gateway.core.config.exposure import refusal
from gateway.core.config.loading import load_settings
from tests.support.container import DEPLOY, Dockerfile, interpolated

ROOT = DEPLOY.parent
KEYS = "[{key: a-long-secret, tenant: team-a}]"
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_compose_passes_the_names_that_its_comments_tell_to_set() -> None:
    comments = "\n".join(re.findall("^#.*", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE))
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", comments))
    assert {"OPENAI_API_KEY", "GATEWAY_AUTH_KEYS"} <= named
    passed = COMPOSE["services"]["gateway"]["environment"]
    for name in named:
        assert interpolated(passed, {name: "x"})[name] == "x"


@pytest.mark.parametrize("name", ["compose.yaml", "compose.replicas.yaml"])
def test_what_a_gateway_needs_is_started_again_with_it(name: str) -> None:
    """After a restart of the machine: else the gateway is there and its database is not."""
    services = yaml.safe_load((DEPLOY / name).read_text())["services"]
    assert {each.get("restart") for each in services.values()} - {"no"} == {"unless-stopped"}


@pytest.mark.parametrize("name", ["compose.yaml", "compose.replicas.yaml"])
def test_a_database_that_is_still_being_made_is_not_healthy(name: str) -> None:
    """PostgreSQL's image answers on the socket alone meanwhile; the migration of replicas runs once, and would fail."""
    postgres = yaml.safe_load((DEPLOY / name).read_text())["services"]["postgres"]
    assert "pg_isready -h 127.0.0.1 " in postgres["healthcheck"]["test"][1]


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({}, True),
        ({"OPENAI_API_KEY": "sk-own"}, False),
        ({"OPENAI_API_KEY": "sk-own", "GATEWAY_AUTH_KEYS": KEYS}, True),
        ({"OPENAI_API_KEY": "sk-own", "GATEWAY_AUTH_MODE": "open"}, True),
        ({"GATEWAY_AUTH_KEYS": KEYS}, True),
    ],
)
@pytest.mark.parametrize("how", ["docker run -e", "compose"])
def test_s8_a_container_with_an_operators_key_needs_keys_of_its_own(
    how: str, given: dict[str, str], starts: bool
) -> None:
    """It listens on all addresses, so with `OPENAI_API_KEY` alone it must not start."""
    environment, file = Dockerfile.read().environment, None
    if how == "compose":
        file = str(DEPLOY / "gateway.yaml")
        environment |= interpolated(COMPOSE["services"]["gateway"]["environment"], given)
    else:
        environment |= given
    settings = load_settings(file, environment)
    assert settings.server.host == "0.0.0.0"
    assert (refusal(settings) is None) is starts
    assert [entry.tenant for entry in settings.auth.keys] == (["team-a"] if "GATEWAY_AUTH_KEYS" in given else [])


def test_the_image_is_built_with_all_that_the_wheel_holds() -> None:
    """What is not copied, or not sent to the builder, ends its build."""
    project: Any = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], "pyproject.toml"}
    needed |= {project["project"]["readme"], *project["project"]["license-files"]}
    assert needed <= set(Dockerfile.read().copied)
    sent = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in needed} <= set(sent)


def test_the_image_runs_as_an_unprivileged_user() -> None:
    image = Dockerfile.read()
    assert image.user
    assert image.user not in ("root", "0")
    assert image.command == ["gateway", "serve"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked, and the wheel that is built from it alone."""
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run([*build, "--target", "sdist"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        sdist.extractall(folder, filter="data")
    source = next(each for each in folder.iterdir() if each.is_dir())
    subprocess.run([*build, "--target", "wheel"], cwd=source, check=True, capture_output=True)
    return source


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked sdist is not asked what is kept")
def test_the_sdist_holds_what_is_kept_and_nothing_of_the_working_place(built: Path) -> None:
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    held = {str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}
    assert held - {*kept} == {"PKG-INFO"}
    left_out = {name for name in kept if name not in held}
    assert {name.split("/")[0] for name in left_out} <= {".ci"}


@pytest.mark.long
def test_the_wheel_from_the_sdist_holds_code_migrations_and_configuration_alone(built: Path) -> None:
    with zipfile.ZipFile(next(built.parent.glob("*.whl"))) as wheel:
        held = wheel.namelist()
    assert {name.split("/")[0].split("-")[0] for name in held} == {"gateway", "context_gateway"}
    migrations = {path.name for path in (ROOT / "migrations/versions").glob("*.py")}
    assert migrations <= {name.rpartition("/")[2] for name in held if name.startswith("gateway/_migrations/versions/")}
    assert {"gateway/_config.yaml", "gateway/py.typed", "gateway/api/ui/static/htmx.min.js"} <= {*held}


def test_a_version_is_told_once_and_everywhere_the_same() -> None:
    chart: Any = yaml.safe_load((DEPLOY / "helm/context-gateway/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert latest
    assert latest[1] == __version__


def test_only_a_tag_is_published_and_only_what_was_tried() -> None:
    """Each job that may write waits for tests and trials, and each step that hands something on gets it."""
    workflow: Any = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    jobs = workflow["jobs"]
    for name in ("publish", "image"):
        assert jobs[name]["if"].startswith("github.ref_type == 'tag'")
        assert set(jobs[name]["needs"]) == {"test", "try"}
        assert jobs[name]["permissions"]["id-token"] == "write"
    assert jobs["try"]["needs"] == "build"
    assert workflow["permissions"] == {"contents": "read"}
    assert not [name for name in ("test", "build", "try") if "permissions" in jobs[name]]
    assert "3.11" in jobs["try"]["strategy"]["matrix"]["python"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert not [step["uses"] for step in steps if "uses" in step and not re.fullmatch(r"[\w/-]+@\S+", step["uses"])]
    ran = " ".join(step.get("run", "") for step in steps)
    for named in re.findall(r"[\w./-]+\.(?:py|toml)\b|requirements/[\w.]+", ran):
        assert (ROOT / named).exists(), named
    (pushed,) = [step["with"]["tags"] for step in steps if "build-push" in step.get("uses", "")]
    told = [line for line in ran.splitlines() if "version=${GITHUB_REF_NAME#v}" in line]
    assert (pushed, len(told)) == ("${{ vars.IMAGE }}:${{ steps.base.outputs.version }}", 1), "as the chart names it"


@pytest.mark.long
def test_what_is_tried_has_the_version_that_its_name_says(built: Path) -> None:
    """The trial of a release compares it with what the command tells, of the wheel and of the sdist."""
    version_of = runpy.run_path(str(DEPLOY / "try_wheel.py"))["version_of"]
    packages = [*built.parent.glob("*.whl"), *built.parent.glob("*.tar.gz")]
    assert [version_of(each) for each in packages] == [__version__, __version__]
