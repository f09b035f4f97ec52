"""The documents are true: their code runs and does what they say."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from autogen_core.models import ModelInfo
from autogen_ext.experimental.task_centric_memory._memory_bank import Memo
from autogen_ext.models.replay import ReplayChatCompletionClient
from chromadb.api.shared_system_client import SharedSystemClient
from documents import anchors, code_blocks, fences, prose, run, sections
from toys import chroma_words

import autogen_persistent_memory
from autogen_persistent_memory import PersistentMemory, ProfileMemory, RecallPolicy, SessionMemory, testing
from autogen_persistent_memory.core import checks
from autogen_persistent_memory.storage import protocol

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
RUN_ELSEWHERE = {"migrating.md": "below, section by section", "moving.md": "in tests/maintenance/test_transfer.py"}
MARKDOWN = [
    *PAGES,
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "samples" / "README.md",
    ROOT / "benchmarks" / "README.md",
]
NOTEBOOKS = sorted((ROOT / "samples").glob("*.ipynb"))
MIGRATING = sections((DOCS / "migrating.md").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the relative paths of the documents lead."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def run_section(title: str, *answers: str, blocks: int) -> tuple[dict[str, object], str]:
    """Run a section of the guide; what it defined last, and what the model saw first."""
    client = ReplayChatCompletionClient(list(answers))
    code = code_blocks(MIGRATING[title])
    assert len(code) == blocks
    defined: dict[str, object] = {}
    for block in code:
        defined = await run(block, client=client, my_embedding_function=chroma_words)
    calls = client.create_calls
    return defined, "\n".join(str(message.content) for message in calls[0]["messages"]) if calls else ""


async def contents() -> list[str]:
    async with PersistentMemory("user-42") as memory:
        return sorted(record.content for record in await memory.profile.records())


async def test_a_chromadb_vector_memory_is_taken_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, seen = await run_section("From `ChromaDBVectorMemory`", "Celsius.", blocks=2)
    assert "- The user wants temperatures in Celsius" in seen
    assert capsys.readouterr().out == "1 memories taken over\n"
    (record,) = await (memory := PersistentMemory("user-42")).profile.records()
    await memory.close()
    assert record.metadata == {"category": "units"}
    while "./chroma_db" in SharedSystemClient._identifier_to_system:  # which it leaves open
        SharedSystemClient._release_system("./chroma_db")


def stored_by_mem0() -> list[dict[str, object]]:
    """As its documentation shows what `get_all` gives."""
    return [
        {
            "id": "c190ab1a-a2f1-4f6f-914a-495e9a16b76e",
            "memory": "Likes the colour blue",
            "hash": "b8f4",
            "metadata": {"room": "kitchen"},
            "categories": ["preferences"],
            "created_at": "2025-07-06T17:25:18.754725-07:00",
            "updated_at": None,
            "user_id": "user-42",
        },
        {"id": "2", "memory": "Has two cats", "created_at": "2024-01-02T03:04:05Z", "metadata": None},
    ]


@pytest.mark.parametrize("shape", [list, lambda found: {"results": found}], ids=["list", "results"])
async def test_what_mem0_lists_is_taken_over(folder: Path, shape: type) -> None:
    (folder / "mem0.json").write_text(json.dumps(shape(stored_by_mem0())))
    _, seen = await run_section("From `Mem0Memory`", "Blue.", blocks=1)
    assert "- Likes the colour blue" in seen
    async with PersistentMemory("user-42") as memory:
        cats, blue = sorted(await memory.profile.records(), key=lambda record: record.created_at)
    assert (blue.tags, blue.metadata, blue.created_at.isoformat()) == (
        ("preferences",),
        {"room": "kitchen"},
        "2025-07-07T00:25:18.754725+00:00",
    )
    assert (cats.content, cats.created_at.year) == ("Has two cats", 2024)


async def test_the_insights_of_teachability_in_0_7_are_taken_over(folder: Path) -> None:
    memos = {
        "1": Memo(task="A riddle", insight="To tell liars from truth-tellers, ask what the other one would say."),
        "2": Memo(task=None, insight="Halibut is the user's favourite food"),
    }
    bank = folder / "memory_bank" / "default"
    bank.mkdir(parents=True)
    (bank / "uid_memo_dict.pkl").write_bytes(pickle.dumps(memos))
    _, seen = await run_section("From Teachability of AutoGen 0.7", "Ask.", "[]", "[]", blocks=1)
    assert "- To tell liars from truth-tellers, ask what the other one would say." in seen
    assert "avoid" not in seen
    assert {memo.insight for memo in memos.values()} <= set(await contents())


async def test_the_memos_of_teachability_in_0_2_are_taken_over(folder: Path) -> None:
    memos = {"1": ("Where does the dog sleep?", "The user's dog sleeps in the kitchen."), "2": ("Who?", "Ann.")}
    (folder / "tmp" / "teachable_agent_db").mkdir(parents=True)
    (folder / "tmp" / "teachable_agent_db" / "uid_text_dict.pkl").write_bytes(pickle.dumps(memos))
    _, seen = await run_section("From Teachability of AutoGen 0.2", "In the kitchen.", blocks=1)
    assert "- The user's dog sleeps in the kitchen." in seen
    assert {"The user's dog sleeps in the kitchen.", "Ann."} <= set(await contents())


async def test_hooks_become_memory_and_context_and_old_chats_are_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "user_proxy", "content": "I am allergic to nuts."},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "name": "assistant", "content": "I am allergic to cats."},
    ]
    (folder / "chat.json").write_text(json.dumps(chat))
    await run_section("From hooks of AutoGen 0.2", "Hello, Ann.", blocks=2)
    assert re.findall("allergic to .*", capsys.readouterr().out) == ["allergic to nuts."]
    assert "The user's name is Ann." in await contents()


async def test_a_memory_is_loaded_with_its_namespace_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEN_ALLOWED_PROVIDER_NAMESPACES", "mine")
    defined, _ = await run_section("AutoGen's next release", blocks=2)
    assert os.environ["AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"] == "mine,autogen_persistent_memory"
    memory = defined["memory"]
    assert isinstance(memory, PersistentMemory)
    module, _, name = memory.dump_component().provider.rpartition(".")
    assert (module, name) == ("autogen_persistent_memory", "PersistentMemory")


def test_every_way_to_come_here_has_a_before_and_an_after() -> None:
    ways = [section for title, section in MIGRATING.items() if title.startswith("From")]
    assert len(ways) == 5
    for section in ways:
        assert "\nBefore: " in section
        assert "\nAfter" in section
        assert "What differs:" in section


def text_of(document: Path) -> str:
    """What a document or the Markdown of a notebook says."""
    text = document.read_text(encoding="utf-8")
    if document.suffix != ".ipynb":
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def scripted() -> ReplayChatCompletionClient:
    calls_tools = ModelInfo(
        vision=False, function_calling=True, json_output=False, structured_output=False, family="unknown"
    )
    return ReplayChatCompletionClient(["[]"] * 30, model_info=calls_tools)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_is_either_run_or_marked_as_something_else(page: Path) -> None:
    languages = {language for language, _ in fences(text_of(page))}
    assert languages <= {"python", "python before", "py", "console", "text"}
    assert "py" not in languages or page.name in ("cookbook.md", "extending.md")  # run by test_cookbook and below
    assert "python before" not in languages or page.name == "migrating.md"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in RUN_ELSEWHERE and code_blocks(text_of(page))],
    ids=lambda page: page.name,
)
async def test_the_code_of_a_page_runs_in_order_and_does_what_it_says(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = scripted()
    for code in code_blocks(text_of(page)):
        await run(code, client=client)
    printed = capsys.readouterr().out
    for text in PRINTED.get(page.name, []):
        assert text in printed
    if page.name == "guide.md":
        *_, block, question = client.create_calls[1]["messages"]
        assert "- The user prefers TypeScript. (just now)" in block.content
        assert question.content == "Which language should the example use?"
    if page.name == "how-it-ranks.md":
        (shown,) = [text for language, text in fences(text_of(page)) if language == "text"]
        assert re.sub(r"\d\.\d+", "N", printed) == re.sub(r"\d\.\d+", "N", shown)


PRINTED = {
    "guide.md": ["- Uses PostgreSQL, because of JSONB", "{'dark': True}", "('user',) 1 False", "session='monday'"],
    "how-it-remembers.md": [
        "decision The user's team decided to use SQLite because it needs no server.",
        "lesson The user's team tried local files as a cache",
    ],
    "teams.md": ["web-shop ('user', 'writer') 2 True"],
    "privacy.md": ["1 1 Traces("],
    "cookbook.md": ["- Prefers green tea"],
    "extending.md": ["- Prefers green tea", "The user's latest order is 4712.\nThe user prefers green tea.\n"],
}


def test_the_suite_for_stores_runs_as_the_page_says(folder: Path) -> None:
    ((_, suite),) = [fence for fence in fences(text_of(DOCS / "extending.md")) if fence[0] == "py"]
    toy = (ROOT / "tests" / "testing" / "toy_store.py").read_text(encoding="utf-8")
    assert f"in {len(toy.splitlines())} lines" in text_of(DOCS / "extending.md")
    (folder / "my_store.py").write_text(toy.replace("ToyStore", "MyStore"), encoding="utf-8")
    (folder / "test_my_store.py").write_text(suite, encoding="utf-8")
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_store.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d\d passed", done.stdout, re.MULTILINE)


def test_the_page_on_extending_names_every_member_of_a_store_and_every_helper_for_tests() -> None:
    told = sections(text_of(DOCS / "extending.md"))
    for name in ("MemoryStore", "Connection", "RecordTable", "ValueTable"):
        (row,) = re.findall(rf"^\| `{name}` \| (.*?) \|", told["A store"], re.MULTILINE)
        members = [member for member in vars(getattr(protocol, name)) if not member.startswith("_")]
        assert re.findall(r"`(\w+)`", row) == members
    assert sorted(re.findall(r"^\| `(\w+)", told["Tests"], re.MULTILINE)) == sorted(testing.__all__)


async def test_the_block_is_shown_alike_everywhere() -> None:
    blocks = {
        text
        for page in MARKDOWN
        for language, text in fences(text_of(page))
        if language == "text" and text.startswith("<memory")
    }
    assert len(blocks) == 1


@pytest.mark.parametrize("document", [*MARKDOWN, *NOTEBOOKS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    text = text_of(document)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), target
        assert not anchor or anchor in anchors(text_of(there)), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_of_contents_leads_to_every_section(page: Path) -> None:
    text = text_of(page)
    beginning, *rest = re.split(r"^## ", prose(text), flags=re.MULTILINE)
    listed = re.findall(r"\]\(#([\w-]+)\)", beginning)
    if listed:
        assert listed == anchors("".join(f"## {section}" for section in sections(prose(text))).replace("## ", "\n## "))
    else:
        assert len(rest) <= 10


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", text_of(DOCS / "index.md"))
    assert sorted(listed) == sorted(page.name for page in PAGES if page.name != "index.md")


def test_every_public_name_is_in_the_table_once() -> None:
    table, *_ = text_of(DOCS / "api.md").split("\n## ")
    assert sorted(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == sorted(autogen_persistent_memory.__all__)


def test_every_method_is_in_the_table_and_is_where_it_says() -> None:
    table = sections(text_of(DOCS / "api.md"))["Methods of a memory"]
    memories = (PersistentMemory, ProfileMemory, SessionMemory)
    listed: dict[type, set[str]] = {memory: {"namespace", "policy", "profile", "session"} for memory in memories}
    for first, *cells in (line.strip("| ").split("|") for line in table.splitlines() if line.startswith("| ")):
        for memory, cell in zip(memories, [*cells, "", ""]):
            if "yes" in cell:
                listed[memory] |= set(re.findall(r"`(\w+)`", first))
    for memory, names in listed.items():
        own = {name for base in memory.__mro__ if "persistent_memory" in base.__module__ for name in vars(base)}
        public = {name for name in own if not name.startswith(("_", "component_")) and name not in INTERNAL}
        assert public <= names, memory
        assert all(hasattr(memory, name) for name in names - {"profile", "session"}), memory


INTERNAL = {"part_of", "saving"}


def test_every_error_has_a_remedy() -> None:
    rows = re.findall(r"^\| `(\w+Error)`", text_of(DOCS / "troubleshooting.md"), re.MULTILINE)
    assert set(rows) - {"ValueError"} == {name for name in autogen_persistent_memory.__all__ if name.endswith("Error")}


def message(node: ast.expr) -> str:
    """A text in the code, with "…" where it is filled in."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%[sdrg]", "…", node.value) if isinstance(node.value, str) else "…"
    if isinstance(node, ast.JoinedStr):
        return "".join(map(message, node.values))
    if isinstance(node, ast.FormattedValue):
        return message(node.value) if isinstance(node.value, (ast.IfExp, ast.JoinedStr)) else "…"
    return message(node.body) if isinstance(node, ast.IfExp) else "…"


