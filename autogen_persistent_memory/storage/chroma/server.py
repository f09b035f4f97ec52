"""Opens clients to a Chroma server, with a timeout and retries. Everything here blocks; call it in a thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...core.component_configs import ServerStoreConfig
from ...core.errors import StoreUnavailableError
from ...core.lazy_regex import lazy
from ...text.redaction import keep_out, without_secrets
from ..availability import CircuitBreaker, is_automatic
from ..outbox import Outbox, outbox_of
from .chroma_compat import http_client, is_blocked, quiet_settings, server_url
from .shared_client import ClientSource

if TYPE_CHECKING:
    import httpx
    from chromadb.api import ClientAPI

HOW_TO_UNBLOCK = "Stop the server, and run `autogen-memory doctor --repair --path FOLDER` on the folder that it serves"

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between the attempts of an explicit call: long enough for a server to restart."""
_SHORT_PAUSES = (0.1,)
"""The same where an agent waits; the circuit breaker probes the server in the background."""
_REPEATABLE_POSTS = lazy(r"/collections/[^/]+/(get|query|count|upsert|update|delete)$")
"""These name rows by id, so repeating them changes nothing."""
_GET_OR_CREATE = lazy(rb'"get_or_create"\s*:\s*true')
_UNREACHABLE = (429, 502, 503, 504)


class Server(ClientSource):
    """A Chroma server. Every call to it has a timeout."""

    local = False
    writers = 8

    def __init__(self, config: ServerStoreConfig) -> None:
        self._config = config
        self._sessions: dict[ClientAPI, ExitStack] = {}

    def identity(self) -> tuple[str, ...]:
        return "server", self._config.model_dump_json(exclude={"outbox"})

    @cached_property
    def breaker(self) -> CircuitBreaker:
        """Whether the server is reachable, which all memories of the process share."""
        return _breakers.setdefault(self.identity(), CircuitBreaker(self._probe, self.describe))

    def outbox(self, namespace: str) -> Outbox | None:
        config = self._config
        return outbox_of(config.outbox, (config.host, str(config.port), config.tenant, config.database, namespace))

    def _headers(self) -> dict[str, str]:
        config = self._config
        headers = {header: _secret(variable, f"header {header}") for header, variable in config.headers_env.items()}
        if config.token_env:
            headers["Authorization"] = f"Bearer {_secret(config.token_env, 'token')}"
        return headers

    def _probe(self, patience: float) -> None:
        """Ask for a heartbeat; any answer counts, except one of a gateway."""
        import httpx

        config = self._config
        url = server_url(config.host, config.port, ssl=config.ssl)
        answer = httpx.get(f"{url}/heartbeat", headers=self._headers(), timeout=min(patience, config.timeout))
        if answer.status_code >= 500 or answer.status_code == 429:
            answer.raise_for_status()

    def open(self) -> ClientAPI:
        config, headers = self._config, self._headers()

        def prepare(session: Any) -> None:
            """Give a session a timeout and retries, and close it with the client: Chroma does none of that."""
            session.timeout = config.timeout
            session.request = with_retries(type(session).request.__get__(session), self.breaker, config.timeout)
            sessions.callback(session.close)

        settings = quiet_settings(
            chroma_api_impl="chromadb.api.fastapi.FastAPI",
            chroma_server_host=config.host,
            chroma_server_http_port=config.port,
            chroma_server_ssl_enabled=config.ssl,
            chroma_server_headers=headers,
        )
        with ExitStack() as sessions:
            client = http_client(settings, config.tenant, config.database, prepare)
            self._sessions[client] = sessions.pop_all()
        return client

    def close(self, client: ClientAPI) -> None:
        client.close()
        self._sessions.pop(client).close()

    def describe(self, error: BaseException) -> str:
        where = f"{'https' if self._config.ssl else 'http'}://{self._config.host}:{self._config.port}"
        cause = _cause(error)
        reason = without_secrets(str(cause)) or type(cause).__name__
        if is_blocked(error):
            return (
                f"The Chroma server at {where} cannot apply what was written last ({reason}), for example a record with too many "
                f"tags of an earlier version, and cannot read what was there before. Nothing is lost. {HOW_TO_UNBLOCK}; if its "
                "disk is full, free some space instead."
            )
        return (
            f"The Chroma server at {where} cannot be used: {reason}. Check that it runs (start one on this machine with: "
            f"autogen-memory share --port {self._config.port}), that the address is right and that it "
            f"answers within {self._config.timeout:g} s; tenant {self._config.tenant!r} and database "
            f"{self._config.database!r} must exist, and the token's environment variable must be set if it wants one."
        )


class UnreachableError(Exception):
    """A gateway answered in the server's place, or the server answered that it is overloaded."""


def is_repeatable(method: str, path: str, content: bytes = b"") -> bool:
    """Return whether a request may be made twice: all reads, and writes and deletions of rows by their ids."""
    if method.upper() in ("GET", "HEAD"):
        return True
    return method.upper() == "POST" and bool(
        _REPEATABLE_POSTS.search(path) or (path.endswith("/collections") and _GET_OR_CREATE.search(content))
    )


Request = Callable[..., "httpx.Response"]


def with_retries(request: Request, breaker: CircuitBreaker, timeout: float) -> Request:
    """Return `httpx.Client.request` with retries where they are safe, never beyond the timeout, watched by a breaker."""

    def watched(method: str, url: str, **options: Any) -> httpx.Response:
        with breaker.call():
            answer = retried(method, url, options)
            if answer.status_code in _UNREACHABLE:
                said = without_secrets(f"{answer.reason_phrase} {answer.text}")
                raise UnreachableError(f"it answers {answer.status_code} {said[:200]}")
            return answer

    def retried(method: str, url: str, options: dict[str, Any]) -> httpx.Response:
        import httpx

        until = time.monotonic() + timeout
        pauses: tuple[float, ...] = _SHORT_PAUSES if is_automatic() else _PAUSES
        if not is_repeatable(method, url, options.get("content", b"")):
            pauses = ()
        for pause in pauses:
            try:
                answer = request(method, url, **options, timeout=until - time.monotonic())
            except httpx.TransportError:
                if time.monotonic() + pause >= until:
                    raise
            else:
                is_final = (answer.status_code < 500 and answer.status_code != 429) or is_blocked(answer.text)
                if is_final or time.monotonic() + pause >= until:
                    return answer
            time.sleep(pause)
        return request(method, url, **options, timeout=until - time.monotonic())

    return watched


def _cause(error: BaseException) -> BaseException:
    """Return why the server was not reached, where Chroma raised an error of its own about that."""
    import httpx

    found: BaseException | None = error
    while found is not None and not isinstance(found, (httpx.TransportError, UnreachableError)):
        found = found.__cause__ or found.__context__
    return found or error


_breakers: dict[tuple[str, ...], CircuitBreaker] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_breakers.clear)


def from_environment(variable: str, what: str) -> str:
    """Return the value of an environment variable, which must be set."""
    value = os.environ.get(variable)
    if not value:
        raise StoreUnavailableError(
            f"The environment variable {variable}, which holds the store's {what}, is not set. Set it and try again."
        )
    return value


def _secret(variable: str, what: str) -> str:
    """Return the value of an environment variable for a header, and keep it out of errors and logs."""
    value = from_environment(variable, what)
    if not (value.isascii() and value.isprintable()):  # httpx would say so, and repeat it
        raise StoreUnavailableError(
            f"The environment variable {variable}, which holds the store's {what}, has characters that no header can have, "
            "such as a line break at its end. Set it to the bare value and try again."
        )
    keep_out(value)
    return value
