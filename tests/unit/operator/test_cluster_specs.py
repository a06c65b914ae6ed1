"""The manifests that make a cluster."""

import base64
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_broker.settings import build_settings, read_properties
from fairlead_model.session_protocol import parse_secret
from fairlead_operator.resources.broker_settings import MANAGED_SETTINGS
from fairlead_operator.specs.config_map import build_config_map, build_properties, config_hash
from fairlead_operator.specs.disruption_budget import build_disruption_budget
from fairlead_operator.specs.listeners import OutsideAddress, looked_up_address, needs_lookup
from fairlead_operator.specs.network_policy import build_network_policy
from fairlead_operator.specs.services import (
    build_bootstrap_service,
    build_broker_services,
    build_headless_service,
    build_listener_bootstrap,
)
from fairlead_operator.specs.session_secret import build_session_secret
from fairlead_operator.specs.stateful_set import build_stateful_set

FIXED = {"name": "outside", "type": "NodePort", "port": 9095, "nodePortBase": 31090}
FREE = {"name": "outside", "type": "NodePort", "port": 9095}
BALANCED = {"name": "public", "type": "LoadBalancer", "port": 9096}


def stateful_set(cluster: Any = None, pool: Any = None, **changes: Any) -> dict[str, Any]:
    wanted = {"image": "fairlead:1", "replicas": 3, "config_hash": "h", "storage_size": "1Gi"}
    return build_stateful_set(cluster or cluster_view(), pool or pool_view(), **wanted | changes)


def pod_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


def test_pods_return_by_themselves_and_change_only_when_deleted() -> None:
    spec = stateful_set()["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


def test_brokers_run_without_privileges_and_without_credentials() -> None:
    spec = pod_spec(stateful_set())
    container = spec["containers"][0]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert spec["terminationGracePeriodSeconds"] >= 60


def test_recovery_may_take_hours_and_only_a_wedged_broker_is_restarted() -> None:
    container = pod_spec(stateful_set())["containers"][0]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 3600
    assert liveness["httpGet"]["path"] == "/livez"
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_a_pod_that_is_deleted_serves_until_services_have_let_go_of_it() -> None:
    spec = pod_spec(stateful_set())
    hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[0] == "sleep"
    assert 0 < int(hook[1]) < spec["terminationGracePeriodSeconds"] / 10


def test_brokers_spread_over_hosts_before_zones() -> None:
    keys = [entry["topologyKey"] for entry in pod_spec(stateful_set())["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    own = {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    pool = pool_view(template={"topologySpreadConstraints": [own]})
    assert pod_spec(stateful_set(pool=pool))["topologySpreadConstraints"] == [own]


def test_a_restart_that_was_asked_for_changes_the_template() -> None:
    before = stateful_set()["spec"]["template"]
    after = stateful_set(pool=pool_view(restart="now"))["spec"]["template"]
    assert before != after
    assert after["metadata"]["annotations"]["fairlead.io/restart"] == "now"


def test_labels_of_users_never_replace_those_that_select() -> None:
    pool = pool_view(template={"labels": {"fairlead.io/pool": "other", "team": "log"}})
    manifest = stateful_set(pool=pool)
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "log"
    assert manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_users_add_to_the_pod() -> None:
    template = {
        "env": [{"name": "TZ", "value": "UTC"}],
        "nodeSelector": {"disk": "fast"},
        "priorityClassName": "high",
    }
    cluster = cluster_view(imagePullSecrets=["pull"], imagePullPolicy="Always")
    spec = pod_spec(stateful_set(cluster, pool_view(template=template)))
    assert {"name": "TZ", "value": "UTC"} in spec["containers"][0]["env"]
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["priorityClassName"] == "high"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["containers"][0]["imagePullPolicy"] == "Always"


def test_the_properties_are_settings_that_a_broker_takes() -> None:
    cluster = cluster_view(listeners=[FIXED, BALANCED], config={"log.retention.hours": 5})
    pool = pool_view(idBase=100, rack="r1", config={"log.retention.hours": 6})
    address = OutsideAddress("lb.example.com", "9096")
    manifest = build_config_map(
        cluster, pool, SETTINGS, addresses={100: {"public": address}}, brokers=3
    )
    text = manifest["data"]["server.properties"] + manifest["data"]["broker-100.properties"]
    for name, value in {
        "BROKER_ID+31091": "31191",
        "BROKER_ID": "100",
        "POD_NAME": "demo-main-0",
        "POD_IP": "10.0.0.7",
        "HOST_IP": "192.0.2.1",
        "NODE_NAME": "node-1",
    }.items():
        text = text.replace(f"${{{name}}}", value)
    settings = build_settings(file=read_properties(text), environment={}, assignments={})
    told = {
        entry.name: (entry.advertised_host, entry.advertised_port) for entry in settings.listeners
    }
    assert told == {
        "CLIENT": ("demo-main-0.demo-brokers.shop.svc", 9092),
        "INTERNAL": ("10.0.0.7", 9094),
        "OUTSIDE": ("192.0.2.1", 31191),
        "PUBLIC": ("lb.example.com", 9096),
    }
    assert (settings.node_id, settings.rack, settings.host_name) == (100, "r1", "node-1")
    assert settings.controller_sessions == tuple(
        f"ws://fairlead-operator-{number}.fairlead-operator.fairlead-system.svc:9090/shop/demo"
        for number in (0, 1)
    )
    assert settings.values.value("log.retention.hours") == 6


def test_every_setting_that_users_may_not_give_comes_from_the_operator() -> None:
    properties = build_properties(cluster_view(), pool_view(rack="r1"), SETTINGS)
    assert set(MANAGED_SETTINGS) <= set(properties)


def test_null_in_a_pool_takes_up_what_the_cluster_says() -> None:
    cluster = cluster_view(config={"log.retention.hours": 5})
    properties = build_properties(
        cluster, pool_view(config={"log.retention.hours": None}), SETTINGS
    )
    assert properties["log.retention.hours"] == "5"


@pytest.mark.parametrize(
    ("factor", "brokers", "config", "copies"),
    [
        (3, 3, {}, 3),
        (3, 1, {}, 1),
        (3, 0, {}, 1),
        (2, 5, {}, 2),
        (3, 5, {"offsets.topic.replication.factor": 4}, 4),
    ],
)
def test_offsets_have_as_many_copies_as_topics_and_brokers(
    factor: int, brokers: int, config: dict[str, Any], copies: int
) -> None:
    cluster = cluster_view(defaults={"replicationFactor": factor}, config=config)
    manifest = build_config_map(cluster, pool_view(), SETTINGS, addresses={}, brokers=brokers)
    told = read_properties(manifest["data"]["server.properties"])
    assert told["offsets.topic.replication.factor"] == str(copies)


def test_the_number_of_brokers_restarts_nobody_but_what_a_user_sets_does() -> None:
    def hash_of(brokers: int, **config: Any) -> str:
        cluster = cluster_view(config=config)
        return config_hash(
            build_config_map(cluster, pool_view(), SETTINGS, addresses={}, brokers=brokers)
        )

    assert hash_of(1) == hash_of(3)
    assert hash_of(3, **{"offsets.topic.replication.factor": 2}) != hash_of(3)


def test_an_address_of_one_broker_restarts_nobody() -> None:
    cluster, pool = cluster_view(listeners=[BALANCED]), pool_view()
    without = build_config_map(cluster, pool, SETTINGS, addresses={}, brokers=3)
    address = {0: {"public": OutsideAddress("a.example.com", "9096")}}
    with_one = build_config_map(cluster, pool, SETTINGS, addresses=address, brokers=3)
    assert without != with_one
    assert config_hash(without) == config_hash(with_one)


@pytest.mark.parametrize(
    ("listener", "is_needed"),
    [
        (FIXED, False),
        (FREE, True),
        (FREE | {"advertisedPortTemplate": "3{brokerId}"}, False),
        (BALANCED, True),
        (BALANCED | {"advertisedHostTemplate": "b{brokerId}.example.com"}, False),
    ],
)
def test_what_only_kubernetes_knows_is_looked_up(listener: dict[str, Any], is_needed: bool) -> None:
    assert needs_lookup(cluster_view(listeners=[listener]).spec.listeners[0]) is is_needed


def test_addresses_come_from_live_services() -> None:
    cluster, pool = cluster_view(listeners=[FREE, BALANCED]), pool_view()
    free, balanced = cluster.spec.listeners
    service = {"spec": {"ports": [{"nodePort": 30123}]}}
    assert looked_up_address(free, cluster, pool, service) == OutsideAddress("${HOST_IP}", "30123")
    assert looked_up_address(balanced, cluster, pool, service) is None
    ready = service | {"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.4"}]}}}
    assert looked_up_address(balanced, cluster, pool, ready) == OutsideAddress(
        "198.51.100.4", "9096"
    )
    assert looked_up_address(free, cluster, pool, None) is None


