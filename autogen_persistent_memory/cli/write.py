"""Commands that change or delete memories: add, edit, forget, sessions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typing_extensions import Self

from ..conversation.traces import Forgotten
from .context import CommandContext, NothingFoundError
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
from .output import fields_of, one_line
from .read import find


def add(
    context: CommandContext,
    content: Annotated[str, typer.Argument(help="The text; - for each line of stdin.")],
    namespace: Namespace,
    kind: Annotated[str, typer.Option("--kind", "-k", help="fact, preference, decision, lesson, or your own.")] = (
        "fact"
    ),
    tag: Annotated[list[str] | None, typer.Option("--tag", "-t", help="A tag; may be repeated.")] = None,
    key: Annotated[str | None, typer.Option(help="The slot it fills, such as user/home.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Never expires.")] = False,
    ttl: Ttl = None,
    source: Annotated[str | None, typer.Option(help="Who said it.")] = None,
    session: Annotated[str | None, typer.Option("--session", "-s", help="The session it comes from.")] = None,
    at: At = None,
    embedding: EmbeddingName = None,
    embedding_id: EmbeddingId = None,
) -> None:
    """Store a memory, or with - one for every line of stdin."""
    texts = _lines_of_stdin() if content == "-" else [content]
    if ttl is not None and pinned:
        raise ValueError("A memory with --pinned never expires, so it cannot have a --ttl; give one of them.")
    if key is not None and len(texts) > 1:
        raise ValueError(f"--key is for one memory, and stdin has {len(texts)} lines; leave it out.")
    about: dict[str, Any] = {"kind": kind, "tags": tag, "ttl": ttl, "pinned": pinned, "key": key}
    about |= {"source": source, "session": session, "at": at}
    by = context.embedding(namespace, embedding, embedding_id)
    with context.memory(namespace, by, may_be_new=True) as memory:
        items = [{"content": text, **about} for text in texts]
        records = context.run(memory.remember_many(items, progress=len(items) > 1))
    context.printer.records(records)


def edit(
    context: CommandContext,
    id: Id,
    namespace: Namespace,
    content: Annotated[str | None, typer.Option("--content", "-c", help="The new text; - for stdin.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", "-k", help="Its new kind.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", help="Its new tags; may be repeated, empty for none.")
    ] = None,
    pinned: Annotated[bool | None, typer.Option("--pinned/--unpinned", help="Whether it never expires.")] = None,
    key: Annotated[str | None, typer.Option(help="The slot it fills; empty for none.")] = None,
    embedding: EmbeddingName = None,
    embedding_id: EmbeddingId = None,
) -> None:
    """Change a memory in place, without keeping the old version."""
    text = "\n".join(_lines_of_stdin()) if content == "-" else content
    tags = None if tag is None else [name for name in tag if name]
    by = None if text is None else context.embedding(namespace, embedding, embedding_id)
    with context.memory(namespace, by) as memory:
        record = find(context, memory, id)
        changed = context.run(memory.edit(record.id, content=text, kind=kind, tags=tags, pinned=pinned, key=key))
    context.printer.records([changed])


def forget(
    context: CommandContext,
    namespace: Namespace,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The memory's id, or its first characters.")] = None,
    key: Annotated[str | None, typer.Option(help="The memory under this key.")] = None,
    kind: Kinds = None,
    tag: Tags = None,
    session: Session = None,
    containing: Containing = None,
    before: Before = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Also in history, in captured messages and in saved conversations.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="The whole namespace.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete the memories that match all given options, for good. Nothing is selected by similarity."""
    chosen: dict[str, Any] = {"key": key, "kinds": kind, "tags": tag, "session": session}
    chosen |= {"containing": containing, "before": before}
    if everything and (id or any(chosen.values())):
        raise ValueError("--all deletes the whole namespace; leave out everything else that selects.")
    if everything and dry_run:
        raise ValueError("--all deletes everything that `stats` counts; leave out --dry-run.")
    with context.memory(namespace) as memory:
        if everything:
            context.confirm(f"Delete everything in {namespace!r} for good?", yes=yes)
            context.run(memory.clear())
            context.report("Forgotten: all.", forgotten="all")
            return
        if id is None and all(value in (None, []) for value in chosen.values()):
            raise ValueError(
                "Say what to forget: an ID, --key, --kind, --tag, --session, --containing or --before; or --all."
            )
        if id is not None:
            record = find(context, memory, id)
            chosen["id"], what = record.id, f"“{one_line(record.content)}”"
        reachable = context.run(memory.forget(**chosen, everywhere=True, dry_run=True))
        meant = reachable if everywhere else context.run(memory.forget(**chosen, dry_run=True))
        left = _Untouched.of(reachable, meant)
        in_conversations = _in_conversations(meant)
        if not meant and not in_conversations:
            raise NothingFoundError(f"{namespace!r} has no such memories. Nothing was deleted. {left}".strip())
        if dry_run:
            _report(context, f"Would forget: {meant}.", {"would_forget": meant}, meant, left)
            return
        if id is None or meant != 1:
            what = f"{_count(meant, 'memory')} of {namespace!r}"
        also = f", and its mentions in {in_conversations} of saved conversations" if in_conversations else ""
        context.confirm(f"Delete {what}{also} for good?", yes=yes)
        gone = context.run(memory.forget(**chosen, everywhere=everywhere))
    _report(context, f"Forgotten: {gone}.", {"forgotten": gone}, gone, left)
    if everywhere and not context.as_json:
        context.printer.line("Not included: exports, snapshots, backups, and agents that are running.")


