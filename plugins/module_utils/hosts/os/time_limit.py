# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a module: soon after its result, and when it takes too long, as its process must not work on when the controller has given
its host up."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import typing as t

from ...core.errors import HostTimeout
from .command import kill_all
from .module_errors import fail

# Of every module that an action runs on a host; documented by the fragment shared.time_limit.
TIME_LIMIT_ARGUMENTS = {"time_limit": {"type": "float"}}


def keep_time_limit(module: t.Any, so_far: t.Mapping[str, t.Any] | None = None) -> None:
    """Have ``module`` (an AnsibleModule) fail with HostTimeout, and its programs end, when its time limit is over.

    A thread ends the process: the others may wait in a call that no signal interrupts. What is loaded by now stays until then, and Python
    does not look through it for garbage, which at the end of a module takes a tenth of its processor time.

    :arg so_far: fields of the result, which the module fills as it works: what it has done is reported though it failed.
    """
    gc.freeze()
    seconds = module.params["time_limit"]
    if seconds:
        timer = threading.Timer(seconds, _end, (module, seconds, so_far or {}))
        timer.daemon = True
        timer.start()


def _end(module: t.Any, seconds: float, so_far: t.Mapping[str, t.Any]) -> None:
    kill_all()
    name = os.uname().nodename
    with contextlib.suppress(SystemExit):
        fail(module, HostTimeout(host=name, module=module._name.rpartition(".")[2], seconds=int(seconds)), **so_far)
    sys.stdout.flush()
    os._exit(1)
