"""configure() on a builder: no JVM is needed for it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import OPTIONS, SINK_OPTIONS, StateStoreFilesError, __version__, attach, configure
from pyspark_statestore.conf import PREFIX
from pyspark_statestore.paths import SCHEMES
from pyspark_statestore.session import configure as configuring
from pyspark_statestore.session import doors
from pyspark_statestore.session import jvm as this_jvm

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
OURS = "io.pyspark.statestore.fs.MergedCheckpointFileManager"
PLUGIN = "io.pyspark.statestore.spark.FileMergingPlugin"
EXTENSIONS = "io.pyspark.statestore.spark.MergedStateExtensions"
STOCK = "org.apache.spark.sql.execution.streaming.state."
PROTOCOL = "spark.sql.streaming.commitProtocolClass"
OWN_MANAGER = OPTIONS["fileManagerClass"].key
MINOR = ".".join(pyspark.__version__.split(".")[:2])
JAR = f"/lib/pyspark-statestore-shim-spark-{MINOR}-{__version__}.jar"


@pytest.fixture(autouse=True)
def _no_jvm_and_a_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """These tests are about settings; other tests of the same process may have a JVM, and a jar may not be built."""
    monkeypatch.setattr(configuring, "jar_path", lambda: JAR)
    for module in (configuring, this_jvm):
        monkeypatch.setattr(module, "running_jvm", lambda: None)
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def configured(builder: SparkSession.Builder | None = None, **arguments: Any) -> dict[str, str]:
    return dict(configure(builder or SparkSession.builder, **arguments)._options)


def test_provider_door() -> None:
    options = configured()

    assert options[PROVIDER] == "io.pyspark.statestore.spark.MergedRocksDBStateStoreProvider"
    assert options[MANAGER] == OURS
    assert options["spark.jars"] == JAR
    assert options["spark.sql.extensions"] == EXTENSIONS
    assert options["spark.plugins"] == PLUGIN
    assert options[OPTIONS["shimVersion"].key] == __version__
    for scheme in SCHEMES:
        assert options[f"spark.hadoop.fs.merged+{scheme}.impl"] == "io.pyspark.statestore.fs.MergedFileSystem"


def test_the_other_doors_and_stores() -> None:
    heap = "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider"
    assert configured(store="heap")[PROVIDER] == heap
    path = configured(mode="path")
    assert (path[PROVIDER], path[MANAGER]) == (f"{STOCK}RocksDBStateStoreProvider", OURS)
    assert configured(mode="path", store="heap")[PROVIDER] == f"{STOCK}HDFSBackedStateStoreProvider"


def test_file_sinks_compact_where_they_are_asked_to() -> None:
    assert PROTOCOL not in configured()
    options = configured(sink=True, sink_target_file_size="64m")
    assert options[PROTOCOL] == "io.pyspark.statestore.sink.CompactingCommitProtocol"
    assert options[SINK_OPTIONS["targetFileSize"].key] == "64m"
    stock = "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"
    assert configured(SparkSession.builder.config(PROTOCOL, stock), sink=True)[PROTOCOL] == options[PROTOCOL]


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        ({"sink_target_file_size": "1"}, "PSS_INVALID_OPTION"),
        ({"sink_max_delay": 3}, "PSS_INVALID_OPTION"),
        ({"sink_target_size": "1m"}, "PSS_UNKNOWN_OPTION"),
    ],
)
def test_options_of_sinks_are_checked(arguments: dict[str, Any], id: str) -> None:
    with pytest.raises(StateStoreFilesError, match=id):
        configured(sink=True, **arguments)


@pytest.mark.parametrize(
    "builder", ["x", None, 5, SparkSession, SparkSession.Builder, {"spark.master": "local"}], ids=str
)
def test_what_is_no_builder_is_refused(builder: Any) -> None:
    with pytest.raises(
        StateStoreFilesError, match=r"PSS_INVALID_OPTION\] builder = .*configure\(SparkSession\.builder\)"
    ):
        configure(builder)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sink": "yes"}, "sink = 'yes'.*True or False"),
        ({"sink": "no"}, "sink = 'no'.*True or False"),
        ({"sink": None}, "sink = 'None'"),
        ({"sink": 1}, "sink = '1'"),
        ({"mode": None}, "mode = 'None'"),
        ({"mode": ["path"]}, "mode = "),
        ({"store": "RocksDB"}, "store = 'RocksDB'.*'rocksdb' or 'heap'"),
        ({"store": True}, "store = 'True'"),
        *(({name: ...}, r"= 'Ellipsis'") for name in ("max_file_size", "closed_after", "cache_dir", "restore")),
        *(({option.python_name: ["x"]}, option.key) for option in OPTIONS.values() if not option.internal),
        *(({option.python_name: None}, option.key) for option in SINK_OPTIONS.values()),
    ],
    ids=str,
)
def test_any_argument_that_is_wrong_is_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    builder = SparkSession.builder.appName("mine")
    before = dict(builder._options)

    with pytest.raises(StateStoreFilesError, match=f"PSS_INVALID_OPTION.*{said}"):
        configure(builder, **arguments)
    assert builder._options == before


@pytest.mark.parametrize("spark", ["x", None, SparkSession.builder], ids=lambda given: type(given).__name__)
def test_what_is_no_session_is_not_called_stopped(spark: Any) -> None:
    with pytest.raises(StateStoreFilesError, match=r"PSS_SPARK_NOT_RUNNING\] This is no Spark session, but a "):
        attach(spark)


def test_another_commit_protocol_is_not_replaced() -> None:
    builder = SparkSession.builder.config(PROTOCOL, "org.x.Protocol")

    with pytest.raises(StateStoreFilesError, match=r"PSS_CONFLICTING_SETTING.*org\.x\.Protocol"):
        configured(builder, sink=True)
    assert configured(builder)[PROTOCOL] == "org.x.Protocol"


def test_the_builder_is_returned_and_chains() -> None:
    builder = SparkSession.builder.appName("mine")

    assert configure(builder) is builder
    assert builder._options["spark.app.name"] == "mine"


def test_what_the_builder_has_is_kept() -> None:
    builder = SparkSession.builder.config(
        map={
            "spark.jars": "/lib/a.jar, /lib/b.jar",
            "spark.jars.packages": "org.x:y:1",
            "spark.plugins": "org.x.Plugin, org.x.Other",
            "spark.sql.extensions": "org.x.Extensions",
            MANAGER: "org.x.Manager",
        }
    )

    options = configured(builder, mode="path")

    assert options["spark.jars"] == f"/lib/a.jar,/lib/b.jar,{JAR}"
    assert options["spark.jars.packages"] == "org.x:y:1"
    assert options["spark.plugins"] == f"org.x.Plugin,org.x.Other,{PLUGIN}"
    assert options["spark.sql.extensions"] == f"org.x.Extensions,{EXTENSIONS}"
    assert (options[MANAGER], options[OWN_MANAGER]) == (OURS, "org.x.Manager")


@pytest.mark.parametrize("mode", doors.MODES)
def test_the_users_file_manager_is_kept_for_all_that_is_not_state(mode: str) -> None:
    options = configured(SparkSession.builder.config(MANAGER, "org.x.Manager"), mode=mode)

    assert (options[MANAGER], options[OWN_MANAGER]) == (OURS, "org.x.Manager")


def test_what_spark_defaults_says_is_kept(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        f"# spark.jars no\n\nspark.jars   /d/a.jar\nspark.sql.extensions=org.x.E\n{MANAGER}: org.x.M  \n"
        "spark.plugins org.x.P\n"
    )

    options = configured(mode="path")

    assert options["spark.jars"] == f"/d/a.jar,{JAR}"
    assert options["spark.sql.extensions"] == f"org.x.E,{EXTENSIONS}"
    assert options["spark.plugins"] == f"org.x.P,{PLUGIN}"
    assert options[OWN_MANAGER] == "org.x.M"


@pytest.mark.parametrize("mode", doors.MODES)
@pytest.mark.parametrize("store", doors.STORES)
def test_twice_is_as_good_as_once(mode: str, store: str) -> None:
    builder = SparkSession.builder.config(MANAGER, "org.x.Manager")

    once = configured(builder, mode=mode, store=store, max_file_size="1m")

    assert configured(builder, mode=mode, store=store) == once


def test_the_last_call_decides() -> None:
    for own in ({}, {MANAGER: "org.x.Manager"}):
        builder = SparkSession.builder.config(map=own)
        configure(builder, mode="path", store="heap")

        assert configured(builder) == configured(SparkSession.builder.config(map=own))


@pytest.mark.parametrize("words", ["--conf spark.plugins=org.x.P", "-c spark.plugins=org.x.P --conf spark.a=b"])
def test_plugins_of_spark_submit_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.plugins org.x.Hidden\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{words} pyspark-shell")

    assert configured()["spark.plugins"] == f"org.x.P,{PLUGIN}"


def test_plugins_of_a_running_jvm_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As spark-submit starts it before the script: its settings are in the JVM only."""
    monkeypatch.setattr(this_jvm, "running_jvm_conf", lambda: {"spark.plugins": f"org.x.P,{PLUGIN}"})

    assert configured()["spark.plugins"] == f"org.x.P,{PLUGIN}"
    own = SparkSession.builder.config("spark.plugins", "org.x.Own")
    assert configured(own)["spark.plugins"] == f"org.x.Own,{PLUGIN}"


