# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vm_state, task_state and power_state: their values, and the actions allowed in each."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InstanceInvalidState, InstanceIsLocked, InvalidInput
from . import power_states

# --- vm_state: the state of an instance ------------------------------------------------------------------------------

ACTIVE = "active"
BUILDING = "building"
PAUSED = "paused"
SUSPENDED = "suspended"
STOPPED = "stopped"
RESCUED = "rescued"
RESIZED = "resized"
SOFT_DELETED = "soft-delete"
DELETED = "deleted"
ERROR = "error"
SHELVED = "shelved"
SHELVED_OFFLOADED = "shelved_offloaded"

VM_STATES = (
    ACTIVE, BUILDING, PAUSED, SUSPENDED, STOPPED, RESCUED, RESIZED, SOFT_DELETED, DELETED, ERROR, SHELVED, SHELVED_OFFLOADED,
)  # fmt: skip

# In these an instance has no resources of a host: the audit ignores it.
ALLOW_RESOURCE_REMOVAL = frozenset((DELETED, SHELVED_OFFLOADED))

# --- task_state: the current action; None: none ----------------------------------------------------------------------

SCHEDULING = "scheduling"
BLOCK_DEVICE_MAPPING = "block_device_mapping"
NETWORKING = "networking"
SPAWNING = "spawning"
IMAGE_SNAPSHOT = "image_snapshot"
IMAGE_SNAPSHOT_PENDING = "image_snapshot_pending"
IMAGE_PENDING_UPLOAD = "image_pending_upload"
IMAGE_UPLOADING = "image_uploading"
IMAGE_BACKUP = "image_backup"
UPDATING_PASSWORD = "updating_password"
RESIZE_PREP = "resize_prep"
RESIZE_MIGRATING = "resize_migrating"
RESIZE_MIGRATED = "resize_migrated"
RESIZE_FINISH = "resize_finish"
RESIZE_REVERTING = "resize_reverting"
RESIZE_CONFIRMING = "resize_confirming"
REBOOTING = "rebooting"
REBOOT_PENDING = "reboot_pending"
REBOOT_STARTED = "reboot_started"
REBOOTING_HARD = "rebooting_hard"
REBOOT_PENDING_HARD = "reboot_pending_hard"
REBOOT_STARTED_HARD = "reboot_started_hard"
PAUSING = "pausing"
UNPAUSING = "unpausing"
SUSPENDING = "suspending"
RESUMING = "resuming"
POWERING_OFF = "powering-off"
POWERING_ON = "powering-on"
RESCUING = "rescuing"
UNRESCUING = "unrescuing"
REBUILDING = "rebuilding"
REBUILD_BLOCK_DEVICE_MAPPING = "rebuild_block_device_mapping"
REBUILD_SPAWNING = "rebuild_spawning"
MIGRATING = "migrating"
DELETING = "deleting"
SOFT_DELETING = "soft-deleting"
RESTORING = "restoring"
SHELVING = "shelving"
SHELVING_IMAGE_PENDING_UPLOAD = "shelving_image_pending_upload"
SHELVING_IMAGE_UPLOADING = "shelving_image_uploading"
SHELVING_OFFLOADING = "shelving_offloading"
UNSHELVING = "unshelving"

TASK_STATES = (
    SCHEDULING, BLOCK_DEVICE_MAPPING, NETWORKING, SPAWNING,
    IMAGE_SNAPSHOT, IMAGE_SNAPSHOT_PENDING, IMAGE_PENDING_UPLOAD, IMAGE_UPLOADING, IMAGE_BACKUP,
    UPDATING_PASSWORD,
    RESIZE_PREP, RESIZE_MIGRATING, RESIZE_MIGRATED, RESIZE_FINISH, RESIZE_REVERTING, RESIZE_CONFIRMING,
    REBOOTING, REBOOT_PENDING, REBOOT_STARTED, REBOOTING_HARD, REBOOT_PENDING_HARD, REBOOT_STARTED_HARD,
    PAUSING, UNPAUSING, SUSPENDING, RESUMING, POWERING_OFF, POWERING_ON, RESCUING, UNRESCUING,
    REBUILDING, REBUILD_BLOCK_DEVICE_MAPPING, REBUILD_SPAWNING,
    MIGRATING, DELETING, SOFT_DELETING, RESTORING,
    SHELVING, SHELVING_IMAGE_PENDING_UPLOAD, SHELVING_IMAGE_UPLOADING, SHELVING_OFFLOADING, UNSHELVING,
)  # fmt: skip

