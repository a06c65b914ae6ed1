"""What a deletion does about brokers whose StatefulSet is away."""

import asyncio
from pathlib import Path
from typing import Any

from fake_admin import FakeAdmin, FakeAdminServer, broker
from operator_views import ONE_CLAIM, SETTINGS, cluster_view, pool_view

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import (
    BROKER_POOL,
    LOG_CLUSTER,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
    ResourceKind,
)
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.deletion import Deletions
from fairlead_operator.clusters.status_writer import StatusWriter
from fairlead_operator.controller_client import ControllerClient
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.specs.names import pool_labels
from fairlead_operator.specs.stateful_set import build_stateful_set

KEY = ("shop", "demo")


class NotedClient:
    """Takes every write, and remembers what was deleted and told."""

    def __init__(self, *, is_namespace_going: bool = False) -> None:
        self.deleted: list[str] = []
        self.told: list[str] = []
        self.tries = 0
        self.is_namespace_going = is_namespace_going

    async def create(self, kind: ResourceKind, *_: Any, is_dry_run: bool) -> dict[str, Any]:
        assert is_dry_run, f"a {kind.kind} that nobody asked for"
        self.tries += 1
        if self.is_namespace_going:
            raise ApiError(403, "Forbidden", "", causes=["NamespaceTerminating"])
        return {}

    async def delete(self, kind: ResourceKind, _namespace: str, name: str, **_: Any) -> None:
        self.deleted.append(f"{kind.kind} {name}")

    async def patch(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "2"}}

    async def write_status(self, *path: Any, uid: str) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "2", "uid": uid}, "status": path[-1]}


class NotedEvents:
    def __init__(self, told: list[str]) -> None:
        self._told = told

    async def emit(self, _object: Any, _reason: str, message: str, *_: Any) -> None:
        self._told.append(message)


def pod(ordinal: int, *, is_owned: bool = False) -> dict[str, Any]:
    owner = {"kind": "StatefulSet", "name": "demo-main", "uid": "s"}
    return _object(f"demo-main-{ordinal}", ownerReferences=[owner] if is_owned else [])


def _object(name: str, **metadata: Any) -> dict[str, Any]:
    labels = pool_labels("demo", "main")
    stamps = {"namespace": "shop", "uid": f"u-{name}", "resourceVersion": "1"}
    return {"metadata": {"name": name, "labels": labels} | stamps | metadata}


def claims(count: int) -> list[dict[str, Any]]:
    return [_object(f"data-demo-main-{ordinal}") for ordinal in range(count)]


POOL_BODY: dict[str, Any] = {
    "kind": "BrokerPool",
    "spec": {"clusterName": "demo", "replicas": 3},
    **_object("main"),
}
CLUSTER_BODY: dict[str, Any] = {"kind": "LogCluster", "spec": {}, **_object("demo")}


def ask(
    socket: Path,
    admin: FakeAdmin,
    there: dict[ResourceKind, list[dict[str, Any]]],
    *,
    of: str,
    is_namespace_going: bool = False,
) -> tuple[str, NotedClient]:
    """What a deletion waits for, and what it did."""
    client = NotedClient(is_namespace_going=is_namespace_going)

    async def run() -> str:
        live = LiveObjects(client, (), lambda _: None)  # type: ignore[arg-type]
        found = {LOG_CLUSTER: [CLUSTER_BODY], BROKER_POOL: [POOL_BODY]} | there
        for kind, manifests in found.items():
            live.informers[kind]._objects |= {
                ("shop", each["metadata"]["name"]): each for each in manifests
            }
        writer = ApiWriter(client, live, OperatorMetrics())  # type: ignore[arg-type]
        events: Any = NotedEvents(client.told)
        controller = ControllerClient(str(socket), retry_s=0.0)
        deletions = Deletions(
            live, writer, controller=controller, statuses=StatusWriter(live, writer, events)
        )
        try:
            if of == "pool":
                return await deletions.delete_pool("shop", POOL_BODY)
            return await deletions.delete_cluster(KEY, CLUSTER_BODY)
        finally:
            await controller.close()

    with FakeAdminServer(admin, socket):
        return asyncio.run(run()), client


def holders(*replicas: int) -> FakeAdmin:
    return FakeAdmin(brokers=[broker(number, replicas=n) for number, n in enumerate(replicas)])


