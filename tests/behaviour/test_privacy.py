"""Files on disk are private to their owner, and planted links are not followed."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from toys import words

from autogen_persistent_memory import (
    EmbeddedStore,
    PersistentMemory,
    PersistentMemoryError,
    StoreLockedError,
    StoreUnavailableError,
    TemporaryStore,
    export_memories,
    snapshot,
)
from autogen_persistent_memory.maintenance.doctor import diagnose
from autogen_persistent_memory.storage.folder_lock import FolderLock, holder_of
from autogen_persistent_memory.storage.outbox import Outbox, outbox_of

SESSION = """
import asyncio, os, sys
from pathlib import Path

os.umask(int(sys.argv[2], 8))
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import words
from autogen_persistent_memory import EmbeddedStore, PersistentMemory, ServerStore, export_memories, snapshot
from autogen_persistent_memory.maintenance.doctor import repair

root = Path(sys.argv[1])
store = EmbeddedStore(root / "deep" / "below" / "store")

async def session(memory, *tasks):
    agent = AssistantAgent("assistant", ReplayChatCompletionClient(["All right."] * len(tasks)), memory=[memory])
    team = RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))
    for task in tasks:
        await team.run(task=task)
        await team.reset()
    return team

async def main():
    async with PersistentMemory("ann", session="monday", store=store, embedding=words()) as memory:
        team = await session(memory, "I live in Porto.", "I have two cats.")
        await memory.session.save(team)
        await memory.set("theme", "dark")
        await export_memories(store, root / "all.jsonl", vectors=True, progress=False)
        await snapshot(store, root / "copies" / "monday", progress=False)
    async with PersistentMemory("bob", store=store, embedding=words("other")) as memory:
        await memory.remember("Plays chess")
    orphan = store.folder() / "00000000-1111-2222-3333-444444444444"
    orphan.mkdir()
    (orphan / "header.bin").touch()
    report = await repair(store, embedding=words(), progress=False)
    assert report.backup and not report.left, report
    database = store.folder() / "chroma.sqlite3"
    with database.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(os.urandom(4096 * 3))
    report = await repair(store, embedding=words(), progress=False)
    assert report.recovered and not report.left, report
    async with PersistentMemory("ann", store=store, embedding=words()) as memory:
        assert await memory.count()
    server = ServerStore("127.0.0.1", 9, timeout=1, outbox=root / "waiting" / "outbox")
    async with PersistentMemory("ann", store=server, embedding=words()) as memory:
        await session(memory, "My order is late.")
    assert list((root / "waiting").rglob("*.jsonl"))