def quoted() -> list[str]:
    """What the documents quote from errors, logs and commands that no test runs, cut where values are filled in."""
    troubleshooting, cli = (text_of(DOCS / name) for name in ("troubleshooting.md", "cli.md"))
    texts = re.findall(r"^\| `\w+Error` ([^,|].*?) \|", sections(troubleshooting)["Errors"], re.MULTILINE)
    texts += re.findall(r"^\| (?!the log says|---)(.*?) \|", sections(troubleshooting)["Log lines"], re.MULTILINE)
    texts += [line for language, text in fences(cli) if language == "text" for line in text.splitlines()]
    parts = [
        part
        for text in texts
        if text[0] != "$"
        for part in re.split(r"…|\bprofile of\b|\d[\d,]*|'[^']*'|/\S+|[.:](?:\s|$)", text)
    ]
    return [part.strip() for part in parts if len(part.split()) > 2 and "trusted namespace" not in part]  # AutoGen's


def test_the_package_still_says_what_the_documents_quote() -> None:
    files = (ROOT / "autogen_persistent_memory").rglob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    said = "\n".join(message(node) for node in nodes if isinstance(node, (ast.Constant, ast.JoinedStr)))
    assert len(quoted()) > 20
    assert [part for part in quoted() if part not in said] == []


