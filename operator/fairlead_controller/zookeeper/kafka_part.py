"""Reads what a Kafka would have in a tree, for `tree_check`; what an ACL hides is named."""

import asyncio

from fairlead_controller.zookeeper.tree_check import Tree
from fairlead_zookeeper.client import AccessDeniedError, ZooKeeperClient
from fairlead_zookeeper.operations import Znode
from fairlead_zookeeper.znodes import BROKER_IDS, BROKER_TOPICS, CLUSTER_ID


async def read_kafka_part(client: ZooKeeperClient) -> Tree:
    """Return a tree with its cluster's id, its brokers and topics, and the hidden ones of these."""
    hidden: list[str] = []

    async def get(path: str) -> Znode | None:
        try:
            return await client.get(path)
        except AccessDeniedError:
            hidden.append(path)
            return None

    async def children(path: str) -> list[str]:
        try:
            return await client.children(path) or []
        except AccessDeniedError:
            hidden.append(path)
            return []

    cluster, ids, topics = await asyncio.gather(
        get(CLUSTER_ID), children(BROKER_IDS), children(BROKER_TOPICS)
    )
    brokers = await asyncio.gather(*(get(f"{BROKER_IDS}/{each}") for each in ids))
    found = zip(ids, brokers, strict=True)
    return Tree(
        cluster=None if cluster is None else cluster.data,
        brokers={name: znode.data for name, znode in found if znode is not None},
        has_topics=bool(topics),
        hidden=tuple(sorted(hidden)),
    )
