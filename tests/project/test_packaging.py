"""The published archives have the right files, and an index page can show the description."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "autogen_persistent_memory"
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "dist", "tests")
STRAYS = [
    ".DS_Store",
    ".env",
    "notes.txt",
    "dist/old.tar.gz",
    f"{PACKAGE}/.DS_Store",
    f"{PACKAGE}/notes.txt",
    f"{PACKAGE}/text/data/draft.md",
    f"{PACKAGE}/__pycache__/cli.cpython-311.pyc",
]


def expected_in_package() -> set[str]:
    files = (path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGE).rglob("*.py"))
    return {*files, *(f"{PACKAGE}/{name}" for name in ("py.typed", "text/data/NOTICE", "text/data/minilm-vocab.txt"))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and a wheel, built from a copy of the project with stray files."""
    folder = tmp_path_factory.mktemp("packaging")
    project = folder / "project"
    shutil.copytree(ROOT, project, ignore=LEFT_OUT)
    for stray in STRAYS:
        (project / stray).parent.mkdir(exist_ok=True)
        (project / stray).write_text("stray")
    build = f"from hatchling.build import build_sdist, build_wheel; build_sdist({str(folder)!r}); build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=project, check=True, stdout=subprocess.DEVNULL)
    return folder


def test_the_sdist_has_no_stray_files(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert names == {"PKG-INFO", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} | expected_in_package()


def test_the_wheel_has_only_the_package(built: Path) -> None:
    (archive,) = built.glob("*.whl")
    with zipfile.ZipFile(archive) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == expected_in_package()


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    """The metadata that an index reads."""
    (archive,) = built.glob("*.whl")
    with zipfile.ZipFile(archive) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(wheel.read(name).decode("utf-8"))


def test_the_metadata_names_urls_and_python_versions(metadata: Message) -> None:
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Issues", "Changelog"} <= set(urls)
    assert all(url.startswith("https://") for url in urls.values())
    classifiers = metadata.get_all("Classifier", [])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12, 13)} <= set(classifiers)


def test_the_links_of_the_readme_work_on_an_index_page(metadata: Message) -> None:
    description = metadata.get_payload()
    assert isinstance(description, str)
    prose = re.sub(r"```.*?```", "", description, flags=re.DOTALL)
    defined = {name.lower(): url for name, url in re.findall(r"^\[([^\]]+)\]: (\S+)$", prose, re.MULTILINE)}
    named = [name.lower() for name in re.findall(r"(?<!\\)\[(?=[A-Za-z])([^\]]+)\](?![\[(:])", _without_code(prose))]
    assert set(named) == set(defined)
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", prose)
    targets = [*defined.values(), *(first or second for first, second in links)]
    anchors = {_anchor(heading) for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}
    for target in targets:
        assert target.startswith("https://") or target.removeprefix("#") in anchors, target
    home = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL", []))["Homepage"]
    ours = [target for target in targets if target.startswith(home)]
    assert ours
    for target in ours:
        path, _, anchor = target.removeprefix(f"{home}/blob/main/").partition("#")
        assert (ROOT / path).is_file(), target
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not anchor or anchor in map(_anchor, re.findall(r"^#+ (.*)$", text, re.MULTILINE)), target


def _without_code(text: str) -> str:
    return re.sub(r"`[^`]*`", "", text)


def _anchor(heading: str) -> str:
    """Return the anchor of a heading on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
