"""Settings of a LogCluster that change while brokers run, and those that restart them."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_operator.clusters.plan import ClusterObserved, ClusterPlan, plan_cluster
from fairlead_operator.clusters.settings_teller import describe_change
from fairlead_operator.specs.apply_decision import with_hash
from fairlead_operator.specs.config_map import build_properties
from fairlead_operator.specs.live_settings import (
    LIVE,
    SIZED,
    decide_declaration,
    names_in_pools,
    render_properties,
)
from fairlead_operator.specs.names import CONFIG_HASH_ANNOTATION, PROPERTIES_KEY
from fairlead_operator.specs.views import PoolView

MAP, SET = ("ConfigMap", "demo-main"), ("StatefulSet", "demo-main")
BYTES = "log.retention.bytes"
MS = "log.retention.ms"
HOURS = "log.retention.hours"


class Story:
    """A cluster whose plans are carried out."""

    def __init__(self, **config: Any) -> None:
        self.situation = ClusterObserved(
            cluster=cluster_view(config=config),
            pools=(pool_view(),),
            live={},
            claim_sizes={},
            brokers={},
        )
        self.carry_out()

    def change(self, *pools: PoolView, **config: Any) -> ClusterPlan:
        """Give the LogCluster another config, and perhaps other pools; carry the plan out."""
        raw = [{"spec": {"config": dict(pool.spec.config)}} for pool in pools]
        self.situation = replace(
            self.situation,
            cluster=cluster_view(config=config),
            pools=pools or self.situation.pools,
            named_by_pools=names_in_pools(raw) if pools else self.situation.named_by_pools,
        )
        return self.carry_out()

    def carry_out(self) -> ClusterPlan:
        plan = plan_cluster(self.situation, SETTINGS)
        live = {**self.situation.live, **{child.key: child.manifest for child in plan.applies}}
        self.situation = replace(self.situation, live=live)
        assert plan_cluster(self.situation, SETTINGS).is_converged
        return plan

    def become_older(self) -> str:
        """Make the objects those of an operator that knew no live settings; return its hash."""
        properties = build_properties(self.situation.cluster, self.situation.pools[0], SETTINGS)
        text = render_properties(properties)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        config_map, stateful_set = (dict(self.situation.live[key]) for key in (MAP, SET))
        config_map["metadata"] = _without_annotations(config_map)
        _, _, sized = self.text().partition(SIZED)
        config_map["data"] = {PROPERTIES_KEY: text + SIZED + sized}
        stateful_set = _with_template_hash(stateful_set, digest)
        stateful_set["metadata"] = _without_annotations(stateful_set)
        stateful_set = with_hash(stateful_set)
        live = {**self.situation.live, MAP: with_hash(config_map), SET: stateful_set}
        self.situation = replace(self.situation, live=live)
        return digest

    def text(self) -> str:
        text: str = self.situation.live[MAP]["data"][PROPERTIES_KEY]
        return text

    def told(self) -> dict[str, str]:
        """The settings in the part of the file that the controller tells."""
        _, _, rest = self.text().partition(LIVE)
        part, _, _ = rest.partition(SIZED)
        return dict(line.split("=", 1) for line in part.splitlines())

    def hash(self) -> str:
        template = self.situation.live[SET]["spec"]["template"]
        digest: str = template["metadata"]["annotations"][CONFIG_HASH_ANNOTATION]
        return digest


def _without_annotations(manifest: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest["metadata"].items() if key != "annotations"}


def _with_template_hash(stateful_set: dict[str, Any], digest: str) -> dict[str, Any]:
    template = dict(stateful_set["spec"]["template"])
    annotations = {**template["metadata"]["annotations"], CONFIG_HASH_ANNOTATION: digest}
    template["metadata"] = {**template["metadata"], "annotations": annotations}
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": template}}


def keys(plan: ClusterPlan) -> set[tuple[str, str]]:
    return {child.key for child in plan.applies}


def test_a_live_setting_restarts_nobody_and_the_file_follows() -> None:
    story = Story(**{BYTES: 7})
    for config in ({BYTES: 8}, {BYTES: 8, "max.connections": 50}):
        plan = story.change(**config)
        assert keys(plan) == {MAP}
        assert plan.live_settings == {name: str(value) for name, value in config.items()}
        assert story.told() == plan.live_settings


def test_a_setting_with_a_backslash_is_the_same_in_the_next_pass() -> None:
    story = Story()
    story.change(pool_view(rack="a\\u"), **{BYTES: 7})
    before = story.hash()
    story.change(pool_view(rack="a\\u"), **{BYTES: 8})
    assert story.hash() == before


def test_a_static_setting_restarts_and_so_does_a_change_of_both() -> None:
    story = Story(**{BYTES: 7})
    assert SET in keys(story.change(**{BYTES: 7, HOURS: 5}))
    plan = story.change(**{BYTES: 8, HOURS: 6})
    assert keys(plan) == {MAP, SET}
    assert plan.live_settings == {BYTES: "8"}


def test_what_is_taken_out_has_its_default_and_restarts_nobody() -> None:
    story = Story(**{BYTES: 7})
    plan = story.change()
    assert keys(plan) == {MAP}
    assert plan.live_settings == story.told() == {BYTES: "-1"}
    # Once brokers restart for another reason, their file has no trace of it.
    plan = story.change(**{HOURS: 5})
    assert SET in keys(plan)
    assert plan.live_settings == story.told() == {}


def test_what_has_no_default_restarts_when_it_is_taken_out() -> None:
    """Brokers have read it, and no value would let log.retention.hours hold again."""
    story = Story(**{MS: 7000})
    assert keys(story.change(**{MS: 8000})) == {MAP}
    before = story.hash()
    plan = story.change()
    assert keys(plan) == {MAP, SET}
    assert plan.live_settings == {}
    assert story.hash() != before


def test_a_null_is_no_setting() -> None:
    assert Story(**{BYTES: None}).told() == {}


def test_what_a_pool_names_stays_in_its_file() -> None:
    story = Story(**{BYTES: 7})
    named = pool_view(config={BYTES: 9})
    plan = story.change(named, **{BYTES: 7})
    assert SET in keys(plan)
    assert plan.live_settings == {}
    assert f"{BYTES}=9\n" in story.text()
    assert SET in keys(story.change(pool_view(config={BYTES: 10}), **{BYTES: 7}))


def test_names_in_pools_are_read_without_judgement() -> None:
    pools: list[dict[str, Any]] = [
        {},
        {"spec": {"config": {"a": 1, "b": None}}},
        {"spec": {"config": None}},
    ]
    assert names_in_pools(pools) == {"a"}


def test_an_operator_that_knew_no_live_settings_is_followed_without_a_restart() -> None:
    story = Story(**{BYTES: 7, HOURS: 5})
    digest = story.become_older()
    plan = story.carry_out()
    assert keys(plan) == {MAP}
    assert story.told() == {BYTES: "7"}
    assert keys(story.change(**{BYTES: 8, HOURS: 5})) == {MAP}
    # Brokers have read it from their file, so it is live with its default.
    assert keys(story.change(**{HOURS: 5})) == {MAP}
    assert story.told() == {BYTES: "-1"}
    assert story.hash() == digest
    assert keys(story.change(**{HOURS: 6})) == {MAP, SET}
    assert story.hash() != digest


@pytest.mark.parametrize("config", [{BYTES: 7, HOURS: 6}, {HOURS: 5}])
def test_what_changed_while_an_older_operator_was_replaced_restarts(config: Any) -> None:
    story = Story(**{BYTES: 7, HOURS: 5})
    digest = story.become_older()
    story.change(**config)
    assert story.hash() != digest


def test_a_crash_between_the_file_and_the_pods_forgets_no_restart() -> None:
    story = Story(**{HOURS: 5})
    before = story.situation.live[SET]
    story.change(**{HOURS: 6})
    wanted = story.hash()
    story.situation = replace(story.situation, live={**story.situation.live, SET: before})
    assert keys(story.carry_out()) == {SET}
    assert story.hash() == wanted


def test_brokers_that_wait_for_their_restart_keep_what_they_were_told() -> None:
    declared, wanted = {BYTES: "7", MS: "5"}, {BYTES: "8"}
    assert decide_declaration(wanted, declared, may_unset=False) == {BYTES: "8", MS: "5"}
    assert decide_declaration(wanted, declared, may_unset=True) == {BYTES: "8"}


def test_a_paused_pool_keeps_its_file() -> None:
    story = Story(**{BYTES: 7})
    paused = plan_cluster(replace(story.situation, pools=(pool_view(paused=True),)), SETTINGS)
    assert paused.is_on_hold
    assert not plan_cluster(story.situation, SETTINGS).is_on_hold


def test_a_change_is_said_in_one_line() -> None:
    before, after = {"a": "1", "b": "2"}, {"b": "3", "c": "4"}
    said = "brokers use changed settings, without a restart: a is unset, b=3, c=4"
    assert describe_change(before, after) == said
    many = {f"n{number:02}": "1" for number in range(12)}
    assert describe_change({}, many).endswith("n09=1 and 2 more")