def test_a_pool_without_its_stateful_set_stays_while_its_brokers_hold_replicas(
    tmp_path: Path,
) -> None:
    there = {POD: [pod(0), pod(1)], PERSISTENT_VOLUME_CLAIM: claims(2)}
    waits_for, client = ask(tmp_path / "s", holders(0, 7), there, of="pool")
    assert "1 (7)" in waits_for
    assert client.told == [waits_for]
    assert not client.deleted
    for lone in ({POD: [pod(0), pod(1)]}, {PERSISTENT_VOLUME_CLAIM: claims(2)}):
        assert "1 (7)" in ask(tmp_path / "s", holders(0, 7), lone, of="pool")[0]


def test_a_pool_that_never_had_a_broker_goes_unasked(tmp_path: Path) -> None:
    standby = FakeAdmin(is_active=False)
    assert ask(tmp_path / "s", standby, {}, of="pool")[0] == ""
    there = {PERSISTENT_VOLUME_CLAIM: claims(1)}
    assert "cannot be asked" in ask(tmp_path / "s", standby, there, of="pool")[0]


def test_brokers_of_another_cluster_are_not_those_of_a_pool_that_never_had_one(
    tmp_path: Path,
) -> None:
    """Names are put together: a StatefulSet of theirs may be called as this pool's would be."""
    stateful_set = build_stateful_set(
        cluster_view(),
        pool_view(),
        image=SETTINGS.broker_image,
        replicas=2,
        config_hash="",
        claims=ONE_CLAIM,
    )
    labels = pool_labels("another", "main")
    stateful_set["metadata"] |= {"uid": "s", "resourceVersion": "1", "labels": labels}
    for admin in (holders(0, 7), holders(0, 0)):
        waits_for, _ = ask(tmp_path / "s", admin, {STATEFUL_SET: [stateful_set]}, of="pool")
        assert waits_for == ""
        assert not any(each.get("isDrained") for each in admin.brokers)


def test_an_empty_pool_is_given_nothing_before_its_brokers_stop(tmp_path: Path) -> None:
    """New partitions go to the brokers that hold least: to those that are about to go."""
    admin = holders(0, 0, 5)
    there = {POD: [pod(0), pod(1)], PERSISTENT_VOLUME_CLAIM: claims(2)}
    waits_for, client = ask(tmp_path / "s", admin, there, of="pool")
    assert "brokers 0, 1" in waits_for
    assert not client.deleted
    assert [bool(each.get("isDrained")) for each in admin.brokers] == [True, True, False]
    # A topic was faster: it is moved away first.
    admin.brokers[1]["replicas"] = 1
    assert "1 (1)" in ask(tmp_path / "s", admin, there, of="pool")[0]
    admin.brokers[1]["replicas"] = 0
    assert ask(tmp_path / "s", admin, there, of="pool")[0] == ""


def test_pods_that_nobody_owns_stop_with_their_pool(tmp_path: Path) -> None:
    there = {POD: [pod(0), pod(1)], PERSISTENT_VOLUME_CLAIM: claims(2)}
    admin = holders(0, 0)
    admin.scale_down("main", leaving=[0, 1], staying=[])
    waits_for, client = ask(tmp_path / "s", admin, there, of="pool")
    assert waits_for == ""
    assert client.deleted == ["Pod demo-main-0", "Pod demo-main-1"]


def test_pods_that_nobody_owns_stop_with_their_cluster(tmp_path: Path) -> None:
    stateful_set = build_stateful_set(
        cluster_view(),
        pool_view(),
        image=SETTINGS.broker_image,
        replicas=1,
        config_hash="",
        claims=ONE_CLAIM,
    )
    stateful_set["metadata"] |= {"uid": "s", "resourceVersion": "1"}
    there = {STATEFUL_SET: [stateful_set], POD: [pod(0, is_owned=True), pod(1)]}
    waits_for, client = ask(tmp_path / "s", holders(3, 3), there, of="cluster")
    assert client.deleted == ["StatefulSet demo-main", "Pod demo-main-1"]
    assert "demo-main-0, demo-main-1" in waits_for


PROTECTED: dict[str, Any] = {
    "kind": "LogCluster",
    "spec": {"deletionProtection": True},
    **_object("demo", deletionTimestamp="2026-01-01T00:00:00Z"),
}


def test_brokers_of_a_protected_cluster_go_on(tmp_path: Path) -> None:
    there = {LOG_CLUSTER: [PROTECTED], POD: [pod(0)], STATEFUL_SET: [_object("demo-main")]}
    waiting_for, client = ask(tmp_path / "socket", holders(0), there, of="cluster")
    assert "set spec.deletionProtection to false" in waiting_for
    assert client.deleted == []