asyncio.run(main())
"""


def modes(root: Path) -> dict[str, str]:
    """Return each path in a folder whose mode is not private."""
    wanted = {stat.S_IFDIR: 0o700, stat.S_IFREG: 0o600}
    found = {path: path.lstat().st_mode for path in root.rglob("*")}
    return {
        str(path.relative_to(root)): oct(mode)
        for path, mode in found.items()
        if stat.S_IMODE(mode) & ~wanted[stat.S_IFMT(mode)]
    }


@pytest.mark.parametrize("umask", ["022", "000"])
def test_all_files_of_a_session_are_private(tmp_path: Path, umask: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    command = [sys.executable, "-c", SESSION, str(root), umask]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert modes(root) == {}
    left = {path.name.split("-")[0] for path in root.rglob("*")}
    for name in ("chroma.sqlite3", "data_level0.bin", "all.jsonl", "monday", "lock", "outbox", "other"):
        assert name in left
    for name in ("lock", "state.json", "backup", "damaged"):
        assert f"autogen_memory.{name}" in left


@pytest.mark.parametrize("umask", [0o022, 0])
def test_a_server_that_shares_a_store_leaves_private_files(tmp_path: Path, umask: int) -> None:
    command = [sys.executable, "-m", "autogen_persistent_memory.cli", "share", "--port", "0", "--json"]
    process = subprocess.Popen([*command, "--path", str(tmp_path / "store")], stdout=subprocess.PIPE, umask=umask)
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        asyncio.run(_remember_on(port))
    finally:
        process.terminate()
        process.communicate()
    assert modes(tmp_path / "store") == {}
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


async def _remember_on(port: int) -> None:
    from autogen_persistent_memory import ServerStore

    async with PersistentMemory("ann", store=ServerStore("127.0.0.1", port), embedding=words()) as memory:
        await memory.remember("Prefers tea")


async def _remember(path: Path) -> None:
    async with PersistentMemory("ann", store=EmbeddedStore(path), embedding=words()) as memory:
        await memory.remember("Prefers tea")


def test_an_existing_folder_keeps_its_mode_and_the_doctor_reports_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "papers").mkdir(parents=True)
    (store / "papers" / "letter.txt").touch()
    store.chmod(0o755)
    asyncio.run(_remember(store))
    assert stat.S_IMODE(store.stat().st_mode) == 0o755
    strangers = {"papers": oct(stat.S_IFDIR | 0o755), "papers/letter.txt": oct(stat.S_IFREG | 0o644)}
    assert modes(store) == strangers  # whose modes are not ours to change
    (finding,) = asyncio.run(diagnose(EmbeddedStore(store)))
    assert (finding.problem, finding.is_harmless, finding.repairable) == ("open folder", True, False)
    assert "its mode is 755" in str(finding)
    assert "chmod 700" in str(finding)
    store.chmod(0o700)
    assert asyncio.run(diagnose(EmbeddedStore(store))) == []


def test_opening_a_store_of_an_earlier_version_makes_its_files_private(tmp_path: Path) -> None:
    store = tmp_path / "store"
    asyncio.run(_remember(store))
    for path in store.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)

    async def look() -> None:
        memory = PersistentMemory("ann", store=EmbeddedStore(store), embedding=words())
        await memory.recall("tea")
        assert await asyncio.to_thread(modes, store) == {}
        await memory.close()

    asyncio.run(look())


# Links


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    """A file of the user's, to which links point."""
    file = tmp_path / "diary.txt"
    file.write_text("Dear diary")
    file.chmod(0o644)
    return file


@pytest.mark.parametrize("name", ["autogen_memory.holder.json", "autogen_memory.state.json"])
def test_a_link_instead_of_our_file_is_replaced_not_followed(tmp_path: Path, diary: Path, name: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / name).symlink_to(diary)
    asyncio.run(_remember(store))
    assert diary.read_text() == "Dear diary"
    assert stat.S_IMODE(diary.stat().st_mode) == 0o644
    assert not (store / name).is_symlink()


def test_a_link_instead_of_the_lock_file_is_refused(tmp_path: Path, diary: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "autogen_memory.lock").symlink_to(diary)
    with pytest.raises(StoreUnavailableError, match=r"autogen_memory.lock.*|it is a link") as refusal:
        asyncio.run(_remember(store))
    assert "remove it" in str(refusal.value)
    assert diary.read_text() == "Dear diary"


def test_targets_of_links_keep_their_modes(tmp_path: Path, diary: Path) -> None:
    store = tmp_path / "store"
    asyncio.run(_remember(store))
    (store / "autogen_memory.backup-x").symlink_to(diary)
    (store / "chroma.sqlite3-old").symlink_to(tmp_path)
    asyncio.run(_remember(store))
    assert stat.S_IMODE(diary.stat().st_mode) == 0o644


def test_nothing_is_written_to_an_outbox_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "outbox").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a link"):
        Outbox(str(tmp_path / "outbox")).put([])
    assert os.listdir(tmp_path / "elsewhere") == []
    own = outbox_of(str(tmp_path / "outbox"), ("host", "ann"))  # the folder that the user names may be a link
    assert own is not None
    own.put([])
    (own.folder / "lock").symlink_to(tmp_path / "planted")
    with pytest.raises(OSError, match="it is a link"):
        own.claim()
    assert not (tmp_path / "planted").exists()


