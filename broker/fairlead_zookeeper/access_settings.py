"""The ZooKeeper settings of a broker or a controller. Pure."""

from dataclasses import dataclass, replace

from fairlead_model.configs.config_values import BrokerValues, ConfigError
from fairlead_model.session.session_protocol import secret_mode_problem
from fairlead_zookeeper.address import (
    ZooKeeperAccess,
    ZooKeeperAddressError,
    parse_connect_string,
)

CONNECT = "zookeeper.connect"
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
SET_ACL = "zookeeper.set.acl"
DIGEST_FILE = "fairlead.zookeeper.digest.file"


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """An ensemble, and the file with the ZooKeeper user of this process."""

    access: ZooKeeperAccess
    """The access, still without the user."""
    digest_file: str | None

    def with_digest(self, content: bytes, mode: int) -> ZooKeeperAccess:
        """Return the access with the user from the file's content and mode; ConfigError."""
        problem = secret_mode_problem(mode)
        digest = content.decode(errors="replace").strip()
        if not problem and not all(digest.partition(":")):
            problem = "it does not hold USER:PASSWORD"
        if problem:
            raise ConfigError(DIGEST_FILE, f"{DIGEST_FILE}={self.digest_file}: {problem}")
        return replace(self.access, digest=digest)


def read_access_settings(values: BrokerValues) -> AccessSettings | None:
    """Return the ZooKeeper access of the settings; None if they have none; ConfigError."""
    connect = values.value(CONNECT)
    if not connect:
        return None
    timeout_ms = values.value(SESSION_TIMEOUT)
    digest_file = values.value(DIGEST_FILE)
    sets_acl = values.value(SET_ACL) is True
    if sets_acl and not digest_file:
        raise ConfigError(SET_ACL, f"{SET_ACL}: set {DIGEST_FILE}, too: ACLs need a user")
    try:
        access = parse_connect_string(str(connect), session_timeout_ms=int(str(timeout_ms)))
    except ZooKeeperAddressError as error:
        raise ConfigError(CONNECT, f"{CONNECT}: {error}") from error
    return AccessSettings(
        replace(access, sets_acl=sets_acl), str(digest_file) if digest_file else None
    )
