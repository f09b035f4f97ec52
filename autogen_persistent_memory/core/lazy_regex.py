"""Regular expressions that are compiled when they are first used: there are hundreds, and importing must not wait for them."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn")


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression, to be used as if `re.compile` had made it."""
    return cast("re.Pattern[AnyStr]", _Lazy(pattern, flags))


class _Lazy:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        self.__dict__.update((method, getattr(compiled, method)) for method in _METHODS)
        return getattr(compiled, name)
