"""Damage to an embedded store: found before Chroma opens it, and repaired from the documents.

`embedded.Folder` calls `startup_repair`; `maintenance` also reads `inspect` and `hnsw_files`. It is imported on first use,
and knows nothing about memories, only about collections, rows and vectors.
"""
