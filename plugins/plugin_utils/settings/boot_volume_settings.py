# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of a boot as options of its actions. A boot without volumes needs, reads and checks nothing of this."""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils.core.instances.request import ServerRequest
from ...module_utils.core.settings.volumes import CROSS_AZ_ATTACH, VOLUME, VOLUME_SCHEDULER
from ...module_utils.flows.boot.accept import AcceptOptions
from ...module_utils.flows.boot.planned import BootVolumeOptions, volumes_requested
from ..run.ledger_action import LedgerAction
from . import volume_settings
from .boot_request import BootRequest

ARGUMENTS = {**VOLUME.options(), **VOLUME_SCHEDULER.options(), **CROSS_AZ_ATTACH.options()}


def uses_volumes(requests: t.Iterable[ServerRequest]) -> bool:
    """Whether an instance is to have a volume."""
    return any(volumes_requested(request) for request in requests)


def makes_volumes(requests: t.Iterable[ServerRequest]) -> bool:
    """Whether one of these volumes is not there yet."""
    return any(d.source_type != "volume" for request in requests for d in volumes_requested(request))


def accept_options(action: LedgerAction, request: BootRequest) -> AcceptOptions:
    """Return the options that the request is accepted with.

    :raises InvalidRequest: volumes are to be made, and a setting of volumes is wrong.
    """
    made = makes_volumes(request.requests)
    if made:
        volume_settings.check(action)
    volumes = BootVolumeOptions(
        settings=volume_settings.read_options(action.options, request.catalogue.ledger_images, sees_all_images=True)
        if made
        else None,
        cross_az_attach=action.options["cross_az_attach"],
        pci_aliases=request.catalogue.pci_aliases,
        filters=request.filters,
    )
    return dataclasses.replace(request.accept_options(), volumes=volumes)
