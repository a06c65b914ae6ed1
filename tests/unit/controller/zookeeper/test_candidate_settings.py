"""What the settings of a candidate mean for the cluster that it controls."""

from pathlib import Path

import pytest

from fairlead_controller.zookeeper.settings import CandidateSettings
from fairlead_model.configs.controller_configs import ControllerConfigs
from fairlead_zookeeper.address import parse_connect_string


@pytest.mark.parametrize("sets_acl", [True, False])
def test_users_are_kept_only_where_not_everybody_may_read_them(sets_acl: bool) -> None:
    settings = CandidateSettings(
        access=parse_connect_string("zk:1/f", digest="user:password", sets_acl=sets_acl),
        node_id=10_001,
        host="",
        advertised_host="h",
        session_port=0,
        http_host="",
        http_port=0,
        secret=b"secret",
        data=Path("data"),
        configs=ControllerConfigs(topics_max=3, partitions_max=7),
    )
    limits = settings.limits
    assert (limits.topics, limits.partitions) == (3, 7)
    assert (not limits.why_no_credentials) is sets_acl
    if not sets_acl:
        assert "zookeeper.set.acl=true" in limits.why_no_credentials
        assert "fairlead.zookeeper.digest.file" in limits.why_no_credentials
