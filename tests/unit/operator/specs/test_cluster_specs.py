"""The manifests that make a cluster."""

import base64
import json
import ssl
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_broker.rest.gate import Gate
from fairlead_broker.rest.problems import ProblemError
from fairlead_broker.security.listener_security import read_listener_security
from fairlead_broker.security.principal_mapping import NoRuleError
from fairlead_broker.settings import build_settings
from fairlead_model.configs.cordoned_directories import CORDONED_LOG_DIRS
from fairlead_model.configs.endpoint_text import parse_endpoint
from fairlead_model.configs.property_files import read_properties
from fairlead_model.configs.setting_sources import read_environment
from fairlead_model.session.session_protocol import parse_secret
from fairlead_operator.resources.broker_settings import (
    MANAGED_SETTINGS,
    broker_setting_problem,
)
from fairlead_operator.specs.claim_template import ClaimTemplate, read_claim_templates
from fairlead_operator.specs.config_map import build_config_map, build_properties
from fairlead_operator.specs.disruption_budget import build_disruption_budget
from fairlead_operator.specs.listener_security import plaintext_problem
from fairlead_operator.specs.listeners import OutsideAddress, looked_up_address, needs_lookup
from fairlead_operator.specs.live_settings import decide_settings, find_live, names_in_pools
from fairlead_operator.specs.names import CONFIG_HASH_ANNOTATION
from fairlead_operator.specs.network_policy import build_network_policy
from fairlead_operator.specs.services import (
    build_bootstrap_service,
    build_headless_service,
)
from fairlead_operator.specs.session_secret import build_session_secret
from fairlead_operator.specs.stateful_set import build_stateful_set
from fairlead_pod.placeholders import expand_properties

FIXED = {"name": "outside", "type": "NodePort", "port": 9095, "nodePortBase": 31090}
FREE = {"name": "outside", "type": "NodePort", "port": 9095}
BALANCED = {"name": "public", "type": "LoadBalancer", "port": 9096}


def stateful_set(cluster: Any = None, pool: Any = None, **changes: Any) -> dict[str, Any]:
    pool = pool or pool_view()
    claims = [ClaimTemplate.from_volume(each) for each in pool.spec.storage.each_volume]
    wanted: dict[str, Any] = {
        "image": "fairlead:1",
        "replicas": 3,
        "config_hash": "h",
        "claims": claims,
    }
    return build_stateful_set(cluster or cluster_view(), pool, **wanted | changes)


def config_map(cluster: Any, pool: Any = None, **changes: Any) -> dict[str, Any]:
    """The ConfigMap of a pool that there was none of before."""
    pool = pool or pool_view()
    properties = build_properties(cluster, pool, SETTINGS)
    given = decide_settings(properties, find_live(cluster, names_in_pools([])), None)
    wanted: dict[str, Any] = {"addresses": {}, "brokers": 3}
    return build_config_map(cluster, pool, given, **wanted | changes)


def config_hash(manifest: dict[str, Any]) -> str:
    told: str = manifest["metadata"]["annotations"][CONFIG_HASH_ANNOTATION]
    return told


def pod_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


