"""More than one process: restarts, kills, and the lock."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from toys import make_schema_newer, words

from autogen_persistent_memory import (
    EmbeddedStore,
    PersistentMemory,
    SchemaVersionError,
    StoreLockedError,
    StoreUnavailableError,
)

TESTS = Path(__file__).parents[1]


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start another Python that runs `async def main(path, ...)`."""
    program = textwrap.dedent(code) + "\nimport asyncio, sys; asyncio.run(main(*sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )


def output(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return out.strip()


SARAH = """
    from autogen_persistent_memory import *
    async def main(path):
        memory = PersistentMemory("user-42", store=EmbeddedStore(path))
        await memory.remember("Sarah prefers TypeScript", kind="preference")
        print("remembered", flush=True)
        sys.stdin.read()
"""
WHO = """
    from autogen_persistent_memory import *
    async def main(path):
        async with PersistentMemory("user-42", store=EmbeddedStore(path)) as memory:
            found = await memory.recall("Which language does she like?")
            print(found.text)
"""


async def test_sarah_survives_kill_9_and_the_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    first = start(SARAH, tmp_path / "store")
    assert first.stdout is not None
    assert await asyncio.to_thread(first.stdout.readline) == "remembered\n"
    memory = PersistentMemory("user-42", store=EmbeddedStore(tmp_path / "store"))
    with pytest.raises(
        StoreLockedError, match=rf"process {first.pid} .*one process.*autogen-memory share.*ServerStore"
    ):
        await memory.recall("Which language does she like?")
    with pytest.raises(StoreLockedError):
        await memory.remember("x")
    await memory.close()
    first.send_signal(signal.SIGKILL)
    await asyncio.to_thread(first.communicate)
    assert (await memory.recall("Which language does she like?")).text == "- Sarah prefers TypeScript"
    await memory.close()
    assert await asyncio.to_thread(output, start(WHO, tmp_path / "store")) == "- Sarah prefers TypeScript"


async def test_every_acknowledged_memory_survives_a_kill_at_a_random_moment(tmp_path: Path) -> None:
    code = """
    from autogen_persistent_memory import *
    from toys import words
    async def main(path):
        memory = PersistentMemory("ann", store=EmbeddedStore(path), embedding=words())
        for number in range(10_000):
            await memory.remember(f"fact number {number}")
            print(number, flush=True)
    """
    expected: set[str] = set()
    for run in range(3):
        process = start(code.replace("fact number", f"fact number {run}"), tmp_path / "store")
        assert process.stdout is not None
        for _ in range(15 + 7 * run):
            number = await asyncio.to_thread(process.stdout.readline)
            expected.add(f"fact number {run} {int(number)}")
        process.kill()
        rest, _ = await asyncio.to_thread(process.communicate)
        expected |= {f"fact number {run} {int(number)}" for number in rest.split("\n")[:-1]}
    async with PersistentMemory("ann", store=EmbeddedStore(tmp_path / "store"), embedding=words()) as memory:
        stored = {record.content for record in await memory.records(limit=100_000)}
        assert expected <= stored
        for fact in sorted(expected)[::5]:
            assert (await memory.recall(fact, limit=1)).hits[0].record.content == fact


async def test_a_forked_child_is_refused_and_leaves_the_parent_unharmed(tmp_path: Path) -> None:
    code = """
    import os
    from autogen_persistent_memory import *
    from toys import words
    async def main(path):
        temporary = PersistentMemory("ann", store=TemporaryStore(), embedding=words())
        memory = PersistentMemory("ann", store=EmbeddedStore(path), embedding=words())
        await memory.remember("Likes tea")
        child = os.fork()
        if child == 0:
            asyncio.set_event_loop(None)
            try:
                asyncio.events._set_running_loop(None)
                asyncio.run(memory.remember("Likes coffee"))
            except StoreLockedError as error:
                os._exit(42 if str(os.getppid()) in str(error) else 1)
            os._exit(2)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        await memory.remember("Likes jam")
        print(await memory.count())
        await memory.close()
    """
    assert await asyncio.to_thread(output, start(code, tmp_path / "store")) == "42\n2"


async def test_a_program_that_never_closes_its_memory_ends_quietly(tmp_path: Path) -> None:
    code = """
    from autogen_persistent_memory import *
    async def main(path):
        memory = PersistentMemory("ann", store=EmbeddedStore(path))
        await memory.remember("Likes tea")
        await memory.recall("tea", reinforce=True)
    """
    assert await asyncio.to_thread(output, start(code, tmp_path / "store")) == ""


async def test_a_path_that_is_a_file_or_cannot_be_created_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    for path in (file, file / "below", Path("/proc/nowhere")):
        memory = PersistentMemory("ann", store=EmbeddedStore(path), embedding=words())
        with pytest.raises(StoreUnavailableError, match=str(path)):
            await memory.remember("Likes tea")
        await memory.close()
    assert file.read_text() == "precious"


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk_is_explained_and_stored_memories_stay(small_disk: Path) -> None:
    path = small_disk / "store"
    async with PersistentMemory("ann", store=EmbeddedStore(path), embedding=words()) as memory:
        await memory.remember("Likes tea")
        big = (f"{number} " + "x" * 100_000 for number in range(60))
        with pytest.raises(StoreUnavailableError, match=str(path)):
            await memory.remember_many(big)
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    async with PersistentMemory("ann", store=EmbeddedStore(path), embedding=words()) as memory:
        assert "Likes tea" in [record.content for record in await memory.records(limit=1000)]
        await memory.remember("Likes jam")


def remount_read_only(disk: Path) -> None:
    """Remount read-only; Chroma's threads may take a moment to close their files."""
    until = time.monotonic() + 10
    while subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True, check=False).returncode:
        assert time.monotonic() < until
        time.sleep(0.1)


async def test_a_read_only_disk_is_explained(small_disk: Path) -> None:
    path = small_disk / "store"
    async with PersistentMemory("ann", store=EmbeddedStore(path), embedding=words()) as memory:
        await memory.remember("Likes tea")
    await asyncio.to_thread(remount_read_only, small_disk)
    memory = PersistentMemory("ann", store=EmbeddedStore(path), embedding=words())
    with pytest.raises(StoreUnavailableError, match="AUTOGEN_MEMORY_PATH"):
        await memory.remember("Likes jam")
    await memory.close()


async def test_a_store_of_a_newer_schema_is_refused_and_not_changed(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    async with PersistentMemory("ann", store=store, embedding=words()) as memory:
        await memory.remember("Likes tea")
        await memory.set("key", "value")
    counts = await asyncio.to_thread(make_schema_newer, store.folder())
    newcomer = PersistentMemory("ann", store=store, embedding=words())
    for refused in (
        newcomer.remember("Likes jam"),
        newcomer.recall("tea"),
        newcomer.count(),
        newcomer.get("key"),
        newcomer.reembed(progress=False),
        newcomer.profile.clear(),
        newcomer.clear(),
    ):
        with pytest.raises(SchemaVersionError, match=r"schema 99.*pip install --upgrade"):
            await refused
    await newcomer.close()
    assert await asyncio.to_thread(make_schema_newer, store.folder()) == counts == [1, 1]
