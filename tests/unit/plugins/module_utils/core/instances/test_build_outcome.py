# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import build_outcome
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.build_outcome import (
    ABORT,
    FAILED_QUIETLY,
    RESCHEDULE,
    outcome_of,
)

E = errors
NETWORKS = "Failed to allocate the network(s) with error %s, not rescheduling."

CASES = [
    (
        E.ComputeResourcesUnavailable(reason="Claim pci failed."),
        RESCHEDULE,
        "Insufficient compute resources: Claim pci failed..",
    ),
    (E.RescheduledException(instance_uuid="u", reason="r"), RESCHEDULE, "Build of instance u was re-scheduled: r"),
    (E.HostLacksHardware(host="h", model="UEFI", reason="r"), RESCHEDULE, "Host h has no UEFI: r"),
    (
        E.NetworkRangeInUse(network="n", range="10.0.0.0/24", reason="eth0 has the address 10.0.0.5/24"),
        RESCHEDULE,
        "libvirt network n cannot have 10.0.0.0/24 on this host: eth0 has the address 10.0.0.5/24",
    ),
    (E.LibvirtError(reason="boom"), RESCHEDULE, "libvirt: boom"),
    (
        E.HypervisorUnavailable(host="h", reason="gone"),
        RESCHEDULE,
        "Connection to the hypervisor is broken on host: h (gone)",
    ),
    (E.HostUnreachable(host="h", reason="ssh"), RESCHEDULE, "Host h is unreachable: ssh"),
    (E.DiskFull(host="h", path="/p", reason="x"), RESCHEDULE, "No space left on h at /p: x"),
    (E.ImageDownloadFailed(image_id="i", url="u", reason="x"), RESCHEDULE, "Image i could not be fetched from u: x"),
    (E.RemoteError(reason="anything"), RESCHEDULE, "anything"),
    (E.CommandFailed(cmd="c", rc=1, stderr="s"), RESCHEDULE, "c failed with exit code 1: s"),
    (E.MissingLibrary(name="libvirt", where="host"), RESCHEDULE, "libvirt is missing on the host"),
    (
        E.NoMoreFixedIps(net="n"),
        ABORT,
        "Failed to allocate the network(s) with error No fixed IP addresses available for network: n, not rescheduling.",
    ),
    (E.VirtualInterfaceCreateException(reason="x"), ABORT, NETWORKS % "Virtual Interface creation failed: x"),
    (
        E.VirtualInterfaceMacAddressException(),
        ABORT,
        NETWORKS % "Creation of virtual interface with unique mac address failed",
    ),
    (
        E.NetworkError(message="Linux bridge br9 does not exist on kvm1"),
        ABORT,
        "Failed to allocate the network(s) with error Linux bridge br9 does not exist on kvm1, not rescheduling.",
    ),
    (
        E.InvalidIpForNetwork(address="a", network="n"),
        ABORT,
        NETWORKS % "IP address a is not a valid IP for any of the subnets on the specified network n",
    ),
    (
        E.VolumeNotCreated(volume_id="v", seconds=9, attempts=3, volume_status="error"),
        ABORT,
        "Volume v did not finish being created even after we waited 9 seconds or 3 attempts. And its status is error.",
    ),
    (
        E.CloudInitFailed(host="h1", reason="runcmd failed"),
        ABORT,
        "cloud-init of the guest on h1 ended with errors: runcmd failed",
    ),
    (E.VolumeDeviceNotFound(device="/dev/x"), RESCHEDULE, "Volume device not found at /dev/x."),
    (E.FailedISCSITargetPortalLogin(), RESCHEDULE, "Unable to login to iSCSI Target Portal"),
    (E.ImageNotActive(image_id="i"), ABORT, "Image i is not active."),
    (E.ImageUnacceptable(image_id="i", reason="r"), ABORT, "Image i is unacceptable: r"),
    (E.InvalidDiskInfo(reason="r"), ABORT, "Disk info file is invalid: r"),
    (E.InvalidDiskFormat(disk_format="x"), ABORT, "Disk format x is not acceptable"),
    (E.FlavorMemoryTooSmall(), ABORT, "Flavor's memory is too small for requested image."),
    (E.InvalidInput(reason="r"), ABORT, "Invalid input received: r"),
    (E.InvalidBDM(reason="r"), ABORT, "Block Device Mapping is Invalid: r"),
    (
        E.OverQuota(overs="cores", req=1, used=1, allowed=1),
        ABORT,
        "Quota exceeded for cores: Requested 1, but already used 1 of 1 cores",
    ),
    (E.BuildAbortException(instance_uuid="u", reason="r"), ABORT, "Build of instance u aborted: r"),
    (
        E.UnexpectedTaskStateError(instance_uuid="u", expected="a", actual="b"),
        ABORT,
        "Conflict updating instance u. Expected: a. Actual: b.",
    ),
    (E.MaxRetriesExceeded(reason="r"), ABORT, "Exceeded maximum number of retries. r"),
    (E.InstanceNotFound(instance_id="u"), FAILED_QUIETLY, "Instance u could not be found."),
    (
        E.UnexpectedDeletingTaskStateError(instance_uuid="u", expected="a", actual="deleting"),
        FAILED_QUIETLY,
        "Conflict updating instance u. Expected: a. Actual: deleting.",
    ),
]


@pytest.mark.parametrize(("error", "kind", "reason"), CASES, ids=[c[0].code for c in CASES])
def test_table(error, kind, reason):
    outcome = outcome_of(error, has_retry=True)
    assert (outcome.kind, outcome.reason) == (kind, reason)
    assert outcome.result == ("rescheduled" if kind == RESCHEDULE else "failed")
    final = outcome_of(error, has_retry=False)
    assert final.kind == (ABORT if kind == RESCHEDULE else kind)
    assert final.reason == reason
    assert final.result == "failed"


def test_preparing():
    other = E.RemoteError(reason="x")
    assert outcome_of(other, True, build_outcome.PREPARING_NETWORKS).reason == NETWORKS % "x"
    assert outcome_of(other, True, build_outcome.PREPARING_BLOCK_DEVICES).reason == "Failure prepping block device. x"
    assert outcome_of(other, True, build_outcome.PREPARING_BLOCK_DEVICES).kind == ABORT
    quiet = E.InstanceNotFound(instance_id="u")
    assert outcome_of(quiet, True, build_outcome.PREPARING_NETWORKS).kind == FAILED_QUIETLY
    own = E.InvalidBDM(reason="r")
    assert outcome_of(own, True, build_outcome.PREPARING_BLOCK_DEVICES).reason == own.message


def test_the_table_survives_the_way_from_a_host():
    for error, kind, reason in CASES:
        again = E.from_dict(error.as_dict())
        outcome = outcome_of(again, has_retry=True)
        assert (outcome.kind, outcome.reason) == (kind, reason)


def test_cleanup_failed():
    error = build_outcome.cleanup_failed("disk is busy")
    assert error.message == "Could not clean up failed build, not rescheduling. disk is busy"
    assert outcome_of(error, has_retry=True).kind == ABORT
