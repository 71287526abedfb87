"""Reads Spark's compressed streams, which are recognised by how they begin (``org.apache.spark.io.CompressionCodec``).

A stream is input: a block that says that it unpacks to more than its codec can pack is refused before there is memory
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4_BLOCK = b"LZ4Block"
_SNAPPY = b"\x82SNAPPY\x00"
_LZF = b"ZV"

_LZ4_HEADER = 21
"""LZ4Block, token, compressed length, length, checksum of the bytes (xxhash)."""
_SNAPPY_HEADER = 16
"""Magic, version, compatible version."""

_DAMAGES = (OSError, IndexError, ValueError, OverflowError, MemoryError)
"""The exceptions that damaged bytes lead to; Arrow's are subclasses of them."""

LARGEST = (1 << 31) - 1
"""Bytes that a whole stream may unpack to at most."""

_WINDOW = 4 << 20
"""Bytes that are read or unpacked at once where none of them is kept."""


@dataclass(frozen=True)
class _Block:
    """A part of a stream, which says how long it is.

    Attributes:
        begin: Where the packed bytes begin.
        end: Where they end.
        size: Bytes that they unpack to.
        stored: Whether they are not packed at all.
    """

    begin: int
    end: int
    size: int
    stored: bool = False


def decompressed_start(data: bytes, length: int) -> bytes:
    """Decompresses the start of a stream.

    Args:
        data: The stream, or its start.
        length: How many decompressed bytes are wanted; more may be returned.

    Returns:
        The bytes: fewer where the stream ends or is cut off, none where the codec is not known.
    """
    try:
        pieces, got = [], 0
        for piece in _pieces(data, length):
            pieces.append(piece)
            got += len(piece)
            if got >= length:
                break
        return b"".join(pieces)
    except _DAMAGES:
        return b""


def decompressed(data: bytes) -> bytes:
    """Decompresses a whole stream.

    Raises:
        ValueError: It was cut off, is damaged, its codec is not known, or it unpacks to more than :data:`LARGEST`.
    """
    if not any(data.startswith(magic) for magic in (_LZ4_BLOCK, _SNAPPY, _ZSTD, _LZF)):
        raise ValueError("it is compressed with none of Spark's codecs")
    if not is_whole_stream(lambda offset, length: data[offset : offset + length], len(data)):
        raise ValueError("it was cut off")
    try:
        if unpacked_size(data) > LARGEST:
            raise ValueError(f"it unpacks to more than {LARGEST} bytes")
        return b"".join(_pieces(data, _WINDOW))
    except _DAMAGES as error:
        raise ValueError(f"it cannot be decompressed ({type(error).__name__}: {error})") from error


def unpacked_size(data: bytes) -> int:
    """Returns how many bytes a stream unpacks to, as its blocks say, without keeping any of them.

    Returns:
        The size; where it is more than :data:`LARGEST`, some number above that.

    Raises:
        ValueError: A block says the impossible.
    """
    sizes: Iterator[int] = (block.size for block in _blocks(data))
    if data.startswith(_ZSTD):
        import pyarrow as pa

        sizes = _zstd_sizes(pa.BufferReader(data))
    total = 0
    for size in sizes:
        total += size
        if total > LARGEST:
            break
    return total


def _pieces(data: bytes, length: int) -> Iterator[bytes]:
    """What a stream unpacks to: its blocks; of zstd, which has none, pieces of this length."""
    import pyarrow as pa

    if data.startswith(_ZSTD):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while piece := bytes(stream.read(length)):
                yield piece
        return
    codec = None if data.startswith(_LZF) else pa.Codec("snappy" if data.startswith(_SNAPPY) else "lz4_raw")
    for block in _blocks(data):
        packed = data[block.begin : block.end]
        if block.stored:
            yield packed
        elif codec is None:
            yield _lzf_chunk(packed, block.size)
        else:
            yield codec.decompress(packed, block.size, asbytes=True)


def _blocks(data: bytes) -> Iterator[_Block]:
    if data.startswith(_LZ4_BLOCK):
        yield from _lz4_blocks(data)
    elif data.startswith(_SNAPPY):
        yield from _snappy_blocks(data)
    elif data.startswith(_LZF):
        yield from _lzf_blocks(data)


def is_whole_stream(read_at: Callable[[int, int], bytes], size: int) -> bool:
    """Tells whether a compressed file was cut off, from its end.

    Args:
        read_at: Reads (offset, length) of it.
        size: In bytes.

    Returns:
        False for an empty file and for one that lacks the mark which ends an LZ4 stream, Spark's default: that takes a
        few bytes. Of other codecs all of the file is read, little by little. What no codec has written counts as whole,
        and so does a zstd stream that is not at its end after :data:`LARGEST` bytes.
    """
    if not size:
        return False
    last = read_at(max(0, size - _LZ4_HEADER), _LZ4_HEADER)
    if last.startswith(_LZ4_BLOCK) and not any(last[len(_LZ4_BLOCK) + 1 :]):
        return True
    head = read_at(0, min(size, len(_LZ4_BLOCK)))
    if head == _LZ4_BLOCK[:size]:
        return False
    if head.startswith(_ZSTD):
        return _zstd_is_whole(_Sequence(read_at, size))
    if head == _SNAPPY:
        return _ends_of(_Sequence(read_at, size), _SNAPPY_HEADER, 4, _snappy_length)
    if head.startswith(_LZF):
        return _ends_of(_Sequence(read_at, size), 0, 5, _lzf_length)
    return True