def test_modules_that_the_documents_name_exist() -> None:
    gone = {"_memory"}  # what 0.1 had
    for document in [*MARKDOWN, *NOTEBOOKS]:
        for path in re.findall(r"\bautogen_persistent_memory((?:\.[a-z_]+)+)\b", document.read_text(encoding="utf-8")):
            first, *rest = path.strip(".").split(".")
            if first not in gone and not path.endswith("__all__"):
                importlib.import_module(".".join(["autogen_persistent_memory", first, *rest]))


def test_the_settings_of_the_ranking_have_the_defaults_that_are_told() -> None:
    told = re.findall(r"`(\w+)` \| (−?[\d.]+|`\{.*\}`) \|", text_of(DOCS / "how-it-ranks.md"))
    assert len(told) == 11
    for name, default in told:
        expected = json.loads(default.strip("`").replace("−", ""))
        assert getattr(RecallPolicy(), name) == expected, name


def test_the_limits_are_those_that_are_told() -> None:
    told = sections(text_of(DOCS / "guide.md"))["Limits"]
    for limit in (
        "CONTENT",
        "TAGS",
        "TAG",
        "KEY",
        "SOURCE",
        "NAME",
        "KIND",
        "METADATA",
        "DEPTH",
        "VALUE",
        "LINE_BYTES",
    ):
        assert re.search(rf"\b{getattr(checks, f'MAX_{limit}'):,}\b", told), limit