def sessions(
    context: CommandContext,
    namespace: Namespace,
    delete: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Delete this one for good, with its messages, saved state and summary; memories learned from it stay.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """List the conversations of a namespace, latest first; or delete one of them."""
    if delete is None and (dry_run or yes):
        raise ValueError("--dry-run and --yes belong to --delete NAME.")
    with context.memory(namespace) as memory:
        found = context.run(memory.sessions())
        if delete is None:
            columns = ("session", "started", "ended", "speakers", "messages", "resumable")
            context.printer.rows(columns, [fields_of(session) for session in found])
            return
        named = [session for session in found if session.name == delete]
        if not named:
            raise NothingFoundError(f"{namespace!r} has no conversation {delete!r}. Nothing was deleted.")
        messages, has_state = named[0].messages, named[0].resumable
        what = f"the conversation {delete!r} of {namespace!r}, {_count(messages, 'message')}"
        what += " and its saved state" if has_state else ""
        if not dry_run:
            context.confirm(f"Delete {what}, for good?", yes=yes)
            context.run(memory.delete_session(delete))
    sentence = f"{'Would delete' if dry_run else 'Deleted'} {what}."
    context.report(sentence, session=delete, messages=messages, state=has_state, dry_run=dry_run)


class _Untouched(NamedTuple):
    """Where the text also stands, and is not deleted."""

    history: int
    messages: int
    states: Sequence[str]
    summaries: Sequence[str]
    values: Sequence[str]
    unclear: Sequence[str]
    """The sessions whose saved state may contain it outside of its messages, or cannot be read."""

    @classmethod
    def of(cls, reachable: Forgotten, meant: Forgotten) -> Self:
        """Return what `--everywhere` would also delete, and values, which belong to the application."""
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
        counts = self.history, self.messages, len(self.states), len(self.summaries)
        nouns = "earlier version", "captured message", "saved state", "summary"
        found = [_count(count, noun) for count, noun in zip(counts, nouns) if count]
        sentences = (
            (found, f"Not deleted, but containing it: {', '.join(found)}; --everywhere includes them."),
            (self.values, f"Values that contain it are kept: {', '.join(map(one_line, self.values))}."),
            (self.unclear, f"Saved states that may contain it outside of their messages: {', '.join(self.unclear)}."),
        )
        return " ".join(sentence for items, sentence in sentences if items)


def _in_conversations(found: Forgotten) -> str:
    """Say in how many saved states and summaries it was found; empty for none."""
    counts = (len(found.traces.states), "state"), (len(found.traces.summaries), "summary")
    return " and ".join(_count(*count) for count in counts if count[0])


def _report(
    context: CommandContext, sentence: str, facts: dict[str, object], reached: Forgotten, left: _Untouched
) -> None:
    """Print what was deleted, and where else it stands."""
    if context.as_json:
        found = {"states": reached.traces.states, "summaries": reached.traces.summaries}
        context.printer.objects([{**facts, **found, "left": left._asdict()}])
        return
    in_conversations = _in_conversations(reached)
    conversations = f"Saved conversations that mention it: {in_conversations}." if in_conversations else ""
    for line in filter(None, [sentence, conversations, str(left)]):
        context.printer.line(line)


def _count(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def _lines_of_stdin() -> list[str]:
    """Return the lines of stdin that are not blank, of which there must be some."""
    try:
        lines = [line.strip() for line in sys.stdin.buffer.read().decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"stdin is not UTF-8 ({error}). Nothing was stored; convert it first, for example with iconv."
        ) from None
    lines = [line for line in lines if line]
    if not lines:
        raise ValueError("stdin is empty. Nothing was stored.")
    return lines