def test_options_are_set_and_checked_at_once() -> None:
    assert configured(max_file_size="1m")[OPTIONS["maxFileSize"].key] == "1m"
    builder = SparkSession.builder.config(OPTIONS["closedAfter"].key, "4s")
    with pytest.raises(StateStoreFilesError, match=r"closedAfter = '4s'.*from 5s"):
        configure(builder)
    assert configured(builder, closed_after="15m")[OPTIONS["closedAfter"].key] == "15m"


@pytest.mark.parametrize(
    ("arguments", "error_class", "word"),
    [
        ({"mode": "both"}, "PSS_INVALID_OPTION", "'provider' or 'path'"),
        ({"store": "RocksDB"}, "PSS_INVALID_OPTION", "'rocksdb' or 'heap'"),
        ({"max_file_size": "huge"}, "PSS_INVALID_OPTION", "maxFileSize"),
        ({"max_files": 1}, "PSS_UNKNOWN_OPTION", "max_files"),
    ],
)
def test_bad_arguments_change_nothing(arguments: dict[str, Any], error_class: str, word: str) -> None:
    builder = SparkSession.builder.config("spark.jars", "/lib/a.jar")

    with pytest.raises(StateStoreFilesError, match=error_class) as caught:
        configure(builder, **arguments)

    assert word in str(caught.value)
    assert builder._options == {"spark.jars": "/lib/a.jar"}


