"""The partition of a record, if the client library's own choice is not wanted."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from itertools import cycle
from pathlib import Path

from fairlead_cli.errors import CliError, InputError

# Maps key and value of a record to a partition.
Partitioner = Callable[[bytes | None, bytes | None], int]
NAMES = ("murmur2", "round-robin", "sticky")


def build_partitioner(
    name: str, partitions: int, *, batch_bytes: int, leaderless: Collection[int] = ()
) -> Partitioner | None:
    """Return None for `murmur2`, which the client library does itself; InputError for a wrong name.

    A record that may go to any partition avoids the `leaderless` ones, unless all are.
    """
    anywhere = [each for each in range(partitions) if each not in leaderless]
    anywhere = anywhere or list(range(partitions))
    match name:
        case "murmur2":
            return None
        case "round-robin":
            return build_round_robin(anywhere)
        case "sticky":
            return build_sticky(anywhere, batch_bytes)
    return build_own(name, load_function(name), partitions)


def build_round_robin(partitions: Sequence[int]) -> Partitioner:
    """Return a partitioner that sends each record to the next partition, whatever its key."""
    turns = cycle(partitions)
    return lambda _key, _value: next(turns)


def build_sticky(partitions: Sequence[int], batch_bytes: int) -> Partitioner:
    """Return a partitioner that fills a batch for one partition, then goes to the next.

    This is the rule of KIP-794.
    """
    # Otherwise all programs that send few records would begin with the first partition.
    place = random.randrange(len(partitions))  # noqa: S311
    sent_bytes = 0

    def choose(key: bytes | None, value: bytes | None) -> int:
        nonlocal place, sent_bytes
        if sent_bytes >= batch_bytes:
            place = (place + 1) % len(partitions)
            sent_bytes = 0
        sent_bytes += len(key or b"") + len(value or b"")
        return partitions[place]

    return choose


def load_function(name: str) -> Callable[..., object]:
    """Return `PACKAGE:FUNCTION`, also from the current folder; InputError if it does not exist."""
    module_name, separator, function_name = name.partition(":")
    if not separator or not module_name or not function_name:
        raise InputError(f"--partitioner: '{name}' is not {', '.join(NAMES)} or PACKAGE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"--partitioner: cannot import {module_name}: {error}",
            hint="It is looked for in the current folder and where Python's packages are.",
        ) from error
    except (Exception, SystemExit) as error:  # A user's module may raise anything.
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"--partitioner: cannot import {module_name}: {reason}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(
            f"--partitioner: {module_name} has no function {function_name}",
            hint="It is called with (key: bytes | None, value: bytes | None, partitions: int) "
            "and returns a partition.",
        )
    found: Callable[..., object] = function
    return found


def build_own(name: str, function: Callable[..., object], partitions: int) -> Partitioner:
    """Return a partitioner that calls the user's function; its errors become CliError."""

    def choose(key: bytes | None, value: bytes | None) -> int:
        try:
            chosen = function(key, value, partitions)
        except Exception as error:  # A user's function may raise anything.
            raise CliError(
                f"partitioner {name} failed for key {key!r}: {type(error).__name__}: {error}"
            ) from error
        if type(chosen) is not int or not 0 <= chosen < partitions:
            raise CliError(
                f"partitioner {name} answered {chosen!r} for key {key!r}",
                hint=f"The topic has {partitions} partitions: 0 to {partitions - 1}.",
            )
        return chosen

    return choose
