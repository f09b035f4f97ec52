"""Opens clients to a Chroma server, with a timeout and retries. Everything here blocks; call it in a thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...core.component_configs import ServerStoreConfig
from ...core.errors import StoreUnavailableError
from ...core.lazy_regex import lazy
from ...text.redaction import keep_out, without_secrets
from ..availability import CircuitBreaker, is_automatic
from ..outbox import Outbox, outbox_of
from .chroma_compat import quiet_settings
from .write_log import is_blocked

if TYPE_CHECKING:
    import httpx
    from chromadb.api import ClientAPI

HOW_TO_UNBLOCK = "Stop the server, and run `autogen-memory doctor --repair --path FOLDER` on the folder that it serves"

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between the attempts of a call that somebody asked for: long enough for a server to be started again."""
_SHORT_PAUSES = (0.1,)
"""Where an agent waits; the breaker looks for the server in the background."""
_REPEATABLE_POSTS = lazy(r"/collections/[^/]+/(get|query|count|upsert|update|delete)$")
"""By id they do the same however often they are done."""
_GET_OR_CREATE = lazy(rb'"get_or_create"\s*:\s*true')
_UNREACHABLE = (429, 502, 503, 504)


class Server:
    """Opens a client to a Chroma server, every call of which has a timeout."""

    local = False
    writers = 8
    folder = None

    def __init__(self, config: ServerStoreConfig) -> None:
        self._config = config
        self._sessions: dict[ClientAPI, list[Any]] = {}

    def identity(self) -> tuple[str, ...]:
        return "server", self._config.model_dump_json(exclude={"outbox"})

    @cached_property
    def breaker(self) -> CircuitBreaker:
        """Whether it can be reached, which all memories of the process share."""
        return _breakers.setdefault(self.identity(), CircuitBreaker(self._probe, self.describe))

    def outbox(self, namespace: str) -> Outbox | None:
        """Where what cannot be stored for now is kept on this machine."""
        config = self._config
        return outbox_of(config.outbox, (config.host, str(config.port), config.tenant, config.database, namespace))

    def _headers(self) -> dict[str, str]:
        config = self._config
        headers = {header: _secret(variable, f"header {header}") for header, variable in config.headers_env.items()}
        if config.token_env:
            headers["Authorization"] = f"Bearer {_secret(config.token_env, 'token')}"
        return headers

    def _probe(self, patience: float) -> None:
        """A cheap sign of life: any answer but a gateway's excuse."""
        import httpx
        from chromadb.api.fastapi import FastAPI

        config = self._config
        url = FastAPI.resolve_url(
            chroma_server_host=config.host,
            chroma_server_http_port=config.port,
            chroma_server_ssl_enabled=config.ssl,
            default_api_path="/api/v2",
        )
        answer = httpx.get(f"{url}/heartbeat", headers=self._headers(), timeout=min(patience, config.timeout))
        if answer.status_code >= 500 or answer.status_code == 429:
            answer.raise_for_status()

    def open(self) -> ClientAPI:
        from chromadb.api.client import Client

        config, headers = self._config, self._headers()
        sessions: list[Any] = []

        class TimedClient(Client):  # type: ignore[misc]
            """Sets a timeout on its HTTP sessions, which Chroma gives none, before either is used, and lets them retry."""

            def get_user_identity(self) -> Any:
                limit(self._server)
                return super().get_user_identity()

            def _validate_tenant_database(self, tenant: str, database: str) -> None:
                limit(self._admin_client._server)
                super()._validate_tenant_database(tenant, database)

        def limit(server: Any) -> None:
            session = server._session
            session.timeout = config.timeout
            session.request = Requests(type(session).request.__get__(session), self.breaker, config.timeout)
            sessions.append(session)

        settings = quiet_settings(
            chroma_api_impl="chromadb.api.fastapi.FastAPI",
            chroma_server_host=config.host,
            chroma_server_http_port=config.port,
            chroma_server_ssl_enabled=config.ssl,
            chroma_server_headers=headers,
        )
        try:
            client = TimedClient(tenant=config.tenant, database=config.database, settings=settings)
        except BaseException:
            _close_all(sessions)
            raise
        self._sessions[client] = sessions
        return client

    def close(self, client: ClientAPI) -> None:
        client.close()
        _close_all(self._sessions.pop(client, []))

    def describe(self, error: BaseException) -> str:
        where = f"{'https' if self._config.ssl else 'http'}://{self._config.host}:{self._config.port}"
        cause = _cause(error)
        reason = without_secrets(str(cause)) or type(cause).__name__
        if is_blocked(error):
            return (
                f"The Chroma server at {where} cannot take in what was written last ({reason}), as a record with too many tags "
                f"of an earlier version, nor read what was before. Nothing is lost. {HOW_TO_UNBLOCK}; if its disk is full, free "
                "some space instead."
            )
        return (
            f"The Chroma server at {where} cannot be used: {reason}. Check that it runs (start one on this machine with: "
            f"autogen-memory share --port {self._config.port}), that the address is right and that it "
            f"answers within {self._config.timeout:g} s; tenant {self._config.tenant!r} and database "
            f"{self._config.database!r} must exist, and the token's environment variable must be set if it wants one."
        )


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

    def __init__(self, request: Callable[..., httpx.Response], breaker: CircuitBreaker, timeout: float) -> None:
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


def _cause(error: BaseException) -> BaseException:
    """Why the server was not reached, where Chroma has an opinion of its own about that."""
    import httpx

    found: BaseException | None = error
    while found is not None and not isinstance(found, (httpx.TransportError, UnreachableError)):
        found = found.__cause__ or found.__context__
    return found or error


def _close_all(sessions: list[Any]) -> None:
    """Close connections, which Chroma leaves open."""
    for session in sessions:
        session.close()


_breakers: dict[tuple[str, ...], CircuitBreaker] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_breakers.clear)


def from_environment(variable: str, what: str) -> str:
    """The value of an environment variable, which must be set."""
    value = os.environ.get(variable)
    if not value:
        raise StoreUnavailableError(
            f"The environment variable {variable}, which holds the store's {what}, is not set. Set it and try again."
        )
    return value


def _secret(variable: str, what: str) -> str:
    """The value of an environment variable, as a header; it is kept out of errors and logs."""
    value = from_environment(variable, what)
    if not (value.isascii() and value.isprintable()):  # httpx would say so, and repeat it
        raise StoreUnavailableError(
            f"The environment variable {variable}, which holds the store's {what}, has characters that no header can have, "
            "such as a line break at its end. Set it to the bare value and try again."
        )
    keep_out(value)
    return value
