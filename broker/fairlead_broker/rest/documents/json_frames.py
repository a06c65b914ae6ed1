"""Cuts a stream of bytes into JSON objects without parsing them.

The scan looks only at quotes and brackets, and at each byte once, in whatever pieces the stream
arrives. So the size, the depth and the number of parts of an object are known before it is parsed,
and a large body can be taken in small steps. `StreamFrames` cuts objects that follow each other
(v3), and `RecordsFrames` cuts the records out of `{"records": [...]}` (v2).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, Final

from fairlead_broker.rest.documents.json_text import JsonError, load_json

STEP_BYTES: Final = 16 * 1024
"""Bytes to pass to `feed` at once: some 5 ms of work at worst, if every byte is a bracket."""

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
_TEXT_OR_BLANKS: Final = re.compile(
    rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^" \t\r\n]++)|[ \t\r\n]++', re.DOTALL
)
_REST_OF_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_QUOTE, _OPEN_OBJECT, _CLOSE_OBJECT = b'"'[0], b"{"[0], b"}"[0]
_OPEN_ARRAY, _CLOSE_ARRAY = b"["[0], b"]"[0]
_RECORDS: Final = b'"records"'


class OversizedError(JsonError):
    """Part of a stream exceeds a limit."""


class _Frames(ABC):
    """Finds where objects begin and end; a subclass says at which depth."""

    def __init__(self, *, bytes_max: int, tokens_max: int, depth_max: int) -> None:
        self._bytes_max = bytes_max
        self._tokens_max = tokens_max
        self._depth_max = depth_max
        self._buffer = bytearray()
        self._scanned = 0
        """Up to where the buffer has been scanned."""
        self._open: list[int] = []
        """The brackets that are open, outermost first."""
        self._is_in_text = False
        self._text_start = 0
        self._start = -1
        """Where the object that is being read begins in the buffer; -1 between objects."""
        self._done = 0
        """Up to where the buffer is no longer needed, if no object is being read."""
        self._tokens = 0
        """Number of parts of the object that is being read, or of everything between objects."""
        self._tokens_between = 0

    @property
    def has_partial(self) -> bool:
        """Tell whether an object has begun and not ended."""
        return self._start >= 0

    @property
    def partial_bytes(self) -> int:
        """Bytes that are kept of an object that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes, frames: list[bytes]) -> None:
        """Take the next bytes and add the objects that are complete now to `frames`.

        JsonError; the objects before the error have been added then, too.
        """
        self._buffer += data
        self._scan(frames)
        done = self._done if self._start < 0 else self._start
        if len(self._buffer) - done > self._bytes_max:
            raise OversizedError(f"an object of more than {self._bytes_max} bytes")
        if done:
            del self._buffer[:done]
            self._scanned -= done
            self._text_start -= done
            self._start -= done if self._start >= 0 else 0
        self._done = 0

    def _scan(self, frames: list[bytes]) -> None:
        """Scan the bytes that are new."""
        buffer, at = self._buffer, self._scanned
        while True:
            if self._is_in_text:
                at = _match_end(buffer, at)
                if at == len(buffer) or buffer[at] != _QUOTE:
                    break
                at += 1
                self._is_in_text = False
                self._on_text(self._text_start, at)
                continue
            found = _TOKEN.search(buffer, at)
            if found is None:
                at = len(buffer)
                break
            start, at = found.span()
            del found  # A match keeps the buffer from growing.
            self._tokens += 1
            if self._tokens > self._tokens_max:
                raise OversizedError(f"an object of more than {self._tokens_max} parts")
            byte = buffer[start]
            if byte in (_OPEN_OBJECT, _OPEN_ARRAY):
                self._open_at(start, byte)
            elif byte != _QUOTE:
                self._close_at(at, byte, frames)
            elif at - start == 1:
                self._is_in_text = True
                self._text_start = start
            else:
                self._on_text(start, at)
        self._scanned = at
        if self._start < 0 and not self._is_in_text:
            self._outside(self._done, at)
            self._done = at

    def _open_at(self, start: int, byte: int) -> None:
        if self._start < 0 and self._is_frame(byte):
            self._outside(self._done, start)
            self._start = start
            self._tokens_between = self._tokens - 1
            self._tokens = 0
        self._open.append(byte)
        if len(self._open) > self._depth_max:
            raise JsonError(f"it is nested more than {self._depth_max} deep")

    def _close_at(self, end: int, byte: int, frames: list[bytes]) -> None:
        opening = _OPEN_OBJECT if byte == _CLOSE_OBJECT else _OPEN_ARRAY
        if not self._open or self._open.pop() != opening:
            raise JsonError(f"{chr(byte)!r} closes nothing")
        if self._start < 0 or not self._is_between():
            return
        if end - self._start > self._bytes_max:
            raise OversizedError(f"an object of more than {self._bytes_max} bytes")
        frames.append(bytes(self._buffer[self._start : end]))
        self._start = -1
        self._done = end
        self._tokens = self._tokens_between
        self._on_frame()

    @abstractmethod
    def _is_frame(self, byte: int) -> bool:
        """Tell whether the bracket `byte` opens one of the objects that are cut out."""

    @abstractmethod
    def _is_between(self) -> bool:
        """Tell whether the bracket that has just closed was the end of such an object."""

    @abstractmethod
    def _on_text(self, start: int, end: int) -> None:
        """Note a string."""

    @abstractmethod
    def _on_frame(self) -> None:
        """Note that an object has been cut out."""

    @abstractmethod
    def _outside(self, start: int, end: int) -> None:
        """Note bytes between objects."""


