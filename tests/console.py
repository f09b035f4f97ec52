"""Run the console examples of documents."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from autogen_persistent_memory.cli.app import app


@dataclass(frozen=True)
class Example:
    command: str
    output: str


def examples(text: str) -> list[Example]:
    """Return the commands of all `console` blocks that call autogen-memory, each with the output below it."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    found = [part.partition("\n") for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Example(command.strip(), output) for command, _, output in found if "autogen-memory" in command]


def run(command: str, folder: Path) -> str:
    """Run a command, which may read from a pipe and write to a file, and return its output."""
    left, pipe, right = (
        command.partition(" | autogen-memory ") if " | autogen-memory " in command else ("", "", command)
    )
    line, _, file = right.removeprefix("autogen-memory ").partition(" > ")
    input = subprocess.run(["sh", "-c", left], cwd=folder, capture_output=True, check=True).stdout if pipe else None
    result = CliRunner().invoke(app, shlex.split(line), input=input)
    assert not isinstance(result.exception, Exception), result.exception
    if file:
        (folder / file).write_text(result.stdout, encoding="utf-8")
        return result.stderr
    return result.stdout + result.stderr


def masked(text: str) -> str:
    """Mask what differs from run to run: ids, times, scores, sizes, folders."""
    text = re.sub(r"backup-[\d-]+", "backup", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "ID", text)
    text = re.sub(r"\b[0-9a-f]{8}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d\.\d+\+00:00)?", "TIME", text)
    text = re.sub(r"-?\b\d\.\d+\b", "N", text)
    text = re.sub(r'("bytes": )\d+', r"\1N", text)
    text = re.sub(r"/\S*/memories\b", "memories", text)
    return re.sub(r" +", " ", text).strip()
