"""docs/cli.md is true: its examples print what it shows, and it names every command and option there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from console import examples, masked, run

from autogen_persistent_memory.cli.app import app, main

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if examples(page.read_text(encoding="utf-8"))]
ID = re.compile(r"\b[0-9a-f]{8}\b")


def test_there_are_examples() -> None:
    assert {"cli.md", "guide.md"} <= {page.name for page in WITH_EXAMPLES}


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOGEN_MEMORY_PATH", str(tmp_path / "memories"))
    real: dict[str, str] = {}
    shown = examples(page.read_text(encoding="utf-8"))
    assert len(shown) > 3
    for example in shown:
        command = ID.sub(lambda found: real[found[0]], example.command)
        printed = run(command, tmp_path)
        assert masked(printed) == masked(example.output), command
        real.update(zip(ID.findall(example.output), ID.findall(printed)))


def test_the_package_installs_the_command() -> None:
    assert 'autogen-memory = "autogen_persistent_memory.cli.app:main"' in (ROOT / "pyproject.toml").read_text()
    assert callable(main)


def commands() -> dict[str, typer.core.TyperCommand]:
    every = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name: command for name, command in every.items() if not command.hidden}


def test_every_command_is_in_a_heading() -> None:
    named = [
        name for heading in re.findall(r"^## (.*)", DOCUMENT, re.MULTILINE) for name in re.findall("`(.*?)`", heading)
    ]
    assert sorted(named) == sorted(commands())


def test_every_option_is_described_with_its_command() -> None:
    general, *sections = re.split(r"^## ", DOCUMENT, flags=re.MULTILINE)
    for name, command in commands().items():
        (section,) = [section for section in sections if f"`{name}`" in section.partition("\n")[0]]
        options = [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]
        missing = [
            option
            for option in options
            if option.startswith("--") and option != "--help" and not re.search(rf"{option}\b", general + section)
        ]
        assert missing == [], name
