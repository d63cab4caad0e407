# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that come to hosts before a boot needs them. source: Nova's API microversion 2.81, aggregates and cache images"""

from __future__ import annotations

import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.disks.image_urls import host_of
from ...module_utils.core.images import life
from ...module_utils.core.images.resolve import resolve
from ...module_utils.core.model import Image
from ...module_utils.core.relay.plan import STORED, WHOLE
from ...module_utils.core.request.catalogue import parse_images
from ...module_utils.core.request.image_rules import without_bytes
from ..run import tables
from ..run.ledger_action import LedgerAction
from ..run.results import outcome
from ..settings import ledger_images
from ..settings.image_upload import file_missing
from . import large_images, rounds
from .round_files import RoundFiles

Result = t.Dict[str, t.Any]  # of a task


class Precache:
    """The first and the last stages of such a round, by the options of the action."""

    def __init__(self, action: LedgerAction):
        self.action, self.options = action, action.options
        self.files = RoundFiles(action)

    def run(self) -> Result:
        """Run the stage that the task is for. Returns the result of the task."""
        return {"begin": self._begin, "collect": self._collect, "finish": self._finish}[self.options["phase"]]()

    def _images(self) -> list[Image]:
        """Return the images of these names and ids, of the inventory or of the ledger. Whoever runs the playbook sees the images of all projects.

        :raises ImageNotFound: :raises ImageAmbiguous: :raises ImageNotReadable: see resolve(). :raises ImageNotActive:
        :raises ImageUnacceptable: the image has no bytes, the controller's file is not there, or no checksum tells what hosts give to each other.
        """
        known, stored = parse_images(self.options["images"]), ledger_images.images_of(self.action)
        images = [resolve(name, known, stored, None) for name in self.options["names"]]
        for image in images:
            if image.status != life.ACTIVE:
                remedy = "Wait for it, or set its status: active in bootflow_images."
                raise errors.ImageNotActive(image_id=image.name, remedy=remedy)
            if not image.has_bytes:
                raise without_bytes(image)
            if image.path and not os.path.isfile(os.path.expanduser(image.path)):
                raise file_missing(image)
            if not image.path and not image.checksum:
                raise errors.ImageUnacceptable(
                    image_id=image.name,
                    reason="hosts compare with its checksum what other hosts give them, and it has none",
                    remedy="Set its sha256 in bootflow_images.",
                )
        return list({image.id: image for image in images}.values())

    def _begin(self) -> Result:
        """Begin a round of the hosts. Returns them."""
        images = self._images()
        hosts = self.action.hosts_to_use()
        if self.action.check_mode:
            return {"changed": False, "images": []}
        addresses = rounds.addresses_of(self.action)
        ids = [image.id for image in images]
        wanted = [rounds.wanted_of(self.action, host, addresses.get(host), ids) for host in hosts]
        wanted += rounds.store_hosts_of(self.action, images, hosts)
        self.files.begin(wanted, images)
        names = [w.name for w in wanted]
        return {"changed": False, "images": names, "lacking": str(large_images.lacking_file(self.action))}

    def _collect(self) -> Result:
        """Wait on a host for its images."""
        rounds.collect(self.action)
        outcomes = self.files.outcomes_of(self.action.task_vars["inventory_hostname"])
        return {"changed": any(outcome.get("changed") for outcome in outcomes.values())}

    def _finish(self) -> Result:
        """Print what became of the images. Returns it, by host and image."""
        rows, failed, changed = [], [], False
        for host, wanted in self.files.hosts().items():
            offers, outcomes = self.files.offers_of(host), self.files.outcomes_of(host)
            for image in rounds.images_of(self.action, self.files, wanted.images):
                offer, received = offers.get(image.id) or {}, outcomes.get(image.id) or {}
                error = received.get("error") or offer.get("error")
                error = error or (None if received or offer.get("state") in _PRESENT else _SILENT)
                source = str(received.get("source") or "")
                state = STORED if host_of(image.url) == host else str(offer.get("state"))
                origin = "from %s" % source if received else _PRESENT.get(state, "")
                text = error["message"] if error else origin
                rows.append((host, image.name, text))
                changed = changed or bool(received and not error)
                if error:
                    failed.append(errors.failed_item(image.name, image.id, error, host=host))
        if self.options["print_table"]:
            tables.show(self.action._display, tables.table(("HOST", "IMAGE", "RESULT"), rows))
        images = [dict(zip(("host", "image", "result"), row)) for row in rows]
        return outcome(errors.ImagePrecacheFailed(failed, len(rows)), changed=changed, images=images)


_PRESENT = {
    "has": "had it",
    WHOLE: "had it",
    "local": "reads the file of the controller",
    STORED: "has it in its store",
}
_SILENT = errors.RemoteError(reason="the host did not begin to receive it").as_dict()
