"""What users patch into brokers' pods, and what they cannot."""

from typing import Any

import pytest
from operator_views import ONE_CLAIM, cluster_view, pool_view

from fairlead_operator.resources import ManifestError
from fairlead_operator.specs.names import CONFIG_FOLDER, DATA_FOLDER
from fairlead_operator.specs.pod_patch import PodPatchError, merge_pod_spec
from fairlead_operator.specs.stateful_set import build_stateful_set


def pod_spec(patch: dict[str, Any] | None) -> dict[str, Any]:
    pool = pool_view(template={} if patch is None else {"podSpec": patch})
    manifest = build_stateful_set(
        cluster_view(), pool, image="fairlead:1", replicas=1, config_hash="h", claims=ONE_CLAIM
    )
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


def test_without_a_patch_a_pod_is_as_before() -> None:
    assert pod_spec(None) == pod_spec({})


def test_a_volume_a_sidecar_and_an_account_join_what_is_there() -> None:
    plain = pod_spec(None)
    volume = {"name": "extra", "emptyDir": {}}
    mount = {"name": "extra", "mountPath": "/extra"}
    sidecar = {"name": "shipper", "image": "shipper:1", "volumeMounts": [mount]}
    spec = pod_spec(
        {
            "serviceAccountName": "brokers",
            "volumes": [volume],
            "containers": [{"name": "broker", "volumeMounts": [mount]}, sidecar],
        }
    )
    assert spec["serviceAccountName"] == "brokers"
    assert spec["volumes"] == [*plain["volumes"], volume]
    broker, other = spec["containers"]
    assert other == sidecar
    assert broker["volumeMounts"] == [*plain["containers"][0]["volumeMounts"], mount]
    assert {**broker, "volumeMounts": 0} == {**plain["containers"][0], "volumeMounts": 0}


def test_openshift_chooses_the_user_where_no_user_is_named() -> None:
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    replaced = pod_spec({"securityContext": {"$patch": "replace", **context}})
    assert replaced["securityContext"] == context
    removed = pod_spec(
        {"securityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}
    )
    assert removed["securityContext"] == {**context, "fsGroupChangePolicy": "OnRootMismatch"}


def test_lists_follow_their_keys_and_directives() -> None:
    base: dict[str, Any] = {
        "volumes": [{"name": "a", "x": 1}, {"name": "b"}],
        "tolerations": [{"key": "old"}],
    }
    changed = {"volumes": [{"name": "a", "y": 2}, {"name": "b", "$patch": "delete"}]}
    assert merge_pod_spec(base, changed)["volumes"] == [{"name": "a", "x": 1, "y": 2}]
    only = {"volumes": [{"$patch": "replace"}, {"name": "c"}], "tolerations": [{"key": "new"}]}
    assert merge_pod_spec(base, only) == {
        "volumes": [{"name": "c"}],
        "tolerations": [{"key": "new"}],
    }
    assert merge_pod_spec(base, {"volumes": {"$patch": "delete"}}) == {
        "tolerations": [{"key": "old"}]
    }
    assert base["volumes"][0] == {"name": "a", "x": 1}, "the base is nobody's to change"


def test_a_label_may_have_the_name_of_a_list() -> None:
    labels = {"env": "prod", "ports": "many", "volumes": "few"}
    spread = {"topologyKey": "zone", "labelSelector": {"matchLabels": labels}}
    patch = {"nodeSelector": labels, "topologySpreadConstraints": [spread]}
    assert merge_pod_spec({"nodeSelector": {"disk": "fast"}}, patch) == {
        "nodeSelector": {"disk": "fast", **labels},
        "topologySpreadConstraints": [spread],
    }


def test_an_entry_without_a_key_is_left_to_the_api_server() -> None:
    nameless, named = {"maxSkew": 1}, {"topologyKey": "zone"}
    base, patch = ({"topologySpreadConstraints": [each]} for each in (nameless, named))
    merged = merge_pod_spec(base, patch)
    assert merged["topologySpreadConstraints"] == [nameless, named]
    patch["topologySpreadConstraints"] = [{"topologyKey": "zone", "$patch": "delete"}]
    assert merge_pod_spec(base, patch) == base


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"volumes": [{"emptyDir": {}}]}, "podSpec.volumes[0]: an object of this list needs name"),
        ({"volumes": "x"}, "podSpec.volumes: expected a list"),
        ({"volumes": {"a": {}}}, "podSpec.volumes: expected a list"),
        (
            {"containers": [{"name": "broker", "env": {"A": "b"}}]},
            "podSpec.containers[0].env: expected a list",
        ),
        ({"volumes": [{"name": ["a"]}]}, "podSpec.volumes[0].name: expected a text or a number"),
        ({"affinity": {"$patch": "maybe"}}, "podSpec.affinity.$patch: expected merge"),
        ({"$retainKeys": []}, "podSpec.$retainKeys: only $patch is known"),
    ],
)
def test_what_cannot_be_merged_says_where(patch: dict[str, Any], problem: str) -> None:
    with pytest.raises(PodPatchError) as refused:
        merge_pod_spec({}, patch)
    assert problem in str(refused.value)


