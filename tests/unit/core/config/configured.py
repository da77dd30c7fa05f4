"""Settings out of a configuration file of the test's own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.core.config.loading import ConfigurationError, load_settings
from gateway.core.config.settings import Settings

MODEL = {"model_name": "m", "litellm_params": {"model": "openai/m"}}


def load(tmp_path: Path, config: Any, environ: dict[str, str] | None = None, **overrides: Any) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config), encoding="utf-8")
    return load_settings(str(path), environ or {}, overrides)


def refused(tmp_path: Path, config: Any, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, config, environ)
    assert str(tmp_path / "config.yaml") in str(raised.value)
    return str(raised.value)