def test_every_environment_variable_is_told() -> None:
    package = ROOT / "autogen_persistent_memory"
    read = {name for file in package.rglob("*.py") for name in re.findall(r"AUTOGEN_MEMORY_[A-Z]+", file.read_text())}
    assert read
    assert read <= set(re.findall(r"^\| `(\w+)`", text_of(DOCS / "api.md"), re.MULTILINE))


def test_the_supported_versions_are_those_that_pip_installs() -> None:
    project, told = ((ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "docs/compatibility.md"))
    for package, row in (("autogen-core", "AutoGen (`autogen-core`"), ("chromadb", "Chroma (`chromadb`)")):
        ((least, below),) = re.findall(rf'"{package}>=([\d.]+),<([\d.]+)"', project)
        assert re.search(
            rf"^\| {re.escape(row)}.*?\| {re.escape(least)} up to {re.escape(below)} \|", told, re.MULTILINE
        )
    (python,) = re.findall(r'requires-python = ">=([\d.]+)"', project)
    assert f"| Python | {python} or newer |" in told


NOT_OUR_WORDS = re.compile(
    r"\b(?:anew|lest|whoever|so many|put by|no good|how manieth)\b|(?<!\bthere )\bis no (?!longer\b)\w+", re.IGNORECASE
)


@pytest.mark.parametrize(
    "document",
    [*MARKDOWN, *NOTEBOOKS],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_documents_speak_plainly(document: Path) -> None:
    assert NOT_OUR_WORDS.findall(prose(text_of(document))) == []
