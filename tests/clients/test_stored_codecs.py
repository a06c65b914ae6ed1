"""Topics that say with which codec their batches are stored, whatever producers chose."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from client_adapters import Client, Rec, without_time

from fairlead_wire.compression import Codec
from fairlead_wire.records import iter_batches

STORED = {"uncompressed": Codec.NONE} | {each.name.lower(): each for each in Codec if each}


@pytest.mark.parametrize("name", STORED)
def test_every_client_reads_what_the_broker_has_packed(
    name: str,
    client: Client,
    get_client: Callable[[str], Client],
    make_topic: Callable[..., str],
    records: Sequence[Rec],
    log_directory: Path,
) -> None:
    topic = make_topic(f"stored-{name}", compression_type=name)
    confluent = get_client("confluent-kafka")
    confluent.produce(topic, records, codec="none")
    confluent.produce(topic, records, codec="snappy", is_idempotent=True)
    client.produce(topic, records, codec="gzip", is_idempotent=True)
    found = client.consume(topic, 3 * len(records))
    assert without_time(found) == without_time([*records] * 3)
    data = b"".join(each.read_bytes() for each in (log_directory / f"{topic}-0").glob("*.log"))
    assert {header.codec for _, header in iter_batches(data)} == {STORED[name]}


def test_a_topic_changes_its_codec(
    bootstrap: str,
    get_client: Callable[[str], Client],
    make_topic: Callable[..., str],
    records: Sequence[Rec],
    log_directory: Path,
) -> None:
    """What was stored before stays as it is."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    topic = make_topic("stored-later")
    client = get_client("confluent-kafka")
    client.produce(topic, records, codec="lz4")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    entry = ConfigEntry("compression.type", "zstd", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    file = log_directory / f"{topic}-0" / f"{0:020}.log"
    packed: list[Codec] = []
    count = len(records)
    while Codec.ZSTD not in packed:
        client.produce(topic, records, codec="lz4")
        count += len(records)
        packed = [Codec(header.codec) for _, header in iter_batches(file.read_bytes())]
    assert packed == sorted(packed), "first as the producer chose, then as the topic says"
    assert without_time(client.consume(topic, count)) == without_time(
        [*records] * (count // len(records))
    )
