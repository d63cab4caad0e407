# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image that goes from host to host: by real processes and connections, between folders of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import http.server
import io
import os
import random
import resource
import shutil
import signal
import socket
import threading
import time
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay import talk
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.pieces import PIECE, read_pieces
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.plan import Peer, Plan, plan
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import server, stream
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.fetch import (
    OPEN,
    UNLIMITED,
    FetchLimits,
    url_content,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import ImageSource, cached_image
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay import offers, relay, store
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay.desk import Desk

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")

PORTS = (49400, 49650)
TOKEN, STOP = "t" * 64, "s" * 64
SIZE = 9 * PIECE + 1234


def content(size: int = SIZE, seed: int = 7) -> bytes:
    """Bytes with two pieces of zeros in them, as a disk has."""
    data = random.Random(seed).randbytes(size)
    return data[: 3 * PIECE] + bytes(2 * PIECE) + data[5 * PIECE :]


class Run:
    """Some hosts of a run, each of which is a folder, and the file of the controller."""

    def __init__(self, tmp_path: Path, data: bytes, url: str = "", checksum: str = ""):
        self.tmp_path, self.data = tmp_path, data
        self.image = ImageSource("image", "raw", checksum or hashlib.sha256(data).hexdigest(), url=url, name="debian")
        self.pieces = read_pieces(io.BytesIO(data).read)
        self.offers: dict[str, dict[str, t.Any]] = {}

    def path(self, name: str) -> str:
        path = self.tmp_path / name
        path.mkdir(exist_ok=True)
        return str(path)

    def offer(self, *names: str, serves: bool = False) -> None:
        for name in names:
            size = 0 if self.image.url else len(self.data)
            self.offers[name] = offers.offer(
                self.image, self.path(name), name, size, TOKEN, STOP, PORTS, 120.0, serves=serves
            )

    def peer(self, name: str) -> dict[str, t.Any]:
        found = self.offers[name]
        return {"name": name, "address": "127.0.0.1", **{k: found[k] for k in ("port", "fingerprint")}}

    def plan(self) -> Plan:
        return plan(Peer(n, "", o["bytes"], o["state"] == "whole") for n, o in self.offers.items())

    def connect(self) -> Plan:
        found = self.plan()
        root = "" if found.holders or self.image.url else self.pieces.root()
        origins = [*found.holders, *found.names]
        for name in found.names:
            tasks = {
                "root": root,
                "sha256": hashlib.sha256(self.data).hexdigest(),
                "may_fetch": bool(self.image.url),
                "before": [self.peer(n) for n in found.before(name)],
                "after": [self.peer(n) for n in found.after(name)],
                "origins": [self.peer(n) for n in origins if n != name],
            }
            offers.connect(self.path(name), self.image.id, TOKEN, tasks)
        return found

    def feed(self, name: str, begin: int = 0, end: int | None = None, pause: float = 0.0) -> None:
        """Send the image to a host as the controller does."""
        with open(Desk(self.path(name), self.image.id).feed, "wb", buffering=0) as pipe:
            pipe.write(talk.feed_head(begin, len(self.data), self.pieces.digests(0, len(self.pieces))))
            for offset in range(begin, len(self.data) if end is None else end, PIECE):
                if not self.pieces.is_zero(offset // PIECE):
                    pipe.write(self.data[offset : offset + PIECE])
                time.sleep(pause)

    def collect(self, name: str, seconds: float = 60.0) -> dict[str, t.Any]:
        found = offers.collect(self.image, self.path(name), seconds)
        cached = cached_image(self.image, self.path(name))
        assert cached is not None and Path(cached.path).read_bytes() == self.data
        assert set(os.listdir(self.path(name) + "/_base")) == {"image.json", os.path.basename(cached.path)}
        return found

    def end(self) -> None:
        for name, found in self.offers.items():
            if found["port"]:
                server.stop(server.Place("127.0.0.1", found["port"], found["fingerprint"]), STOP)
            self.offers[name] = {**found, "port": 0}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Run]:
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    made = Run(tmp_path, content())
    yield made
    made.end()


def status(run: Run, name: str) -> dict[str, t.Any]:
    return Desk(run.path(name), "image").status()


def wait_until(ready: t.Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_hosts_give_an_image_on_that_one_of_them_gets(run: Run) -> None:
    run.offer("a", "b", "c", "d")
    assert {o["state"] for o in run.offers.values()} == {"lacks"}
    run.connect()
    run.feed("a")
    sources = {name: run.collect(name)["source"] for name in "abcd"}
    assert sources == {"a": "the controller", "b": "a", "c": "b", "d": "c"}
    holes = os.stat(cached_image(run.image, run.path("d")).path).st_blocks * 512  # type: ignore[union-attr]
    assert holes <= len(run.data) - 2 * PIECE + 8192


def test_what_is_there_is_not_asked_for_again(run: Run) -> None:
    """A killed run has left a part of the image; one byte of it is wrong by now."""
    for name, reached, wrong in (("a", 4 * PIECE, 0), ("b", 7 * PIECE + 99, 6 * PIECE + 1)):
        (Path(run.path(name)) / "_base").mkdir(mode=0o711)
        data = bytearray(run.data[:reached])
        data[wrong] ^= 1 if wrong else 0
        (Path(run.path(name)) / "_base" / "image.part").write_bytes(data)
    run.offer("a", "b", "c")
    assert [o["bytes"] for o in run.offers.values()] == [4 * PIECE, 7 * PIECE + 99, 0]
    assert run.connect().names == ("b", "a", "c")
    run.feed("b", begin=6 * PIECE)
    assert {run.collect(name)["source"] for name in "bac"} == {"the controller", "b", "a"}


@pytest.mark.parametrize("fault", ["killed", "silent", "lies", "garbage"])
def test_a_host_that_fails_is_left_and_nothing_begins_anew(
    run: Run, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "SILENCE", 1.0)
    run.offer("a")
    right = store.Store.read
    with monkeypatch.context() as patch:
        if fault == "lies":
            patch.setattr(store.Store, "read", lambda self, n: right(self, n) if n < 6 else b"x" * len(right(self, n)))
        if fault == "garbage":
            patch.setattr(relay.Relay, "_give_data", lambda self, connection, host, n: connection.sendall(b"junk" * 99))
        run.offer("b")
    run.offer("c", "d")
    run.connect()
    pid = process_at(run.offers["b"]["port"])
    feeder = threading.Thread(target=run.feed, args=("a",), kwargs={"pause": 0.15})
    feeder.start()
    if fault in ("killed", "silent"):
        time.sleep(0.8)
        os.kill(pid, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
    feeder.join()
    found = {name: run.collect(name) for name in ("a", "c", "d")}
    assert found["c"]["source"] == "a" and found["d"]["source"] == "c"
    assert list(found["c"]["left"]) == ["b"] and not found["d"]["left"]
    assert list(found["c"]["wrong"]) == (["b"] if fault in ("lies", "garbage") else [])
    if fault == "lies":
        assert found["c"]["wrong"]["b"] == 6 * PIECE
        assert run.collect("b")["source"] == "a"  # late, but it gets the image
    elif fault == "silent":
        os.kill(pid, signal.SIGKILL)


def process_at(port: int) -> int:
    """The process that listens at a port."""
    inodes = {
        line.split()[9]
        for kind in ("tcp", "tcp6")
        for line in Path("/proc/net/%s" % kind).read_text().splitlines()[1:]
        if line.split()[1].endswith(":%04X" % port) and line.split()[3] == "0A"
    }
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(fd)[8:-1] in inodes for fd in folder.iterdir() if os.readlink(fd).startswith("socket:")):
                return int(folder.parent.name)
    raise AssertionError("nobody listens")


def test_who_sent_something_wrong_waits_for_those_that_left_it(run: Run) -> None:
    relay_ = relay.Relay.__new__(relay.Relay)
    relay_._at, relay_._delayed = {1: ("b", 3), 2: ("c", 5)}, {"b"}
    assert relay_._gives_way(1, "b") and not relay_._gives_way(2, "c")
    relay_._at = {1: ("b", 3)}
    assert not relay_._gives_way(1, "b")


def test_the_controller_goes_on_at_the_next_host_where_the_first_one_is_gone(run: Run) -> None:
    run.offer("a", "b", "c")
    run.connect()
    run.feed("a", end=5 * PIECE)
    wait_until(lambda: all(status(run, n).get("bytes") == 5 * PIECE for n in "bc"))
    os.kill(process_at(run.offers["a"]["port"]), signal.SIGKILL)
    reached = Desk(run.path("b"), "image").status()["bytes"]
    assert reached == 5 * PIECE
    run.feed("b", begin=reached)
    run.collect("b")
    assert run.collect("c")["source"] == "b"
    with pytest.raises(errors.ImageDownloadFailed, match="its process ended"):
        run.collect("a")
    assert (Path(run.path("a")) / "_base" / "image.part").stat().st_size == 5 * PIECE  # for the next run


def test_a_host_that_has_the_image_gives_it(run: Run) -> None:
    run.offer("a")
    run.connect()
    run.feed("a")
    run.collect("a")
    run.end()
    run.offers.clear()
    run.offer("a", "b", "c")
    assert [o["state"] for o in run.offers.values()] == ["whole", "lacks", "lacks"] and not run.offers["a"]["port"]
    run.offer("a", serves=True)
    found = run.connect()
    assert found.holders == ("a",) and found.names == ("b", "c")
    assert [run.collect(name)["source"] for name in "bc"] == ["a", "b"]


def test_a_holder_whose_file_is_another_one_is_found_out(run: Run) -> None:
    """Its digests are those that the others compare with: the whole tells."""
    run.offer("a")
    run.connect()
    run.feed("a")
    run.collect("a")
    run.end()
    cached = cached_image(run.image, run.path("a"))
    assert cached is not None
    times = os.stat(cached.path)
    with open(cached.path, "r+b") as file:
        file.write(b"rot")
    os.utime(cached.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    run.offers.clear()
    run.offer("b")
    run.offer("a", serves=True)
    run.connect()
    with pytest.raises(errors.ImageChecksumMismatch):
        run.collect("b")
    assert os.listdir(run.path("b") + "/_base") == []


def test_two_runs_at_once_fetch_it_once(run: Run) -> None:
    run.offer("a")
    first, run.offers = run.offers, {}
    run.offer("a")
    assert run.offers["a"] == {"state": "busy", "bytes": 0, "port": 0, "fingerprint": "", "changed": False}
    run.offers = first
    run.connect()
    waiting: list[t.Any] = []
    other = threading.Thread(target=lambda: waiting.append(offers.collect(run.image, run.path("a"), 60.0)))
    other.start()
    run.feed("a", pause=0.05)
    other.join()
    assert waiting[0]["changed"] and cached_image(run.image, run.path("a")) is not None


def test_an_image_that_was_removed_comes_again_while_the_former_process_still_gives_it(run: Run) -> None:
    run.offer("a")
    run.connect()
    run.feed("a")
    run.collect("a")
    former, run.offers = run.offers["a"], {}
    cached = cached_image(run.image, run.path("a"))
    assert cached is not None
    for name in (cached.path, run.path("a") + "/_base/image.json"):
        os.unlink(name)
    try:
        run.offer("a")
        assert run.offers["a"]["state"] == "lacks" and process_at(former["port"])
        run.connect()
        run.feed("a")
        assert run.collect("a")["source"] == "the controller"
    finally:
        server.stop(server.Place("127.0.0.1", former["port"], former["fingerprint"]), STOP)


def test_each_of_two_runs_is_told_how_it_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.offer("a")
    offers.connect(
        run.path("a"), "image", TOKEN, {"error": errors.ImageUnacceptable(image_id="x", reason="odd").as_dict()}
    )
    for token in ("another run's", TOKEN):
        with pytest.raises(errors.ImageUnacceptable, match="odd"):
            offers.collect(run.image, run.path("a"), 60.0, token)
    assert not Desk(run.path("a"), "image").exists()


def test_room_is_asked_before_anything_is_written(run: Run) -> None:
    size = 10 * 1024**5
    with pytest.raises(errors.DiskFull, match="image debian needs"):
        offers.offer(run.image, run.path("a"), "a", size, TOKEN, STOP, PORTS, 60.0)
    assert os.listdir(run.path("a") + "/_base") == [] and os.listdir(run.path("a") + "/locks") == []


def test_hosts_that_do_not_reach_each_other_say_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "ALONE", 1.0)
    run.offer("a", "b")
    run.offers["a"]["port"] += 200  # a firewall
    run.connect()
    with pytest.raises(errors.ImageDownloadFailed, match="reaches no other host: a"):
        run.collect("b")
    run.offers["a"]["port"] -= 200


def test_a_run_that_is_gone_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "STARVED", 1.0)
    monkeypatch.setattr(relay, "ADRIFT", 0.5)
    run.offer("a", "b")
    run.connect()
    run.feed("a", end=4 * PIECE)
    for name in "ab":
        with pytest.raises(errors.ImageDownloadFailed, match="nothing came"):
            run.collect(name)
        assert (Path(run.path(name)) / "_base" / "image.part").stat().st_size in (4 * PIECE, 5 * PIECE)  # zeros follow
        assert os.listdir(run.path(name) + "/locks") == []


def test_the_next_run_takes_over_what_a_killed_one_has_left_in_the_hands_of_its_process(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ADRIFT", 0.3)
    run.offer("a", "b")
    run.connect()
    run.feed("a", end=6 * PIECE)
    wait_until(lambda: all(status(run, n).get("bytes") == 6 * PIECE and status(run, n)["adrift"] for n in "ab"))
    monkeypatch.undo()
    run.offers.clear()
    run.offer("a", "b")
    assert [(o["state"], o["bytes"]) for o in run.offers.values()] == [("lacks", 6 * PIECE)] * 2
    with pytest.raises(errors.InvalidInput, match="has ended"):
        offers.connect(run.path("a"), "image", "another run's token", {})
    run.connect()
    run.feed("a", begin=6 * PIECE)
    assert [run.collect(name)["source"] for name in "ab"] == ["the controller", "a"]


def test_a_stranger_gets_nothing(run: Run) -> None:
    run.offer("a")
    place = server.Place("127.0.0.1", run.offers["a"]["port"], run.offers["a"]["fingerprint"])
    for asked in ({"token": "x" * 64, "want": "data", "from": 0}, {"token": TOKEN, "want": "data", "from": -1}):
        with server.connected(place) as stream:
            server.send_line(stream, asked)
            assert stream.read(1) == b""


REST_BEGINS = 6 * PIECE


class Web(http.server.BaseHTTPRequestHandler):
    """A web server that knows ranges, and notes where they begin."""

    content = b""
    begins: t.ClassVar[list[int]] = []
    rest = threading.Event()  # of the content, after REST_BEGINS

    def do_GET(self) -> None:
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.begins.append(begin)
        self.send_response(206 if begin else 200)
        self.send_header("ETag", '"one"')
        if begin:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (begin, len(self.content) - 1, len(self.content)))
        self.send_header("Content-Length", str(len(self.content) - begin))
        self.end_headers()
        for offset in range(begin, len(self.content), PIECE):
            if offset >= REST_BEGINS:
                self.rest.wait(60)
            self.wfile.write(self.content[offset : offset + PIECE])
            self.wfile.flush()
            time.sleep(0.1)

    def log_message(self, *_arguments: t.Any) -> None:
        pass


@pytest.fixture
def web(run: Run) -> t.Iterator[type[Web]]:
    Web.content = run.data
    Web.begins.clear()
    Web.rest.set()
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    run.image = ImageSource(
        "image", "raw", run.image.checksum, url="http://127.0.0.1:%d/debian.raw" % site.server_port, name="debian"
    )
    yield Web
    site.shutdown()


def test_one_host_fetches_from_a_web_server_for_all(run: Run, web: type[Web]) -> None:
    run.offer("a", "b", "c")
    run.connect()
    assert [run.collect(name)["source"] for name in "abc"] == [run.image.url, "a", "b"]
    assert web.begins == [0]


def test_the_next_host_fetches_the_rest_from_the_web_server_where_the_first_one_is_gone(
    run: Run, web: type[Web]
) -> None:
    web.rest.clear()
    run.offer("a", "b", "c")
    run.connect()
    wait_until(lambda: all(status(run, name).get("bytes", 0) >= 4 * PIECE for name in "bc"))
    os.kill(process_at(run.offers["a"]["port"]), signal.SIGKILL)
    web.rest.set()
    assert [run.collect(name)["source"] for name in "bc"] == [run.image.url, "b"]
    assert web.begins[0] == 0 and web.begins[1] >= 4 * PIECE and len(web.begins) == 2


def test_what_a_web_server_has_changed_meanwhile_is_fetched_anew(run: Run, web: type[Web]) -> None:
    (Path(run.path("a")) / "_base").mkdir(mode=0o711)
    (Path(run.path("a")) / "_base" / "image.part").write_bytes(bytes(5 * PIECE))
    run.offer("a", "b")
    run.connect()
    assert run.collect("a")["source"] == run.image.url and run.collect("b")["source"] == "a"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_killed_the_others_get_the_image(run: Run, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts are killed, or stand still, at random moments; the controller goes on at the next host where its own one is gone."""
    for name, seconds in (("SILENCE", 1.0), ("REST", 0.3), ("ADRIFT", 2.0)):
        monkeypatch.setattr(relay, name, seconds)
    chance, names = random.Random(seed), "abcdef"
    run.offer(*names)
    order = run.connect().names
    pids = {name: process_at(run.offers[name]["port"]) for name in names}
    victims = chance.sample(names, chance.randint(1, 4))
    over = threading.Event()

    def strike() -> None:
        for name in victims:
            time.sleep(chance.random() * 0.6)
            os.kill(pids[name], chance.choice([signal.SIGKILL, signal.SIGSTOP]))
        over.set()

    threading.Thread(target=strike, daemon=True).start()
    sent = False
    for name in order:
        reached = int(Desk(run.path(name), "image").status().get("bytes") or 0) // PIECE * PIECE
        sent = sent or fed(run, name, reached)
    over.wait(10)
    for name in set(names) - set(victims):
        run.collect(name)
    for name in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[name], signal.SIGKILL)


def fed(run: Run, name: str, begin: int) -> bool:
    """Send the rest of the image to a host in a process that can be ended. Returns whether the host took it all."""
    feeder = os.fork()
    if not feeder:
        status = 1
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            run.feed(name, begin, pause=0.1)
            status = 0
        finally:
            os._exit(status)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        ended, status = os.waitpid(feeder, os.WNOHANG)
        if ended:
            return status == 0 and Desk(run.path(name), "image").status().get("bytes") == len(run.data)
        time.sleep(0.05)
    os.kill(feeder, signal.SIGKILL)
    os.waitpid(feeder, 0)
    return False


# --- what hosts do that lie, have no room, or are many ----------------------------------------------------------------------


def limited(run: Run, **limits: t.Any) -> None:
    run.image = dataclasses.replace(run.image, limits=FetchLimits(**limits))


def test_a_host_without_room_ends_and_the_others_go_on(
    run: Run, web: type[Web], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a server says no size, a host learns only by and by how much comes."""
    right = os.statvfs

    def statvfs(path: t.Any) -> t.Any:
        if not str(path).startswith(run.path("b")):
            return right(path)
        used = sum(file.stat().st_blocks * 512 for file in Path(path).glob("image.part"))
        return types.SimpleNamespace(f_bavail=max(0, 5 * PIECE - used), f_frsize=1, f_blocks=5 * PIECE)

    monkeypatch.setattr(os, "statvfs", statvfs)
    run.offer("a", "b", "c")
    run.connect()
    with pytest.raises(errors.DiskFull) as caught:
        run.collect("b")
    assert "b/_base" in caught.value.message
    assert run.collect("a")["source"] == run.image.url and run.collect("c")["source"] == "a"
    assert (Path(run.path("b")) / "_base" / "image.part").stat().st_size == 0


def test_a_file_system_that_is_full_is_no_fault_of_the_host_that_sends(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.offer("a")
    right = store.Store._write

    def write(self: store.Store, data: bytes, offset: int) -> None:
        if offset >= 6 * PIECE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        right(self, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "_write", write)
        run.offer("b")
    run.connect()
    run.feed("a")
    with pytest.raises(errors.DiskFull):
        run.collect("b")
    run.collect("a")


def test_no_host_receives_more_than_the_limits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.offer("a")
    run.connect()
    run.feed("a")
    run.collect("a")
    run.end()
    run.offers.clear()
    run.offer("a", serves=True)
    run.image = dataclasses.replace(run.image, url="http://127.0.0.1:9/debian.raw")  # nobody answers there
    limited(run, declared=SIZE - PIECE)
    run.offer("b")
    run.connect()
    with pytest.raises(errors.BootflowError):
        run.collect("b", 15.0)
    assert (Path(run.path("b")) / "_base" / "image.part").stat().st_size <= SIZE - PIECE


@pytest.mark.parametrize("root", [True, False])
def test_digests_without_end_are_not_kept(run: Run, root: bool) -> None:
    process = relay.Relay.__new__(relay.Relay)
    process._root, process._size, process.state, process._is_origin = "x" * root, SIZE * root, talk.RECEIVES, False
    process.image = dataclasses.replace(run.image, limits=FetchLimits(max_bytes=SIZE))
    with open(run.tmp_path / "file", "w+b") as file:
        process.store = store.Store(file.fileno())
        frame = talk.FRAME.pack(0, PIECE) + bytes(PIECE)
        with pytest.raises(stream.Garbled, match="more digests"):
            process._take_digests(t.cast("stream.Stream", io.BytesIO(frame * 4)))


def test_a_piece_behind_the_end_is_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.offer("a")
    with monkeypatch.context() as patch:
        far = talk.FRAME.pack(1000 * PIECE, 4) + b"junk"
        patch.setattr(relay.Relay, "_give_data", lambda self, connection, host, n: connection.sendall(far * 9))
        run.offer("b")
    run.offer("c")
    run.connect()
    run.feed("a")
    found = run.collect("c", 30.0)
    assert found["source"] == "a" and list(found["wrong"]) == ["b"]
    run.collect("a")


def test_a_host_that_only_promises_is_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "SLOW", 2.0)
    run.offer("a")

    def promise(_self: t.Any, connection: t.Any, _host: str, _number: int) -> None:
        while True:
            connection.sendall(talk.FRAME.pack(talk.WAITS, 0))
            time.sleep(0.2)

    with monkeypatch.context() as patch:
        patch.setattr(relay.Relay, "_give_data", promise)
        run.offer("b")
    run.offer("c")
    run.connect()
    run.feed("a")
    found = run.collect("c", 30.0)
    assert found["source"] == "a" and list(found["left"]) == ["b"]
    run.collect("a")


def test_a_holder_that_is_wrong_fails_no_build(run: Run) -> None:
    """See above: the image is not refused, as it may be the holder's fault, who is named."""
    run.offer("a")
    run.connect()
    run.feed("a")
    run.collect("a")
    run.end()
    cached = cached_image(run.image, run.path("a"))
    assert cached is not None
    times = os.stat(cached.path)
    with open(cached.path, "r+b") as file:
        file.write(b"rot")
    os.utime(cached.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    run.offers.clear()
    run.offer("b")
    run.offer("a", serves=True)
    run.connect()
    with pytest.raises(errors.ImageChecksumMismatch) as caught:
        run.collect("b")
    assert caught.value.retryable and caught.value.remedy.startswith("a said what the pieces")


def test_a_web_server_that_has_another_file_is_the_catalogues_fault(run: Run, web: type[Web]) -> None:
    web.content = content(seed=8)
    run.offer("a")
    run.connect()
    with pytest.raises(errors.ImageChecksumMismatch) as caught:
        run.collect("a")
    assert not caught.value.retryable


def test_many_hosts_ask_the_one_where_the_image_comes_from(run: Run, web: type[Web]) -> None:
    run.offer("a")
    run.connect()
    wait_until(lambda: status(run, "a").get("source") == run.image.url)
    place = server.Place("127.0.0.1", run.offers["a"]["port"], run.offers["a"]["fingerprint"])
    with contextlib.ExitStack() as connections:
        for number in range(70):
            opened = connections.enter_context(server.connected(place))
            asked = {"token": TOKEN, "host": "h%d" % number, "want": talk.DIGESTS, "from": 0}
            server.send_line(opened, asked)
            assert server.read_line(opened)["own"]
        opened = connections.enter_context(server.connected(place))
        server.send_line(opened, {"token": TOKEN, "host": "next", "want": talk.DATA, "from": 0})
        assert server.read_line(opened)["own"] and opened.read(talk.FRAME.size) == talk.FRAME.pack(0, PIECE)
    run.collect("a")


def test_a_process_with_many_connections_fetches(run: Run, web: type[Web]) -> None:
    """select() takes no descriptors from 1024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < 1100:
            held.append(os.open(os.devnull, os.O_RDONLY))
        with url_content(run.image.url, str(run.tmp_path), "debian", OPEN, UNLIMITED) as (total, _version, chunks):
            assert (total, b"".join(chunks)) == (SIZE, run.data)
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_hosts_that_do_not_know_yet_whom_to_ask_are_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller tells one after the other: of many hosts, the last ones know it minutes later."""
    for name, seconds in (("STARVED", 1.0), ("ADRIFT", 0.3), ("IDLE", 1.0)):
        monkeypatch.setattr(relay, name, seconds)
    run.offer("a", "b")
    right, told = offers.connect, []
    with monkeypatch.context() as patch:
        patch.setattr(offers, "connect", lambda *arguments: told.append(arguments))
        run.connect()
    right(*told[1])
    time.sleep(4.0)
    assert status(run, "a")["adrift"] and status(run, "b")["adrift"]  # another run would take over
    right(*told[0])
    run.feed("a")
    assert run.collect("b")["source"] == "a"
    run.collect("a")


def test_a_holder_waits_until_hosts_know_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.offer("a")
    run.connect()
    run.feed("a")
    run.collect("a")
    run.end()
    run.offers.clear()
    monkeypatch.setattr(relay, "IDLE", 0.5)
    run.offer("a", serves=True)
    time.sleep(2.5)
    run.offer("b")
    run.connect()
    assert run.collect("b")["source"] == "a"
    monkeypatch.setattr(relay, "BEGINS", 1.0)
    run.offer("a", serves=True)
    pid = process_at(run.offers["a"]["port"])
    place = server.Place("127.0.0.1", run.offers["a"]["port"], "")
    with socket.create_connection((place.address, place.port)):  # a stranger
        wait_until(lambda: not Path("/proc/%d" % pid).exists())