class _Sequence:
    """A file that is read from its start to its end, a window at a time.

    Args:
        read_at: Returns a range, given its offset and its length.
        size: The size in bytes.
    """

    def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
        self.size = size
        self._read_at = read_at
        self._at = 0
        self._window = b""
        self._start = 0

    closed = False

    def close(self) -> None:
        """Does nothing; Arrow closes what it reads."""

    def read(self, length: int) -> bytes:
        """Reads on, as any Python file does."""
        data = self._read_at(self._at, min(length, self.size - self._at))
        self._at += len(data)
        return data

    def part(self, offset: int, length: int) -> bytes:
        """Returns a few bytes; each call asks for bytes behind those of the call before."""
        if offset + length > self._start + len(self._window):
            self._window, self._start = self._read_at(offset, min(_WINDOW, self.size - offset)), offset
        return self._window[offset - self._start : offset - self._start + length]


def _zstd_is_whole(file: _Sequence) -> bool:
    import pyarrow as pa

    try:
        total = 0
        for size in _zstd_sizes(pa.PythonFile(file, mode="r")):
            total += size
            if total > LARGEST:
                break
    except (OSError, pa.ArrowException):
        return False
    return True


def _zstd_sizes(source: object) -> Iterator[int]:
    """The lengths of the unpacked pieces; none is kept."""
    import pyarrow as pa

    with pa.CompressedInputStream(source, "zstd") as stream:
        while size := len(stream.read(_WINDOW)):
            yield size


def _ends_of(file: _Sequence, at: int, header: int, length: Callable[[bytes], int]) -> bool:
    """Whether the last block ends where the file does; a length of 0 stands for what is no block."""
    while at + header <= file.size:
        step = length(file.part(at, header))
        if not step:
            return False
        at += step
    return at == file.size


def _snappy_length(header: bytes) -> int:
    packed = int.from_bytes(header, "big")
    return 4 + packed if packed else 0


def _lzf_length(header: bytes) -> int:
    packed = int.from_bytes(header[3:], "big")
    return (7 if header[2] else 5) + packed if header.startswith(_LZF) and packed else 0


def _lz4_blocks(data: bytes) -> Iterator[_Block]:
    """LZ4BlockOutputStream of lz4-java: blocks of up to 32 MiB, with a header of little-endian lengths."""
    at = 0
    while data[at : at + 8] == _LZ4_BLOCK and at + _LZ4_HEADER <= len(data):
        packed = int.from_bytes(data[at + 9 : at + 13], "little")
        size = int.from_bytes(data[at + 13 : at + 17], "little")
        begin, at = at + _LZ4_HEADER, at + _LZ4_HEADER + packed
        if at > len(data) or not size:
            return
        stored = data[begin - _LZ4_HEADER + 8] & 0xF0 == 0x10
        yield _checked(_Block(begin, at, packed if stored else size, stored), 1 << 25, 256)


def _snappy_blocks(data: bytes) -> Iterator[_Block]:
    """SnappyOutputStream of snappy-java: a header, then blocks with a big-endian length; each says its own size."""
    at = _SNAPPY_HEADER
    while at + 4 <= len(data):
        packed = int.from_bytes(data[at : at + 4], "big")
        begin, at = at + 4, at + 4 + packed
        if at > len(data):
            return
        yield _checked(_Block(begin, at, _varint(data[begin : min(at, begin + 5)])), 1 << 29, 64)


def _lzf_blocks(data: bytes) -> Iterator[_Block]:
    """LZFOutputStream of compress-lzf: chunks 'ZV', type, big-endian lengths."""
    at = 0
    while data[at : at + 2] == _LZF and at + 5 <= len(data):
        packed = int.from_bytes(data[at + 3 : at + 5], "big")
        stored = data[at + 2] == 0
        size = packed if stored else int.from_bytes(data[at + 5 : at + 7], "big")
        begin = at + (5 if stored else 7)
        at = begin + packed
        if at > len(data):
            return
        yield _Block(begin, at, size, stored)


def _checked(block: _Block, most: int, times: int) -> _Block:
    """Refuses a size before there is memory for it: no codec packs so tightly, or so much in one block."""
    if block.size > min(most, times * (block.end - block.begin) + 64):
        raise ValueError(f"a block of {block.end - block.begin} bytes says that it unpacks to {block.size}")
    return block


def _varint(data: bytes) -> int:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("a length without an end")


def _lzf_chunk(data: bytes, size: int) -> bytes:
    """Back references of up to 264 bytes, at most 8 KiB back."""
    out, at = bytearray(), 0
    while at < len(data) and len(out) <= size:
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        count = control >> 5
        if count == 7:
            count += data[at]
            at += 1
        start = len(out) - ((control & 0x1F) << 8) - data[at] - 1
        at += 1
        if start < 0:
            raise ValueError("a chunk refers to what is before it")
        for i in range(count + 2):
            out.append(out[start + i])
    if len(out) != size:
        raise ValueError("a chunk does not have the length that it says")
    return bytes(out)
