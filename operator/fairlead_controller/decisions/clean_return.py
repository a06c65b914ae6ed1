"""Whether a restarted broker still has all that its last start acknowledged. Pure.

The broker reports what it found; the verdict is the controller's, because only it knows which
start was registered last (R14). Two ways to be clean, both on the same disk:

a. it stopped in good order: the disk holds the marker of a clean stop, with the broker epoch that
   was registered last;
b. its process was killed, but neither the machine nor the disk lost anything: kernel boot id
   (unreadable equals nothing), pod and the broker epoch on the disk are those of the last
   registered start, and recovery found at most a torn last batch with no write-back error.

A broker with several log directories is on the same disk if it has one of them still (R35). The
verdict is on what it holds there: a replica that it does not report to hold was in a directory that
is empty, another one or gone, and has come back without anything (`may_lack_records`). Logs that an
older start has used last it names as unclean itself: it knows the newest start of its directories.
"""

from collections.abc import Callable

from fairlead_controller.decisions.events import RegisterBroker
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import TopicImage

CLEAN_STOP = "it stopped in good order"
PROCESS_KILLED = "only its process ended: same disk, same boot, logs whole"


def clean_return(known: BrokerRegistration | None, asking: BrokerRegistration) -> tuple[bool, str]:
    """Return the verdict on a new start of a broker, and why."""
    problem = _problem(known, asking)
    if problem is not None:
        return False, problem
    return True, CLEAN_STOP if asking.is_clean else PROCESS_KILLED


def _problem(known: BrokerRegistration | None, asking: BrokerRegistration) -> str | None:
    if known is None:
        return "no start of it was ever registered"
    if not shares_directory(known, asking):
        return "it has another disk"
    if asking.previous_broker_epoch != known.broker_epoch:
        return (
            f"its disk was last used by epoch {asking.previous_broker_epoch}, "
            f"not by epoch {known.broker_epoch}, which was registered last"
        )
    if asking.is_clean:
        return None
    if not asking.boot_id or asking.boot_id != known.boot_id:
        return "it did not stop in good order, and its machine has restarted"
    if asking.pod_uid != known.pod_uid:
        return "it did not stop in good order, and it runs in another pod"
    if not asking.is_recovered_whole:
        return "it did not stop in good order, and its logs are not whole"
    return None


def shares_directory(known: BrokerRegistration, asking: BrokerRegistration) -> bool:
    """Tell whether a broker has a log directory that it had at its last registered start.

    An older controller has written down the id that stands for all of them, and no other.
    """
    if known.directory_id and known.directory_id == asking.directory_id:
        return True
    return not set(known.incarnations).isdisjoint(asking.incarnations)


def may_lack_records(
    known: BrokerRegistration | None, event: RegisterBroker, *, is_clean: bool
) -> Callable[[TopicImage, int], bool]:
    """Return which replicas of a new start may not have all that the start before acknowledged.

    With one log directory, before and now, the broker itself notices a missing folder, because its
    checkpoints name it. The checkpoints of a lost directory are lost with it.
    """
    damaged, held = set(event.unclean), set(event.held)
    had_several = known is not None and len(known.incarnations) > 1
    is_presence_told = had_several or len(event.registration.incarnations) > 1

    def may_lack(topic: TopicImage, index: int) -> bool:
        if not is_clean or (topic.name, index) in damaged:
            return True
        return is_presence_told and (topic.topic_id, index) not in held

    return may_lack


def is_same_start(known: BrokerRegistration, asking: BrokerRegistration) -> bool:
    """Tell whether a registration repeats one that was accepted.

    A start id alone does not prove it: it lives on the disk until a registration is answered, so
    that a process before an outage and the one after it may share it: an outage of the machine,
    or of the disk, which recovery notices, or a start with other settings.
    """
    return (
        known.start_id == asking.start_id
        and known.directory_id == asking.directory_id
        and known.boot_id == asking.boot_id
        and known.pod_uid == asking.pod_uid
        and known.is_recovered_whole == asking.is_recovered_whole
        and known.min_insync_replicas == asking.min_insync_replicas
    )
