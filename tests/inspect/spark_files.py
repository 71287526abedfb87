"""Files as Spark's state stores write them, as far as the start of a changelog and a snapshot's zip go."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import pyarrow as pa

LZ4_END = b"LZ4Block" + b"\x16" + bytes(12)


def lz4(data: bytes, block: int = 1 << 15) -> bytes:
    """As lz4-java's LZ4BlockOutputStream writes; the checksums of the blocks are not looked at."""
    out = b""
    for start in range(0, len(data), block):
        part = data[start : start + block]
        packed = pa.Codec("lz4_raw").compress(part, asbytes=True)
        method = 0x20 if len(packed) < len(part) else 0x10
        packed = packed if method == 0x20 else part
        out += b"LZ4Block" + bytes([method | 6]) + struct.pack("<iii", len(packed), len(part), 7) + packed
    return out + LZ4_END


def snappy(data: bytes, block: int = 1 << 15) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block):
        packed = pa.Codec("snappy").compress(data[start : start + block], asbytes=True)
        out += struct.pack(">i", len(packed)) + packed
    return out


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def lzf(data: bytes) -> bytes:
    """Literal runs and stored chunks only."""
    out = b""
    for start in range(0, len(data), 60):
        part = data[start : start + 60]
        runs = b"".join(bytes([len(part[i : i + 32]) - 1]) + part[i : i + 32] for i in range(0, len(part), 32))
        if start % 120:
            out += b"ZV\x00" + struct.pack(">H", len(part)) + part
        else:
            out += b"ZV\x01" + struct.pack(">HH", len(runs), len(part)) + runs
    return out


def changelog(lineage: dict[int, str] | None, version: str = "v4", rest: bytes = b"\x00" * 1000) -> bytes:
    def utf(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode()

    items = [{"version": v, "checkpointUniqueId": i} for v, i in (lineage or {}).items()]
    return utf(version) + (utf(json.dumps(items)) if lineage is not None else b"") + rest


def snapshot(metadata: str, *, first_line: str = "v1\n") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("MANIFEST-000005", b"x")
        archive.writestr("metadata", first_line + metadata)
    return out.getvalue()
