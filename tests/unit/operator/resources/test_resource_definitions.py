import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead_model.resources.resource_shape import record_of
from fairlead_model.resources.stream_job import StreamJobSpec
from fairlead_model.resources.topic_manifest import parse_topic_manifest
from fairlead_operator.resources import (
    BrokerPoolSpec,
    ConsumerGroupSpec,
    FailoverDrillSpec,
    LogClusterSpec,
    RebalanceSpec,
    UserSpec,
)
from fairlead_operator.resources.__main__ import generated_files, main
from fairlead_operator.resources.crd import build_crd
from fairlead_operator.resources.definition import ResourceDefinition
from fairlead_operator.resources.definitions import DEFINITIONS
from fairlead_operator.resources.topic import TopicFields

ROOT = Path(__file__).resolve().parents[4]
READERS: dict[str, Any] = {
    "LogCluster": LogClusterSpec.from_manifest,
    "BrokerPool": BrokerPoolSpec.from_manifest,
    "Topic": parse_topic_manifest,
    "ConsumerGroup": ConsumerGroupSpec.from_manifest,
    "FailoverDrill": FailoverDrillSpec.from_manifest,
    "Rebalance": RebalanceSpec.from_manifest,
    "StreamJob": StreamJobSpec.from_manifest,
    "User": UserSpec.from_manifest,
}
BUILT_IN_SHORT_NAMES = re.compile(
    "cm|cs|csr|cj|crds?|deploy|ds|ep|ev|hpa|ing|ip|limits|netpol|no|ns|pc|pdb|po|psp|pv|pvc|quota|"
    "rc|rs|sa|sc|sts|svc|vac"
)


def by_kind(definition: ResourceDefinition) -> str:
    return definition.kind


def test_generated_files_are_what_the_declarations_say() -> None:
    for name, text in generated_files().items():
        assert (ROOT / name).read_text() == text, f"{name}: run make generate"


def test_check_names_stale_files_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--root", str(tmp_path), "--check"]) == 0
    stale = tmp_path / "crds" / "topics.fairlead.io.yaml"
    stale.write_text("other")
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert str(stale) in capsys.readouterr().err
    assert stale.read_text() == "other"


def schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from schemas(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("definition", DEFINITIONS, ids=by_kind)
def test_everything_is_described_and_has_a_bound(definition: ResourceDefinition) -> None:
    (version,) = build_crd(definition)["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        for path, schema in schemas(root["properties"].get(part, {}), part):
            kind = schema.get("type")
            if not path.endswith(("[]", "{}")):
                assert schema.get("description") or schema == {}, path
            assert kind != "array" or "maxItems" in schema, path
            assert kind != "string" or schema.keys() & {"maxLength", "enum"}, path
            assert kind != "integer" or {"minimum", "maximum"} <= schema.keys(), path
            is_open = kind == "object" and "properties" not in schema
            assert not is_open or "maxProperties" in schema, path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=by_kind)
def test_messages_of_rules_are_sentences_that_fit(definition: ResourceDefinition) -> None:
    rules: tuple[Any, ...] = (*record_of(definition.spec).rules, *definition.root_rules)
    for rule in rules:
        assert 20 < len(rule.message) < 250
        assert not rule.message.endswith(".")


@pytest.mark.parametrize("definition", DEFINITIONS, ids=by_kind)
def test_only_times_that_have_passed_are_shown_as_ages(definition: ResourceDefinition) -> None:
    # Of a time to come kubectl shows no age, but `<invalid>`.
    dates = {column.path for column in definition.columns if column.type == "date"}
    assert dates <= {".metadata.creationTimestamp", ".status.startedAt"}


def test_short_names_clash_with_nothing_built_in() -> None:
    names = [name for definition in DEFINITIONS for name in definition.short_names]
    assert len(names) == len(set(names))
    assert not any(BUILT_IN_SHORT_NAMES.fullmatch(name) for name in names)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=by_kind)
def test_examples_of_the_reference_can_be_read(definition: ResourceDefinition) -> None:
    manifest = yaml.safe_load(definition.example)
    assert manifest["kind"] == definition.kind
    if definition.kind in READERS:
        READERS[definition.kind](manifest)


@pytest.mark.parametrize("path", sorted((ROOT / "examples/kubernetes").glob("*.yaml")), ids=str)
def test_example_files_can_be_read(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["apiVersion"].startswith("fairlead.io/"):
            READERS[manifest["kind"]](manifest)


def test_topics_are_declared_with_the_fields_that_their_reader_knows() -> None:
    given = {member.name: None for member in record_of(TopicFields).members}
    manifest = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "orders"},
        "spec": given,
    }
    parse_topic_manifest(manifest)


def test_drills_are_read_without_what_only_the_operator_needs() -> None:
    code = (
        "import sys; import fairlead_model.resources.failover_drill; "
        "print(sorted({'kopf', 'pydantic', 'yaml', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
