"""The command `share`: run `chroma run` on an embedded store, on loopback, while this process holds the folder's lock."""

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
from .context import CommandContext
from .output import note

_HOST = "127.0.0.1"
_CHROMA = "import sys; from chromadb.cli.cli import app; sys.argv[0] = 'chroma'; app()"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_LOG_CHARACTERS = 500
_FILES_PER_COLLECTION = 4
"""How many files the server keeps open for each collection that was used since it started."""
_ENOUGH_FILES = 8192
_FILES_TO_TRY = (1 << 20, 1 << 16, 10_240)
"""What to ask for where the system reports no limit: macOS does, and still refuses the larger ones."""
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port on loopback; 0 for a free one.")]
_STOP_SIGNALS = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


def share(context: CommandContext, port: Port = 8000) -> None:
    """Share an embedded store among processes: run a Chroma server on it until Ctrl-C."""
    store = context.store
    if not isinstance(store, EmbeddedStore):
        raise ValueError("Only a folder can be shared; leave out --server.")
    with context.connection(may_be_new=True) as connection:
        context.run(connection.prepare())  # fails if another process has it open, and repairs it
    folder, port = store.folder(), _available(port)
    with _many_open_files() as files, _running(folder, port) as server, contextlib.suppress(KeyboardInterrupt):
        if files < _ENOUGH_FILES:
            note(
                f"Warning: the server may open only {files} files, enough for about {files // _FILES_PER_COLLECTION} "
                "collections, of which a namespace has up to three; beyond that it fails. Allow more before you start it: "
                "`ulimit -Hn 65536` as root, LimitNOFILE= in systemd, --ulimit in docker."
            )
        _announce(context, folder, port, server.pid)
        code = server.wait()
        raise StoreUnavailableError(f"The Chroma server stopped with exit code {code}. Start it again.")


def serve(context: CommandContext, port: Port = 8000) -> None:
    """Point to `share`, which had this name until 0.1."""
    raise ValueError(f"This command moved to `autogen-memory share`: run that with --port {port} and the same --path.")


def _announce(context: CommandContext, folder: Path, port: int, pid: int) -> None:
    line = f'ServerStore("{_HOST}", {port})'
    if context.as_json:
        context.printer.objects([{"host": _HOST, "port": port, "path": str(folder), "pid": pid, "store": line}])
    else:
        context.printer.line(f"Sharing {folder} on {_HOST}:{port}. Connect to it in Python with:")
        context.printer.line(f'    PersistentMemory("user-42", store={line})')
        context.printer.line(f"or here with --server {_HOST}:{port}. End it with Ctrl-C.")


@contextlib.contextmanager
def _many_open_files() -> Iterator[float]:
    """Raise the limit of open files, which the server inherits, to this user's maximum, and yield it."""
    try:
        import resource
    except ImportError:  # on Windows, where there is no such limit
        yield math.inf
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files in (hard,) if hard != resource.RLIM_INFINITY else _FILES_TO_TRY:
        if soft != resource.RLIM_INFINITY and soft < files:
            with contextlib.suppress(ValueError, OSError):  # more than the system allows
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
                break
    granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        yield math.inf if granted == resource.RLIM_INFINITY else granted
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _running(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends. It inherits the lock: the folder stays locked even if this process is killed."""
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as stack:
        lock = FolderLock(folder)
        lock.take()
        stack.callback(lock.release)
        for number in _STOP_SIGNALS:
            stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        server = subprocess.Popen(
            [sys.executable, "-c", _CHROMA, "run", "--path", str(folder), "--host", _HOST, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=lock.descriptors(),
            umask=0o077,  # its files are for this user only
            start_new_session=True,  # so that only this process gets Ctrl-C, and stops the server in order
        )
        stack.callback(_stop, server)
        lock.name_holder(server.pid, "chroma")
        _wait_until_listening(server, port, log)
        yield server


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _wait_until_listening(server: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while not _answers(port):
        if server.poll() is not None or time.monotonic() > until:
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip()[-_LOG_CHARACTERS:]
            raise StoreUnavailableError(
                f"The Chroma server did not start on port {port}: {said or 'no output'}. Try another port with --port."
            )
        time.sleep(0.05)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=2)
    try:
        connection.request("GET", "/api/v2/heartbeat")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _available(port: int) -> int:
    """Return the port if it is free, or for 0 a free one."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError:
            message = f"Port {port} of {_HOST} is in use. Choose another with --port, or a free one with 0."
            raise StoreUnavailableError(message) from None
        return int(listener.getsockname()[1])
