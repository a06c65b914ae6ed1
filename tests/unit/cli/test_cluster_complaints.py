"""What `kubectl fairlead status` finds wrong with a cluster."""

from typing import Any

from fairlead_cli.kubectl.snapshot import Snapshot, find_complaints


def resource(name: str, *conditions: tuple[str, str, str, str], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "conditions": [
                {"type": type, "status": status, "reason": reason, "message": message}
                for type, status, reason, message in conditions
            ]
        },
    }


def test_a_pool_that_is_blocked_is_named_with_the_reason() -> None:
    cluster = resource("demo", ("Ready", "True", "Ready", "3 brokers are ready"))
    pools = [
        resource("main", ("Ready", "True", "Ready", ""), replicas=0),
        resource("more", ("Blocked", "True", "IdsOverlap", "broker ids meet"), replicas=0),
    ]
    (complaint,) = find_complaints(Snapshot(cluster, pools, [], [], []))
    assert (complaint.what, complaint.advice) == ("pool more: IdsOverlap", "broker ids meet")


def test_a_cluster_that_sleeps_says_only_how_to_wake_it() -> None:
    cluster = resource(
        "demo",
        ("Ready", "False", "Hibernated", "no broker runs"),
        ("Hibernated", "True", "Asleep", "no broker runs"),
    )
    cluster["status"]["offline"] = 12
    (complaint,) = find_complaints(Snapshot(cluster, [resource("main", replicas=3)], [], [], []))
    assert "sleeps" in complaint.what
    assert "patch logcluster demo" in complaint.advice
