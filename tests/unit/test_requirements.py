"""What is installed has no hole that was known when its bound was set: by the lock, and by the bounds alone."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BOUNDS = {canonicalize_name(r.name): r for r in map(Requirement, PROJECT["dependencies"])}
NAMES = ("runtime.txt", "dev.txt", "embeddings.txt", "telemetry.txt", "mcp.txt", "masking.txt")
LOCKS = [ROOT / "requirements" / name for name in NAMES]

SAFE = {
    "aiohttp": ("3.14.1", "CVE-2026-34993, CVE-2026-47265: the client's cookies and credentials across origins"),
    "certifi": ("2024.7.4", "CVE-2024-39689: a distrusted root"),
    "h11": ("0.16", "CVE-2025-43859: request smuggling"),
    "httpx": ("0.23", "CVE-2021-41945: addresses that are read in two ways"),
    "idna": ("3.7", "CVE-2024-3651: quadratic time"),
    "jinja2": ("3.1.6", "CVE-2025-27516: sandbox breakout"),
    "multipart": ("1.3.1", "CVE-2026-28356: a header that takes exponential time"),
    "orjson": ("3.11.6", "CVE-2025-67221: unlimited recursion in dumps"),
    "pydantic": ("2.4", "CVE-2024-3772: a pattern that takes exponential time"),
    "pypdf": (
        "7",
        "CVE-2026-84310, CVE-2026-84311 and dozens before: endless loops, exhausted memory; 7.0's are unnumbered",
    ),
    "pyyaml": ("5.4", "CVE-2020-14343: code out of a document"),
    "redis": ("4.5.5", "CVE-2023-28859: an answer that belongs to another request"),
    "requests": ("2.32.4", "CVE-2024-47081: credentials of .netrc for another host"),
    "starlette": (
        "1.3.1",
        "CVE-2025-54121, CVE-2025-62727 and those fixed up to 1.3.1: forms and ranges that stop a server",
    ),
    "urllib3": ("2.6.3", "CVE-2025-66418, CVE-2026-21441: decompression without an end"),
    "uvicorn": ("0.11.7", "CVE-2020-7695: headers split"),
}
"""The least version without a known hole, and what the hole was."""
EXACT = "litellm"
"""Pinned: versions near it were compromised."""


def least(requirement: Requirement) -> Version:
    found = [Version(each.version) for each in requirement.specifier if each.operator in (">=", "==")]
    assert len(found) == 1, f"{requirement} has no lower bound"
    return found[0]


def pinned(lock: Path) -> dict[str, Version]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", lock.read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_what_is_pinned_keeps_every_bound(lock: Path) -> None:
    versions = pinned(lock)
    assert len(versions) > 50
    for name, requirement in BOUNDS.items():
        assert requirement.specifier.contains(versions[name]), f"{lock.name}: {name} {versions[name]}: {requirement}"


@pytest.mark.parametrize("name", SAFE)
def test_a_lower_bound_is_the_least_version_that_is_safe(name: str) -> None:
    version, hole = SAFE[name]
    assert least(BOUNDS[canonicalize_name(name)]) >= Version(version), hole


def test_every_dependency_has_a_lower_bound() -> None:
    assert all(least(requirement) for requirement in BOUNDS.values())
    assert str(BOUNDS[canonicalize_name(EXACT)].specifier).startswith("==")
