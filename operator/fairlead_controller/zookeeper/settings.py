"""Settings of a candidate: a controller process that uses ZooKeeper."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.events import DeclareTopics
from fairlead_model.configs.controller_configs import ControllerConfigs
from fairlead_tls.followed_certificate import FollowedPeer
from fairlead_zookeeper.access_settings import DIGEST_FILE, SET_ACL
from fairlead_zookeeper.address import ZooKeeperAccess
from fairlead_zookeeper.znodes import CandidateRecord

_NO_CREDENTIALS: Final = (
    "everybody who reaches ZooKeeper could read what verifies passwords: "
    f"set {SET_ACL}=true and {DIGEST_FILE} of controllers and brokers"
)


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """Settings of one process; made from a file or a command line."""

    access: ZooKeeperAccess
    """The ensemble, with chroot, session timeout, digest and ACLs."""
    node_id: int
    """The controller's number: no broker and no other candidate has it."""
    host: str
    """Address to listen on, empty for all."""
    advertised_host: str
    """The address at which brokers and other candidates reach it."""
    session_port: int
    """For brokers and other candidates; 0 takes a free port."""
    http_host: str
    """Address of health, status and metrics, empty for all."""
    http_port: int
    """For health, status and metrics; 0 takes a free port."""
    secret: bytes = field(repr=False)
    """The cluster's secret, which brokers and all candidates share."""
    data: Path
    """A folder for `candidate.json`, which remembers the cluster and its highest epoch."""
    certificate: FollowedPeer | None = None
    """The certificate that it shows to brokers and other candidates; None: no TLS."""
    configs: ControllerConfigs = field(default_factory=ControllerConfigs)
    declared: DeclareTopics = field(default_factory=lambda: DeclareTopics((), 1, 1))
    """Topic manifests that apply while this process reigns."""
    expected_brokers: int | None = None
    """Place newly declared topics once so many brokers have registered."""

    @property
    def identity(self) -> str:
        """The candidate's name, the same after a restart."""
        return f"controller-{self.node_id}"

    @property
    def limits(self) -> ClusterLimits:
        """The limits of the cluster while this process reigns."""
        return ClusterLimits(
            self.configs.topics_max,
            self.configs.partitions_max,
            "" if self.access.sets_acl else _NO_CREDENTIALS,
        )

    def record(self, session_port: int, http_port: int) -> CandidateRecord:
        """Return the candidate's own entry, with the ports that it has."""
        return CandidateRecord(
            self.identity, self.node_id, self.advertised_host, session_port, http_port
        )
