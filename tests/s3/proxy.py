"""A proxy between clients and a server that speaks S3: it counts their requests by kind, and fails some of them.

    with Proxy(("127.0.0.1", moto_port)) as proxy:
        ...                                           # clients go to proxy.url
        proxy.requests                                # what they asked, in order
        with proxy.fault(Fault.SLOW_DOWN, Rule(kinds={"PUT"}, key="state/_merged/")) as fault:
            ...                                       # the first such request is answered with 503
        fault.hits

Every byte that a client sends reaches the server as it is, and every answer the client.
"""

from __future__ import annotations

import enum
import html
import http.client
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"}
_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
_DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
)


@dataclass
class Request:
    """What a client asked.

    Attributes:
        kind: PUT, INITIATE, UPLOAD_PART, COMPLETE, ABORT, COPY, GET, HEAD, LIST, LIST_UPLOADS, DELETE, BULK_DELETE,
            HEAD_BUCKET or PUT_BUCKET.
        bucket: Of what it is about.
        key: The object's, that of the first where there are many, or a listing's prefix.
        bytes_range: The ``Range`` of a GET.
        status: The answer's, 0 before and without one.
    """

    kind: str
    bucket: str
    key: str
    bytes_range: str = ""
    status: int = 0


def classify(method: str, target: str, headers: Any) -> Request:
    """Says what a request with path-style access is about."""
    parts = urlsplit(target)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    query = parse_qs(parts.query, keep_blank_values=True)
    kind = method
    if method == "PUT" and not key:
        kind = "PUT_BUCKET"
    elif method == "PUT" and "x-amz-copy-source" in headers:
        kind = "COPY"
    elif method == "PUT" and "partNumber" in query:
        kind = "UPLOAD_PART"
    elif method == "POST":
        kind = "INITIATE" if "uploads" in query else "COMPLETE" if "uploadId" in query else "BULK_DELETE"
    elif method == "DELETE" and "uploadId" in query:
        kind = "ABORT"
    elif method == "HEAD" and not key:
        kind = "HEAD_BUCKET"
    elif method == "GET" and not key:
        kind = "LIST_UPLOADS" if "uploads" in query else "LIST"
        key = query.get("prefix", [""])[0]
    return Request(kind, bucket, key, headers.get("Range", ""))


def _first_key(deletions: bytes) -> str:
    found = re.search(rb"<Key>([^<]*)</Key>", deletions)
    return html.unescape(found[1].decode()) if found else ""


class Fault(enum.Enum):
    """How a request fails."""

    SLOW_DOWN = "the server does nothing and answers 503 SlowDown"
    LOSE_ANSWER = "the server acts, and the connection is cut before its answer"
    CUT_BODY = "the connection is cut in the middle of the request's body, and the server never hears of it"
    HOLD = "the server hears of the request only when the test lets it go on"
    HOLD_ANSWER = "the server acts, and the client hears of it only when the test lets it go on"
    HOLD_AND_REFUSE = "the server does nothing, and the client hears 403 when the test lets it go on"


@dataclass(frozen=True)
class Rule:
    """Which requests fail.

    Attributes:
        kinds: Empty for all.
        key: What their keys contain.
        skip: How many of them go by before.
        times: How many fail; None for all from then on.
    """

    kinds: Set[str] = frozenset()
    key: str = ""
    skip: int = 0
    times: int | None = 1


@dataclass
class Injected:
    """A fault that was ordered, and the requests that it has hit."""

    fault: Fault
    rule: Rule
    hits: list[Request] = field(default_factory=list)
    _seen: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reached: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def applies(self, request: Request) -> bool:
        """Whether it hits a request; counts it."""
        rule = self.rule
        if (rule.kinds and request.kind not in rule.kinds) or rule.key not in request.key:
            return False
        with self._lock:
            self._seen += 1
            number = self._seen - rule.skip
            if number < 1 or (rule.times is not None and number > rule.times):
                return False
            self.hits.append(request)
            return True

    def hold(self) -> None:
        """Keeps a request until the test releases it."""
        self._reached.set()
        self._released.wait()

    def reached(self, seconds: float = 60) -> Request:
        """Waits until a request is held; returns it."""
        assert self._reached.wait(seconds), f"no request to hold came within {seconds} s: {self.rule}"
        return self.hits[0]

    def release(self) -> None:
        """Lets requests go on that are held."""
        self._released.set()


