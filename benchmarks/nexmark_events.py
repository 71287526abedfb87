"""Nexmark's events: persons, auctions and bids of an auction site, the same in every run, one Parquet file a batch.

The rules are those of the generator that Nexmark's users know: of 50 events one is a person, three are auctions and 46
are bids. Half of all bids are for one hot auction, three quarters of them by one hot bidder, and three quarters of the
auctions are by one hot seller; another one becomes hot with every hundredth. The other bids are for the last hundred
auctions and some that do not exist yet, by the last thousand persons. Prices are spread evenly over six powers of ten.
An auction lasts until, on average, a hundred more were opened. Columns ``extra`` fill events up to 200, 500 and 100
bytes on average.

Events are in the order of their time. A file is made of a seed and its number alone, all columns at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PERSONS, AUCTIONS, BIDS = 1, 3, 46
ROUND = PERSONS + AUCTIONS + BIDS
PERSON, AUCTION, BID = 0, 1, 2
"""Values of ``event_type``."""

FIRST_ID = 1000
HOT = 100
"""Of so many auctions, sellers or bidders, one is hot."""
IN_FLIGHT, ACTIVE, LEAD = 100, 1000, 10
CHANNELS = 10_000
START = datetime(2013, 1, 1, tzinfo=timezone.utc)
CLOSING_FILES = 2
"""The first one moves the watermark past everything, and the second one is the batch in which that counts."""

_PERSON = (
    "id: bigint, name: string, emailAddress: string, creditCard: string, city: string, state: string, "
    "dateTime: timestamp, extra: string"
)
_AUCTION = (
    "id: bigint, itemName: string, description: string, initialBid: bigint, reserve: bigint, dateTime: timestamp, "
    "expires: timestamp, seller: bigint, category: bigint, extra: string"
)
_BID = (
    "auction: bigint, bidder: bigint, price: bigint, channel: string, url: string, dateTime: timestamp, extra: string"
)
SCHEMA = f"event_type int, arrival timestamp, person struct<{_PERSON}>, auction struct<{_AUCTION}>, bid struct<{_BID}>"
"""Of the files. In each row one of the three structs is there, as ``event_type`` says."""

_MICROS = 1_000_000
_TIME = pa.timestamp("us", tz="UTC")
_POOL_BYTES = 1 << 20


@dataclass(frozen=True)
class Shape:
    """How many events there are, and how fast.

    Attributes:
        batches: Files with events.
        events: Events in each of them.
        seconds: Event time that each of them spans. Nexmark's windows last ten seconds.
        seed: Of everything random.
        warm_up: Batches before, of which nothing is measured.
    """

    batches: int = 20
    events: int = 10_000
    seconds: int = 10
    seed: int = 20130101
    warm_up: int = 0

    @property
    def longest_auction_seconds(self) -> int:
        """No auction is open for longer."""
        return -(-(2 * self.horizon_millis + 1) // 1000)

    @property
    def horizon_millis(self) -> int:
        """After that time, a hundred more auctions were opened."""
        return -(-(IN_FLIGHT * ROUND // AUCTIONS) * self.seconds * 1000 // self.events)


def write_files(shape: Shape, directory: Path, closing: bool = False) -> list[Path]:
    """Writes the events.

    Args:
        shape: How many.
        directory: Where to; it must not exist.
        closing: Whether to add files that let the watermark pass all events. Each has a person, an auction and a bid
            that have nothing to do with any other, an hour later than what came before.

    Returns:
        The files in their order.
    """
    directory.mkdir(parents=True)
    files = []
    strings = _Strings(shape.seed)
    for number in range(shape.batches):
        files.append(directory / f"{number:05}.parquet")
        pq.write_table(_batch(shape, number, strings), files[-1])
    for number in range(CLOSING_FILES if closing else 0):
        files.append(directory / f"{shape.batches + number:05}.parquet")
        pq.write_table(_closing(shape, number, strings), files[-1])
    return files


class _Strings:
    """Random strings: pieces of a long one."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng([seed, 1 << 32])
        self._letters = random.integers(ord("a"), ord("z") + 1, _POOL_BYTES).astype(np.uint8)
        self._gaps = random.random(_POOL_BYTES) < 1 / 13
        base = ["https://www.nexmark.com", *(self._words(random, CHANNELS + 4, 5, "_") for _ in range(3))]
        plain = pc.binary_join_element_wise(*base, "item.htm?query=1", "/")
        ids = (np.arange(CHANNELS + 4, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(1 << 31)
        named = pc.binary_join_element_wise(plain, pa.array(ids.astype(str)), "&channel_id=")
        has_id = random.random(CHANNELS + 4) < 0.9
        has_id[:4] = False
        self.urls = pc.if_else(pa.array(has_id), named, plain)
        self.channels = pa.array(["Google", "Facebook", "Baidu", "Apple", *(f"channel-{i}" for i in range(CHANNELS))])

    def exact(self, random: np.random.Generator, lengths: Any, gap: str = "") -> Any:
        """Strings of these lengths; with a gap, every thirteenth character is one."""
        ends = np.concatenate([[0], np.cumsum(lengths)])
        begins = random.integers(0, _POOL_BYTES - int(lengths.max(initial=0)), len(lengths))
        where = np.repeat(begins - ends[:-1], lengths) + np.arange(ends[-1])
        data = self._letters[where]
        if gap:
            data = np.where(self._gaps[where], np.uint8(ord(gap)), data)
        return pa.StringArray.from_buffers(
            len(lengths), pa.py_buffer(ends.astype(np.int32).tobytes()), pa.py_buffer(data.tobytes())
        )

    def _words(self, random: np.random.Generator, count: int, most: int, gap: str) -> Any:
        return self.exact(random, random.integers(3, most, count), gap)

    def text(self, random: np.random.Generator, count: int, most: int) -> Any:
        """Strings of three to ``most`` characters, with spaces that are not at their ends."""
        return pc.utf8_trim_whitespace(self._words(random, count, most, " "))

    def extra(self, random: np.random.Generator, sizes: Any, average: int) -> Any:
        """What fills up events of these sizes to an average, give or take a fifth."""
        rest = np.maximum(average - sizes, 0)
        delta = np.rint(rest * 0.2).astype(np.int64)
        lengths = rest - delta + (random.random(len(sizes)) * 2 * delta).astype(np.int64)
        return self.exact(random, lengths)


def _batch(shape: Shape, number: int, strings: _Strings) -> pa.Table:
    random = np.random.default_rng([shape.seed, number])
    event: Any = np.arange(shape.events, dtype=np.int64) + number * shape.events
    rounds, place = np.divmod(event, ROUND)
    kind = np.where(place < PERSONS, PERSON, np.where(place < PERSONS + AUCTIONS, AUCTION, BID))
    # The newest of each when the event happens, counted from 0.
    person = rounds
    auction = rounds * AUCTIONS + np.where(kind == PERSON, -1, np.minimum(place - PERSONS, AUCTIONS - 1))
    millis: Any = event * shape.seconds * 1000 // shape.events
    structs = (
        _persons(random, strings, person[kind == PERSON], millis[kind == PERSON]),
        _auctions(random, strings, shape, *(each[kind == AUCTION] for each in (person, auction, millis))),
        _bids(random, strings, *(each[kind == BID] for each in (person, auction, millis))),
    )
    return _table(kind, millis, structs)


def _table(kind: Any, millis: Any, structs: tuple[Any, Any, Any]) -> pa.Table:
    """Puts the structs of each kind into the rows that are of it."""
    columns: dict[str, Any] = {
        "event_type": pa.array(kind, pa.int32()),
        # An event gets into the log up to two seconds after it happened, in the order of the log.
        "arrival": _times(millis // 1000 * 1000 + 2000),
    }
    for which, (name, struct) in enumerate(zip(("person", "auction", "bid"), structs, strict=True)):
        mine = kind == which
        columns[name] = struct.take(pa.array(np.cumsum(mine) - 1, mask=~mine))
    return pa.table(columns)


def _times(millis: Any) -> Any:
    return pa.array(int(START.timestamp()) * _MICROS + np.asarray(millis, np.int64) * 1000, _TIME)


def _struct(**columns: Any) -> Any:
    arrays = [each if isinstance(each, pa.Array) else pa.array(each, pa.int64()) for each in columns.values()]
    return pa.StructArray.from_arrays(arrays, names=list(columns))


def _prices(random: np.random.Generator, count: int) -> Any:
    return np.rint(10 ** (random.random(count) * 6) * 100).astype(np.int64)


def _one_of(random: np.random.Generator, count: int, values: str) -> Any:
    choices = values.split(",")
    return pa.array(choices).take(pa.array(random.integers(0, len(choices), count)))


def _some_person(random: np.random.Generator, newest: Any) -> Any:
    """One of the active ones, or one that does not exist yet."""
    active = np.minimum(newest + 1, ACTIVE)
    return newest + 1 - active + random.integers(0, active + LEAD)


def _lengths(*columns: Any) -> Any:
    return sum(np.asarray(pc.utf8_length(each), np.int64) for each in columns)


def _persons(random: np.random.Generator, strings: _Strings, person: Any, millis: Any) -> Any:
    count = len(person)
    join = pc.binary_join_element_wise
    first = _one_of(random, count, "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter")
    name = join(first, _one_of(random, count, "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris"), " ")
    email = join(join(strings.text(random, count, 7), strings.text(random, count, 5), "@"), "com", ".")
    digits = (pa.array(np.char.zfill(random.integers(0, 10_000, count).astype(str), 4)) for _ in range(4))
    card = join(*digits, " ")
    cities = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne"
    city, state = _one_of(random, count, cities), _one_of(random, count, "AZ,CA,ID,OR,WA,WY")
    return _struct(
        id=person + FIRST_ID,
        name=name,
        emailAddress=email,
        creditCard=card,
        city=city,
        state=state,
        dateTime=_times(millis),
        extra=strings.extra(random, 8 + _lengths(name, email, card, city, state), 200),
    )


def _auctions(
    random: np.random.Generator, strings: _Strings, shape: Shape, person: Any, auction: Any, millis: Any
) -> Any:
    count = len(auction)
    hot = random.integers(0, 4, count) > 0
    name, description = strings.text(random, count, 20), strings.text(random, count, 100)
    first = _prices(random, count)
    return _struct(
        id=auction + FIRST_ID,
        itemName=name,
        description=description,
        initialBid=first,
        reserve=first + _prices(random, count),
        dateTime=_times(millis),
        expires=_times(millis + 1 + random.integers(0, max(2 * shape.horizon_millis, 1), count)),
        seller=np.where(hot, person // HOT * HOT, _some_person(random, person)) + FIRST_ID,
        category=10 + random.integers(0, 5, count),
        extra=strings.extra(random, 48 + _lengths(name, description), 500),
    )


def _bids(random: np.random.Generator, strings: _Strings, person: Any, auction: Any, millis: Any) -> Any:
    count = len(auction)
    oldest = np.maximum(auction - IN_FLIGHT, 0)
    some_auction = oldest + random.integers(0, auction - oldest + 1 + LEAD)
    hot_auction, hot_bidder = random.integers(0, 2, count) > 0, random.integers(0, 4, count) > 0
    hot_channel = random.integers(0, 2, count) > 0
    channel = np.where(hot_channel, random.integers(0, 4, count), 4 + random.integers(0, CHANNELS, count))
    return _struct(
        auction=np.where(hot_auction, auction // HOT * HOT, some_auction) + FIRST_ID,
        # Not the first one: hot bidders are no hot sellers.
        bidder=np.where(hot_bidder, person // HOT * HOT + 1, _some_person(random, person)) + FIRST_ID,
        price=_prices(random, count),
        channel=strings.channels.take(pa.array(channel)),
        url=strings.urls.take(pa.array(channel)),
        dateTime=_times(millis),
        extra=strings.extra(random, np.full(count, 32), 100),
    )


def _closing(shape: Shape, number: int, strings: _Strings) -> pa.Table:
    """A person, an auction and a bid, each with ids that no other event has."""
    random = np.random.default_rng([shape.seed, shape.batches + number])
    at = np.array([shape.batches * shape.seconds * 1000 + (number + 1) * 3_600_000])
    strange = np.array([-FIRST_ID - 10 * (number + 1)])
    structs = (
        _persons(random, strings, strange, at),
        _with_ids(_auctions(random, strings, shape, np.zeros(1, np.int64), strange + 1, at), seller=strange - 1),
        _with_ids(
            _bids(random, strings, np.zeros(1, np.int64), np.zeros(1, np.int64), at),
            auction=strange - 2,
            bidder=strange - 3,
        ),
    )
    return _table(np.arange(3), np.repeat(at, 3), structs)


def _with_ids(struct: Any, **ids: Any) -> Any:
    columns = dict(zip([field.name for field in struct.type], struct.flatten(), strict=True))
    return _struct(**columns | {name: pa.array(value, pa.int64()) for name, value in ids.items()})