def _match_end(buffer: bytearray, at: int) -> int:
    """Return where a string that began earlier stops: at its quote, or at a cut-off escape."""
    found = _REST_OF_TEXT.match(buffer, at)
    return at if found is None else found.end()


def _shortest(found: re.Match[bytes]) -> bytes:
    """Return a matched text unchanged, or one blank for a match of blanks."""
    return found[1] or b" "


def require_few_parts(data: bytes, parts_max: int) -> None:
    """Count the parts of a JSON text as for an object in a stream; OversizedError."""
    for parts, found in enumerate(_TOKEN.finditer(data), 1):
        if parts > parts_max:
            raise OversizedError(f"it has more than {parts_max} parts")
        start, end = found.span()
        if end - start == 1 and data[start] == _QUOTE:
            # This string has no end, so the parser stops here. To go on would cost a search to the
            # end of the data for each later quote.
            return


class StreamFrames(_Frames):
    """Records that follow each other, with nothing but blanks between them."""

    _no_array = "records are objects, one after the other, and no array"
    _no_text = "a record is an object, and no text"
    _frame = "any record"

    def finish(self) -> None:
        """End the stream; JsonError if an object is incomplete."""
        if self._start >= 0 or self._is_in_text:
            raise JsonError("the last object is cut off")

    def _is_frame(self, byte: int) -> bool:
        if byte != _OPEN_OBJECT:
            raise JsonError(self._no_array)
        return True

    def _is_between(self) -> bool:
        return not self._open

    def _on_text(self, start: int, end: int) -> None:
        if self._start < 0:
            raise JsonError(self._no_text)

    def _on_frame(self) -> None:
        pass

    def _outside(self, start: int, end: int) -> None:
        stray = self._buffer[start:end].strip(b" \t\r\n")
        if stray:
            text = stray[:20].decode(errors="backslashreplace")
            raise JsonError(f"{text!r} stands outside of {self._frame}")


class ObjectFrames(StreamFrames):
    """One object. Whether others follow is for the caller to see."""

    _no_array = "the body is to be one object, and no array"
    _no_text = "the body is to be one object, and no text"
    _frame = "the object"


class RecordsFrames(_Frames):
    """The records of `{"records": [{…}, {…}], …}`; the text around them is parsed at the end."""

    _RECORD_DEPTH: Final = 2

    def __init__(
        self, *, bytes_max: int, tokens_max: int, depth_max: int, around_bytes_max: int
    ) -> None:
        super().__init__(bytes_max=bytes_max, tokens_max=tokens_max, depth_max=depth_max)
        self._around = bytearray()
        self._around_bytes_max = around_bytes_max
        self._is_named_records = False
        self._records = 0

    @property
    def around_bytes(self) -> int:
        """Size of the text around the records, which `finish` parses."""
        return len(self._around)

    def finish(self) -> dict[str, Any]:
        """Return the document with a null for each record; JsonError."""
        if self._open or self._is_in_text:
            raise JsonError("the document is cut off")
        document = load_json(self._around)
        if not isinstance(document, dict):
            raise JsonError("the document is no object")
        records = document.get("records")
        if records != [None] * self._records or self._records == 0:
            raise JsonError('"records" is an array of one object or more')
        return document

    def _is_frame(self, byte: int) -> bool:
        depth = len(self._open)
        if depth == 1 and byte == _OPEN_OBJECT:
            self._is_named_records = False
        return (
            depth == self._RECORD_DEPTH
            and byte == _OPEN_OBJECT
            and self._is_named_records
            and self._open[1] == _OPEN_ARRAY
        )

    def _is_between(self) -> bool:
        return len(self._open) == self._RECORD_DEPTH

    def _on_text(self, start: int, end: int) -> None:
        if len(self._open) == 1:
            self._is_named_records = self._buffer[start:end] == _RECORDS

    def _on_frame(self) -> None:
        self._around += b"null"
        self._records += 1

    def _outside(self, start: int, end: int) -> None:
        around = self._around
        if start < end:
            # An indented document has a line end and many blanks between two records.
            around += _TEXT_OR_BLANKS.sub(_shortest, self._buffer[start:end])
        if len(around) > self._around_bytes_max:
            raise OversizedError(f"more than {self._around_bytes_max} bytes around the records")