class Proxy:
    """Serves on a port of its own of the loopback interface.

    Args:
        server: Host and port of the server behind it.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self.latency = 0.0
        """Seconds that each request waits."""
        self._requests: list[Request] = []
        self._faults: list[Injected] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._httpd = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._httpd.server_port}"
        self._thread = threading.Thread(target=self._httpd.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order of their arrival."""
        with self._lock:
            return list(self._requests)

    def since(self, number: int) -> list[Request]:
        """The requests after the first so many."""
        return self.requests[number:]

    @contextmanager
    def fault(self, fault: Fault, rule: Rule) -> Iterator[Injected]:
        """Lets requests fail for a while. What it holds goes on at its end."""
        injected = Injected(fault, rule)
        with self._lock:
            self._faults.append(injected)
        try:
            yield injected
        finally:
            with self._lock:
                self._faults.remove(injected)
            injected.release()

    def arrived(self, request: Request) -> Injected | None:
        """Counts a request; returns the fault that hits it."""
        with self._lock:
            self._requests.append(request)
            faults = list(self._faults)
        return next((fault for fault in faults if fault.applies(request)), None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that go away."""


class _Handler(BaseHTTPRequestHandler):
    """Serves one connection. It answers ``Expect: 100-continue`` by itself."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: Proxy

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(*self.owner.server, timeout=120)

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""

    def _serve(self) -> None:
        request = classify(self.command, self.path, self.headers)
        body = b""
        if request.kind == "BULK_DELETE":
            body = self._body()
            request.key = _first_key(body)
        injected = self.owner.arrived(request)
        fault = injected.fault if injected else None
        if self.owner.latency:
            time.sleep(self.owner.latency)
        if fault is Fault.CUT_BODY and not body:
            # Of a request without a body, the connection is cut after its head.
            self.rfile.read(int(self.headers.get("Content-Length", 0)) // 2)
            self._cut()
            return
        body = body or self._body()
        if fault is Fault.SLOW_DOWN:
            request.status = 503
            self._answer(503, "Slow Down", [("Content-Type", "application/xml")], _SLOW_DOWN)
            return
        if injected and fault is Fault.HOLD_AND_REFUSE:
            injected.hold()
            request.status = 403
            self._answer(403, "Forbidden", [("Content-Type", "application/xml")], _DENIED)
            return
        if injected and fault is Fault.HOLD:
            injected.hold()
        status, reason, headers, answer = self._ask(body)
        request.status = status
        if injected and fault is Fault.HOLD_ANSWER:
            injected.hold()
        if fault is Fault.LOSE_ANSWER:
            self._cut()
            return
        self._answer(status, reason, headers, answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(chunks)

    def _ask(self, body: bytes) -> tuple[int, str, list[tuple[str, str]], bytes]:
        upstream = self._upstream
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                upstream.putheader(name, value)
        upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body)
        answer = upstream.getresponse()
        return answer.status, answer.reason, answer.getheaders(), answer.read()

    def _answer(self, status: int, reason: str, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        lines = [f"HTTP/1.1 {status} {reason}"]
        # The answer to HEAD has the length of what a GET would give, and nothing else has one that is not its body's.
        skipped = _HOP_BY_HOP if self.command == "HEAD" else _HOP_BY_HOP | {"content-length"}
        lines += [f"{name}: {value}" for name, value in headers if name.lower() not in skipped]
        if self.command != "HEAD" and status != 204:
            lines.append(f"Content-Length: {len(body)}")
        # In one write: an answer in two packets waits for the client's acknowledgement of the first.
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def area(key: str, checkpoint: str) -> str:
    """Says which part of a checkpoint a key is in.

    Args:
        key: An object's, or a listing's prefix.
        checkpoint: The checkpoint's own.

    Returns:
        ``state/_merged/``, ``state/``, ``offsets/``, ``commits/`` and so on; ``.`` for the checkpoint itself and for
        what is right in it; empty for what is elsewhere.
    """
    checkpoint = checkpoint.strip("/")
    if key.strip("/") != checkpoint and not key.startswith(f"{checkpoint}/"):
        return ""
    below = key.removeprefix(checkpoint).strip("/")
    first, _, rest = below.partition("/")
    if first == "state" and rest.split("/")[0] == "_merged":
        return "state/_merged/"
    return f"{first}/" if rest or first in ("state", "offsets", "commits", "sources") else "."


def counts(requests: Iterable[Request], checkpoint: str) -> dict[str, Counter[str]]:
    """Counts requests about a checkpoint by the part of it and by kind."""
    found: dict[str, Counter[str]] = {}
    for request in requests:
        if where := area(request.key, checkpoint):
            found.setdefault(where, Counter())[request.kind] += 1
    return dict(sorted(found.items()))


def table(counted: dict[str, Counter[str]]) -> str:
    """Counts as lines for people."""
    return "\n".join(
        f"  {where:15} {sum(kinds.values()):5}  " + ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
        for where, kinds in counted.items()
    )
