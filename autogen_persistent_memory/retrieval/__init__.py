"""One namespace of one store: remember, recall, forget, rank, resolve conflicts.

Others import `engine`, and the pure functions of `ranking`, `diversity` and `editing`. It knows no AutoGen type, and calls nothing above it.
"""
