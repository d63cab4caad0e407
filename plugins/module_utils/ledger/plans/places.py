# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that plans hold for instances that exist. A row ends when its plan is done or given up; its claim has the kind of a plan."""

from __future__ import annotations

import typing as t

from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.plan_tables import plan_places
from ..schema.tables import instances

_c = plan_places.c


class Place:
    """A row of plan_places."""

    plan_id: str
    instance_uuid: str
    host: str


class NamedPlace(Place):
    """A place with the name of the instance that it is for."""

    display_name: str


def add(tx: Transaction, plan_id: str, hosts: t.Mapping[str, str]) -> None:
    """Enter the places of a plan. :arg hosts: uuid -> host"""
    rows = [{"plan_id": plan_id, "instance_uuid": u, "host": h} for u, h in sorted(hosts.items())]
    bulk.insert(tx, plan_places, rows)


def of_plan(tx: Transaction, plan_id: str) -> list[NamedPlace]:
    """Return the places that a plan holds, by UUID of their instances."""
    query = sa.select(plan_places, instances.c.display_name).join(instances, instances.c.uuid == _c.instance_uuid)
    return tx.rows(query.where(_c.plan_id == plan_id).order_by(_c.instance_uuid), NamedPlace)


def plans_of(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, str]:
    """Return uuid -> id of the plan that holds a place for the instance."""
    query = sa.select(_c.instance_uuid, _c.plan_id).where(bulk.among(tx, _c.instance_uuid, uuids))
    return {r.instance_uuid: r.plan_id for r in tx.execute(query)} if uuids else {}


def planned(tx: Transaction) -> set[str]:
    """Return the UUIDs of all instances for which plans hold places."""
    return set(tx.execute(sa.select(_c.instance_uuid)).scalars())


def remove(tx: Transaction, uuids: t.Sequence[str]) -> None:
    """Remove the places for these instances."""
    tx.execute(plan_places.delete().where(bulk.among(tx, _c.instance_uuid, uuids)))
