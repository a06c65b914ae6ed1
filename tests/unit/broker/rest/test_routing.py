"""Paths and queries: decoded once, a segment at a time."""

from typing import Any

import pytest

from fairlead_broker.rest.operations import Parameter
from fairlead_broker.rest.problems import UNKNOWN_PARTITION, ProblemError
from fairlead_broker.rest.routing import Router, read_query
from fairlead_broker.rest.table import OPERATIONS

ROUTER = Router(OPERATIONS)
QUERY = (
    Parameter("timeout", {"type": "integer", "minimum": 0, "maximum": 1000}, "", 7),
    Parameter("flag", {"type": "boolean"}, ""),
    Parameter("kind", {"type": "string", "enum": ["a", "b"]}, ""),
)


@pytest.mark.parametrize(
    ("path", "name", "parameters"),
    [
        ("/topics/a%2Fb", "getTopicV2", {"topic_name": "a/b"}),
        ("/topics/..", "getTopicV2", {"topic_name": ".."}),
        ("/topics/{}", "getTopicV2", {"topic_name": "{}"}),
        ("/topics/%C3%A4", "getTopicV2", {"topic_name": "ä"}),
        ("/topics/a%252Fb", "getTopicV2", {"topic_name": "a%2Fb"}),
        ("/v3/clusters/c/topics/t/configs", "listTopicConfigs", {"cluster_id": "c",
                                                                 "topic_name": "t"}),
        ("/v3/clusters/c/topics/t/configs/x", "getTopicConfig", {"cluster_id": "c",
                                                                 "topic_name": "t", "name": "x"}),
    ],
)  # fmt: skip
def test_a_path_is_found(path: str, name: str, parameters: dict[str, Any]) -> None:
    match = ROUTER.find("GET", path)
    assert (match.operation.name, match.parameters) == (name, parameters)


def test_a_colon_may_be_encoded() -> None:
    for path in (
        "/v3/clusters/c/topics/t/configs:alter",
        "/v3/clusters/c/topics/t/configs%3Aalter",
    ):
        assert ROUTER.find("POST", path).operation.name == "alterTopicConfigs"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/topics/", 404),
        ("GET", "/topics/a/", 404),
        ("GET", "*", 404),
        ("POST", "/consumers", 404),
        ("GET", "/consumers/g", 405),
        ("GET", "/topics/%ff", 400),
        ("GET", "/%ff" * 4_000, 404),
        ("PUT", "/topics/a", 405),
        ("GET", "/topics/a/partitions/-1", 404),
        ("GET", "/topics/a/partitions/2147483648", 404),
        ("GET", "/topics/a/partitions/\uff11", 404),
    ],
)
def test_a_path_that_is_none(method: str, path: str, status: int) -> None:
    with pytest.raises(ProblemError) as caught:
        ROUTER.find(method, path)
    assert caught.value.status == status


@pytest.mark.parametrize("index", ["-1", "2147483648", "9" * 30, "x", "1.0"])
def test_a_partition_that_no_topic_can_have_is_one_that_is_not_there(index: str) -> None:
    for path in ("/topics/a/partitions/", "/v3/clusters/c/topics/a/partitions/"):
        with pytest.raises(ProblemError) as caught:
            ROUTER.find("GET", path + index)
        assert (caught.value.status, caught.value.code) == (404, UNKNOWN_PARTITION)


def test_methods_of_a_path_and_of_the_whole_server() -> None:
    assert ROUTER.methods_at("/brokers") == ["GET", "HEAD", "OPTIONS"]
    assert ROUTER.methods_at("/nowhere") == []
    every = {"GET", "HEAD", "OPTIONS"} | {operation.method for operation in OPERATIONS}
    assert ROUTER.methods_at("*") == sorted(every), "RFC 9110, section 9.3.7"


def test_each_operation_is_found_by_its_own_path() -> None:
    for operation in OPERATIONS:
        path = "/".join("1" if part.startswith("{") else part for part in operation.path.split("/"))
        assert ROUTER.find(operation.method, path).operation is operation
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)


def test_a_query_has_types_and_defaults() -> None:
    assert read_query(QUERY, "") == {"timeout": 7, "flag": None, "kind": None}
    assert read_query(QUERY, "timeout=0&flag=true&kind=b&_=1") == {
        "timeout": 0,
        "flag": True,
        "kind": "b",
    }


@pytest.mark.parametrize(
    "query",
    ["timeout=", "timeout=1001", "timeout=-1", "timeout=1e3", "timeout=1&timeout=2", "flag=1",
     "kind=c", "timeout=%ff", "&".join(f"a{n}=1" for n in range(100))],
)  # fmt: skip
def test_a_query_of_no_use(query: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_query(QUERY, query)
    assert caught.value.status == 400
