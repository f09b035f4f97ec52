"""Why bars are missed, where that is known: by words of the bar's name. Shown only beside a bar that is missed."""

from __future__ import annotations

REASONS: dict[str, str] = {}
