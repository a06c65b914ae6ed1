"""One drill with its cluster and its pod, and operators that carry it out and die in between."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.drills.agent_answer import read_agent_state
from fairlead_operator.drills.cuts import CUT_FINALIZER
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.observations import (
    AgentRun,
    AgentState,
    ClusterObservation,
    DrillObservations,
)
from fairlead_operator.drills.runner import DrillRunner
from fairlead_operator.specs.names import CLUSTER_LABEL, CUT_LABEL, RESTART_ANNOTATION

WELL = ClusterObservation(brokers_expected=3, live=frozenset({0, 1, 2}), controller_epoch=4)


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {
            "name": "one",
            "namespace": "ns",
            "uid": "uid-of-this-drill",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"clusterName": "demo", "target": {"type": "Leader"}, "fault": {"type": "Kill"}}
        | spec,
    }


def spec_of(**spec: Any) -> FailoverDrillSpec:
    return FailoverDrillSpec.from_manifest(manifest(**spec))


def agent(phase: str, since_ms: int = 0, run: AgentRun | None = None, **more: Any) -> AgentState:
    fields: dict[str, Any] = {"is_well": True, "problem": "", "partitions": {}} | more
    return AgentState(phase=phase, since_ms=since_ms, run=run, **fields)


def fault(**more: Any) -> AgentRun:
    fields: dict[str, Any] = {
        "number": 1,
        "is_injected": True,
        "is_ended": False,
        "since_fault_ms": 5000,
        "is_recovered": True,
        "memo": {"controllerEpoch": 4},
        "figures": {},
    }
    return AgentRun(**(fields | more))


def seen(state: AgentState | None = None, **more: Any) -> DrillObservations:
    fields: dict[str, Any] = {"cluster": WELL, "pod": "Running", "agent": state} | more
    return DrillObservations(**fields)


class FakeWorld:
    """The API server, the controller, the drill's pod and the Events of one drill."""

    def __init__(self, drill: dict[str, Any]) -> None:
        self.drill = drill
        self.pod: dict[str, Any] | None = None
        self.policy: dict[str, Any] | None = None
        self.labels: dict[str, Any] = {CLUSTER_LABEL: "demo"}
        self.phase = "settling"
        self.run: dict[str, Any] | None = None
        self.injected: list[Any] = []
        self.events: list[tuple[str, str]] = []
        self.epoch = 4
        self.starts = 1
        self.restarts: list[str] = []
        self.under_replicated = 0
        self.is_hibernated = False
        self.loss_of_two = (0, 0, 0)
        self.verdict: dict[str, Any] | None = None

    find = KubeClient.find

    async def get(self, kind: Any, _namespace: str, name: str) -> dict[str, Any]:
        if kind.kind == "Pod" and name == "demo-p-1":
            return {"metadata": {"name": name, "uid": "uid-of-1", "labels": self.labels}}
        if kind.kind == "Pod" and self.pod is not None:
            return self.pod
        if kind.kind == "NetworkPolicy" and self.policy is not None:
            return self.policy
        if kind.kind == "LogCluster":
            metadata = {"name": name, "namespace": "ns", "uid": "c"}
            kinds = {"apiVersion": "fairlead.io/v1alpha1", "kind": "LogCluster"}
            spec = {"hibernated": True} if self.is_hibernated else {}
            return kinds | {"metadata": metadata, "spec": spec}
        raise ApiError(404, "NotFound", name)

    async def list(self, _kind: Any, _namespace: str) -> Any:
        pool = {"metadata": {"name": "p"}, "spec": {"clusterName": "demo", "replicas": 3}}
        return type("Listed", (), {"items": [pool]})

    async def create(self, kind: Any, _namespace: str, body: dict[str, Any]) -> None:
        if kind.kind == "NetworkPolicy":
            if self.policy is not None:
                raise ApiError(409, "AlreadyExists", "policy")
            self.policy = body
            return
        body["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
        body["metadata"]["uid"] = "uid-of-the-pod"
        body["metadata"]["creationTimestamp"] = datetime.now(UTC).isoformat()
        self.pod = body

    async def patch(
        self, kind: Any, _namespace: str, name: str, patch: Any, *, subresource: str | None = None
    ) -> dict[str, Any]:
        metadata = self.drill["metadata"]
        if kind.kind == "LogCluster":
            self.restarts.append(patch["metadata"]["annotations"][RESTART_ANNOTATION])
            self.starts = 2
            return {}
        if kind.kind == "Pod":
            assert (name, patch["metadata"]["uid"]) == ("demo-p-1", "uid-of-1")
            self.labels |= patch["metadata"]["labels"]
            if self.labels[CUT_LABEL] is not None:
                # The policy must exist before the label, which tells what it belongs to.
                assert self.policy is not None
                assert self.drill["status"]["cut"]["pods"][0]["uid"] == "uid-of-1"
                assert CUT_FINALIZER in metadata["finalizers"]
                self.injected.append((1, "cut"))
            return {}
        if subresource is None:
            assert patch["metadata"].pop("resourceVersion") == metadata["resourceVersion"]
            version = str(int(metadata["resourceVersion"]) + 1)
            changed = metadata | patch["metadata"] | {"resourceVersion": version}
            self.drill = self.drill | {"metadata": changed}
            return self.drill
        assert patch["metadata"]["resourceVersion"] == metadata["resourceVersion"]
        version = str(int(metadata["resourceVersion"]) + 1)
        self.drill = self.drill | {
            "status": {key: it for key, it in patch["status"].items() if it is not None},
            "metadata": metadata | {"resourceVersion": version},
        }
        return self.drill

    async def delete(self, kind: Any, *_where: str, uid: str | None = None) -> None:
        if kind.kind == "NetworkPolicy":
            # Without a policy, everybody could connect to a pod with the label.
            assert self.labels.get(CUT_LABEL) is None
            self.policy = None
        else:
            assert self.pod is not None
            assert uid == self.pod["metadata"]["uid"]
            self.pod = None

    async def emit(self, _drill: Any, reason: str, message: str, *_type: str, action: str) -> None:
        self.events.append((reason, message))

    async def cluster_status(self, *_cluster: str) -> dict[str, Any]:
        return {
            "brokers": [
                {
                    "id": i,
                    "state": "live",
                    "epoch": 10 * self.starts + i,
                    "hostName": f"node-{i // 2}",
                    "rack": "ab"[i // 2],
                }
                for i in range(3)
            ],
            "partitions": {"underReplicated": self.under_replicated, "offline": 0},
            "controller": {"epoch": self.epoch, "pid": 1},
        }

    async def inject_fault(self, _ns: str, _name: str, broker: int, kind: str, **_: int) -> None:
        self.injected.append((broker, kind))

    async def loss(self, _ns: str, _name: str, brokers: Any) -> dict[str, int]:
        counts = ("leadersMove", "withoutLeader", "belowMinimum", "lastCopies")
        figures = (5, *self.loss_of_two) if len(brokers) > 1 else (1, 0, 0, 0)
        return dict(zip(counts, figures, strict=True))

    async def moves(self, *_cluster: str, since_ms: int) -> dict[str, Any]:
        at = since_ms + 1
        return {
            "decisions": [
                {"atMs": at + 60, "what": "broker 1 is fenced: connection refused"},
                {"atMs": at + 70, "what": "broker 0 is fenced: connection refused"},
            ],
            "moves": [{"atMs": at + 80, "from": 1, "to": 2}, {"atMs": at + 9000, "from": 1}],
        }

    async def state(self, _address: Any) -> AgentState:
        """Let time pass: what has begun is done at the next check."""
        if self.phase == "settling":
            self.phase = "steady"
        elif self.phase == "verifying":
            self.phase = "verified"
            counts = ("lost", "duplicated", "reordered", "misplaced", "foreign")
            self.verdict = dict.fromkeys(counts, 0) | {"acknowledged": 9, "clientErrors": {}}
        return self._answer()

    def _answer(self) -> AgentState:
        return read_agent_state(
            {
                "phase": self.phase,
                "problem": None,
                "sinceMs": 60_000,
                "isWell": True,
                "partitions": {"0": {"leader": 1, "isr": [1, 2, 0]}},
                "run": self.run,
                "verdict": self.verdict,
            }
        )

    async def begin(self, _at: Any, number: int, _ids: Any, memo: dict[str, Any]) -> AgentState:
        self.phase = "observing"
        self.run = {
            "number": number,
            "memo": memo,
            "isInjected": False,
            "isEnded": False,
            "sinceFaultMs": 20_000,
            "isRecovered": True,
            "partitionsLed": 2,
            "electionMs": 95,
            "firstAcknowledgedMs": {"0": 110, "1": 130, "2": 180},
            "clientRecoveryMs": 200,
            "gapMs": {"0": 150, "1": 140, "2": 210},
            "wholeMs": 2500,
        }
        return self._answer()

    async def tell(self, _at: Any, number: int, what: str) -> AgentState:
        assert self.run is not None
        assert self.run["number"] == number
        if what == "injected":
            self.run["isInjected"] = True
        elif what == "end":
            self.run["isEnded"] = True
            self.phase = "settling"
        else:
            self.run, self.phase = None, "settling"
        return self._answer()

    async def verify(self, _at: Any) -> AgentState:
        self.phase = "verifying"
        return self._answer()

    async def close(self) -> None:
        return


class OperatorDiedError(BaseException):
    """Raised in the middle of a step, in place of the operator's death."""


def new_runner(world: Any, registry: CollectorRegistry | None = None) -> DrillRunner:
    return DrillRunner(
        world,
        world,
        world,
        metrics=DrillMetrics(registry or CollectorRegistry()),
        default_image="image",
        agents=world,
    )


def go_to_the_end(world: FakeWorld, *, lives: int | None = None) -> int:
    """Use a new operator for every step; if asked, its n-th call to the world kills one."""
    calls = 0

    async def go() -> None:
        nonlocal calls
        for name in ("create", "patch", "delete", "begin", "tell", "verify", "inject_fault"):
            act = getattr(world, name)

            async def counted(*a: Any, act: Any = act, **k: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == lives:
                    raise OperatorDiedError
                return await act(*a, **k)

            setattr(world, name, counted)
        for _ in range(100):
            try:
                drill = world.drill | {"metadata": dict(world.drill["metadata"])}
                await new_runner(world)._step(drill)
            except OperatorDiedError:
                continue
            is_over = (world.drill.get("status") or {}).get("phase") == "Finished"
            if is_over and world.pod is None:
                return
        raise AssertionError(world.drill.get("status"))

    asyncio.run(go())
    return calls
