"""The command that shares an embedded store: `chroma run` on loopback, while this process holds the store's lock."""

from __future__ import annotations

import contextlib
import http.client
import math
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import typer

from ..core.errors import StoreUnavailableError
from ..storage.folder_lock import FolderLock
from ..storage.stores import EmbeddedStore
from .commands import command
from .context import Shell
from .output import note

_HOST = "127.0.0.1"
_CHROMA = "import sys; from chromadb.cli.cli import app; sys.argv[0] = 'chroma'; app()"
_STARTING_SECONDS = 60.0
_ENDING_SECONDS = 10.0
_LAST_WORDS = 500
_FILES_PER_COLLECTION = 4
"""That the server keeps open of each collection once it was used, for good."""
_FEW_FILES = 8192
_MOST_FILES = (1 << 20, 1 << 16, 10_240)
"""What to ask for where there is no limit: macOS says so, and still refuses the larger ones."""
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port on loopback; 0 for a free one.")]
_ENDINGS = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


def add_sharing(app: typer.Typer) -> None:
    """Add this command."""

    @command(app, "share")
    def share(shell: Shell, port: Port = 8000) -> None:
        """Share an embedded store among processes: run a Chroma server on it until Ctrl-C."""
        store = shell.store
        if not isinstance(store, EmbeddedStore):
            raise ValueError("Only a folder can be shared; leave out --server.")
        with shell.connection(may_be_new=True) as connection:
            shell.run(connection.prepare())  # which makes sure that nobody else has it, and that it is sound
        folder, chosen = store.folder(), port or _free_port()
        with (
            _many_open_files() as files,
            _owned(folder) as ownership,
            tempfile.TemporaryFile() as log,
            _running(folder, chosen, ownership, log) as server,
            contextlib.suppress(KeyboardInterrupt),
        ):
            if files < _FEW_FILES:
                note(_of_few(files))
            _announce(shell, folder, chosen, server.pid)
            code = server.wait()
            raise StoreUnavailableError(f"The Chroma server ended by itself, with code {code}. Start it again.")

    @command(app, "serve", hidden=True)
    def serve(shell: Shell, port: Port = 8000) -> None:
        """Say where the command went that had this name until 0.1."""
        raise ValueError(
            f"This command moved to `autogen-memory share`: run that, with --port {port} and the same --path."
        )


def _announce(shell: Shell, folder: Path, port: int, pid: int) -> None:
    line = f'ServerStore("{_HOST}", {port})'
    if shell.as_json:
        shell.printer.objects([{"host": _HOST, "port": port, "path": str(folder), "pid": pid, "store": line}])
    else:
        shell.printer.line(f"Sharing {folder} on {_HOST}:{port}. Connect to it in Python with:")
        shell.printer.line(f'    PersistentMemory("user-42", store={line})')
        shell.printer.line(f"or here with --server {_HOST}:{port}. End it with Ctrl-C.")


def _of_few(files: float) -> str:
    return (
        f"Warning: the server may open only {files} files, enough for about {files // _FILES_PER_COLLECTION} collections, of "
        "which a namespace has up to three; beyond that it fails. Allow more before you start it: `ulimit -Hn 65536` as root, "
        "LimitNOFILE= in systemd, --ulimit in docker."
    )


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[FolderLock]:
    ownership = FolderLock(folder)
    ownership.take()
    try:
        yield ownership
    finally:
        ownership.release()


@contextlib.contextmanager
def _many_open_files() -> Iterator[float]:
    """Let the server, which inherits the limit, open as many files as this user may; how many that are."""
    try:
        import resource
    except ImportError:  # on Windows, where there is no such limit
        yield math.inf
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files in (hard,) if hard != resource.RLIM_INFINITY else _MOST_FILES:
        if soft != resource.RLIM_INFINITY and soft < files:
            with contextlib.suppress(ValueError, OSError):  # more than the system grants
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
                break
    granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        yield math.inf if granted == resource.RLIM_INFINITY else granted
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _running(folder: Path, port: int, ownership: FolderLock, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that listens. It inherits the lock, so that the folder is locked as long as it runs, whatever befalls us."""
    if _is_taken(port):
        raise StoreUnavailableError(
            f"Port {port} of {_HOST} is in use. Choose another with --port, or a free one with 0."
        )
    arguments = ["run", "--path", str(folder), "--host", _HOST, "--port", str(port)]
    former = {number: signal.signal(number, signal.default_int_handler) for number in _ENDINGS}
    server = subprocess.Popen(
        [sys.executable, "-c", _CHROMA, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=ownership.descriptors(),
        umask=0o077,  # what it writes is for this user alone
        start_new_session=True,  # so that Ctrl-C is for us to pass on
    )
    try:
        ownership.name_holder(server.pid, "chroma")
        _wait_until_it_listens(server, port, log)
        yield server
    finally:
        server.terminate()
        try:
            server.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        for number, handler in former.items():
            signal.signal(number, handler)


def _wait_until_it_listens(server: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    until = time.monotonic() + _STARTING_SECONDS
    while not _answers(port):
        if server.poll() is not None or time.monotonic() > until:
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip()[-_LAST_WORDS:]
            raise StoreUnavailableError(
                f"The Chroma server did not start on port {port}: {said or 'it said nothing'}. Try another port with --port."
            )
        time.sleep(0.05)


def _answers(port: int) -> bool:
    line = http.client.HTTPConnection(_HOST, port, timeout=2)
    try:
        line.request("GET", "/api/v2/heartbeat")
        return line.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        line.close()


def _is_taken(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError:
            return True
    return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return int(listener.getsockname()[1])
