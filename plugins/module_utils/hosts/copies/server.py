# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Serve other hosts by TLS for one run in a separate process, and connect to such a process.

Its key is made for it and never leaves its host; a client knows the fingerprint of its certificate, and shows a token.

The port is open to all. A connection that has shown no token is a stranger's: it has a short time, and where there are too many of them, the oldest
one of the address that has most is ended. So a host with a token always gets in, however many connections are silent.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import hmac
import ipaddress
import os
import select
import socket
import ssl
import threading
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import InvalidInput, RemoteError
from ..libvirt.running import run_is_gone
from ..os.command import program, run
from .stream import Garbled, Stream, read_line, send_line

HERE = "127.0.0.1"
PATIENCE = 60.0  # seconds that the other side may be silent
_STRANGER = 10.0  # seconds that a connection has to show a token, with its handshake
_MOST_STRANGERS = 128  # connections without a token
_MOST_OF_ADDRESS = 48  # of these, from one address
_words: list[int] = []  # of processes that this module has started: see answered()
_LOST = 45  # seconds without an answer of the other host's kernel after which a connection has failed; by itself it takes a quarter of an hour


@dataclass(frozen=True)
class Place:
    """Where a server listens, and how it is known."""

    address: str
    port: int
    fingerprint: str  # SHA-256 of its certificate


@dataclass(eq=False)
class _Connection:
    """A connection to a server. ``source``: the address that it came from"""

    raw: socket.socket
    source: str
    since: float
    token: str = ""  # that it has shown; empty: it is a stranger's

    def end(self) -> None:
        """End it: whoever reads from it finds its end."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.raw, socket.SHUT_RDWR)  # below TLS


class Server:
    """The work of the process: a subclass answers. It ends on a request to stop, when its time is over, or when goes_on() returns False."""

    most_of_token = 64  # connections that have shown the same one

    def __init__(self, stop: str, seconds: float):
        self.stop = stop
        self.deadline = time.monotonic() + seconds
        self.over = threading.Event()
        self.connections: set[_Connection] = set()
        self.at_door = threading.Lock()
        self.word = -1  # the module that started it says here that it answers, or was killed

    def goes_on(self) -> bool:
        """Return whether there is something left to do."""
        return True

    def tokens(self) -> t.Collection[str]:
        """Return the accepted tokens, except the token that ends the process."""
        raise NotImplementedError

    def answer(self, asked: t.Mapping[str, t.Any], stream: Stream, connection: ssl.SSLSocket) -> bool:
        """Answer a request. Returns whether another may follow on its connection."""
        raise NotImplementedError

    def run(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        while self.goes_on() and not self.over.is_set() and time.monotonic() < self.deadline:
            awaited: list[t.Any] = [listener] if self.word < 0 else [listener, self.word]
            ready = select.select(awaited, [], [], 0.5)[0]
            if self.word in ready:
                if not os.read(self.word, 1):
                    return
                os.close(self.word)
                self.word = -1
            if listener in ready:
                self._admit(listener, context)
            self._end_silent_strangers()

    def _admit(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        """Take a connection in; ends that of a stranger where there are too many."""
        try:
            raw, peer = listener.accept()
        except OSError:  # gone again, or this process has too many files open
            time.sleep(0.05)
            return
        new = _Connection(raw, _source(str(peer[0])), time.monotonic())
        with self.at_door:
            strangers = [c for c in self.connections if not c.token]
            count = collections.Counter(c.source for c in [*strangers, new])
            worst = max(count, key=lambda source: count[source])
            if count[new.source] > _MOST_OF_ADDRESS:
                worst = new.source
            if len(strangers) >= _MOST_STRANGERS or count[worst] > _MOST_OF_ADDRESS:
                oldest = min((c for c in strangers if c.source == worst), key=lambda c: c.since)
                oldest.end()
                self.connections.discard(oldest)
            self.connections.add(new)
        threading.Thread(target=self._serve, args=(new, context), daemon=True).start()

    def _end_silent_strangers(self) -> None:
        late = time.monotonic() - _STRANGER
        with self.at_door:
            for stranger in [c for c in self.connections if not c.token and c.since < late]:
                stranger.end()
                self.connections.discard(stranger)

    def _serve(self, connection: _Connection, context: ssl.SSLContext) -> None:
        raw = connection.raw
        try:
            with contextlib.suppress(OSError, Garbled, ValueError):
                raw.settimeout(_STRANGER)
                notice_loss(raw)
                with context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False) as secured:
                    with self.at_door:  # wrap_socket() has taken the descriptor out of ``raw``
                        connection.raw = secured
                        if connection not in self.connections:
                            return
                    secured.do_handshake()
                    stream = t.cast(Stream, secured.makefile("rwb"))
                    while self._answered(stream, secured, connection):
                        pass
        finally:
            with self.at_door:
                self.connections.discard(connection)
            raw.close()

    def _answered(self, stream: Stream, secured: ssl.SSLSocket, connection: _Connection) -> bool:
        asked = read_line(stream)
        token = str(asked.get("token") or "").encode()
        if hmac.compare_digest(token, self.stop.encode()):
            self.over.set()
            send_line(stream, {})
            return False
        known = next((own_token for own_token in self.tokens() if hmac.compare_digest(token, own_token.encode())), None)
        if known is None or not self._let_in(connection, known):
            return False
        secured.settimeout(PATIENCE)
        return self.answer(asked, stream, secured)

    def _let_in(self, connection: _Connection, token: str) -> bool:
        """Return whether there is room for another connection that has shown this token."""
        with self.at_door:
            others = sum(c is not connection and c.token == token for c in self.connections)
            if connection not in self.connections or others >= self.most_of_token:
                return False
            connection.token = token
            return True


def _source(address: str) -> str:
    """Return the part of an address that one machine has not many of."""
    ip_address = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip_address, ipaddress.IPv6Address) and ip_address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(ip_address) >> 64 << 64, 64)))
    return str(getattr(ip_address, "ipv4_mapped", None) or ip_address)


def started(server: Server, ports: tuple[int, int]) -> Place:
    """Start the process, at all addresses of this host, and return where it is found on this host. It ends if this one does before answered().

    :arg ports: the first of these that is free.
    :raises RemoteError: no port is free. :raises MissingLibrary: openssl is not installed.
    """
    context, fingerprint = identity()
    listener = listen(ports)
    place = Place(HERE, listener.getsockname()[1], fingerprint)
    server.word, word = os.pipe()
    if detach():
        status = 1
        try:
            os.close(word)
            server.run(listener, context)
            status = 0
        finally:
            os._exit(status)
    os.close(server.word)
    _words.append(word)
    listener.close()
    return place


def answered() -> None:
    """Tell the started processes that the module has answered: its run now knows their places. They end where that is gone."""
    run_gone = run_is_gone()
    while _words:
        word = _words.pop()
        if not run_gone:
            with contextlib.suppress(OSError):  # it has ended
                os.write(word, b".")
        os.close(word)


def identity() -> tuple[ssl.SSLContext, str]:
    """Return a server's context with a new key, and the fingerprint of its certificate. Both are in memory only: no file of them remains where this
    process is killed.
    """
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=bootflow"]
    openssl = program("openssl", "openssl")
    made = run([openssl, "req", "-x509", *kind, "-days", "2", "-keyout", "-", "-out", "-"], timeout=60.0).stdout
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    with open(os.memfd_create("bootflow"), "w", encoding="ascii") as file:
        file.write(made)
        file.flush()
        context.load_cert_chain("/proc/self/fd/%d" % file.fileno())
    certificate = made[made.index("-----BEGIN CERTIFICATE-----") :]
    return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.rstrip())).hexdigest()


def _context(protocol: int) -> ssl.SSLContext:
    """Return the settings of both ends.

    One direction may end before the other, by the end of the connection below TLS (live.channels.pump()). OpenSSL 3 ends both then,
    unless it is asked not to, which Python did by itself until 3.12.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # Python 3.9 does not name it
    return context


