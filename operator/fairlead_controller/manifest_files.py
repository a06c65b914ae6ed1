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
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            loaded = json.loads(content)
            documents = loaded if isinstance(loaded, list) else [loaded]
        else:
            import yaml

            try:
                documents = list(yaml.safe_load_all(content))
            except yaml.YAMLError as error:
                raise ManifestError([f"{path}: {error}"]) from error
        manifests.extend(document for document in documents if is_topic_manifest(document))
    return tuple(parse_topic_manifests(manifests))
