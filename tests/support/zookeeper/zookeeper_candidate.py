"""Runs a candidate on ZooKeeper with the settings of a JSON document: a child of tests."""

import asyncio
import json
import logging
import sys
from pathlib import Path

from fairlead_controller.zookeeper.process import run_candidate
from fairlead_controller.zookeeper.settings import CandidateSettings
from fairlead_zookeeper.address import parse_connect_string


def main(text: str) -> int:
    given = json.loads(text)
    logging.basicConfig(
        level="INFO",
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    access = parse_connect_string(
        given["connect"],
        session_timeout_ms=given["session_timeout_ms"],
        digest=given.get("digest"),
        sets_acl=bool(given.get("digest")),
    )
    settings = CandidateSettings(
        access=access,
        node_id=given["node_id"],
        host="127.0.0.1",
        advertised_host="127.0.0.1",
        session_port=given["session_port"],
        http_host="127.0.0.1",
        http_port=given["http_port"],
        secret=given["secret"].encode(),
        data=Path(given["data"]),
    )
    return asyncio.run(run_candidate(settings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
