"""A server that cannot be reached is asked again in the background, not by every turn of every agent."""

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
"""Seconds without anybody asking after which a server is no longer looked for."""
_REMEMBERED_CALLS = 64

_Manner = Literal["asked for", "automatic", "patient"]
_manner: ContextVar[_Manner] = ContextVar("manner", default="asked for")


def automatic() -> AbstractContextManager[None]:
    """What is done within is done by itself, for an agent or in the background: it fails at once while the server is gone.

    Everything else was asked for by name, and really tries.
    """
    return _done("automatic")


def patiently() -> AbstractContextManager[None]:
    """What is done within is done in the background, and may take its time: it also tries a server too slow for agents.

    That some of its calls are fast does not bring the agents back to that server.
    """
    return _done("patient")


@contextmanager
def _done(manner: _Manner) -> Iterator[None]:
    token = _manner.set(manner)
    try:
        yield
    finally:
        _manner.reset(token)


def is_automatic() -> bool:
    """Whether what is being done is done by itself, and somebody may wait for it."""
    return _manner.get() == "automatic"


class CircuitBreaker:
    """Whether a server can be reached, as far as this process knows. Serves any thread.

    Args:
        probe: Asks the server for a sign of life within so many seconds, or raises. Without it nothing is ever down.
        describe: What an error means and what to do next.
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
        """How often the server came back."""
        self._asked_at = -math.inf
        self._prober: threading.Thread | None = None
        self._under_way: dict[object, float] = {}
        self._answered: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED_CALLS)
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether the server is known to be out of reach."""
        return self._trouble is not None

    @property
    def is_unsteady(self) -> bool:
        """Whether the server is out of reach, or was a moment ago, so that calls of that time may still fail."""
        return self.is_open or time.monotonic() - self._recovered_at < _LONGEST_PAUSE

    def check(self) -> None:
        """Fail at once if the server is known to be out of reach, and something is done by itself.

        Raises:
            StoreUnavailableError: It is.
        """
        if self._trouble is not None and is_automatic():
            self._keep_looking()
            raise StoreUnavailableError(f"{self._trouble} It is looked for in the background.")

    @contextmanager
    def call(self) -> Iterator[None]:
        """Keep an eye on a call to the server. What does not raise has reached it."""
        token, started = object(), time.monotonic()
        with self._changed:
            self._under_way[token] = started
        try:
            yield
        except Exception as error:
            self._end(token, started)
            self.failed(error)
            raise
        except BaseException:
            self._end(token, started)
            raise
        self._end(token, started)
        if _manner.get() != "patient":
            self._reached(time.monotonic() - started)

    def failed(self, error: BaseException, patience: float = math.inf) -> None:
        """The server could not be reached. It counts as back once it answers within so many seconds."""
        if self._probe is None:
            return
        with self._changed:
            self._asked_at = time.monotonic()
            if self._trouble is not None:
                return
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if self.is_unsteady else _FIRST_PAUSE
            self._trouble, self._patience = self._describe(error), patience
        logger.warning("%s Agents go on without memory until it is back.", self._trouble)
        self._keep_looking()

    def gave_up(self, waited: float) -> None:
        """An agent waited so long in vain; was it the server's fault?"""
        now, too_slow = time.monotonic(), waited / 4
        with self._changed:
            hung = any(now - started >= too_slow for started in self._under_way.values())
            slow = any(at >= now - waited and seconds >= too_slow for at, seconds in self._answered)
        if hung or slow:
            self.failed(TimeoutError(f"it does not answer within an agent's deadline of {waited:g} s"), waited / 2)

    def when_it_answers(self, call: Callable[[], None]) -> None:
        """Call this, in another thread, once the server answers, fast enough for agents or not; at once if it is there."""
        with self._changed:
            if self._trouble is not None:
                self._waiting.append(call)
                return
        call()

    def no_longer(self, call: Callable[[], None]) -> None:
        """Do not call this any more."""
        with self._changed:
            self._waiting = [other for other in self._waiting if other != call]

    def _end(self, token: object, started: float) -> None:
        now = time.monotonic()
        with self._changed:
            del self._under_way[token]
            self._answered.append((now, now - started))

    def _reached(self, seconds: float) -> None:
        """The server answered in so many seconds."""
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
            logger.info("The Chroma server is back; agents have their memory again.")
        for call in waiting:
            call()

    def _keep_looking(self) -> None:
        with self._changed:
            self._asked_at = time.monotonic()
            if self._prober is None or not self._prober.is_alive():
                self._prober = threading.Thread(target=self._look, name="autogen-memory-probe", daemon=True)
                self._prober.start()

    def _look(self) -> None:
        """Ask for a sign of life, less and less often, and wait for it longer and longer: a slow server takes deliveries."""
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
                logger.debug("The Chroma server is still out of reach: %r", error)
            else:
                self._reached(time.monotonic() - started)
