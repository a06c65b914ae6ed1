"""Whom each kind of cut lets through, by the policies' own rules."""

from typing import Any

import pytest

from fairlead_model.resources.failover_drill import CutFrom
from fairlead_operator.drills.cut_policy import build_cut_policy
from fairlead_operator.specs.names import CUT_LABEL

DRILL = {"metadata": {"name": "cut", "namespace": "shop", "uid": "u"}}
BROKER = ("shop", {"app.kubernetes.io/component": "broker", "fairlead.io/cluster": "demo"})
OPERATOR = ("ops", {"app.kubernetes.io/component": "operator"})
LOAD = ("shop", {"app.kubernetes.io/component": "drill"})
APPLICATION = ("web", {"app": "web"})
EVERYBODY = {"broker": BROKER, "operator": OPERATOR, "load": LOAD, "application": APPLICATION}


def selects(peer: dict[str, Any], namespace: str, labels: dict[str, str]) -> bool:
    """As Kubernetes matches a peer; `name` is a label that all parts of Fairlead have."""
    labels = labels | ({} if "app" in labels else {"app.kubernetes.io/name": "fairlead"})
    if "namespaceSelector" in peer:
        wanted = peer["namespaceSelector"].get("matchLabels", {})
        if not wanted.items() <= {"kubernetes.io/metadata.name": namespace}.items():
            return False
    elif namespace != "shop":
        return False
    return bool(peer.get("podSelector", {}).get("matchLabels", {}).items() <= labels.items())


def reachable(rules: list[dict[str, Any]], side: str, port: int) -> set[str]:
    return {
        name
        for name, (namespace, labels) in EVERYBODY.items()
        for rule in rules
        if port in {each["port"] for each in rule.get("ports", [{"port": port}])}
        and (side not in rule or any(selects(peer, namespace, labels) for peer in rule[side]))
    }


@pytest.mark.parametrize(
    ("cut", "clients", "internal", "called"),
    [
        ("All", set(), set(), set()),
        ("Clients", set(), {"broker", "operator"}, None),
        ("Brokers", set(EVERYBODY), {"operator"}, {"operator"}),
        ("Controller", set(EVERYBODY), {"broker"}, {"broker"}),
    ],
)
def test_whom_a_cut_lets_through(
    cut: CutFrom, clients: set[str], internal: set[str], called: set[str] | None
) -> None:
    policy = build_cut_policy(DRILL, "demo", cut, client_ports=[9092], operator_namespace="ops")
    spec = policy["spec"]
    assert spec["podSelector"] == {"matchLabels": {CUT_LABEL: "u"}}
    assert reachable(spec["ingress"], "from", 9092) == clients
    assert reachable(spec["ingress"], "from", 9094) == internal
    assert reachable(spec["ingress"], "from", 8080) == set(EVERYBODY)
    assert ("Egress" in spec["policyTypes"]) is (called is not None)
    if called is not None:
        assert reachable(spec["egress"], "to", 9094) == called
        names = set() if cut == "All" else set(EVERYBODY)
        assert reachable(spec["egress"], "to", 53) == names


def test_the_load_of_a_secured_cluster_is_a_client_like_others() -> None:
    for cut, asking in (("Clients", {"operator"}), ("Controller", {"load"}), ("All", set())):
        policy = build_cut_policy(DRILL, "demo", cut, client_ports=[], operator_namespace="ops")  # type: ignore[arg-type]
        assert reachable(policy["spec"]["ingress"], "from", 9091) == asking
