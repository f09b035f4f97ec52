"""The tools around the code agree with each other: make, pre-commit, coverage, and GitHub's forms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def recipe(target: str) -> list[str]:
    """The commands that make runs for a target, one a line; what it only prints is left out."""
    (found,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    lines = found.replace("\\\n", " ").splitlines()
    commands = (re.sub(r"\s+", " ", line).strip(" @") for line in lines)
    return [command.replace("$(BIN)", ".venv/bin") for command in commands if not command.startswith("echo ")]


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_pre_commit_runs_exactly_what_make_lint_runs_and_downloads_nothing() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = repository["hooks"]
    linted = [command.partition(" > ")[0] for command in recipe("lint")]
    assert len(linted) == 4
    assert [hook["entry"] for hook in hooks] == linted
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks)


def test_make_test_lints_first() -> None:
    assert re.search(r"^test: lint$", MAKEFILE, re.MULTILINE)


def test_every_target_is_phony_and_in_the_help() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    targets = re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE)
    assert sorted(phony.split()) == sorted(targets)
    helped = re.findall(r'^\t@echo "make (\w+)', MAKEFILE, re.MULTILINE)
    assert set(targets) - set(helped) == {"help", "lint"}


def test_make_coverage_installs_its_group_and_fails_with_the_tests() -> None:
    install, _, run = recipe("coverage")
    assert "pip install" in install
    assert install.endswith("--group coverage")
    assert re.search(r"coverage run -m pytest \$\(TESTS\); tests=\$\$\?; .* combine .* report .* exit \$\$tests$", run)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^coverage = \["coverage>=7\.1\d"\]$', project, re.MULTILINE)  # `patch` came with 7.10
    (settings,) = re.findall(r"^\[tool\.coverage\.run\]\n((?:\w.*\n)+)", project, re.MULTILINE)
    assert 'patch = ["subprocess"]' in settings
    assert "branch = true" in settings


def test_groups_that_make_installs_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for group in re.findall(r"--group (\w+)", MAKEFILE):
        assert re.search(rf"^{group} = \[", project, re.MULTILINE), group


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_forms_for_issues_are_valid(form: Path) -> None:
    found = read(form)
    if form.name == "config.yml":
        assert found["blank_issues_enabled"] is False
        assert all(link["url"].startswith("https://") and link["about"] for link in found["contact_links"])
        return
    assert found["name"]
    assert found["description"]
    asked = [field for field in found["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in asked} <= {"textarea", "input", "dropdown", "checkboxes"}
    ids = [field["id"] for field in asked]
    assert len(set(ids)) == len(ids)
    assert all(field["attributes"]["label"] for field in asked)


def test_there_are_forms() -> None:
    assert [form.name for form in FORMS] == ["bug.yml", "config.yml", "feature.yml"]


def test_vulnerabilities_are_reported_in_private() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "private vulnerability reporting" in policy
    assert re.findall(r"\S+@\S+\.\w+", policy) == []