def test_pods_return_by_themselves_and_change_only_when_deleted() -> None:
    spec = stateful_set()["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


TWO_CLAIMS = (
    ClaimTemplate(volume=0, size="1Gi"),
    ClaimTemplate(volume=7, size="2Gi", storage_class_name="slow", annotations={"a": "b"}),
)


def test_each_of_several_volumes_is_a_log_directory_of_its_own() -> None:
    manifest = stateful_set(claims=TWO_CLAIMS)
    first, second = manifest["spec"]["volumeClaimTemplates"]
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("data", "data-7")
    assert second["metadata"]["annotations"] == {"a": "b"}
    assert second["metadata"]["labels"] == first["metadata"]["labels"]
    assert second["spec"]["storageClassName"] == "slow"
    assert second["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    container = pod_spec(manifest)["containers"][0]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert (mounts["data"], mounts["data-7"]) == ("/var/lib/fairlead", "/var/lib/fairlead-7")
    variables = {each["name"]: each.get("value") for each in container["env"]}
    named = variables["FAIRLEAD_LOG_DIRS"]
    assert named == "/var/lib/fairlead/log,/var/lib/fairlead-7/log"
    assert pod_spec(manifest)["securityContext"]["fsGroup"] == 10001, "of every volume"
    assert read_claim_templates(manifest) == TWO_CLAIMS


def test_the_broker_takes_the_directories_that_its_pod_has() -> None:
    """Its file is that of all pods of the pool, also of those that are yet to restart."""
    text = config_map(cluster_view())["data"]["server.properties"]
    values = dict.fromkeys(("POD_IP", "POD_NAME", "NODE_NAME", "BROKER_ID"), "x")
    file = read_properties(expand_properties(text, values | {"BROKER_ID": "1"}))
    variables = pod_spec(stateful_set(claims=TWO_CLAIMS))["containers"][0]["env"]
    told, warnings = read_environment({each["name"]: each.get("value", "") for each in variables})
    assert warnings == []
    settings = build_settings(file=file, environment=told, assignments={})
    assert settings.log_directories == ("/var/lib/fairlead/log", "/var/lib/fairlead-7/log")
    alone = build_settings(file=file, environment={}, assignments={})
    assert alone.log_directories == ("/var/lib/fairlead/log",)


def test_one_volume_by_its_id_changes_nothing() -> None:
    """A pool may be rewritten without a restart of its brokers."""
    pool = pool_view(storage={"volumes": [{"id": 0, "size": "1Gi"}]})
    assert stateful_set(pool=pool) == stateful_set()
    assert config_map(cluster_view(), pool) == config_map(cluster_view())


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


def test_claims_are_made_with_annotations() -> None:
    storage = {"size": "1Gi", "annotations": {"example.com/key": "vault"}}
    (claim,) = stateful_set(pool=pool_view(storage=storage))["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["annotations"] == {"example.com/key": "vault"}
    (plain,) = stateful_set()["spec"]["volumeClaimTemplates"]
    assert "annotations" not in plain["metadata"]


def test_an_image_may_be_named_by_its_digest() -> None:
    image = "registry.example.com:5000/fairlead@sha256:" + "a" * 64
    assert pod_spec(stateful_set(image=image))["containers"][0]["image"] == image


def test_the_properties_are_settings_that_a_broker_takes() -> None:
    cluster = cluster_view(listeners=[FIXED, BALANCED], config={"log.retention.hours": 5})
    pool = pool_view(idBase=100, rack="r1", config={"log.retention.hours": 6})
    address = OutsideAddress("lb.example.com", "9096")
    manifest = config_map(cluster, pool, addresses={100: {"public": address}})
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
    """But for what is said of one broker, while it runs."""
    cluster = cluster_view(rest={"enabled": True})
    properties = build_properties(cluster, pool_view(rack="r1"), SETTINGS)
    assert set(MANAGED_SETTINGS) - set(properties) == {CORDONED_LOG_DIRS}


SECURED = (
    {"name": "plain", "type": "Internal", "port": 9092},
    {
        "name": "scram",
        "type": "Internal",
        "port": 9093,
        "tls": {},
        "authentication": {"type": "scram-sha-512"},
    },
    FIXED | {"tls": {}, "authentication": {"type": "tls"}},
    BALANCED
    | {
        "tls": {},
        "authentication": {
            "type": "oauth",
            "jwksEndpointUri": "https://id.example.com/jwks",
            "validIssuerUri": "https://id.example.com",
            "audience": "kafka",
        },
    },
)


def secured_settings(cluster: Any) -> Any:
    properties = build_properties(cluster, pool_view(), SETTINGS)
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    values = {"BROKER_ID": "1", "POD_IP": "10.0.0.7", "HOST_IP": "192.0.2.1", "NODE_NAME": "n"}
    values |= {"BROKER_ID+31091": "31092", "POD_NAME": "demo-main-1"}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    return build_settings(file=read_properties(text), environment={}, assignments={})


def test_a_broker_takes_the_settings_of_a_secured_cluster() -> None:
    cluster = cluster_view(
        listeners=list(SECURED), authorization={"superUsers": ["admin"]}, config={}
    )
    settings = secured_settings(cluster)
    told = {each.name: (each.advertised_host, each.advertised_port) for each in settings.listeners}
    pod = "demo-main-1.demo-brokers.shop.svc"
    assert told == {
        "PLAIN": (pod, 9092),
        "SCRAM": (pod, 9093),
        "INTERNAL": ("10.0.0.7", 9094),
        "OUTSIDE": ("192.0.2.1", 31092),
        "PUBLIC": (pod, 9096),
        "OPERATOR": (pod, 9091),
    }
    security = read_listener_security(settings.values, settings.listeners)
    assert {name: each.protocol.value for name, each in security.items()} == {
        "PLAIN": "PLAINTEXT",
        "SCRAM": "SASL_SSL",
        "INTERNAL": "PLAINTEXT",
        "OUTSIDE": "SSL",
        "PUBLIC": "SASL_SSL",
        "OPERATOR": "SSL",
    }
    logins: dict[str, Any] = {name: each.sasl for name, each in security.items()}
    assert logins["SCRAM"].mechanisms == ("SCRAM-SHA-512",)
    assert logins["PUBLIC"].oauth.issuer == "https://id.example.com"
    keys = {name: each.tls.key.path for name, each in security.items() if each.tls is not None}
    assert keys == {
        name: f"/etc/fairlead-tls/{name.lower()}.pem"
        for name in ("SCRAM", "OUTSIDE", "PUBLIC", "OPERATOR")
    }
    asking = {
        name: each.tls.trust.path
        for name, each in security.items()
        if each.tls is not None
        and each.tls.trust is not None
        and each.tls.verify_mode is ssl.CERT_REQUIRED
    }
    assert asking == dict.fromkeys(("OUTSIDE", "OPERATOR"), "/etc/fairlead-tls/ca.crt")
    assert settings.values.value("super.users") == "User:fairlead-operator:c-1;User:admin"


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=fairlead-operator:c-1", "fairlead-operator:c-1"),
        ("CN=fairlead-drills:c-1", "fairlead-drills:c-1"),
        ("CN=fairlead-operator:c-2", None),
        ("CN=shop", None),
        ("CN=fairlead-operator:c-1,O=shop", None),
    ],
)
def test_nobody_else_gets_in_by_the_listener_of_the_operator(
    name: str, principal: str | None
) -> None:
    settings = secured_settings(cluster_view(listeners=list(SECURED)))
    mapping = read_listener_security(settings.values, settings.listeners)["OPERATOR"].mapping
    assert mapping is not None
    if principal is not None:
        assert mapping.apply(name) == principal
        return
    with pytest.raises(NoRuleError):
        mapping.apply(name)


def test_a_cluster_that_secures_nothing_has_no_setting_of_security() -> None:
    properties = build_properties(cluster_view(listeners=[FIXED]), pool_view(), SETTINGS)
    assert not [name for name in properties if name.startswith(("ssl.", "sasl.", "listener."))]
    assert not {"authorizer.class.name", "super.users"} & set(properties)
    assert properties["listeners"].split(",") == [
        "CLIENT://0.0.0.0:9092",
        "INTERNAL://0.0.0.0:9094",
        "OUTSIDE://0.0.0.0:9095",
    ]


PEERS = {"tls": True}


@pytest.mark.parametrize("listeners", [[], list(SECURED)])
def test_brokers_take_the_settings_of_tls_between_them(listeners: list[Any]) -> None:
    config = {"ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"}
    config["ssl.cipher.suites"] = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    for told in ({}, config):
        cluster = cluster_view(listeners=listeners, interBroker=PEERS, config=told)
        settings = secured_settings(cluster)
        for each in (settings.peer_tls, settings.controller_tls):
            assert each.broker_id == 1
            assert each.tls.key.path == "/etc/fairlead-tls/broker-1.pem"
            assert each.tls.trust.path == "/etc/fairlead-tls/ca.crt"
            # What listeners of clients are told is none of peers': the controller speaks 1.3 alone.
            assert {each.tls.oldest, each.tls.newest} == {ssl.TLSVersion.TLSv1_3}
        assert settings.controller_sessions == (
            "wss://fairlead-operator-0.fairlead-operator.fairlead-system.svc:9090/shop/demo",
            "wss://fairlead-operator-1.fairlead-operator.fairlead-system.svc:9090/shop/demo",
        )


def test_tls_between_brokers_changes_nothing_for_clients() -> None:
    plain = secured_settings(cluster_view(listeners=[FIXED]))
    settings = secured_settings(cluster_view(listeners=[FIXED], interBroker=PEERS))
    assert settings.listeners == plain.listeners
    assert settings.access == plain.access
    security = read_listener_security(settings.values, settings.listeners)
    assert security == read_listener_security(plain.values, plain.listeners)
    assert (plain.peer_tls, plain.controller_tls) == (None, None)


def test_pods_of_a_secured_cluster_mount_certificates_as_a_whole_folder() -> None:
    """Kubernetes never renews what is mounted by `subPath`."""
    for peers in (cluster_view(interBroker=PEERS), cluster_view(interBroker={})):
        volumes = {each["name"] for each in pod_spec(stateful_set(peers))["volumes"]}
        assert ("tls" in volumes) == peers.spec.inter_broker.tls
    cluster = cluster_view(listeners=list(SECURED))
    spec = pod_spec(stateful_set(cluster))
    (volume,) = (each for each in spec["volumes"] if each["name"] == "tls")
    assert volume["secret"]["secretName"] == "demo-main-tls"
    (mount,) = (each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "tls")
    assert mount == {"name": "tls", "mountPath": "/etc/fairlead-tls", "readOnly": True}
    assert ports(build_bootstrap_service(cluster)) == {
        "kafka": 9092,
        "scram": 9093,
        "operator": 9091,
    }


def test_what_clients_could_say_in_clear_is_named() -> None:
    assert "the listener client (port 9092)" in plaintext_problem(cluster_view())
    assert "plain (port 9092)" in plaintext_problem(cluster_view(listeners=list(SECURED)))
    assert not plaintext_problem(cluster_view(listeners=list(SECURED[1:])))
    with_http = cluster_view(listeners=list(SECURED[1:]), rest={"enabled": True})
    assert "spec.rest" in plaintext_problem(with_http)
    with_https = cluster_view(listeners=list(SECURED[1:]), rest={"enabled": True, "tls": {}})
    assert not plaintext_problem(with_https)


@pytest.mark.parametrize(
    "name", ["super.users", "ssl.keystore.location", "listener.name.scram.ssl.client.auth"]
)
def test_settings_that_listeners_say_are_refused_elsewhere(name: str) -> None:
    assert "cannot be set here" in (broker_setting_problem(name, "x") or "")


REST = {
    "enabled": True,
    "allowedHosts": ["log.example.com"],
    "allowedOrigins": ["https://example.com", "http://[2001:DB8:0::1]:80"],
}


def ports(manifest: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["port"] for each in manifest["spec"]["ports"]}


def test_the_http_api_is_served_where_the_cluster_wants_it() -> None:
    cluster = cluster_view(rest=REST)
    text = config_map(cluster)["data"]["server.properties"]
    for name in ("BROKER_ID", "POD_NAME", "POD_IP", "NODE_NAME"):
        text = text.replace(f"${{{name}}}", "0" if name == "BROKER_ID" else "demo-main-0")
    settings = build_settings(file=read_properties(text), environment={}, assignments={})
    rest = settings.rest
    assert rest is not None
    assert (rest.host, rest.port) == ("0.0.0.0", 8082)
    assert rest.advertised_host == "demo-main-0.demo-brokers.shop.svc"
    assert rest.advertised_port == 8082
    # The gate of a broker lets in whoever comes by the Service, and by the names of users.
    gate = Gate((rest.host, rest.advertised_host, *rest.allowed_hosts), rest.allowed_origins)
    for host in ("demo-bootstrap:8082", "demo-bootstrap.shop.svc:8082", "log.example.com"):
        gate.check({"Host": host, "Origin": "https://example.com"}, "")
    gate.check({"Host": "log.example.com", "Origin": "http://[2001:db8::1]"}, "")
    with pytest.raises(ProblemError):
        gate.check({"Host": "other.example.com"}, "")
    assert ports(build_headless_service(cluster))["rest"] == 8082
    assert ports(build_bootstrap_service(cluster)) == {"kafka": 9092, "rest": 8082}
    (container,) = pod_spec(stateful_set(cluster))["containers"]
    assert {"name": "rest", "containerPort": 8082, "protocol": "TCP"} in container["ports"]
    policy = build_network_policy(cluster, SETTINGS)
    assert policy is not None
    assert 8082 in [each["port"] for each in policy["spec"]["ingress"][0]["ports"]]


@pytest.mark.parametrize(
    ("authentication", "mechanisms", "is_certificate_asked"),
    [
        (None, None, False),
        ({"type": "scram-sha-512"}, ("PLAIN",), False),
        ({"type": "tls"}, None, True),
        (SECURED[3]["authentication"], ("OAUTHBEARER",), False),
    ],
)
def test_the_http_api_takes_tls_and_logins_as_listeners_do(
    authentication: Any, mechanisms: Any, is_certificate_asked: bool
) -> None:
    rest = {**REST, "tls": {}}
    if authentication is not None:
        rest["authentication"] = authentication
    cluster = cluster_view(rest=rest)
    settings = secured_settings(cluster)
    assert settings.rest.is_tls
    assert settings.access.is_authorizing
    security = settings.security["REST"]
    assert security.tls.key.path == "/etc/fairlead-tls/rest.pem"
    assert (security.tls.verify_mode is ssl.CERT_REQUIRED) == is_certificate_asked
    assert (None if security.sasl is None else security.sasl.mechanisms) == mechanisms
    # What the operator does itself has its own way in, and certificates are there for all of it.
    assert "OPERATOR" in settings.security
    assert "tls" in {each["name"] for each in pod_spec(stateful_set(cluster))["volumes"]}
    assert settings.security["CLIENT"].protocol.value == "PLAINTEXT"


def test_nothing_of_the_http_api_is_there_where_nobody_wants_it() -> None:
    cluster = cluster_view()
    made = (
        *(config_map(cluster), stateful_set(cluster), build_headless_service(cluster)),
        *(build_bootstrap_service(cluster), build_network_policy(cluster, SETTINGS)),
    )
    assert "rest" not in json.dumps(made).replace("restart", "")
    assert "8082" not in json.dumps(made)


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
    manifest = config_map(cluster, brokers=brokers)
    told = read_properties(manifest["data"]["server.properties"])
    assert told["offsets.topic.replication.factor"] == str(copies)


def test_the_number_of_brokers_restarts_nobody_but_what_a_user_sets_does() -> None:
    def hash_of(brokers: int, **config: Any) -> str:
        cluster = cluster_view(config=config)
        return config_hash(config_map(cluster, brokers=brokers))

    assert hash_of(1) == hash_of(3)
    assert hash_of(3, **{"offsets.topic.replication.factor": 2}) != hash_of(3)


def test_an_address_of_one_broker_restarts_nobody() -> None:
    cluster, pool = cluster_view(listeners=[BALANCED]), pool_view()
    without = config_map(cluster, pool)
    address = {0: {"public": OutsideAddress("a.example.com", "9096")}}
    with_one = config_map(cluster, pool, addresses=address)
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
    service = {"spec": {"ports": [{"port": free.port, "nodePort": 30123}]}}
    assert looked_up_address(free, cluster, pool, service) == OutsideAddress("${HOST_IP}", "30123")
    assert looked_up_address(balanced, cluster, pool, service) is None
    ready = service | {"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.4"}]}}}
    assert looked_up_address(balanced, cluster, pool, ready) == OutsideAddress(
        "198.51.100.4", "9096"
    )
    assert looked_up_address(free, cluster, pool, None) is None