#: Those in which an instance is resized or migrated, or goes back.
RESIZING = (RESIZE_MIGRATING, RESIZE_FINISH, RESIZE_REVERTING)

# --- power_state: the hypervisor's state (in core.instances.power_states, so that hosts need not load this file) --------

NOSTATE = power_states.NOSTATE
RUNNING = power_states.RUNNING
POWER_PAUSED = power_states.POWER_PAUSED
SHUTDOWN = power_states.SHUTDOWN
CRASHED = power_states.CRASHED
POWER_SUSPENDED = power_states.POWER_SUSPENDED


# --- actions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Action:
    """The states in which an action may begin, and its result. None for ``vm_states`` or ``task_states``: any."""

    vm_states: frozenset[str] | None
    task_states: frozenset[str | None] | None = frozenset((None,))
    during: str | None = None  # task_state while it runs
    result: str | None = None  # vm_state after it; None: as before, or decided by the action
    must_have_launched: bool = True
    locks: bool = True  # rejected for a locked instance
    then: tuple[str, ...] = ()  # the task_states that follow ``during``, in order
    dies_to: str | None = None  # vm_state where its run died; None: what the guest's power state says
    known_as: str = ""  # its name in the journal and in messages, where it has another
    journalled: str = ""  # its name in the journal, where it has one for that alone. source: Nova's instance_actions
    later: tuple[str, ...] = ()  # more task_states in which it may be, while it comes to its end or is undone
    #: Power states in which the guest differs from the action's result that its instance has: it was changed by other means.
    undone_by: frozenset[int] = frozenset()
    brings_up: bool = (
        False  # it defines or starts a guest where the ledger has its instance; moves check that on their own
    )
    makes_image: bool = False  # of the instance: the image of a dead run is deleted
    off_meanwhile: bool = False  # a guest that ran is off for a while, and runs again

    @property
    def at_work(self) -> str | None:
        """The task_state while its host works."""
        return self.then[-1] if self.then else self.during

    def is_in(self, task_state: str | None) -> bool:
        """Whether an instance in ``task_state`` may be one on which it works."""
        return task_state is not None and task_state in (self.at_work, *self.later)


def _in(*states: str) -> frozenset[str]:
    return frozenset(states)


_ALLOW_REBOOT: frozenset[str | None] = frozenset(
    (None, REBOOTING, REBOOT_PENDING, REBOOT_STARTED, REBOOTING_HARD, RESUMING, UNPAUSING, PAUSING, SUSPENDING)
)

# What a run does with an instance on its host alone: where that is lost, the instance is as it was before.
_ON_ONE_HOST: frozenset[str | None] = frozenset(
    (
        None, UPDATING_PASSWORD, REBOOTING, REBOOT_PENDING, REBOOT_STARTED, REBOOTING_HARD, REBOOT_PENDING_HARD,
        REBOOT_STARTED_HARD, PAUSING, UNPAUSING, SUSPENDING, RESUMING, POWERING_OFF, POWERING_ON, RESCUING,
        REBUILD_BLOCK_DEVICE_MAPPING, REBUILD_SPAWNING,
        IMAGE_SNAPSHOT_PENDING, IMAGE_SNAPSHOT, IMAGE_PENDING_UPLOAD, IMAGE_UPLOADING, IMAGE_BACKUP,
    )
)  # fmt: skip

_USED = _in(ACTIVE, STOPPED, PAUSED, SUSPENDED)
_ATTACHABLE = _in(ACTIVE, PAUSED, STOPPED, RESIZED, SOFT_DELETED, SHELVED, SHELVED_OFFLOADED)
_INTERFACE = _in(ACTIVE, PAUSED, STOPPED)

_MOVE = Action(
    _in(ACTIVE, STOPPED),
    during=RESIZE_PREP,
    then=(RESIZE_MIGRATING,),
    result=RESIZED,
    later=(RESIZE_FINISH, RESIZE_REVERTING),
)

