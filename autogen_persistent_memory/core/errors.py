"""The errors that this package raises.

::

    Exception
    ├── ValueError                      an invalid argument: nothing was read or written
    │   └── NamespaceError              (also a PersistentMemoryError)
    └── PersistentMemoryError           memory itself has a problem
        ├── NamespaceError              an invalid name of a namespace or session
        ├── StoreUnavailableError       the store cannot be reached, opened, or written
        ├── StoreLockedError            another process has this embedded store open
        ├── EmbeddingMismatchError      the stored vectors were made by another embedding
        └── SchemaVersionError          the stored data was written by a newer version

Every message ends with what to do next.
"""


class PersistentMemoryError(Exception):
    """Base of every error of this package that is not simply an invalid argument."""

    needs_developer = False
    """True if retrying cannot help: a developer has to change code or setup.

    On the agent's path such an error is logged as an error instead of a warning, and raised under `policy.strict`.
    """


class NamespaceError(PersistentMemoryError, ValueError):
    """The name of a namespace or session is invalid. Nothing was read or written."""


class StoreUnavailableError(PersistentMemoryError):
    """The store cannot be reached, opened or written: the server is down, the disk is full, the path is not usable."""


class StoreLockedError(PersistentMemoryError):
    """Another process has this embedded store open. An embedded store belongs to one process at a time."""

    needs_developer = True


class EmbeddingMismatchError(PersistentMemoryError):
    """The stored vectors were made by another embedding than the one this memory uses."""

    needs_developer = True


class SchemaVersionError(PersistentMemoryError):
    """The stored data has a newer schema than this version of the package can read."""

    needs_developer = True