def test_a_protected_cluster_goes_with_its_namespace_and_without_its_protection(
    tmp_path: Path,
) -> None:
    there = {LOG_CLUSTER: [PROTECTED], STATEFUL_SET: [_object("demo-main")]}
    _, client = ask(tmp_path / "socket", holders(0), there, of="cluster", is_namespace_going=True)
    assert client.deleted == ["StatefulSet demo-main"]
    # The handler of a deletion has the object as it was when that began.
    there[LOG_CLUSTER] = [PROTECTED | {"spec": {"deletionProtection": False}}]
    _, client = ask(tmp_path / "socket", holders(0), there, of="cluster")
    assert client.deleted == ["StatefulSet demo-main"]


def test_the_namespace_of_a_protected_cluster_is_not_asked_for_at_each_look() -> None:
    """A deletion looks each second, and a protected cluster may wait for ever."""
    client, clock = NotedClient(), [0.0]

    async def story() -> None:
        live = LiveObjects(client, (), lambda _: None)  # type: ignore[arg-type]
        live.informers[LOG_CLUSTER]._objects["shop", "demo"] = PROTECTED
        live.informers[STATEFUL_SET]._objects["shop", "demo-main"] = _object("demo-main")
        writer, nobody = ApiWriter(client, live, OperatorMetrics()), None  # type: ignore[arg-type]
        deletions = Deletions(
            live,
            writer,
            controller=nobody,  # type: ignore[arg-type]
            statuses=nobody,  # type: ignore[arg-type]
            now=lambda: clock[0],
        )
        for second in range(60):
            clock[0] = float(second)
            assert await deletions.delete_cluster(KEY, PROTECTED)
        assert 1 < client.tries < 10
        client.is_namespace_going = True
        while not client.deleted:
            clock[0] += 1.0
            assert clock[0] < 80.0
            await deletions.delete_cluster(KEY, PROTECTED)

    asyncio.run(story())


def test_a_pool_of_a_protected_cluster_keeps_its_replicas(tmp_path: Path) -> None:
    there = {LOG_CLUSTER: [PROTECTED], POD: [pod(0)], PERSISTENT_VOLUME_CLAIM: claims(1)}
    waiting_for, client = ask(tmp_path / "socket", holders(3), there, of="pool")
    assert "brokers hold replicas: 0 (3)" in waiting_for
    assert client.deleted == []


def test_only_volumes_of_brokers_go_with_their_cluster(tmp_path: Path) -> None:
    """The backups of its metadata are what is left then, and others may use the label, too."""
    body = {**CLUSTER_BODY, "spec": {"reclaimPolicy": "Delete"}}
    backup = _object("demo-metadata-backup")
    backup["metadata"]["labels"] = {"fairlead.io/cluster": "demo"}
    other = _object("data-demo-main-notes")
    second = _object("data-1-demo-main-0")
    there = {LOG_CLUSTER: [body], PERSISTENT_VOLUME_CLAIM: [*claims(1), second, backup, other]}
    waits_for, client = ask(tmp_path / "s", holders(), there, of="cluster")
    assert waits_for == ""
    deleted = [each for each in client.deleted if each.startswith("PersistentVolumeClaim")]
    assert sorted(deleted) == [
        "PersistentVolumeClaim data-1-demo-main-0",
        "PersistentVolumeClaim data-demo-main-0",
    ]


def test_a_pool_that_is_given_up_while_it_waits_goes_at_once(tmp_path: Path) -> None:
    given_up = _object("main", annotations={"fairlead.io/managed": "false"})
    there = {
        BROKER_POOL: [{**POOL_BODY, **given_up}],
        POD: [pod(0)],
        PERSISTENT_VOLUME_CLAIM: claims(1),
    }
    assert ask(tmp_path / "s", holders(7), there, of="pool")[0] == ""


def test_what_is_made_anew_under_the_name_of_one_that_was_let_go_by_hand_is_left_alone(
    tmp_path: Path,
) -> None:
    """The handler of a deletion waits on, whoever takes the finalizer off meanwhile."""
    cluster = {"kind": "LogCluster", "spec": {"reclaimPolicy": "Delete"}}
    there = {
        LOG_CLUSTER: [cluster | _object("demo", uid="another")],
        STATEFUL_SET: [_object("demo-main")],
        PERSISTENT_VOLUME_CLAIM: claims(1),
    }
    for seen in (there, there | {STATEFUL_SET: []}):
        waits_for, client = ask(tmp_path / "s", holders(0), seen, of="cluster")
        assert (waits_for, client.deleted) == ("", [])
    there = {
        BROKER_POOL: [POOL_BODY | _object("main", uid="another")],
        POD: [pod(0)],
        PERSISTENT_VOLUME_CLAIM: claims(1),
    }
    admin = holders(0)
    assert ask(tmp_path / "s", admin, there, of="pool")[0] == ""
    assert not admin.brokers[0].get("isDrained")
