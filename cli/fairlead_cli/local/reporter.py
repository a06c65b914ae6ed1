"""The reports of a supervisor: to a terminal, or to the process that waits for `--detach`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fairlead_cli.local.cluster_file import ClusterFile


class Reporter(Protocol):
    """All calls return at once and never fail; the supervisor needs no audience."""

    def progress(self, name: str, text: str) -> None:
        """Report an event of the process `name`."""

    def warning(self, name: str, text: str) -> None:
        """Report a problem of the process `name`, and what is done about it."""

    def ready(self, cluster: ClusterFile, seconds: float) -> None:
        """Report that everything serves."""

    def output(self, lines: list[tuple[str, str]]) -> None:
        """Report what processes printed since the last call: (name, line)."""

    def settle(self) -> None:
        """Show the lines that were held back to be summed up."""
