"""A `ReshapedCluster` on Kubernetes: `kubectl scale` of a BrokerPool, then a Rebalance."""

import json
from typing import Any

from kubernetes_commands import wait_until
from kubernetes_installation import CLUSTER, NODE_PORT_BASE, POOL, Installation
from reshaped_cluster import LARGE, MOVES_TIMEOUT_S, STAYING, run_fairlead
from resource_manifests import rebalance


class KubernetesBrokers:
    """The pods of an installation, changed with kubectl; clients connect to node ports."""

    # The operator makes and begins no plan while a pod is away, for some ten seconds.
    first_kill_s, kills_apart_s, held_down_s = (8.0, 15.0), (20.0, 40.0), (0.0, 0.0)

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._rebalances_count = 0

    @property
    def bootstrap(self) -> str:
        nodes = self._installation.kubectl.items("nodes")
        address = nodes[0]["status"]["addresses"][0]["address"]
        return f"{address}:{NODE_PORT_BASE}"

    def add_brokers(self) -> None:
        self._scale(LARGE)
        wait_until(lambda: self._ready_brokers() == (LARGE, LARGE), f"not {LARGE} brokers", 180)

    def fill_new_brokers(self) -> None:
        while not is_even(run_fairlead(self.bootstrap, "rebalance", "-o", "json")):
            self._rebalance()

    def empty_new_brokers(self) -> None:
        self._scale(STAYING)
        wait_until(
            lambda: (
                len(self._installation.pods()) == STAYING
                and self._ready_brokers() == (STAYING, STAYING)
            ),
            f"not {STAYING} brokers",
            MOVES_TIMEOUT_S,
        )

    def remove_new_brokers(self) -> None:
        """Do nothing: the operator has removed them already."""

    def victims(self) -> list[str]:
        names = [pod["metadata"]["name"] for pod in self._installation.pods()]
        return ["controller", *(name.rpartition("-")[2] for name in names)]

    def kill(self, victim: str) -> None:
        force = ("--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
        if victim == "controller":
            holder, _ = self._installation.lease()
            self._installation.operator("delete", "pod", holder.pod, *force)
        else:
            self._installation.kubectl("delete", "pod", f"{CLUSTER}-{POOL}-{victim}", *force)

    def bring_back(self, victim: str) -> None:
        """Do nothing: the StatefulSet starts the pod again."""

    def leftovers(self) -> list[str]:
        strays = []
        for pod in self._installation.pods():
            name = pod["metadata"]["name"]
            command = ("sh", "-c", "ls -d /var/lib/fairlead/*/*-stray 2>/dev/null || true")
            strays += self._installation.kubectl.exec(name, *command).split()
        return strays

    def _scale(self, replicas: int) -> None:
        self._installation.kubectl("scale", "brokerpool", POOL, f"--replicas={replicas}")

    def _ready_brokers(self) -> tuple[int, int]:
        status = self._installation.kubectl.get("logcluster", CLUSTER).get("status", {})
        return status.get("brokersReady", 0), status.get("brokers", 0)

    def _rebalance(self) -> None:
        """Have one plan made and carried out; it may fail if a broker is killed meanwhile."""
        self._rebalances_count += 1
        name = f"reshape-{self._rebalances_count}"
        kubectl = self._installation.kubectl
        kubectl.apply(rebalance(name, clusterName=CLUSTER))

        def is_over() -> bool:
            status = kubectl.get("rebalance", name).get("status") or {}
            if status.get("phase") == "ProposalReady":
                patch = json.dumps({"spec": {"approve": status["plan"]["id"]}})
                kubectl("patch", "rebalance", name, "--type=merge", "-p", patch)
            return status.get("phase") in {"Complete", "Failed"}

        wait_until(is_over, f"rebalance {name} does not end", MOVES_TIMEOUT_S)
        kubectl("delete", "rebalance", name)


def is_even(plan: dict[str, Any]) -> bool:
    """Return whether nothing is left to move, and each new broker has replicas.

    Shares may differ: brokers on one node share the replicas that a node may have.
    """
    held = {share["broker"]: share["replicas"][0] for share in plan["shares"]}
    is_whole = not any("stay where they are" in note for note in plan["notes"])
    return is_whole and not plan["moves"] and all(held.get(n) for n in range(STAYING, LARGE))
