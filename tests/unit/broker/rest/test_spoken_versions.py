"""The HTTP API asks brokers in versions that every release serves, and that name topics."""

import re
from pathlib import Path

import pytest

import fairlead_broker.rest
from fairlead_broker.api_registry import HANDLERS
from fairlead_broker.rest.calls import SPOKEN_VERSIONS
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.messages import RESPONSES

BY_ID_FROM = {
    ApiKey.PRODUCE: 13,
    ApiKey.FETCH: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
}


def requests_in_use() -> set[int]:
    """Keys of the requests that modules of the HTTP API know."""
    (folder,) = fairlead_broker.rest.__path__
    source = "\n".join(path.read_text() for path in Path(folder).rglob("*.py"))
    keys = {
        response.__name__.removesuffix("Response") + "Request": key
        for key, response in RESPONSES.items()
    }
    return {keys[name] for name in re.findall(r"\b[A-Z]\w+Request\b", source) if name in keys}


def test_each_request_has_a_version() -> None:
    # An envelope is between brokers alone, and has one version.
    assert requests_in_use() - {ApiKey.ENVELOPE} == set(SPOKEN_VERSIONS)


@pytest.mark.parametrize(("api_key", "version"), SPOKEN_VERSIONS.items())
def test_it_is_served_and_names_topics(api_key: int, version: int) -> None:
    lowest, highest = HANDLERS[api_key].versions
    assert lowest <= version <= highest
    assert version < BY_ID_FROM.get(ApiKey(api_key), version + 1)
