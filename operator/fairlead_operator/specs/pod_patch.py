"""A strategic merge patch of a broker's pod: how it is applied, and what it must not change. Pure.

Maps are merged field by field; lists of objects with a key (containers by name, mounts by path) are
merged object by object; other lists are replaced. `null` removes a field, `$patch: delete` a field
or an object of a list, and `$patch: replace` takes the patch's content instead of what was there.
Source: Kubernetes' strategic merge patch, with the merge keys of PodSpec and Container.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from fairlead_operator.resources.broker_pool import OWN_ENVIRONMENT
from fairlead_operator.resources.storage import LOG_DIRECTORIES_VARIABLE
from fairlead_operator.specs.names import (
    CONFIG_FOLDER,
    SECRET_FOLDER,
    data_folder,
    data_volume,
)

Manifest = dict[str, Any]
BROKER_CONTAINER: Final = "broker"
CONFIG_VOLUME: Final = "config"
SESSION_VOLUME: Final = "session"
POD_LISTS: Final = {
    "containers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumes": "name",
}
CONTAINER_LISTS: Final = {
    "env": "name",
    "ports": "containerPort",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
LISTS_WITHIN: Final = {"containers": CONTAINER_LISTS, "initContainers": CONTAINER_LISTS}
"""These names are lists only there: a label may be called env."""
OWN_POD_FIELDS: Final = ("hostname", "restartPolicy", "subdomain")
OWN_FIELDS: Final = ("args", "command", "image", "name")
"""Fields of the broker's container that a patch may not change; its image is the cluster's."""
DIRECTIVE: Final = "$patch"
OWN_MOUNTS: Final = {
    CONFIG_FOLDER: CONFIG_VOLUME,
    SECRET_FOLDER: SESSION_VOLUME,
}


class PodPatchError(ValueError):
    """A patch has a part that cannot be merged; the text names it."""


def merge_pod_spec(spec: Mapping[str, Any], patch: Mapping[str, Any]) -> Manifest:
    """Return a pod's spec with a patch merged into it; PodPatchError if a part cannot be."""
    return _merge(spec, patch, "podSpec", POD_LISTS)


def _merge(base: object, patch: Mapping[str, Any], path: str, lists: Mapping[str, str]) -> Manifest:
    directive = patch.get(DIRECTIVE)
    if directive not in (None, "merge", "replace"):
        raise PodPatchError(f"{path}.$patch: expected merge, replace or delete, got {directive!r}")
    is_kept = isinstance(base, Mapping) and directive != "replace"
    result: Manifest = dict(base) if isinstance(base, Mapping) and is_kept else {}
    for name, value in patch.items():
        place = f"{path}.{name}"
        if name == DIRECTIVE:
            continue
        if name.startswith("$"):
            raise PodPatchError(f"{place}: only $patch is known of the directives")
        if value is None or _is_deletion(value):
            result.pop(name, None)
        elif name in lists:
            within = LISTS_WITHIN.get(name, {})
            result[name] = _merge_list(result.get(name) or (), value, lists[name], place, within)
        elif isinstance(value, Mapping):
            result[name] = _merge(result.get(name), value, place, {})
        else:
            result[name] = value
    return result


def _merge_list(
    base: Sequence[Manifest], patch: object, key: str, path: str, lists: Mapping[str, str]
) -> list[Manifest]:
    if not isinstance(patch, Sequence) or isinstance(patch, str):
        raise PodPatchError(f"{path}: expected a list")
    is_replaced = any(each == {DIRECTIVE: "replace"} for each in patch)
    result = [] if is_replaced else [dict(each) for each in base]
    for number, each in enumerate(patch):
        if each == {DIRECTIVE: "replace"}:
            continue
        if not isinstance(each, Mapping) or key not in each:
            raise PodPatchError(f"{path}[{number}]: an object of this list needs {key}")
        if not isinstance(each[key], str | int):
            raise PodPatchError(f"{path}[{number}].{key}: expected a text or a number")
        place = next((at for at, other in enumerate(result) if other.get(key) == each[key]), None)
        if _is_deletion(each):
            result = [other for other in result if other.get(key) != each[key]]
        elif place is None:
            result.append(_merge({}, each, f"{path}[{number}]", lists))
        else:
            result[place] = _merge(result[place], each, f"{path}[{number}]", lists)
    return result


def _is_deletion(value: object) -> bool:
    return isinstance(value, Mapping) and value.get(DIRECTIVE) == "delete"


def pod_patch_problem(patch: Mapping[str, Any], data: Collection[int] = (0,)) -> str:
    """Return what a patch must not do to a broker's pod; empty if it may be applied.

    It may add to the pod and change how it runs, but not how the broker is started. `data` are the
    ids of the pool's volumes.
    """
    own_container = _own_container(data)
    own_volumes = [{"name": CONFIG_VOLUME}, {"name": SESSION_VOLUME}]
    try:
        merged = merge_pod_spec({"containers": [own_container], "volumes": own_volumes}, patch)
    except PodPatchError as error:
        return str(error)
    for name in OWN_POD_FIELDS:
        if name in merged:
            return f"podSpec.{name}: the operator and the StatefulSet decide it: leave it out"
    broker = merged.get("containers", [{}])[0] if merged.get("containers") else {}
    for name in OWN_FIELDS:
        if broker.get(name) != own_container.get(name):
            return f"podSpec.containers[{BROKER_CONTAINER}].{name}: the operator sets it"
    for field, key in (("env", "name"), ("volumeMounts", "mountPath")):
        present = {each[key]: each for each in broker.get(field) or ()}
        for own in own_container[field]:
            if present.get(own[key]) != own:
                place = f"podSpec.containers[{BROKER_CONTAINER}].{field}"
                return f"{place}: {own[key]} is the operator's own: leave it out"
    volumes = {each["name"]: each for each in merged.get("volumes") or ()}
    changed = [each["name"] for each in own_volumes if volumes.get(each["name"]) != each]
    changed += [name for name in map(data_volume, data) if name in volumes]
    if changed:
        return f"podSpec.volumes: {changed[0]} is the operator's own: choose another name"
    return ""


def _own_container(data: Collection[int]) -> Manifest:
    """Return the parts of the broker's container that no patch may change, without values."""
    variables = [*OWN_ENVIRONMENT, *([LOG_DIRECTORIES_VARIABLE] if len(data) > 1 else [])]
    mounts = {data_folder(each): data_volume(each) for each in data} | OWN_MOUNTS
    return {
        "name": BROKER_CONTAINER,
        "image": "",
        "command": [],
        "env": [{"name": name} for name in variables],
        "volumeMounts": [{"mountPath": folder, "name": name} for folder, name in mounts.items()],
    }
