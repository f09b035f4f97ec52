"""The store protocol over Chroma.

Its face is `connection.ChromaConnection`, which `storage.stores` makes and `maintenance` uses; `maintenance` also reads
`rows`, `values` and `migrations`, the stored format. Only `chroma_compat` touches what is private of Chroma. Nothing here
knows about ranking, extraction or AutoGen.
"""
