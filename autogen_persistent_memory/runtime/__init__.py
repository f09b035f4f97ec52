"""Scheduling and files: threads, deadlines, background tasks, locks, eviction, private files, reporting.

Others may import every module. This folder must never know what the work is about: no memories, no AutoGen, no Chroma.
"""
