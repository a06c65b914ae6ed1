"""The shortest manifest of each kind, with fields that a test adds."""

from typing import Any

Manifest = dict[str, Any]


def resource(kind: str, name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def cluster(name: str = "demo", **spec: Any) -> Manifest:
    return resource("LogCluster", name, spec)


def listener(**fields: Any) -> Manifest:
    return {"name": "outside", "type": "NodePort", "port": 9095} | fields


def pool(name: str = "brokers", **spec: Any) -> Manifest:
    given = {"clusterName": "demo", "replicas": 3, "storage": {"size": "10Gi"}}
    return resource("BrokerPool", name, given | spec)


def topic(name: str = "orders", **spec: Any) -> Manifest:
    return resource("Topic", name, {"clusterName": "demo"} | spec)


def drill(name: str = "drill", **spec: Any) -> Manifest:
    given = {"clusterName": "demo", "target": {"type": "Leader"}, "fault": {"type": "Kill"}}
    return resource("FailoverDrill", name, given | spec)


def rebalance(name: str = "even", **spec: Any) -> Manifest:
    return resource("Rebalance", name, {"clusterName": "demo"} | spec)


def group(name: str = "billing", **spec: Any) -> Manifest:
    return resource("ConsumerGroup", name, {"clusterName": "demo"} | spec)


def reset(to: str = "Earliest", **fields: Any) -> Manifest:
    return {"id": "one", "to": to} | fields


def user(name: str = "orders-app", login: str = "scram-sha-512", **spec: Any) -> Manifest:
    given = {"clusterName": "demo", "authentication": {"type": login}}
    return resource("User", name, given | spec)


def acl(type: str = "topic", *operations: str, **resource: Any) -> Manifest:
    return {"resource": {"type": type} | resource, "operations": list(operations or ("Read",))}


def without(manifest: Manifest, field: str) -> Manifest:
    return manifest | {"spec": {k: v for k, v in manifest["spec"].items() if k != field}}
