"""Rules that every record of a partition keeps, whatever decided it; checked before it is written.

A record that breaks one is a fault of the controller, and the store would keep it: brokers and the
next controller refuse to read it. So the decision is stopped, and the records stay as they are.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fairlead_controller.decisions.state import ControllerChange, ControllerState
from fairlead_model.cluster import ClusterImage, PartitionChanged, TopicImage
from fairlead_model.ids import topic_id_text
from fairlead_model.invariants import InvariantViolation, violated
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from fairlead_model.partition import PartitionRegistration


class BrokenDecisionError(RefusedError):
    """A decision would break a rule, so it is stopped: nothing of it is written."""

    def __init__(self, violation: InvariantViolation) -> None:
        super().__init__(
            RefusalCode.UNKNOWN_SERVER_ERROR,
            f"the controller has stopped a decision of its own that is wrong: {violation}",
        )
        self.violation = str(violation)


def next_state(state: ControllerState, changes: Sequence[ControllerChange]) -> ControllerState:
    """Give the state after changes; BrokenDecisionError if they break a rule of the records."""
    try:
        require_records(state.image, changes)
        return state.apply(changes)
    except InvariantViolation as violation:
        raise BrokenDecisionError(violation) from violation
    except ValueError as error:
        # The image does not take them: two topics of one name, a partition of no topic, a gap.
        raise BrokenDecisionError(InvariantViolation(str(error))) from error


def require_records(image: ClusterImage, changes: Iterable[ControllerChange]) -> None:
    """Require of each changed record that it is one (I5), and may follow the one before it."""
    before: dict[tuple[bytes, int], PartitionRegistration] = {}
    topic: TopicImage | None = None
    topic_id: bytes | None = None
    for change in changes:
        if not isinstance(change, PartitionChanged):
            continue
        if change.topic_id != topic_id:
            topic_id = change.topic_id
            topic = image.topics_by_id.get(topic_id)
        index, record = change.index, change.partition
        known = before.get((topic_id, index))
        if known is None and topic is not None and index < len(topic.partitions):
            known = topic.partitions[index]
        problems = record.problems()
        if known is not None:
            problems += record.problems_after(known)
        if problems:
            name = topic_id_text(topic_id) if topic is None else topic.name
            violated("{}-{}: {}", name, index, "; ".join(problems))
        before[topic_id, index] = record