def test_an_unknown_setting_on_the_builder_is_found() -> None:
    builder = SparkSession.builder.config(doors.SHIM_VERSION_KEY.replace("shimVersion", "maxFilesize"), "1m")

    with pytest.raises(StateStoreFilesError, match="PSS_UNKNOWN_OPTION.*maxFileSize"):
        configure(builder)


@pytest.mark.parametrize(
    ("provider", "arguments", "hint"),
    [
        (f"{STOCK}HDFSBackedStateStoreProvider", {}, "store='heap'"),
        ("org.x.Provider", {}, "Remove the setting"),
        ("org.x.Provider", {"mode": "path"}, "Remove the setting"),
    ],
)
def test_another_provider_is_not_silently_replaced(provider: str, arguments: dict[str, Any], hint: str) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CONFLICTING_SETTING") as caught:
        configure(SparkSession.builder.config(PROVIDER, provider), **arguments)

    assert hint in str(caught.value)


def test_the_stock_provider_of_the_same_store_is_what_merged_state_replaces() -> None:
    builder = SparkSession.builder.config(PROVIDER, f"{STOCK}RocksDBStateStoreProvider")

    assert configured(builder)[PROVIDER].endswith("MergedRocksDBStateStoreProvider")


def test_a_jar_that_is_on_the_cluster_is_not_added_again() -> None:
    remote = f"hdfs://nn/jars/pyspark-statestore-shim-spark-{MINOR}-{__version__}.jar"

    assert configured(SparkSession.builder.config("spark.jars", remote))["spark.jars"] == remote


