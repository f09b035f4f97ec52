"""Options that several commands have, and how what is typed becomes a time, a lifetime or a memory's id."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from ..core.checks import check_time
from ..core.records import utc_now

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIME = "a time such as 2026-03-01 or 2026-03-01T12:00 (UTC), or an age such as 90m, 12h, 7d or 2w"


def duration(text: str) -> timedelta:
    """What 90m, 12h, 7d or 2w means."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration such as 90m, 12h, 7d or 2w.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def moment(text: str) -> datetime:
    """A time, or one that long ago; UTC where it does not say."""
    if re.fullmatch(r"\d+[mhdw]", text.strip()):
        return utc_now() - duration(text)
    try:
        time = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text.strip()))
        found = check_time(time if time.tzinfo else time.replace(tzinfo=timezone.utc), "the time")
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not {_TIME}: {error}") from None
    assert found is not None
    return found


Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", envvar="AUTOGEN_MEMORY_NAMESPACE", help="Whose memories, such as user-42."),
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", "-k", help="Only this kind; may be repeated.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", "-t", help="Only with this tag; repeated, with all of them.")]
Session = Annotated[str | None, typer.Option("--session", "-s", help="Only of this session.")]
Containing = Annotated[str | None, typer.Option(help="Only with this literal text, in upper or lower case.")]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="At most so many.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")]
EmbeddingName = Annotated[
    str | None,
    typer.Option(
        "--embedding",
        metavar="NAME",
        help="minilm, chroma:NAME or module:function; by default what the memories were written with.",
    ),
]
EmbeddingId = Annotated[
    str | None, typer.Option("--embedding-id", metavar="ID", help="The name of the vectors of module:function.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, or the beginning of it.")]
At = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help=f"As it was at {_TIME}.")]
Before = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help=f"Only written before {_TIME}.")]
Ttl = Annotated[timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="How long it lives, as 7d.")]
