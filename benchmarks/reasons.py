"""Why bars are missed, where that is known: by words of the bar's name. Shown only beside a bar that is missed."""

from __future__ import annotations

_TURN = (
    "two collections are searched, by words as well, and 200 candidates are weighed, ranked and put into words, all in Python; "
    "handing the embedding to a thread and back and AutoGen's own part take 2 ms of it: see where the time goes"
)
REASONS = {
    "/ embedding and one raw query": _TURN,
    "/ `ChromaDBVectorMemory`'s": _TURN,
    "agents reading": "AutoGen's own work for as many agents at once stalls the loop, too (see the row of no memory), and threads at "
    "work take the interpreter's lock in turns with it",
    "import of the package": "sixty modules, a third of their time for the Pydantic models of the configuration; the rest is imported when used",
    "ours in bulk, MiniLM": "nearly all of ours is MiniLM itself, which is hardly faster for many texts than for one: see Chroma alone",
    "ours in bulk, cheap": "an embedded Chroma holds the interpreter's lock while it writes, so ours writes 64 at a time, and looks for restatements before",
}
