"""Requests made up from the OpenAPI document, right ones and wrong ones, by schemathesis."""

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from proofs import REST_REQUESTS
from rest_client import RestClient

# A wrong record is answered 200 with a report of its own: that is what the API promises. Whether
# a topic can be made, grown or configured so is decided by more than the document can say, and so
# it is with what stands in base64, with ids that must differ, with patterns of RE2, and with
# offsets that a log has or has not. Nobody is asked yet who he is.
CONFIGURATION = """
[parameters]
"path.cluster_id" = "{cluster_id}"
"path.topic_name" = "{topic}"
"path.name" = "retention.ms"
"path.consumer_group_id" = "g"
"path.instance_name" = "{instance}"

[checks]
ignored_auth.enabled = false

[[operations]]
include-operation-id = ["produceRecords", "produceBatch"]
checks.negative_data_rejection.enabled = false

[[operations]]
include-operation-id = "produceBatch"
checks.positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = ["createTopic", "growTopic", "alterTopicConfigs", "setTopicConfig"]
checks.positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = ["produceV2", "produceToPartitionV2"]
checks.positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = "readRecords"
checks.positive_data_acceptance.enabled = false
parameters."query.timeout" = 10

[[operations]]
include-operation-id = ["createConsumerInstance", "subscribe", "commitOffsets"]
checks.positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = "readConsumerRecords"
parameters."query.timeout" = 10

[[operations]]
include-operation-id = "deleteConsumerInstance"
parameters."path.instance_name" = "another"

[[operations]]
include-operation-id = "deleteTopic"
parameters."path.topic_name" = "{other_topic}"
"""
TIMEOUT_S = 3600


@pytest.mark.proof
@pytest.mark.timeout(TIMEOUT_S)
def test_what_the_document_says_is_what_is_done(rest_cluster: Any, tmp_path: Path) -> None:
    client = RestClient(rest_cluster.brokers[0].rest_url)
    names = [f"t-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    admin = AdminClient({"bootstrap.servers": rest_cluster.bootstrap})
    for created in admin.create_topics([NewTopic(name, 3, 3) for name in names]).values():
        created.result(60)
    made = client.post("/consumers/g", {}, content_type="application/vnd.kafka.v2+json").json
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(
        CONFIGURATION.format(
            cluster_id=client.v3.rpartition("/")[2],
            topic=names[0],
            other_topic=names[1],
            instance=made["instance_id"],
        )
    )
    ran = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "st"), "--config-file", str(configuration)),
            *("run", f"{client.url}/openapi.json", "-n", str(REST_REQUESTS.chosen())),
            *("--phases", "examples,coverage,fuzzing", "--seed", "1"),
            *("--continue-on-failure", "--request-timeout", "60", "--warnings", "off"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-20_000:]
    assert "Tested: 55" in ran.stdout, ran.stdout[-3_000:]
