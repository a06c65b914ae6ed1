"""The small text files of a data directory, encoded and decoded; no I/O.

Checkpoints: line 1 the version `0`, line 2 the number of entries, then one entry a line. A file
that a power loss or a person has damaged is refused as a whole with `CorruptFileError`.

A file of a higher version is not damaged: a newer release has written it, and the broker must not
derive it again (R30). The broker does not start (`NewerFormatError`). A release that changes any
file of a data directory also raises the version of `meta.properties`, which is read first and names
the release. It does so only once a feature level excludes a downgrade to an older release.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from fairlead_model.ids import TopicId, parse_topic_id, topic_id_text
from fairlead_model.release import RELEASE

CHECKPOINT_VERSION: Final = "0"
PARTITION_METADATA_VERSION: Final = "0"
META_PROPERTIES_VERSION: Final = "1"
RELEASE_PROPERTY: Final = "fairlead.release"
"""In `meta.properties`: the release that has written it, and that can read the directory."""
_VERSION_DIGITS_MAX: Final = 9
TopicPartition: TypeAlias = tuple[str, int]


class NewerFormatError(Exception):
    """A newer release has written a file; the text says which release reads it."""


class CorruptFileError(ValueError):
    """A small file does not have the content that its name promises."""


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return a checkpoint of `topic partition offset` lines."""
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return _encode_checkpoint(lines)


def decode_offset_checkpoint(content: bytes) -> dict[TopicPartition, int]:
    """Return offsets by partition."""
    offsets = {}
    for line in _checkpoint_lines(content):
        fields = line.split(" ")
        if len(fields) != 3:
            raise CorruptFileError(f"not `topic partition offset`: {line!r}")
        offsets[fields[0], _number(fields[1])] = _number(fields[2])
    return offsets


def decode_offset(content: bytes) -> int:
    """Return the only offset in a file."""
    return _number(_text(content).strip())


def encode_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return a checkpoint of `<leader epoch> <start offset>` lines."""
    return _encode_checkpoint([f"{epoch} {start}" for epoch, start in entries])


def decode_epoch_checkpoint(content: bytes) -> list[tuple[int, int]]:
    """Return (leader epoch, start offset) in rising order of both."""
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
    """Return `partition.metadata`: the id of the topic that the directory belongs to."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n".encode()


def decode_partition_metadata(content: bytes) -> TopicId:
    """Return the topic id."""
    fields = _properties(content, ":")
    _require_version("partition.metadata", fields.get("version", ""), PARTITION_METADATA_VERSION)
    if fields.get("version") != PARTITION_METADATA_VERSION or "topic_id" not in fields:
        raise CorruptFileError(f"not version 0 with a topic_id: {content[:80]!r}")
    try:
        return parse_topic_id(fields["topic_id"])
    except ValueError as error:
        raise CorruptFileError(str(error)) from error


def encode_meta_properties(*, cluster_id: str, node_id: int, directory_id: str) -> bytes:
    """Return `meta.properties`: the broker and the cluster that the directory belongs to."""
    return (
        f"version={META_PROPERTIES_VERSION}\ncluster.id={cluster_id}\nnode.id={node_id}\n"
        f"directory.id={directory_id}\n{RELEASE_PROPERTY}={RELEASE}\n"
    ).encode()


def decode_meta_properties(content: bytes) -> dict[str, str]:
    """Return the properties, after checking `version=1`."""
    fields = _properties(content, "=")
    _require_version(
        "meta.properties",
        fields.get("version", ""),
        META_PROPERTIES_VERSION,
        written_by=fields.get(RELEASE_PROPERTY, ""),
    )
    if fields.get("version") != META_PROPERTIES_VERSION:
        raise CorruptFileError(f"version {fields.get('version')!r} instead of '1'")
    return fields


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Return `.kafka_cleanshutdown`: the start of the broker that ended with a full flush."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_json_object(content: bytes) -> dict[str, object]:
    """Return the JSON object in a file."""
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
    _require_version("a checkpoint", lines[0], CHECKPOINT_VERSION)
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != CHECKPOINT_VERSION:
        raise CorruptFileError(f"no checkpoint of version 0: {content[:80]!r}")
    if _number(lines[1]) != len(lines) - 2:
        raise CorruptFileError(f"{lines[1]} entries promised, {len(lines) - 2} there")
    return lines[2:]


def _require_version(what: str, version: str, known: str, *, written_by: str = "") -> None:
    """Raise NewerFormatError for a version above the known one; the caller checks all others."""
    is_number = version.isascii() and version.isdigit() and len(version) <= _VERSION_DIGITS_MAX
    if not is_number or int(version) <= int(known):
        return
    reader = f"release {written_by}" if written_by else "the release that has written it"
    raise NewerFormatError(
        f"{what} has format version {version}, and this release, {RELEASE}, reads {known}: "
        f"run {reader}, or a later one"
    )


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
