"""The benchmarks run. What they measure is not asserted: the machine is noisy."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_the_comparison_runs_and_prints_its_table() -> None:
    answer = subprocess.run(
        [sys.executable, str(BENCHMARKS / "compare.py"), "--memories", "16", "--turns", "2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "prompt tokens in all" in answer.stdout
    assert answer.stderr == ""


def test_the_dialogues_run_and_report_every_way_to_ask() -> None:
    answer = subprocess.run(
        [sys.executable, str(BENCHMARKS / "dialogues.py"), "--first", "6", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    ways = json.loads(answer.stdout)["ways"]
    assert list(ways) == ["ours", "user's last", "last line", "everything"]
    assert set(ways["ours"]["all"]) == {"injected", "hit@1", "hit@3", "unexpected"}
    assert answer.stderr == ""
