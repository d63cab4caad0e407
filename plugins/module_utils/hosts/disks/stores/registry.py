# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stores of this host by the names of their types."""

from __future__ import annotations

from ....core.disks.stores.registry import STORE_TYPES
from .store import Store


def store_of(name: str, volume_group: str = "", ledger_id: str = "") -> Store:
    """Return the store of a type.

    :raises InvalidInput: the type needs a volume group, and none is given.
    """
    store_type = STORE_TYPES[name]
    group = store_type.checked_group(volume_group)
    # Each is imported only where it is needed: a module loads its files each time that it runs.
    if store_type.is_file_system:
        from .mounted import Mounted

        return Mounted(store_type, group, ledger_id)
    if store_type.is_volume:
        from .volumes import Volumes

        return Volumes(store_type, group, ledger_id)
    from .files import Files

    return Files(store_type, group, ledger_id)
