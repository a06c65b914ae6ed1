"""A LogCluster and BrokerPools as the operator's builders take them."""

from __future__ import annotations

from typing import Any

from fairlead_operator.clusters.scale_down import BrokerHoldings
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.claim_template import ClaimTemplate
from fairlead_operator.specs.views import ClusterView, PoolView

SETTINGS = OperatorSettings(
    pod_name="fairlead-operator-0", namespace="fairlead-system", broker_image="fairlead:1"
)


ONE_CLAIM = (ClaimTemplate(volume=0, size="1Gi"),)
"""The templates of a pool with one volume a broker."""


def cluster_view(**spec: Any) -> ClusterView:
    return ClusterView.from_manifest(
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "LogCluster",
            "metadata": {"name": "demo", "namespace": "shop", "uid": "c-1", "generation": 2},
            "spec": spec,
        }
    )


def pool_view(name: str = "main", *, restart: str = "", **spec: Any) -> PoolView:
    body = {"clusterName": "demo", "replicas": 3, "storage": {"size": "1Gi"}} | spec
    annotations = {"fairlead.io/restart": restart} if restart else {}
    return PoolView.from_manifest(
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "BrokerPool",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"p-{name}",
                "generation": 3,
                "annotations": annotations,
            },
            "spec": body,
        }
    )


def holdings(*, drained: tuple[int, ...] = (), **replicas: int) -> dict[int, BrokerHoldings]:
    """Live brokers that hold so many replicas: `holdings(b0=9, b1=0, drained=(1,))`."""
    return {
        int(name.removeprefix("b")): BrokerHoldings(
            replicas=count, is_drained=int(name.removeprefix("b")) in drained
        )
        for name, count in replicas.items()
    }
