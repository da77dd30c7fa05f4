"""`gateway config`: each setting in force and its origin, as the web UI shows it (guarantee §13.16)."""

from collections.abc import Iterator
from dataclasses import asdict

from gateway.core import names
from gateway.core.config.settings import SECTIONS, Settings
from gateway.inspection import settings_in_force
from gateway.operations.screen import FAINT, ID_STYLE, CommandCall, TableColumn

SETTING_COLUMNS = (
    TableColumn("setting", ID_STYLE),
    TableColumn("from", FAINT, drop=1),
    TableColumn("value", is_flexible=True),
)
SETTING_CSV = ("name", "value", "origin", "description")


def config(call: CommandCall) -> int:
    """Writes the settings; returns 1 if no setting has the given name.
    Raises ConfigurationError: the configuration cannot be used."""
    settings, options, err = call.settings, call.options, call.err
    every = list(_all(settings))
    wanted = options.name or ""
    found = [
        each
        for each in every
        if not wanted or each.name == wanted or each.name.startswith((f"{wanted}.", f"{wanted}["))
    ]
    if not found:
        known = [each.name for each in every] if "." in wanted else SECTIONS
        err.write(f"{wanted}: there is no such setting.{names.did_you_mean(wanted, known)}\n")
        return 1
    shown = found if options.all or wanted else [each for each in found if not each.is_default]
    rows = ([each.name, each.origin, each.value] for each in shown)
    call.write_list(
        SETTING_CSV, [asdict(each) for each in shown], SETTING_COLUMNS, rows, warnings=list(settings.warnings)
    )
    if not (options.csv or options.json):
        for warning in settings.warnings:
            err.write(f"warning: {warning}\n")
        if left := len(found) - len(shown):
            err.write(f"{left} more settings have their defaults: --all shows them\n")
    return 0


def _all(settings: Settings) -> Iterator[settings_in_force.SettingInForce]:
    """Yields the settings of all sections, the lengths of prompt profiles, and the entries of `model_list`."""
    for section in settings_in_force.settings_in_force(settings).values():
        yield from section
    for name, text in settings_in_force.prompt_texts(settings).items():
        origin = settings.origins.get(f"prompt_profiles.{name.partition('.')[0]}", settings_in_force.DEFAULT)
        yield settings_in_force.SettingInForce(
            f"prompt_profiles.{name}", f"{len(text)} characters", origin, "A prompt profile's text."
        )
    for number, entry in enumerate(settings.model_list):
        path = f"model_list[{number}]"
        base = settings_in_force.address(entry.litellm_params.api_base or "")
        told = f"{entry.model_name}: {entry.litellm_params.model}{f' at {base}' if base else ''}"
        yield settings_in_force.SettingInForce(
            path, told, settings.origins.get(path, settings_in_force.DEFAULT), "A model that is served."
        )
