"""The PodDisruptionBudget: at most one broker of a cluster is evicted at a time. Pure."""

from fairlead_kube.kinds import POD_DISRUPTION_BUDGET
from fairlead_operator.specs.names import broker_selector, cluster_labels
from fairlead_operator.specs.views import ClusterView, Manifest, build_child


def build_disruption_budget(cluster: ClusterView, max_unavailable: int) -> Manifest:
    """Return the budget of all brokers of a cluster, over all pools (`disruptions`)."""
    manifest = build_child(
        POD_DISRUPTION_BUDGET, cluster, cluster.name, cluster_labels(cluster.name)
    )
    manifest["spec"] = {
        "maxUnavailable": max_unavailable,
        "selector": {"matchLabels": broker_selector(cluster.name)},
    }
    return manifest
