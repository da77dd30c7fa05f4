"""`gateway savings --replay FOLDER`: what recorded sessions would have cost through the gateway, losses first
(guarantee §13.12)."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TextIO

from gateway.core.config.settings import Settings
from gateway.operations.command_arguments import LIFETIMES
from gateway.operations.progress import CommandProgress
from gateway.operations.savings.playing import MakeGateway, PlayedSession, PlaySetting, SessionPlayer, TooLong
from gateway.operations.savings.transcripts import RecordedSession, read_sessions, transcripts
from gateway.operations.screen import COST_STYLE, FAINT, CommandCall, CommandScreen, Piece, TableColumn

SUM_COLUMNS = (
    TableColumn("dearer", is_right=True),
    TableColumn("worst", is_right=True),
    TableColumn("ratio", COST_STYLE, is_right=True),
    TableColumn("direct USD", COST_STYLE, is_right=True),
    TableColumn("gateway USD", COST_STYLE, is_right=True),
    TableColumn("sessions", drop=2, is_right=True),
    TableColumn("steps", drop=3, is_right=True),
    TableColumn("breaks", is_right=True),
    TableColumn("cold", drop=4, is_right=True),
    TableColumn("edits missing", is_right=True),
    TableColumn("refused", drop=1, is_right=True),
)
SESSION_COLUMNS = (
    TableColumn("session", is_flexible=True),
    TableColumn("agent", FAINT, drop=5),
    TableColumn("setting"),
    TableColumn("steps", drop=3, is_right=True),
    TableColumn("ratio", COST_STYLE, is_right=True),
    TableColumn("direct USD", COST_STYLE, drop=1, is_right=True),
    TableColumn("gateway USD", COST_STYLE, is_right=True),
    TableColumn("breaks", is_right=True),
    TableColumn("cold", drop=4, is_right=True),
    TableColumn("edits missing", is_right=True),
    TableColumn("refused", drop=2, is_right=True),
)
SESSION_FIELDS = (
    *("session", "agent", "setting", "steps", "direct_cost", "gateway_cost", "ratio", "is_dearer", "breaks"),
    *("cold_breaks", "quoted", "missing", "refused", "metered_saving"),
)
RATIO = Decimal("0.0001")
CEILINGS = (None, 64_000, 32_000)


def savings_by_replay(call: CommandCall, make: MakeGateway) -> int:
    """Plays the sessions at each setting and writes their costs; returns 1 if no session was played.
    Raises ValueError: there is no such folder, or an option cannot be used."""
    settings, options, err = call.settings, call.options, call.err
    for name in ("by", "since", "until", "tenant"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} is of what is stored: --replay has none")
    found = _read(Path(options.replay).expanduser(), options.limit, err)
    model = options.model or _first_model(settings, found)
    choices = [
        PlaySetting(tokens, mode, not options.unstored)
        for tokens, mode in product(options.max_input_tokens or CEILINGS, options.economy or [None])
    ]
    played = asyncio.run(_played(settings, make, model, choices, LIFETIMES[options.cache_lifetime or "5m"], found, err))
    if not played:
        err.write("no session was played\n")
        return 1
    if options.json:
        call.screen.json(_as_json(model, played))
    elif options.csv:
        call.screen.csv(SESSION_FIELDS, map(_record, played))
    else:
        _show(call.screen, played)
    return 0


def _read(folder: Path, limit: int | None, err: TextIO) -> list[RecordedSession]:
    found: list[RecordedSession] = []
    paid: set[str] = set()
    for path in transcripts(folder):
        name = path.name if path == folder else path.relative_to(folder).as_posix()
        try:
            read = read_sessions(path, name, partial(_tell_broken, err, name))
        except (ValueError, OSError) as error:
            err.write(f"left out: {name} {error}\n")
            continue
        for session in read:  # a client that forks or resumes one copies its lines to another file
            if copies := session.leave_out(paid):
                err.write(f"left out: {session.name} {copies} answers that another file has, too\n")
        paid.update(step.answer_id for session in read for step in session.steps if step.answer_id is not None)
        found += [session for session in read if session.steps]
    found.sort(key=lambda session: -len(session.steps))
    return found[:limit]


def _tell_broken(err: TextIO, name: str, lines: int) -> None:
    err.write(f"left out: {name} {lines} lines that are no JSON\n")


def _first_model(settings: Settings, found: Sequence[RecordedSession]) -> str:
    """Returns the model to price: the first configured, else the first recorded. Raises ValueError: there is none."""
    configured = next((each.model_name for each in settings.model_list if "*" not in each.model_name), None)
    named = configured or next((session.model for session in found if session.model), None)
    if named is None:
        raise ValueError("--model: name the model whose prices count, as in --model gpt-4o; model_list names none")
    return named


async def _played(
    settings: Settings,
    make: MakeGateway,
    model: str,
    choices: Sequence[PlaySetting],
    lifetime: float,
    found: Sequence[RecordedSession],
    err: TextIO,
) -> list[PlayedSession]:
    """Plays each session at each setting; returns them with the greatest cost ratio first."""
    played: list[PlayedSession] = []
    too_long: set[int] = set()
    with CommandProgress(err, "playing", "sessions") as counted:
        for setting in choices:
            player = SessionPlayer(settings, make, model, setting, lifetime)
            try:
                await player.open()
                for number, session in enumerate(found):
                    if number in too_long:
                        continue
                    try:
                        played.append(await player.play(session))
                    except TooLong as error:
                        too_long.add(number)
                        counted.wipe()
                        err.write(f"left out: {session.name} {error}, more than {model} takes\n")
                    counted()
            finally:
                await player.close()
    return sorted(played, key=lambda each: (-each.ratio, each.session, each.setting))


def _totals(played: Sequence[PlayedSession]) -> list[tuple[PlayedSession, Sequence[PlayedSession]]]:
    """Returns the total of each setting with its sessions, the setting with the most losses first."""
    found = []
    for setting in dict.fromkeys(each.setting for each in played):
        own = [each for each in played if each.setting == setting]
        total = PlayedSession("total", "", setting)
        for each in own:
            total.direct += each.direct
            total.gateway += each.gateway
            total.metered += each.metered
            for name in ("steps", "breaks", "cold_breaks", "quoted", "missing", "refused"):
                setattr(total, name, getattr(total, name) + getattr(each, name))
        found.append((total, own))
    return sorted(found, key=lambda each: (-sum(one.is_dearer for one in each[1]), -each[0].ratio))


def _show(screen: CommandScreen, played: Sequence[PlayedSession]) -> None:
    rows: list[list[Piece]] = []
    for total, own in _totals(played):
        dearer, worst = sum(each.is_dearer for each in own), max(each.ratio for each in own)
        counts = (str(len(own)), str(total.steps))
        money = (_ratio(worst), _ratio(total.ratio), _usd(total.direct), _usd(total.gateway))
        rows.append([total.setting, str(dearer), *money, *counts, *_counts(total)])
    screen.table([TableColumn("setting"), *SUM_COLUMNS], rows)
    screen.line("")
    screen.table(
        SESSION_COLUMNS,
        [
            [
                *(each.session, each.agent, each.setting, str(each.steps)),
                *(_ratio(each.ratio), _usd(each.direct), _usd(each.gateway)),
                *_counts(each),
            ]
            for each in played
        ],
    )


def _counts(each: PlayedSession) -> tuple[str, ...]:
    return str(each.breaks), str(each.cold_breaks), f"{each.missing} of {each.quoted}", str(each.refused)


def _usd(value: Decimal) -> str:
    return f"{value:.4f}"


def _ratio(value: Decimal) -> str:
    return str(value.quantize(RATIO))


def _record(each: PlayedSession) -> dict[str, Any]:
    money = {"direct_cost": each.direct, "gateway_cost": each.gateway, "ratio": each.ratio.quantize(RATIO)}
    counted = ("steps", "breaks", "cold_breaks", "quoted", "missing", "refused", "is_dearer")
    named = {"session": each.session, "agent": each.agent, "setting": each.setting}
    return named | money | {name: getattr(each, name) for name in counted} | {"metered_saving": each.metered}


def _as_json(model: str, played: Sequence[PlayedSession]) -> dict[str, Any]:
    totals = []
    for total, own in _totals(played):
        record = _record(total)
        for name in ("session", "agent", "is_dearer"):
            del record[name]
        worst = max(own, key=lambda each: each.ratio)
        record |= {"sessions": len(own), "dearer": sum(each.is_dearer for each in own)}
        totals.append(record | {"worst": {"session": worst.session, "ratio": worst.ratio.quantize(RATIO)}})
    return {
        "object": "savings.replay",
        "model": model,
        "totals": totals,
        "sessions": [_record(each) for each in played],
    }