def test_a_port_that_somebody_adds_to_a_service_is_not_advertised() -> None:
    cluster, pool = cluster_view(listeners=[FREE]), pool_view()
    (free,) = cluster.spec.listeners
    other, own = {"port": 8081, "nodePort": 31999}, {"port": free.port, "nodePort": 30123}
    service = {"spec": {"ports": [other, own]}}
    assert looked_up_address(free, cluster, pool, service) == OutsideAddress("${HOST_IP}", "30123")


def test_an_ipv6_address_of_a_load_balancer_is_advertised_in_brackets() -> None:
    cluster = cluster_view(listeners=[BALANCED])
    (listener,) = cluster.spec.listeners
    service = {"status": {"loadBalancer": {"ingress": [{"ip": "2001:db8::7"}]}}}
    address = looked_up_address(listener, cluster, pool_view(), service)
    assert address is not None
    known = {0: {listener.name: address}}
    text = config_map(cluster, addresses=known)["data"]["broker-0.properties"]
    (told,) = [
        each
        for each in text.strip().partition("=")[2].split(",")
        if each.startswith(f"{listener.name.upper()}://")
    ]
    assert parse_endpoint(told) == (listener.name.upper(), "2001:db8::7", listener.port)


def test_the_secret_is_one_that_brokers_and_controllers_take() -> None:
    manifest = build_session_secret(cluster_view(), b"x" * 32)
    assert len(parse_secret(base64.b64decode(manifest["data"]["secret"]))) >= 32


def test_one_broker_at_a_time_may_be_evicted() -> None:
    assert build_disruption_budget(cluster_view(), 0)["spec"]["maxUnavailable"] == 0


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
        config_map(cluster_view()),
    ],
    ids=["StatefulSet", "ConfigMap"],
)
def test_children_of_a_pool_go_with_it(manifest: dict[str, Any]) -> None:
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("BrokerPool", "p-main")
