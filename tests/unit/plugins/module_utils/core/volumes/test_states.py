# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    InvalidInput,
    InvalidSnapshot,
    InvalidVolume,
    InvalidVolumeAttachMode,
    VolumeAttachmentNotFound,
    VolumeBackendAPIException,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attach_rules import (
    check_attach_to_instance,
    check_detach,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import Snapshot, Volume

BROKEN = VolumeBackendAPIException(data="x")
DELETABLE = {"available", "error", "error_restoring", "error_extending", "error_managing"}


def volume(status="available", **more):
    more.setdefault("host", "stor1@lvm#vg")
    more.setdefault("attach_status", "attached" if status == "in-use" else "detached")
    return Volume("v1", more.pop("size", 5), status=status, **more)


def snapshot(status="available", **more):
    return Snapshot("s1", 5, status=status, **more)


class Attachment(t.NamedTuple):
    id: str
    instance_uuid: str
    attach_status: str


def attachment(instance="i1", status="attached"):
    return Attachment("a-%s" % instance, instance, status)


def refused(call, *args, error=InvalidVolume, status=400, **more):
    with pytest.raises(error) as caught:
        call(*args, **more)
    assert caught.value.status == status
    return caught.value


# --- delete -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", states.VOLUME_STATES)
def test_delete_begins_in_five_states(status):
    tested = volume(status, attach_status="detached")
    if status in DELETABLE:
        states.check_delete(tested)
    else:
        assert (
            "status must be available or error or error_restoring or error_extending or error_managing and must not be"
            in (refused(states.check_delete, tested).message)
        )


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        ({"attach_status": "attached"}, "is attached: detach it first"),
        ({"migration_status": "migrating"}, "is migrating"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_delete_is_refused_whatever_the_status(more, remedy, force):
    error = refused(states.check_delete, volume(**more), force=force)
    assert remedy in error.remedy
    assert error.message.endswith("have snapshots or be disassociated from snapshots after volume transfer.")


@pytest.mark.parametrize("migration_status", [None, "deleting", "error", "success"])
def test_a_migration_that_is_over_does_not_matter(migration_status):
    states.check_delete(volume(migration_status=migration_status))


def test_a_forced_delete_asks_for_no_status():
    refused(states.check_delete, volume("creating"))
    states.check_delete(volume("creating"), force=True)


def test_a_volume_with_snapshots_stays():
    assert "has snapshots: delete s1 first" in refused(states.check_delete, volume(), [snapshot()]).remedy
    assert refused(states.check_delete, volume(), [snapshot()], force=True)


@pytest.mark.parametrize(
    ("status", "goes"), [("available", True), ("error", True), ("deleting", True), ("creating", False)]
)
def test_cascade_takes_the_snapshots_that_may_go(status, goes):
    if goes:
        states.check_delete(volume(), [snapshot(status)], cascade=True)
    else:
        assert refused(states.check_delete, volume(), [snapshot(status)], cascade=True)
        states.check_delete(volume(), [snapshot(status)], cascade=True, force=True)


@pytest.mark.parametrize("status", ["creating", "error", "available"])
def test_what_was_never_scheduled_goes_at_once(status):
    states.check_delete(volume(status, host=None))


def test_nothing_is_modified_on_a_frozen_backend():
    states.check_not_frozen(False)
    states.check_snapshot(volume(), frozen=False)
    for call in (states.check_not_frozen, lambda frozen: states.check_snapshot(volume(), True, frozen)):
        assert refused(call, True, error=InvalidInput).message == (
            "Invalid input received: Modification operations are not allowed on frozen storage backends."
        )


# --- extend -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new_size", [5, 4, 1, 0, -1, "5"])
def test_volumes_only_grow(new_size):
    error = refused(states.check_extend, volume(), new_size, error=InvalidInput)
    assert error.message == (
        "Invalid input received: New size for extend must be greater than current size. (current: 5, extended: %s)."
        % new_size
    )


@pytest.mark.parametrize("new_size", ["big", None, 5.5, "6.0", [], True])
def test_the_new_size_is_an_integer(new_size):
    refused(states.check_extend, volume(), new_size, error=InvalidInput)


@pytest.mark.parametrize(
    ("new_size", "text"),
    [
        (2**31, "New size 2147483648 GiB must be at most 2147483647 GiB."),  # later releases: DB_MAX_INT
        ("1_0", "New volume size must be specified as an integer."),
        ("\u0666", "New volume size must be specified as an integer."),
        ("9" * 5000, "New volume size must be specified as an integer."),
        ("--6", "New volume size must be specified as an integer."),
    ],
)
def test_new_sizes_that_no_database_keeps(new_size, text):
    assert text in refused(states.check_extend, volume(), new_size, error=InvalidInput).message
    states.check_extend(volume(), 2**31 - 1)


@pytest.mark.parametrize("status", states.VOLUME_STATES)
@pytest.mark.parametrize("attached", [False, True])
def test_extend_begins_in_one_state(status, attached):
    tested = volume(status)
    if status == ("in-use" if attached else "available"):
        states.check_extend(tested, "6", attached)
    else:
        assert "Volume v1 status must be" in refused(states.check_extend, tested, 6, attached).message


# --- attach and detach ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", states.VOLUME_STATES)
@pytest.mark.parametrize("multiattach", [False, True])
def test_reserve(status, multiattach):
    tested = volume(status, multiattach=multiattach)
    if status == "available" or (multiattach and status == "in-use"):
        transition = states.check_reserve(tested)
        assert transition.values == {"status": "attaching"}
        assert transition.applies_to(tested)
        assert not transition.applies_to(dataclasses.replace(tested, status="attaching"))
    else:
        wanted = "available or in-use" if multiattach else "available"
        assert refused(states.check_reserve, tested).message == (
            "Invalid volume: Volume status must be %s to reserve, but the status is %s." % (wanted, status)
        )


def test_a_run_reserves_for_several_instances_what_several_may_have():
    tested = volume("attaching", multiattach=True)
    assert states.check_reserve(tested, together=True).applies_to(tested)
    for other in (volume("attaching"), volume("detaching", multiattach=True)):
        with pytest.raises(InvalidVolume, match="to reserve, but the status is"):
            states.check_reserve(other, together=True)


@pytest.mark.parametrize("status", states.VOLUME_STATES)
@pytest.mark.parametrize("attach_status", states.ATTACH_STATES)
def test_detaching_begins_where_it_is_attached(status, attach_status):
    tested = volume(status, attach_status=attach_status)
    if (status, attach_status) == ("in-use", "attached"):
        assert states.check_begin_detaching(tested).values == {"status": "detaching"}
    else:
        assert "Volume status must be 'in-use' and attach_status must be 'attached'" in (
            refused(states.check_begin_detaching, tested).message
        )


def test_a_migrating_volume_keeps_its_status_when_it_is_detached():
    assert states.check_begin_detaching(volume("in-use", migration_status="migrating")).values == {}


def test_attach_to_an_instance():
    assert check_attach_to_instance(volume(), "i1").values == {"status": "attaching"}
    assert check_attach_to_instance(volume("in-use", multiattach=True), "i2", [attachment()])


@pytest.mark.parametrize(
    ("tested", "more", "text"),
    [
        (volume("in-use", multiattach=True), {"attachments": [attachment()]}, "volume v1 already attached"),
        (volume("in-use"), {"attachments": [attachment("i2")]}, "multiple attachments are not enabled"),
        (
            volume(availability_zone="b"),
            {"instance_zone": "a", "cross_az_attach": False},
            "Instance i1 and volume v1 are not in the same availability_zone. Instance is in a. Volume is in b",
        ),
        (volume("maintenance"), {}, "maintenance mode"),
        (volume("creating"), {}, "to reserve, but the status is creating"),
        (volume("attaching"), {}, "to reserve, but the status is attaching"),
    ],
)
def test_attach_is_refused(tested, more, text):
    assert text in refused(check_attach_to_instance, tested, "i1", **more).message


def test_other_zones_are_fine_unless_told_otherwise():
    assert check_attach_to_instance(volume(availability_zone="b"), "i1", instance_zone="a")
    assert check_attach_to_instance(volume(availability_zone="a"), "i1", instance_zone="a", cross_az_attach=False)


@pytest.mark.parametrize(("mode", "fine"), [("rw", True), ("ro", True), ("w", False)])
def test_modes(mode, fine):
    if fine:
        assert check_attach_to_instance(volume(), "i1", mode=mode)
    else:
        refused(check_attach_to_instance, volume(), "i1", mode=mode, error=InvalidVolumeAttachMode)


def test_which_attachment_is_undone():
    used = volume("in-use")
    assert check_detach(used, [attachment("i1"), attachment("i2")], "i2").id == "a-i2"
    assert check_detach(used, [attachment("i1"), attachment("i2", "detached")]).id == "a-i1"
    assert "More than one attachment" in refused(check_detach, used, [attachment("i1"), attachment("i2")]).message
    refused(check_detach, used, [attachment("i1")], "i9", error=VolumeAttachmentNotFound, status=404)
    refused(check_detach, used, [])
    refused(check_detach, volume("available"), [attachment()])
    refused(check_detach, volume("maintenance"), [attachment()])


# --- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "force", "fine"),
    [("available", False, True), ("in-use", False, False), ("in-use", True, True), ("error", True, False)],
)
def test_a_snapshot_wants_its_volume_at_rest_or_forced(status, force, fine):
    if fine:
        states.check_snapshot(volume(status), force)
    else:
        assert "but current status is: %s." % status in refused(states.check_snapshot, volume(status), force).message


@pytest.mark.parametrize(
    ("tested", "text"),
    [
        (volume(host=None), "has not been scheduled to any host"),
        (volume("maintenance"), "maintenance mode"),
        (volume(migration_status="migrating"), "while volume is migrating"),
    ],
)
def test_no_snapshot_of_such_a_volume(tested, text):
    assert text in refused(states.check_snapshot, tested, True).message


@pytest.mark.parametrize("status", states.SNAPSHOT_STATES)
def test_which_snapshots_go(status):
    if status in ("available", "error"):
        states.check_snapshot_delete(snapshot(status))
    else:
        assert refused(states.check_snapshot_delete, snapshot(status), error=InvalidSnapshot).message == (
            "Invalid snapshot: Snapshot status must be available or error and must not be part of a group."
        )
        states.check_snapshot_delete(snapshot(status), force=True)


@pytest.mark.parametrize(
    ("action", "done", "failed"),
    [
        ("create", "available", "error"),
        ("delete", "deleted", "error_deleting"),
        ("extend", "available", "error_extending"),
        ("snapshot_create", "available", "error"),
        ("snapshot_delete", "deleted", "error_deleting"),
    ],
)
def test_what_an_action_leaves(action, done, failed):
    assert states.status_after(action, None) == done
    assert states.status_after(action, BROKEN) == failed
    known = states.SNAPSHOT_STATES if action.startswith("snapshot") else states.VOLUME_STATES
    assert {done, failed} <= set(known)


def test_what_an_action_leaves_depends_on_what_was():
    assert states.status_after("extend", None, "in-use") == "in-use"
    assert states.status_after("extend", BROKEN, "in-use") == "error_extending"


volumes = st.builds(
    Volume,
    id=st.just("v1"),
    size=st.just(5),
    status=st.sampled_from(states.VOLUME_STATES),
    attach_status=st.sampled_from(states.ATTACH_STATES),
    migration_status=st.sampled_from([None, "migrating", "success", "error"]),
    host=st.sampled_from([None, "h@b#p"]),
    multiattach=st.booleans(),
)


@given(volumes, st.sampled_from(["reserve", "begin_detaching"]))
def test_whatever_a_check_lets_through_the_swap_would_take(tested, action):
    try:
        transition = getattr(states, "check_%s" % action)(tested)
    except InvalidVolume:
        return
    assert transition.applies_to(tested)
    assert set(transition.values) <= {"status"}


# --- images of volumes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("status", states.VOLUME_STATES)
def test_an_image_is_made_of_a_volume_at_rest_or_forced(status, force, enabled):
    allowed = ("available", "in-use") if force and enabled else ("available",)
    tested = volume(status)
    if status in allowed:
        transition = states.check_upload(tested, force, enabled)
        assert transition.applies_to(tested) and transition.expected == {"status": allowed}
        assert transition.values == {"status": "uploading", "previous_status": status}
    else:
        error = refused(states.check_upload, tested, force, enabled)
        assert error.message == "Invalid volume: Volume v1 status must be %s" % " or ".join(allowed)
        assert ("bootflow_enable_force_upload" in error.remedy) == (status == "in-use")


@pytest.mark.parametrize("attach_status", [None, *states.ATTACH_STATES])
def test_the_status_after_an_image(attach_status):
    expected = "in-use" if attach_status == "attached" else "available"
    assert states.status_after_upload(attach_status) == expected
