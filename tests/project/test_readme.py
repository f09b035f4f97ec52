"""The README is true: its code runs, and it names what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from console import run
from documents import fences

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short_and_all_its_code_is_run_here() -> None:
    assert len(README.splitlines()) <= 122
    assert [language for language, _ in fences(README)] == ["console", "py", "console", "text", "console"]
    console = "".join(text for language, text in fences(README) if language == "console")
    assert set(re.findall(r"^\S+", console, re.MULTILINE)) == {"pip", "python", "make"}


def test_the_extras_that_the_readme_installs_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    installed = re.findall(r'pip install (?:-e )?"([\w.-]+)\[([\w,]+)\]"', README)
    assert [name for name, _ in installed] == ["autogen-persistent-memory", "."]
    for _, extras in installed:
        for extra in extras.split(","):
            assert f"\n{extra} = [" in project


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert f"\n{command}:" in makefile
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def masked(text: str) -> str:
    """A block without its id and the ages of its memories."""
    return re.sub(r'(?<=<memory id=")\w+|(?<=\()(?:just now|[^()]* ago)(?=\)\n)', "…", text)


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
    (shown,) = [text for language, text in fences(README) if language == "text"]
    assert masked(shown) in masked(second.stdout)
    _, _, after = second.stdout.partition("</memory>\n")
    assert "<memory" not in after
    assert after.strip() == commands[1]
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


def test_the_demo_keeps_its_memories_in_a_folder_that_is_named(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"}
    demo, kept = [sys.executable, str(ROOT / "samples" / "demo.py")], str(tmp_path / "my memories")
    printed = subprocess.run([*demo, kept], capture_output=True, text=True, env=environment, check=True)
    (command,) = re.findall(r"^Look at the memories: autogen-memory (.*)$", printed.stdout, re.MULTILINE)
    assert "The user prefers TypeScript." in run(f"autogen-memory {command}", tmp_path)
