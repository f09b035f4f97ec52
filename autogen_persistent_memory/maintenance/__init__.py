"""Work on whole stores: export, import, snapshot, diagnosis, repair and recovery.

Others import `doctor`, `snapshot`, `import_chroma` and `transfer.transfer`, lazily: most programs never need them. `salvage`
is the doctor's. It knows the engine and the files of a store, but no agent and no conversation.
"""
