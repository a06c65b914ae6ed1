"""`python -m fairlead_controller.kubernetes.ask`: ask the controller of this pod, and print JSON.

For people who may run a command in the operator's pod, such as
`kubectl exec fairlead-0 -- python -m fairlead_controller.kubernetes.ask explain NS/CLUSTER T 0`.
Exit codes: 0 answered, 1 no answer or the controller refuses, 2 wrong usage.
"""

import argparse
import http.client
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from fairlead_controller.kubernetes.settings import DEFAULT_SOCKET

TIMEOUT_S: Final = 10.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("controller", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def build_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_controller.kubernetes.ask",
        description="Ask the controller in this pod; only the active one knows of clusters.",
    )
    parser.add_argument(
        "--socket", default=environment.get("FAIRLEAD_CONTROLLER_SOCKET") or DEFAULT_SOCKET
    )
    questions = parser.add_subparsers(dest="question", required=True)
    questions.add_parser("state", help="role, and the clusters with their problems")
    for name, text, arguments in (
        ("status", "brokers and topics of a cluster", ()),
        ("topic", "leader, in-sync and eligible replicas of each partition", ("topic",)),
        ("explain", "why a partition has its leader, or none", ("topic", "partition")),
        ("decisions", "what was decided lately, and why", ()),
    ):
        question = questions.add_parser(name, help=text)
        question.add_argument("cluster", type=_cluster_path, metavar="NAMESPACE/CLUSTER")
        for argument in arguments:
            kind = int if argument == "partition" else str
            question.add_argument(argument, type=kind, metavar=argument.upper())
    return parser


def _cluster_path(text: str) -> str:
    namespace, separator, cluster = text.partition("/")
    if not separator or not namespace or not cluster or "/" in cluster:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/CLUSTER")
    return f"/v1/clusters/{quote(namespace, safe='')}/{quote(cluster, safe='')}"


def _path(question: argparse.Namespace) -> str:
    if question.question == "state":
        return "/v1/state"
    cluster: str = question.cluster
    match question.question:
        case "topic":
            return f"{cluster}/topics/{quote(question.topic, safe='')}"
        case "explain":
            return f"{cluster}/explain/{quote(question.topic, safe='')}/{question.partition}"
        case "decisions":
            return f"{cluster}/moves?since_ms=0"
    return f"{cluster}/status"


def _fetch(path: str, socket_path: str) -> tuple[int, Any]:
    connection = _UnixConnection(socket_path)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    finally:
        connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask one question; return the exit code."""
    question = build_parser(os.environ).parse_args(arguments)
    try:
        status, answer = _fetch(_path(question), question.socket)
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"nobody answers at {question.socket}: {error}", file=sys.stderr)
        return 1
    if status != http.client.OK:
        print(f"the controller refused: {answer.get('message', status)}", file=sys.stderr)
        return 1
    json.dump(answer, sys.stdout, indent=2, ensure_ascii=False)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