def of_the_broker(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "broker", **fields}]}


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        (of_the_broker(command=["sh"]), "containers[broker].command: the operator sets it"),
        (of_the_broker(args=["x"]), "containers[broker].args"),
        (of_the_broker(image="other:1"), "containers[broker].image"),
        (of_the_broker(env=[{"name": "POD_IP", "value": "x"}]), "POD_IP is the operator's own"),
        (of_the_broker(env={"$patch": "delete"}), "env: FAIRLEAD_ID_BASE is the operator's own"),
        (
            of_the_broker(volumeMounts=[{"mountPath": DATA_FOLDER, "name": "other"}]),
            f"{DATA_FOLDER} is the operator's own",
        ),
        (
            of_the_broker(volumeMounts=[{"mountPath": CONFIG_FOLDER, "$patch": "delete"}]),
            f"{CONFIG_FOLDER} is the operator's own",
        ),
        ({"containers": [{"$patch": "replace"}]}, "containers[broker]"),
        ({"containers": [{"name": "broker", "$patch": "delete"}]}, "containers[broker]"),
        ({"containers": {"$patch": "delete"}}, "containers[broker]"),
        ({"containers": {"name": "broker"}}, "containers: expected a list"),
        (of_the_broker(env={"LEVEL": "debug"}), "containers[0].env: expected a list"),
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, "volumes: data is the operator's own"),
        ({"volumes": [{"name": "session", "emptyDir": {}}]}, "volumes: session"),
        ({"volumes": [{"name": "config", "$patch": "delete"}]}, "volumes: config"),
        ({"restartPolicy": "Never"}, "podSpec.restartPolicy"),
        ({"hostname": "x"}, "podSpec.hostname"),
        ({"volumes": [7]}, "podSpec.volumes[0]"),
    ],
)
def test_what_a_broker_is_started_with_stays(patch: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError) as refused:
        pool_view(template={"podSpec": patch})
    assert problem in str(refused.value)
    assert "BrokerPool main: spec.template.podSpec" in str(refused.value)


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"volumes": [{"name": "data-7", "emptyDir": {}}]}, "volumes: data-7 is the operator's"),
        (
            of_the_broker(volumeMounts=[{"mountPath": f"{DATA_FOLDER}-7", "name": "other"}]),
            f"{DATA_FOLDER}-7 is the operator's own",
        ),
        (
            of_the_broker(env=[{"name": "FAIRLEAD_LOG_DIRS", "value": "/a"}]),
            "FAIRLEAD_LOG_DIRS is the operator's own",
        ),
    ],
)
def test_so_does_each_of_several_volumes(patch: dict[str, Any], problem: str) -> None:
    volumes = [{"id": number, "size": "1Gi"} for number in (0, 7)]
    with pytest.raises(ManifestError) as refused:
        pool_view(storage={"volumes": volumes}, template={"podSpec": patch})
    assert problem in str(refused.value)
    assert pool_view(template={"podSpec": patch}).spec.template.pod_spec == patch
