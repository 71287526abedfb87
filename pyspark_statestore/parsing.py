"""Reads JSON and zips that somebody else may have written: with bounds, which no honest file reaches.

Nothing is read that is longer, deeper or larger than its bound, so what is in a checkpoint cannot use up the memory of
the process that looks at it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

LONGEST = 64 << 20
"""Bytes of a text at most: about as many as a pin of a million names, or a snapshot's metadata with as many files."""

DEEPEST = 100
"""How deep objects and arrays may be nested. Spark's schemas are the deepest that there are."""

LARGEST = (1 << 63) - 1
"""The largest whole number of Java and of Arrow."""

# A string without an end matches, too: otherwise every quote in it would be tried again.
_STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_NO_NAMES = frozenset(("", ".", ".."))
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: bytes | str, longest: int = LONGEST) -> Any:
    """Parses JSON.

    Args:
        text: The text, as UTF-8 or decoded.
        longest: Bytes that it may have at most.

    Raises:
        ValueError: It is no JSON, or it is longer, deeper or has larger numbers than Spark and this package write, or a
            name of an object twice.
    """
    if len(text) > longest:
        raise ValueError(f"it has {len(text)} bytes of JSON, and at most {longest} are read")
    decoded = text if isinstance(text, str) else text.decode("utf-8")
    _check_depth(decoded)
    found = _DECODER.decode(decoded)
    if _SURROGATE.search(decoded):
        json.dumps(found, ensure_ascii=False).encode("utf-8")  # halves of characters cannot be written anywhere
    return found


def parse_object(text: bytes | str, longest: int = LONGEST) -> dict[str, Any]:
    """Parses a JSON object.

    Raises:
        ValueError: As :func:`parse_json`, or it is no object.
    """
    found = parse_json(text, longest)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def objects(value: object, what: str) -> list[dict[str, Any]]:
    """Returns the objects of an array; none where the value is None.

    Args:
        value: The parsed value; None where there was none.
        what: The name of the value, for the message.

    Raises:
        ValueError: The value is no array of objects.
    """
    found = [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{what} is no array of objects")
    return found


def whole_number(value: object, what: str, most: int = LARGEST) -> int:
    """Returns a whole number from 0 on.

    Args:
        value: The parsed value.
        what: The name of the value, for the message.
        most: The largest allowed number.

    Raises:
        ValueError: The value is no such number.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{what} is no whole number from 0 to {most}")
    return value


def relative_path(value: object, what: str) -> str:
    """Returns a path that leads to something below the directory that it is for, and is the only text that does.

    The same as ``SinkPaths.isPlain`` of the jar.

    Args:
        value: The parsed value.
        what: What the path is of, for the message.

    Raises:
        ValueError: The value is no such path: it is absolute, or has ``..`` in it.
    """
    if not isinstance(value, str) or "\0" in value or not _NO_NAMES.isdisjoint(value.split("/")):
        raise ValueError(f"it names {value!r}, which is no path of {what}")
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for found in _STRUCTURE.finditer(text):
        if found[0] in ("[", "{"):
            depth += 1
        elif found[0] in ("]", "}"):
            depth -= 1
        if depth > DEEPEST:
            raise ValueError(f"its JSON is nested more than {DEEPEST} times")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it has {constant}, which is no number in JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Nobody writes a name twice, but two lines of which the middle is missing have names twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object in it has a name twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:20]} in it is too large")
    return number


# Made once: a list of files has millions of texts.
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_each_once)

# Zips.

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The methods that Java and this package write. Others cannot be unpacked in bounded memory, not even in part."""


@contextmanager
def opened_zip(data: bytes, most: int) -> Iterator[zipfile.ZipFile]:
    """Opens a zip and checks its bounds.

    Args:
        data: The whole zip.
        most: Bytes that everything in it may have together.

    Raises:
        ValueError: It is no zip, it is too large, or something that the block reads is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check(archive, most)
            yield archive
    except ValueError:
        raise
    except Exception as error:  # what zipfile and its decompressors raise at something else is no short list
        raise ValueError(f"it is no whole zip ({type(error).__name__}: {error})") from error


def _check(archive: zipfile.ZipFile, most: int) -> None:
    infos = archive.infolist()
    if not all(info.compress_type in _METHODS for info in infos):
        raise ValueError("something in the zip is compressed in a way that Java does not write")
    # zipfile stops unpacking a file where the size that is said here is reached.
    size = sum(info.file_size for info in infos)
    if size > most:
        raise ValueError(f"the zip unpacks to {size} bytes, and at most {most} are unpacked")
