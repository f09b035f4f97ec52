"""Folders and files that only this user can read, whatever the umask is, written without following links. Blocks.

A link planted under a name that is about to be written would send memories elsewhere, or make us overwrite one of the
user's files. So files are created under names that do not exist, and then renamed.
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
    """Create a folder and its parents if they are missing; those that exist keep their mode."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(mode=FOLDER, exist_ok=True)


def create(path: Path) -> int:
    """Create a file and return a descriptor for writing it; a name that exists, if only as a link, is a FileExistsError."""
    return os.open(path, _NEW, FILE)


def write(path: Path, text: str) -> None:
    """Write a text file, all or nothing. Only one process at a time may write it."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.unlink(missing_ok=True)  # left by a process that was killed
    try:
        with open(create(unfinished), "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def refuse_link(path: Path) -> None:
    """Raise an OSError if one of our paths is a link."""
    if path.is_symlink():
        reason = "it is a link, and links are not followed when memories are written: remove it, or use the path it points to"
        raise OSError(errno.ELOOP, reason, str(path))


def make_private(path: Path) -> None:
    """Remove the permissions of everybody but the owner from a file, or from a folder and everything in it.

    Skips files of other owners and files that vanish meanwhile. Opens nothing: closing a database file that this process
    also has open would drop its locks.
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
        make_private(entry)


def open_to_others(folder: Path) -> str | None:
    """Return the mode of a folder, such as 755, if others than its owner can access it."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    return f"{mode:o}" if mode & _OTHERS and os.name != "nt" else None
