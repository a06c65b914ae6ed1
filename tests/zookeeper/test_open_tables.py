"""Tables that were made without ACLs, in a cluster that has them now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.security import make_acl
from waiting import wait_until
from zookeeper_cluster import ZooKeeperCluster

from fairlead_cli.client.wire_call import call_broker
from fairlead_wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)

if TYPE_CHECKING:
    from pathlib import Path

    from zookeeper_ensemble import ZooKeeperEnsemble

DIGEST = "fairlead:secret"
TABLE = "/fairlead/tables/security-00000"


def make_user(cluster: ZooKeeperCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wish = UserScramCredentialUpsertion(name, kind, b"a password")
    (made,) = admin.alter_user_scram_credentials([wish], request_timeout=20).values()
    made.result()


def set_quota(cluster: ZooKeeperCluster) -> None:
    """Have the first security table made: quotas are kept there, too."""
    host, _, port = cluster.bootstrap.partition(":")
    entry = RequestEntryData(
        [RequestEntityData("user", "alice")], [OpData("consumer_byte_rate", 1e6)]
    )
    answer = call_broker(host, int(port), AlterClientQuotasRequest([entry]), 1)
    assert [each.error_code for each in answer.entries] == [0]


def test_no_user_is_made_while_everybody_may_read_the_table_that_is_there(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with ZooKeeperCluster(
        tmp_path, zookeeper, zookeeper_chroot, candidates=1, brokers=1
    ) as without:
        set_quota(without)
    with (
        ZooKeeperCluster(
            tmp_path,
            zookeeper,
            zookeeper_chroot,
            candidates=1,
            brokers=1,
            settings={"digest": DIGEST},
        ) as cluster,
        zookeeper.client(zookeeper_chroot) as owner,
    ):
        assert owner.get(TABLE)[0], "everybody may read it"
        with pytest.raises(KafkaException) as caught:
            make_user(cluster, "alice")
        error = caught.value.args[0]
        assert error.name() == "POLICY_VIOLATION"
        assert f"{zookeeper_chroot}{TABLE}" in error.str()
        assert b"scram/" not in owner.get(TABLE)[0]
        owner.add_auth("digest", DIGEST)
        owner.set_acls(TABLE, [make_acl("auth", "", all=True)])
        candidate = cluster.active()
        before = candidate.epoch
        candidate.kill()
        candidate.start()
        wait_until(lambda: candidate.epoch > before)
        make_user(cluster, "alice")