async def test_an_export_does_not_follow_a_link_and_says_what_to_do(tmp_path: Path, diary: Path) -> None:
    store = TemporaryStore()
    await PersistentMemory("ann", store=store, embedding=words()).remember("Prefers tea")
    for target in (diary, tmp_path / "not there"):
        link = tmp_path / f"link to {target.name}"
        link.symlink_to(target)
        with pytest.raises(PersistentMemoryError, match="it is a link, and links are not followed"):
            await export_memories(store, link, progress=False)
        assert link.is_symlink()
    assert (await asyncio.to_thread(diary.read_text)) == "Dear diary"
    assert sorted(await asyncio.to_thread(os.listdir, tmp_path)) == sorted(
        ["diary.txt", "home", "link to diary.txt", "link to not there"]
    )


async def test_an_export_over_a_readable_file_is_private(tmp_path: Path) -> None:
    store, file = TemporaryStore(), tmp_path / "all.jsonl"
    await PersistentMemory("ann", store=store, embedding=words()).remember("Prefers tea")
    file.touch(mode=0o644)
    await export_memories(store, file, progress=False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("to", ["pipe", "file"])
def test_an_export_to_dev_stdout_is_allowed(tmp_path: Path, to: str) -> None:
    asyncio.run(_remember(tmp_path / "store"))
    command = [sys.executable, "-m", "autogen_persistent_memory.cli", "export", "/dev/stdout"]
    with (tmp_path / "out").open("wb") as out:
        result = subprocess.run(
            [*command, "--path", str(tmp_path / "store")], stdout=subprocess.PIPE if to == "pipe" else out, check=True
        )
    said = result.stdout if to == "pipe" else (tmp_path / "out").read_bytes()
    assert said.startswith(b'{"type":"header"')
    assert said.endswith(b"Exported 1 to /dev/stdout.\n")


def test_a_snapshot_follows_no_link(tmp_path: Path) -> None:
    asyncio.run(_remember(tmp_path / "store"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "copy").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link"):
        asyncio.run(snapshot(EmbeddedStore(tmp_path / "store"), tmp_path / "copy", progress=False))
    (tmp_path / "other.unfinished").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailableError, match="cannot be written"):
        asyncio.run(snapshot(EmbeddedStore(tmp_path / "store"), tmp_path / "other", progress=False))
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_snapshot_into_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    asyncio.run(_remember(tmp_path / "store"))
    (tmp_path / "copy").mkdir(mode=0o750)
    asyncio.run(snapshot(EmbeddedStore(tmp_path / "store"), tmp_path / "copy", progress=False))
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o750
    assert modes(tmp_path / "copy") == {}


# The holder file


def test_the_holder_file_names_the_program_and_none_of_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "chat bot.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom autogen_persistent_memory.storage.folder_lock import FolderLock\n"
        "mine = FolderLock(Path(sys.argv[1]))\nmine.take()\nprint('taken', flush=True)\nsys.stdin.read()"
    )
    (tmp_path / "store").mkdir()
    command = [sys.executable, str(script), str(tmp_path / "store"), "--token", "s3cr3t"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        holder = json.loads((tmp_path / "store" / "autogen_memory.holder.json").read_text())
        assert holder.keys() == {"pid", "program", "host", "since"}
        assert (holder["pid"], holder["program"]) == (process.pid, "chat bot.py")
        with pytest.raises(StoreLockedError, match=rf"process {process.pid} \(chat bot.py\)") as refusal:
            FolderLock(tmp_path / "store").take()
        assert "s3cr3t" not in str(refusal.value)
        process.communicate()


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/srv/bot/serve.py --token s3cr3t", "serve.py"),
        ("-c s3cr3t", "python"),
        ("", "python"),
        ("/a/pkg/__main__.py x", "pkg"),
    ],
)
def test_command_lines_in_an_earlier_versions_holder_file_are_not_repeated(
    tmp_path: Path, command: str, program: str
) -> None:
    holder = {"pid": 7, "command": command, "host": "here", "since": "2026-03-01T12:00:00+00:00"}
    (tmp_path / "autogen_memory.holder.json").write_text(json.dumps(holder))
    assert holder_of(tmp_path) == f"process 7 ({program}) on here since 2026-03-01 12:00:00 UTC"
