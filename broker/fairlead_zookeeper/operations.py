"""What is asked of a server, and what it tells of a znode. Pure."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode that must not exist."""

    path: str
    value: bytes = b""
    is_ephemeral: bool = False
    is_private: bool = False
    """Whether others may not even read it, where ACLs are set."""


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
    """Let the multi pass only if a znode has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Stat:
    """What is used of a znode's statistics."""

    version: int
    czxid: int
    mzxid: int
    owner: int
    """The session whose ephemeral znode it is; 0 of none."""


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode as it was read."""

    data: bytes
    stat: Stat
