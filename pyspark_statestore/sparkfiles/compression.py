"""Spark's compressed streams, recognised by how they begin (``org.apache.spark.io.CompressionCodec``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4_BLOCK = b"LZ4Block"
_SNAPPY = b"\x82SNAPPY\x00"
_LZF = b"ZV"

_LZ4_HEADER = 21
"""LZ4Block, token, compressed length, length, checksum of the bytes (xxhash)."""
_SNAPPY_HEADER = 16
"""Magic, version, compatible version."""

_DAMAGES = (OSError, IndexError, ValueError)
"""What damage leads to; Arrow's exceptions are among them."""


def decompressed_start(data: bytes, length: int) -> bytes:
    """Decompresses the start of a stream.

    Args:
        data: Of it, as much as there is.
        length: How many decompressed bytes are wanted; more may be returned.

    Returns:
        Fewer bytes where the stream ends or is cut off; none where the codec is not known.
    """
    try:
        blocks, got = [], 0
        for block in _blocks(data, length):
            blocks.append(block)
            got += len(block)
            if got >= length:
                break
        return b"".join(blocks)
    except _DAMAGES:
        return b""


def decompressed(data: bytes) -> bytes:
    """Decompresses a whole stream.

    Raises:
        ValueError: It was cut off, is damaged, or its codec is not known.
    """
    if not any(data.startswith(magic) for magic in (_LZ4_BLOCK, _SNAPPY, _ZSTD, _LZF)):
        raise ValueError("it is compressed with none of Spark's codecs")
    if not is_whole_stream(lambda offset, length: data[offset : offset + length], len(data)):
        raise ValueError("it was cut off")
    try:
        return b"".join(_blocks(data, 1 << 20))
    except _DAMAGES as error:
        raise ValueError(f"it cannot be decompressed ({type(error).__name__}: {error})") from error


def _blocks(data: bytes, length: int) -> Iterator[bytes]:
    """The stream's blocks; of a codec that has none, pieces of this length."""
    if data.startswith(_LZ4_BLOCK):
        yield from _lz4_blocks(data)
    elif data.startswith(_SNAPPY):
        yield from _snappy_blocks(data)
    elif data.startswith(_ZSTD):
        import pyarrow as pa

        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while piece := bytes(stream.read(length)):
                yield piece
    elif data.startswith(_LZF):
        yield from _lzf_blocks(data)


def is_whole_stream(read_at: Callable[[int, int], bytes], size: int) -> bool:
    """Tells whether a compressed file was cut off, from its end.

    Args:
        read_at: Reads (offset, length) of it.
        size: In bytes.

    Returns:
        False for an empty file and for one that lacks the mark which ends an LZ4 stream, Spark's default: that takes a
        few bytes. Of other codecs all of the file is read. What no codec has written counts as whole.
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
        return _zstd_is_whole(read_at(0, size))
    if head == _SNAPPY:
        return _ends_of(read_at(0, size), _SNAPPY_HEADER, 4, lambda block: 4 + int.from_bytes(block, "big"))
    if head.startswith(_LZF):
        return _ends_of(read_at(0, size), 0, 5, lambda chunk: (7 if chunk[2] else 5) + int.from_bytes(chunk[3:], "big"))
    return True


def _zstd_is_whole(data: bytes) -> bool:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while stream.read(1 << 20):
                pass
    except (OSError, pa.ArrowException):
        return False
    return True


def _ends_of(data: bytes, at: int, header: int, length: Callable[[bytes], int]) -> bool:
    """Whether the last block ends where the data does."""
    while at + header <= len(data):
        at += length(data[at : at + header])
    return at == len(data)


def _lz4_blocks(data: bytes) -> Iterator[bytes]:
    """LZ4BlockOutputStream of lz4-java: blocks with a header of little-endian lengths."""
    import pyarrow as pa

    codec = pa.Codec("lz4_raw")
    at = 0
    while data[at : at + 8] == _LZ4_BLOCK:
        method = data[at + 8] & 0xF0
        packed = int.from_bytes(data[at + 9 : at + 13], "little")
        size = int.from_bytes(data[at + 13 : at + 17], "little")
        block = data[at + _LZ4_HEADER : at + _LZ4_HEADER + packed]
        if len(block) < packed or not size:
            break
        yield block if method == 0x10 else codec.decompress(block, size, asbytes=True)
        at += _LZ4_HEADER + packed


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """SnappyOutputStream of snappy-java: a header, then blocks with a big-endian length; each says its own size."""
    import pyarrow as pa

    codec = pa.Codec("snappy")
    at = _SNAPPY_HEADER
    while at + 4 <= len(data):
        packed = int.from_bytes(data[at : at + 4], "big")
        block = data[at + 4 : at + 4 + packed]
        if len(block) < packed:
            break
        yield codec.decompress(block, _varint(block), asbytes=True)
        at += 4 + packed


def _varint(data: bytes) -> int:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("a length without an end")


def _lzf_blocks(data: bytes) -> Iterator[bytes]:
    """LZFOutputStream of compress-lzf: chunks 'ZV', type, big-endian lengths."""
    at = 0
    while data[at : at + 2] == _LZF and at + 5 <= len(data):
        packed = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at + 2] == 0:
            yield data[at + 5 : at + 5 + packed]
            at += 5 + packed
        else:
            yield _lzf_chunk(data[at + 7 : at + 7 + packed])
            at += 7 + packed


def _lzf_chunk(data: bytes) -> bytes:
    """Back references of up to 264 bytes, at most 8 KiB back."""
    out, at = bytearray(), 0
    while at < len(data):
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
        for i in range(count + 2):
            out.append(out[start + i])
    return bytes(out)
