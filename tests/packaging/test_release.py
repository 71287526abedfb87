"""What `make release` does beside building: is the commit fit for it, checksums, signatures; and the page about it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_statestore import __version__
from tests.conftest import ROOT
from tests.packaging.test_spark_releases import module

PAGE = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
STEPS = {
    title: re.sub(r"^ +", "", block, flags=re.MULTILINE)
    for title, block in re.findall(r'^ *```bash title="(.+?)"\n(.*?)^ *```$', PAGE, re.DOTALL | re.MULTILINE)
}
WHEEL, SOURCE = f"pyspark_statestore-{__version__}-py3-none-any.whl", f"pyspark_statestore-{__version__}.tar.gz"
NO_GIT_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def run(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **NO_GIT_CONFIG, **environment}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd, env=env, check=False)


def git(repository: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    done = run("git", *who, *arguments, cwd=repository)
    assert done.returncode == 0, done.stderr


def shell(step: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs what the page has under a title, as it stands."""
    return run("bash", "-e", "-c", STEPS[step], cwd=cwd, **environment)


# ---- is the commit fit to be released?


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository in which the next release is ready: what `release` reads, in one commit."""
    folder = tmp_path / "repository"
    (folder / "pyspark_statestore").mkdir(parents=True)
    for name in ("__init__.py", "_version.py"):
        shutil.copy(ROOT / "pyspark_statestore" / name, folder / "pyspark_statestore")
    shutil.copytree(ROOT / "release", folder / "release", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=lambda _, names: [n for n in names if n == "pictures"])
    (folder / ".gitignore").write_text("__pycache__/\ndist/\n")
    for page in (ROOT / "README.md", *(folder / "docs").rglob("*.md")):
        copy = page if page.is_relative_to(folder) else folder / page.name
        text = page.read_text(encoding="utf-8")
        copy.write_text(re.sub(r"not\s+released\s+yet", "released", text) if page.name != "releases.md" else text)
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(re.sub(r"^(## \[.+?\] \S ).*$", r"\g<1>2026-12-01", log, count=1, flags=re.M))
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Release it")
    return folder


def ready(repository: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "release.ready", cwd=repository)


def test_a_commit_that_can_be_released(repository: Path) -> None:
    done = ready(repository)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    git(repository, "tag", f"v{__version__}")
    assert ready(repository).returncode == 0, "its own tag is no other one"


def rewritten(name: str, pattern: str, by: str) -> Callable[[Path], None]:
    def change(repository: Path) -> None:
        text = (repository / name).read_text(encoding="utf-8")
        assert re.search(pattern, text, re.MULTILINE)
        (repository / name).write_text(re.sub(pattern, by, text, count=1, flags=re.MULTILINE), encoding="utf-8")
        git(repository, "commit", "--quiet", "--all", "--message", "Change it")

    return change


def tagged_before(repository: Path) -> None:
    git(repository, "tag", "--annotate", f"v{__version__}", "--message", "The one that is out")
    rewritten("README.md", r"\A", "More.\n")(repository)


DATED = r"2026-12-01$"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rewritten("CHANGELOG.md", DATED, "not released yet"), "no date for [{version}], but 'not released yet'"),
        (rewritten("CHANGELOG.md", DATED, "unreleased"), "no date for [{version}], but 'unreleased'"),
        (rewritten("CHANGELOG.md", DATED, ""), "no date for [{version}], but ''"),
        (rewritten("CHANGELOG.md", DATED, "2026-13-01"), "no date for [{version}], but '2026-13-01'"),
        (rewritten("CHANGELOG.md", r"^## \[.*$", ""), "does not begin with version {version}: it has no section"),
        (rewritten("CHANGELOG.md", r"^## \[", "## [9.9.9]\n\n## ["), "its first section is [9.9.9]"),
        (rewritten("pyspark_statestore/_version.py", r'= ".*"', '= "9.9.9"'), "does not begin with version 9.9.9"),
        (rewritten("README.md", r"\A", "Version 9, not released\nyet.\n"), 'README.md says "not released yet"'),
        (rewritten("docs/index.md", r"\A", "It is not released yet.\n"), 'docs/index.md says "not released yet"'),
        (lambda folder: (folder / "README.md").write_text("changed"), "not what is committed: M README.md"),
        (lambda folder: (folder / "docs" / "new.md").touch(), "not what is committed: ?? docs/new.md"),
        (lambda folder: shutil.rmtree(folder / ".git"), "git cannot say what is in this checkout"),
        (tagged_before, "v{version} is the tag of another commit"),
    ],
)
def test_a_commit_that_cannot(repository: Path, change: Callable[[Path], None], reason: str) -> None:
    change(repository)
    # A directory around it may be a repository.
    done = run(sys.executable, "-m", "release.ready", cwd=repository, GIT_CEILING_DIRECTORIES=str(repository.parent))
    assert done.returncode == 1
    assert reason.replace("{version}", __version__) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wheel_has_the_sources_and_nothing_else(tmp_path: Path) -> None:
    """Such as a module that was deleted, which setuptools finds in build/lib."""
    module("build")
    check = module("check_wheel")
    package = tmp_path / "p"
    package.mkdir()
    for name in ("__init__.py", "a.py", "py.typed"):
        (package / name).write_text(name)

    def wheel(**more: str) -> Path:
        with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
            for name in ("p/__init__.py", "p/a.py", "p/py.typed", "x-1.dist-info/METADATA", "p/jars/x.jar"):
                archive.writestr(name, more.pop(name, Path(name).name))
            for name, text in more.items():
                archive.writestr(name, text)
        return tmp_path / "x.whl"

    assert check.other_than(wheel(), [package]) == []
    assert check.other_than(wheel(**{"p/old.py": ""}), [package]) == ["it has p/old.py"]
    assert check.other_than(wheel(**{"p/a.py": "old"}), [package]) == ["its p/a.py is not that of the sources"]
    (package / "new.py").touch()
    assert check.other_than(wheel(), [package]) == ["it has no p/new.py"]


# ---- checksums and signatures


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """What is published, with other bytes in it."""
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / WHEEL).write_bytes(b"wheel")
    (folder / SOURCE).write_bytes(b"source")
    return folder


def checksums(dist: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "release.checksums", dist, *arguments, cwd=ROOT, **environment)


@pytest.fixture
def gnupg() -> Iterator[dict[str, str]]:
    """An empty home of GnuPG; the path of a socket in it may not be long."""
    with tempfile.TemporaryDirectory(prefix="pss-", dir="/tmp") as home:
        yield {"GNUPGHOME": home}
        subprocess.run(["gpgconf", "--kill", "all"], env={**os.environ, "GNUPGHOME": home}, check=False)


@pytest.fixture
def gpg_key(gnupg: dict[str, str], tmp_path: Path) -> str:
    """A throw-away key."""
    if not shutil.which("gpg"):
        pytest.skip("needs gpg")
    key = ("Throw-away <t@example.org>", "ed25519", "sign", "1d")
    done = run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", *key, cwd=tmp_path, **gnupg)
    assert done.returncode == 0, done.stderr
    listed = run("gpg", "--list-secret-keys", "--with-colons", cwd=tmp_path, **gnupg).stdout
    fingerprints: list[str] = re.findall(r"^fpr:+([0-9A-F]+):", listed, re.MULTILINE)
    return fingerprints[0]


@pytest.fixture
def ssh_key(tmp_path: Path) -> Path:
    """A throw-away key."""
    if not shutil.which("ssh-keygen"):
        pytest.skip("needs ssh-keygen")
    key = tmp_path / "throw-away"
    done = run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return key


def test_without_a_key_checksums_are_unsigned_and_it_says_so(dist: Path) -> None:
    (dist / "SHA256SUMS.asc").write_text("that of the release before")
    done = checksums(dist)
    assert done.returncode == 0, done.stderr
    assert "NOT SIGNED" in done.stderr
    assert {file.name for file in dist.iterdir()} == {WHEEL, SOURCE, "SHA256SUMS"}
    checked = shell("is it whole?", dist)
    assert checked.stdout.splitlines() == [f"{WHEEL}: OK", f"{SOURCE}: OK"]

    (dist / SOURCE).unlink()
    assert shell("is it whole?", dist).returncode == 0, "who has the wheel alone"
    (dist / WHEEL).write_bytes(b"Wheel")
    assert shell("is it whole?", dist).returncode != 0


def test_a_signature_of_gnupg(dist: Path, gpg_key: str, gnupg: dict[str, str], tmp_path: Path) -> None:
    done = checksums(dist, "--sign-with", f"gpg:{gpg_key}", **gnupg)
    assert done.returncode == 0, done.stderr
    assert "NOT SIGNED" not in done.stderr
    assert shell("publish a key of GnuPG", dist, KEY=gpg_key, **gnupg).returncode == 0

    with tempfile.TemporaryDirectory(prefix="pss-", dir="/tmp") as other:
        told = shell("who made it? with GnuPG", dist, GNUPGHOME=other)
        assert told.returncode == 0, told.stderr
        assert "Good signature" in told.stderr
        (dist / "SHA256SUMS").write_text("0" * 64 + f"  {WHEEL}\n")
        assert shell("who made it? with GnuPG", dist, GNUPGHOME=other).returncode != 0
        subprocess.run(["gpgconf", "--kill", "all"], env={**os.environ, "GNUPGHOME": other}, check=False)


def test_a_signature_of_openssh(dist: Path, ssh_key: Path) -> None:
    done = checksums(dist, "--sign-with", f"ssh:{ssh_key}")
    assert done.returncode == 0, done.stderr
    assert "NOT SIGNED" not in done.stderr
    assert shell("publish a key of OpenSSH", dist, KEY=str(ssh_key)).returncode == 0

    told = shell("who made it? with OpenSSH", dist)
    assert told.returncode == 0, told.stderr
    assert 'Good "file" signature for maintainers' in told.stdout
    (dist / "SHA256SUMS").write_text("0" * 64 + f"  {WHEEL}\n")
    assert shell("who made it? with OpenSSH", dist).returncode != 0


@pytest.mark.parametrize("key", ["gpg:0123456789ABCDEF", "ssh:/no/such/key", "0123456789ABCDEF", "gpg:"])
def test_without_the_key_that_is_named_there_is_no_signature(dist: Path, key: str, gnupg: dict[str, str]) -> None:
    done = checksums(dist, "--sign-with", key, **gnupg)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert not {"SHA256SUMS.asc", "SHA256SUMS.sig"} & {file.name for file in dist.iterdir()}


@pytest.mark.parametrize("file", ["notes.txt", "x.zip"])
def test_what_is_not_published_gets_no_checksum(dist: Path, tmp_path: Path, file: str) -> None:
    (dist / file).touch()
    assert f"{file} is there, too" in checksums(dist).stderr
    (tmp_path / "empty").mkdir()
    assert checksums(tmp_path / "empty").returncode == checksums(tmp_path / "nowhere").returncode == 1


def test_the_page_says_what_make_does() -> None:
    listed = run("make", "--no-print-directory", "help", cwd=ROOT).stdout
    targets = set(re.findall(r"^  make (\S+)", listed, re.MULTILINE))
    assert {"release", "full-wheel", "sdist", "wheel"} <= targets
    named = set(re.findall(r"\bmake ([a-z][a-z-]+)", "\n".join(STEPS.values())))
    assert named <= targets
    wrong = [title for title, step in STEPS.items() if run("bash", "-n", "-c", step, cwd=ROOT).returncode]
    assert wrong == []