def listen(ports: tuple[int, int]) -> socket.socket:
    first, last = ports
    if not 0 < first <= last < 65536:
        raise InvalidInput(reason="ports %d-%d are not a range of ports" % ports)
    for port in range(first, last + 1):
        with contextlib.suppress(OSError, ValueError):  # no IPv6, or the port is taken
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_MOST_STRANGERS, dualstack_ipv6=True
            )
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), backlog=_MOST_STRANGERS)
    raise RemoteError(
        reason="none of the ports %d-%d is free on %s" % (first, last, os.uname().nodename),
        remedy="Set bootflow_copy_ports to a range with free ports.",
    )


def detach() -> bool:
    """Continue as a detached process. Returns whether this is that process: it never returns to the module's work."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    return True


@contextlib.contextmanager
def connected(place: Place) -> t.Iterator[Stream]:
    """Yield a stream to the server at ``place``. See opened()."""
    with opened(place) as secured:
        yield t.cast(Stream, secured.makefile("rwb"))


@contextlib.contextmanager
def opened(place: Place, patience: float = PATIENCE) -> t.Iterator[ssl.SSLSocket]:
    """Yield a connection to the server with exactly its own certificate.

    :arg patience: seconds that the server may be silent

    :raises Garbled: it has another one. :raises OSError: it is not reached.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    # No authority vouches for the certificate: it is compared itself. Its dates are by another clock.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((place.address, place.port), timeout=patience) as plain:
        notice_loss(plain)
        with context.wrap_socket(plain) as secured:
            fingerprint = hashlib.sha256(secured.getpeercert(binary_form=True) or b"").hexdigest()
            if not hmac.compare_digest(fingerprint, place.fingerprint):
                raise Garbled("the server has another certificate")
            yield secured


def notice_loss(connection: socket.socket) -> None:
    """Have the kernel find out soon that the other host is not there any more, whether something is sent or not."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("IDLE", _LOST // 3), ("INTVL", 5), ("CNT", 2 * _LOST // 15)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_KEEP%s" % option), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LOST * 1000)


def stop(place: Place, token: str) -> bool:
    """End the server. Returns whether it was still there."""
    try:
        with connected(place) as stream:
            send_line(stream, {"token": token})
            read_line(stream)
    except (OSError, Garbled):
        return False
    return True