ACTIONS: dict[str, Action] = {
    "stop": Action(
        _in(ACTIVE, ERROR),
        during=POWERING_OFF,
        result=STOPPED,
        undone_by=frozenset((RUNNING, POWER_PAUSED, POWER_SUSPENDED)),
    ),
    "start": Action(
        _in(STOPPED), during=POWERING_ON, result=ACTIVE, undone_by=frozenset((SHUTDOWN, CRASHED)), brings_up=True
    ),
    "pause": Action(_in(ACTIVE), during=PAUSING, result=PAUSED, undone_by=frozenset((RUNNING,))),
    "unpause": Action(_in(PAUSED), during=UNPAUSING, result=ACTIVE, undone_by=frozenset((POWER_PAUSED,))),
    "suspend": Action(_in(ACTIVE), during=SUSPENDING, result=SUSPENDED, undone_by=frozenset((RUNNING,))),
    "resume": Action(_in(SUSPENDED), during=RESUMING, result=ACTIVE, brings_up=True),
    "soft_reboot": Action(
        _in(ACTIVE),
        during=REBOOTING,
        then=(REBOOT_PENDING, REBOOT_STARTED),
        result=ACTIVE,
        known_as="reboot",
        brings_up=True,
    ),
    "hard_reboot": Action(
        _in(ACTIVE, STOPPED, PAUSED, SUSPENDED, ERROR),
        _ALLOW_REBOOT,
        during=REBOOTING_HARD,
        then=(REBOOT_PENDING_HARD, REBOOT_STARTED_HARD),
        result=ACTIVE,
        known_as="reboot",
        brings_up=True,
    ),  # fmt: skip
    "rescue": Action(_in(ACTIVE, STOPPED, ERROR), during=RESCUING, result=RESCUED, brings_up=True),
    "unrescue": Action(_in(RESCUED), during=UNRESCUING, result=ACTIVE, brings_up=True),
    "resize": _MOVE,
    "migrate": _MOVE,
    # active, or stopped if it is shut down
    "confirm_resize": Action(_in(RESIZED), known_as="confirmResize"),
    "revert_resize": Action(_in(RESIZED), during=RESIZE_REVERTING, known_as="revertResize", brings_up=True),
    "shelve": Action(
        _USED,
        during=SHELVING,
        then=(SHELVING_IMAGE_PENDING_UPLOAD, SHELVING_IMAGE_UPLOADING),
        result=SHELVED,
        makes_image=True,
    ),
    "shelve_offload": Action(
        _in(SHELVED), during=SHELVING_OFFLOADING, result=SHELVED_OFFLOADED, journalled="shelveOffload"
    ),
    "unshelve": Action(_in(SHELVED, SHELVED_OFFLOADED), during=UNSHELVING, result=ACTIVE, brings_up=True),
    "snapshot": Action(
        _USED,
        during=IMAGE_SNAPSHOT_PENDING,
        then=(IMAGE_SNAPSHOT, IMAGE_PENDING_UPLOAD, IMAGE_UPLOADING),
        locks=False,
        journalled="createImage",
        makes_image=True,
    ),
    "snapshot_volume_backed": Action(_in(ACTIVE, STOPPED, SUSPENDED), during=IMAGE_SNAPSHOT_PENDING, locks=False),
    # Nova's goes on to the task_states of a snapshot. A separate one says which of the two a dead run was in.
    "create_backup": Action(_USED, during=IMAGE_BACKUP, locks=False, journalled="createBackup", makes_image=True),
    # Nova has none. Its task_state is one that Nova's snapshot passes: a snapshot has it never while its host works.
    "incremental_backup": Action(_USED, during=IMAGE_SNAPSHOT, locks=False, journalled="incrementalBackup"),
    # active, or stopped if it was
    "rebuild": Action(
        _in(ACTIVE, STOPPED, ERROR),
        during=REBUILDING,
        then=(REBUILD_BLOCK_DEVICE_MAPPING, REBUILD_SPAWNING),
        dies_to=ERROR,
        brings_up=True,
    ),
    # Nova has no such action. Its task_state is one that Nova's rebuild passes: a rebuild has it never while its host works.
    "revert": Action(
        _in(ACTIVE, STOPPED, ERROR), during=REBUILD_BLOCK_DEVICE_MAPPING, brings_up=True, off_meanwhile=True
    ),
    # Nova's begins in any task_state, and a lock does not keep an instance on a dead host.
    "evacuate": Action(_in(ACTIVE, STOPPED, ERROR), _ON_ONE_HOST, during=REBUILDING, locks=False),
    # A delete is repeated. What else is refused depends on hosts, and on the move (flows.recovery.reset_state).
    "reset_state": Action(
        _in(ACTIVE, PAUSED, SUSPENDED, STOPPED, RESCUED, SOFT_DELETED, ERROR),
        frozenset((None, *TASK_STATES)) - {DELETING},
        locks=False,
        journalled="resetState",
    ),
    "delete": Action(None, None, during=DELETING, result=DELETED, must_have_launched=False),
    "force_delete": Action(None, None, during=DELETING, result=DELETED, must_have_launched=False),
    "soft_delete": Action(None, None, during=SOFT_DELETING, result=SOFT_DELETED, journalled="delete"),
    # An adopted instance leaves the ledger, whatever its state; its guest stays as it is.
    "release": Action(None, must_have_launched=False),
    "restore": Action(_in(SOFT_DELETED), during=RESTORING, result=ACTIVE, brings_up=True),
    "set_admin_password": Action(_in(ACTIVE), during=UPDATING_PASSWORD, journalled="changePassword"),
    "live_migrate": Action(_in(ACTIVE, PAUSED), during=MIGRATING, journalled="live-migration"),
    "live_migrate_force_complete": Action(
        _in(ACTIVE), frozenset((MIGRATING,)), during=MIGRATING, journalled="live_migration_force_complete"
    ),
    "live_migrate_abort": Action(None, frozenset((MIGRATING,)), during=MIGRATING, journalled="live_migration_cancel"),
    "attach_volume": Action(_ATTACHABLE),
    "detach_volume": Action(_ATTACHABLE),
    "swap_volume": Action(_in(ACTIVE, PAUSED, RESIZED)),
    "attach_interface": Action(_INTERFACE),
    "detach_interface": Action(_INTERFACE),
    "trigger_crash_dump": Action(_in(ACTIVE, PAUSED, RESCUED, RESIZED, ERROR)),
    "update_instance_metadata": Action(_USED, None),
}


