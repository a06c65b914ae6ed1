"""The small text files of a data directory, encoded and decoded; no I/O.

Checkpoints: line 1 the version `0`, line 2 the number of entries, then one entry a line. What a
power cut or a person left behind is refused with `CorruptFileError`, never half believed.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from fairlead_model.ids import TopicId, parse_topic_id, topic_id_text

CHECKPOINT_VERSION: Final = "0"
TopicPartition: TypeAlias = tuple[str, int]


class CorruptFileError(ValueError):
    """A small file does not hold what its name promises."""


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """`topic partition offset` lines."""
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return _encode_checkpoint(lines)


def decode_offset_checkpoint(content: bytes) -> dict[TopicPartition, int]:
    """Offsets by partition."""
    offsets = {}
    for line in _checkpoint_lines(content):
        fields = line.split(" ")
        if len(fields) != 3:
            raise CorruptFileError(f"not `topic partition offset`: {line!r}")
        offsets[fields[0], _number(fields[1])] = _number(fields[2])
    return offsets


def encode_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    """`<leader epoch> <start offset>` lines."""
    return _encode_checkpoint([f"{epoch} {start}" for epoch, start in entries])


def decode_epoch_checkpoint(content: bytes) -> list[tuple[int, int]]:
    """(leader epoch, start offset) in rising order of both."""
    entries: list[tuple[int, int]] = []
    for line in _checkpoint_lines(content):
        fields = line.split(" ")
        if len(fields) != 2:
            raise CorruptFileError(f"not `epoch offset`: {line!r}")
        epoch, start = _number(fields[0]), _number(fields[1])
        if entries and (epoch <= entries[-1][0] or start < entries[-1][1]):
            raise CorruptFileError(f"epoch {epoch} from {start} after {entries[-1]}")
        entries.append((epoch, start))
    return entries


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """`partition.metadata`: which topic the directory belongs to, whatever its name says."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n".encode()


def decode_partition_metadata(content: bytes) -> TopicId:
    """The topic id."""
    fields = _properties(content, ":")
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptFileError(f"not version 0 with a topic_id: {content[:80]!r}")
    try:
        return parse_topic_id(fields["topic_id"])
    except ValueError as error:
        raise CorruptFileError(str(error)) from error


def encode_meta_properties(*, cluster_id: str, node_id: int, directory_id: str) -> bytes:
    """`meta.properties`: whose directory this is."""
    return (
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={directory_id}\n"
    ).encode()


def decode_meta_properties(content: bytes) -> dict[str, str]:
    """The properties, of which `version=1` is checked."""
    fields = _properties(content, "=")
    if fields.get("version") != "1":
        raise CorruptFileError(f"version {fields.get('version')!r} instead of '1'")
    return fields


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """`.kafka_cleanshutdown`: which start of the broker ended by flushing everything."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_json_object(content: bytes) -> dict[str, object]:
    """A file that holds one JSON object."""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise CorruptFileError(f"not JSON: {content[:80]!r}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"not a JSON object: {content[:80]!r}")
    return value


def _encode_checkpoint(lines: list[str]) -> bytes:
    return "\n".join([CHECKPOINT_VERSION, str(len(lines)), *lines, ""]).encode()


def _checkpoint_lines(content: bytes) -> list[str]:
    lines = _text(content).split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != CHECKPOINT_VERSION:
        raise CorruptFileError(f"no checkpoint of version 0: {content[:80]!r}")
    if _number(lines[1]) != len(lines) - 2:
        raise CorruptFileError(f"{lines[1]} entries promised, {len(lines) - 2} there")
    return lines[2:]


def _properties(content: bytes, separator: str) -> dict[str, str]:
    fields = {}
    for line in _text(content).splitlines():
        if line.strip() and not line.startswith("#"):
            name, found, value = line.partition(separator)
            if not found:
                raise CorruptFileError(f"no {separator!r} in {line[:80]!r}")
            fields[name.strip()] = value.strip()
    return fields


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"not UTF-8: {content[:80]!r}") from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise CorruptFileError(f"not a number: {text[:40]!r}")
    return int(text)
