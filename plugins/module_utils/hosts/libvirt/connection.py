# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to libvirt, and the mapping of its errors."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import typing as t

from ...core.errors import BootflowError, HypervisorUnavailable, InstanceNotFound, LibvirtError, NetworkNotFound
from ...core.optional import optional_import, require

libvirt = optional_import("libvirt")

# Of every module that asks libvirt; documented by the fragment libvirt.
LIBVIRT_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "libvirt_uri": {"type": "str", "default": "qemu:///system"},
    "libvirt_timeout": {"type": "float", "default": 30.0},
}
_EVENTS_THREAD = "bootflow-libvirt-events"
_events = threading.Lock()
_PROBES = 5  # without an answer end a connection

if libvirt:
    # libvirt also prints every error to stderr; we return them.
    libvirt.registerErrorHandler(lambda context, error: None, None)


_USER = re.compile(r'("user":\s*")[^"]*')


def translate(error: t.Any, host: str = "") -> BootflowError:
    """Return a libvirtError as one of our errors: a lost connection is HypervisorUnavailable, others keep libvirt's message."""
    host = host or socket.gethostname()
    # QEMU tells all of a disk that it cannot open, and whom it logs in as.
    reason = _USER.sub(r"\1***", (error.get_error_message() or str(error)).strip())
    code = error.get_error_code()
    remote = (libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_RPC)
    if code in (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_CONN, libvirt.VIR_ERR_RPC):
        return HypervisorUnavailable(host=host, reason=reason)
    if code in (libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_ERR_INTERNAL_ERROR) and error.get_error_domain() in remote:
        return HypervisorUnavailable(host=host, reason=reason)
    if code == libvirt.VIR_ERR_NO_DOMAIN:
        return InstanceNotFound(message=reason)
    if code == libvirt.VIR_ERR_NO_NETWORK:
        return NetworkNotFound(message=reason)
    return LibvirtError(reason=reason)


@contextlib.contextmanager
def libvirt_errors() -> t.Iterator[None]:
    """Map a libvirtError in the block to one of our errors."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise translate(error) from None


def is_code(error: t.Any, *names: str) -> bool:
    """Return whether a libvirtError has one of these codes (``VIR_ERR_...``; an old libvirt may lack some)."""
    return error.get_error_code() in [getattr(libvirt, name) for name in names if hasattr(libvirt, name)]


def tolerating(call: t.Callable[[], t.Any], *codes: str) -> t.Any:
    """Return the result of ``call``; None if it fails with one of these codes of libvirt."""
    with libvirt_errors():
        try:
            return call()
        except libvirt.libvirtError as error:
            if is_code(error, *codes):
                return None
            raise


@contextlib.contextmanager
def connect(uri: str, timeout: float = 30.0) -> t.Iterator[t.Any]:
    """Yield a connection to the hypervisor at ``uri``, closed at the end.

    :arg timeout: seconds after which a daemon that neither answers nor says that it lives is given up, also during a call.
    :raises HypervisorUnavailable: the hypervisor does not respond.
    :raises MissingLibrary: python3-libvirt is not installed.
    """
    require(libvirt, "libvirt (Python)", "python3-libvirt", "host")
    _run_events()
    connection = _open(uri, timeout)
    with contextlib.suppress(libvirt.libvirtError):  # drivers within this process have none
        connection.setKeepAlive(max(1, int(timeout / (_PROBES + 1))), _PROBES)
    try:
        yield connection
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            connection.close()


def _open(uri: str, timeout: float) -> t.Any:
    """Call libvirt.open() in a separate thread: nothing interrupts it while a stopped daemon does not answer."""
    answers: list[t.Any] = []

    def run() -> None:
        try:
            answers.append(libvirt.open(uri))
        except libvirt.libvirtError as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True, name="bootflow-libvirt-open")
    thread.start()
    thread.join(timeout)
    if not answers:
        reason = "%s: the daemon accepted the connection and did not answer within %d s" % (uri, timeout)
        raise HypervisorUnavailable(host=socket.gethostname(), reason=reason)
    if isinstance(answers[0], libvirt.libvirtError):
        reason = (answers[0].get_error_message() or str(answers[0])).strip()
        raise HypervisorUnavailable(host=socket.gethostname(), reason="%s: %s" % (uri, reason))
    return answers[0]


def _run_events() -> None:
    """Run libvirt's event loop, which keepalive needs: once in a process, before the first connection."""
    with _events:
        if any(thread.name == _EVENTS_THREAD for thread in threading.enumerate()):
            return
        libvirt.virEventRegisterDefaultImpl()

        def run() -> None:
            while True:
                libvirt.virEventRunDefaultImpl()

        threading.Thread(target=run, daemon=True, name=_EVENTS_THREAD).start()
