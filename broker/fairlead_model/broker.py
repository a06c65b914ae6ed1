"""What the cluster knows of a broker."""

from dataclasses import dataclass
from typing import Final

from fairlead_model.features import SUPPORTED_FEATURES, FeatureRange
from fairlead_model.host_address import join_address
from fairlead_model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId

REST_ENDPOINT: Final = "REST"
"""Name of the endpoint at which a broker serves its HTTP API, which no Kafka client is told."""
REST_TLS_ENDPOINT: Final = "REST_TLS"
"""The same over TLS."""
REST_ENDPOINTS: Final = (REST_ENDPOINT, REST_TLS_ENDPOINT)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one listener of a broker can be reached (its advertised address)."""

    name: str
    host: str
    port: int
    is_internal: bool = False
    """True for the listener that only other brokers and the controller use."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One broker as it last registered. `fenced` and the shutdown flag are the controller's."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    endpoints: tuple[Endpoint, ...] = ()
    host_name: str = ""
    """The machine: the first failure domain of placement."""
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directory_id: str = ""
    """Incarnation of the data disk; another one means that the data is gone. With several log
    directories it stands for all of them: it is another one as soon as one of them is."""
    start_id: str = ""
    """Chosen anew by each process start; a registration repeated with it keeps its epoch."""
    boot_id: str = ""
    pod_uid: str = ""
    is_clean: bool = False
    """From a broker: its disk holds the marker of a clean stop. In an image: the controller's
    verdict that this start came back with everything that the one before had acknowledged."""
    previous_broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    """Epoch that the disk remembers: the marker's, else that of the last start that registered."""
    is_recovered_whole: bool = False
    """Without a marker: recovery found at most a torn last batch in each log, and `syncfs` on a
    fresh descriptor reported no write-back error."""
    min_insync_replicas: int = 1
    """What its settings say (the static default): the controller keeps each partition's value."""
    features: tuple[FeatureRange, ...] = SUPPORTED_FEATURES
    """Levels that it supports. Of a registration that says nothing of them: `UNSAID_FEATURES`."""
    directory_ids: tuple[str, ...] = ()
    """Incarnations of its log directories, where there are several; empty: `directory_id` only."""
    is_cordoned: bool = False
    """True if none of its log directories takes new replicas (`cordoned.log.dirs`, KIP-1066)."""

    @property
    def incarnations(self) -> tuple[str, ...]:
        """Incarnation of each of its log directories."""
        return self.directory_ids or ((self.directory_id,) if self.directory_id else ())

    @property
    def client_endpoints(self) -> tuple[Endpoint, ...]:
        """Where Kafka clients reach it."""
        return tuple(
            each
            for each in self.endpoints
            if not each.is_internal and each.name not in REST_ENDPOINTS
        )

    @property
    def rest_url(self) -> str | None:
        """Where HTTP clients reach it; None where it serves no HTTP API."""
        endpoint = self.endpoint(REST_TLS_ENDPOINT) or self.endpoint(REST_ENDPOINT)
        if endpoint is None:
            return None
        scheme = "https" if endpoint.name == REST_TLS_ENDPOINT else "http"
        return f"{scheme}://{join_address(endpoint.host, endpoint.port)}"

    @property
    def may_lead(self) -> bool:
        """True if leaders may be elected on this broker."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """Find the advertised address of a listener."""
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None
