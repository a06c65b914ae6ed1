"""Topics of other namespaces: which a cluster takes, under which names, and how many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead_operator.topics.claims import Claims
from fairlead_operator.topics.metrics import TopicNamespaceMetrics
from fairlead_operator.topics.namespace_rules import (
    NOT_ALLOWED,
    NamespaceRule,
    may_adopt,
    read_namespace_rules,
    refusal_by_rule,
    refusals_by_quota,
    uses_of_limits,
)
from fairlead_operator.topics.plan import ClusterPresence, Plan, plan_topic
from fairlead_operator.topics.topic_resource import FINALIZER, TopicResource, read_topic_resource
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.topic_status import judge
from fairlead_operator.topics.work_queue import WorkQueue

PRESENT = ClusterPresence.PRESENT
CLUSTER = ("data", "demo")
PREFIXED = NamespaceRule(topic_prefix="shop.")


def manifest(
    name: str, namespace: str = "shop", created: int = 1, metadata: Any = None, **spec: Any
) -> dict[str, Any]:
    time = f"2026-01-01T00:00:{created:02}Z"
    about = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "generation": 1}
    return {
        "metadata": {**about, "creationTimestamp": time, **(metadata or {})},
        "spec": {"clusterName": "demo", "clusterNamespace": "data", **spec},
    }


def resource(name: str = "orders", namespace: str = "shop", **fields: Any) -> TopicResource:
    return read_topic_resource(manifest(name, namespace, **fields))


def scope_of(*manifests: dict[str, Any], **log_cluster: Any) -> TopicScope:
    scope = TopicScope(controller=None, queue=WorkQueue(lambda: 0.0))  # type: ignore[arg-type]
    scope.set_cluster(CLUSTER, {"metadata": {"name": "demo"}, "spec": log_cluster})
    for each in manifests:
        scope.take((each["metadata"]["namespace"], each["metadata"]["name"]), each)
    return scope


def test_a_cluster_knows_a_topic_of_another_namespace_by_both_names() -> None:
    far, near = resource(), resource(namespace="data")
    assert (far.cluster_key, far.reference, far.is_foreign) == (CLUSTER, "shop/orders", True)
    assert (near.cluster_key, near.reference, near.is_foreign) == (CLUSTER, "orders", False)
    assert far.claim == near.claim == ("data", "demo", "orders")


def test_nobody_else_is_let_in_without_a_rule() -> None:
    refused = refusal_by_rule(resource(), None)
    assert refused is not None
    assert refused[0] == NOT_ALLOWED
    assert "its spec.topicNamespaces has to name it" in refused[1]
    assert refusal_by_rule(resource(namespace="data"), None) is None
    assert refusal_by_rule(resource(), NamespaceRule()) is None


def test_names_begin_as_the_rule_says() -> None:
    refused = refusal_by_rule(resource(), PREFIXED)
    assert refused is not None
    assert refused[0] == "PrefixRequired"
    assert refusal_by_rule(resource(topicName="shop.orders"), PREFIXED) is None


def test_only_topics_of_names_of_its_own_may_be_adopted() -> None:
    assert may_adopt(resource(namespace="data"), None)
    assert not may_adopt(resource(), NamespaceRule())
    assert may_adopt(resource(), PREFIXED)


def test_rules_are_read_from_the_cluster() -> None:
    listed = [{"name": "shop", "topicPrefix": "shop.", "topicsMax": 2}, {"name": "web"}]
    rules = read_namespace_rules({"spec": {"topicNamespaces": listed}})
    assert rules == {"shop": NamespaceRule("shop.", 2, None), "web": NamespaceRule()}
    assert read_namespace_rules({}) == {}


def test_the_oldest_get_what_there_is_and_what_is_there_stays() -> None:
    old, mid, new = (resource(name, created=at) for at, name in enumerate("abc"))
    rule = NamespaceRule(topics_max=2)
    refused = refusals_by_quota(rule, [new, mid, old], {}, default_partitions=1)
    assert refused.keys() == {new.key}
    assert "3 topics, and topicsMax is 2" in refused[new.key][1]
    held = refusals_by_quota(rule, [new, mid, old], {new.key: 1, mid.key: 1}, default_partitions=1)
    assert held.keys() == {old.key}
    lowered = NamespaceRule(topics_max=0)
    assert not refusals_by_quota(lowered, [old], {old.key: 1}, default_partitions=1)


def test_partitions_count_as_they_are_and_as_they_are_wanted() -> None:
    rule = NamespaceRule(partitions_max=6)
    grows, plain = resource("a", partitions=5), resource("b", created=2)
    assert not refusals_by_quota(rule, [grows], {grows.key: 4}, default_partitions=3)
    refused = refusals_by_quota(rule, [grows, plain], {grows.key: 4}, default_partitions=3)
    assert refused.keys() == {plain.key}
    refused = refusals_by_quota(rule, [grows], {grows.key: 4, plain.key: 2}, default_partitions=3)
    assert refused.keys() == {grows.key}


@given(
    st.lists(st.tuples(st.integers(1, 5), st.one_of(st.none(), st.integers(1, 5)))),
    st.integers(0, 12),
    st.integers(0, 30),
)
def test_no_history_of_admissions_exceeds_a_quota(
    wanted: list[tuple[int, int | None]], topics_max: int, partitions_max: int
) -> None:
    """Whoever is admitted gets what it asks for; then all that is there is within the bounds, or
    was there before."""
    resources = [
        resource(f"t{number}", created=number % 60, partitions=partitions)
        for number, (partitions, _) in enumerate(wanted)
    ]
    held = {
        each.key: has for each, (_, has) in zip(resources, wanted, strict=True) if has is not None
    }
    rule = NamespaceRule(topics_max=topics_max, partitions_max=partitions_max)
    refused = refusals_by_quota(rule, resources, held, default_partitions=1)
    after = dict(held)
    for each in resources:
        if each.key not in refused:
            after[each.key] = max(each.partitions, held.get(each.key, 0))
    assert len(after) <= max(topics_max, len(held))
    assert sum(after.values()) <= max(partitions_max, sum(held.values()))


def test_who_is_not_let_in_claims_nothing() -> None:
    """An older Topic of a namespace that the cluster does not take would hold a name for ever."""
    stranger, own = manifest("a", created=1, topicName="t"), manifest("b", "data", 2, topicName="t")
    scope = scope_of(stranger, own)
    assert scope.owner(read_topic_resource(own)) == "b"
    allowed = scope_of(stranger, own, topicNamespaces=[{"name": "shop"}])
    assert allowed.owner(read_topic_resource(own)) == "shop/a"


def test_twins_of_two_namespaces_are_two_claims() -> None:
    claims: Claims[Any] = Claims(lambda _: True)
    near, far = resource(namespace="data"), resource()
    claims.update(None, far)
    claims.update(None, near)
    assert claims.owner(near.claim) == near.key
    claims.update(near, None)
    assert claims.owner(near.claim) == far.key


def test_a_quota_that_is_freed_lets_the_next_in() -> None:
    first, second = manifest("a", created=1), manifest("b", created=2)
    rules = [{"name": "shop", "topicsMax": 1}]
    scope = scope_of(first, second, topicNamespaces=rules)
    waiting = read_topic_resource(second)
    assert scope.refusal(waiting) is not None
    assert scope.take(("shop", "a"), None) == {waiting.key}
    assert scope.refusal(waiting) is None


def know(scope: TopicScope, **holders: str) -> None:
    """Let the controller have told of topics and of the resources that declare them."""
    entries = {name: {"resource": who, "partitions": 1} for name, who in holders.items()}
    scope.views[CLUSTER] = SimpleNamespace(is_started=True, entries=entries)  # type: ignore[assignment]
    scope.forget_counts(CLUSTER)


def test_what_an_older_topic_of_the_same_namespace_declares_is_counted_once() -> None:
    first, twin = manifest("a", created=1), manifest("twin", created=2, topicName="a")
    third = manifest("c", created=3)
    rules = [{"name": "shop", "topicsMax": 2, "partitionsMax": 2}]
    scope = scope_of(first, twin, third, topicNamespaces=rules)
    for holders in ({}, {"a": "shop/a"}):
        know(scope, **holders)
        assert scope.refusal(read_topic_resource(third)) is None
        assert scope.refusal(read_topic_resource(twin)) is None, "it is in conflict, and says so"


def test_what_the_cluster_has_of_others_counts_towards_no_quota() -> None:
    own, twin = manifest("b", "data", created=1), manifest("b", created=2)
    taken, third = manifest("t", created=3), manifest("c", created=4)
    rules = [{"name": "shop", "topicsMax": 1}]
    scope = scope_of(own, twin, taken, third, topicNamespaces=rules)
    know(scope, b="b", t="")
    assert scope.refusal(read_topic_resource(third)) is None
    know(scope, b="b", t="", c="shop/c")
    assert scope.take(("data", "b"), None) == {("shop", "b")}
    # Whoever may have the topic from now on would be one too many.
    refused = scope.refusal(read_topic_resource(twin))
    assert refused is not None
    assert refused[0] == "QuotaExceeded"


def test_an_older_topic_that_takes_one_over_is_counted() -> None:
    older, younger = manifest("b", created=1), manifest("b", "data", created=2)
    rules = [{"name": "shop", "topicsMax": 0}]
    scope = scope_of(older, younger, topicNamespaces=rules)
    know(scope, b="b")
    assert scope.refusal(read_topic_resource(older)) is not None


def test_a_namespace_that_is_let_in_no_longer_lets_its_topics_go() -> None:
    item = resource(reclaimPolicy="Delete", metadata={"finalizers": [FINALIZER]})
    refusal = refusal_by_rule(item, None)
    plan = plan_topic(item, cluster=PRESENT, owner=None, refusal=refusal, is_holder=True)
    let_go = {"resource": "shop/orders", "deleteTopic": False}
    assert plan == Plan(forget=let_go, drops_finalizer=True)
    verdict = judge(item, cluster=PRESENT, owner=None, result=None, entry=None, refusal=refusal)
    assert verdict is not None
    assert verdict[:2] == (False, NOT_ALLOWED)


def test_who_has_too_much_already_keeps_its_topic_and_its_finalizer() -> None:
    item = resource(reclaimPolicy="Delete", metadata={"finalizers": [FINALIZER]})
    refusal = ("QuotaExceeded", "too many")
    plan = plan_topic(item, cluster=PRESENT, owner="shop/orders", refusal=refusal, is_holder=True)
    assert plan == Plan()
    other = plan_topic(item, cluster=PRESENT, owner=None, refusal=refusal)
    assert other == Plan(drops_finalizer=True)


def test_each_limit_of_a_namespace_is_told_with_what_is_used_of_it() -> None:
    held = {("shop", "a"): 3, ("shop", "b"): 4}
    assert uses_of_limits(NamespaceRule(topics_max=5, partitions_max=10), held) == [
        ("topics", 2, 5),
        ("partitions", 7, 10),
    ]
    assert uses_of_limits(NamespaceRule(partitions_max=10), {}) == [("partitions", 0, 10)]
    assert uses_of_limits(NamespaceRule(topic_prefix="shop."), held) == []


def test_what_namespaces_use_is_what_they_declare_at_the_controller() -> None:
    rules = [
        {"name": "shop", "topicsMax": 5, "partitionsMax": 8},
        {"name": "web", "topicsMax": 2},
        {"name": "free"},
    ]
    scope = scope_of(
        manifest("held"),
        manifest("waiting"),
        manifest("left", metadata={"annotations": {"fairlead.io/managed": "false"}}),
        manifest("own", "data"),
        topicNamespaces=rules,
    )
    names = TopicNamespaceMetrics(scope)
    assert values_of(names) == {}, "the cluster's topics are not known yet"
    entries = {
        "held": {"resource": "shop/held", "partitions": 6},
        "left": {"resource": "shop/left", "partitions": 6},
        "own": {"resource": "own", "partitions": 6},
    }
    scope.views[CLUSTER] = SimpleNamespace(is_started=True, entries=entries)  # type: ignore[assignment]
    assert values_of(names) == {
        ("used", "shop", "topics"): 1,
        ("limit", "shop", "topics"): 5,
        ("used", "shop", "partitions"): 6,
        ("limit", "shop", "partitions"): 8,
        ("used", "web", "topics"): 0,
        ("limit", "web", "topics"): 2,
    }


def values_of(metrics: TopicNamespaceMetrics) -> dict[tuple[str, str, str], float]:
    """Values by the end of the metric's name, namespace and resource."""
    return {
        (family.name.rpartition("_")[2], each.labels["topic_namespace"], each.labels["resource"]): (
            each.value
        )
        for family in metrics.collect()
        for each in family.samples
    }
