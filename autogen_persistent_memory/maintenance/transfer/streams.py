"""Read and write lines of files and streams page by page, in threads: a whole file is never in RAM."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from ...core import checks as limits
from ...core.errors import PersistentMemoryError
from ...runtime import private_files
from ...runtime.threads import in_thread

T = TypeVar("T")
File = str | os.PathLike[str] | IO[bytes] | IO[str]
"""A path, or an open stream, binary or text."""
Write = Callable[[Iterable[str]], Awaitable[None]]

_DESCRIPTOR = re.compile(r"/dev/(?:stdout|stderr)|/(?:dev|proc/self)/fd/(\d+)")
"""The names that the system has for files this process has open already."""
_PAGE_LINES = 500
_PAGE_BYTES = 1 << 20


@asynccontextmanager
async def writing_lines(file: File) -> AsyncIterator[Write]:
    """Write lines to a file or a stream.

    A file is written under a temporary name and renamed when it is complete. Only this user may read it. A link is neither
    followed nor replaced.
    """
    if not isinstance(file, (str, os.PathLike)):
        await in_thread(file.flush)
        yield _writer(file, _name_of(file))
        await _trying("written", _name_of(file), file.flush)
        return
    stream, place, unfinished = await _trying("written", file, partial(_opened, file))
    try:
        yield _writer(stream, file)
        await _trying("written", file, partial(_finish, stream, place, unfinished))
    except BaseException:
        await in_thread(partial(_abandon, stream, unfinished))
        raise


def _opened(file: str | os.PathLike[str]) -> tuple[IO[bytes], Path, Path | None]:
    """Open a file for writing; return the stream, its final path and its temporary one, None for a device or a pipe."""
    place = Path(os.path.abspath(file))
    if descriptor := _DESCRIPTOR.fullmatch(str(place)):
        number = descriptor[1] or (1 if place.name == "stdout" else 2)
        return open(os.dup(int(number)), "wb"), place, None  # opening a file again would overwrite its beginning
    private_files.refuse_link(place)
    if place.exists() and not place.is_file():
        return open(place, "wb"), place, None
    unfinished = place.with_name(f"{place.name}.{secrets.token_hex(4)}.unfinished")  # unique to this attempt
    return open(private_files.create(unfinished), "wb"), place, unfinished


def _finish(stream: IO[bytes], place: Path, unfinished: Path | None) -> None:
    stream.flush()
    if unfinished is not None:
        os.fsync(stream.fileno())  # else a power failure could leave an empty file under the final name
    stream.close()
    if unfinished is not None:
        os.replace(unfinished, place)


def _abandon(stream: IO[bytes], unfinished: Path | None) -> None:
    with contextlib.suppress(OSError):  # a failed write fails again when its buffer is flushed
        stream.close()
    if unfinished is not None:
        unfinished.unlink(missing_ok=True)


def _writer(stream: IO[bytes] | IO[str], name: object) -> Write:
    sink = _bytes_of(stream)
    takes_text = hasattr(sink, "encoding")

    async def write(lines: Iterable[str]) -> None:
        def write_all() -> None:
            text = "".join(lines)
            sink.write(text if takes_text else text.encode("utf-8"))

        await _trying("written", name, write_all)

    return write


def _bytes_of(stream: Any) -> Any:
    """Return the binary stream below a text stream such as sys.stdout, which may not be encoded as UTF-8."""
    return getattr(stream, "buffer", stream)


async def pages_of_lines(file: File) -> AsyncGenerator[list[str | bytes], None]:
    """Yield the lines of a file or a stream, a page at a time."""
    is_path = isinstance(file, (str, os.PathLike))
    stream: Any = await _trying("read", file, partial(open, file, "rb")) if is_path else _bytes_of(file)
    try:
        while page := await _trying("read", _name_of(file), lambda: _next_page(stream)):
            yield page
    finally:
        if is_path:
            await in_thread(stream.close)


def _next_page(stream: Any) -> list[str | bytes]:
    page: list[str | bytes] = []
    size, longest = 0, limits.MAX_LINE_BYTES + 1  # `from_line` refuses longer ones
    while len(page) < _PAGE_LINES and size < _PAGE_BYTES and (line := stream.readline(longest)):
        page.append(line)
        size += len(line)
    return page


def _name_of(file: File) -> object:
    return file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", "the stream")


async def _trying(done: str, name: object, call: Callable[[], T]) -> T:
    """Run a file operation in a thread, and say which file failed."""
    try:
        return await in_thread(call)
    except OSError as error:
        raise PersistentMemoryError(
            f"{name} cannot be {done}: {error.strerror or error}. Check the path, its permissions and the space on its "
            "disk, and try again."
        ) from error
