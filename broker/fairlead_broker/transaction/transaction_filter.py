"""Which transactional ids an admin client wants to see listed (KIP-664, 994, 1152). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import TRANSACTION_PATTERN_BYTES_MAX, TRANSACTION_PATTERN_LENGTH_MAX
from fairlead_broker.patterns import compile_pattern
from fairlead_broker.transaction.transaction_types import TransactionState

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_broker.transaction.transaction_types import TransactionMetadata

NO_DURATION: Final = -1
_STATES: Final = {state.title: state for state in TransactionState}


class TransactionFilter:
    """Empty filters accept everything; `unknown_states` are names that are no states."""

    def __init__(
        self,
        *,
        state_names: Collection[str],
        producer_ids: Collection[int],
        duration_ms: int,
        pattern: str | None,
    ) -> None:
        """KafkaError if the pattern is not valid."""
        self.unknown_states = [name for name in state_names if name not in _STATES]
        self._has_states = bool(state_names)
        self._states = {_STATES[name] for name in state_names if name in _STATES}
        self._producer_ids = frozenset(producer_ids)
        self._duration_ms = duration_ms
        self._pattern = None
        if pattern:
            self._pattern = compile_pattern(
                pattern,
                length_max=TRANSACTION_PATTERN_LENGTH_MAX,
                bytes_max=TRANSACTION_PATTERN_BYTES_MAX,
            )

    def is_wanted(
        self, transactional_id: str, metadata: TransactionMetadata, *, now_ms: int
    ) -> bool:
        """Tell whether an id passes all filters.

        An id that has never had a transaction counts as very old, as in Kafka.
        """
        if self._has_states and metadata.state not in self._states:
            return False
        if self._producer_ids and metadata.producer_id not in self._producer_ids:
            return False
        if self._duration_ms > NO_DURATION and now_ms - metadata.start_ms <= self._duration_ms:
            return False
        return self._pattern is None or self._pattern.fullmatch(transactional_id) is not None
