"""A table as the controller's decisions see it: lines of text, how large it may be, what is wrong.

The store that keeps tables is `fairlead_controller/stores/metadata_store`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead_model.ids import ControllerEpoch
from fairlead_model.release import RELEASE

TABLE_BYTES_MAX: Final = 900_000
"""Bytes of a table that every store accepts, as `line_bytes` counts. The smallest limit is that of
the Kubernetes API: etcd takes requests of 1.5 MiB, of which the server's managed fields and 256 KiB
of annotations by anybody take a part."""


def line_bytes(key: str, line: str) -> int:
    """Count the bytes that a line takes of its table, at most, in any store.

    The largest is a line as a part of a JSON text, as the Kubernetes API server keeps it: escaped,
    and with more escapes than JSON needs.
    """
    text = f"{key} {line}\n"
    longer = text.count("<") + text.count(">") + text.count("&")
    return len(json.dumps(text)) - 2 + 5 * longer + text.count("\x7f") * 5


class StoreError(Exception):
    """The store cannot go on; the process that uses it should end."""


class StoreCorruptError(StoreError):
    """What the store holds contradicts itself; the text says where."""


@dataclass(frozen=True, slots=True)
class HighestSeen:
    """The highest numbers that brokers have seen; -1 if none was reported."""

    controller_epoch: int = -1
    broker_epoch: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1


class StoreTooNewError(StoreError):
    """A newer release has written what this one cannot read; the text says which one reads it."""


def newer_format(what: str, known: int, version: object, release: object) -> str:
    """Say which release reads something that a newer one has written; empty if this one does."""
    if type(version) is not int or version <= known:
        return ""
    reader = f"release {release}" if release else "the release that has written it"
    return (
        f"{what} has format version {version}, and this release, {RELEASE}, reads {known}: run "
        f"{reader}, or a later one"
    )


class StoreRolledBackError(StoreCorruptError):
    """Tables are older than what was seen of them, most likely restored from a copy.

    To continue from them would truncate records that were acknowledged since.
    """

    def __init__(self, finding: str, seen: HighestSeen | None = None) -> None:
        super().__init__(
            f"the metadata went back in time: {finding}; nothing is decided or deleted before the "
            "newest metadata is put back, or somebody confirms what is there (`fairlead metadata "
            "confirm`, `kubectl fairlead metadata confirm`): see 'Metadata from a copy' in "
            "docs/failure_modes.md"
        )
        self.finding = finding
        """The contradiction that was found."""
        self.seen = seen or HighestSeen()
        """What the epochs of a new beginning have to be above."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table as it is in the store."""

    version: str
    """Opaque; equal versions mean equal content."""
    controller_epoch: ControllerEpoch
    write_number: int
    lines: Mapping[str, str]
    write_count: int = 0
    """The number of writes of the table. Only a controller's write raises it; a lower number than
    before shows that the table was restored from a copy."""
