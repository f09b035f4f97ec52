"""Threads, deadlines, locks and files: how work is scheduled, without knowing what the work is.

Others import any module of it. It knows nothing about memories, AutoGen or Chroma.
"""
