# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to libvirt, and the mapping of its errors."""

from __future__ import annotations

import contextlib
import socket
import typing as t

from ...core.errors import BootflowError, HypervisorUnavailable, InstanceNotFound, LibvirtError, NetworkNotFound
from ...core.optional import optional_import, require

libvirt = optional_import("libvirt")

# Of every module that asks libvirt; documented by the fragment libvirt.
LIBVIRT_ARGUMENTS = {"libvirt_uri": {"type": "str", "default": "qemu:///system"}}

if libvirt:
    # libvirt also prints every error to stderr; we return them.
    libvirt.registerErrorHandler(lambda context, error: None, None)


def translate(error: t.Any, host: str = "") -> BootflowError:
    """A libvirtError as one of our errors: a lost connection is HypervisorUnavailable, others keep libvirt's message."""
    host = host or socket.gethostname()
    reason = (error.get_error_message() or str(error)).strip()
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
    """Context that maps a libvirtError to one of our errors."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise translate(error) from None


def is_code(error: t.Any, *names: str) -> bool:
    """Whether a libvirtError has one of these codes (``VIR_ERR_...``; an old libvirt may lack some)."""
    return error.get_error_code() in [getattr(libvirt, name) for name in names if hasattr(libvirt, name)]


def tolerating(call: t.Callable[[], t.Any], *codes: str) -> t.Any:
    """What ``call`` returns; None if it fails with one of these codes of libvirt."""
    with libvirt_errors():
        try:
            return call()
        except libvirt.libvirtError as error:
            if is_code(error, *codes):
                return None
            raise


@contextlib.contextmanager
def connect(uri: str) -> t.Iterator[t.Any]:
    """A connection to the hypervisor at ``uri``, closed at the end.

    :raises HypervisorUnavailable: the hypervisor does not respond.
    :raises MissingLibrary: python3-libvirt is not installed.
    """
    require(libvirt, "libvirt (Python)", "python3-libvirt", "host")
    try:
        connection = libvirt.open(uri)
    except libvirt.libvirtError as error:
        reason = (error.get_error_message() or str(error)).strip()
        raise HypervisorUnavailable(host=socket.gethostname(), reason="%s: %s" % (uri, reason)) from None
    try:
        yield connection
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            connection.close()
