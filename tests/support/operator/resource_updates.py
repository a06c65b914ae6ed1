"""Changes of resources, with the answer of the API server to each."""

from dataclasses import dataclass

from resource_manifests import (
    Manifest,
    cluster,
    drill,
    group,
    listener,
    pool,
    rebalance,
    reset,
    topic,
    user,
    without,
)


@dataclass(frozen=True)
class Update:
    title: str
    before: Manifest
    after: Manifest
    says: str = ""
    """Part of the refusal; empty if the update is accepted."""

    def __str__(self) -> str:
        return self.title


_ANOTHER_DRILL = "a drill cannot be changed once it is made (only suspend and its schedule can)"


def volumes(*sizes: str, **storage: object) -> Manifest:
    """A pool with volumes of these sizes, whose ids count from 0."""
    several = [{"id": number, "size": size} for number, size in enumerate(sizes)]
    return pool(storage={"volumes": several, **storage})


SLOW = {"id": 1, "size": "10Gi", "storageClassName": "slow"}

OUTSIDE = {"name": "outside", "type": "LoadBalancer", "port": 9095}

UPDATES = (
    Update("a cluster's listener goes", cluster(listeners=[listener()]), cluster()),
    Update("nothing new between brokers", cluster(), cluster(interBroker={"tls": False})),
    Update(
        "TLS between brokers begins",
        cluster(),
        cluster(interBroker={"tls": True}),
        "interBroker.tls cannot be changed, because brokers with and without TLS",
    ),
    Update(
        "TLS between brokers ends",
        cluster(interBroker={"tls": True}),
        cluster(),
        "interBroker.tls cannot be changed, because brokers with and without TLS",
    ),
    Update(
        "a second family comes",
        cluster(ipFamilies=["IPv6"]),
        cluster(ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv6", "IPv4"]),
    ),
    Update("families are left to Kubernetes", cluster(ipFamilies=["IPv6"]), cluster()),
    Update(
        "another family is the first",
        cluster(ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv4", "IPv6"]),
        cluster(ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv6", "IPv4"]),
        "the first of ipFamilies cannot be changed, because Kubernetes does",
    ),
    Update(
        "a listener gets families",
        cluster(listeners=[OUTSIDE]),
        cluster(listeners=[OUTSIDE | {"ipFamilies": ["IPv6"]}]),
    ),
    Update(
        "another family is the first of a listener",
        cluster(listeners=[OUTSIDE | {"ipFamilies": ["IPv6"]}]),
        cluster(listeners=[OUTSIDE | {"ipFamilies": ["IPv4"]}]),
        "the first of ipFamilies cannot be changed, because Kubernetes does",
    ),
    Update("a pool grows", pool(), pool(replicas=5, storage={"size": "10240Mi"})),
    Update("a pool shrinks", pool(), pool(replicas=1)),
    Update("a volume grows", pool(), pool(storage={"size": "11Gi"})),
    Update(
        "a volume shrinks",
        pool(),
        pool(storage={"size": "10G"}),
        "volumes can only grow: set at least the present size",
    ),
    Update(
        "another storage class",
        pool(),
        pool(storage={"size": "10Gi", "storageClassName": "fast"}),
        "the storage class of a pool cannot be changed",
    ),
    Update(
        "no storage class any more",
        pool(storage={"size": "10Gi", "storageClassName": "fast"}),
        pool(),
        "the storage class of a pool cannot be changed",
    ),
    Update("one volume becomes two", pool(), volumes("10Gi", "20Gi")),
    Update("one volume by its id", pool(), volumes("10Gi")),
    Update("one volume without its id", volumes("10Gi"), pool()),
    Update("one of two volumes grows", volumes("10Gi", "20Gi"), volumes("10Gi", "21Gi")),
    Update(
        "one volume shrinks as it becomes two",
        pool(),
        volumes("9Gi", "20Gi"),
        "volumes can only grow: set at least the present size",
    ),
    Update(
        "one of two volumes shrinks",
        volumes("10Gi", "20Gi"),
        volumes("10Gi", "19Gi"),
        "volumes can only grow: set at least the present size",
    ),
    Update(
        "a volume goes",
        volumes("10Gi", "20Gi"),
        volumes("10Gi"),
        "a volume cannot be removed while it may hold replicas",
    ),
    Update(
        "a volume gets another id",
        volumes("10Gi", "20Gi"),
        pool(storage={"volumes": [{"id": 0, "size": "10Gi"}, {"id": 2, "size": "20Gi"}]}),
        "a volume cannot be removed while it may hold replicas",
    ),
    Update(
        "two volumes become one",
        volumes("10Gi", "20Gi"),
        pool(),
        "a volume cannot be removed while it may hold replicas",
    ),
    Update(
        "one of two volumes gets another class",
        volumes("10Gi", "10Gi"),
        pool(storage={"volumes": [{"id": 0, "size": "10Gi"}, SLOW]}),
        "the storage class of a pool cannot be changed",
    ),
    Update(
        "a volume gets annotations",
        volumes("10Gi"),
        pool(storage={"volumes": [{"id": 0, "size": "10Gi", "annotations": {"a": "b"}}]}),
        "annotations apply only when volumes are created",
    ),
    Update(
        "one volume becomes one of a class",
        pool(),
        pool(storage={"volumes": [{"id": 0, "size": "10Gi", "storageClassName": "fast"}]}),
        "volume 0 is the volume that the pool had before",
    ),
    Update(
        "another cluster", pool(), pool(clusterName="other"), "cannot change to another cluster"
    ),
    Update("other ids", pool(), pool(idBase=10), "idBase cannot be changed, because brokers are"),
    Update("ids that are left out", pool(idBase=10), pool(), "idBase cannot be changed, because"),
    Update("a group's reset", group(), group(offsetReset=reset())),
    Update("a reset goes", group(offsetReset=reset()), group()),
    Update(
        "a new reset",
        group(offsetReset=reset()),
        group(offsetReset=reset("Offset", offset=7) | {"id": "two"}),
    ),
    Update(
        "another target of the same reset",
        group(offsetReset=reset()),
        group(offsetReset=reset("Latest")),
        "a reset is carried out once and cannot be changed: give it a new id",
    ),
    Update("a group gets its cluster's name", without(group(), "clusterName"), group()),
    Update(
        "a group moves",
        group(),
        group(clusterName="other"),
        "a ConsumerGroup cannot move to another cluster",
    ),
    Update("a plan is approved", rebalance(), rebalance(approve="0123456789ab")),
    Update("a rebalance goes on", rebalance(paused=True), rebalance()),
    Update(
        "a rebalance of another cluster",
        rebalance(),
        rebalance(clusterName="other"),
        "a rebalance cannot change to another cluster",
    ),
    Update(
        "a cancellation is taken back",
        rebalance(cancel=True),
        rebalance(),
        "a cancelled rebalance cannot go on: make a new one",
    ),
    Update("the drill is let go", drill(suspend=True), drill()),
    Update("another target", drill(), drill(target={"type": "Controller"}), _ANOTHER_DRILL),
    Update("another fault", drill(), drill(fault={"type": "Delete"}), _ANOTHER_DRILL),
    Update("another limit", drill(), drill(limits={"recoveryMs": 500}), _ANOTHER_DRILL),
    Update("another workload", drill(), drill(workload={"partitions": 1}), _ANOTHER_DRILL),
    Update("more runs", drill(), drill(runs=2), _ANOTHER_DRILL),
    Update("a drill that may harm now", drill(), drill(allowUnsafe=True), _ANOTHER_DRILL),
    Update(
        "another cut",
        drill(fault={"type": "Isolate", "cut": "All"}),
        drill(fault={"type": "Isolate", "cut": "Brokers"}),
        _ANOTHER_DRILL,
    ),
    Update("another hour", drill(schedule="0 3 * * *"), drill(schedule="30 4 * * *")),
    Update(
        "an hour of another time zone",
        drill(schedule="0 3 * * *"),
        drill(schedule="0 3 * * *", timeZone="Europe/Berlin"),
    ),
    Update("no schedule any more", drill(schedule="0 3 * * *"), drill()),
)

RENAMES = (
    Update("a group's name is spelt out", group(), group(groupId="billing")),
    Update("another group", group(), group(groupId="Billing"), "groupId cannot be changed"),
)

TOPIC_UPDATES = (
    Update("more partitions", topic(partitions=3), topic(partitions=6)),
    Update("partitions are named", topic(), topic(partitions=6)),
    Update("fewer partitions", topic(partitions=3), topic(partitions=2), "never removed"),
    Update("partitions are left out", topic(partitions=3), topic(), "never removed"),
    Update("other replicas", topic(replicationFactor=3), topic(replicationFactor=2)),
    Update("the same name, said", topic(), topic(topicName="orders")),
    Update("another name", topic(), topic(topicName="Orders"), "a topic cannot be renamed"),
    Update("no other name", topic(topicName="Orders"), topic(), "a topic cannot be renamed"),
    Update(
        "another cluster", topic(), topic(clusterName="other"), "cannot move to another cluster"
    ),
)
"""The API server alone compares these; the controller compares with its own topic."""

USER_UPDATES = (
    Update("another login", user(), user(login="tls")),
    Update("another cluster", user(), user(clusterName="other"), "cannot move to another cluster"),
)
