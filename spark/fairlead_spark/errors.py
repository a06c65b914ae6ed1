"""What a query fails with. Each text names the topic, the partition, the offset and what to change.

Spark shows a Python exception's class and text to the user, so the text is the whole message.
"""

from fairlead_wire.errors import ErrorCode


class OptionError(ValueError):
    """An option, or a combination of options, that cannot mean anything."""


class SourceError(RuntimeError):
    """Reading failed, and trying again would not have helped."""


class DataLossError(SourceError):
    """Records that the query counted on are gone; `failOnDataLoss` decides that this fails it."""


class SinkError(RuntimeError):
    """Rows that cannot be written, or that no broker has acknowledged."""


def error_of(code: int) -> ErrorCode:
    """What a broker's error code means; one of a later protocol counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)  # type: ignore[call-arg]
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
