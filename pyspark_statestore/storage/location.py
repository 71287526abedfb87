"""Where a checkpoint is: turns the paths that people have, which are Hadoop's, into fsspec's file systems."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_statestore.errors import StateStoreFilesError, first_line, not_allowed, redacted
from pyspark_statestore.paths import MERGED_PREFIX, SCHEMES, why_no_uri

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/.*)", re.DOTALL)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)

_MERGED = re.compile(re.escape(MERGED_PREFIX) + r"(?=([A-Za-z][A-Za-z0-9+.-]*:)?/)", re.IGNORECASE)

_PROTOCOLS: Mapping[str, str] = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfs", "swebhdfs": "webhdfs"}
"""Hadoop's names of file systems for which fsspec has other names."""

_INSTALL: Mapping[str, str] = {
    "s3": 'pip install "pyspark-statestore[s3]"',
    "gs": 'pip install "pyspark-statestore[gcs]"',
    "gcs": 'pip install "pyspark-statestore[gcs]"',
    "abfs": 'pip install "pyspark-statestore[azure]"',
    "abfss": 'pip install "pyspark-statestore[azure]"',
    "az": 'pip install "pyspark-statestore[azure]"',
    "webhdfs": "pip install requests",
    "hdfs": "Install Hadoop's native client (libhdfs) and set HADOOP_HOME and CLASSPATH, or read it as webhdfs://...",
    "oss": "pip install ossfs",
    "viewfs": "Read the directory under the hdfs:// or webhdfs:// path that it is mounted from",
}


