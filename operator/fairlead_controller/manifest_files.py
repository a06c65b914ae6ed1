"""Topic manifests in files that a controller is given at its start."""

import json
from collections.abc import Iterable
from pathlib import Path

from fairlead_model.resources.topic_manifest import (
    ManifestError,
    TopicSpec,
    is_topic_manifest,
    parse_topic_manifests,
)


def read_manifests(paths: Iterable[Path]) -> tuple[TopicSpec, ...]:
    """Read the Topics of manifest files, skip other kinds; ManifestError or OSError."""
    manifests: list[object] = []
    for path in paths:
        manifests.extend(filter(is_topic_manifest, _read_documents(path)))
    return tuple(parse_topic_manifests(manifests))


def _read_documents(path: Path) -> list[object]:
    """Read all documents of a file; ManifestError names the file if it has something else."""
    try:
        content = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            return _load_yaml(content)
        loaded = json.loads(content)
    except ValueError as error:
        # Not UTF-8, no JSON or YAML, or a date that does not exist.
        raise ManifestError([f"{path}: {error}"]) from error
    return loaded if isinstance(loaded, list) else [loaded]


def _load_yaml(content: str) -> list[object]:
    import yaml

    try:
        return list(yaml.safe_load_all(content))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
