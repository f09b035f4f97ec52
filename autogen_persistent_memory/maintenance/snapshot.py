"""Copy an embedded store while it is in use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ..core.errors import StoreUnavailableError
from ..runtime import private_files
from ..runtime.reporting import Progress, progress_of
from ..runtime.threads import in_thread
from ..storage.chroma.chroma_compat import DATABASE, SEGMENT
from ..storage.stores import EmbeddedStore

_BLOCK = 1 << 20


async def snapshot(store: EmbeddedStore, folder: str | os.PathLike[str], *, progress: Progress = True) -> int:
    """Copy an embedded store into a folder, which can be opened as an `EmbeddedStore` itself.

    The store may be in use by this process: its calls wait while the files are copied. The copy holds every write that was
    acknowledged before; unfinished writes are in it as they would be after a crash. It appears when it is complete, and
    only this user may read it.

    Args:
        store: The store to copy.
        folder: Where to; must be new or empty.
        progress: True for a progress bar on a terminal, or a function that is called with (done, total) in bytes, in a thread.

    Returns:
        How many bytes were copied.

    Raises:
        ValueError: The store is not an embedded one or does not exist, or the folder is a link or not empty.
        StoreLockedError: Another process has the store open.
        StoreUnavailableError: The store could not be opened, or the copy could not be written.
    """
    if not isinstance(store, EmbeddedStore):
        raise ValueError(
            f"Only an EmbeddedStore can be copied, not a {type(store).__name__}; use export_memories() instead."
        )
    target = Path(folder)
    await in_thread(lambda: _check(store.folder(), target))
    connection = store.connect()
    try:
        total = await connection.alone(lambda: sum(path.stat().st_size for path in _files(store.folder())))
        async with progress_of(total, "Copying", progress, unit="B") as done:
            return await connection.alone(lambda: _copy(store.folder(), target, done))
    finally:
        await connection.close()


def _check(source: Path, target: Path) -> None:
    if not (source / DATABASE).exists():
        raise ValueError(f"There is no store in {source}. Nothing was copied; check its path.")
    if target.is_symlink():
        raise ValueError(f"{target} is a link. Nothing was copied; name the folder that it points to, or a new one.")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ValueError(f"The folder {target} is not empty. Nothing was copied; choose a new one.")


def _copy(source: Path, target: Path, done: Callable[[int], None]) -> int:
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        private_files.make_folder(unfinished.parent)
        unfinished.mkdir(mode=private_files.FOLDER)
        copied = sum([_copy_file(path, unfinished / path.relative_to(source), done) for path in _files(source)])
        if target.exists():
            shutil.copymode(target, unfinished)
            target.rmdir()
        unfinished.rename(target)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StoreUnavailableError(
            f"The snapshot {target} cannot be written: {error}. The store is untouched; choose another folder or free some "
            "space, and try again."
        ) from error
    return copied


def _files(folder: Path) -> list[Path]:
    """Return Chroma's database, its journal, and the segments. Our own files there belong to one process."""
    return [
        path
        for place in folder.iterdir()
        if place.name.startswith(DATABASE) or SEGMENT.fullmatch(place.name)
        for path in (place, *place.rglob("*"))
        if path.is_file()
    ]


def _copy_file(path: Path, copy: Path, done: Callable[[int], None]) -> int:
    private_files.make_folder(copy.parent)
    copied = 0
    with path.open("rb") as old, open(private_files.create(copy), "wb") as new:
        while block := old.read(_BLOCK):
            copied += new.write(block)
            done(len(block))
    return copied
