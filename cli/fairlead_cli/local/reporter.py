"""What a supervisor tells its audience: a terminal, or the process that waits for `--detach`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fairlead_cli.local.cluster_file import ClusterFile


class Reporter(Protocol):
    """All calls return at once and never fail; the supervisor does not depend on an audience."""

    def progress(self, name: str, text: str) -> None:
        """One thing happened to the process `name`."""

    def warning(self, name: str, text: str) -> None:
        """One thing went wrong with it, and what is being done about it."""

    def ready(self, cluster: ClusterFile, seconds: float) -> None:
        """Everything serves."""

    def output(self, lines: list[tuple[str, str]]) -> None:
        """Report what processes printed since the last call: (name, line)."""

    def settle(self) -> None:
        """Show what was held back to be summed up."""
