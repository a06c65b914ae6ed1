"""Volumes that are file systems of their own, on the nodes of a kind cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kubernetes_commands import CommandError, Kubectl, run
from needed_tools import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

DISK_MIB: Final = 400
DISKS_PER_NODE: Final = 2
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
# A file on the node's disk becomes a device with an ext4, like a cloud's volume. Loop devices
# belong to the machine: a node has names only for those that existed when it began.
MAKE: Final = f"""
for number in $(seq 0 63); do
  [ -e /dev/loop$number ] || mknod /dev/loop$number b 7 $number
done
for disk in $(seq {DISKS_PER_NODE}); do
  mkdir -p /mnt/fairlead-disk-$disk
  truncate -s {DISK_MIB}M /mnt/fairlead-disk-$disk.img
  mkfs.ext4 -q -m 0 /mnt/fairlead-disk-$disk.img
  mount -o loop /mnt/fairlead-disk-$disk.img /mnt/fairlead-disk-$disk
done
"""
REMOVE: Final = """
for disk in /mnt/fairlead-disk-*.img; do
  umount --lazy "${disk%.img}" || true
  rm -rf "$disk" "${disk%.img}"
done
"""


@contextmanager
def disks_of_nodes(kubectl: Kubectl, storage_class: str) -> Iterator[None]:
    """Create volumes of a StorageClass on every node that runs pods.

    Skipped if the nodes are no containers of this machine, except in CI.
    """
    nodes = [
        node["metadata"]["name"]
        for node in kubectl.items("nodes")
        if CONTROL_PLANE not in node["metadata"].get("labels", {})
    ]
    made: list[str] = []
    try:
        for node in nodes:
            try:
                run("docker", "inspect", "--type", "container", node)
            except (CommandError, FileNotFoundError):
                missing(f"node {node} is no container of this machine")
            made.append(node)
            run("docker", "exec", node, "sh", "-ec", MAKE)
        kubectl.apply(_class(storage_class), *_volumes(storage_class, nodes))
        yield
    finally:
        volumes = ("-l", f"fairlead.io/test={storage_class}", "--ignore-not-found")
        kubectl("delete", "persistentvolume", *volumes, "--timeout=120s")
        kubectl("delete", "storageclass", storage_class, "--ignore-not-found")
        for node in made:
            run("docker", "exec", node, "sh", "-ec", REMOVE)


def _class(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volumes(storage_class: str, nodes: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": f"{node}-disk-{number}",
                "labels": {"fairlead.io/test": storage_class},
            },
            "spec": {
                "capacity": {"storage": f"{DISK_MIB}Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": storage_class,
                "local": {"path": f"/mnt/fairlead-disk-{number}"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {
                                        "key": "kubernetes.io/hostname",
                                        "operator": "In",
                                        "values": [node],
                                    }
                                ]
                            }
                        ]
                    }
                },
            },
        }
        for node in nodes
        for number in range(1, DISKS_PER_NODE + 1)
    ]
