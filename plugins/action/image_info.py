# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.image_info."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.reading.setting import canonical
from ..module_utils.core.settings.images import IMAGE_SELECTION
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.images import image_views
from ..plugin_utils.images.image_texts import image_table
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.settings import variable_names

Views = t.List[t.Dict[str, t.Any]]


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **IMAGE_SELECTION.options(),
        "details": {"type": "bool", "default": False},
        "print_table": {"type": "bool", "default": False},
        **READS,
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        options = self.options
        words = [*(options["image_ids"] or ()), *(options["image_names"] or ())]
        if options["details"] and not words:
            raise errors.InvalidInput(
                message="no image is named", remedy="Set bootflow_image_names or bootflow_image_ids."
            )

        def read(tx: Transaction) -> Views:
            if options["details"]:
                return [image_views.image_view(tx, word, options["project"]) for word in dict.fromkeys(words)]
            return image_views.image_views(tx, options["image_ids"], options["image_names"], options["project"])

        try:
            views = self.open_reader().inspect(read)
        except errors.LedgerMissing as e:
            if options["details"]:
                raise
            if options["print_table"]:
                tables.show(self._display, ["No images. %s." % e.message])
            return {"changed": False, "images": []}
        if options["print_table"]:
            tables.show(self._display, self._lines(views, words))
        return {"changed": False, "images": views}

    def _lines(self, views: Views, words: t.Sequence[str]) -> list[str]:
        if self.options["details"]:
            return [line for view in views for line in ("", *tables.whole(view))][1:]
        lines = image_table(views) if views else ["No images in the ledger %s." % self.options["ledger_url"]]
        known = {v["name"] for v in views} | {v["id"] for v in views}
        unknown = sorted(word for word in set(words) if word not in known and canonical(word) not in known)
        return [*lines, "There is no image with this name: %s" % ", ".join(unknown)] if unknown else lines
