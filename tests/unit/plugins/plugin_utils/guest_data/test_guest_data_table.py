# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data in the ledger: read with each of the keys, written again with the first one, and never believed without its SHA-256."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import InjectedFile
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import guest_data_digest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import GuestSecrets
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.guest_data_tables import guest_texts
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data.guest_data_table import GuestDataTable
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

TEXT = "#cloud-config\r\npassword: hünter2\n"
FILES = (InjectedFile("/etc/a", "aHVudGVyMg=="), InjectedFile("/etc/b", "aHVudGVyMg=="))
SECRETS = GuestSecrets(TEXT, FILES)
DIGEST = guest_data_digest(TEXT, FILES)
OLD, NEW = "an old key of sixteen", "a new key of sixteen"


def table(world: World, *keys: str) -> GuestDataTable:
    return GuestDataTable(lambda: world.ledger, world.ledger.id, keys)


@pytest.mark.parametrize("keys", [(), (OLD,)])
def test_what_is_kept_is_read_again(world: World, keys: tuple[str, ...]) -> None:
    table(world, *keys).keep([SECRETS, GuestSecrets(admin_password="x")])
    table(world, *keys).keep([SECRETS])
    assert table(world, *keys).read_secrets(DIGEST) == SECRETS
    rows = world.rows(guest_texts)
    assert len(rows) == 2 and ("aHVudGVyMg==" in {r.contents for r in rows}) is (not keys)
    assert world.ledger.inspect(lambda tx: table(world, *keys).read_secrets(DIGEST, tx)) == SECRETS
    assert table(world, *keys).read_secrets(guest_data_digest("other", ())) is None


def test_keys_follow_one_another(world: World) -> None:
    """Clear text, then one key, then a new one that stands before the old one: each time all rows are written again."""
    table(world).keep([SECRETS])
    table(world, OLD).keep([GuestSecrets("one")])
    rotated = table(world, NEW, OLD)
    assert rotated.read_secrets(DIGEST) == SECRETS
    rotated.keep([GuestSecrets("two")])
    assert table(world, NEW).read_secrets(DIGEST) == SECRETS and len(world.rows(guest_texts)) == 4
    with pytest.raises(errors.GuestDataLocked) as locked:
        table(world, OLD).read_secrets(DIGEST)
    assert locked.value.status == 400 and not locked.value.retryable


def test_a_row_of_an_unknown_key_stays_as_it_is(world: World) -> None:
    table(world, OLD).keep([SECRETS])
    before = {r.sha256: r.contents for r in world.rows(guest_texts)}
    table(world, NEW).keep([GuestSecrets("one")])
    after = {r.sha256: r.contents for r in world.rows(guest_texts)}
    assert {n: after[n] for n in before} == before and len(after) == 3
    table(world, NEW).keep([SECRETS])
    assert table(world, NEW).read_secrets(DIGEST) == SECRETS, "the text itself was given again"


def test_a_controller_without_a_key_writes_no_clear_text_over_an_encrypted_one(world: World) -> None:
    table(world, OLD).keep([SECRETS])
    before = {r.sha256: r.contents for r in world.rows(guest_texts)}
    table(world).keep([SECRETS, GuestSecrets("one")])
    after = {r.sha256: r.contents for r in world.rows(guest_texts)}
    assert {n: after[n] for n in before} == before and len(after) == 3
    assert table(world, OLD).read_secrets(DIGEST) == SECRETS


@pytest.mark.parametrize("keys", [(), (OLD,)])
def test_a_row_that_somebody_changed_is_not_believed(world: World, keys: tuple[str, ...]) -> None:
    kept = table(world, *keys)
    kept.keep([GuestSecrets("one"), GuestSecrets("two")])
    rows = world.rows(guest_texts)
    contents = [r.contents for r in rows]

    def exchange(tx: Transaction) -> None:
        for row, other in zip(rows, reversed(contents)):
            tx.execute(guest_texts.update().where(guest_texts.c.sha256 == row.sha256).values(contents=other))

    world.ledger.transact(exchange)
    digest = guest_data_digest("one", ())
    if keys:
        with pytest.raises(errors.GuestDataLocked):
            kept.read_secrets(digest)
    else:
        assert kept.read_secrets(digest) is None
