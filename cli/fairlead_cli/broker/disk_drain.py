"""`fairlead broker disks ID --drain FOLDER`: remove a disk from a broker that goes on serving.

The folder is cordoned (`cordoned.log.dirs`), so that it gets no new replicas, and each replica in
it moves to the folder with the most room. The command can be repeated: what is done already is
skipped, and a broker that restarts in between goes on with its moves.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from fairlead_broker.limits import MOVE_ROOM_BYTES
from fairlead_cli.errors import CliError, InputError, NoAnswerError
from fairlead_model.configs.cordoned_directories import CORDONED_LOG_DIRS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from fairlead_cli.client.answering import Address
    from fairlead_wire.messages.describe_log_dirs import (
        DescribeLogDirsResponse,
        DescribeLogDirsResult,
    )

Replica = tuple[str, int]
T = TypeVar("T")

CORDON_VERSION: Final = 5
"""First version of DescribeLogDirs that has cordons."""
POLL_S: Final = 0.5
ASKED_AT_ONCE: Final = 500
"""Most moves in one request: the broker creates a folder for each, while it serves."""
ATTEMPTS_MAX: Final = 5
"""How often the command asks for one replica's move without a restart of the broker."""


class Contents(NamedTuple):
    """What a folder still has to give away."""

    held: dict[Replica, int]
    """Replicas in the folder, with their sizes in bytes."""
    moving: frozenset[Replica]
    """Those replicas that are already moving to another folder."""
    rooms: dict[str, int]
    """Free bytes of each folder that is not cordoned, less those of replicas on the way to it."""

    @property
    def unasked(self) -> dict[Replica, int]:
        """Return the replicas that do not move yet."""
        return {each: size for each, size in self.held.items() if each not in self.moving}


class Disks:
    """The disks of one broker, which may restart, even at another address, between requests.

    After its first answer, requests are repeated until `deadline_s`; without it, an error is final.
    """

    def __init__(self, addresses: str, broker_id: int, deadline_s: float | None = None) -> None:
        self.broker_id = broker_id
        self._addresses = addresses
        self._deadline_s = deadline_s
        self._at: Address | None = None
        self._has_answered = False
        self.restarts = 0
        """How often the broker was not there."""

    def ask(self, question: Callable[[Address], T]) -> T:
        """Return the answer to a request. CliError from `question` and `find_broker`."""
        from fairlead_cli.broker.log_dir_requests import find_broker
        from fairlead_cli.output import note

        is_told = False
        while True:
            try:
                if self._at is None:
                    self._at = find_broker(self._addresses, self.broker_id)
                answer = question(self._at)
                self._has_answered = True
                return answer
            except CliError as error:
                is_gone = self._at is None or isinstance(error, NoAnswerError)
                if not is_gone or not self._has_answered or self._is_late():
                    raise
                if not is_told:
                    note(f"Broker {self.broker_id} does not answer; asking again.")
                    is_told = True
                    self.restarts += 1
                self._at = None
            time.sleep(POLL_S)

    def _is_late(self) -> bool:
        return self._deadline_s is None or time.monotonic() > self._deadline_s

    def describe(self) -> DescribeLogDirsResponse:
        """Return the broker's log directories; CliError if the broker knows no cordons."""
        from fairlead_cli.broker.log_dir_requests import describe, newest_describe_version

        def question(at: Address) -> DescribeLogDirsResponse:
            if newest_describe_version(at) < CORDON_VERSION:
                raise CliError(f"broker {self.broker_id} is too old to know {CORDONED_LOG_DIRS}")
            return describe(at)

        return self.ask(question)


