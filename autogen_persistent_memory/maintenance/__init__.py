"""Whole stores: export, import, snapshot, doctor, salvage.

Others import `doctor`, `snapshot`, `import_chroma` and `transfer`. It knows no agent and no conversation.
"""