#: Their results do not differ in the power state of the guest.
OF_A_RESCUE = frozenset(("rescue", "unrescue"))

# The power states of an instance in a vm_state. They show whether the action of a dead run was completed.
POWER_STATES_OF: dict[str, frozenset[int]] = {
    ACTIVE: frozenset((RUNNING,)),
    PAUSED: frozenset((POWER_PAUSED,)),
    SUSPENDED: frozenset((POWER_SUSPENDED, SHUTDOWN)),
    STOPPED: frozenset((SHUTDOWN, CRASHED)),
    SOFT_DELETED: frozenset((SHUTDOWN, CRASHED)),
    RESCUED: frozenset((RUNNING,)),
    # None shows whether there is a whole image, or nothing left on the host.
    SHELVED: frozenset(),
    SHELVED_OFFLOADED: frozenset(),
}


def _rule(action: str) -> Action:
    """:raises InvalidInput: there is no such action."""
    rule = ACTIONS.get(action)
    if rule is None:
        raise InvalidInput(reason="unknown action %s" % action, remedy="Known are: %s." % ", ".join(sorted(ACTIONS)))
    return rule


def undone(vm_state: str, power_state: int) -> str | None:
    """The action that makes the guest of an instance again what the instance is; None: it is not otherwise."""
    actions = (name for name, rule in ACTIONS.items() if rule.result == vm_state and power_state in rule.undone_by)
    return next(actions, None)


def settled(action: str, vm_state: str, power_state: int | None, rescued: bool = False, restarted: bool = False) -> str:
    """The vm_state after ``action`` of a dead run: the action's result if the guest is in it, else unchanged.

    A reboot, a revert, or the end of a rescue has a guest off for a while: where it ended there, the instance is stopped, so
    that a start can begin. The guest of a rescue and the instance's own have the same power states.

    :arg power_state: the reported one; None: the host does not have the guest.
    :arg rescued: its domain is that of a rescue.
    :arg restarted: its host has restarted, and its guests are to run again: an active one that is off in its reboot is active still.
    :raises InvalidInput: an unknown action.
    source: Nova's init_host
    """
    rule = _rule(action)
    if rule.dies_to is not None:
        return rule.dies_to
    if action == "rescue":
        return RESCUED if rescued else vm_state
    if action == "unrescue" and (rescued or power_state is None):
        return vm_state
    if action == "unrescue":
        return ACTIVE if power_state == RUNNING else STOPPED
    if rule.result is not None and power_state in POWER_STATES_OF.get(rule.result, ()):
        return rule.result
    # A shelve takes the power first; what it began in is over then.
    reboots = rule.off_meanwhile or rule.result in (rule.vm_states or ()) or action == "shelve"
    if restarted and reboots and vm_state == ACTIVE:
        return ACTIVE
    return STOPPED if reboots and vm_state in (ACTIVE, PAUSED) and power_state in POWER_STATES_OF[STOPPED] else vm_state


