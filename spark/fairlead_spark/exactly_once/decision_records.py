"""Decisions as records of a compacted topic, and the state that a query's records give. Pure.

The key is the query's name and the value is JSON, so that any consumer can show who decided what. A
tombstone means that nothing of the name needs to be known any more. The key of a batch that was
given up has only tombstones. A record counts once its commit marker is there. The reader reads all
batches, not only those below the last stable offset, because another query's open transaction would
hide its own records.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from fairlead_spark.errors import SinkError
from fairlead_spark.exactly_once.batch_decision import Decision
from fairlead_spark.offsets import NO_TOPIC_ID
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_wire.record_batch import BatchHeader
from fairlead_wire.records import ControlType, Record, decode_end_of_transaction

DECISIONS_TOPIC: Final = "fairlead-spark-decisions"
ENDED_MAX: Final = 1000
"""Keys that are remembered: of batches whose tasks may still run."""
_VERSION: Final = 1


@dataclass(frozen=True)
class DecisionReplay:
    """A query's last decision, as far as the log was read.

    `ended` are the last keys of tombstones, also of other names: a later reader may look for
    another one. `unsettled` are decisions without a marker yet, by their producer ids, each with
    the offset of the first.
    """

    name: str
    next_offset: int = 0
    decision: Decision | None = None
    ended: tuple[str, ...] = ()
    unsettled: dict[int, tuple[int, Decision | None]] = field(default_factory=dict)
    topic_id: bytes = NO_TOPIC_ID

    def apply(self, header: BatchHeader, records: Iterable[Record]) -> "DecisionReplay":
        """Return the state after one more batch of the log."""
        decision, unsettled, ended = self.decision, self.unsettled, self.ended
        if header.is_control:
            if header.producer_id in unsettled and (outcome := _outcome(records)) is not None:
                unsettled = dict(unsettled)
                _, settled = unsettled.pop(header.producer_id)
                if outcome is ControlType.COMMIT:
                    decision = settled
        else:
            key = self.name.encode()
            for record in records:
                if record.value is None and record.key is not None:
                    ended = (*ended, record.key.decode(errors="replace"))[-ENDED_MAX:]
                if record.key != key:
                    continue
                found = None if record.value is None else decode_decision(record.value)
                if header.is_transactional:
                    first, _ = unsettled.get(header.producer_id, (header.base_offset, None))
                    unsettled = unsettled | {header.producer_id: (first, found)}
                else:
                    decision = found
        return replace(
            self,
            next_offset=header.next_offset,
            decision=decision,
            unsettled=unsettled,
            ended=ended,
        )

    def resumable(self) -> "DecisionReplay":
        """Return the state from which another process continues: before the first unsettled one."""
        first = min((offset for offset, _ in self.unsettled.values()), default=self.next_offset)
        return replace(self, next_offset=first, unsettled={})


def encode_decision(decision: Decision) -> bytes:
    """Return the value of a decision's record."""
    return json.dumps(
        {
            "version": _VERSION,
            "batch": decision.batch,
            "run": decision.run,
            "since_ms": decision.since_ms,
            "is_ended": decision.is_ended,
            "transactions": [list(each) for each in decision.transactions],
            "execution": decision.execution,
            "replaced": list(decision.replaced),
            "turn": decision.turn,
        },
        separators=(",", ":"),
    ).encode()


def decode_decision(value: bytes) -> Decision:
    """Decode the result of `encode_decision`; SinkError for anything else."""
    try:
        found = json.loads(value)
        if found["version"] != _VERSION:
            raise SinkError(
                f"topic {DECISIONS_TOPIC} holds a decision of version {found['version']}, which "
                f"this version of the sink cannot read: it knows {_VERSION}"
            )
        return Decision(
            batch=int(found["batch"]),
            run=str(found["run"]),
            since_ms=int(found["since_ms"]),
            transactions=tuple(
                PreparedTransaction(str(name), int(producer_id), int(epoch))
                for name, producer_id, epoch in found["transactions"]
            ),
            is_ended=bool(found["is_ended"]),
            execution=int(found["execution"]),
            replaced=tuple(map(str, found["replaced"])),
            # Not in records of versions before this.
            turn=int(found.get("turn", 0)),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise SinkError(
            f"topic {DECISIONS_TOPIC} holds a record that is no decision: {value[:80]!r}"
        ) from error


def _outcome(records: Iterable[Record]) -> ControlType | None:
    for record in records:
        marker = decode_end_of_transaction(record)
        return None if marker is None else marker.type
    return None