@dataclass(frozen=True)
class Location:
    """Where a checkpoint is.

    Attributes:
        url: The URL as people see it: without ``merged+``, and without a password.
        fs: The fsspec file system.
        path: The checkpoint's path in it, without a slash at its end.
        exact_url: The URL with all that was given. It is for file systems, and never shown, logged or kept.
    """

    url: str
    fs: Any
    path: str
    exact_url: str = field(repr=False)

    @classmethod
    def of(cls, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Location:
        """Finds the file system of a path.

        Args:
            path: A URL of fsspec's or of Hadoop's, with ``merged+`` before it or without, or a local path.
            storage_options: For the fsspec file system, such as ``{"anon": True}`` or ``{"endpoint_url": ...}``.

        Raises:
            StateStoreFilesError: PSS_BAD_PATH, PSS_MISSING_DEPENDENCY, PSS_INVALID_OPTION or PSS_READ_FAILED.
        """
        import fsspec

        url = _plain_url(path)
        protocol = url.partition(":")[0]
        if protocol in _PROTOCOLS:
            protocol = _PROTOCOLS[protocol]
            url_of_fs = protocol + url[url.index(":") :]
        else:
            url_of_fs = url
        options = _options(storage_options)
        if url.startswith("swebhdfs:"):
            options.setdefault("use_https", True)
        try:
            # Not url_to_fs(): that takes a path with "::" in it for a chain of file systems.
            of_url = fsspec.get_filesystem_class(protocol)._get_kwargs_from_urls(url_of_fs)
            fs = fsspec.filesystem(protocol, **{**of_url, **options})
            inside = fs._strip_protocol(url_of_fs)
        except TypeError as error:
            raise _bad_options(sorted(options), f"what fsspec's {protocol} file system takes ({error})") from error
        except Exception as error:
            raise _unusable(url, protocol, error) from error
        return cls(redacted(url), fs, str(inside).rstrip("/"), url)

    def below(self, relative: str) -> str:
        """Returns the path of something in the checkpoint, as its file system takes it.

        Args:
            relative: The path in the checkpoint. One that begins with a slash is a path from the root of the file
                system or bucket.
        """
        return self._bucket + relative if relative.startswith("/") else f"{self.path}/{relative}"

    @property
    def _bucket(self) -> str:
        return "" if self.path.startswith("/") else self.path.partition("/")[0]

    @property
    def _start(self) -> str:
        """Scheme and host or bucket."""
        return _start_of(self.url, self.absolute)

    @property
    def absolute(self) -> str:
        """The checkpoint's path from the root of its file system or bucket, as Hadoop writes it: ``/`` comes first."""
        return self.path if self.path.startswith("/") else "/" + self.path.partition("/")[2]

    def beside(self, absolute: str) -> Location:
        """Returns another directory in the same file system or bucket.

        Args:
            absolute: Its path from the root, as :attr:`absolute`.
        """
        exact = _start_of(self.exact_url, self.absolute) + absolute
        return Location(redacted(exact), self.fs, (self._bucket + absolute).rstrip("/"), exact)

    def is_at(self, absolute: str) -> bool:
        """Whether a path from the root leads to this directory, perhaps by a symbolic link or another mount."""
        if _normal(self.absolute) == _normal(absolute):
            return True
        if not self._is_local:
            return False
        try:
            return os.path.samefile(self.absolute, absolute)
        except (OSError, ValueError):  # one of them does not exist
            return os.path.realpath(self.absolute) == os.path.realpath(absolute)

    @property
    def real(self) -> str:
        """The path from the root without symbolic links, where these can be told."""
        return os.path.realpath(self.absolute) if self._is_local else _normal(self.absolute)

    @property
    def _is_local(self) -> bool:
        return self.url.startswith("file:")

    def shares_file_system(self, other: Location) -> bool:
        """Whether a path from the root means the same in both: they have the same scheme, and host or bucket."""
        return self._root == other._root

    @property
    def _root(self) -> tuple[str, str]:
        scheme, _, rest = self.url.partition("://")
        host = rest.partition("/")[0]
        # Hosts have no case. Buckets and containers have one.
        return _PROTOCOLS.get(scheme, scheme), host.lower() if scheme.endswith("hdfs") else host

    def display(self, relative: str = "") -> str:
        """Returns the URL of something in the checkpoint, for messages and tables.

        A local disk may have names that are no UTF-8. Arrow takes no such text, so it has their bytes by their numbers.
        """
        if relative.startswith("/"):
            found = self._start + relative
        else:
            found = f"{self.url}/{relative}" if relative else self.url
        return found.encode("utf-8", "backslashreplace").decode()


def _normal(absolute: str) -> str:
    """A path without what a slash too many and dots add to it."""
    return "/" + posixpath.normpath(absolute).lstrip("/")


def _start_of(url: str, absolute: str) -> str:
    return url.removesuffix(absolute) if url.endswith(absolute) else ""


def _plain_url(path: str | os.PathLike[str]) -> str:
    try:
        text = os.fspath(path)
    except TypeError as error:
        raise _bad_path(path, "it is no path") from error
    if isinstance(text, str) and any("\ud800" <= each <= "\udfff" for each in text):
        # Whatever is below would be left out as no text, and the checkpoint would look empty.
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise _bad_path(shown, "it is no UTF-8 text, and neither Spark nor this package can name its files. Rename it")
    if not isinstance(text, str) or not text.strip():
        raise _bad_path(path, "it is empty or no text")
    text = _MERGED.sub("", text, count=1)
    if reason := _why_no_uri(text):
        raise _bad_path(text, reason)
    if not _URI.fullmatch(text):
        return "file://" + os.path.abspath(os.path.expanduser(text))
    scheme, _, rest = text.partition(":")
    scheme = scheme.lower()
    # Hadoop writes file:/x, and leaves a default host away as in hdfs:/x.
    if not rest.startswith("//"):
        rest = "//" + rest
    return f"{scheme}:{rest.rstrip('/')}"


def _why_no_uri(text: str) -> str:
    """Says why a text that has a scheme, or ``merged+`` before it, is no URL of a directory."""
    found = _SCHEME.fullmatch(text)
    if found is None:
        if text.lower().startswith(MERGED_PREFIX):
            return (
                f"{MERGED_PREFIX} has to be followed by an absolute path or by a URL, as in {MERGED_PREFIX}file:///path"
            )
        return ""
    scheme = found[1].lower().removeprefix(MERGED_PREFIX)
    # A directory of this machine may have a colon in its name.
    is_meant = found[2].startswith("/") or scheme != found[1].lower() or scheme in SCHEMES or scheme in _PROTOCOLS
    return why_no_uri(scheme, found[2]) if is_meant else ""


def _options(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise _bad_options(given, "a mapping such as {'anon': True}")
    return dict(given)


def _unusable(url: str, protocol: str, error: Exception) -> StateStoreFilesError:
    """The error for a file system that cannot be used: its package is missing, its name is unknown, or it refuses."""
    import fsspec

    is_known = protocol in fsspec.available_protocols()
    no_library = protocol == "hdfs" and re.search(r"lib(hdfs|jvm)", str(error))
    if isinstance(error, ImportError) or no_library or (not is_known and protocol in _INSTALL):
        install = _INSTALL.get(protocol, f"Install fsspec's file system for {protocol}")
        parameters = {"what": f"Reading {url}", "reason": first_line(error), "install": install}
        return StateStoreFilesError("PSS_MISSING_DEPENDENCY", parameters)
    if not is_known:
        known = "file, hdfs, s3a, gs, abfss and others of fsspec are known"
        return _bad_path(url, f"{first_line(error).rstrip('.')}; {known}")
    reason = f"{type(error).__name__}: {first_line(error)}"
    return StateStoreFilesError("PSS_READ_FAILED", {"action": "reach", "path": url, "reason": reason})


def _bad_path(path: object, reason: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_BAD_PATH", {"path": path, "reason": reason})


def _bad_options(value: object, allowed: str) -> StateStoreFilesError:
    # Options may hold secrets: of a mapping only the keys are shown.
    shown = sorted(map(str, value)) if isinstance(value, (Mapping, list)) else type(value).__name__
    return not_allowed("storage_options", shown, allowed)
