"""Media types: what a body is, what an answer may be."""

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from fairlead_broker.limits import REST_ACCEPT_LENGTH_MAX
from fairlead_broker.rest.negotiation import (
    accept_of,
    accepts_gzip,
    choose_answer,
    choose_problem,
    media_type_of,
)
from fairlead_broker.rest.operations import JSON, V2, V2_ANSWERS, V2_JSON
from fairlead_broker.rest.problems import PROBLEM_TYPE, ProblemError


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, V2),
        ("", V2),
        ("*/*", V2),
        ("application/json", JSON),
        ("application/*;q=0.5, application/json", JSON),
        ("application/json;q=0.1, application/vnd.kafka.v2+json;q=0.2", V2),
        ("text/html, */*;q=0.1", V2),
        ("application/vnd.kafka.v2+json;q=0, */*", "application/vnd.kafka+json"),
        ("text/html", None),
        ("application/json;q=x", JSON),
        (",;,", None),
    ],
)
def test_what_the_client_likes_best(accept: str | None, chosen: str | None) -> None:
    assert choose_answer(accept, V2_ANSWERS) == chosen


def test_what_stands_far_behind_others_is_not_looked_at() -> None:
    many = "text/html," * 1_000
    assert choose_answer(f"{JSON},{many}", V2_ANSWERS) == JSON
    assert choose_answer(many + JSON, V2_ANSWERS) is None
    assert accepts_gzip(f"gzip,{many}")
    assert not accepts_gzip(f"{many}gzip")


def test_what_is_cut_off_is_no_other_range() -> None:
    accept = "a," * 506 + "bb,text/html"
    assert len(accept) == REST_ACCEPT_LENGTH_MAX
    assert choose_answer(accept, ["text/html"]) == "text/html"
    assert choose_answer(f"{accept};q=0", ["text/html"]) is None


def test_errors_are_plain_json_for_who_names_it() -> None:
    assert choose_problem(None) == PROBLEM_TYPE
    assert choose_problem("*/*") == PROBLEM_TYPE
    assert choose_problem("application/json") == JSON
    assert choose_problem(V2) == V2
    assert choose_problem("text/html") == PROBLEM_TYPE


def test_the_type_of_a_body() -> None:
    assert media_type_of("Application/JSON; Charset=UTF-8", (JSON,)) == JSON
    for wrong in (None, "", "text/plain", V2_JSON, "application/json; charset=utf-16"):
        with pytest.raises(ProblemError) as caught:
            media_type_of(wrong, (JSON,))
        assert caught.value.status == 415


def test_gzip() -> None:
    assert accepts_gzip("br, gzip")
    assert accepts_gzip("*")
    assert not accepts_gzip("gzip;q=0, *")
    assert not accepts_gzip(None)
    assert not accepts_gzip("br")


@pytest.mark.parametrize(
    ("lines", "accept"), [([], None), ([JSON], JSON), ([JSON, V2], f"{JSON}, {V2}")]
)
def test_all_lines_say_what_is_accepted(lines: list[str], accept: str | None) -> None:
    headers = CIMultiDict([("Accept", line) for line in lines])
    assert accept_of(make_mocked_request("GET", "/", headers=headers)) == accept
