"""Downloads from a server of our own on 127.0.0.1."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from moml.data.images.fetch import download
from moml.errors import DataError

BODY = np.random.default_rng(0).bytes(1_000_003)
SHA = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Behaves as `server.way` says; keeps what it was asked for."""

    def do_GET(self):
        way, ask = self.server.way, self.headers.get("Range")
        self.server.asked.append(ask)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
            return
        if self.path == "/none" or way == "404":
            self.send_error(404)
            return
        if way == "503 once" and len(self.server.asked) == 1:
            self.send_error(503)
            return
        start = int(ask.removeprefix("bytes=").rstrip("-")) if ask and way != "no range" else 0
        body = self.server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            shown = start + 1 if way == "other range" else start
            total = len(self.server.body)
            self.send_header("Content-Range", f"bytes {shown}-{total - 1}/{total}")
        if way != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if way in ("breaks", "no range, breaks") or (way == "breaks once" and not start):
            body = body[: max(len(body) // 2, 100_000)]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.way, made.asked, made.body = "good", [], BODY
        made.url = f"http://127.0.0.1:{made.server_port}"
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(server, target, paths=("/file",), **more):
    addresses = [server.url + path for path in paths]
    return download(addresses, target, len(BODY), SHA, pause=0.0, **more)


def alone(folder, *names):
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize("way", ["good", "no length", "503 once"])
def test_a_file_comes_whole(server, tmp_path, way):
    server.way, told = way, []
    target = tmp_path / "deep" / "folder" / "file"
    assert get(server, target, progress=lambda *both: told.append(both)) == target
    assert target.read_bytes() == BODY
    alone(target.parent, "file")
    assert told[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("have", [1, 500_000, len(BODY) - 1])
def test_it_goes_on_from_a_part(server, tmp_path, have):
    (tmp_path / "file.partial").write_bytes(BODY[:have])
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.asked == [f"bytes={have}-"]


def test_a_part_that_is_all_needs_no_server(server, tmp_path):
    (tmp_path / "file.partial").write_bytes(BODY)
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY and not server.asked


@pytest.mark.parametrize("have", [b"x" * 4000, b"x" * len(BODY), b"x" * (len(BODY) + 1)])
def test_a_part_of_another_file_is_dropped(server, tmp_path, have):
    (tmp_path / "file.partial").write_bytes(have)
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    alone(tmp_path, "file")


def test_a_broken_connection_is_taken_up_again(server, tmp_path):
    server.way = "breaks once"
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    first, second = server.asked
    assert first is None and 0 < int(second[len("bytes=") : -1]) <= len(BODY) // 2


def test_many_breaks_are_borne_while_something_comes(server, tmp_path):
    server.way = "breaks"  # always after half of the rest
    get(server, tmp_path / "file", tries=2)
    assert (tmp_path / "file").read_bytes() == BODY and len(server.asked) > 3


def test_a_server_without_ranges_begins_anew(server, tmp_path):
    server.way = "no range"
    (tmp_path / "file.partial").write_bytes(b"x" * 1000)
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_server_that_never_ends_it_is_given_up(server, tmp_path):
    server.way = "no range, breaks"
    server.body = BODY[:500_000]  # and so always the same part
    with pytest.raises(DataError, match=r"cannot fetch file: .*\d+ bytes read"):
        get(server, tmp_path / "file", tries=2)
    alone(tmp_path, "file.partial")  # for another day


def test_a_wrong_checksum_is_told_and_nothing_stays(server, tmp_path):
    server.body = BODY[:-1] + b"?"
    with pytest.raises(DataError, match=rf"expected {SHA} but got [0-9a-f]{{64}}"):
        get(server, tmp_path / "file")
    assert len(server.asked) == 1
    alone(tmp_path)


def test_more_bytes_than_there_should_be(server, tmp_path):
    server.body = BODY + b"?"
    with pytest.raises(DataError, match="must have 1,000,003 bytes; got more"):
        get(server, tmp_path / "file")


def test_an_answer_to_another_range_is_refused(server, tmp_path):
    server.way = "other range"
    (tmp_path / "file.partial").write_bytes(BODY[:1000])
    get(server, tmp_path / "file")  # begins anew
    assert server.asked == ["bytes=1000-", None]
    assert (tmp_path / "file").read_bytes() == BODY


def test_404_is_told_once_and_the_next_address_asked(server, tmp_path):
    with pytest.raises(DataError, match=r"cannot fetch file: .*/none: 404 Client Error: Not Found"):
        get(server, tmp_path / "file", ["/none"])
    assert len(server.asked) == 1
    get(server, tmp_path / "file", ["/none", "/file"])
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_redirect_keeps_the_range(server, tmp_path):
    (tmp_path / "file.partial").write_bytes(BODY[:1000])
    get(server, tmp_path / "file", ["/moved"])
    assert (tmp_path / "file").read_bytes() == BODY
    assert server.asked == ["bytes=1000-", "bytes=1000-"]


def test_nobody_there_and_nowhere_to_write(server, tmp_path):
    server.server_close()
    with pytest.raises(DataError, match="refused"):
        get(server, tmp_path / "file", tries=2)
    (tmp_path / "in the way").write_text("")
    with pytest.raises(DataError, match=r"cannot write .*in the way"):
        get(server, tmp_path / "in the way" / "file")
