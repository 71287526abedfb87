"""The package's import is light, lazy and never fails."""

import inspect
import subprocess
import sys

import pytest

import pyspark_statestore

HEAVY = ("pyspark", "py4j", "pyarrow", "numpy", "pandas", "fsspec", "click", "rich", "google_crc32c", "rocksdict")


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("code", ["", "; pyspark_statestore.merged_path('/x'); pyspark_statestore.OPTIONS"])
def test_nothing_heavy_is_imported(code: str) -> None:
    loaded = f"print([name for name in {HEAVY!r} if name in sys.modules])"

    assert _run(f"import sys, pyspark_statestore{code}; {loaded}") == "[]"


def test_the_format_needs_neither_spark_nor_fsspec() -> None:
    loaded = "print([name for name in ('pyspark', 'py4j', 'fsspec') if name in sys.modules])"
    code = """
import io, sys
from pyspark_statestore.format import *
out = io.BytesIO()
file = MergedFileWriter(out, writer=1, created_ms=2)
file.put("0/0/default/1.changelog", b"abc", stamp=1)
file.seal()
read_merged_file(BytesSource(out.getvalue())).to_arrow()
"""

    assert _run(f"{code}\n{loaded}") == "[]"


def test_the_import_survives_without_any_dependency() -> None:
    code = f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None
import pyspark_statestore
print(pyspark_statestore.__version__)
"""
    assert _run(code) == pyspark_statestore.__version__


@pytest.mark.parametrize("name", pyspark_statestore.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pyspark_statestore, name) is getattr(pyspark_statestore, name)
    assert name in dir(pyspark_statestore)


def test_nothing_else_is_offered() -> None:
    import pyspark_checkpoint_files

    for module in (pyspark_statestore, pyspark_checkpoint_files):
        assert [name for name in dir(module) if not name.startswith("__")] == [
            name for name in sorted(module.__all__) if not name.startswith("__")
        ]


@pytest.mark.parametrize("name", pyspark_statestore._HOMES)
def test_every_name_is_where_it_is_said_to_be(name: str) -> None:
    assert getattr(pyspark_statestore, name).__name__ == name if "OPTIONS" not in name else True


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pyspark_statestore.no_such_name


@pytest.mark.parametrize(("name", "of_the_path"), [("fork", "src"), ("convert", "path"), ("export", "path")])
def test_functions_of_a_path_take_what_the_methods_take(name: str, of_the_path: str) -> None:
    method = inspect.signature(getattr(pyspark_statestore.Checkpoint, name)).parameters
    function = dict(inspect.signature(getattr(pyspark_statestore, name)).parameters)
    # The method's storage options are those of the destination.
    expected = {{"storage_options": "dst_storage_options"}.get(each, each): it for each, it in method.items()}
    expected.pop("self")

    of_the_checkpoint = {each: function.pop(each) for each in (of_the_path, "storage_options", "closed_after")}
    assert {each: it.default for each, it in function.items()} == {each: it.default for each, it in expected.items()}
    opened = inspect.signature(pyspark_statestore.Checkpoint).parameters
    assert [it.default for it in of_the_checkpoint.values()] == [it.default for it in opened.values()]
