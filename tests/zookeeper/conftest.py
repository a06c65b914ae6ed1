"""The ensemble under an empty chroot of each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairlead_zookeeper.address import ZooKeeperAccess, parse_connect_string

if TYPE_CHECKING:
    from zookeeper_ensemble import ZooKeeperEnsemble


@pytest.fixture
def access(zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str) -> ZooKeeperAccess:
    """The ensemble under this test's chroot, with sessions as short as it grants."""
    return parse_connect_string(zookeeper.connect_string(zookeeper_chroot), session_timeout_ms=1500)
