"""Every suite of the storage once more, on content that is sealed (guarantee §12.11)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = (
    *("calibrations", "claims", "deletion", "earlier_path", "frames", "item_changes", "ledger", "outlines"),
    *("past_texts", "path_cache", "rebuild", "replays", "report_lists", "retention", "roll_ups", "store_paths"),
    *("stored_bills", "summaries", "tail", "things", "told_history", "tool_steps", "transfer", "user_purge"),
)
IN_CLEAR = (
    "test_the_latest_conversations_are_the_tenants_own",
    "test_s13_9_conversations_are_those_that_python_finds",
    "test_s13_1_a_question_is_one_line_and_found_whatever_its_case",
    "test_s13_18_a_list_reads_how_questions_begin_and_no_whole_messages",
    "test_s13_18_a_search_among_conversations_looks_at_some_and_says_where_it_ended",
    "test_s13_18_a_search_for_a_text_asks_for_pages",
    "test_the_next_sweep_empties_the_log_that_a_reader_kept",
)
"""They search for questions, or for a text in the files of the database: under a key, neither finds anything."""


@pytest.mark.chaos
def test_the_suites_of_the_storage_hold_under_a_key() -> None:
    files = [f"tests/integration/test_{name}.py" for name in SUITES]
    left_out = " and ".join(f"not {name}" for name in IN_CLEAR)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.under_a_key", "-k", left_out, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
