"""The next step of a replica that moves to another log directory. Pure.

The copy, called *future* as in Kafka, is behind the log until the log is *switched*: from then on
the copy is the log. The steps in order, and what a start finds after a crash at each step:

    step        what it does                                        a start finds
    KEEP        keeps segments that an earlier process has copied   the old log; the move goes on
                whole, or that were copied before a truncation,     with the segments that are
                and removes the rest of the copy                    listed and unchanged
    DISCARD     removes copies of segments that the log has lost    the same
    COPY        copies a piece of a segment                         the same
    RECORD      lists the segments that are copied whole            the same
    SYNC        makes the copied segments and snapshots durable     the same
    NOTE        writes the checkpoints of the target with its marks the same
    HOLD        lets no flush of the log begin                      the same
    ANNOUNCE    makes the rest durable, then puts a mark in the     the same; the log is offline if
                old log that names the target                       the target is missing
    SWITCH      copies the last bytes, gives the copy its name      the new log, and removes the old
    NAME        makes that name durable, and lets flushes begin     the same
    LEAVE       renames the old log so that it is no log any more   the new log

Nothing is appended between the last bytes and the name: SWITCH is one turn of the loop. Until NAME
is over, a power loss may bring back the old log. That has everything that any flush has covered,
because no flush may end in between (R36). If the log changes during a step (it was truncated, or
lost segments), earlier steps are repeated; the move never locks the log.
"""

from dataclasses import dataclass
from enum import Enum, auto

from fairlead_broker.limits import MOVE_TAIL_BYTES_MAX


class Step(Enum):
    """What to do next."""

    KEEP = auto()
    DISCARD = auto()
    COPY = auto()
    RECORD = auto()
    SYNC = auto()
    NOTE = auto()
    HOLD = auto()
    ANNOUNCE = auto()
    SWITCH = auto()
    NAME = auto()
    LEAVE = auto()
    WAIT = auto()
    """Wait: other work on the log is under way, and ends soon."""
    LET_GO = auto()
    """Flushes may begin again."""
    UNMARK = auto()
    """Remove the mark: the log stays where it is."""
    REMOVE = auto()
    """Remove the copy, which is not needed any more."""
    END = auto()


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """The progress of a move, and changes of the log meanwhile."""

    has_kept: bool = True
    """What the copy has is known. It is not at the beginning, nor after a truncation."""
    is_given_up: bool = False
    """The move was cancelled, or a directory, the log or a step has failed."""
    is_in_use: bool = False
    """A compaction replaces segments, or a truncation is not durable yet."""
    is_flushing: bool = False
    has_strange_copies: bool = False
    missing_bytes: int = 0
    """Bytes of the log that are not copied yet."""
    is_sealed_missing: bool = False
    """A sealed segment is not completely copied and durable: after the switch it never would be."""
    has_unlisted: bool = False
    """A segment is copied whole, and not listed yet."""
    is_synced: bool = False
    is_noted: bool = False
    """The checkpoints of the target have the current marks of the log."""
    is_held: bool = False
    is_announced: bool = False
    is_marked: bool = False
    """The old log has, or may have, the mark."""
    is_removed: bool = False
    is_switched: bool = False
    is_named: bool = False
    is_name_lost: bool = False
    """The fsync of the name has failed: the log is offline, and the next start decides."""
    is_left: bool = False


def next_step(facts: MoveFacts) -> Step:
    """Return the next step."""
    if facts.is_switched:
        return _after_the_switch(facts)
    if facts.is_given_up:
        return _back(facts)
    step = _catch_up(facts)
    if step is not None:
        return Step.LET_GO if facts.is_held else step
    if not facts.is_held:
        return Step.WAIT if facts.is_flushing else Step.HOLD
    return Step.SWITCH if facts.is_announced and not facts.is_sealed_missing else Step.ANNOUNCE


def _catch_up(facts: MoveFacts) -> Step | None:
    """Return the step that the copy needs before flushes are held for it; None if it is ready."""
    if facts.is_in_use:
        return Step.WAIT
    if not facts.has_kept:
        return Step.KEEP
    if facts.has_strange_copies:
        return Step.DISCARD
    if facts.missing_bytes > MOVE_TAIL_BYTES_MAX or not facts.is_synced:
        if facts.has_unlisted:
            return Step.RECORD
        return Step.COPY if facts.missing_bytes > MOVE_TAIL_BYTES_MAX else Step.SYNC
    return None if facts.is_noted else Step.NOTE


def _back(facts: MoveFacts) -> Step:
    """Return the step that undoes the move."""
    if facts.is_held:
        return Step.LET_GO
    if facts.is_marked:
        return Step.UNMARK
    return Step.END if facts.is_removed else Step.REMOVE


def _after_the_switch(facts: MoveFacts) -> Step:
    # Also if the move was cancelled: the old log may go only when the new log's name is durable.
    if not (facts.is_named or facts.is_name_lost):
        return Step.NAME
    if facts.is_held:
        return Step.LET_GO
    return Step.END if facts.is_left or facts.is_name_lost else Step.LEAVE
