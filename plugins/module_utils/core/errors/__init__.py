# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one family of errors: code, status, message with the remedy, retryable or not.

The class name is the stable code: Nova's, Cinder's or Neutron's if they have one. ``status`` follows
the HTTP mapping of Nova's create. ``retryable`` means that the same request may succeed elsewhere or later;
core.instances.build_outcome decides with it. Each subject's classes are in a file of this package, and all of them here.
"""

from __future__ import annotations

import typing as t

from ..legible import legible
from .backups import *
from .base import *
from .base import BootflowError
from .block_devices import *
from .guest import *
from .hosts import *
from .hosts import RemoteError
from .images import *
from .incomplete import *
from .incomplete import Incomplete
from .instances import *
from .iscsi import *
from .ledger import *
from .moves import *
from .networks import *
from .numa import *
from .pci import *
from .quotas import *
from .request import *
from .request import InvalidRequest
from .scheduling import *
from .security_groups import *
from .volumes import *


def from_dict(data: t.Mapping[str, t.Any]) -> BootflowError:
    """Return the error from as_dict()'s data; an unknown code becomes a RemoteError with the code's fields.

    Its texts may come from programs on hosts: characters that a terminal must not get are escaped.
    """
    cls = _find(BootflowError, str(data.get("code", "")))
    error: BootflowError
    if cls is None:
        error = RemoteError(message=legible("%s: %s" % (data.get("code", "error"), data.get("message", ""))))
    else:
        error = cls.__new__(cls)
        BootflowError.__init__(error, message=legible(str(data.get("message", ""))))
    if data.get("traceback"):
        error.details["traceback"] = legible(str(data["traceback"]))
    if isinstance(error, InvalidRequest):
        error.errors = [dict(e) for e in data.get("errors") or ()]
    if isinstance(error, Incomplete):
        error.items = [dict(i) for i in data.get("failed_items") or ()]
    error.remedy = legible(str(data.get("remedy", "") or ""))
    error.status = int(data.get("status", error.status))
    error.retryable = bool(data.get("retryable", error.retryable))
    return error


def _find(cls: type[BootflowError], code: str) -> type[BootflowError] | None:
    if cls.__name__ == code:
        return cls
    return next((match for child in cls.__subclasses__() if (match := _find(child, code)) is not None), None)
