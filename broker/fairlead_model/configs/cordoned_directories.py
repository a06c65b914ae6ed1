"""`cordoned.log.dirs` (KIP-1066): log directories that keep their replicas and get no new ones."""

from collections.abc import Collection, Iterable
from typing import Final

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
EVERY_DIRECTORY: Final = "*"
"""Stands for all log directories, and so for the whole broker."""


def cordon_entries(text: str) -> tuple[str, ...]:
    """Return the entries of a value."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def every_problem(text: str) -> str | None:
    """Return what is wrong with a value on any broker; None if nothing is."""
    entries = set(cordon_entries(text))
    if EVERY_DIRECTORY in entries and len(entries) > 1:
        return (
            f"When {CORDONED_LOG_DIRS} is set to {EVERY_DIRECTORY}, it must not contain other "
            "values"
        )
    return None


def cordon_problem(text: str, log_directories: Collection[str]) -> str | None:
    """Return, in Kafka's words, what is wrong with a value on a broker; None if nothing is."""
    missing = [
        entry
        for entry in dict.fromkeys(cordon_entries(text))
        if entry not in log_directories and entry != EVERY_DIRECTORY
    ]
    if EVERY_DIRECTORY in cordon_entries(text) or not missing:
        return every_problem(text)
    return (
        f"All entries in {CORDONED_LOG_DIRS} must be present in log.dirs or log.dir. Missing "
        f"entries : {', '.join(missing)}"
    )


def cordoned_among(
    entries: Iterable[str], log_directories: Collection[str]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the cordoned log directories, and the entries that are not log directories."""
    named = tuple(dict.fromkeys(entries))
    if EVERY_DIRECTORY in named:
        return frozenset(log_directories), ()
    unknown = tuple(entry for entry in named if entry not in log_directories)
    return frozenset(named).intersection(log_directories), unknown
