"""Trees of znodes of Kafka 0.8 to 3.x, from the descriptions of the formats.

They have each release's own fields, without the use of Fairlead's readers: bytes by path.
`EPHEMERAL` are znodes that end with their owner. All trees have the same two topics and one group,
so all must give the same result.
"""

import json
from collections.abc import Mapping
from typing import Any

RELEASES = ("0.8.0", "0.8.2", "0.9.0", "0.10.2", "1.1", "2.3", "2.4", "2.8", "3.9")
TOPIC_ID = "tPyCFwKZQvy9LZ3XTXSlNg"
CONSUMER = "billing_host-7.example-1400000000000-1a2b3c4d"

# The expected result: name, partitions, replication factor, settings.
ORDERS = ("orders", 3, 2)
CLICKS = ("clicks_EU.raw", 1, 1)
ORDERS_CONFIG = {"retention.ms": "86400000", "segment.bytes": "1048576"}
POSITIONS = {("orders", 0): 4, ("orders", 1): 0, ("orders", 2): 7}


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def broker(release: str, broker_id: int) -> bytes:
    """/brokers/ids/<id>: versions 1 to 5 of the registration."""
    at = number(release)
    port = 9092 + broker_id
    value: dict[str, Any] = {
        "jmx_port": -1,
        "timestamp": "1400000000000",
        "host": "h",
        "version": 1,
    }
    value["port"] = port
    if at >= (0, 9):
        value |= {"version": 2, "endpoints": [f"PLAINTEXT://h:{port}"]}
    if at >= (0, 10):
        value |= {"version": 3, "rack": "a"}
    if at >= (0, 10, 2):
        value |= {"version": 4, "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}
    if at >= (2, 7):
        value |= {"version": 5, "features": {}}
    return text(value)


def assignment(release: str, partitions: Mapping[str, list[int]]) -> bytes:
    """/brokers/topics/<topic>: versions 1 to 3."""
    if release == "0.8.0":
        # Built from texts, with keys in no order.
        inner = ", ".join(f'"{p}":[{", ".join(map(str, ids))}]' for p, ids in partitions.items())
        return f'{{ "version":1, "partitions":{{ {inner} }} }}'.encode()
    value: dict[str, Any] = {"version": 1, "partitions": dict(partitions)}
    if number(release) >= (2, 4):
        value |= {"version": 2, "adding_replicas": {}, "removing_replicas": {}}
    if number(release) >= (2, 8):
        value |= {"version": 3, "topic_id": TOPIC_ID}
    return text(value)


def partition_state(release: str, leader: int, isr: list[int]) -> bytes:
    if release == "0.8.0":
        inner = ",".join(map(str, isr))
        return (
            f'{{ "controller_epoch":1, "isr":[ {inner} ], "leader":{leader}, '
            '"leader_epoch":0, "version":1 }'
        ).encode()
    return text(
        {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": 0, "isr": isr}
    )


def build_tree(release: str) -> dict[str, bytes]:
    """Return everything below a cluster's chroot except ephemeral znodes."""
    at = number(release)
    orders = {"2": [1, 2], "0": [1, 2], "1": [2, 1]}
    tree = {
        "/consumers": b"",
        "/brokers/ids": b"",
        "/brokers/topics/orders": assignment(release, orders),
        "/brokers/topics/clicks_EU.raw": assignment(release, {"0": [2]}),
        "/brokers/topics/clicks_EU.raw/partitions/0/state": partition_state(release, 2, [2]),
        "/controller_epoch": b"1",
    }
    for name, ids in orders.items():
        path = f"/brokers/topics/orders/partitions/{name}/state"
        tree[path] = partition_state(release, ids[0], ids)
    if at >= (0, 8, 1):
        tree["/admin/delete_topics"] = b""
        tree["/config/changes"] = b""
        tree["/config/topics/orders"] = text({"version": 1, "config": ORDERS_CONFIG})
        tree["/config/topics/clicks_EU.raw"] = text({"version": 1, "config": {}})
    if at >= (0, 8, 2):
        tree["/brokers/topics/__consumer_offsets"] = assignment(release, {"0": [1]})
    if at >= (0, 9):
        tree |= {"/isr_change_notification": b"", "/config/clients": b"", "/kafka-acl": b""}
    if at >= (0, 10, 1):
        tree["/cluster/id"] = text({"version": "1", "id": "wQ7Yx8vQRGqkKbLq2v1S8g"})
        tree["/config/users"] = b""
    if at >= (0, 11):
        tree["/latest_producer_id_block"] = text(
            {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"}
        )
    if at >= (2, 7):
        tree["/feature"] = text({"version": 1, "status": 1, "features": {}})
    for (topic, partition), offset in POSITIONS.items():
        tree[f"/consumers/billing/offsets/{topic}/{partition}"] = str(offset).encode()
    return tree


def build_ephemerals(release: str) -> dict[str, bytes]:
    """Return the znodes that exist only while brokers and consumers run."""
    version = 2 if number(release) >= (3, 4) else 1
    controller: dict[str, Any] = {"version": version, "brokerid": 1, "timestamp": "1400000000000"}
    if version == 2:
        controller["kraftControllerEpoch"] = -1
    ids = {f"/brokers/ids/{each}": broker(release, each) for each in (1, 2)}
    return {
        **ids,
        "/controller": text(controller),
        f"/consumers/billing/ids/{CONSUMER}": text(
            {
                "version": 1,
                "subscription": {"orders": 2},
                "pattern": "static",
                "timestamp": "1400000000000",
            }
        ),
        "/consumers/billing/owners/orders/0": f"{CONSUMER}-0".encode(),
        "/consumers/billing/owners/orders/1": f"{CONSUMER}-0".encode(),
        "/consumers/billing/owners/orders/2": f"{CONSUMER}-1".encode(),
    }


TREE_0_7 = {
    "/brokers/ids/0": b"10.0.0.7-1300000000000:10.0.0.7:9092",
    "/brokers/topics/orders/0": b"4",
    "/consumers/billing/offsets/orders/0-3": b"123456",
}
"""Kafka 0.7: brokers below the topic with their numbers of partitions."""
