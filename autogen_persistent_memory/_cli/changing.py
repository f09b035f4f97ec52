"""Commands that change memories: add, edit, forget."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from .commands import command
from .looking import find
from .options import (
    At,
    Before,
    Containing,
    DryRun,
    EmbeddingId,
    EmbeddingName,
    Id,
    Kinds,
    Namespace,
    Session,
    Tags,
    Ttl,
    Yes,
)
from .printing import one_line, print_records
from .shell import NothingFoundError, Shell

Key = Annotated[str | None, typer.Option(help="The slot it fills, such as user/home.")]


def add_changing(app: typer.Typer) -> None:
    """Add these commands."""

    @command(app, "add")
    def add(
        shell: Shell,
        content: Annotated[str, typer.Argument(help="What to remember; - for each line of stdin.")],
        namespace: Namespace,
        kind: Annotated[str, typer.Option("--kind", "-k", help="fact, preference, decision, lesson, or your own.")] = (
            "fact"
        ),
        tag: Annotated[list[str] | None, typer.Option("--tag", "-t", help="A tag; may be repeated.")] = None,
        key: Key = None,
        pinned: Annotated[bool, typer.Option("--pinned", help="It never expires.")] = False,
        ttl: Ttl = None,
        source: Annotated[str | None, typer.Option(help="Who said it.")] = None,
        session: Annotated[str | None, typer.Option("--session", "-s", help="The session it comes from.")] = None,
        at: At = None,
        embedding: EmbeddingName = None,
        embedding_id: EmbeddingId = None,
    ) -> None:
        """Remember something, or with - every line of stdin."""
        texts = _lines() if content == "-" else [content]
        if ttl is not None and pinned:
            raise ValueError("--ttl says when it expires, and --pinned that it never does; give one of them.")
        if key is not None and len(texts) > 1:
            raise ValueError("--key is a slot for one memory, and stdin has several lines.")
        about: dict[str, Any] = {"kind": kind, "tags": tag, "ttl": ttl, "pinned": pinned, "key": key}
        about |= {"source": source, "session": session, "at": at}
        by = shell.embedding(namespace, embedding, embedding_id)
        with shell.memory(namespace, by, may_be_new=True) as memory:
            items = [{"content": text, **about} for text in texts]
            records = shell.run(memory.remember_many(items, progress=len(items) > 1))
        print_records(shell.printer, records)

    @command(app, "edit")
    def edit(
        shell: Shell,
        id: Id,
        namespace: Namespace,
        content: Annotated[str | None, typer.Option("--content", "-c", help="What it should say; - for stdin.")] = None,
        kind: Annotated[str | None, typer.Option("--kind", "-k", help="Its new kind.")] = None,
        tag: Annotated[
            list[str] | None, typer.Option("--tag", "-t", help="Its only tags; may be repeated, empty for none.")
        ] = None,
        pinned: Annotated[bool | None, typer.Option("--pinned/--unpinned", help="Whether it never expires.")] = None,
        key: Annotated[str | None, typer.Option(help="The slot it fills; empty for none.")] = None,
        embedding: EmbeddingName = None,
        embedding_id: EmbeddingId = None,
    ) -> None:
        """Correct a memory in its place; the former wording is gone."""
        text = "\n".join(_lines()) if content == "-" else content
        tags = None if tag is None else [name for name in tag if name]
        by = None if text is None else shell.embedding(namespace, embedding, embedding_id)
        with shell.memory(namespace, by) as memory:
            record = find(shell, memory, id)
            changed = shell.run(memory.edit(record.id, content=text, kind=kind, tags=tags, pinned=pinned, key=key))
        print_records(shell.printer, [changed])

    @command(app, "forget")
    def forget(
        shell: Shell,
        namespace: Namespace,
        id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The memory's id, or its beginning.")] = None,
        key: Annotated[str | None, typer.Option(help="The memory under this key.")] = None,
        kind: Kinds = None,
        tag: Tags = None,
        session: Session = None,
        containing: Containing = None,
        before: Before = None,
        everywhere: Annotated[
            bool, typer.Option("--everywhere", help="Also history, and the messages that told it.")
        ] = False,
        everything: Annotated[bool, typer.Option("--all", help="The whole namespace.")] = False,
        dry_run: DryRun = False,
        yes: Yes = False,
    ) -> None:
        """Delete memories for good, by what they are, never by similarity. All that is given must hold."""
        chosen: dict[str, Any] = {"key": key, "kinds": kind, "tags": tag, "session": session}
        chosen |= {"containing": containing, "before": before}
        if everything and (id or any(chosen.values())):
            raise ValueError("--all means the whole namespace; leave out everything else.")
        if everything and dry_run:
            raise ValueError("--all deletes whatever there is, as `stats` counts it; leave out --dry-run.")
        with shell.memory(namespace) as memory:
            if everything:
                shell.confirm(f"Delete all that is stored of {namespace!r} for good?", yes=yes)
                shell.run(memory.clear())
                shell.tell("Forgotten: all.", forgotten="all")
                return
            if id is not None:
                record = find(shell, memory, id)
                chosen["id"], what = record.id, f"“{one_line(record.content)}”"
            count = shell.run(memory.forget(**chosen, everywhere=everywhere, dry_run=True))
            if not count:
                raise NothingFoundError(f"{namespace!r} has no such memories. Nothing was deleted.")
            if dry_run:
                shell.tell(f"Would forget: {count}.", would_forget=count)
                return
            if id is None or count > 1:
                what = f"{count} memories of {namespace!r}" if count > 1 else f"1 memory of {namespace!r}"
            shell.confirm(f"Delete {what} for good?", yes=yes)
            gone = shell.run(memory.forget(**chosen, everywhere=everywhere))
        shell.tell(f"Forgotten: {gone}.", forgotten=gone)


def _lines() -> list[str]:
    """The lines of stdin that say something.

    Raises:
        ValueError: There are none, or they are not UTF-8.
    """
    try:
        lines = [line.strip() for line in sys.stdin.buffer.read().decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"stdin is not UTF-8 ({error}). Nothing was stored; convert it first, as with iconv."
        ) from None
    lines = [line for line in lines if line]
    if not lines:
        raise ValueError("stdin is empty. Nothing was stored.")
    return lines
