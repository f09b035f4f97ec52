"""Leave .gitignore out of the sdist: hatchling adds it whatever `include` and `exclude` say."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WithoutGitignore(BuildHookInterface[Any]):
    """Runs before hatchling writes the sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Take .gitignore off the list of files that are always included."""
        included = build_data["force_include"]
        build_data["force_include"] = {path: name for path, name in included.items() if name != ".gitignore"}
