# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetching from real servers on this machine, friendly and hostile."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.server
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.checksums import Checksum
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import ImageDownloadFailed, ImageUnacceptable
from ansible_collections.bootflow.compute.plugins.module_utils.core.image_access import ImageAccess
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import fetch as module
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import verify
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.fetch import CHUNK, FetchLimits, fetch

LOGIN = ImageAccess(url_username="me", url_password="pa55", headers={"X-Token": "s3cret"})
BASIC = "Basic " + base64.b64encode(b"me:pa55").decode()


class Server:
    """A server of one machine's port; ``asked``: the headers of each request."""

    def __init__(self, answer, context=None, host="127.0.0.1"):
        self.asked = asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append((self.path, dict(self.headers)))
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    answer(self)

            def log_message(self, *args):
                """Not to stderr."""

        self.http = http.server.ThreadingHTTPServer((host, 0), Handler)
        if context is not None:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = "%s://%s:%d" % (scheme, "localhost" if context else host, self.http.server_address[1])
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def serve():
    servers = []

    def start(*args, **kwargs):
        servers.append(Server(*args, **kwargs))
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key) of localhost, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    names = str(folder / "cert.pem"), str(folder / "key.pem")
    options = "-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(
        ["openssl", "req", *options.split(), "-out", names[0], "-keyout", names[1]], check=True, capture_output=True
    )
    return names


def tls(certificate, client_ca=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


def sends(data, status=200, **headers):
    def answer(request):
        request.send_response(status)
        for name, value in {"Content-Length": len(data), **headers}.items():
            request.send_header(name, str(value))
        request.end_headers()
        request.wfile.write(data)

    return answer


def redirects(url, status=302):
    return sends(b"", status, Location=url)


def endless(request):
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b"x" * CHUNK)


def drips(headers_too=False):
    """One byte in a while, for ever."""

    def answer(request):
        if not headers_too:
            request.send_response(200)
            request.end_headers()
        while True:
            request.wfile.write(b"x")
            request.wfile.flush()
            time.sleep(0.05)

    return answer


def get(url, tmp_path, access=module.OPEN, **limits):
    target = tmp_path / "target"
    got = []
    fetch(url, str(target), "img", got.append, pause=0, access=access, limits=FetchLimits(**limits))
    data = target.read_bytes()
    assert data == b"".join(got)
    return data


def refused(kind, *args, **kwargs):
    with pytest.raises(kind) as caught:
        get(*args, **kwargs)
    return caught.value


def test_the_content_is_the_server_s(serve, tmp_path):
    data = b"x" + bytes(3 * CHUNK) + os.urandom(CHUNK + 1)
    server = serve(sends(data))
    assert get(server.url + "/a", tmp_path, LOGIN) == data
    ((path, headers),) = server.asked
    assert (path, headers["Authorization"], headers["X-Token"]) == ("/a", BASIC, "s3cret")
    assert headers["User-Agent"] == "bootflow.compute" and headers["Accept-Encoding"] == "identity"


def test_without_a_length_the_content_ends_with_the_connection(serve, tmp_path):
    def answer(request):
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"hello")

    assert get(serve(answer).url, tmp_path) == b"hello"


def test_login_and_headers_do_not_follow_a_redirect_to_another_server(serve, tmp_path):
    other = serve(sends(b"data"))
    same = serve(lambda request: redirects("/b")(request) if request.path == "/a" else redirects(other.url)(request))
    assert get(same.url + "/a", tmp_path, LOGIN) == b"data"
    assert [h.get("Authorization") for _path, h in same.asked] == [BASIC, BASIC]
    ((_path, headers),) = other.asked
    assert "Authorization" not in headers and "X-Token" not in headers


