# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt: a connection, and its errors in our words."""

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
    # libvirt prints every error to stderr as well; ours are returned.
    libvirt.registerErrorHandler(lambda context, error: None, None)


def translate(error: t.Any, host: str = "") -> BootflowError:
    """A libvirtError as one of the family: a lost connection is HypervisorUnavailable, the rest says what libvirt said."""
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
    """Inside, a libvirtError leaves as one of the family."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise translate(error) from None


def is_code(error: t.Any, *names: str) -> bool:
    """Whether a libvirtError has one of these codes (``VIR_ERR_...``; a libvirt too old to know one has not got it)."""
    return error.get_error_code() in [getattr(libvirt, name) for name in names if hasattr(libvirt, name)]


@contextlib.contextmanager
def connect(uri: str) -> t.Iterator[t.Any]:
    """A connection to the hypervisor at ``uri``, closed at the end.

    :raises HypervisorUnavailable: nothing answers there.
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
