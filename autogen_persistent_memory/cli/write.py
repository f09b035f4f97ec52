"""Commands that change memories: add, edit, forget."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typing_extensions import Self

from ..conversation.traces import Forgotten
from .commands import (
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
    command,
)
from .context import NothingFoundError, Shell
from .output import one_line, print_records
from .read import find

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
        texts = _shared_clients() if content == "-" else [content]
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
        text = "\n".join(_shared_clients()) if content == "-" else content
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
            bool,
            typer.Option(
                "--everywhere", help="Also history, the messages that told it, and what saved conversations tell of it."
            ),
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
            reachable = shell.run(memory.forget(**chosen, everywhere=True, dry_run=True))
            meant = reachable if everywhere else shell.run(memory.forget(**chosen, dry_run=True))
            left = _Left.of(reachable, meant)
            in_conversations = _in_conversations(meant)
            if not meant and not in_conversations:
                raise NothingFoundError(f"{namespace!r} has no such memories. Nothing was deleted. {left}".strip())
            if dry_run:
                _tell(shell, f"Would forget: {meant}.", {"would_forget": meant}, meant, left)
                return
            if id is None or meant != 1:
                what = f"{_count(meant, 'memory', 'memories')} of {namespace!r}"
            also = f", and what {in_conversations} of saved conversations tell of it" if in_conversations else ""
            shell.confirm(f"Delete {what}{also} for good?", yes=yes)
            gone = shell.run(memory.forget(**chosen, everywhere=everywhere))
        _tell(shell, f"Forgotten: {gone}.", {"forgotten": gone}, gone, left)
        if everywhere and not shell.as_json:
            shell.printer.line("Not reached: exports, snapshots and backups, and agents that are running.")


class _Left(NamedTuple):
    """What tells it and is not touched."""

    history: int
    messages: int
    states: Sequence[str]
    summaries: Sequence[str]
    values: Sequence[str]
    unclear: Sequence[str]
    """The sessions whose saved state may tell it outside of its messages, or cannot be read."""

    @classmethod
    def of(cls, reachable: Forgotten, meant: Forgotten) -> Self:
        """What was left out of what could be reached, and values, which are the application's."""
        messages = reachable.messages - meant.messages
        everything, reached = reachable.traces, meant.traces
        return cls(
            reachable - meant - messages,
            messages,
            [session for session in everything.states if session not in reached.states],
            [session for session in everything.summaries if session not in reached.summaries],
            everything.values,
            everything.unclear,
        )

    def __str__(self) -> str:
        counts = (
            (self.history, "earlier version", "earlier versions"),
            (self.messages, "captured message", "captured messages"),
            (len(self.states), "saved state", "saved states"),
            (len(self.summaries), "summary", "summaries"),
        )
        found = [_count(*count) for count in counts if count[0]]
        told = [f"Not touched, but telling it: {', '.join(found)}; --everywhere reaches them."] if found else []
        if self.values:
            told.append(f"Values that tell it stay as they are: {', '.join(map(one_line, self.values))}.")
        if self.unclear:
            told.append(f"Saved states that may tell it outside of their messages: {', '.join(self.unclear)}.")
        return " ".join(told)


def _in_conversations(found: Forgotten) -> str:
    """In how many saved states and summaries it was found; empty for none."""
    counts = (len(found.traces.states), "state", "states"), (len(found.traces.summaries), "summary", "summaries")
    return " and ".join(_count(*count) for count in counts if count[0])


def _tell(shell: Shell, sentence: str, facts: dict[str, object], reached: Forgotten, left: _Left) -> None:
    """Print what was forgotten, and what else tells it."""
    if shell.as_json:
        found = {"states": reached.traces.states, "summaries": reached.traces.summaries}
        shell.printer.objects([{**facts, **found, "left": left._asdict()}])
        return
    in_conversations = _in_conversations(reached)
    conversations = f"Of saved conversations that told it: {in_conversations}." if in_conversations else ""
    for line in filter(None, [sentence, conversations, str(left)]):
        shell.printer.line(line)


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _shared_clients() -> list[str]:
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
