"""The README is true: its code runs, and it names what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from autogen_core.models import ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient
from documents import code_blocks, run

import autogen_persistent_memory

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = code_blocks(README)


async def test_the_code_of_the_readme_runs_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 7
    calls_tools = ModelInfo(
        vision=False, function_calling=True, json_output=False, structured_output=False, family="unknown"
    )
    replies = ["Hello, Sarah.", "TypeScript.", "A fine choice.", "[]", "I will.", "The plan.", "At the plan."]
    client = ReplayChatCompletionClient(replies, model_info=calls_tools)
    for code in BLOCKS:
        await run(code, client=client)
    *_, block, question = client.create_calls[1]["messages"]
    assert "- The user prefers TypeScript. (just now)" in block.content
    assert question.content == "Which language should the example use?"
    printed = capsys.readouterr().out
    assert "- Uses PostgreSQL, because of JSONB" in printed
    assert "{'dark': True}" in printed
    assert "decision The user's team decided to use SQLite because it needs no server." in printed
    assert "lesson The user's team tried local files as a cache" in printed


def test_the_readme_names_every_public_name_once_in_its_table() -> None:
    table = README[README.index("## Every public name") :]
    named = re.findall(r"^\| `(\w+)", table, re.MULTILINE)
    assert sorted(named) == sorted(autogen_persistent_memory.__all__)


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{command}:" in makefile
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_quickstart_remembers_across_processes(home: Path, tmp_path: Path) -> None:
    (script,) = re.findall(r"```py\n(.*?)```", README, re.DOTALL)
    commands = re.findall(r'^python remember.py "(.*)"$', README, re.MULTILINE)
    offline = script.replace(
        "from autogen_ext.models.openai import OpenAIChatCompletionClient",
        "from autogen_ext.models.replay import ReplayChatCompletionClient",
    ).replace(
        'OpenAIChatCompletionClient(model="gpt-4o-mini")', "ReplayChatCompletionClient([])\n    client.create = echo"
    )
    assert offline != script
    echo = """
async def echo(messages, **_):
    from autogen_core.models import CreateResult, RequestUsage
    seen = "\\n".join(str(message.content) for message in messages)
    return CreateResult(
        content=seen, finish_reason="stop", usage=RequestUsage(prompt_tokens=0, completion_tokens=0), cached=False
    )
"""
    (tmp_path / "remember.py").write_text(echo + offline)
    first, second = (
        subprocess.run(
            [sys.executable, "remember.py", task], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        )
        for task in commands
    )
    assert "TypeScript" in first.stdout
    assert "- The user prefers TypeScript." in second.stdout
    assert first.stderr == second.stderr == ""


def test_the_demo_remembers_and_says_nothing_that_is_not_ours(home: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"}
    answer = subprocess.run(
        [sys.executable, "-W", "default", str(ROOT / "samples" / "demo.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=True,
    )
    assert answer.stderr == ""
    friday = answer.stdout[answer.stdout.index("Process 2") :]
    assert re.search(r"language.*?\n +injected preference  The user prefers TypeScript", friday)
    assert re.search(r"Mars\?\n +injected nothing", friday)
    assert list(home.iterdir()) == []
