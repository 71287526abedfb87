"""The local disk, listed as HDFS and S3 do it: page by page, each page with what is there when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class Pages:
    """How directories are listed.

    Attributes:
        size: Names in a page.
        between: Called after each page but the last, with the directory's path and the last name of the page.
    """

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.between: Callable[[str, str], object] = lambda directory, last: None


def paged_file_system(pages: Pages) -> type[LocalFileSystem]:
    """The local file system. A class of its own each time: fsspec keeps instances by class."""

    class Paged(LocalFileSystem):
        def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
            found: list[dict[str, Any]] = []
            while True:
                last = str(found[-1]["name"]) if found else ""
                rest = [info for info in super().ls(path, detail=True, **kwargs) if info["name"] > last]
                rest.sort(key=lambda info: str(info["name"]))
                found += rest[: pages.size]
                if len(rest) <= pages.size:
                    return found if detail else [info["name"] for info in found]
                pages.between(path, str(found[-1]["name"]).rpartition("/")[2])

    return Paged
