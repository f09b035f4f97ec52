"""Requests to a Chroma server that are made again when it was only out of reach for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.lazy_regex import lazy
from ...text.disclosure import without_secrets
from ..availability import Breaker, is_automatic
from .write_log import is_blocked

if TYPE_CHECKING:
    import httpx

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between the attempts of a call that somebody asked for: long enough for a server to be started again."""
_SHORT_PAUSES = (0.1,)
"""Where an agent waits; the breaker looks for the server in the background."""
_REPEATABLE_POSTS = lazy(r"/collections/[^/]+/(get|query|count|upsert|update|delete)$")
"""By id they do the same however often they are done."""
_GET_OR_CREATE = lazy(rb'"get_or_create"\s*:\s*true')
_UNREACHABLE = (429, 502, 503, 504)


class UnreachableError(Exception):
    """Something answered in the server's place, or it answered that it cannot now."""


def is_repeatable(method: str, path: str, content: bytes = b"") -> bool:
    """Whether a request may be made twice: all reads, and what writes or deletes rows by their ids."""
    if method.upper() in ("GET", "HEAD"):
        return True
    return method.upper() == "POST" and bool(
        _REPEATABLE_POSTS.search(path) or (path.endswith("/collections") and _GET_OR_CREATE.search(content))
    )


class Requests:
    """`httpx.Client.request`, made again where that is safe, never beyond the timeout, and watched by a breaker."""

    def __init__(self, request: Callable[..., httpx.Response], breaker: Breaker, timeout: float) -> None:
        self._request = request
        self._breaker = breaker
        self._timeout = timeout

    def __call__(self, method: str, url: str, **options: Any) -> httpx.Response:
        with self._breaker.call():
            answer = self._answer(method, url, options)
            if answer.status_code in _UNREACHABLE:
                said = without_secrets(f"{answer.reason_phrase} {answer.text}")
                raise UnreachableError(f"it answers {answer.status_code} {said[:200]}")
            return answer

    def _answer(self, method: str, url: str, options: dict[str, Any]) -> httpx.Response:
        import httpx

        until = time.monotonic() + self._timeout
        pauses: tuple[float, ...] = _SHORT_PAUSES if is_automatic() else _PAUSES
        if not is_repeatable(method, url, options.get("content", b"")):
            pauses = ()
        for pause in pauses:
            try:
                answer = self._request(method, url, **options, timeout=until - time.monotonic())
            except httpx.TransportError:
                if time.monotonic() + pause >= until:
                    raise
            else:
                if (answer.status_code < 500 and answer.status_code != 429) or is_blocked(answer.text):
                    return answer
                if time.monotonic() + pause >= until:
                    return answer
            time.sleep(pause)
        return self._request(method, url, **options, timeout=until - time.monotonic())
