# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors in results: as the ``error`` of an item, or as the failure of a whole module."""

from __future__ import annotations

import errno
import os
import socket
import typing as t

from ...core.errors import BootflowError, DiskFull, HypervisorUnavailable, RemoteError, unexpected

NOT_ROOT = "The modules work as root on their hosts: set ansible_user: root, or ansible_become: true for another user."


def as_bootflow_error(error: BaseException, path: str = "") -> BootflowError:
    """Return ``error`` as one of our errors: a full disk is DiskFull, an unexpected error is a retryable RemoteError.

    :arg path: the file being written, for the message of DiskFull.
    """
    if isinstance(error, HypervisorUnavailable) and os.geteuid() != 0:
        error.remedy = NOT_ROOT
    if isinstance(error, BootflowError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(host=socket.gethostname(), path=error.filename or path or "the disk", reason=error.strerror)
    if isinstance(error, OSError) and error.strerror:
        where = " (%s)" % error.filename if error.filename else ""
        denied = error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0
        return RemoteError(reason="%s%s" % (error.strerror, where), remedy=NOT_ROOT if denied else None)
    return RemoteError(reason="%s: %s" % (type(error).__name__, error), traceback=unexpected(error))


def failure(error: BaseException, changed: bool = False, **fields: t.Any) -> dict[str, t.Any]:
    """Return the result of a failed item; ``changed``: whether the host was changed before the failure."""
    result: dict[str, t.Any] = dict(fields)
    result["changed"] = changed
    result["error"] = as_bootflow_error(error).between_hosts()
    return result


def fail(module: t.Any, error: BaseException, **fields: t.Any) -> t.NoReturn:
    """End ``module`` (an AnsibleModule) with the error's fields; its code becomes ``error_code``."""
    plain = as_bootflow_error(error).between_hosts()
    message = plain.pop("message")
    plain["error_code"] = plain.pop("code")
    plain.update(fields)
    module.fail_json(msg=message, **plain)
    raise SystemExit(1)  # fail_json() does not return
