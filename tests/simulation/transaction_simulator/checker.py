"""The rules that must always hold for the answers to clients and for what readers see."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .partitions import Partition


class Checker:
    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self._given: dict[tuple[int, int], int] = {}
        self._ended: dict[tuple[int, int], tuple[bool, list[int]]] = {}

    @property
    def ended_count(self) -> int:
        return len(self._ended)

    def given(self, client: int, pair: tuple[int, int]) -> None:
        """Check T2: no two processes have the same epoch, and none has the epoch for fencing."""
        owner = self._given.setdefault(pair, client)
        assert owner == client, f"{pair} was given to client {owner}, and now to {client}"
        assert 0 <= pair[1] <= 32_766, f"client {client} is given {pair}"

    def ended(self, transaction: tuple[int, int], *, is_commit: bool, indexes: list[int]) -> None:
        """Note the outcome that a client was told."""
        self._ended[transaction] = (is_commit, indexes)

    def check(self, *, is_over: bool) -> None:
        """Check T4, T5: all partitions have the same outcome, and the client was told this one."""
        seen: dict[tuple[int, int], set[bool]] = {}
        places: dict[tuple[int, int], set[int]] = {}
        for index, partition in enumerate(self._partitions):
            for transaction, is_committed in partition.outcomes().items():
                places.setdefault(transaction, set()).add(index)
                if is_committed is not None:
                    seen.setdefault(transaction, set()).add(is_committed)
                else:
                    assert not is_over, f"{transaction} is open for ever"
        for transaction, outcomes in seen.items():
            assert len(outcomes) == 1, f"{transaction} is committed and aborted"
        for transaction, (is_commit, indexes) in self._ended.items():
            assert seen.get(transaction, {is_commit}) == {is_commit}, (
                f"{transaction}: its client was told something else"
            )
            if is_commit:
                assert places[transaction] == set(indexes), f"{transaction} is not whole"
