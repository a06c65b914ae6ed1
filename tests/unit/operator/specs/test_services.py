"""The Services of a cluster: names inside Kubernetes, and ways in from outside."""

from typing import Any

import pytest
from operator_views import cluster_view, pool_view

from fairlead_operator.resources import ManifestError
from fairlead_operator.specs.services import (
    build_bootstrap_service,
    build_broker_services,
    build_headless_service,
    build_listener_bootstrap,
)

FIXED = {"name": "outside", "type": "NodePort", "port": 9095, "nodePortBase": 31090}
BALANCED = {"name": "public", "type": "LoadBalancer", "port": 9096}


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


def test_load_balancers_are_made_as_the_listener_says() -> None:
    fields = {
        "loadBalancerClass": "example.com/internal",
        "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"],
        "externalTrafficPolicy": "Local",
    }
    cluster = cluster_view(listeners=[BALANCED | fields])
    (listener,) = cluster.spec.listeners
    services = [
        build_listener_bootstrap(cluster, listener),
        *build_broker_services(cluster, pool_view(), 1),
    ]
    for service in services:
        assert {name: service["spec"].get(name) for name in fields} == fields
    cluster = cluster_view(listeners=[BALANCED])
    plain = build_listener_bootstrap(cluster, cluster.spec.listeners[0])["spec"]
    assert set(plain) == {"type", "ports", "selector"}


@pytest.mark.parametrize(
    "fields", [{"loadBalancerClass": "x"}, {"loadBalancerSourceRanges": ["10.0.0.0/8"]}]
)
def test_node_ports_have_no_load_balancer(fields: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="only listeners of type LoadBalancer"):
        cluster_view(listeners=[FIXED | fields])
    with pytest.raises(ManifestError, match=r"10\.0\.0\.0/8"):
        cluster_view(listeners=[BALANCED | {"loadBalancerSourceRanges": ["10.0.0.1"]}])


def test_all_services_have_the_families_of_the_cluster() -> None:
    fields = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    cluster = cluster_view(listeners=[BALANCED], **fields)
    services = [
        build_headless_service(cluster),
        build_bootstrap_service(cluster),
        build_listener_bootstrap(cluster, cluster.spec.listeners[0]),
        *build_broker_services(cluster, pool_view(), 2),
    ]
    assert len(services) == 5
    for service in services:
        assert {name: service["spec"].get(name) for name in fields} == fields


def test_a_listener_outside_has_families_of_its_own_or_those_of_the_cluster() -> None:
    both = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    cluster = cluster_view(listeners=[BALANCED | {"ipFamilies": ["IPv4"]}], **both)
    outside = [
        build_listener_bootstrap(cluster, cluster.spec.listeners[0]),
        *build_broker_services(cluster, pool_view(), 1),
    ]
    for service in outside:
        assert service["spec"]["ipFamilies"] == ["IPv4"]
        assert "ipFamilyPolicy" not in service["spec"], "the cluster's is for two families"
    assert build_bootstrap_service(cluster)["spec"]["ipFamilies"] == ["IPv6", "IPv4"]


INSIDE = {"name": "inside", "type": "Internal", "port": 9093}


@pytest.mark.parametrize(
    ("listener", "says"),
    [
        (BALANCED | {"ipFamilies": ["IPv4", "IPv6"]}, "need ipFamilyPolicy"),
        (INSIDE | {"ipFamilyPolicy": "SingleStack"}, "share the Service NAME-bootstrap"),
        (INSIDE | {"ipFamilies": ["IPv6"]}, "share the Service NAME-bootstrap"),
    ],
)
def test_families_that_no_listener_can_have_are_refused(
    listener: dict[str, Any], says: str
) -> None:
    with pytest.raises(ManifestError, match=says):
        cluster_view(listeners=[listener])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"ipFamilies": ["IPv4", "IPv6"]}, "need ipFamilyPolicy"),
        ({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6", "IPv4"]}, "need ipFamilyPolicy"),
        ({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv6"]}, "twice"),
        ({"ipFamilies": ["IPv5"]}, "IPv5"),
    ],
)
def test_families_that_no_service_can_have_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        cluster_view(**fields)


def test_inside_names_exist_before_brokers_are_ready_and_bootstrap_only_then() -> None:
    assert build_headless_service(cluster_view())["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in build_bootstrap_service(cluster_view())["spec"]
