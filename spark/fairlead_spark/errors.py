"""The errors of a query. Each text names the topic, the partition, the offset and what to change.

Spark shows a Python exception's class and text to the user, so the text is the whole message.
"""

from typing import Final

from fairlead_wire.errors import ErrorCode

FENCED: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
)
"""Another producer has the transactional id, or the transaction was ended: no retry helps."""
FENCED_IN_PRODUCE: Final = (*FENCED, ErrorCode.TRANSACTION_ABORTABLE)


class OptionError(ValueError):
    """An option, or a combination of options, that cannot mean anything."""


class SourceError(RuntimeError):
    """Reading failed, and trying again would not have helped."""


class DataLossError(SourceError):
    """Records that the query counted on are gone; `failOnDataLoss` decides that this fails it."""


class FencedError(SourceError):
    """Another driver has taken this one's place: it must not go on."""


class SinkError(RuntimeError):
    """Rows that cannot be written, or that no broker has acknowledged."""


class LostTransactionError(SinkError):
    """A batch was decided, and brokers had aborted a part of it."""


class TakenOverError(Exception):
    """Somebody else has taken a transactional id; what became of the last write is to be read."""


def error_of(code: int) -> ErrorCode:
    """Return the error of a broker's code; unknown codes count as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
