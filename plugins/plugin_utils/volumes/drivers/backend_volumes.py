# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes and snapshots of one backend, made by the module of its driver: all at once, with the images that they are made from."""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.model import Image
from ....module_utils.core.request.catalogue import parse_images
from ....module_utils.core.request.catalogue_images import find_image
from ....module_utils.flows.volumes.work import BackendWork, WorkResult
from ...run.ledger_action import LedgerAction
from ...run.results import item_errors
from ...settings import storage_settings
from ...settings.image_upload import fetch_arguments, is_local, module_image, remove_uploads, upload


def make(
    action: LedgerAction, work: BackendWork, module: str, arguments: t.Mapping[str, t.Any], cached: bool = False
) -> WorkResult:
    """Have ``module`` do it. :arg arguments: of the backend alone. :arg cached: whether the backend may have copies of images

    :raises BootflowError: the host did not answer, or the module failed as a whole.
    """
    catalogue = parse_images(action.options["images"]).values() if work.images else ()
    images = {i.id: i for i in (find_image(catalogue, data) for data in work.images)}
    settings = storage_settings.read_current_host(action)
    local = is_local(action)
    arguments = {
        **arguments,
        "ledger_id": action.ledger_id(),
        "volumes": work.volumes,
        "images": [module_image(i, local, action.task_vars["inventory_hostname"]) for i in images.values()],
        # The catalogue has refused an image without a checksum unless it says allow_unverified.
        "allow_unverified": any(not i.checksum for i in images.values()),
        "temp_dir": settings.conversion_dir,
        **fetch_arguments(settings),
        "verify": work.configuration["verify"],
        "workers": storage_settings.workers(action, len(work.volumes)),
    }
    # A file of the controller alone is uploaded, but not before the backend reported that it has no copy.
    controller_images = {i.id for i in images.values() if i.path and not i.url and not local}
    waiting = [v for v in work.volumes if v.get("image_id") in controller_images]
    if not waiting or cached:
        result = _run(action, module, arguments)
        outcomes, capacity = dict(result["outcomes"]), result["backend"]
        waiting = [v for v in waiting if _misses_image(outcomes.get(v["id"]))]
        others: list[dict[str, t.Any]] = []
    else:
        outcomes, capacity = {}, None
        others = [v for v in work.volumes if v.get("image_id") not in controller_images]
    if waiting:
        capacity = _with_uploads(action, module, arguments, images, waiting, others, outcomes) or capacity
    ids = [str(v["id"]) for v in work.volumes]
    problems = item_errors({"outcomes": outcomes}, ids)
    return WorkResult(
        outcomes={
            i: {**outcomes.get(i, {}), "error": problems[i].between_hosts() if i in problems else None} for i in ids
        },
        capacity=capacity,
    )


def _run(action: LedgerAction, module: str, arguments: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    result = action.run_module(module, arguments)
    for image in result.get("evicted") or ():
        text = "evicted from the image cache of %s: %s" % (arguments["volume_group"], image["name"])
        action._display.v(text, host=action.task_vars["inventory_hostname"])
    return result


def _misses_image(outcome: t.Mapping[str, t.Any] | None) -> bool:
    return bool(outcome and outcome.get("error") and outcome["error"].get("code") == errors.ImageNotFound.__name__)


def _with_uploads(
    action: LedgerAction,
    module: str,
    arguments: t.Mapping[str, t.Any],
    images: t.Mapping[str, Image],
    waiting: t.Sequence[t.Mapping[str, t.Any]],
    others: t.Sequence[t.Mapping[str, t.Any]],
    outcomes: dict[str, t.Any],
) -> t.Mapping[str, t.Any] | None:
    """Upload what ``waiting`` is made from, then make it and ``others``; fills ``outcomes``. Returns the capacity afterwards."""
    uploads: dict[str, str] = {}
    refused: dict[str, errors.BootflowError] = {}
    try:
        for image_id in sorted({str(v["image_id"]) for v in waiting}):
            try:
                uploads[image_id] = upload(action, images[image_id])
            except errors.HostUnreachable:
                raise
            except errors.BootflowError as e:
                refused[image_id] = e
        now = [v for v in waiting if v["image_id"] in uploads] + list(others)
        for volume in waiting:
            if volume["image_id"] in refused:
                outcomes[volume["id"]] = {"changed": False, "error": refused[volume["image_id"]].as_dict()}
        if not now:
            return None
        result = _run(action, module, {**arguments, "volumes": now, "uploads": uploads})
    finally:
        if uploads:
            remove_uploads(action)
    outcomes.update(result["outcomes"])
    return t.cast("t.Mapping[str, t.Any]", result["backend"])
