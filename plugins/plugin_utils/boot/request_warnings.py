# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Warnings of what a request names without effect."""

from __future__ import annotations

from ...module_utils.core.request.guest_data import user_data_doubt
from ...module_utils.core.request.later import without_effect
from ...module_utils.core.request.unread_names import unread_names, unread_requirements
from ..run.firewall import port_filters
from ..run.ledger_action import LedgerAction
from ..settings import boot_request, scheduler_settings


def warn_of_names(action: LedgerAction, request: boot_request.BootRequest) -> None:
    """Warn of extra specs and image properties without effect, once for each flavor and image."""
    flavors = {r.flavor.name: r.flavor for r in request.requests}
    used = [image for r in request.requests for image in (r.image, r.root_image) if image is not None]
    images = {image.name: image for image in used}
    filters = set(request.filters or ())
    aggregates = {a for host_aggregates in scheduler_settings.aggregates_of(action).values() for a in host_aggregates}
    compared = {key for aggregate in aggregates for key in aggregate.metadata}
    of_flavors = compared if "AggregateInstanceExtraSpecsFilter" in filters else ()
    of_images = compared if "AggregateImagePropertiesIsolation" in filters else ()
    for text in (
        *without_effect(action.options["instances"] or (), port_filters.are_filtered(action)),
        *unread_names(flavors.values(), (), of_flavors),
        *unread_names((), images.values(), of_images),
        *unread_requirements(flavors.values(), filters, scheduler_settings.has_own_filters(filters)),
        *scheduler_settings.unread(action, aggregates),
    ):
        action.ports.display.warning(text)


def warn_of_user_data(action: LedgerAction, request: boot_request.BootRequest) -> None:
    """Warn of user data that no program in a guest may read, once for each entry: the guest comes up without its contents."""
    for entry in request.requests:
        doubt = user_data_doubt(entry.user_data)
        if doubt:
            action.ports.display.warning("The user data of %s %s." % (entry.name, doubt))
