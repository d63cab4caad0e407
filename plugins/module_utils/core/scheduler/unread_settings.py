# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables and metadata of aggregates that only disabled filters and weighers read. Nova ignores such settings in silence."""

from __future__ import annotations

import typing as t

from ..reading.setting import PREFIX
from .aggregates import Aggregate


def unread_settings(
    variables: t.Iterable[str],
    multipliers: t.Iterable[str],
    aggregates: t.Iterable[Aggregate],
    filters: t.Mapping[str, type],
    weighers: t.Mapping[str, type],
    enabled: t.Container[str],
    own: t.Collection[str] = (),
) -> list[str]:
    """Return a sentence for each setting that nothing reads, with the filter or weigher that would read it.

    :arg variables: names of the variables that are given. :arg multipliers: names of weighers that a multiplier is given for.
    :arg filters: name -> class of all that exist. :arg weighers: likewise. :arg enabled: names of filters and weighers.
    :arg own: the user's own among them. They may read any field of a host, and any metadata of its aggregates.
    """
    known = {**filters, **weighers}
    sentences: list[str] = []
    for variable in sorted(set(variables)):
        readers = [name for name, cls in known.items() if variable in _variables_of(cls, with_hosts=not own)]
        sentences += _sentence(variable, readers, weighers, enabled)
    for name in sorted(set(multipliers) & set(weighers)):
        sentences += _sentence("%s of %sweight_multipliers" % (name, PREFIX), [name], weighers, enabled)
    for aggregate in () if own else sorted(set(aggregates), key=lambda a: a.name):
        for key in sorted(aggregate.metadata):
            readers = [name for name, cls in known.items() if key in _keys_of(cls)]
            sentences += _sentence("%s of aggregate %s" % (key, aggregate.name), readers, weighers, enabled)
    return sentences


def _sentence(what: str, readers: list[str], weighers: t.Container[str], enabled: t.Container[str]) -> t.Iterator[str]:
    if readers and not any(name in enabled for name in readers):
        lists = dict.fromkeys(PREFIX + ("weighers" if name in weighers else "enabled_filters") for name in readers)
        yield "Nothing reads %s: %s not enabled. Add %s to %s, or remove the setting." % (
            what,
            "%s is" % readers[0] if len(readers) == 1 else "%s are" % " and ".join(readers),
            "it" if len(readers) == 1 else "one of them",
            " or ".join(lists),
        )


def _variables_of(cls: type, with_hosts: bool) -> set[str]:
    names = {setting.variable for setting in getattr(cls, "settings", ())}
    return names | ({PREFIX + name for name in getattr(cls, "host_settings", ())} if with_hosts else set())


def _keys_of(cls: type) -> set[str]:
    return {key for key in (*getattr(cls, "aggregate_keys", ()), getattr(cls, "aggregate_key", "")) if key}
