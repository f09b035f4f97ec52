"""Rows on disk: the protocol of a store, the stores users name, and Chroma behind them.

Others import `protocol`, `stores`, `availability` and `outbox`; only `maintenance` looks into `chroma` and `repair`. It knows
nothing about ranking, extraction or AutoGen.
"""
