"""The benchmarks run. Their figures are not asserted, since the machine is noisy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_model import missing

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str, timeout: float = 120) -> str:
    """Run a benchmark, which must print nothing on stderr, and return its output."""
    command = [sys.executable, "-m", f"benchmarks.{script}", *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout


def conversation(names: tuple[str, str], sessions: list[list[str]], questions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a conversation of two speakers in LoCoMo's format."""
    said: dict[str, Any] = {"speaker_a": names[0], "speaker_b": names[1]}
    for session, texts in enumerate(sessions, start=1):
        said[f"session_{session}_date_time"] = f"1:5{session} pm on {session} May, 2023"
        said[f"session_{session}"] = [
            {"speaker": names[turn % 2], "dia_id": f"D{session}:{turn + 1}", "text": text}
            for turn, text in enumerate(texts)
        ]
    return {"sample_id": "-".join(names), "conversation": said, "qa": questions}


@pytest.fixture
def locomo(tmp_path: Path) -> str:
    """A file in LoCoMo's format with two short conversations; some evidence ids are misspelt, as in the original."""
    hiking = conversation(
        ("Caroline", "Melanie"),
        [
            ["I went hiking in the Alps last week!", "How nice. Did you take your dog along?", "Yes, Bruno loved it."],
            ["I start to learn the cello.", "My daughter plays the violin."],
        ],
        [
            {"question": "Where did Caroline go hiking?", "evidence": ["D1:1"], "category": 4},
            {"question": "Who came along to the Alps?", "evidence": ["D1:1; D1:3"], "category": 1},
            {"question": "When did Caroline start the cello?", "evidence": ["D:2:1"], "category": 2},
            {"question": "Would Melanie enjoy a concert?", "evidence": ["D2:02"], "category": 3},
            {"question": "What does Melanie's son play?", "evidence": ["D2:2"], "category": 5},
            {"question": "Is Caroline an ally?", "evidence": [], "category": 3},
        ],
    )
    baking = conversation(
        ("Jon", "Gina"),
        [["My bakery opened on Monday.", "Wow, congratulations!"], ["We bake bread with rye now.", "Rye is healthy."]],
        [
            {"question": "What did Jon open?", "evidence": ["D1:1"], "category": 4},
            {"question": "Which flour does the bread of Jon have?", "evidence": ["D2:1"], "category": 4},
        ],
    )
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([hiking, baking]), encoding="utf-8")
    return str(file)


def test_the_costs_are_measured_printed_and_written(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("Before\n<!-- bench:begin -->\nold figures\n<!-- bench:end -->\nAfter\n", encoding="utf-8")
    printed = run("cost.bench", "--scale", "tiny", "--out", str(tmp_path), timeout=300)
    found = json.loads((tmp_path / "results.json").read_text("utf-8"))
    sections = {section["title"]: section for section in found["sections"]}
    assert list(sections) == [
        "Turn cost",
        "Write cost",
        "Many users",
        "Event loop",
        "Cold start",
        "Where the time goes",
        "Footprint",
    ]
    assert len(found["bars"]) == 10

    turns = [dict(zip(sections["Turn cost"]["tables"][0]["columns"], row)) for row in of(sections["Turn cost"])]
    shown = {(turn["memories, embedding"], turn[""]): turn["messages"] for turn in turns}
    assert shown["40, MiniLM", "ours"] == 1
    assert shown["40, MiniLM", "ChromaDBVectorMemory"] == 2  # one for each turn
    assert shown["20, MiniLM", "ListMemory"] == 2
    assert shown["40, MiniLM", "no memory"] == 0

    stages = {row[0]: row[1] for row in of(sections["Where the time goes"])}
    assert all(stages[name] > 0 for name in ("embed", "keyword", "vector query", "rank", "block", "context update"))
    assert max(stages, key=lambda name: stages[name]) == "update_context"

    text = readme.read_text("utf-8")
    assert text.startswith("Before\n<!-- bench:begin -->\n")
    assert text.endswith("<!-- bench:end -->\nAfter\n")
    assert "old figures" not in text
    for bar in found["bars"]:
        assert bar["what"] in text
        assert bar["what"] in printed


def of(section: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of a section's first table."""
    rows: list[list[Any]] = section["tables"][0]["rows"]
    return rows


def test_the_dialogues_report_every_kind_of_query() -> None:
    ways = json.loads(run("retrieval.dialogues", "--first", "6", "--json"))["ways"]
    assert list(ways) == ["ours", "user's last", "last line", "everything"]
    assert set(ways["ours"]["all"]) == {"injected", "hit@1", "hit@3", "unexpected"}


def test_locomo_compares_all_systems_with_the_floor(locomo: str) -> None:
    systems = json.loads(run("retrieval.locomo", "--data", locomo, "--json"))["systems"]
    assert list(systems) == ["ours", "floor", "autogen", "bm25", "minilm"]
    assert {"R@5", "R@10", "R@20", "hit@1", "MRR", "NDCG@10", "p50 ms", "p95 ms", "p50 / floor"} < set(systems["ours"])
    assert systems["floor"]["p50 / floor"] == 1
    found = {row: figure for row, figure in systems["ours"].items() if row.startswith("R@10")}
    categories = ["1 multi-hop", "2 temporal", "3 open-domain", "4 single-hop", "5 adversarial"]
    assert found == dict.fromkeys(
        ["R@10", *(f"R@10 {name}" for name in categories)], 100
    )  # all evidence was understood


def test_locomo_compares_mixed_ages_with_relevance_alone(locomo: str) -> None:
    answer = json.loads(
        run("retrieval.locomo", "--data", locomo, "--ages", "half-yesterday", "--limit", "10", "--json")
    )
    assert list(answer["systems"]) == ["ours", "relevance"]
    assert "yesterday" in answer["benchmark"]
    assert "R@20" not in answer["systems"]["ours"]


def test_the_ablation_changes_one_part_at_a_time(locomo: str) -> None:
    ways = json.loads(run("retrieval.ablation", "--data", locomo, "--facts", "5", "--json"))["ways"]
    assert {"as it is", "without keywords", "without first person", "words not sharpened"} < set(ways)
    assert set(ways["as it is"]) > {"R@10", "1 multi-hop", "facts hit@1"}


def test_the_paraphrases_run_and_print_a_table() -> None:
    assert "p50 / floor" in run("retrieval.paraphrase", "--system", "ours", "--system", "floor")


def test_silence_draws_falling_curves_and_marks_the_default(locomo: str) -> None:
    answer = json.loads(run("retrieval.silence", "--data", locomo, "--json"))
    for name in ("messages", "facts"):
        for line in ("kept", "foreign"):
            shares = [point[line] for point in answer[name]["curve"]]
            assert shares == sorted(shares, reverse=True)
        assert set(answer[name]["default"]) == {"threshold", "kept", "foreign"}


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.xdist_group("small model")
def test_a_real_model_is_asked_with_and_without_memory() -> None:
    answer = json.loads(run("retrieval.llm", "--first", "1", "--json"))
    assert answer["questions"] == answer["in the block"] == 1
    assert all(row["with"] and row["without"] for row in answer["rows"])
    assert answer["right without memory"] == 0
