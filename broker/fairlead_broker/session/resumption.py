"""Whether a process that follows a killed one may go on where that one stood. Pure.

A process that was killed and is started again on the same boot has lost nothing that it had
acknowledged: its logs are in the page cache, up to a last incomplete batch, which no other process
has seen. If it also knows its roles, it is for all others the same start of the broker, which was
only delayed (R33). It has the same broker epoch and leads in the same leader epochs, and decisions
of the meantime fence it as they would fence a process that stood still. So it does not need a
controller, and nothing is written. What it knows of its roles is in its `RoleJournal`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fairlead_broker.session.image_follower import ImageFollower, Position
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import ClusterImage
from fairlead_model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId
from fairlead_model.session.session_messages import unpack_message
from fairlead_model.session.session_protocol import MessageType, SessionProtocolError

JOURNAL_VERSION = 1
BEGIN_JOURNAL = "journal"
BEGIN_SESSION = "session"


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles on which a process had acted when it ended, or was about to act."""

    image: ClusterImage
    position: Position
    controller_epoch: int
    """Epoch of the controller with which it last registered."""

    def broker_epoch(self, broker_id: BrokerId) -> BrokerEpoch:
        """Return the epoch of that process; -1 if its image does not name it."""
        registration = self.image.brokers.get(broker_id)
        return NO_BROKER_EPOCH if registration is None else registration.broker_epoch


def replay(frames: Iterable[bytes]) -> Roles | None:
    """Return what a journal tells, None if that is nothing that could be gone on with.

    All is replayed by what made it: a publication of which the last part is missing was not acted
    on, and one that does not fit shows that something is missing.
    """
    follower, controller_epoch = ImageFollower(), -1
    try:
        for number, frame in enumerate(frames):
            message = unpack_message(frame)
            if number == 0:
                if message["type"] != BEGIN_JOURNAL or message["version"] != JOURNAL_VERSION:
                    return None
            elif message["type"] == BEGIN_SESSION:
                controller_epoch = int(message["controller_epoch"])
                follower.begin(str(message["cluster_id"]), controller_epoch)
            elif message["type"] == MessageType.CHANGES:
                publication = follower.receive(message)
                if publication is not None:
                    follower.commit(publication)
            else:
                return None
    except (SessionProtocolError, KeyError, TypeError, ValueError):
        return None
    if follower.position.sequence < 0:
        return None
    return Roles(follower.image, follower.position, controller_epoch)


def resumption_problem(
    roles: Roles, asking: BrokerRegistration, held: Collection[tuple[bytes, int]]
) -> str | None:
    """Say why a start may not go on as the one that had these roles; None if it may.

    `asking` is what this start says of itself, `held` are the replicas whose logs are open here
    and whole, by topic id and index.
    """
    before = roles.image.brokers.get(asking.broker_id)
    if before is None:
        return "it was not registered"
    return (
        _problem_of_disk(before, asking)
        or _problem_of_service(before, asking)
        or _problem_of_logs(roles, asking, held)
    )


def _problem_of_disk(before: BrokerRegistration, asking: BrokerRegistration) -> str | None:
    """Ask what `clean_return` of the controller asks, of what this disk remembers."""
    if asking.previous_broker_epoch != before.broker_epoch:
        return (
            f"epoch {asking.previous_broker_epoch} used its disk last, its roles are those of "
            f"epoch {before.broker_epoch}"
        )
    if asking.is_clean:
        return "it stopped in good order"
    if asking.directory_ids or before.directory_ids:
        return "it has several log directories"
    if not asking.directory_id or asking.directory_id != before.directory_id:
        return "it had another disk"
    if not asking.boot_id or asking.boot_id != before.boot_id:
        return "its machine has restarted"
    if asking.pod_uid != before.pod_uid:
        return "it ran in another pod"
    if not asking.is_recovered_whole:
        return "its logs are not whole"
    return None


def _problem_of_service(before: BrokerRegistration, asking: BrokerRegistration) -> str | None:
    if not before.may_lead:
        return "it was out of service, or stopping"
    if (before.endpoints, before.host_name) != (asking.endpoints, asking.host_name):
        return "it had another address"
    if before.min_insync_replicas != asking.min_insync_replicas:
        return "it had another min.insync.replicas"
    if before.features != asking.features:
        return "it was of another release"
    return None


def _problem_of_logs(
    roles: Roles, asking: BrokerRegistration, held: Collection[tuple[bytes, int]]
) -> str | None:
    for topic, index in roles.image.replicas_of(asking.broker_id):
        if (topic.topic_id, index) not in held:
            return f"its log of {topic.name}-{index} is not here"
    return None