def test_a_jar_of_another_version_is_refused() -> None:
    builder = SparkSession.builder.config("spark.jars", f"/x/pyspark-statestore-shim-spark-{MINOR}-0.0.9.jar")

    with pytest.raises(StateStoreFilesError, match=r"PSS_VERSION_MISMATCH.*0\.0\.9"):
        configure(builder)


def test_a_jar_for_another_spark_is_refused() -> None:
    (other, *_) = (minor for minor in doors.SUPPORTED_SPARK if minor != MINOR)
    builder = SparkSession.builder.config("spark.jars", f"/x/pyspark-statestore-shim-spark-{other}-{__version__}.jar")

    with pytest.raises(StateStoreFilesError, match=rf"PSS_WRONG_SPARK.*This is Spark {MINOR}.*for Spark {other}"):
        configure(builder)


@pytest.mark.parametrize("arguments", ["--jars /a.jar", "--jars=/a.jar", "--conf spark.jars=/a.jar"])
def test_jars_in_submit_args_would_hide_ours(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} pyspark-shell")
    with pytest.raises(StateStoreFilesError, match="PSS_CONFLICTING_SETTING.*PYSPARK_SUBMIT_ARGS.*" + JAR):
        configure(SparkSession.builder)

    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments},{JAR} pyspark-shell")
    assert JAR in configured()["spark.jars"]


def test_other_versions_of_spark_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.4.1")

    with pytest.raises(StateStoreFilesError, match=r"PSS_UNSUPPORTED_SPARK.*3\.4\.1.*3\.5, 4\.0, 4\.1, 4\.2, 4\.3"):
        configure(SparkSession.builder)


@pytest.mark.parametrize("version", ["4.3.0", "4.3.12", "4.3.0.dev1", "4.3"])
def test_every_patch_release_is_supported(version: str) -> None:
    assert doors.spark_minor(version) == "4.3"


@pytest.mark.parametrize("version", ["4.30.0", "5.3.0", "4", "3.4.4", "4.4.0"])
def test_what_only_looks_like_a_supported_release_is_not(version: str) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_UNSUPPORTED_SPARK"):
        doors.spark_minor(version)


def test_workers_get_the_python_of_the_script_in_local_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "MASTER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    seen: list[str | None] = []
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: seen.append(os.environ.get("PYSPARK_PYTHON")))

    def given(builder: SparkSession.Builder) -> str | None:
        builder.getOrCreate()
        assert "PYSPARK_PYTHON" not in os.environ  # other processes do not inherit it
        return seen.pop()

    for master in ("local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"):
        assert given(configure(SparkSession.builder.master(master))) == sys.executable
    assert given(configure(SparkSession.builder)) == sys.executable
    assert given(configure(configure(SparkSession.builder))) == sys.executable
    for master in ("yarn", "k8s://https://host", "spark://local:7077", "localhost"):
        assert given(configure(SparkSession.builder.master(master))) is None
        assert given(configure(SparkSession.builder).master(master)) is None  # known only then
    for setting in ("spark.pyspark.python", "spark.pyspark.driver.python"):
        assert given(configure(SparkSession.builder.config(setting, "/usr/bin/python3"))) is None
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert given(configure(SparkSession.builder)) is None
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    monkeypatch.setattr(sys, "executable", "/opt/program/that-embeds")
    assert given(configure(SparkSession.builder)) is None


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_a_python_that_is_set_for_workers_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for each in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(each, "")
    monkeypatch.setenv(name, "/usr/bin/python3.12")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: os.environ["PYSPARK_PYTHON"])
    assert configure(SparkSession.builder.master("local[2]")).getOrCreate() == os.environ["PYSPARK_PYTHON"]
    assert os.environ[name] == "/usr/bin/python3.12"


