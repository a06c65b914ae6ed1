"""The topics that exist, as requests name them, and whether a request may change one. Pure."""

from typing import TYPE_CHECKING

from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from fairlead_controller.decisions.state import ControllerState
    from fairlead_model.cluster import TopicImage


def find_topic(state: "ControllerState", name: str) -> "TopicImage":
    """Find a topic by name; raise RefusedError if there is none."""
    topic = state.image.topic(name)
    if topic is None:
        raise RefusedError(RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def refuse_declared(topic: "TopicImage") -> None:
    """Raise RefusedError if a resource declares the topic: it would undo the change."""
    if topic.header.resource:
        raise RefusedError(
            RefusalCode.POLICY_VIOLATION,
            f"topic {topic.name!r} is declared by Topic resource {topic.header.resource!r}; "
            "change the resource instead",
        )
