"""Topic manifests of `fairlead up -f`, checked as a whole before any process starts.

The controller reads the same files again and applies them. Here all errors are collected, with the
file and line of their documents, so that a typing error costs a second and no restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from fairlead_cli.errors import InputError
from fairlead_cli.strict_yaml import StrictLoader
from fairlead_model.resources.topic_manifest import (
    TOPIC_KIND,
    ManifestError,
    TopicSpec,
    is_topic_manifest,
    parse_topic_manifest,
    parse_topic_manifests,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Kinds that only Kubernetes uses: `up` ignores them.
CLUSTER_KINDS = frozenset(
    {
        "LogCluster",
        "BrokerPool",
        "User",
        "ConsumerGroup",
        "StreamJob",
        "FailoverDrill",
        "Rebalance",
    }
)


def check_manifests(paths: tuple[Path, ...]) -> list[TopicSpec]:
    """Return the topics in the files; InputError lists all errors."""
    problems: list[str] = []
    manifests: list[object] = []
    specs: list[TopicSpec] = []
    for path in paths:
        for line, document in read_documents(path):
            if not is_for_us(document):
                continue
            try:
                specs.append(parse_topic_manifest(document))
                manifests.append(document)
            except ManifestError as error:
                problems += [f"{path}:{line}: {problem}" for problem in error.problems]
    try:
        # Check all together: two valid manifests may declare the same topic.
        parse_topic_manifests(manifests)
    except ManifestError as error:
        problems += error.problems
    if problems:
        count = "a mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise InputError(f"the manifests have {count}; nothing was started", hint=lines)
    return specs


def is_for_us(document: object) -> bool:
    """Return False for an empty document and for kinds that only a Kubernetes cluster uses.

    Any other document is read as a Topic, so that a misspelt kind is an error and not ignored.
    """
    if document is None:
        return False
    if is_topic_manifest(document) or not isinstance(document, Mapping):
        return True
    version = str(document.get("apiVersion", ""))
    is_ours = version.startswith("fairlead.io/") or "apiVersion" not in document
    kind = document.get("kind", TOPIC_KIND)
    return is_ours and not (isinstance(kind, str) and kind in CLUSTER_KINDS)


def read_documents(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line, document) for every YAML document in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read the manifest {path}: {reason}") from error
    loader = StrictLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                return
            yield node.start_mark.line + 1, loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise InputError(f"{path}{place}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {error}") from error
    finally:
        loader.dispose()
