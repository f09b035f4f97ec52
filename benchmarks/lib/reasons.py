"""Why bars are missed, where that is known: by words of the bar's name. Shown only beside a bar that is missed."""

from __future__ import annotations

_TURN = (
    "ours searches two collections, by keywords as well, and ranks and formats 300 candidates, which the floor does "
    "not do; moving the embedding to a thread and back, so that the event loop keeps running, takes half a "
    "millisecond; and on two cores the model uses both and leaves the caches cold: see where the time goes"
)
REASONS = {
    "/ embedding and one raw query": _TURN,
    "/ `ChromaDBVectorMemory`'s": _TURN,
    "turn cost at 100,000": "1,000 memories are searched in RAM within half a millisecond; 100,000 are searched by two of Chroma's indexes at "
    "once, and their keywords take two milliseconds: the ratio is large because the smaller cost is small",
    "agents reading": "AutoGen's own work for this number of agents stalls the loop too (see the row of no memory), and working threads "
    "compete with it for the interpreter's lock",
    "import of the package": "sixty modules; a third of their time goes into the Pydantic models of the configuration; the rest is imported on "
    "first use",
    "ours in bulk, MiniLM": "nearly all of the time is MiniLM itself, which is hardly faster for many texts than for one: see Chroma alone",
    "ours in bulk, cheap": "an embedded Chroma holds the interpreter's lock while it writes, so ours writes 64 at a time, and looks for "
    "restatements first",
}
