"""Folders and files for this user alone, whatever the umask is, written without following links. Blocks.

A link that somebody planted under a name that we are going to write would lead what is remembered elsewhere, or let us
overwrite a file of the user's. So files are made new under names that did not exist, and then renamed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FOLDER = 0o700
FILE = 0o600
_OTHERS = 0o077
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, as far as they are missing; what is there keeps its mode."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(mode=FOLDER, exist_ok=True)


def create(path: Path) -> int:
    """Make a new file, to be written through the descriptor that this returns.

    Raises:
        FileExistsError: There is something of that name, a link included.
    """
    return os.open(path, _NEW, FILE)


def write(path: Path, text: str) -> None:
    """Let a file have this text: all of it or, if that fails, what it had before. One process at a time."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.unlink(missing_ok=True)  # of a process that was killed
    try:
        with open(create(unfinished), "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def refuse_link(path: Path) -> None:
    """Make sure that what is written to a path of ours lands there.

    Raises:
        OSError: It is a link.
    """
    if path.is_symlink():
        reason = (
            "it is a link, and links are not followed when memories are written: remove it, or name what it leads to"
        )
        raise OSError(errno.ELOOP, reason, str(path))


def close_to_others(path: Path) -> None:
    """Take from everybody but the owner what they may do with a file, or a folder and all that is in it.

    Files of other owners, and those that vanish meanwhile, are passed over. Nothing is opened: to close a database that
    this process has open would drop its locks.
    """
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return
        if mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        inner = list(path.iterdir()) if stat.S_ISDIR(mode) else []
    except OSError:
        return
    for entry in inner:
        close_to_others(entry)


def open_to_others(folder: Path) -> str | None:
    """The mode of a folder, such as 755, into which others than its owner may look."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    return f"{mode:o}" if mode & _OTHERS and os.name != "nt" else None