def test_the_way_back_from_another_server_has_no_login(serve, tmp_path):
    servers = []

    def back(request):
        return redirects(servers[0].url + "/c")(request)

    other = serve(back)
    servers.append(serve(lambda r: (sends(b"data") if r.path == "/c" else redirects(other.url))(r)))
    assert get(servers[0].url, tmp_path, LOGIN) == b"data"
    assert "Authorization" not in servers[0].asked[1][1]


@pytest.mark.slow
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_that_are_refused(serve, tmp_path, certificate, status):
    plain = serve(sends(b"data"))
    safe = serve(redirects(plain.url, status), tls(certificate))
    error = refused(ImageDownloadFailed, safe.url, tmp_path, ImageAccess(ca_path=certificate[0]))
    assert "from https to http" in error.message and not error.retryable and not plain.asked
    error = refused(ImageDownloadFailed, serve(redirects("file:///etc/passwd", status)).url, tmp_path)
    assert "not http or https" in error.message
    round_and_round = serve(redirects("/", status))
    assert "10 redirects" in refused(ImageDownloadFailed, round_and_round.url, tmp_path).message


@pytest.mark.slow
def test_certificates(serve, tmp_path, certificate):
    server = serve(sends(b"data"), tls(certificate))
    assert "certificate" in refused(ImageDownloadFailed, server.url, tmp_path).message.lower()
    assert not server.asked
    assert get(server.url, tmp_path, ImageAccess(ca_path=certificate[0])) == b"data"
    (tmp_path / "target").unlink()
    assert get(server.url, tmp_path, ImageAccess(validate_certs=False)) == b"data"
    error = refused(ImageDownloadFailed, server.url, tmp_path, ImageAccess(ca_path="/none.pem"))
    assert "ca_path /none.pem is not a file of this host" in error.message


@pytest.mark.slow
def test_a_client_s_certificate(serve, tmp_path, certificate):
    server = serve(sends(b"data"), tls(certificate, client_ca=certificate[0]))
    trusts = ImageAccess(ca_path=certificate[0])
    refused(ImageDownloadFailed, server.url, tmp_path, trusts)
    shows = ImageAccess(ca_path=certificate[0], client_cert=certificate[0], client_key=certificate[1])
    (tmp_path / "target").unlink(missing_ok=True)
    assert get(server.url, tmp_path, shows) == b"data"


def test_the_proxy_of_the_host(serve, tmp_path, monkeypatch):
    proxy, server = serve(sends(b"proxy")), serve(sends(b"server"))
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert get(server.url, tmp_path, ImageAccess(use_proxy=False)) == b"server"
    (tmp_path / "target").unlink()
    assert get(server.url, tmp_path) == b"proxy"


def test_a_temporary_error_is_retried(serve, tmp_path):
    answers = iter([sends(b"", 503), sends(b"", 500), sends(b"data")])

    def one_after_the_other(request):
        return next(answers)(request)

    assert get(serve(one_after_the_other).url, tmp_path) == b"data"
    server = serve(sends(b"", 404))
    assert "HTTP 404" in refused(ImageDownloadFailed, server.url, tmp_path).message and len(server.asked) == 1


def test_a_content_without_end_stops_at_the_limit(serve, tmp_path):
    error = refused(ImageUnacceptable, serve(endless).url, tmp_path, max_bytes=8 * CHUNK)
    assert "larger than bootflow_image_max_gb" in error.message
    assert os.path.getsize(tmp_path / "target") <= 9 * CHUNK


def test_a_content_larger_than_the_catalogue_says(serve, tmp_path):
    error = refused(ImageUnacceptable, serve(endless).url, tmp_path, declared=CHUNK)
    assert "larger than the size that the catalogue says (1048576 bytes)" in error.message
    server = serve(sends(b"12345"))
    assert not refused(ImageUnacceptable, server.url, tmp_path, declared=4).retryable
    (tmp_path / "target").unlink()
    assert get(server.url, tmp_path, declared=5) == b"12345"


