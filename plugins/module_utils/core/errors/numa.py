# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of NUMA, pinning and huge pages (texts and names: Nova). All are the request's fault: 400."""

from __future__ import annotations

from .base import BootflowError, InvalidInput


class InvalidNUMANodesNumber(InvalidInput):
    """The number of NUMA nodes is not a positive integer."""

    msg_fmt = "The property 'numa_nodes' cannot be '%(nodes)s'. It must be a number greater than 0"


class ImageNUMATopologyIncomplete(InvalidInput):
    """CPUs or memory are set for some NUMA nodes only."""

    msg_fmt = "CPU and memory allocation must be provided for all NUMA nodes"
    remedy = "Give hw:numa_cpus.N and hw:numa_mem.N for each node from 0 on, or for none."


class ImageNUMATopologyForbidden(InvalidInput):
    """The image sets a NUMA property that the flavor fixes."""

    msg_fmt = "Image property '%(name)s' is not permitted to override NUMA configuration set against the flavor"
    remedy = "Choose a flavor that leaves this open, or an image without the property."


class ImageNUMATopologyAsymmetric(InvalidInput):
    """CPUs or memory cannot be divided evenly among the NUMA nodes."""

    msg_fmt = (
        "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. Explicit assignment "
        "of CPUs and memory to nodes is required"
    )


class ImageNUMATopologyCPUOutOfRange(InvalidInput):
    """A NUMA node names a CPU that the guest does not have."""

    msg_fmt = "CPU number %(cpunum)d is larger than max %(cpumax)d"


class ImageNUMATopologyCPUDuplicates(InvalidInput):
    """Two NUMA nodes name the same CPU."""

    msg_fmt = "CPU number %(cpunum)d is assigned to two nodes"


class ImageNUMATopologyCPUsUnassigned(InvalidInput):
    """A CPU of the guest belongs to no NUMA node."""

    msg_fmt = "CPU number %(cpuset)s is not assigned to any node"


class ImageNUMATopologyMemoryOutOfRange(InvalidInput):
    """The memory of the NUMA nodes does not add up to the flavor's."""

    msg_fmt = "%(memsize)d MB of memory assigned, but expected %(memtotal)d MB"


class ImageCPUPinningForbidden(InvalidInput):
    """The image sets a CPU policy that the flavor fixes."""

    msg_fmt = "Image property 'hw_cpu_policy' is not permitted to override CPU pinning policy set against the flavor"
    remedy = "Choose a flavor with hw:cpu_policy dedicated or without one, or an image without the property."


class ImageCPUThreadPolicyForbidden(InvalidInput):
    """The image sets a CPU thread policy that the flavor fixes."""

    msg_fmt = (
        "Image property 'hw_cpu_thread_policy' is not permitted to override CPU thread pinning policy set against "
        "the flavor"
    )
    remedy = "Choose a flavor without hw:cpu_thread_policy, or an image without the property."


class InvalidCPUAllocationPolicy(InvalidInput):
    """The CPU policy is unknown."""

    msg_fmt = "CPU policy requested from '%(source)s' is invalid, given: '%(requested)s', available: '%(available)s'."


class InvalidCPUThreadAllocationPolicy(InvalidInput):
    """The CPU thread policy is unknown."""

    msg_fmt = (
        "CPU thread policy requested from '%(source)s' is invalid, given: '%(requested)s', available: '%(available)s'."
    )


class CPUThreadPolicyConfigurationInvalid(InvalidInput):
    """A CPU thread policy is set without dedicated CPUs."""

    msg_fmt = "Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy"
    remedy = "Set hw:cpu_policy to dedicated, or leave the thread policy out."


class InvalidEmulatorThreadsPolicy(InvalidInput):
    """The emulator threads policy is unknown."""

    msg_fmt = "CPU emulator threads option requested is invalid, given: '%(requested)s', available: '%(available)s'."


class BadRequirementEmulatorThreadsPolicy(InvalidInput):
    """An emulator threads policy is set without dedicated CPUs."""

    msg_fmt = "An isolated CPU emulator threads option requires a dedicated CPU policy option."
    remedy = "Set hw:cpu_policy to dedicated, or leave hw:emulator_threads_policy out."


class RealtimeConfigurationInvalid(InvalidInput):
    """Realtime is requested without dedicated CPUs."""

    msg_fmt = "Cannot set realtime policy in a non dedicated cpu pinning policy"
    remedy = "Set hw:cpu_policy to dedicated, or leave hw:cpu_realtime out."


class RealtimeMaskNotFoundOrInvalid(InvalidInput):
    """The realtime mask is missing, or leaves no realtime or no ordinary CPU."""

    msg_fmt = (
        "Realtime policy needs vCPU(s) mask configured with at least 1 RT vCPU and 1 ordinary vCPU. See "
        "hw:cpu_realtime_mask or hw_cpu_realtime_mask"
    )


class MemoryPageSizeInvalid(InvalidInput):
    """The page size is malformed."""

    msg_fmt = "Invalid memory page size '%(pagesize)s'"
    remedy = "hw:mem_page_size is small, large, any, or a size: 2048 (kB), 2MB, 1GB."


class MemoryPageSizeForbidden(InvalidInput):
    """The image requests a page size that the flavor does not permit."""

    msg_fmt = "Page size %(pagesize)s forbidden against '%(against)s'"
    remedy = "An image may choose its pages where the flavor has hw:mem_page_size large or any."


class InvalidReservedMemoryPagesOption(InvalidInput):
    """bootflow_reserved_huge_pages is malformed."""

    msg_fmt = "The format of the option 'reserved_huge_pages' is invalid. (found '%(conf)s')"
    remedy = "Give a list of {node: 0, size: 2048, count: 64}; size in kB, or as 2MB."


class CPUPinningUnknown(InvalidInput):
    """The CPUs to pin are not CPUs of the NUMA cell."""

    msg_fmt = "CPU set to pin %(requested)s must be a subset of known CPU set %(cpuset)s"


class CPUUnpinningUnknown(InvalidInput):
    """The CPUs to unpin are not CPUs of the NUMA cell."""

    msg_fmt = "CPU set to unpin %(requested)s must be a subset of known CPU set %(cpuset)s"


class CPUPinningInvalid(InvalidInput):
    """Another guest took the CPUs to pin; another host may have free ones."""

    msg_fmt = "CPU set to pin %(requested)s must be a subset of free CPU set %(free)s"
    retryable = True


class CPUUnpinningInvalid(InvalidInput):
    """The CPUs to unpin are not pinned."""

    msg_fmt = "CPU set to unpin %(requested)s must be a subset of pinned CPU set %(pinned)s"


class NUMATopologyUnsupported(BootflowError):
    """The host lost the NUMA cells that the guest was fitted to; another host may have them."""

    msg_fmt = "Host does not support guests with NUMA topology set"
    status = 400
    retryable = True


class ImageNUMATopologyRebuildConflict(InvalidInput):
    """A rebuild's image asks for other NUMA cells than the instance has claimed."""

    msg_fmt = "An instance's NUMA topology cannot be changed as part of a rebuild. The image provided is invalid for this instance."
    remedy = "Choose an image with the same NUMA properties, or delete the instance and boot it again."
