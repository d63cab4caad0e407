# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    InstanceInvalidState,
    InstanceIsLocked,
    InvalidInput,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import power_state_of

ANY = set(states.VM_STATES)
RESOURCES = "active stopped paused suspended"

# action: vm_states, task_states (text "none", "any" or a list), during, result
ON_ONE_HOST = (
    "none updating_password rebooting reboot_pending reboot_started rebooting_hard reboot_pending_hard reboot_started_hard pausing"
    " unpausing suspending resuming powering-off powering-on rescuing rebuild_block_device_mapping rebuild_spawning"
    " image_snapshot_pending image_snapshot image_pending_upload image_uploading image_backup"
)
TABLE = {
    "stop": ("active error", "none", "powering-off", "stopped"),
    "start": ("stopped", "none", "powering-on", "active"),
    "pause": ("active", "none", "pausing", "paused"),
    "unpause": ("paused", "none", "unpausing", "active"),
    "suspend": ("active", "none", "suspending", "suspended"),
    "resume": ("suspended", "none", "resuming", "active"),
    "soft_reboot": ("active", "none", "rebooting", "active"),
    "hard_reboot": (
        "active stopped paused suspended error",
        "none rebooting reboot_pending reboot_started rebooting_hard resuming unpausing pausing suspending",
        "rebooting_hard",
        "active",
    ),
    "rescue": ("active stopped error", "none", "rescuing", "rescued"),
    "unrescue": ("rescued", "none", "unrescuing", "active"),
    "resize": ("active stopped", "none", "resize_prep", "resized"),
    "migrate": ("active stopped", "none", "resize_prep", "resized"),
    "confirm_resize": ("resized", "none", None, None),
    "revert_resize": ("resized", "none", "resize_reverting", None),
    "shelve": (RESOURCES, "none", "shelving", "shelved"),
    "shelve_offload": ("shelved", "none", "shelving_offloading", "shelved_offloaded"),
    "unshelve": ("shelved shelved_offloaded", "none", "unshelving", "active"),
    "snapshot": (RESOURCES, "none", "image_snapshot_pending", None),
    "snapshot_volume_backed": ("active stopped suspended", "none", "image_snapshot_pending", None),
    "create_backup": (RESOURCES, "none", "image_backup", None),
    "incremental_backup": (RESOURCES, "none", "image_snapshot", None),
    "rebuild": ("active stopped error", "none", "rebuilding", None),
    "revert": ("active stopped error", "none", "rebuild_block_device_mapping", None),
    "evacuate": ("active stopped error", ON_ONE_HOST, "rebuilding", None),
    "reset_state": (
        RESOURCES + " rescued soft-delete error",
        " ".join({"none", *states.TASK_STATES} - {"deleting"}),
        None,
        None,
    ),
    "delete": ("any", "any", "deleting", "deleted"),
    "force_delete": ("any", "any", "deleting", "deleted"),
    "soft_delete": ("any", "any", "soft-deleting", "soft-delete"),
    "restore": ("soft-delete", "none", "restoring", "active"),
    "set_admin_password": ("active", "none", "updating_password", None),
    "live_migrate": ("active paused", "none", "migrating", None),
    "live_migrate_force_complete": ("active", "migrating", "migrating", None),
    "live_migrate_abort": ("any", "migrating", "migrating", None),
    "attach_volume": ("active paused stopped resized soft-delete shelved shelved_offloaded", "none", None, None),
    "detach_volume": ("active paused stopped resized soft-delete shelved shelved_offloaded", "none", None, None),
    "swap_volume": ("active paused resized", "none", None, None),
    "attach_interface": ("active paused stopped", "none", None, None),
    "detach_interface": ("active paused stopped", "none", None, None),
    "trigger_crash_dump": ("active paused rescued resized error", "none", None, None),
    "update_instance_metadata": (RESOURCES, "any", None, None),
    "release": ("any", "none", None, None),  # not Nova's
}


def test_the_table_has_every_action():
    assert set(TABLE) == set(states.ACTIONS)


@pytest.mark.parametrize("action", sorted(TABLE))
def test_every_state_of_every_action(action):
    vm, task, during, result = TABLE[action]
    vm_allowed = ANY if vm == "any" else set(vm.split())
    task_allowed = {None, *states.TASK_STATES} if task == "any" else {None if x == "none" else x for x in task.split()}
    good_task = sorted(task_allowed, key=str)[0]
    for vm_state in states.VM_STATES:
        if vm_state in vm_allowed:
            rule = states.check_action(action, vm_state, good_task)
            assert (rule.during, rule.result) == (during, result)
        else:
            with pytest.raises(InstanceInvalidState, match="vm_state %s" % vm_state):
                states.check_action(action, vm_state, good_task)
    for task_state in (None, *states.TASK_STATES):
        good_vm = sorted(vm_allowed)[0]
        if task_state in task_allowed:
            states.check_action(action, good_vm, task_state)
        else:
            with pytest.raises(InstanceInvalidState, match="task_state %s" % task_state):
                states.check_action(action, good_vm, task_state)


@pytest.mark.parametrize("action", sorted(TABLE))
def test_states_named_exist(action):
    rule = states.ACTIONS[action]
    assert rule.during is None or rule.during in states.TASK_STATES
    assert rule.result is None or rule.result in states.VM_STATES


