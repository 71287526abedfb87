"""What executors unpack though somebody else may have made it, or though it is nothing that can be unpacked."""

from __future__ import annotations

import struct
import zlib

import pytest

from tests.jvm.harness import Checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]


def bomb(name: bytes, mebibytes: int) -> bytes:
    """The start of a zip whose one entry unpacks to so much; nothing of it says so beforehand."""
    pack = zlib.compressobj(1, zlib.DEFLATED, -15)
    block = pack.compress(bytes(16 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    head = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 8, 8, 0, 0, 0, 0, 0, len(name), 0)
    return head + name + block * (mebibytes // 16) + pack.flush()


@pytest.mark.parametrize("name", [b"metadata", b"MANIFEST-000001"])
def test_a_zip_that_unpacks_to_gigabytes_is_not_unpacked(checkpoint: Checkpoint, name: bytes) -> None:
    data = bomb(name, 2304)

    checkpoint.write("0/0/2.zip", data)

    assert checkpoint.read("0/0/2.zip") == data


@pytest.mark.parametrize("data", [b"", b"PK", b"PK\x03\x04", bomb(b"metadata", 16)[:-9], bomb(b"\xff", 16)[:300]])
def test_what_is_no_zip_names_nothing(checkpoint: Checkpoint, data: bytes) -> None:
    checkpoint.write("0/0/2.zip", data)

    assert checkpoint.read("0/0/2.zip") == data
