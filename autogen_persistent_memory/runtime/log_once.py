"""Log once what would otherwise repeat with every turn. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Hashable

_MOST = 10_000
"""With more than these the books are started over; then something may be logged a second time."""


class Notices:
    """What this process has already logged about whom."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, set[str]] = {}

    def is_new(self, about: Hashable, reason: str) -> bool:
        """Whether this was not logged yet; from now on it counts as logged."""
        if len(self._logged) >= _MOST:
            self._logged.clear()
        reasons = self._logged.setdefault(about, set())
        if reason in reasons:
            return False
        if len(reasons) >= _MOST:
            reasons.clear()
        reasons.add(reason)
        return True

    def settle(self, about: Hashable) -> None:
        """All is well again: new trouble is logged again."""
        self._logged.pop(about, None)

    def __bool__(self) -> bool:
        return bool(self._logged)


notices = Notices()
"""Those of this process, about namespaces of stores; see `Engine.whose`."""
