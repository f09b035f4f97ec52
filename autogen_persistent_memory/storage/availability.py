"""A circuit breaker: while a server is out of reach, one background thread probes it, and agents go on without memory."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal

from ..core.errors import StoreUnavailableError

logger = logging.getLogger("autogen_persistent_memory")

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_STILL_WANTED = 60.0
"""Seconds without a caller after which a server is no longer probed."""
_REMEMBERED_CALLS = 64

_Mode = Literal["explicit", "automatic", "patient"]
_mode: ContextVar[_Mode] = ContextVar("mode", default="explicit")


def automatic() -> AbstractContextManager[None]:
    """Mark calls that the package makes by itself, for an agent or in the background: they fail at once on an open breaker.

    All other calls are explicit calls of the application, which always try.
    """
    return _calling("automatic")


def patiently() -> AbstractContextManager[None]:
    """Mark background calls that may take long: they also try a server that is too slow for agents.

    If some of them are fast, that does not yet close the breaker for agents.
    """
    return _calling("patient")


@contextmanager
def _calling(mode: _Mode) -> Iterator[None]:
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def is_automatic() -> bool:
    """Return whether the package makes the current call by itself, and an agent may wait for it."""
    return _mode.get() == "automatic"


class CircuitBreaker:
    """Whether a server is reachable, as far as this process knows. Serves any thread.

    Args:
        probe: Asks the server for a heartbeat within that many seconds, or raises. Without it the breaker never opens.
        describe: Returns what an error means and what to do next.
    """

    def __init__(
        self, probe: Callable[[float], None] | None = None, describe: Callable[[BaseException], str] = str
    ) -> None:
        self._probe = probe
        self._describe = describe
        self._changed = threading.Condition()
        self._trouble: str | None = None
        self._patience = math.inf
        self._pause = _FIRST_PAUSE
        self._recovered_at = -math.inf
        self.recoveries = 0
        """How often the server became reachable again."""
        self._asked_at = -math.inf
        self._prober: threading.Thread | None = None
        self._under_way: dict[object, float] = {}
        self._answered: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED_CALLS)
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether the server is known to be unreachable."""
        return self._trouble is not None

    @property
    def is_unstable(self) -> bool:
        """Whether the server is unreachable, or was a moment ago, so that calls from then may still fail."""
        return self.is_open or time.monotonic() - self._recovered_at < _LONGEST_PAUSE

    def check(self) -> None:
        """Fail at once if the breaker is open and the current call is automatic.

        Raises:
            StoreUnavailableError: The server is known to be unreachable.
        """
        if self._trouble is not None and is_automatic():
            self._keep_probing()
            raise StoreUnavailableError(f"{self._trouble} It is probed in the background.")

    @contextmanager
    def call(self) -> Iterator[None]:
        """Watch a call to the server: it counts as reachable if the call does not raise."""
        token, started = object(), time.monotonic()
        with self._changed:
            self._under_way[token] = started
        try:
            yield
        except Exception as error:
            self.failed(error)
            raise
        finally:
            now = time.monotonic()
            with self._changed:
                del self._under_way[token]
                self._answered.append((now, now - started))
        if _mode.get() != "patient":
            self._reached(time.monotonic() - started)

    def failed(self, error: BaseException, patience: float = math.inf) -> None:
        """Open the breaker. It closes once the server answers within `patience` seconds."""
        if self._probe is None:
            return
        with self._changed:
            self._asked_at = time.monotonic()
            if self._trouble is not None:
                return
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if self.is_unstable else _FIRST_PAUSE
            self._trouble, self._patience = self._describe(error), patience
        logger.warning("%s Agents go on without memory until it is back.", self._trouble)
        self._keep_probing()

    def gave_up(self, waited: float) -> None:
        """Open the breaker after an agent's timeout of `waited` seconds, if slow calls to the server caused it."""
        now, too_slow = time.monotonic(), waited / 4
        with self._changed:
            hung = any(now - started >= too_slow for started in self._under_way.values())
            slow = any(at >= now - waited and seconds >= too_slow for at, seconds in self._answered)
        if hung or slow:
            self.failed(TimeoutError(f"it does not answer within an agent's deadline of {waited:g} s"), waited / 2)

    def call_when_reachable(self, call: Callable[[], None]) -> None:
        """Call this, in another thread, once the server answers, even if too slowly for agents; at once if it is reachable."""
        with self._changed:
            if self._trouble is not None:
                self._waiting.append(call)
                return
        call()

    def cancel_call(self, call: Callable[[], None]) -> None:
        """Cancel a call that `call_when_reachable` was given."""
        with self._changed:
            self._waiting = [other for other in self._waiting if other != call]

    def _reached(self, seconds: float) -> None:
        with self._changed:
            if self._trouble is None:
                return
            waiting, self._waiting = self._waiting, []
            is_back = seconds <= self._patience
            if is_back:
                self._trouble, self._recovered_at = None, time.monotonic()
                self.recoveries += 1
                self._changed.notify_all()
        if is_back:
            logger.info("The Chroma server is reachable again; agents have their memory back.")
        for call in waiting:
            call()

    def _keep_probing(self) -> None:
        with self._changed:
            self._asked_at = time.monotonic()
            if self._prober is None or not self._prober.is_alive():
                name = "autogen-memory-probe"
                self._prober = threading.Thread(target=self._probe_until_reached, name=name, daemon=True)
                self._prober.start()

    def _probe_until_reached(self) -> None:
        """Probe less and less often, with longer and longer timeouts: even a slow server takes deliveries."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._trouble is None, timeout=self._pause)
                is_wanted = self._waiting or time.monotonic() - self._asked_at < max(_STILL_WANTED, 2 * self._pause)
                if self._trouble is None or not is_wanted or self._probe is None:
                    self._prober = None
                    return
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                patience = min(max(self._patience, self._pause), _LONGEST_PAUSE)
            started = time.monotonic()
            try:
                self._probe(patience)
            except Exception as error:
                logger.debug("The Chroma server is still unreachable: %r", error)
            else:
                self._reached(time.monotonic() - started)
