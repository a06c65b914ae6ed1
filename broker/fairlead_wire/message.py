"""The base of all generated messages, and the table that imports them when they are needed."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Self

from fairlead_wire.segments import Segment


class WireStruct:
    """A message or a part of a message. Compares by fields; unhashable, as fields may change.

    The comparison and the text form are only here: if each of some 400 dataclasses had its own,
    every process that imports them would take longer.
    """

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_short(getattr(self, name))}" for name in self.__slots__)
        return f"{self.__class__.__name__}({fields})"


def _short(value: Any) -> str:
    """Return the repr of a value; for a payload, which would fill a log line, its size."""
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > 16:
        return f"<{len(value)} bytes>"
    return repr(value)


class Message(WireStruct):
    """A whole request or response."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VALID_VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int | None]

    @classmethod
    @abstractmethod
    def decode(cls, buffer: memoryview, position: int, version: int) -> tuple[Self, int]:
        """Decode the message at `position`; return it and the position after it.

        `buffer` ends where the frame ends. `bytes` and `records` fields are slices of it, not
        copies: a reference to one keeps the whole frame in memory. Raises RemoteProtocolError and
        no other exception, whatever the bytes are.
        """

    @abstractmethod
    def encode(self, version: int) -> list[Segment]:
        """Encode the message. Large records, and records in files, are passed on uncopied.

        Raises LocalProtocolError if the version cannot carry the message's content.
        """


class LazyMessages(Mapping[int, type[Message]]):
    """API key to message class; a module is imported at its first use."""

    def __init__(self, modules: Mapping[int, tuple[str, str]], suffix: str) -> None:
        self._modules = modules
        self._suffix = suffix
        self._classes: dict[int, type[Message]] = {}

    def __getitem__(self, api_key: int) -> type[Message]:
        found = self._classes.get(api_key)
        if found is None:
            module, name = self._modules[api_key]
            found = getattr(import_module(f"fairlead_wire.messages.{module}"), name + self._suffix)
            self._classes[api_key] = found
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, api_key: object) -> bool:
        return api_key in self._modules
