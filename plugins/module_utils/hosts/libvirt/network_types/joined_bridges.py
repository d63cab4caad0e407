# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bridges that are made for networks over hosts, and the guests in them."""

from __future__ import annotations

import contextlib
import typing as t

from ...bridges import made_bridges
from ...bridges.made_bridges import MadeBridge
from ...os.batch import attempt
from ...os.locks import LOCK_ROOT, host_lock
from ..taps import plug_in, unplugged
from .used_networks import used_by_domains


def ensure_joined(connection: t.Any, wanted: MadeBridge, network: str, check_mode: bool) -> dict[str, t.Any]:
    """Make or correct a bridge and its device; {changed, source, bridge, defined, started, diff}. :arg network: its name, for messages

    :raises NetworkError: see made_bridges.ensure_bridge()
    """
    if check_mode:
        outcome = made_bridges.ensure_bridge(wanted, network, True)
    else:
        with host_lock(LOCK_ROOT, made_bridges.LOCK):
            outcome = made_bridges.ensure_bridge(wanted, network, False)
        if outcome["defined"]:  # guests that run have lost the former bridge
            plug_in(tap for tap in unplugged(connection) if tap.bridge == wanted.bridge)
    return {**outcome, "source": wanted.bridge, "bridge": wanted.bridge}


def purge_joined(
    connection: t.Any, made: type[MadeBridge], min_age: float, keep: t.Collection[str], check_mode: bool
) -> t.Iterator[dict[str, t.Any]]:
    """Remove the bridges of a kind that no guest uses; see HostNetworkType.purge()."""
    with contextlib.nullcontext() if check_mode else host_lock(LOCK_ROOT, made_bridges.LOCK):
        ours = [bridge for bridge in made_bridges.recorded(made) if bridge.bridge not in keep]
        used = used_by_domains(connection) if ours else set()
        for bridge in ours:
            outcome = attempt(lambda candidate: _purge(candidate, used, min_age, check_mode), bridge)
            if outcome["changed"] or outcome["error"]:
                yield {"name": bridge.bridge, **outcome}


def _purge(made: MadeBridge, used: t.Collection[str], min_age: float, check_mode: bool) -> dict[str, t.Any]:
    if made.bridge in used or made_bridges.has_ports(made) or made_bridges.unneeded_for(made) < min_age:
        return {"changed": False}
    definition = made_bridges.found_text(made)
    if not check_mode:
        made_bridges.remove_bridge(made)
    return {"changed": True, "definition": definition}
