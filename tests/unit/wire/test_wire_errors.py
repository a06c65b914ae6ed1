import pytest

from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages import REQUESTS

# What Java clients (4.3) try again by themselves.
RETRIABLE = [
    *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84),
    *(88, 89, 100, 103, 106, 122, 123, 133),
]


def test_the_codes_are_contiguous() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_clients_retry_exactly_the_codes_that_java_retries(code: ErrorCode) -> None:
    assert code.retriable is (code in RETRIABLE)


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_code_says_what_it_means(code: ErrorCode) -> None:
    assert code.description.endswith(".")


def test_an_error_without_text_carries_the_description_of_its_code() -> None:
    assert KafkaError(ErrorCode.NOT_COORDINATOR).message == "Another broker is the coordinator."
    error = KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms: not a number")
    assert error.message == "retention.ms: not a number"
    assert str(error) == "INVALID_CONFIG: retention.ms: not a number"


def test_every_generated_api_has_a_number_with_a_name() -> None:
    for key in REQUESTS:
        name = ApiKey(key).name.replace("_", "").lower()
        assert REQUESTS[key].__name__.lower() == f"{name}request"
