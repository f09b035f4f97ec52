"""Rows on disk: the store protocol, the connection that wraps any backend, the stores that users name, and Chroma.

Others import `protocol`, `connection`, `stores`, `availability`, `outbox` and `folder_lock`; only `maintenance` uses `chroma`
and `repair`. It knows records, vectors and named texts, and nothing about ranking, extraction or AutoGen.
"""