def test_spark_connect_clients_are_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = SparkSession.builder
    builder._options["spark.remote"] = "sc://host"

    with pytest.raises(StateStoreFilesError, match="PSS_CONFLICTING_SETTING.*Spark Connect"):
        configure(builder)


def test_without_pyspark_somebody_has_to_say_which_spark_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(this_jvm, "_DIRECTORY", tmp_path)
    monkeypatch.setattr(this_jvm, "checked_jar", lambda directory, version, spark: directory / spark)
    for minor in ("4.1", "4.2"):
        with pytest.raises(StateStoreFilesError, match=r"PSS_JAR_MISSING.*PySpark is not installed.*--spark 4\.2"):
            this_jvm.jar_path()
        (tmp_path / f"pyspark-statestore-shim-spark-{minor}-{__version__}.jar").touch()
        if minor == "4.1":
            assert this_jvm.jar_path() == str(tmp_path / "4.1")
            (tmp_path / f"pyspark-statestore-shim-spark-4.3-{__version__}.jar").touch()
    assert this_jvm.jar_path("4.2.1") == str(tmp_path / "4.2")
    with pytest.raises(StateStoreFilesError, match="PSS_UNSUPPORTED_SPARK"):
        this_jvm.jar_path("3.4")


@pytest.mark.parametrize(
    ("url", "source"),
    [("file:///home/my%20checkout", "'/home/my checkout'"), (None, "a checkout of pyspark-statestore")],
)
def test_the_one_command_that_makes_the_jar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None, source: str
) -> None:
    """An installed package has no Makefile, and pip builds with the newest PySpark if nobody says otherwise."""

    def said(_: Any, name: str) -> str | None:
        return json.dumps({"url": url, "dir_info": {}}) if url and name == "direct_url.json" else None

    monkeypatch.setattr(importlib.metadata.Distribution, "read_text", said)
    monkeypatch.setattr(importlib.metadata.PathDistribution, "read_text", said)
    monkeypatch.setattr(this_jvm, "_CHECKOUT", tmp_path)
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(StateStoreFilesError, match="PSS_JAR_MISSING") as caught:
        this_jvm.checked_jar(tmp_path, "1.2", "4.1")
    python = sys.executable
    assert str(caught.value).endswith(
        f" {python} -m pip install setuptools wheel && {python} -m pip install --no-build-isolation --no-deps "
        f"--force-reinstall {source}."
    )
    with pytest.raises(StateStoreFilesError, match=r"make full-wheel") as caught:
        this_jvm.checked_jar(tmp_path, "1.2", "4.2")
    assert str(caught.value).endswith(f" {source}.")


def test_a_jar_with_the_right_manifest_is_found(tmp_path: Path) -> None:
    jar = tmp_path / "pyspark-statestore-shim-spark-4.2-1.2.jar"
    with pytest.raises(StateStoreFilesError, match=r"PSS_JAR_MISSING.*jvm-shim/build\.py --spark 4\.2"):
        this_jvm.checked_jar(tmp_path, "1.2", "4.2")

    spark, version = "Spark-Version: 4.2\r\n", "Implementation-Version: 1.2\r\n"
    for manifest, error in (
        (spark + version, None),
        (spark + "Implementation-Version: 1.1\r\n", "PSS_VERSION_MISMATCH.*1.1"),
        (version + "Spark-Version: 4.1\r\n", "PSS_WRONG_SPARK.*This is Spark 4.2.*for Spark 4.1"),
        (version, "PSS_WRONG_SPARK"),
    ):
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\n{manifest}\r\n")
        if error is None:
            assert this_jvm.checked_jar(tmp_path, "1.2", "4.2") == jar
        else:
            with pytest.raises(StateStoreFilesError, match=error):
                this_jvm.checked_jar(tmp_path, "1.2", "4.2")
    with pytest.raises(StateStoreFilesError, match=r"PSS_VERSION_MISMATCH.*1\.3.*shim-spark-4\.2-1\.2"):
        this_jvm.checked_jar(tmp_path, "1.3", "4.2")
    with pytest.raises(StateStoreFilesError, match=r"PSS_JAR_MISSING.*spark-4\.0-1\.2\.jar.*only jars for Spark 4\.2"):
        this_jvm.checked_jar(tmp_path, "1.2", "4.0")
    jar.write_bytes(b"no zip")
    with pytest.raises(StateStoreFilesError, match="PSS_JAR_MISSING.*cannot be read"):
        this_jvm.checked_jar(tmp_path, "1.2", "4.2")