def is_over(action: str, power_state: int | None) -> bool:
    """Whether the host has ended what it did for ``action`` of a dead run: a guest is paused while libvirt saves its memory."""
    return not (action == "suspend" and power_state == POWER_PAUSED)


#: vm_state -> the playbooks that lead from there to an instance that is active, or stopped.
_WAYS = {
    STOPPED: "bootflow.compute.start",
    PAUSED: "bootflow.compute.unpause",
    SUSPENDED: "bootflow.compute.resume",
    RESCUED: "bootflow.compute.unrescue",
    RESIZED: "bootflow.compute.confirm_resize or bootflow.compute.revert_resize",
    SHELVED: "bootflow.compute.unshelve",
    SHELVED_OFFLOADED: "bootflow.compute.unshelve",
    SOFT_DELETED: "bootflow.compute.restore",
    ERROR: "bootflow.compute.reboot with bootflow_reboot_type: HARD, or bootflow.compute.rebuild where its disks are lost,",
}


def _remedy(rule: Action, vm_state: str) -> str:
    """In which states an action may begin, and what leads there from ``vm_state``, or from there to the action's result."""
    allowed = "Allowed states: %s." % ", ".join(sorted(rule.vm_states or ()))
    if ACTIVE not in (rule.vm_states or ()):
        if rule.result != ACTIVE or vm_state not in _WAYS:
            return allowed
        # A resized one becomes active, or stopped where its guest is off, and starts from there.
        first = vm_state == RESIZED and STOPPED in (rule.vm_states or ())
        return "%s Run %s %s." % (allowed, _WAYS[vm_state], "first" if first else "instead")
    if vm_state == BUILDING:
        return "%s Wait until it is built." % allowed
    return "%s Run %s first." % (allowed, _WAYS[vm_state]) if vm_state in _WAYS else allowed


#: Actions on an instance whose guest other software made: they find its domain by the UUID, and touch neither its disks nor its definition.
ON_ADOPTED = frozenset(
    (
        "stop",
        "start",
        "pause",
        "unpause",
        "suspend",
        "resume",
        "soft_reboot",
        "trigger_crash_dump",
        "reset_state",
        "release",
    )
)


def check_action(
    action: str,
    vm_state: str,
    task_state: str | None,
    launched: bool = True,
    locked: bool = False,
    instance_uuid: str = "",
) -> Action:
    """Check whether ``action`` may begin: lock, then vm_state, then task_state, then launched.

    :arg launched: whether the instance ever ran (launched_at is set).
    :arg locked: whether the instance is locked against this user.
    Raises InvalidInput for an unknown action, InstanceIsLocked, InstanceInvalidState (409).
    """
    rule = _rule(action)
    name = rule.known_as or action
    if locked and rule.locks:
        raise InstanceIsLocked(instance_uuid=instance_uuid)
    if rule.vm_states is not None and vm_state not in rule.vm_states:
        raise InstanceInvalidState(
            method=name, instance_uuid=instance_uuid, attr="vm_state", state=vm_state, remedy=_remedy(rule, vm_state)
        )  # fmt: skip
    if rule.task_states is not None and task_state not in rule.task_states:
        raise InstanceInvalidState(
            method=name, instance_uuid=instance_uuid, attr="task_state", state=task_state,
            remedy="Wait until that is done." if task_state is not None else "This operation is for instances whose task_state is %s." % ", ".join(
                sorted(filter(None, rule.task_states))
            ),
        )  # fmt: skip
    if rule.must_have_launched and not launched:
        raise InstanceInvalidState(
            message="Instance %s is in an invalid state for '%s'" % (instance_uuid, name),
            remedy="The instance never ran: delete it and boot it again.",
        )
    return rule
