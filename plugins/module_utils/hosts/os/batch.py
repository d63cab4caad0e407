# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many items in one task: in parallel, and the failure of one does not affect the others."""

from __future__ import annotations

import threading
import typing as t

from ...core.errors import InvalidInput
from .module_errors import failure


class Progress:
    """The progress of an item, so that the result of a failed item still reports that the host was changed."""

    def __init__(self) -> None:
        self._local = threading.local()

    def start(self) -> None:
        """Reset the progress of this thread's previous item."""
        self._local.changed = False

    def mark_changed(self) -> None:
        """Record that the current item of this thread has changed the host."""
        self._local.changed = True

    @property
    def changed(self) -> bool:
        return bool(getattr(self._local, "changed", False))


#: Host functions call ``progress.mark_changed()`` right before they change the host.
progress = Progress()


def run_batch(
    items: t.Mapping[str, t.Any] | t.Iterable[tuple[str, t.Any]],
    fn: t.Callable[[t.Any], dict[str, t.Any]],
    workers: int = 4,
) -> dict[str, dict[str, t.Any]]:
    """Call attempt(fn, item) for every item, at most ``workers`` in parallel, and collect {key: result} in the order of the items.

    :raises InvalidInput: two items have the same key (the second would race the first).
    """
    pairs = list(items.items() if isinstance(items, t.Mapping) else items)
    keys = [key for key, dummy in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
    if twice:
        raise InvalidInput(reason="items given more than once: %s" % ", ".join(twice))

    if not pairs:
        return {}
    if workers <= 1 or len(pairs) == 1:
        return {key: attempt(fn, item) for key, item in pairs}
    from concurrent.futures import ThreadPoolExecutor  # of hosts with several items

    with ThreadPoolExecutor(max_workers=min(workers, len(pairs))) as pool:
        return dict(zip(keys, pool.map(lambda item: attempt(fn, item), [item for dummy, item in pairs])))


def attempt(fn: t.Callable[[t.Any], dict[str, t.Any]], item: t.Any) -> dict[str, t.Any]:
    """Return the result of ``fn(item)``, with ``changed`` (False unless set) and ``error`` (None); if it raised any exception, the
    plain data of the error instead."""
    progress.start()
    try:
        result = dict(fn(item))
    except Exception as error:  # the failure of an item is data
        return failure(error, changed=progress.changed)
    result.setdefault("changed", False)
    result.setdefault("error", None)
    return result


def any_changed(*results: t.Mapping[str, t.Mapping[str, t.Any]]) -> bool:
    """Return whether an item of these batches changed the host."""
    return any(item.get("changed") for batch in results for item in batch.values())
