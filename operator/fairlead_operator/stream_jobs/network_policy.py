"""The NetworkPolicy of a job's pods: its driver and its executors accept each other. Pure.

Beside them only the operator is accepted, which asks the driver for its progress. Spark's pages are
reached by `kubectl port-forward`, which no policy concerns.
"""

from typing import Final

from fairlead_kube.kinds import NETWORK_POLICY
from fairlead_operator.specs.names import COMPONENT_LABEL
from fairlead_operator.stream_jobs.manifests import JobView, Manifest, build_object
from fairlead_operator.stream_jobs.names import JOB_LABEL, PROGRESS_PORT, network_policy_name

_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def build_network_policy(job: JobView, operator_namespace: str) -> Manifest:
    """Return the policy."""
    own = {"podSelector": {"matchLabels": {JOB_LABEL: job.name}}}
    operator = {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: operator_namespace}},
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "fairlead", COMPONENT_LABEL: "operator"}
        },
    }
    manifest = build_object(job, NETWORK_POLICY, network_policy_name(job.name))
    manifest["spec"] = {
        **own,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [own]},
            {"from": [operator], "ports": [{"port": PROGRESS_PORT, "protocol": "TCP"}]},
        ],
    }
    return manifest
