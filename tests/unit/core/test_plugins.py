"""`core/plugins.py`: packages that import from modules by their former names go on."""

import sys
from importlib.metadata import EntryPoint

import pytest

from gateway.core.plugins import FORMER, load_plugin
from gateway.core.types.agents import AssemblerOutput
from gateway.pipeline.guards import Verdict


def test_former_names_lead_to_what_they_stood_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for former in FORMER:
        monkeypatch.delitem(sys.modules, former, raising=False)
    assert load_plugin(EntryPoint("mine", "json:dumps", "context_gateway.assemblers"))([1]) == "[1]"
    scope: dict[str, object] = {}
    exec("from gateway.guards.api import Verdict; from gateway.models.agents import AssemblerOutput", scope)
    assert (scope["Verdict"], scope["AssemblerOutput"]) == (Verdict, AssemblerOutput)
    with pytest.raises(ImportError):
        exec("from gateway.guards.api import Nothing", {})
