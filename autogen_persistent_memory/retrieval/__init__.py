"""One namespace of one store: remember, recall, forget, rank, resolve conflicts.

Others import `engine`, `namespace` (to store records as they are), and the pure functions of `ranking`, `diversity` and
`conflicts`. The flow is one-way: engine -> search -> cache, and back with values. It must never know AutoGen or its messages, and
calls nothing above it: a memory passes in what belongs to the housekeeping.
"""