def test_a_content_larger_than_the_room(serve, tmp_path, monkeypatch):
    free = os.statvfs(tmp_path)
    free = free.f_bavail * free.f_frsize
    monkeypatch.setattr(module, "KEPT_FREE", free - 4 * CHUNK)
    monkeypatch.setattr(module.os, "statvfs", lambda path: Room(free, free * 20))
    for server in (serve(endless), serve(sends(b"", 200, **{"Content-Length": 5 * CHUNK}))):
        assert "No space left on device" in str(refused(OSError, server.url, tmp_path))
        assert not os.path.exists(tmp_path / "target") or os.path.getsize(tmp_path / "target") <= 5 * CHUNK
        (tmp_path / "target").unlink(missing_ok=True)


class Room:
    f_frsize = 1

    def __init__(self, free, blocks):
        self.f_bavail, self.f_blocks = free, blocks


@pytest.mark.parametrize("answer", [drips(), drips(headers_too=True), endless], ids=["body", "headers", "endless"])
def test_the_time_has_an_end(serve, tmp_path, answer):
    began = time.monotonic()
    error = refused(ImageDownloadFailed, serve(answer).url, tmp_path, seconds=1.5)
    assert "not complete after 1.5 s" in error.message and "bootflow_image_fetch_timeout" in error.remedy
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("answer", [drips(), drips(headers_too=True), lambda request: time.sleep(20)])
def test_a_server_that_stalls_is_given_up(serve, tmp_path, monkeypatch, answer):
    monkeypatch.setattr(module, "SLOW_SECONDS", 1.0)
    began = time.monotonic()
    assert "bytes in 1 s" in refused(ImageDownloadFailed, serve(answer).url, tmp_path).message
    assert time.monotonic() - began < 10


def test_cut_off(serve, tmp_path):
    server = serve(sends(b"12345", 200, **{"Content-Length": 9}))
    assert "cut off after 5 of 9 bytes" in refused(ImageDownloadFailed, server.url, tmp_path).message


def test_no_server(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d/i?sig=s3cret" % free.getsockname()[1]
    error = refused(ImageDownloadFailed, url, tmp_path, LOGIN)
    assert "refused" in error.message and "s3cret" not in error.message and "pa55" not in error.message


def test_the_reading_process_ends_with_the_fetch(serve, tmp_path):
    refused(ImageDownloadFailed, serve(drips()).url, tmp_path, seconds=1)
    mine = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "images.web"], capture_output=True, check=False)
    assert mine.stdout == b""


@pytest.mark.parametrize("known", ["server", "other", "path"])
def test_the_server_of_a_checksum_gets_no_login_of_the_images(serve, known):
    digest = "0" * 64

    def answer(request):
        request.send_response(200)
        request.end_headers()
        request.wfile.write(("%s  image.raw\n" % digest).encode())

    server = serve(answer)
    image = {"server": server.url, "other": "https://artifacts.example.org", "path": "/srv"}[known] + "/image.raw"
    found = verify.resolved(Checksum("sha256", address=server.url + "/SHA256SUMS"), image, LOGIN, "i")
    assert found.digest == digest
    ((_path, headers),) = server.asked
    assert (headers.get("Authorization"), headers.get("X-Token")) == (
        (None, None) if known == "other" else (BASIC, "s3cret")
    )


def test_another_server_gets_nothing_that_identifies_the_client():
    for_all = {"validate_certs": False, "ca_path": "/ca.pem", "use_proxy": False}
    whole = dataclasses.replace(LOGIN, client_cert="/me.pem", client_key="/me.key", **for_all)
    image = "https://images.example.org/image.raw"
    for same in ("https://images.example.org/sums", "HTTPS://Images.example.org:443/sums"):
        assert whole.for_server_of(same, image) == whole
    for other in ("http://images.example.org/sums", "https://images.example.org:8443/sums", "https://example.org/sums"):
        assert whole.for_server_of(other, image) == ImageAccess(**for_all)
