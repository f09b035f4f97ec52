"""Which namespaces are meant by a name or a path, and what they are called elsewhere. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.checks import check_namespace


def is_meant(namespace: str, pattern: str) -> bool:
    """Whether it is the namespace that is named, or one below the path that ends with a slash."""
    return namespace == pattern or (pattern.endswith("/") and namespace.startswith(pattern))


def check_pattern(pattern: object) -> str:
    """A namespace, or one with a slash at its end, which means all below it.

    Raises:
        NamespaceError: It is neither.
    """
    if isinstance(pattern, str) and pattern.endswith("/"):
        return check_namespace(pattern[:-1]) + "/"
    return check_namespace(pattern)


def renaming(rename: Mapping[str, str]) -> Callable[[str], str]:
    """A function from old to new names. Of several that apply, the longest counts.

    Raises:
        ValueError: What is wrong with them.
    """
    pairs = {check_pattern(old): check_pattern(new) for old, new in rename.items()}
    for old, new in pairs.items():
        if old.endswith("/") != new.endswith("/"):
            raise ValueError(
                f"rename={{{old!r}: {new!r}}} mixes a namespace and a path; end both with a slash, or neither."
            )

    def renamed(namespace: str) -> str:
        applicable = [old for old in pairs if is_meant(namespace, old)]
        if not applicable:
            return namespace
        old = max(applicable, key=len)
        return pairs[old] + namespace[len(old) :]

    return renamed
