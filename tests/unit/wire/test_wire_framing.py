import random

import pytest

from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.framing import FrameDecoder
from fairlead_wire.segments import segments_size


def test_frames_come_out_whole_however_the_bytes_arrive() -> None:
    chooser = random.Random(5)
    frames = [chooser.randbytes(size) for size in (0, 1, 300, 7, 5000)]
    stream = b"".join(len(each).to_bytes(4) + each for each in frames)
    for piece_size in (1, 3, 100, len(stream)):
        decoder = FrameDecoder(max_size=5000)
        found: list[bytes] = []
        for start in range(0, len(stream), piece_size):
            decoder.feed(stream[start : start + piece_size])
            found += [bytes(each) for each in decoder.frames()]
        assert found == frames
        assert decoder.buffered_size == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 5001, 2**31 - 1])
def test_impossible_lengths_are_refused_before_anything_is_read(size: int) -> None:
    decoder = FrameDecoder(max_size=5000)
    decoder.feed(size.to_bytes(4, signed=True))
    with pytest.raises(RemoteProtocolError, match="5000 is the most"):
        next(decoder.frames())


def test_the_size_of_segments_is_that_on_the_wire() -> None:
    class Source:
        def __len__(self) -> int:
            return 1000

    assert segments_size([b"abc", memoryview(b"de"), Source(), bytearray(4)]) == 1009
    assert segments_size([]) == 0
