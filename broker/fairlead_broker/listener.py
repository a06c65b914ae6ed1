"""A place where clients or brokers connect, and the address that is told to them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listener:
    """`is_internal` marks the listener of brokers: only there is a `replica_id >= 0` believed."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    is_internal: bool = False
