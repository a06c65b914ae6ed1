"""What the runner remembers of Rebalances that go while one of their steps is under way."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from measured_clusters import GB, answer, state_of

from fairlead_controller.decisions.state import ControllerState
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.rebalances import steps
from fairlead_operator.rebalances.measured_load import LoadReading, MeasuredLoad
from fairlead_operator.rebalances.runner import RebalanceRunner
from fairlead_operator.rebalances.status import RebalanceStatusDraft
from fairlead_operator.resources.rebalance import RebalanceSpec

KEY = ("ns", "even")
UNEVEN = state_of(3, {"t": [(0, 1)] * 20})


class OneSize:
    """Measures that all partitions weigh the same."""

    async def measure(self, _namespace: str, _cluster: str, state: ControllerState) -> MeasuredLoad:
        reading = LoadReading(state)
        for broker in (0, 1):
            reading.add(answer(broker, {"t": [[index, GB] for index in range(20)]}))
        reading.add(answer(2, {}))
        return reading.finish(datetime.now(UTC))


def test_a_rebalance_that_is_deleted_while_a_round_is_decided_is_forgotten() -> None:
    manifest: dict[str, Any] = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "Rebalance",
        "metadata": {"name": "even", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {"clusterName": "demo", "mode": "Auto"},
        "status": {"auto": {"disturbedAt": datetime.now(UTC).isoformat()}},
    }

    async def story() -> None:
        class Client:
            async def patch(self, *_: Any, **__: Any) -> dict[str, Any]:
                runner._on_change(ObjectChange(KEY, manifest, None))
                return {"metadata": manifest["metadata"]}

        nobody: Any = None
        client: Any = Client()
        runner = RebalanceRunner(client, nobody, nobody, loads=OneSize())
        spec = RebalanceSpec.from_manifest(manifest)
        it = steps.RebalanceView(spec=spec, status=manifest["status"])
        sight = steps.ClusterSight(state=UNEVEN, is_whole=True)
        runner._note_whole_look(KEY, it, sight)
        assert runner._known_brokers(KEY) is not None
        draft = RebalanceStatusDraft(manifest)
        await runner._decide_round(manifest, draft, it, sight)
        assert "no round begins before" in str(draft.as_patch())
        assert runner._known_brokers(KEY) is None

    asyncio.run(story())
