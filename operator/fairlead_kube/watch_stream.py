"""The text of a watch, cut into events. Pure.

The API server sends one JSON object a line. A line that the end of the connection cuts off is
dropped: the watcher continues after the last whole one.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from fairlead_kube.errors import ApiError, status_error

LINE_BYTES_MAX: Final = 16 << 20
"""An object of the API has less than 2 MiB; a longer line is not an object."""

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What happened to an object; a bookmark carries only a resourceVersion to continue from."""

    type: EventType
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        """The version that the event created."""
        version: str = self.object["metadata"]["resourceVersion"]
        return version


class WatchDecoder:
    """Collects pieces of text and returns the events that they complete."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[WatchEvent]:
        """Add a piece; ApiError if the server reports one, ValueError for what is not an event."""
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > LINE_BYTES_MAX:
                raise ValueError(f"a watch sent a line of more than {LINE_BYTES_MAX} bytes")
            return
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        for line in lines:
            if line.strip():
                yield decode_event(line)


def decode_event(line: bytes | bytearray) -> WatchEvent:
    """Read one line; ApiError if it is an ERROR event, ValueError if it is not an event at all."""
    document = json.loads(line)
    try:
        sort, content = document["type"], document["object"]
        if sort == "ERROR":
            raise _build_error(content)
        if sort not in _TYPES or not content["metadata"]["resourceVersion"]:
            raise ValueError(f"a watch sent an event of the type {sort!r}")
    except (KeyError, TypeError) as error:
        raise ValueError(f"a watch sent something else than an event: {error!r}") from error
    return WatchEvent(sort, content)


def _build_error(status: object) -> ApiError:
    if not isinstance(status, dict):
        return ApiError(500, "", "the watch ended with an error without a description")
    return status_error(status)
