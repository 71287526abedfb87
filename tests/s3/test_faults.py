"""Faults of HTTP between S3A and the server: results are right, and nothing is left behind."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from tests.s3.conftest import MakeQuery
from tests.s3.harness import Query
from tests.s3.local_s3 import IMPATIENT
from tests.s3.proxy import Fault, Injected, Rule
from tests.sampling import sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="queries on S3")]

# Tasks are tried again where S3A gives up.
CONF = {"spark.master": "local[2,4]"}

# S3A tries again, and nobody hears of it.
PATIENT = [Fault.SLOW_DOWN, Fault.LOSE_ANSWER, Fault.CUT_BODY]
# S3A gives up at once: the group fails, and so do the tasks. With the last one the server acts, and the client does not
# wait for the answer that long.
HASTY = [Fault.SLOW_DOWN, Fault.LOSE_ANSWER, Fault.CUT_BODY, Fault.HOLD_ANSWER]


def check(query: Query) -> None:
    """Results are right, also where somebody begins anew and answers are slow, and every object is known."""
    query.check()
    assert query.uploads() == []
    assert query.plain_state_files() == []
    checkpoint = query.checkpoint()
    assert checkpoint.maintenance.verify().is_clean
    known = checkpoint.inspect.files()["file_path"].to_pylist()
    assert {f"{query.url}/{name}" for name in query.merged_files()} == set(known)
    query.forget()
    query.s3.proxy.latency = 0.02
    try:
        query.run(1)
    finally:
        query.s3.proxy.latency = 0.0
    query.check()


@pytest.mark.sweep
def test_s3a_tries_again(make_query: MakeQuery) -> None:
    query = make_query("provider", "heap", **CONF)
    query.run(1)
    for fault in sample(PATIENT, 2):
        # So that there is something to read.
        query.forget()
        with injected(query, fault, "PUT") as put, injected(query, fault, "GET") as got:
            query.run(1)
        assert (len(put.hits), len(got.hits)) == (1, 1), fault
    check(query)


@pytest.mark.sweep
def test_s3a_gives_up(make_query: MakeQuery) -> None:
    query = make_query("provider", "heap", IMPATIENT, **CONF)
    query.run(1)
    for fault in sample(HASTY, 2):
        with injected(query, fault, "PUT") as put:
            query.run(1)
        assert len(put.hits) == 1, fault
    check(query)


def injected(query: Query, fault: Fault, kind: str) -> AbstractContextManager[Injected]:
    """Lets one request about a merged file fail."""
    return query.s3.proxy.fault(fault, Rule({kind}, key=f"{query.key}/state/_merged/"))
