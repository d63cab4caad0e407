# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of images: the stores, imports, exports, and the selection for playbooks."""

from __future__ import annotations

from ..images.snapshot_properties import NON_INHERITABLE
from ..images.stores.registry import STORE_KINDS
from ..reading.setting import ENTRIES, PATH, REQUESTS, UUIDS, Setting, Table
from .request import QUOTA
from .selection import MISSING_OK

_KINDS = "; ".join("`%s`: %s" % (kind.name, kind.summary) for kind in STORE_KINDS.values())

IMAGE_STORES = Table(
    (
        Setting(
            "image_stores",
            ENTRIES,
            (),
            "Stores of the images of the ledger: `name`, `path` (an absolute path of a directory), `kind` (%s; `controller` by default), `host`"
            " (of the kind `host`). Without a store, requests name images of `bootflow_images` only." % _KINDS,
        ),
    )
)

IMAGE_WORK = Table(
    (
        Setting(
            "image_imports",
            REQUESTS,
            help="Playbook `image_import`: the images, each with `name`, the fields `url` or `path`, `checksum`, `disk_format`, `min_disk`, `min_ram`,"
            " `properties` and the fields of access as in `bootflow_images`, `store` (the first of `bootflow_image_stores` by default), `visibility`"
            " (`private`, `public`, `community`), `protected`, and `instance` (name or UUID, of whose disk the file is a copy).",
            required=True,
        ),
        Setting(
            "non_inheritable_image_properties",
            list,
            NON_INHERITABLE,
            "Properties that an image of an instance does not inherit from the instance's own image, as Nova's setting.",
        ),
    )
)

IMAGE_SELECTION = Table(
    (
        Setting("image_names", list, help="Names of images of the ledger to list, show, export or delete."),
        Setting("image_ids", UUIDS, help="UUIDs of images of the ledger to list, show, export or delete."),
        QUOTA.named("project").but(default=None, help="Only images that this project sees."),
    )
)

IMAGE_DELETION = Table((MISSING_OK,))

IMAGE_EXPORT = Table(
    (
        Setting(
            "image_dest",
            PATH,
            help="Playbook `image_export`: the file on the controller.",
            option="dest",
            required=True,
        ),
        Setting(
            "image_overwrite",
            bool,
            False,
            "Playbook `image_export`: replace a file that has other content.",
            option="overwrite",
        ),
    )
)
