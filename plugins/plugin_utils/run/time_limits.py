# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time limits of a host for a module, and the end of the wait for one that does not answer at all."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
import types
import typing as t
from pathlib import Path

from ...module_utils.core.disks.stores.registry import STORE_TYPES
from ...module_utils.core.settings.run import TIME_LIMITS
from . import host_settings

# The module ends by itself at its limit and says so; a host that does not even do that is given this many seconds more.
GRACE = 30.0

Arguments = t.Mapping[str, t.Any]


class TimeIsUp(BaseException):
    """Not an Exception: connection plugins catch those and try again."""


def limit_of(action: host_settings.OnHost, module: str, arguments: Arguments) -> float:
    """The seconds that the current host has for ``module``, with all that the arguments make it wait for."""
    kind = _KINDS.get(module, "work_timeout")
    if module == "domain_migration":
        kind = _MIGRATION_KINDS.get(arguments["step"], kind)
    if module == "instance_cleanup" and _clears(arguments):
        kind = "clear_timeout"
    if module == "instance_build" and _copies(arguments):
        kind = "copy_timeout"
    if module == "image_relay" and arguments.get("state") == "collected":
        kind = "copy_timeout"
    if module == "domain_power" and arguments.get("state") == "suspended":
        kind = "copy_timeout"  # memory is written to a disk
    limits = host_settings.values(action, TIME_LIMITS)
    return float(getattr(limits, kind)) + _waits(arguments) + _migrations(arguments) + _swaps(arguments)


@contextlib.contextmanager
def given(seconds: float) -> t.Iterator[None]:
    """Raise TimeIsUp in the block after ``seconds``, and end the programs (ssh, a local shell) that it started.

    Only in the main thread, where signals arrive; Ansible's own timeout of a task holds when it ends earlier.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer = signal.getitimer(signal.ITIMER_REAL)[0]
    if 0 < outer <= seconds:
        yield
        return

    def ring(_number: int, _frame: types.FrameType | None) -> None:
        raise TimeIsUp

    before, begun = children(), time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeIsUp:
        end(children() - before)
        raise
    finally:
        signal.signal(signal.SIGALRM, handler)
        if outer:
            signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - begun), 0.001))


def end(processes: t.Iterable[int]) -> None:
    """Kill programs of this process."""
    for pid in processes:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def children() -> set[int]:
    """The processes that this one started and that still run; none where /proc does not say."""
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids |= {int(pid) for pid in path.read_text().split()}
    return pids


# --- of each module ---------------------------------------------------------------------------------------------------------

_KINDS = {
    "compute_node_info": "report_timeout",
    "domain_adoption": "report_timeout",
    "domain_console": "report_timeout",
    "domain_info": "report_timeout",
    "storage_backend_info": "report_timeout",
    "image_file": "copy_timeout",
    "instance_backup": "copy_timeout",
    "instance_backup_check": "copy_timeout",
    "instance_backup_image": "copy_timeout",
    "instance_disks": "copy_timeout",
    "instance_disks_fetch": "copy_timeout",
    "instance_disks_offer": "copy_timeout",
    "instance_disks_resize": "copy_timeout",
    "instance_disks_revert": "copy_timeout",
    "instance_snapshot": "copy_timeout",
    "rbd_backend_info": "report_timeout",
    "volume_lvm": "clear_timeout",
    "volume_lvm_image": "copy_timeout",
    "volume_rbd": "clear_timeout",
}
# Likewise, of the steps of domain_migration.
_MIGRATION_KINDS = {"describe": "report_timeout", "migrate": "copy_timeout"}


def _clears(arguments: Arguments) -> bool:
    """Whether the cleanup overwrites disks or logical volumes, or removes images of a pool, which may be large."""
    in_group = bool(arguments.get("volume_group") or arguments.get("disk_pool"))
    return in_group or any(i.get("disks") for i in arguments.get("instances") or ())


def _copies(arguments: Arguments) -> bool:
    """Whether the module fetches images, or a disk is a copy of its image, not a layer over it."""
    if arguments.get("fetch"):
        return True
    disks = [disk for instance in arguments.get("instances") or () for disk in instance["disks"]]
    return any(disk["kind"] == "image" and not STORE_TYPES[disk["backend"]].is_layered for disk in disks)


# Options of a module, or fields of its items, that say how long it may wait for an item, which starts or shuts down.
_STARTS = ("wait_timeout", "vif_plugging_timeout", "wait_agent", "wait_console", "wait_address", "wait_cloud_init")
# The same of domain_power and domain_rescue, by the state that guests are to have.
_WAITS: dict[str, tuple[str, ...]] = {
    "shutdown": ("shutdown_timeout",),
    **dict.fromkeys(("running", "restored"), _STARTS),
    "rebooted": ("wait_soft_reboot_seconds", *_STARTS),
    "suspended": ("wait_timeout",),
    **dict.fromkeys(("paused", "unpaused", "interrupted", "saved"), ()),
}


def _waits(arguments: Arguments) -> float:
    """The seconds that the module may wait for what is not its own work: the guests, and the places of builds."""
    waits = _WAITS.get(str(arguments.get("state")), ("shutdown_timeout", *_STARTS))
    seconds = 0.0
    for items in filter(None, (arguments.get("instances"), arguments.get("domains"))):
        batches = math.ceil(len(items) / max(1, int(arguments.get("workers") or 1)))
        longest = max(sum(_wait(item.get(n) or arguments.get(n)) for n in waits) for item in items)
        seconds += batches * (_wait(arguments.get("place_timeout")) + longest)
    return seconds


def _migrations(arguments: Arguments) -> float:
    """The seconds that guests may take which leave while they run: each its time, and as much again once it was forced to complete."""
    return sum(2.0 * float(g["completion_timeout"]) for g in arguments.get("departing_guests") or ())


def _swaps(arguments: Arguments) -> float:
    """The seconds that guests may take to switch to other volumes, several at a time."""
    seconds = [float(d.get("copy_timeout") or 0) for d in arguments.get("disks") or () if isinstance(d, dict)]
    return max(seconds, default=0.0) * math.ceil(sum(map(bool, seconds)) / max(1, int(arguments.get("workers") or 1)))


def _wait(value: t.Any) -> float:
    return float((value["timeout"] if isinstance(value, t.Mapping) else value) or 0)
