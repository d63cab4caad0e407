# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The process of a host that receives an image, and gives it on to other hosts of the run while it still arrives.

It is the server of copies/server.py: a separate key, pinned by the controller, and a token of the run. What it has is in order: each piece is
compared with its SHA-256 before it is written, and is given on from there. The whole is compared with the catalogue before it is published.

The SHA-256 of the pieces are the controller's where it sends the image: it gives their root. Else they come from the host where the image comes
from (it fetches it by its URL, or has it already), asked there and not handed on by others: provisional until the whole is right.

A host that is gone, silent or wrong is left, and the next one continues at that byte. Who sent a wrong piece is asked no more, and named; the host
from which that one gets the image serves whoever left it first.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import resource
import socket
import ssl
import threading
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import BootflowError, DiskFull, ImageChecksumMismatch, ImageDownloadFailed, from_dict
from ...core.relay.pieces import DIGEST, PIECE, ZEROS, Pieces, count, root_of
from ...core.relay.talk import (
    DATA,
    DIGESTS,
    DONE,
    FAILED,
    FRAME,
    NOWHERE,
    PUBLISHES,
    RECEIVES,
    UNCERTAIN,
    WAITS,
    read_feed_head,
)
from ..copies.server import Place, Server, opened
from ..copies.stream import Garbled, Stream, read_line, send_line
from ..images.fetch import check_size, shown_url, url_content
from ..images.images import ImageSource, accept_fetched, fetched_file
from ..os.locks import InheritedLock
from ..os.module_errors import as_bootflow_error
from .desk import Desk
from .store import Store, WrongPiece

SILENCE = 5.0  # seconds after which a host that sends nothing is left: one that has nothing says so each second
SLOW = 60.0  # seconds that one piece may take
REST = 3.0  # seconds after which a host that was left is asked again
ADRIFT = 10.0  # seconds after which a host is left that itself gets the image from nowhere
STARVED = 60.0  # seconds without anything new, from nowhere: the image does not come any more
BEGINS = 300.0  # seconds in which the controller tells all hosts whom to ask, and begins to send it to the first one
ALONE = 20.0  # seconds in which a host has to reach another
SAYS = 1.0  # seconds after which a host that passes zeros, which are not sent, says that it goes on
IDLE = 20.0  # seconds without a connection after which a host that has it is not needed any more
UNHEARD = 120.0  # seconds that it stays at most for a process that asks how it ended
_PIPE = 1024**2  # bytes
_DIGESTS_A_SECOND = 500  # answers with digests, to all hosts


@dataclass(frozen=True)
class Source:
    """Another host of the run."""

    name: str
    place: Place


