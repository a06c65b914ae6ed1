"""What comes next while a replica moves to another log directory. Pure.

The copy, called *future* as in Kafka, is behind the log until the log is *switched*: from then on
it is the log, in the other directory. The order, and what a start finds after a crash at each step:

    step        what it does                                        a start finds
    WIPE        removes what a process before this one has copied   the old log; the move goes on
    DISCARD     removes copies of what the log has no more          the same
    COPY        copies a piece of a segment                         the same
    SYNC        makes the copied segments and snapshots durable     the same
    NOTE        writes the checkpoints of the target with its marks the same
    HOLD        lets no flush of the log begin                      the same
    ANNOUNCE    makes the rest durable, then puts a mark in the     the same; nobody knows where the
                old log that names the target                       target is not there: offline
    SWITCH      copies the last bytes, gives the copy its name      the new log, and removes the old
    NAME        makes that name durable, and lets flushes begin     the same
    LEAVE       renames the old log so that it is no log any more   the new log

Nothing is appended between the last bytes and the name: SWITCH is one turn of the loop. Until NAME
is over a power cut may bring back the old log. It has all that a flush has covered, because none
may end in between (R36). Where the log changes under a step (it was cut, or lost segments) the
steps before are repeated; nothing is ever locked against it.
"""

from dataclasses import dataclass
from enum import Enum, auto

from fairlead_broker.limits import MOVE_TAIL_BYTES_MAX


class Step(Enum):
    """What to do next."""

    WIPE = auto()
    DISCARD = auto()
    COPY = auto()
    SYNC = auto()
    NOTE = auto()
    HOLD = auto()
    ANNOUNCE = auto()
    SWITCH = auto()
    NAME = auto()
    LEAVE = auto()
    WAIT = auto()
    """Nothing now: somebody else works on the log, and is soon done."""
    LET_GO = auto()
    """Flushes may begin again."""
    UNMARK = auto()
    """Take the mark back: the log stays where it is."""
    REMOVE = auto()
    """Remove the copy, which is not wanted any more."""
    END = auto()


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """How far a move is, and what has become of the log meanwhile."""

    is_wiped: bool = True
    is_given_up: bool = False
    """Somebody has called it back, or a directory, the log or a step has failed."""
    is_in_use: bool = False
    """A compaction is being put in place, or a cut is not durable yet."""
    is_flushing: bool = False
    has_strange_copies: bool = False
    missing_bytes: int = 0
    """Bytes of the log that are not copied yet."""
    is_sealed_missing: bool = False
    """A segment that takes no more records is not wholly copied and durable: it would never be."""
    is_synced: bool = False
    is_noted: bool = False
    """The checkpoints of the target have the marks that the log has now."""
    is_held: bool = False
    is_announced: bool = False
    is_marked: bool = False
    """The old log has, or may have, the mark."""
    is_removed: bool = False
    is_switched: bool = False
    is_named: bool = False
    is_name_lost: bool = False
    """The disk has refused to make the name durable: the log is offline, and a start decides."""
    is_left: bool = False


def next_step(facts: MoveFacts) -> Step:
    """Return what comes next."""
    if facts.is_switched:
        return _after_the_switch(facts)
    if facts.is_given_up:
        return _back(facts)
    if not facts.is_wiped:
        return Step.WIPE
    step = _catch_up(facts)
    if step is not None:
        return Step.LET_GO if facts.is_held else step
    if not facts.is_held:
        return Step.WAIT if facts.is_flushing else Step.HOLD
    return Step.SWITCH if facts.is_announced and not facts.is_sealed_missing else Step.ANNOUNCE


def _catch_up(facts: MoveFacts) -> Step | None:
    """Return what the copy needs before flushes are held up for it; None if it is ready."""
    if facts.is_in_use:
        return Step.WAIT
    if facts.has_strange_copies:
        return Step.DISCARD
    if facts.missing_bytes > MOVE_TAIL_BYTES_MAX:
        return Step.COPY
    if not facts.is_synced:
        return Step.SYNC
    return None if facts.is_noted else Step.NOTE


def _back(facts: MoveFacts) -> Step:
    """Leave everything as it was before."""
    if facts.is_held:
        return Step.LET_GO
    if facts.is_marked:
        return Step.UNMARK
    return Step.END if facts.is_removed else Step.REMOVE


def _after_the_switch(facts: MoveFacts) -> Step:
    # Whatever is wanted by now: the old log may go only when the new one has its name for good.
    if not (facts.is_named or facts.is_name_lost):
        return Step.NAME
    if facts.is_held:
        return Step.LET_GO
    return Step.END if facts.is_left or facts.is_name_lost else Step.LEAVE
