"""The options of `gateway savings`."""

import argparse
from collections.abc import Callable
from typing import get_args

from gateway.core.types.bill import EconomyMode

LIFETIMES = {"5m": 300.0, "1h": 3600.0}
"""How long a provider keeps a prompt that nobody uses, in seconds."""
MODES = get_args(EconomyMode)


def add_savings_options(parser: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """`count`: reads a whole number of 1 or more."""

    def budgets(text: str) -> list[int | None]:
        return [None if each.strip() == "none" else count(each.strip()) for each in text.split(",")]

    def modes(text: str) -> list[str]:
        found = [each.strip() for each in text.split(",")]
        for each in found:
            if each not in MODES:
                raise argparse.ArgumentTypeError(f"{each!r} is none of {', '.join(MODES)}")
        return found

    what = "transcripts: of Claude Code (~/.claude/projects), Codex (~/.codex/sessions), or OpenAI's messages"
    parser.add_argument("--replay", metavar="FOLDER", help=f"instead of stored requests, {what}")
    parser.add_argument("--model", metavar="M", help="price sessions for this model (default: the first configured)")
    windows = "what each session would have cost with these, `none`: the whole window (default: none,64000,32000)"
    parser.add_argument("--max-input-tokens", metavar="N,N", type=budgets, default="none,64000,32000", help=windows)
    parser.add_argument("--economy", metavar="MODES", type=modes, help=f"the same with each of {', '.join(MODES)}")
    parser.add_argument("--unstored", action="store_true", help="replay as clients that send `store: false`")
    kept = "lifetime of the provider's prompt cache: 5m or 1h (default: %(default)s)"
    parser.add_argument("--cache-lifetime", choices=LIFETIMES, default="5m", help=kept)
    parser.add_argument(
        "--limit", metavar="N", type=count, help="rows of a table; with --replay: the N longest sessions"
    )
    groups = "day, model, key, project, tenant, user, agent, endpoint, conversation"
    text = f"without --replay, a table for each of these: {groups}; join several with + (default: day,model,key)"
    parser.add_argument("--by", metavar="GROUPS", help=text)
    parser.add_argument("--since", metavar="WHEN", help="requests received since: 7d, yesterday, a date")
    parser.add_argument("--until", metavar="WHEN", help="requests received before")
    parser.add_argument("--tenant", metavar="T", help="those of this tenant")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument(
        "--csv", action="store_true", help="CSV, one line for each group, or for each session and setting"
    )