def test_each_broker_has_a_way_in_from_outside() -> None:
    cluster, pool = cluster_view(listeners=[FIXED]), pool_view(idBase=10)
    services = build_broker_services(cluster, pool, 2)
    assert [service["metadata"]["name"] for service in services] == [
        "demo-outside-10",
        "demo-outside-11",
    ]
    assert [service["spec"]["ports"][0]["nodePort"] for service in services] == [31101, 31102]
    assert services[1]["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": "demo-main-1"}
    bootstrap = build_listener_bootstrap(cluster, cluster.spec.listeners[0])
    assert bootstrap["metadata"]["name"] == "demo-outside-bootstrap"
    assert bootstrap["spec"]["ports"][0]["nodePort"] == 31090


def test_inside_names_exist_before_brokers_are_ready_and_bootstrap_only_then() -> None:
    assert build_headless_service(cluster_view())["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in build_bootstrap_service(cluster_view())["spec"]


def test_the_secret_is_one_that_brokers_and_controllers_take() -> None:
    manifest = build_session_secret(cluster_view(), b"x" * 32)
    assert len(parse_secret(base64.b64decode(manifest["data"]["secret"]))) >= 32


def test_one_broker_at_a_time_may_be_evicted() -> None:
    assert build_disruption_budget(cluster_view())["spec"]["maxUnavailable"] == 1


def test_who_may_come_in_by_port() -> None:
    manifest = build_network_policy(cluster_view(listeners=[FIXED]), SETTINGS)
    assert manifest is not None
    rules = {
        port["port"]: rule.get("from")
        for rule in manifest["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert rules[9092] is None
    assert rules[9095] is None
    assert len(rules[9094]) == 2
    assert rules[8080] == [{"namespaceSelector": {}}]
    assert build_network_policy(cluster_view(networkPolicy={"enabled": False}), SETTINGS) is None


@pytest.mark.parametrize(
    "manifest",
    [
        stateful_set(),
        build_config_map(cluster_view(), pool_view(), SETTINGS, addresses={}, brokers=3),
    ],
    ids=["StatefulSet", "ConfigMap"],
)
def test_children_of_a_pool_go_with_it(manifest: dict[str, Any]) -> None:
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("BrokerPool", "p-main")
