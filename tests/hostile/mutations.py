"""What somebody might make of a small file."""

from __future__ import annotations

import json
import random
import zipfile
from io import BytesIO
from typing import Any

import pyarrow as pa

from tests.inspect.spark_files import lz4, snappy, zstd

MARK = "put-it-here"

TEXTS = (
    *("9223372036854775807", "9223372036854775808", "18446744073709551616", "-1", "2147483648", "1" + "0" * 5000),
    *(
        "1e999",
        "-1e999",
        "NaN",
        "Infinity",
        "0.5",
        "true",
        "null",
        '""',
        "[]",
        "{}",
        '"x"',
        '["x"]',
        '{"a":1}',
        "[[1]]",
    ),
    *('"\\ud800"', '"\\u0000"', '"../../x"', '"/etc/passwd"', '"a/b"', '"1"', '"-5"', '"' + "x" * 5000 + '"'),
    *("[" * 90 + "]" * 90, "[" * 300 + "]" * 300, "[" * 100_000, '{"a":' * 100_000, "[1,", '"', "\\", ""),
)
"""Put in the place of a value."""

LENGTHS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\x7f\xff")


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Something else than these bytes, but near to them."""
    kinds = [_flipped, _cut, _length, _inserted, _repeated]
    if b"{" in data:
        kinds += [_json] * 10
    if data.startswith(b"PK"):
        kinds = [*kinds[:5], *[_zip] * 10]
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        kinds += [_packed] * 10
    return chance.choice(kinds)(data, chance)


def _flipped(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data or b"x")
    for _ in range(chance.choice((1, 1, 1, 8))):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _length(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(LENGTHS) + data[at + 4 :]


def _inserted(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice((b"\0", b"\n", b"\xff", b"\xf0\x9f", chance.randbytes(20))) + data[at:]


def _repeated(data: bytes, chance: random.Random) -> bytes:
    return data * chance.choice((2, 50))


def _json(data: bytes, chance: random.Random) -> bytes:
    """Puts something else in the place of a value of the JSON."""
    lines = data.decode("latin-1").split("\n")
    rows = [number for number, line in enumerate(lines) if "{" in line]
    row = chance.choice(rows)
    begin = lines[row].index("{")
    try:
        found = json.loads(lines[row][begin:])
    except ValueError:
        return _flipped(data, chance)
    places = list(_places(found))
    if not places:
        return _flipped(data, chance)
    holder, key = chance.choice(places)
    if isinstance(holder, dict) and chance.random() < 0.2:
        del holder[key]
    elif chance.random() < 0.2 and isinstance(holder, list):
        holder.extend(holder[key : key + 1] * 50)
    else:
        holder[key] = MARK
    text = json.dumps(found).replace(json.dumps(MARK), chance.choice(TEXTS))
    lines[row] = lines[row][:begin] + text
    return "\n".join(lines).encode("latin-1")


def _places(found: Any) -> list[tuple[Any, Any]]:
    items = list(found.items()) if isinstance(found, dict) else list(enumerate(found))
    below = [place for _, each in items if isinstance(each, (dict, list)) for place in _places(each)]
    return [(found, key) for key, _ in items] + below


def _zip(data: bytes, chance: random.Random) -> bytes:
    """The same zip with other metadata, or another name in it."""
    out = BytesIO()
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
            chosen = chance.choice(archive.namelist())
            for name in archive.namelist():
                inside = archive.read(name)
                if name == "metadata" or name == chosen:
                    inside = mutated(inside, chance)
                if name == chosen and chance.random() < 0.2:
                    name = chance.choice(("../x", "/x", "a/b", "", "x" * 300, "offsets/x", "offsets/9"))
                made.writestr(name, inside)
    except Exception:
        return _flipped(data, chance)
    return out.getvalue()


def _packed(data: bytes, chance: random.Random) -> bytes:
    """What is compressed, changed and compressed again."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            plain = bytes(stream.read())
    except OSError:
        return _flipped(data, chance)
    packed = chance.choice((lz4, snappy, zstd))(mutated(plain, chance))
    return packed if chance.random() < 0.7 else chance.choice((_flipped, _length, _cut))(packed, chance)
