"""Operations on znodes, and the results. Pure."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode that must not exist."""

    path: str
    value: bytes = b""
    is_ephemeral: bool = False
    is_private: bool = False
    """With ACLs: whether other users may not even read the znode."""


@dataclass(frozen=True, slots=True)
class SetData:
    """Set a znode's data; of any version if -1."""

    path: str
    value: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode without children; of any version if -1."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Let the multi succeed only if a znode has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Stat:
    """The statistics of a znode that Fairlead uses."""

    version: int
    czxid: int
    mzxid: int
    owner: int
    """The session that owns the ephemeral znode; 0 if the znode is not ephemeral."""


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode as it was read."""

    data: bytes
    stat: Stat
