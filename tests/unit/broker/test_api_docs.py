"""Every handler states its contract, and `docs/apis.md` is what the handlers say."""

from pathlib import Path

import pytest

from fairlead_broker.api_registry import HANDLERS, load_handlers
from fairlead_broker.tools.list_apis import SECTIONS, build_document, contract, name_of
from fairlead_wire.messages import VALID_VERSIONS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "apis.md"
API_KEYS = sorted(load_handlers())


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == build_document(), (
        "run `python -m fairlead_broker.tools.list_apis > docs/apis.md`"
    )


@pytest.mark.parametrize("api_key", API_KEYS)
def test_a_handler_opens_with_its_contract(api_key: int) -> None:
    handler = HANDLERS[api_key]
    assert set(contract(handler)) == set(SECTIONS)
    spelled = name_of(handler).lower()
    assert spelled == handler.api_key.name.replace("_", "").lower()


@pytest.mark.parametrize("api_key", API_KEYS)
def test_served_versions_are_versions_that_messages_have(api_key: int) -> None:
    handler = HANDLERS[api_key]
    lowest, highest = VALID_VERSIONS[api_key]
    for versions in (handler.versions, handler.internal_versions):
        # None to clients, of what is between brokers alone.
        if versions != (0, -1):
            assert lowest <= versions[0] <= versions[1] <= highest


def test_what_clients_must_find_in_the_ranges() -> None:
    """Fixed versions that old and new clients test for (librdkafka, Java, kafka-python)."""
    for api_key, needed in {0: (0, 3, 7), 1: (4, 10), 2: (1,), 3: (9,), 10: (0,), 18: (0,)}.items():
        lowest, highest = HANDLERS[api_key].advertised
        assert all(lowest <= version <= highest for version in needed)
    assert HANDLERS[22].advertised[0] == 0
    assert HANDLERS[23].advertised == (2, 4)
    assert not {4, 5, 6, 7, 71, 72} & set(HANDLERS)