class Relay(Server):
    """See above. ``wrong``: hosts that sent a wrong piece, and its offset. ``failures``: hosts that were left, and why."""

    most_of_token = 16384  # all hosts of a run show the same one, and ask the host where the image comes from

    def __init__(
        self,
        name: str,
        image: ImageSource,
        instances_path: str,
        store: Store,
        token: str,
        stop: str,
        seconds: float,
        lock: InheritedLock | None = None,
        begins: float = 0.0,
    ):
        """:arg name: of this host. :arg lock: of the image; None: this host has it, and only gives it to others. :arg begins: 0: BEGINS"""
        super().__init__(stop, seconds)
        self.name, self.image, self.instances_path = name, image, instances_path
        self.begins = begins or BEGINS
        self._was_used = False  # a host has shown the token
        self.store, self.token, self.lock = store, token, lock
        self._holds_lock = lock is not None
        self.desk = Desk(instances_path, image.id)
        self.code: list[int] = []  # open files of Python's modules, which are gone where this process needs them
        self.state = RECEIVES if lock else DONE
        self.error: BootflowError | None = None
        self.wrong: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self.source = ""  # whom it gets it from now
        self.depth = NOWHERE
        self.begun = self.moved = self.used = time.monotonic()
        self._before: list[Source] = []
        self._after: list[Source] = []
        self._origins: list[Source] = []
        self._root, self._sha256, self._may_fetch, self._is_first = "", "", False, False
        self._size = 0  # bytes of the image, as the controller says; 0: it does not know
        self._is_origin = lock is None  # its digests count
        self._fed = 0.0  # when the controller sent something
        self._asked: float | None = None  # when it got the host to ask
        self._reached = False  # another host
        self._fetches = False  # from the web server
        self._resting: dict[str, float] = {}
        self._last_status: t.Any = None
        self._telling = threading.Lock()
        self._at: dict[int, tuple[str, int]] = {}  # host and next piece of each connection that gets data, by number
        self._delayed: set[str] = set()  # hosts that sent something wrong, as others say
        self._digest_source = (
            ""  # who said what the pieces are, and the whole has not been compared: a host, or an earlier run
        )

    # --- the process ------------------------------------------------------------------------------------------------------

    def run(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        with contextlib.suppress(OSError, ValueError):  # each connection is a file
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._do(self._work if self.lock else self._read_own)
        try:
            super().run(listener, context)
        finally:
            if self.state not in (DONE, FAILED):
                self._fail("it was stopped")
            if isinstance(self.error, DiskFull):
                os.ftruncate(self.store.fd, 0)  # guests need the room more than a later run needs what arrived
            self._tell()
            self._release()

    def _do(self, work: t.Callable[[], None]) -> None:
        threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def goes_on(self) -> bool:
        now = time.monotonic()
        self._tell()
        with self.at_door:
            is_used = any(connection.token for connection in self.connections)  # others are strangers'
        if is_used:
            self.used, self._was_used = now, True
        if self.state == FAILED:
            return False
        if self.state == DONE:
            heard = self.lock is None or not self.desk.is_of(self.token)
            if heard:
                return now - self.used < (IDLE if self._was_used or self.lock is not None else self.begins)
            if now - max(self.used, self.moved) < UNHEARD:
                return True
            self.desk.remove()
            return False
        if self.state == RECEIVES:
            if self.desk.is_to_end():
                self._fail("another run takes over")
            self._check_hope(now)
        return True

    def _check_hope(self, now: float) -> None:
        """End it where the image does not come any more."""
        begins = self._asked is None or (self._is_first and not self._fed)
        if self._comes() < NOWHERE and (self._fetches or now - self.moved < self.begins + STARVED):
            return
        if now - self.moved > (self.begins if begins else STARVED):
            self._fail("nothing came for %d s" % (now - self.moved))
        elif self._before and not self._reached and not self._fed and self._asked and now - self._asked > ALONE:
            self._fail(
                "it reaches no other host: %s" % "; ".join("%s (%s)" % failure for failure in self.failures.items())
            )

    def _comes(self) -> int:
        """How many hosts this one is away from where the image comes from."""
        now = time.monotonic()
        if self.store.is_whole or (self._is_origin and self.lock is None) or self._fetches:
            return 0
        if now - self._fed < ADRIFT or (self._is_first and not self._fed and now - self.begun < self.begins):
            return 0
        if self._asked is None and now - self.begun < self.begins:
            return UNCERTAIN
        return self.depth

    def _guarded(self, work: t.Callable[[], None]) -> None:
        try:
            work()
        except BootflowError as error:
            self._fail(error)
        except OSError as error:
            self._fail(as_bootflow_error(error, self.desk.folder))
        except Exception as error:
            self._fail("%s: %s" % (type(error).__name__, error))

    def _fail(self, reason: BootflowError | str) -> None:
        if self.state not in (DONE, FAILED):
            self.error = reason if isinstance(reason, BootflowError) else self._failed(reason)
            self.state = FAILED

    def _failed(self, reason: str) -> ImageDownloadFailed:
        error = ImageDownloadFailed(image_id=self.image.label, url="other hosts", reason=reason)
        error.remedy = "Hosts must reach each other at bootflow_copy_address and bootflow_copy_ports."
        return error

    def _tell(self) -> None:
        now = {
            "state": self.state,
            "bytes": self.store.size,
            "size": self.store.pieces.size,
            "source": self.source,
            "adrift": self._is_adrift(),
            "wrong": dict(self.wrong),
            "left": dict(self.failures),
            "error": self.error.as_dict() if self.error else None,
        }
        with self._telling:
            if now != self._last_status and self._holds_lock and self.desk.tell(now):
                self._last_status = now

    def _release(self) -> None:
        """Release the lock of the image: a host whose file is removed gets the image again, although this process still gives what it has."""
        with self._telling:
            if self._holds_lock and self.lock is not None:
                self._holds_lock = False
                self.lock.end()

    def _is_adrift(self) -> bool:
        """Whether its run may be gone: another one may take over."""
        now = time.monotonic()
        late = self._is_first and not self._fed and now - self.begun > BEGINS
        return now - self.moved > ADRIFT and (self._asked is None or late or self._comes() >= UNCERTAIN)

    # --- it receives ------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self._await_tasks()
        self._do(self._ask_digests)
        if self._root:
            self._do(self._take_feed)
        self._receive()

    def _receive(self) -> None:
        """Get the image from wherever it comes, and publish it."""
        while not self.store.is_whole and self.state == RECEIVES:
            if time.monotonic() - self._fed < SILENCE:
                self.store.wait(lambda: self.store.is_whole, 0.5)
                continue
            reached = any(self._get_from(source) for source in self._rested(self._before))
            if self.store.is_whole or reached:
                continue
            if self._may_fetch and not self._rested(self._before, resting=True):
                self._fetch()
            elif time.monotonic() - self.moved > ADRIFT and (self._is_first or self._comes() == NOWHERE):
                any(self._get_from(source) for source in self._rested(self._after))
            self.store.wait(lambda: self.store.is_whole, 0.2)
        if self.store.is_whole and self.state == RECEIVES:
            self._publish()

    def _await_tasks(self) -> None:
        """Wait for the hosts to ask."""
        while (tasks := self.desk.tasks()) is None:
            time.sleep(0.05)
        if tasks.get("error"):
            raise from_dict(tasks["error"])
        self._root, self._sha256, self._may_fetch = tasks["root"], tasks["sha256"], tasks["may_fetch"]
        self._size = int(tasks.get("size") or 0)
        self._before, self._after, self._origins = (
            [Source(s["name"], Place(s["address"], s["port"], s["fingerprint"])) for s in tasks[kind]]
            for kind in ("before", "after", "origins")
        )
        self._is_first = bool(self._root) and not self._before
        self._asked = self.moved = time.monotonic()

    def _rested(self, sources: t.Iterable[Source], resting: bool = False) -> list[Source]:
        """Return the hosts that may be asked now. :arg resting: the hosts that never failed, instead"""
        now = time.monotonic()
        if resting:
            return [s for s in sources if s.name not in self.wrong and s.name not in self.failures]
        return [s for s in sources if s.name not in self.wrong and self._resting.get(s.name, 0.0) <= now]

    def _leave(self, source: Source, reason: str) -> None:
        self.failures[source.name] = reason
        self._resting[source.name] = time.monotonic() + REST
        self.source, self.depth = "", NOWHERE

    def _get_from(self, source: Source) -> bool:
        """Get data from another host as long as it sends some. Returns whether it sent any."""
        if self._root and self.store.pieces.size is None:  # they are requested first
            return False
        before = self.store.have
        try:
            with opened(source.place, SILENCE) as secured:
                asked = {
                    "token": self.token,
                    "host": self.name,
                    "want": DATA,
                    "from": before,
                    "wrong": list(self.wrong),
                }
                stream = t.cast(Stream, secured.makefile("rwb", buffering=PIECE))
                send_line(stream, asked)
                _reply(stream)
                self._reached, self.source = True, source.name
                self._take_data(stream, source)
        except (WrongPiece, Garbled) as error:
            self.wrong[source.name] = self.store.size
            self._leave(source, str(error))
        except OSError as error:
            self._leave(source, str(error) or type(error).__name__)
        return self.store.have > before

    def _take_data(self, stream: Stream, source: Source) -> None:
        adrift = arrived = time.monotonic()
        while not self.store.is_whole and self.state == RECEIVES:
            self._add_zeros()
            if time.monotonic() - self._fed < SILENCE:
                return
            offset, length = FRAME.unpack(_exactly(stream, FRAME.size))
            now = time.monotonic()
            if offset == WAITS:
                self.depth = min(length + 1, NOWHERE)
                adrift = adrift if self.depth == NOWHERE else now
                if now - adrift > ADRIFT:
                    self._leave(source, "it does not get the image")
                    return
                if now - arrived > SLOW:  # its disk does not write, or it lies
                    self._leave(source, "it sent nothing for %d s, and said that it will" % SLOW)
                    return
                continue
            if length == 0:
                # All that it has: the digests that are still to come tell whether that is all.
                if not self.store.wait(lambda: self.store.is_whole, SILENCE):
                    raise Garbled("the file ends early")
                return
            if length > PIECE or offset % PIECE:
                raise Garbled("no piece")
            self.depth, adrift = min(self.depth, NOWHERE - 1), now
            data, number = _exactly(stream, length), offset // PIECE
            while not self.store.wait(lambda: number < len(self.store.pieces), 1.0):  # noqa: B023
                if self.store.pieces.size is not None:
                    raise Garbled("no piece of it")
                if self.state != RECEIVES or self._comes() == NOWHERE:
                    return
                if time.monotonic() - now > ADRIFT:
                    self._leave(source, "no host reports the digests of its pieces")
                    return
            self._add_zeros()
            if number < self.store.have:  # the controller, or a run before, was faster
                arrived = now
                continue
            self._add(number, data)
            self.moved = arrived = time.monotonic()

    def _add(self, number: int, data: bytes) -> None:
        """Keep a piece. :raises WrongPiece: the image has another one. :raises BootflowError: the file system has no room for the piece."""
        begin, image = number * PIECE, self.image
        folder = os.path.dirname(self.desk.folder)
        more = 0 if self.store.pieces.is_zero(number) else len(data)
        end = begin + len(data)
        try:
            check_size(image.label, image.path or image.url, folder, end, end - more, image.limits)
            self.store.add(number, data)
        except OSError as error:  # no other host is to blame
            raise as_bootflow_error(error, folder) from None

    def _add_zeros(self) -> None:
        """Keep the pieces of zeros that follow. :raises BootflowError: see _add()"""
        while self.store.have < len(self.store.pieces) and self.store.pieces.is_zero(self.store.have):
            self._add(self.store.have, ZEROS)

    # --- the digests of its pieces ----------------------------------------------------------------------------------------

    def _ask_digests(self) -> None:
        """Get the digests: from anybody where their root is known, else from where the image comes from."""
        sources = [*self._before, *self._after] if self._root else self._origins
        while self.store.pieces.size is None and not self._is_origin and self.state == RECEIVES:
            for source in sources:
                if source.name not in self.wrong and self.store.pieces.size is None and not self._is_origin:
                    self._digests_from(source)
            self.store.wait(lambda: self.store.pieces.size is not None, 0.2)

    def _digests_from(self, source: Source) -> None:
        try:
            with opened(source.place, SILENCE) as secured:
                stream = t.cast(Stream, secured.makefile("rwb", buffering=PIECE))
                begin = 0 if self._root else len(self.store.pieces)
                send_line(stream, {"token": self.token, "host": self.name, "want": DIGESTS, "from": begin})
                head = _reply(stream)
                self._reached = True
                if not self._root and not head.get("own"):
                    return
                if not self._root:
                    self.store.note_version(str(head.get("version") or ""))
                    self._digest_source = source.name
                self._take_digests(stream)
        except (WrongPiece, Garbled) as error:
            self.wrong[source.name] = self.store.size
            self.failures[source.name] = str(error)
        except OSError as error:
            self.failures[source.name] = str(error) or type(error).__name__

    def _take_digests(self, stream: Stream) -> None:
        whole = bytearray()
        adrift = time.monotonic()
        while self.store.pieces.size is None and not self._is_origin and self.state == RECEIVES:
            size, length = FRAME.unpack(_exactly(stream, FRAME.size))
            if size == WAITS:
                if self._root:
                    self.depth = min(length + 1, NOWHERE)
                adrift = adrift if length >= NOWHERE else time.monotonic()
                if time.monotonic() - adrift > ADRIFT:
                    return
                continue
            if length == 0:
                self._end_digests(size, whole)
                return
            if length > PIECE:
                raise Garbled("no digests")
            digests = _exactly(stream, length)
            if self._knows_digests():  # meanwhile, of another source
                return
            if len(whole) + length > self._most_digests(len(self.store.pieces)):
                raise Garbled("more digests than the image has pieces")
            if self._root:
                whole += digests
            else:
                self.store.learn(digests)

    def _knows_digests(self) -> bool:
        """Whether the digests of all pieces are known, or made by this host."""
        return self.store.pieces.size is not None or self._is_origin

    def _most_digests(self, known: int) -> int:
        """Bytes of digests that another host may send. :arg known: pieces with a digest"""
        limits = self.image.limits
        size = self._size or (limits.max_bytes if limits.declared is None else limits.declared)
        return max(0, count(size) - known) * DIGEST if size else 2**40

    def _end_digests(self, size: int, whole: bytearray) -> None:
        if not self._root:
            self.store.learn(b"", size)
            return
        if root_of(size, whole) != self._root:
            raise WrongPiece("digests of another file")
        self._expect(size, bytes(whole))

    def _expect(self, size: int, digests: bytes) -> None:
        pieces = Pieces()
        pieces.add(digests)
        pieces.end(size)
        if self.store.pieces.size is None:
            self.store.expect(pieces)

    # --- from the controller, from a web server, from its own file --------------------------------------------------------

    def _take_feed(self) -> None:
        """Take what the controller sends by SSH."""
        while not self.store.is_whole and self.state == RECEIVES:
            with open(self.desk.feed, "rb", buffering=PIECE) as pipe, contextlib.suppress(ValueError):
                with contextlib.suppress(OSError, AttributeError):
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
                begin, size, digests = read_feed_head(pipe.readline, pipe.read)
                if root_of(size, digests) != self._root:
                    continue
                self._expect(size, digests)
                self._fed, self.source, number = time.monotonic(), "the controller", begin // PIECE
                while number < count(size):
                    if self.store.pieces.is_zero(number):  # it is not sent
                        self._add_zeros()
                        number += 1
                        continue
                    data = pipe.read(self.store.pieces.length(number))
                    if len(data) < self.store.pieces.length(number):
                        break
                    self._fed = time.monotonic()
                    try:
                        self._add(number, data)
                    except WrongPiece:
                        self.wrong["the controller"] = number * PIECE
                        break
                    self.moved, number = self._fed, number + 1

    def _fetch(self) -> None:
        """Fetch the image by its URL: from now on the digests of this host count."""
        self._is_origin, store = True, self.store
        self.source, self._fetches = shown_url(self.image.url), True
        with store.changed:
            store.changed.notify_all()
        begin = store.size or store.reusable
        try:
            self._fetch_from(begin, store.version)
        except ImageDownloadFailed:
            if store.have or not begin:
                raise
            store.begin_anew("")  # what an earlier run has left is of another file
            self._fetch_from(0, "")

    def _fetch_from(self, begin: int, version: str) -> None:
        image, store = self.image, self.store
        folder = os.path.dirname(self.desk.folder)
        paths = ["/proc/%d/fd/%d" % (os.getpid(), fd) for fd in self.code]
        with url_content(image.url, folder, image.label, image.access, image.limits, begin, version, paths) as content:
            _total, new, chunks = content
            if begin > store.size:
                self._digest_source = self._digest_source or "An earlier run"
            store.keep_all_left(begin)
            store.note_version(new)
            number = begin // PIECE
            rest = b""
            for chunk in chunks:
                rest += chunk
                while len(rest) >= PIECE:
                    self._make(number, rest[:PIECE])
                    rest, number = rest[PIECE:], number + 1
            if rest:
                self._make(number, rest)
            store.learn(b"", number * PIECE + len(rest))

    def _make(self, number: int, data: bytes) -> None:
        """Add a piece of which this host says what it is to be."""
        pieces = Pieces()
        pieces.add(_digest_of(data))
        if number >= len(self.store.pieces):
            self.store.learn(pieces[0])
        self._add(number, data)
        self.moved = time.monotonic()

    def _read_own(self) -> None:
        """Make the digests of the image that this host has."""
        size = os.fstat(self.store.fd).st_size
        while self.store.size < size:
            data = os.pread(self.store.fd, PIECE, self.store.have * PIECE)
            self.store.own(_digest_of(data), size if self.store.have == count(size) - 1 else None)
            self.used = time.monotonic()

    def _publish(self) -> None:
        self.state = PUBLISHES
        sha256 = self.store.sha256()
        try:
            if self._sha256 and sha256 != self._sha256:
                os.unlink(fetched_file(self.instances_path, self.image.id))
                raise ImageChecksumMismatch(image_id=self.image.label, actual=sha256, expected=self._sha256)
            accept_fetched(self.image, self.instances_path, sha256)
        except ImageChecksumMismatch as error:
            if (
                self._digest_source
            ):  # it may be that host's fault, not the catalogue's: whoever gets the image by itself finds out
                error.retryable = True
                error.remedy = (
                    "%s said what the pieces of the image are: look at its memory and disks." % self._digest_source
                )
            raise
        self.moved = time.monotonic()
        self.state = DONE
        self._tell()
        self._release()

    # --- it gives ---------------------------------------------------------------------------------------------------------

    def tokens(self) -> list[str]:
        return [self.token]

    def answer(self, asked: t.Mapping[str, t.Any], stream: Stream, connection: ssl.SSLSocket) -> bool:
        begin = asked.get("from")
        if asked.get("want") not in (DIGESTS, DATA) or not isinstance(begin, int) or begin < 0:
            return False
        connection.settimeout(SLOW)
        own = self._is_origin
        if own and asked["want"] == DIGESTS:  # the version is known with the first piece
            own = self.store.wait(lambda: len(self.store.pieces) > 0 or self.store.is_whole, SILENCE / 2)
        send_line(stream, {"own": own, "version": self.store.version})
        if asked["want"] == DATA:
            wrong = asked.get("wrong")
            self._delayed |= {str(name) for name in wrong} if isinstance(wrong, list) else set()
            self._give_data(connection, str(asked.get("host")), begin)
        elif own or self._root or self._asked is None:
            self._give_digests(connection, begin)
        return False

    def _give_data(self, connection: ssl.SSLSocket, host: str, number: int) -> None:
        key, store, said = id(connection), self.store, time.monotonic()
        try:
            while self.state != FAILED:
                self._at[key] = (host, number)
                if store.is_whole and number >= store.have:
                    connection.sendall(FRAME.pack(store.size, 0))
                    with contextlib.suppress(OSError):  # who reads it closes the connection
                        connection.recv(1)
                    return
                late = self._gives_way(key, host)
                if late or not store.wait(lambda: store.have > number or store.is_whole, 1.0):  # noqa: B023
                    if late:
                        time.sleep(0.5)
                    connection.sendall(FRAME.pack(WAITS, self._comes()))
                    said = time.monotonic()
                    continue
                if number < store.have:
                    if not store.pieces.is_zero(number):
                        data = store.read(number)
                        connection.sendall(FRAME.pack(number * PIECE, len(data)) + data)
                        said = time.monotonic()
                    elif time.monotonic() - said > SAYS:  # there may be many zeros
                        connection.sendall(FRAME.pack(WAITS, self._comes()))
                        said = time.monotonic()
                    number += 1
        finally:
            self._at.pop(key, None)

    def _gives_way(self, key: int, host: str) -> bool:
        """Whether a host waits that sent others something wrong: these get the image first, as they left it for this one."""
        others = [name for k, (name, _n) in list(self._at.items()) if k != key and name not in self._delayed]
        return host in self._delayed and bool(others)

    def _give_digests(self, connection: ssl.SSLSocket, number: int) -> None:
        while self.state != FAILED:
            if not self.store.wait(lambda: self._has_digests(number), 1.0):  # noqa: B023
                connection.sendall(FRAME.pack(WAITS, self._comes()))
                continue
            pieces = self.store.pieces
            end = min(len(pieces), number + PIECE // DIGEST)
            if end > number:
                digests = pieces.digests(number, end)
                connection.sendall(FRAME.pack(number, len(digests)) + digests)
                number = end
                if pieces.size is None:  # many hosts get them by and by, not each one at once
                    time.sleep(min(1.0, len(self.connections) / _DIGESTS_A_SECOND))
            elif pieces.size is not None:
                connection.sendall(FRAME.pack(pieces.size, 0))
                with contextlib.suppress(OSError):
                    connection.recv(1)
                return

    def _has_digests(self, number: int) -> bool:
        """Whether there is something to tell. Where their root is known, they are of use only together."""
        pieces = self.store.pieces
        return pieces.size is not None or (not self._root and len(pieces) > number)


class _Gone(OSError):
    """The other side has ended the connection."""


def _exactly(stream: Stream, size: int) -> bytes:
    """:raises _Gone: less came"""
    data = stream.read(size)
    if len(data) != size:
        raise _Gone("the connection ended")
    return data


def _reply(stream: Stream) -> dict[str, t.Any]:
    """:raises _Gone: nothing came. :raises Garbled: not a line of JSON"""
    try:
        return read_line(stream)
    except Garbled as error:
        if str(error) == "the connection ended":
            raise _Gone(str(error)) from None
        raise


def _digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
