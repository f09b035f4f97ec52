"""Why bars are missed, where that is known: by words of the bar's name. Shown only beside a bar that is missed."""

from __future__ import annotations

_TURN = (
    "twice as much is searched, by words as well, and 300 candidates are weighed, ranked and put into words, for which the floor has "
    "nothing; handing the embedding to a thread and back, so that the event loop goes on, takes half a millisecond, and on two cores "
    "the model, which uses both, leaves every cache cold: see where the time goes"
)
REASONS = {
    "/ embedding and one raw query": _TURN,
    "/ `ChromaDBVectorMemory`'s": _TURN,
    "turn cost at 100,000": "1,000 memories are searched in RAM within half a millisecond; 100,000 are left to two of Chroma's indexes, "
    "asked at once, and their words take two milliseconds: the ratio is large since the smaller cost is small",
    "agents reading": "AutoGen's own work for as many agents at once stalls the loop, too (see the row of no memory), and threads at "
    "work take the interpreter's lock in turns with it",
    "import of the package": "sixty modules, a third of their time for the Pydantic models of the configuration; the rest is imported when used",
    "ours in bulk, MiniLM": "nearly all of ours is MiniLM itself, which is hardly faster for many texts than for one: see Chroma alone",
    "ours in bulk, cheap": "an embedded Chroma holds the interpreter's lock while it writes, so ours writes 64 at a time, and looks for restatements before",
}
