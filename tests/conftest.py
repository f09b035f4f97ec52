from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings
from toys import HandClock, words

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, ProfileMemory, ServerStore, TemporaryStore

settings.register_profile(
    "suite",
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("suite")

MakeStore = Callable[[], object]

# Child processes of tests import from the tests' folders, too.
_TESTS = Path(__file__).parent
_FOLDERS = [str(_TESTS), str(_TESTS / "behaviour"), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _FOLDERS))


@pytest.fixture(autouse=True, scope="session")
def _processes_can_be_interrupted() -> None:
    """Restore the handling of interrupts, which a shell disables for background processes."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _blocking_calls_on_the_event_loop_are_errors() -> Iterator[None]:
    if "coverage" in sys.modules:  # its tracer takes a lock in every thread, also on the event loop
        yield
        return
    with blockbuster_ctx("autogen_persistent_memory"):
        yield


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that nothing is read from or written to the real one."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("AUTOGEN_MEMORY_PATH", raising=False)
    return folder


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """A clock that only the test moves, for every memory created after this."""
    hand = HandClock()
    monkeypatch.setattr("autogen_persistent_memory.memories.protocol.utc_now", hand)
    return hand


@pytest.fixture
def memory_store() -> TemporaryStore:
    """The store of the fixtures `memory` and `profile`."""
    return TemporaryStore()


@pytest.fixture
def memory(memory_store: TemporaryStore) -> PersistentMemory:
    """A `PersistentMemory` in RAM, with the toy embedding."""
    return PersistentMemory("user-42", session="today", store=memory_store, embedding=words())


@pytest.fixture
def profile(memory_store: TemporaryStore) -> ProfileMemory:
    return ProfileMemory("user-42", store=memory_store, embedding=words())


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A real `chroma run` on a free port of loopback, one for each process that runs tests."""
    with run_chroma(tmp_path_factory.mktemp("chroma-server")) as address:
        yield address


@pytest.fixture(params=["temporary", "embedded", "server"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A function that returns handles to the same store, for each kind of store."""
    if request.param == "temporary":
        store = TemporaryStore()
        return lambda: TemporaryStore(store.config.id)
    if request.param == "embedded":
        return lambda: EmbeddedStore(tmp_path / "store")
    host, port = request.getfixturevalue("chroma_server")
    return lambda: ServerStore(host, port)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls give a server up after half a second instead of three, in tests of what happens then."""
    monkeypatch.setattr("autogen_persistent_memory.storage.chroma.server._PAUSES", (0.1, 0.1, 0.3))


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace for this test, since all tests share the server."""
    return f"tests/{request.node.name}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def run_chroma(folder: Path, port: int | None = None) -> Iterator[tuple[str, int]]:
    port = port or free_port()
    command = [str(Path(sys.executable).with_name("chroma")), "run", "--path", str(folder), "--port", str(port)]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/api/v2/heartbeat", timeout=1).raise_for_status()
                break
            except httpx.HTTPError:
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail(f"chroma run did not start: {(folder / 'log.txt').read_text()[-2000:]}")
                time.sleep(0.05)
        yield "127.0.0.1", port
    finally:
        process.kill()
        process.wait()
