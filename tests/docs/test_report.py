"""docs/report.md lists the rules of the code, and their limits are those of the jar."""

from __future__ import annotations

import re

from pyspark_statestore.conf import OPTIONS
from pyspark_statestore.report import advice, sink_advice
from pyspark_statestore.sink import sink, waiting
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
JAVA = ROOT / "jvm-shim" / "src" / "main" / "java" / "io" / "pyspark" / "statestore"


def rules_in_code() -> set[str]:
    sources = (ROOT / "pyspark_statestore" / "report").glob("*.py")
    return {
        rule for path in sources for rule in re.findall(r'Advice\(\s*"([a-z-]+)"', path.read_text(encoding="utf-8"))
    }


def constant(name: str, number: str) -> int:
    [path] = JAVA.rglob(f"{name}.java")
    found = re.search(rf"static final int {number} = (\d+);", path.read_text(encoding="utf-8"))
    assert found
    return int(found[1])


def test_every_rule_is_on_the_page() -> None:
    table = PAGE.partition("| rule | how urgent |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])]
    assert len(listed) == len(set(listed))
    assert set(listed) == rules_in_code()


def test_limits_are_those_of_the_jar_and_of_the_page() -> None:
    assert constant("Consolidation", "MOST_OPENS") == advice.MOST_OPENS
    assert constant("SizeTiers", "MANY") == advice.MANY_SMALL
    assert constant("SizeTiers", "RATIO") == int(OPTIONS["maxFileSize"].parse("128m")) // advice.SMALL_FILE
    assert sink.TARGET_FILE_SIZE == sink_advice.TARGET_FILE_SIZE
    assert waiting.LEAST_IDLE == sink_advice.IDLE
    for limit in (
        f"more than {advice.MOST_AMPLIFICATION:.1f} bytes",
        f"more than {advice.MANY_SMALL} merged files",
        f"more than {advice.MOST_OPENS} files",
        f"more than {2 * advice.RETAINED} versions",
        f"more than {advice.SKEWED:g} times the average",
        f"more than {sink_advice.FEW} files below 128 MiB",
    ):
        assert limit in PAGE
