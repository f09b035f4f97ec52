"""What errors and logs may tell: what went wrong, without the secrets that were used in it.

Servers, proxies and libraries repeat in their errors what they were given: a token, a header, an address with a password.
Such text comes into our errors only through `without_secrets`, its exception only through `caused_by`, and all that
the package logs is looked through once more.
"""

from __future__ import annotations

import logging
import re
from typing import TypeVar

from ..core.lazy_regex import lazy
from .secrets import redact

E = TypeVar("E", bound=BaseException)

_SHORTEST = 6
"""What is shorter protects nothing, and may be part of any word."""
_MARK = "[REDACTED]"
_USER_IN_ADDRESS = lazy(
    r"(://)[^\s/@'\"]{1,300}@|(?<![\w:/@.-])[^\s:/@'\"]{1,100}:[^\s:/@'\"]{1,200}@(?=[\w.-]{1,100}(?::\d|/|\b))"
)
_VARIABLE = lazy(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_used: set[str] = set()


def keep_out(secret: str) -> None:
    """Keep a secret that this process uses out of all errors and logs."""
    if len(secret) >= _SHORTEST:
        _used.add(secret)


def without_secrets(text: str) -> str:
    """A text about trouble, without what looks like a secret, or is known to be one.

    >>> without_secrets("no answer from https://ann:hunter2@example.org/api")
    'no answer from https://[REDACTED]@example.org/api'
    """
    for secret in sorted(_used, key=len, reverse=True):
        text = text.replace(secret, _MARK)
    return redact(_USER_IN_ADDRESS.sub(lambda found: f"{found[1] or ''}{_MARK}@", text))


def caused_by(error: E, cause: BaseException) -> E:
    """The error, with its cause if that can be shown. To be raised outside of `except`, which would attach the cause anyway."""
    error.__cause__ = None if any(_tells_a_secret(link) for link in _chain(cause)) else cause
    return error


def _chain(error: BaseException) -> list[BaseException]:
    """The error, and all that it came from."""
    found = [error]
    for link in found:  # which grows meanwhile
        before = (link.__cause__, link.__context__)
        found += [other for other in before if other is not None and not any(other is known for known in found)]
    return found


def _tells_a_secret(error: BaseException) -> bool:
    told = f"{error!r}\n{error}"
    return without_secrets(told) != told


def check_variable(name: str, what: str) -> str:
    """The name of an environment variable, or a complaint that does not repeat it: it may be the secret itself.

    Raises:
        ValueError: It cannot be a name.
    """
    if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None or redact(name) != name:
        raise ValueError(
            f"{what} must be the name of an environment variable, of letters, digits and underscores. What was given is not "
            "shown, since it may be the secret itself: put that into a variable, and give the variable's name."
        )
    return name


def check_host(host: str) -> str:
    """A host without a user name or password, or a complaint that does not repeat it.

    Raises:
        ValueError: It holds more than a host.
    """
    if re.search(r"[@?#\s]", host):
        raise ValueError(
            "The host of a server must be a name or an address alone. What was given is not shown, since it may hold a "
            "password or a token: put that into an environment variable, and name the variable with token_env (--token-env) "
            "or headers_env."
        )
    return host


def _look_through(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if (shown := without_secrets(message)) != message:
        record.msg, record.args = shown, ()
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
        if (shown := without_secrets(trace)) != trace:
            record.exc_info, record.exc_text = None, shown
    return True


logging.getLogger("autogen_persistent_memory").addFilter(_look_through)
