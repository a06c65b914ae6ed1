"""The PodDisruptionBudget: drains of nodes take one broker of a cluster at a time. Pure."""

from fairlead_controller.kube.kinds import POD_DISRUPTION_BUDGET
from fairlead_operator.specs.names import broker_selector, cluster_labels
from fairlead_operator.specs.views import ClusterView, Manifest, build_child


def build_disruption_budget(cluster: ClusterView) -> Manifest:
    """Give the budget of all brokers of a cluster, whichever their pool."""
    manifest = build_child(
        POD_DISRUPTION_BUDGET, cluster, cluster.name, cluster_labels(cluster.name)
    )
    manifest["spec"] = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": broker_selector(cluster.name)},
    }
    return manifest
