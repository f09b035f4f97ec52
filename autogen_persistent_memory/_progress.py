"""Progress of long operations: a bar on the terminal, a callback of the caller's, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = bool | Callable[[int, int], None]
"""True for a bar (shown only on a terminal), False for none, or a function that is given (done, total)."""


@contextmanager
def progress_of(total: int, title: str, progress: Progress) -> Iterator[Callable[[int], None]]:
    """Give a function to be called with the number of items just done."""
    if callable(progress):
        done = 0

        def report(count: int) -> None:
            nonlocal done
            done += count
            progress(done, total)

        yield report
    elif progress:
        from tqdm import tqdm

        with tqdm(total=total, desc=title, unit=" memories", disable=None) as bar:
            yield lambda count: (bar.update(count), None)[1]
    else:
        yield lambda count: None
