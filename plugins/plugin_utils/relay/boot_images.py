# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The large images of a boot, as far as each boot looks at them: the stages that send them are loaded only where an image is large."""

from __future__ import annotations

import shutil
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.model import Image
from ...module_utils.flows.boot.builds import Build
from ..run.ledger_action import LedgerAction
from ..run.stage_results import path_of
from .large_images import COMING, folder_of, image_data, is_large, is_of_use


def begin(action: LedgerAction, builds: t.Mapping[str, t.Sequence[Build]], catalogue: t.Any) -> list[str]:
    """Begin a round for the large images of these builds (host -> builds). Returns the hosts that are asked whether they lack one.

    :arg catalogue: bootflow_images
    """
    shutil.rmtree(folder_of(action), ignore_errors=True)  # of an earlier round
    known: dict[str, Image] = {}
    hosts: dict[str, set[str]] = {}
    for host, host_builds in builds.items():
        for data in filter(None, map(image_data, host_builds)):
            known.setdefault(data["id"], Image(**data))
            hosts.setdefault(data["id"], set()).add(host)
    if not any(is_of_use(image, hosts[i]) and is_large(image) for i, image in known.items()):
        return []
    from . import rounds  # of boots with large images

    return rounds.begin(action, builds, catalogue)


def collect(action: LedgerAction) -> dict[str, errors.BootflowError]:
    """Wait for the images that come to the current host. Returns what rounds.collect() does."""
    if not path_of(folder_of(action), action.task_vars["inventory_hostname"], COMING).exists():
        return {}
    from . import rounds  # of hosts that lack a large image

    return rounds.collect(action)
