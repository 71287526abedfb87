"""The proxy by itself: what it counts, and what its faults do to a client and to the server."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.s3.proxy import Fault, Proxy, Rule, area, classify


class Store(ThreadingHTTPServer):
    """A server behind the proxy that keeps what is put into it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        super().__init__(("127.0.0.1", 0), StoreHandler)


class StoreHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_PUT(self) -> None:
        self.server.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        data = self.server.kept[self.path]
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            data = data[int(first) : int(last) + 1]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_GET
    do_POST = do_PUT


@pytest.fixture
def store() -> Iterator[Store]:
    server = Store()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", store.server_port)) as running:
        yield running


@pytest.fixture
def client(proxy: Proxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=30)
    yield connection
    connection.close()


def ask(
    client: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes, http.client.HTTPResponse]:
    client.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = client.getresponse()
    return answer.status, answer.read(), answer


def test_one_connection_carries_many_requests(store: Store, proxy: Proxy, client: http.client.HTTPConnection) -> None:
    data = bytes(range(256)) * 300
    assert ask(client, "PUT", "/bucket/key", data)[0] == 200
    own = client.sock
    assert ask(client, "GET", "/bucket/key")[:2] == (200, data)
    assert ask(client, "GET", "/bucket/key", Range="bytes=10-19")[:2] == (206, data[10:20])
    status, body, answer = ask(client, "HEAD", "/bucket/key")
    assert (status, body, answer.headers["Content-Length"]) == (200, b"", str(len(data)))
    assert ask(client, "GET", "/bucket/key")[1] == data
    assert client.sock is own is not None
    assert [request.kind for request in proxy.requests] == ["PUT", "GET", "GET", "HEAD", "GET"]
    assert {(request.bucket, request.key) for request in proxy.requests} == {("bucket", "key")}
    assert [request.status for request in proxy.requests] == [200, 200, 206, 200, 200]


def test_chunked_body(store: Store, client: http.client.HTTPConnection) -> None:
    client.request("PUT", "/bucket/key", iter([b"one ", b"two"]), encode_chunked=True)
    client.getresponse().read()
    assert store.kept == {"/bucket/key": b"one two"}


def test_client_that_waits_for_leave_to_send(store: Store, proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", int(proxy.url.rsplit(":", 1)[1])), timeout=30) as client:
        client.sendall(b"PUT /bucket/key HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        assert store.kept == {}
        client.sendall(b"data")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    assert store.kept == {"/bucket/key": b"data"}


@pytest.mark.parametrize(
    ("fault", "kept"),
    [(Fault.SLOW_DOWN, {}), (Fault.LOSE_ANSWER, {"/bucket/key": b"data" * 100_000}), (Fault.CUT_BODY, {})],
)
def test_fault(
    store: Store, proxy: Proxy, client: http.client.HTTPConnection, fault: Fault, kept: dict[str, bytes]
) -> None:
    data = b"data" * 100_000
    with proxy.fault(fault, Rule({"PUT"}, key="ke", skip=1)) as injected:
        assert ask(client, "PUT", "/bucket/other-key", b"")[0] == 200
        store.kept.clear()
        if fault is Fault.SLOW_DOWN:
            assert ask(client, "PUT", "/bucket/key", data)[0] == 503
        else:
            with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
                ask(client, "PUT", "/bucket/key", data)
            client.close()
        assert store.kept == kept
        assert [request.key for request in injected.hits] == ["key"]
        assert ask(client, "PUT", "/bucket/key", data)[0] == 200
    assert store.kept == {"/bucket/key": data}


@pytest.mark.parametrize("fault", [Fault.HOLD, Fault.HOLD_ANSWER])
def test_request_that_is_held(store: Store, proxy: Proxy, client: http.client.HTTPConnection, fault: Fault) -> None:
    statuses: list[int] = []
    with proxy.fault(fault, Rule({"PUT"})) as injected:
        asking = threading.Thread(target=lambda: statuses.append(ask(client, "PUT", "/bucket/key", b"data")[0]))
        asking.start()
        assert injected.reached().key == "key"
        assert statuses == []
        assert store.kept == ({} if fault is Fault.HOLD else {"/bucket/key": b"data"})
        injected.release()
        asking.join(30)
    assert statuses == [200]
    assert store.kept == {"/bucket/key": b"data"}


@pytest.mark.parametrize(
    ("method", "target", "kind", "key"),
    [
        ("PUT", "/b/a/x%20y", "PUT", "a/x y"),
        ("PUT", "/b/a?partNumber=1&uploadId=u", "UPLOAD_PART", "a"),
        ("POST", "/b/a?uploads", "INITIATE", "a"),
        ("POST", "/b/a?uploadId=u", "COMPLETE", "a"),
        ("DELETE", "/b/a?uploadId=u", "ABORT", "a"),
        ("DELETE", "/b/a", "DELETE", "a"),
        ("POST", "/b/?delete", "BULK_DELETE", ""),
        ("GET", "/b/?list-type=2&prefix=a%2Fb&delimiter=%2F", "LIST", "a/b"),
        ("GET", "/b?uploads&prefix=a", "LIST_UPLOADS", "a"),
        ("GET", "/b/a", "GET", "a"),
        ("HEAD", "/b", "HEAD_BUCKET", ""),
        ("PUT", "/b", "PUT_BUCKET", ""),
    ],
)
def test_kinds(method: str, target: str, kind: str, key: str) -> None:
    found = classify(method, target, Message())
    assert (found.kind, found.bucket, found.key) == (kind, "b", key)


def test_copy_is_no_put() -> None:
    headers = Message()
    headers["x-amz-copy-source"] = "/b/a"
    assert classify("PUT", "/b/c", headers).kind == "COPY"


def test_many_deletions_are_about_the_first(proxy: Proxy, client: http.client.HTTPConnection) -> None:
    body = b"<Delete><Object><Key>q1/a&amp;b</Key></Object><Object><Key>q1/c</Key></Object></Delete>"
    ask(client, "POST", "/bucket/?delete", body)
    (request,) = proxy.requests
    assert (request.kind, request.key) == ("BULK_DELETE", "q1/a&b")


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("c/q1", "."),
        ("c/q1/metadata", "."),
        ("c/q1/offsets/3", "offsets/"),
        ("c/q1/commits/", "commits/"),
        ("c/q1/state/", "state/"),
        ("c/q1/state/0/1/2.delta", "state/"),
        ("c/q1/state/_merged/1.merged", "state/_merged/"),
        ("c/q1/state/_merged/", "state/_merged/"),
        ("c/q10/offsets/3", ""),
    ],
)
def test_areas(key: str, where: str) -> None:
    assert area(key, "/c/q1/") == where