def test_order_of_tests_and_texts():
    with pytest.raises(InstanceIsLocked, match="Instance u1 is locked"):
        states.check_action("stop", "building", "spawning", launched=False, locked=True, instance_uuid="u1")
    with pytest.raises(InstanceInvalidState) as caught:
        states.check_action("stop", "building", "spawning", launched=False, instance_uuid="u1")
    assert caught.value.message == "Cannot 'stop' instance u1 while it is in vm_state building"
    with pytest.raises(InstanceInvalidState) as caught:
        states.check_action("stop", "active", "pausing", launched=False, instance_uuid="u1")
    assert caught.value.message == "Cannot 'stop' instance u1 while it is in task_state pausing"
    with pytest.raises(InstanceInvalidState) as caught:
        states.check_action("stop", "active", None, launched=False, instance_uuid="u1")
    assert caught.value.message == "Instance u1 is in an invalid state for 'stop'"
    assert caught.value.status == 409


@pytest.mark.parametrize("action", ["delete", "force_delete"])
def test_what_never_ran_can_be_deleted(action):
    states.check_action(action, "building", "scheduling", launched=False)


def test_soft_delete_needs_a_launch():
    with pytest.raises(InstanceInvalidState, match="invalid state for 'soft_delete'"):
        states.check_action("soft_delete", "building", None, launched=False)


@pytest.mark.parametrize("action", sorted(TABLE))
def test_the_lock(action):
    vm, task = TABLE[action][:2]
    args = (action, "active" if vm == "any" else vm.split()[0], "migrating" if task == "migrating" else None)
    if action in (
        "snapshot",
        "snapshot_volume_backed",
        "create_backup",
        "incremental_backup",
        "evacuate",
        "reset_state",
    ):
        states.check_action(*args, locked=True)
    else:
        with pytest.raises(InstanceIsLocked):
            states.check_action(*args, locked=True)


@pytest.mark.parametrize(
    ("action", "vm_state", "remedy"),
    [
        ("pause", states.STOPPED, "Allowed states: active. Run bootflow.compute.start first."),
        ("stop", states.SUSPENDED, "Allowed states: active, error. Run bootflow.compute.resume first."),
        ("resize", states.RESCUED, "Allowed states: active, stopped. Run bootflow.compute.unrescue first."),
        ("stop", states.BUILDING, "Allowed states: active, error. Wait until it is built."),
        ("confirm_resize", states.ACTIVE, "Allowed states: resized."),
        ("unpause", states.STOPPED, "Allowed states: paused. Run bootflow.compute.start instead."),
        ("start", states.SOFT_DELETED, "Allowed states: stopped. Run bootflow.compute.restore instead."),
        (
            "start",
            states.RESIZED,
            "Allowed states: stopped. Run bootflow.compute.confirm_resize or bootflow.compute.revert_resize first.",
        ),
        *(
            (
                what,
                states.RESIZED,
                "Allowed states: %s. Run bootflow.compute.confirm_resize or bootflow.compute.revert_resize instead."
                % its,
            )
            for what, its in (
                ("unpause", "paused"),
                ("resume", "suspended"),
                ("unrescue", "rescued"),
                ("restore", "soft-delete"),
            )
        ),
        ("start", states.BUILDING, "Allowed states: stopped."),
    ],
)
def test_a_refusal_says_what_leads_to_a_state_that_allows_it(action, vm_state, remedy):
    with pytest.raises(InstanceInvalidState) as caught:
        states.check_action(action, vm_state, None)
    assert (caught.value.remedy, caught.value.status) == (remedy, 409)


def test_every_way_out_is_an_action_that_may_begin_there():
    for vm_state, words in states._WAYS.items():
        named = [name for name in ("start", "unpause", "resume", "unrescue", "confirm_resize", "restore", "hard_reboot", "unshelve")
                 if "bootflow.compute." + name.replace("hard_", "") in words]  # fmt: skip
        assert named, words
        for name in named:
            states.check_action(name, vm_state, None)


def test_what_comes_first_leads_to_a_state_in_which_the_action_may_begin():
    for action, rule in states.ACTIONS.items():
        for vm_state in sorted(ANY - set(rule.vm_states or ANY)):
            with pytest.raises(InstanceInvalidState) as caught:
                states.check_action(action, vm_state, None)
            if " first." in caught.value.remedy:
                assert rule.vm_states & {states.ACTIVE, states.STOPPED}, (action, vm_state, caught.value.remedy)


def test_unknown_action():
    with pytest.raises(InvalidInput, match="unknown action fly"):
        states.check_action("fly", "active", None)
    with pytest.raises(InvalidInput, match="unknown action fly"):
        states.settled("fly", "active", states.RUNNING)


def test_what_needs_a_task_state_says_which():
    with pytest.raises(InstanceInvalidState) as refused:
        states.check_action("live_migrate_abort", "active", None)
    assert refused.value.remedy == "This operation is for instances whose task_state is migrating."


@pytest.mark.parametrize(
    ("libvirt", "power"), [(0, 0), (1, 1), (2, 1), (3, 3), (4, 1), (5, 4), (6, 6), (7, 7), (8, 0), (-1, 0)]
)
def test_power_states(libvirt, power):
    assert power_state_of(libvirt) == power


def test_values():
    assert len(set(states.VM_STATES)) == 12
    assert len(set(states.TASK_STATES)) == len(states.TASK_STATES) == 42