WITHOUT_SINK = "has no effect without sink=True. What to do: pass sink=True, or leave it out"
WITH_THE_PATH_DOOR = "with mode='path'. What to do: use mode='provider', or leave it out"


@pytest.mark.parametrize(
    ("spark", "arguments", "said"),
    [
        ("4.3.0", {"sink_target_file_size": "64m"}, f"sink_target_file_size {WITHOUT_SINK}"),
        ("4.3.0", {"mode": "path", "restore": "lazy"}, f"restore has no effect {WITH_THE_PATH_DOOR}"),
        (
            "4.3.0",
            {"mode": "path", "upload": "created", "upload_max_bytes_per_second": "1m"},
            f"upload and upload_max_bytes_per_second have no effect {WITH_THE_PATH_DOOR}",
        ),
        ("4.0.1", {"upload": "created"}, "upload has no effect on Spark 4.0.1: it takes 4.1. What to do: leave it out"),
        ("4.3.0", {"sink_target_file_size": "64m", "sink": True}, None),
        ("4.3.0", {"restore": "lazy", "upload": "created"}, None),
        ("4.3.0", {"mode": "path", "restore": "eager", "max_file_size": "64m"}, None),
    ],
)
def test_an_option_without_effect_is_told_at_once(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    spark: str,
    arguments: dict[str, Any],
    said: str | None,
) -> None:
    monkeypatch.setattr("pyspark.__version__", spark)
    monkeypatch.setattr(configuring, "jar_path", lambda: "/lib/it.jar")

    configured(**arguments)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", said)] * bool(said)


@pytest.mark.parametrize(
    ("settings", "arguments", "name"),
    [
        ({}, {"verify_checksums": False}, "verify_checksums"),
        ({}, {"sink_staging_retention": "2d"}, "sink_staging_retention"),
        ({f"{PREFIX}verifyChecksums": "no"}, {}, f"{PREFIX}verifyChecksums"),
    ],
)
def test_an_option_that_there_is_no_more_is_told_at_once(
    caplog: pytest.LogCaptureFixture, settings: dict[str, str], arguments: dict[str, Any], name: str
) -> None:
    made = configured(SparkSession.Builder().config(map=settings), **arguments)

    ((level, said),) = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert level == "WARNING"
    assert said.startswith(f"{name} is not an option any more and has no effect: ")
    assert said.endswith(". What to do: remove it")
    assert {key for key in made if "hecksum" in key or "etention" in key} == settings.keys()


def test_a_session_whose_sinks_compact_already_takes_their_options(caplog: pytest.LogCaptureFixture) -> None:
    builder = SparkSession.Builder().config(PROTOCOL, doors.COMPACTING_PROTOCOL)

    configured(builder, sink_target_file_size="64m")

    assert caplog.records == []


def test_a_connect_builder_is_told_which_command_prints_the_settings() -> None:
    with pytest.raises(StateStoreFilesError, match=r"PSS_CONFLICTING_SETTING.*pyspark-statestore settings prints"):
        configure(SparkSession.Builder().config("spark.remote", "sc://host"))


@pytest.mark.parametrize(("typed", "meant"), [("mod", "mode"), ("stor", "store"), ("sinks", "sink")])
def test_a_misspelled_argument_of_configure(typed: str, meant: str) -> None:
    with pytest.raises(StateStoreFilesError, match=rf"PSS_UNKNOWN_OPTION.* Did you mean {meant}\?"):
        configure(SparkSession.Builder(), **{typed: "path"})  # type: ignore[arg-type]
