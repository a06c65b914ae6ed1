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
    """An option, or a combination of options, is invalid."""


class SourceError(RuntimeError):
    """Reading failed, and a retry would not have helped."""


class DataLossError(SourceError):
    """Records that the query needs are gone; `failOnDataLoss` decides whether it fails."""


class FencedError(SourceError):
    """Another driver has replaced this one, which must not go on."""


class SinkError(RuntimeError):
    """Rows cannot be written, or no broker has acknowledged them."""


class LostTransactionError(SinkError):
    """A batch was decided, but brokers had aborted a part of it."""


class TakenOverError(Exception):
    """Another producer has taken a transactional id; the outcome of the last write must be read."""


def error_of(code: int) -> ErrorCode:
    """Return the error of a broker's code; unknown codes count as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