def drain(disks: Disks, folder: str, *, is_waiting: bool, timeout_s: float) -> str:
    """Cordon a folder and move its replicas away; return the next steps. CliError if impossible.

    InputError if the broker has no such folder.
    """
    from fairlead_cli.output import format_bytes, format_count, note

    reply = disks.describe()
    plan(contents(reply, folder))
    cordon(disks, reply, folder, is_cordoned=True)
    deadline_s = time.monotonic() + timeout_s
    attempts: Counter[Replica] = Counter()
    told, restarts = -1, disks.restarts
    while True:
        found = contents(disks.describe(), folder)
        if disks.restarts > restarts:
            attempts, restarts = Counter(), disks.restarts
        if len(found.held) != told and is_waiting and found.held:
            left, size = format_count(len(found.held), "replica"), sum(found.held.values())
            note(f"Still in {folder}: {left}, {format_bytes(size)}.")
        had, told = told, len(found.held)
        if not found.held:
            missing = find_missing(disks)
            if not missing and had > 0 and is_waiting:
                # The last replica may just be changing folders, which takes a few fsyncs.
                time.sleep(POLL_S)
                continue
            if not missing:
                return next_steps(disks.broker_id, folder)
            if not is_waiting or time.monotonic() > deadline_s:
                raise CliError(
                    f"{', '.join(missing)} should be on broker {disks.broker_id}, and is in none "
                    f"of its folders: {folder} may hold files that the broker cannot open",
                    hint="Keep the folder. The broker's log says what is wrong.",
                )
        refused = ask_to_move(disks, found, attempts)
        if not is_waiting:
            if refused:
                raise not_moved(refused)
            left = format_count(len(found.held), "replica")
            return (
                f"Nothing new comes to {folder}, and {left} of it are on the way to other folders. "
                f"Ask again, with --wait, until it is empty."
            )
        if time.monotonic() > deadline_s:
            named = ", ".join(f"{topic}:{index}" for topic, index in sorted(found.held)[:5])
            raise CliError(
                f"{format_count(len(found.held), 'replica')} still in {folder} after "
                f"{timeout_s:g} s: {named}",
                hint="It goes on. Ask again, or take it back with --undrain.",
            )
        time.sleep(POLL_S)


def undrain(disks: Disks, folder: str) -> str:
    """Allow new replicas in a folder again and cancel moves out of it; return what was done."""
    from fairlead_cli.broker.log_dir_requests import try_moves
    from fairlead_cli.output import format_count

    reply = disks.describe()
    is_there = folder in {each.log_dir for each in reply.results}
    if not is_there and folder not in disks.ask(lambda at: cordoned_by_config(at, disks.broker_id)):
        raise unknown_folder(reply, folder)
    cordon(disks, reply, folder, is_cordoned=False)
    if not is_there:
        return f"{folder} is not among the cordoned folders of broker {disks.broker_id} any more."
    found = contents(disks.describe(), folder)
    refused = disks.ask(lambda at: try_moves(at, dict.fromkeys(found.moving, folder)))
    called_back = format_count(len(found.moving) - len(refused), "replica")
    return (
        f"New replicas may come to {folder} again; {called_back} on the way to other folders "
        "called back. What has left it stays where it is."
    )


def contents(reply: DescribeLogDirsResponse, folder: str) -> Contents:
    """Return what a reply says of a folder; CliError if no replica can be moved out of it."""
    directories = {each.log_dir: each for each in reply.results}
    if folder not in directories:
        raise unknown_folder(reply, folder)
    failed = [each.log_dir for each in reply.results if each.error_code]
    if failed:
        raise CliError(
            f"{', '.join(failed)} has failed: nothing moves between the folders of this broker",
            hint="Repair it, or take it out of log.dirs, and restart the broker. What was there "
            "is copied from other brokers.",
        )
    held = {
        (topic.name, each.partition_index): each.partition_size
        for topic in directories[folder].topics
        for each in topic.partitions
        if not each.is_future_key
    }
    moving: set[Replica] = set()
    rooms = {}
    for path, directory in directories.items():
        coming = _coming(directory)
        if path != folder:
            moving.update(coming.keys() & held.keys())
        if path != folder and not directory.is_cordoned:
            due = sum(max(0, held.get(each, 0) - size) for each, size in coming.items())
            rooms[path] = directory.usable_bytes - due - MOVE_ROOM_BYTES
    return Contents(held, frozenset(moving), rooms)


def _coming(directory: DescribeLogDirsResult) -> dict[Replica, int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in directory.topics
        for each in topic.partitions
        if each.is_future_key
    }


def plan(found: Contents) -> dict[Replica, str]:
    """Return a target for each replica that does not move yet: largest first, to the most room.

    CliError if there is no other folder, or if the others have too little room.
    """
    from fairlead_cli.output import format_bytes

    rooms = dict(found.rooms)
    if found.unasked and not rooms:
        raise CliError(
            "this broker has no other folder that takes replicas",
            hint="Name another one in its log.dirs and restart it, --undrain one, or move all that "
            "the broker holds to others:  fairlead broker drain --help",
        )
    targets = {}
    for replica, size in sorted(found.unasked.items(), key=lambda item: (-item[1], item[0])):
        target = max(rooms, key=lambda path: rooms[path])
        if size > rooms[target]:
            raise CliError(
                f"{format_bytes(sum(found.unasked.values()))} are to move, and the other folders "
                f"have no room for {replica[0]}:{replica[1]} of {format_bytes(size)}",
                hint="Make room in them, or move all that the broker holds to others:  "
                "fairlead broker drain --help",
            )
        rooms[target] -= size
        targets[replica] = target
    return targets


