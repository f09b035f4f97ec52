"""Options that several commands share, and the parsers of times and durations."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from ..core.checks import check_time
from ..core.records import utc_now

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIME = "a time such as 2026-03-01 or 2026-03-01T12:00 (UTC), or an age such as 90m, 12h, 7d or 2w"
_PANEL = "Store and output"


def duration(text: str) -> timedelta:
    """Parse a duration such as 90m, 12h, 7d or 2w."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 7d, 12h or 90m.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def moment(text: str) -> datetime:
    """Parse a time, in UTC unless it has an offset, or an age such as 7d, counted back from now."""
    try:
        if re.fullmatch(r"\d+[mhdw]", text.strip()):
            return utc_now() - duration(text)
        time = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text.strip()))
        found = check_time(time if time.tzinfo else time.replace(tzinfo=timezone.utc), "the time")
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{text!r} is not {_TIME}: {error}") from None
    assert found is not None
    return found


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        sys.stdout.write(f"autogen-memory {__version__}\n")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
]
Path = Annotated[
    str | None,
    typer.Option(
        help="The store's folder; by default AUTOGEN_MEMORY_PATH, else ~/.autogen_memory.", rich_help_panel=_PANEL
    ),
]
Server = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="A Chroma server instead of a folder.", rich_help_panel=_PANEL)
]
Ssl = Annotated[bool, typer.Option("--ssl", help="Connect to the server with https.", rich_help_panel=_PANEL)]
TokenEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The environment variable with the server's token.", rich_help_panel=_PANEL),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=_PANEL)]

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", envvar="AUTOGEN_MEMORY_NAMESPACE", help="Whose memories, such as user-42.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, or its first characters (four or more).")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", "-k", help="Only this kind; may be repeated.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", "-t", help="Only with this tag; repeated, with all of them.")]
Session = Annotated[str | None, typer.Option("--session", "-s", help="Only from this session.")]
Containing = Annotated[str | None, typer.Option(help="Only with this literal text; case is ignored.")]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="The maximum number of results.")]
At = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help=f"As it was at {_TIME}.")]
Before = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help=f"Only written before {_TIME}.")]
Ttl = Annotated[timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Time to live, such as 7d.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")]
EmbeddingName = Annotated[
    str | None,
    typer.Option(
        "--embedding",
        metavar="NAME",
        help="minilm, chroma:NAME or module:function; by default the one that the memories were written with.",
    ),
]
EmbeddingId = Annotated[
    str | None, typer.Option("--embedding-id", metavar="ID", help="The id of the vectors that module:function makes.")
]
