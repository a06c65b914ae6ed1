import random
import tracemalloc

import cramjam
import pytest

from fairlead_wire.compression import XERIAL_MAGIC, Codec, UnpackedSizeError, compress, decompress
from fairlead_wire.errors import RemoteProtocolError

PACKING = [each for each in Codec if each is not Codec.NONE]
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 64 * 1024 + 1, 300_000])
def test_data_survives(codec: Codec, size: int) -> None:
    chooser = random.Random(size)
    for data in (chooser.randbytes(size), b"flights " * (size // 8)):
        assert decompress(compress(data, codec), codec, max_size=MIB) == data
        assert decompress(memoryview(compress(data, codec)), codec, max_size=MIB) == data


@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_is_refused_within_the_cap(codec: Codec) -> None:
    bomb = compress(bytes(64 * MIB), codec)
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match=f"{codec.name} data unpacks to more than"):
        decompress(bomb, codec, max_size=MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * MIB


@pytest.mark.parametrize("codec", PACKING)
def test_exactly_the_cap_is_allowed(codec: Codec) -> None:
    data = bytes(200_001)
    packed = compress(data, codec)
    assert decompress(packed, codec, max_size=200_001) == data
    with pytest.raises(RemoteProtocolError, match="more than 200000"):
        decompress(packed, codec, max_size=200_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_what_is_packed_without_content_takes_no_time_beyond_the_cap(codec: Codec) -> None:
    """Each empty part is a few bytes, and as much work as a full one."""
    empty = compress(b"", codec)
    packed = empty + b"\0\0\0\1\0" * 14_000 if codec is Codec.SNAPPY else empty * 8_000
    assert decompress(packed, codec, max_size=MIB) == b""
    with pytest.raises(UnpackedSizeError):
        decompress(packed, codec, max_size=1_000)


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(200))])
def test_gzip_of_very_many_tiny_members_is_refused(content: bytes) -> None:
    """A MiB of them took a third of a second, in which a broker does nothing else."""
    packed = compress(content, Codec.GZIP)
    assert decompress(packed * 8_192, Codec.GZIP, max_size=8 * MIB) == content * 8_192
    with pytest.raises(RemoteProtocolError, match="damaged GZIP data: 8193 members in"):
        decompress(packed * 8_193, Codec.GZIP, max_size=8 * MIB)


def test_gzip_of_many_members_with_content_is_unpacked() -> None:
    content = random.Random(1).randbytes(300)
    packed = compress(content, Codec.GZIP)
    assert decompress(packed * 9_000, Codec.GZIP, max_size=8 * MIB) == content * 9_000


@pytest.mark.parametrize("block", [b"", b"a", bytes(range(200))])
def test_snappy_in_very_many_tiny_blocks_is_refused(block: bytes) -> None:
    """A MiB of them took half a second, in which a broker does nothing else."""
    packed = bytes(cramjam.snappy.compress_raw(block))
    packed = len(packed).to_bytes(4, "big") + packed
    head = compress(b"", Codec.SNAPPY)
    assert decompress(head + packed * 10_000, Codec.SNAPPY, max_size=8 * MIB) == block * 10_000
    with pytest.raises(RemoteProtocolError, match="damaged SNAPPY data: 16385 blocks hold"):
        decompress(head + packed * 20_000, Codec.SNAPPY, max_size=8 * MIB)


def test_snappy_in_blocks_as_small_as_java_clients_make_them_is_read() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1024)))
    packed = compress(b"", Codec.SNAPPY) + (len(block).to_bytes(4, "big") + block) * 20_000
    assert decompress(packed, Codec.SNAPPY, max_size=32 * MIB) == bytes(20_000 * 1024)


@pytest.mark.parametrize("codec", PACKING)
def test_damaged_data_is_refused_or_read(codec: Codec) -> None:
    chooser = random.Random(codec.name)
    packed = compress(b"".join(b"flight %d " % index for index in range(3000)), codec)
    for _ in range(150):
        damaged = bytearray(packed)
        for _ in range(chooser.randrange(1, 4)):
            damaged[chooser.randrange(len(damaged))] = chooser.randrange(256)
        for data in (bytes(damaged), packed[: chooser.randrange(len(packed))]):
            try:
                assert len(decompress(data, codec, max_size=MIB)) <= MIB
            except RemoteProtocolError as error:
                assert codec.name in str(error)


@pytest.mark.parametrize("codec", PACKING)
def test_random_bytes_are_refused(codec: Codec) -> None:
    with pytest.raises(RemoteProtocolError):
        decompress(b"\xff\xfe\xfd" * 20, codec, max_size=MIB)


def test_raw_snappy_is_read_too() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"flights " * 100))
    assert decompress(raw, Codec.SNAPPY, max_size=MIB) == b"flights " * 100


def test_snappy_is_framed_as_java_clients_frame_it() -> None:
    packed = compress(b"x" * 70_000, Codec.SNAPPY)
    assert packed.startswith(XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1")
    assert decompress(packed[:16], Codec.SNAPPY, max_size=MIB) == b""


@pytest.mark.parametrize("tail", [b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5abc", b"\0\0\0\1\xff"])
def test_damaged_xerial_blocks_are_refused(tail: bytes) -> None:
    packed = compress(b"x" * 100, Codec.SNAPPY)
    with pytest.raises(RemoteProtocolError, match="damaged SNAPPY"):
        decompress(packed + tail, Codec.SNAPPY, max_size=MIB)


def test_lz4_blocks_are_independent_as_java_clients_require() -> None:
    packed = compress(random.Random(1).randbytes(100_000) + bytes(100_000), Codec.LZ4)
    assert packed.startswith(bytes.fromhex("04224d18 60 40 82"))
    assert packed.endswith(bytes(4))


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="no codec has the number 5"):
        decompress(b"", 5, max_size=MIB)