def ask_to_move(disks: Disks, found: Contents, attempts: Counter[Replica]) -> Mapping[Replica, str]:
    """Ask for the missing moves; return refusals. CliError after too many attempts for one."""
    from fairlead_cli.broker.log_dir_requests import try_moves

    targets = plan(found)
    attempts.update(targets.keys())
    refused: dict[Replica, str] = {}
    for first in range(0, len(targets), ASKED_AT_ONCE):
        some = dict(list(targets.items())[first : first + ASKED_AT_ONCE])
        refused |= disks.ask(partial(try_moves, targets=some))
    spent = {
        each: refused.get(each, "it was begun and given up")
        for each in targets
        if attempts[each] >= ATTEMPTS_MAX
    }
    if spent:
        raise not_moved(spent)
    return refused


def not_moved(reasons: Mapping[Replica, str]) -> CliError:
    """Return the error that names the replicas that did not move."""
    named = "; ".join(f"{topic}:{index}: {why}" for (topic, index), why in sorted(reasons.items()))
    return CliError(
        f"not moved: {named}",
        hint="The broker's log says why. The others go on; ask again when that is repaired.",
    )


def cordon(disks: Disks, reply: DescribeLogDirsResponse, folder: str, *, is_cordoned: bool) -> None:
    """Cordon or uncordon one folder, and leave the others; CliError if that has no effect."""
    from fairlead_cli.broker.drain import order

    wanted = [
        each.log_dir
        for each in reply.results
        if (is_cordoned if each.log_dir == folder else each.is_cordoned)
    ]

    def holds(answer: DescribeLogDirsResponse) -> bool:
        return [each.log_dir for each in answer.results if each.is_cordoned] == wanted

    def give(value: str | None) -> bool:
        disks.ask(lambda at: order(str(at), disks.broker_id, CORDONED_LOG_DIRS, value))
        return holds(disks.describe())

    text = ",".join(wanted)
    if is_cordoned and holds(reply):
        return
    # Without its own value, the broker uses its static setting, which may cordon other folders.
    if (not text and give(None)) or give(text):
        return
    raise CliError(f"broker {disks.broker_id} does not use the {CORDONED_LOG_DIRS} that was set")


def cordoned_by_config(at: Address, broker_id: int) -> tuple[str, ...]:
    """Return the folders in a broker's config, including folders that it no longer has."""
    from fairlead_cli.client.broker_configs import read_config
    from fairlead_model.configs.cordoned_directories import cordon_entries

    return cordon_entries(read_config(at.host, at.port, broker_id, CORDONED_LOG_DIRS) or "")


def find_missing(disks: Disks) -> list[str]:
    """Return replicas that the cluster assigns to a broker and that the broker does not report.

    A replica that the broker could not open at start may be in any of its folders.
    """
    from fairlead_cli.client.connection import build_admin, fetch_metadata

    told = {
        (topic.name, each.partition_index)
        for directory in disks.describe().results
        for topic in directory.topics
        for each in topic.partitions
    }

    def question(at: Address) -> Mapping[str, object]:
        try:
            topics: Mapping[str, object] = fetch_metadata(build_admin(str(at))).topics
        except CliError as error:
            raise NoAnswerError(error.message, hint=error.hint) from error
        return topics

    return missing_of(disks.ask(question), told, disks.broker_id)


def missing_of(
    topics: Mapping[str, object], told: Collection[Replica], broker_id: int
) -> list[str]:
    """Return replicas that Metadata assigns to a broker and that the broker does not report."""
    return sorted(
        f"{name}:{index}"
        for name, topic in topics.items()
        for index, partition in topic.partitions.items()  # type: ignore[attr-defined]
        if broker_id in partition.replicas and (name, index) not in told
    )


def unknown_folder(reply: DescribeLogDirsResponse, folder: str) -> InputError:
    """Return the error that names the existing folders."""
    names: Sequence[str] = [each.log_dir for each in reply.results]
    return InputError(
        f"{folder} is not in log.dirs of this broker",
        hint=f"It has {', '.join(names)}; write it as it stands there.",
    )


def next_steps(broker_id: int, folder: str) -> str:
    """Return how to remove the folder."""
    from fairlead_cli.advice import cluster_arguments

    return (
        f"{folder} holds no replica any more, and gets none. To take it away:\n"
        f"  1. take it out of log.dirs of broker {broker_id}, and restart the broker\n"
        "     (on Kubernetes: out of spec.storage.volumes of the pool, once all its brokers have\n"
        "     emptied their own)\n"
        f"  2. fairlead broker disks {broker_id} --undrain {shlex.quote(folder)}"
        f"{cluster_arguments()}\n"
        "Or keep it: the second step alone lets replicas come to it again."
    )
