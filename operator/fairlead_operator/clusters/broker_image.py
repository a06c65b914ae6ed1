"""Which image the brokers of a cluster run. Pure.

Another image restarts every broker, so an operator that was upgraded does not choose one by itself:
brokers keep what they have until `spec.image` or `spec.version` says otherwise. Their image is in
the LogCluster's status. If that is lost, or older than this field, it is read from the
StatefulSets.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead_model.release import RELEASE
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.views import ClusterView


def choose_image(
    cluster: ClusterView,
    stateful_sets: Iterable[Mapping[str, Any]],
    settings: OperatorSettings,
) -> str:
    """Return the image for all brokers of a cluster; empty if none is known.

    `stateful_sets` are the existing StatefulSets of the cluster.
    """
    spec = cluster.spec
    if spec.image:
        return spec.image
    if spec.version == RELEASE and settings.broker_image:
        return settings.broker_image
    return cluster.pinned_image or _running_image(stateful_sets) or settings.broker_image


def upgrade_hint(cluster: ClusterView, image: str, settings: OperatorSettings) -> str:
    """Return how brokers get the operator's release; empty if they have its image.

    Also empty if `spec.image` chooses the image.
    """
    own = settings.broker_image
    if cluster.spec.image or not image or not own or image == own:
        return ""
    asked = cluster.spec.version
    wrong = f"spec.version is {asked}, and this operator has {RELEASE}; " if asked else ""
    return (
        f'{wrong}brokers keep {image}; spec.version: "{RELEASE}" lets them restart, one after the '
        f"other, with {own}"
    )


def _running_image(stateful_sets: Iterable[Mapping[str, Any]]) -> str:
    """Return the image of the oldest StatefulSet."""
    ordered = sorted(
        stateful_sets, key=lambda each: str(each["metadata"].get("creationTimestamp", ""))
    )
    for each in ordered:
        image: str = each["spec"]["template"]["spec"]["containers"][0]["image"]
        return image
    return ""
