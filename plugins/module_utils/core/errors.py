# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one family of errors: code, status, message with the remedy, retryable or not.

The class name is the stable code, in the words of Nova, Cinder and Neutron where they have one. ``status`` follows
the HTTP mapping of Nova's create (source: 000, Controller.create; 001 section 8.5.14). ``retryable`` means that
another host might do better (source: 000, _build_and_run_instance); core.build_outcome decides with it.
"""

from __future__ import annotations

import typing as t


class BootflowError(Exception):
    """Root of the family. A subclass sets ``msg_fmt``, and what differs of ``status``, ``retryable`` and ``remedy``."""

    msg_fmt = "%(reason)s"
    status = 500
    retryable = False
    remedy = ""

    def __init__(self, message: str | None = None, remedy: str | None = None, **details: t.Any):
        self.details = details
        if message is None:
            message = self.msg_fmt % details
        self.message = message
        if remedy is not None:
            self.remedy = remedy
        super().__init__(message)

    @property
    def code(self) -> str:
        """The stable word for this kind of error."""
        return type(self).__name__

    def as_dict(self) -> dict[str, t.Any]:
        """Plain data: what a module returns, a fault row keeps and a playbook's rescue reads."""
        return {
            "code": self.code,
            "status": self.status,
            "message": self.message,
            "remedy": self.remedy,
            "retryable": self.retryable,
        }


def from_dict(data: t.Mapping[str, t.Any]) -> BootflowError:
    """The error again from as_dict()'s data; an unknown code comes back as RemoteError that keeps the code's fields."""
    cls = _find(BootflowError, str(data.get("code", "")))
    error: BootflowError
    if cls is None:
        error = RemoteError(message="%s: %s" % (data.get("code", "error"), data.get("message", "")))
    else:
        error = cls.__new__(cls)
        BootflowError.__init__(error, message=str(data.get("message", "")))
    if isinstance(error, InvalidRequest):
        error.errors = [dict(e) for e in data.get("errors") or ()]
    error.remedy = str(data.get("remedy", "") or "")
    error.status = int(data.get("status", error.status))
    error.retryable = bool(data.get("retryable", error.retryable))
    return error


def _find(cls: type[BootflowError], code: str) -> type[BootflowError] | None:
    if cls.__name__ == code:
        return cls
    for child in cls.__subclasses__():
        found = _find(child, code)
        if found is not None:
            return found
    return None


# --- input ---------------------------------------------------------------------------------------------------------


class InvalidInput(BootflowError):
    msg_fmt = "Invalid input received: %(reason)s"
    status = 400


class MalformedRequestBody(InvalidInput):
    """Not an object where one belongs (source: 000, Controller.create: 422)."""

    msg_fmt = "Malformed request body: %(reason)s"
    status = 422
    remedy = "Write each instance as a mapping with a name, a flavor and an image."


class InvalidRequest(InvalidInput):
    """Several errors of one request, all of them in ``errors`` ({path, message, code, remedy})."""

    status = 400

    def __init__(self, errors: t.Sequence[t.Mapping[str, t.Any]], message: str | None = None, **details: t.Any):
        self.errors = [dict(e) for e in errors]
        if message is None:
            lines = ["%s: %s" % (e.get("path") or "request", e.get("message", "")) for e in self.errors]
            message = "The request has %d error%s: %s" % (len(lines), "" if len(lines) == 1 else "s", "; ".join(lines))
        super().__init__(message=message, **details)

    def as_dict(self) -> dict[str, t.Any]:
        result = super().as_dict()
        result["errors"] = self.errors
        return result


class NotSupportedYet(InvalidInput):
    """Known to Nova, but not honoured by this version: refused in words instead of ignored."""

    msg_fmt = "%(feature)s is not supported by this version of bootflow.compute"
    remedy = "Leave it out; the changelog tells when it comes."


class InvalidMetadata(InvalidInput):
    msg_fmt = "Invalid metadata: %(reason)s"


class Base64Exception(InvalidInput):
    msg_fmt = "Invalid Base 64 data for file %(path)s"
    remedy = "Encode the content: base64 -w0 FILE, or the filter b64encode."


class InstanceUserDataTooLarge(InvalidInput):
    msg_fmt = "User data too large. User data must be no larger than %(maxsize)s bytes once base64 encoded. Your data is %(length)d bytes"
    remedy = "Shorten it, or let it fetch the rest (#include)."


class InstanceUserDataMalformed(InvalidInput):
    msg_fmt = "User data needs to be valid base 64."
    remedy = "Encode it with base64 -w0 FILE, or give plain text as user_data."


class AmbiguousHostnameForMultipleInstances(InvalidInput):
    msg_fmt = "Unable to allocate a single hostname to multiple instances"
    remedy = "Leave hostname out: each instance then takes it from its own name."


class Forbidden(BootflowError):
    msg_fmt = "%(reason)s"
    status = 403


class PolicyNotAuthorized(Forbidden):
    msg_fmt = "Policy doesn't allow %(action)s to be performed."
    remedy = "Ask the operator of this inventory, or leave that part of the request out."


class ForcedHostForbidden(Forbidden):
    msg_fmt = "Policy doesn't allow create:forced_host to be performed (availability_zone %(zone)s)."
    remedy = "Ask for a zone only, or set bootflow_allow_forced_host: true for administrators."


class NotFound(BootflowError):
    status = 404


class InstanceNotFound(NotFound):
    msg_fmt = "Instance %(instance_id)s could not be found."


class FlavorNotFound(NotFound):
    msg_fmt = "Flavor %(flavor_id)s could not be found."
    status = 400
    remedy = "Name a flavor of bootflow_flavors."


class ImageNotFound(NotFound):
    msg_fmt = "Image %(image_id)s could not be found."
    status = 400
    remedy = "Name an image of bootflow_images."


class NetworkNotFound(NotFound):
    msg_fmt = "Network %(network_id)s could not be found."
    status = 400
    remedy = "Name a network of bootflow_networks."


class SubnetNotFound(NotFound):
    msg_fmt = "Subnet %(subnet_id)s could not be found."
    status = 400


class PortNotFound(NotFound):
    msg_fmt = "Port id %(port_id)s could not be found."
    status = 400


class KeypairNotFound(NotFound):
    msg_fmt = "Keypair %(name)s not found."
    status = 400
    remedy = "Add it to bootflow_keypairs."


class InstanceGroupNotFound(NotFound):
    msg_fmt = "Instance group %(group)s could not be found."
    status = 400


class Conflict(BootflowError):
    status = 409


class InstanceExists(Conflict):
    msg_fmt = "Instance %(name)s already exists with another definition: %(reason)s."
    remedy = "Delete it first (bootflow.compute.delete), give the new one another name, or restore its definition."


class InstanceLocked(Conflict):
    """Another live run owns the instance."""

    msg_fmt = "Instance %(name)s is being worked on by run %(run)s until %(until)s."
    remedy = "Wait for that run; if it is dead, its lease ends at the time named."


class InstanceIsLocked(Conflict):
    """Locked by a user against actions (Nova's lock; source: semantics 3)."""

    msg_fmt = "Instance %(instance_uuid)s is locked"
    remedy = "Unlock it first."


class UnexpectedTaskStateError(Conflict):
    msg_fmt = "Conflict updating instance %(instance_uuid)s. Expected: %(expected)s. Actual: %(actual)s."


class UnexpectedDeletingTaskStateError(UnexpectedTaskStateError):
    pass


class InstanceInvalidState(Conflict):
    msg_fmt = "Cannot '%(method)s' instance %(instance_uuid)s while it is in %(attr)s %(state)s"


class OverQuota(Forbidden):
    """Quota exceeded (Nova 403; source: 000, Controller.create)."""

    msg_fmt = "Quota exceeded for %(overs)s: Requested %(req)s, but already used %(used)s of %(allowed)s %(overs)s"
    remedy = "Delete instances, ask for fewer, or raise bootflow_quotas."


class MetadataLimitExceeded(OverQuota):
    msg_fmt = "Maximum number of metadata items exceeds %(allowed)d"
    remedy = "Give fewer metadata items."


class OnsetFileLimitExceeded(OverQuota):
    msg_fmt = "Personality file limit exceeded: %(used)d of %(allowed)d files"
    remedy = "Inject fewer files; user_data can write the rest (write_files)."


class OnsetFilePathLimitExceeded(OnsetFileLimitExceeded):
    msg_fmt = "Personality file path exceeds maximum %(allowed)s"
    remedy = "Use a shorter path."


class OnsetFileContentLimitExceeded(OnsetFileLimitExceeded):
    msg_fmt = "Personality file content exceeds maximum %(allowed)s"
    remedy = "Inject a smaller file, or let user_data fetch it."


class PortLimitExceeded(Forbidden):
    msg_fmt = "Maximum number of ports exceeded"


# --- scheduling and claims -----------------------------------------------------------------------------------------


class NoValidHost(BootflowError):
    msg_fmt = "No valid host was found. %(reason)s"
    status = 503
    remedy = "Run the same boot with --check to see why each host was turned down."


class MaxRetriesExceeded(NoValidHost):
    msg_fmt = "Exceeded maximum number of retries. %(reason)s"


class ComputeResourcesUnavailable(BootflowError):
    msg_fmt = "Insufficient compute resources: %(reason)s."
    status = 503
    retryable = True


class ComputeHostNotFound(NotFound):
    msg_fmt = "Compute host %(host)s could not be found."


class HostUnreachable(BootflowError):
    msg_fmt = "Host %(host)s is unreachable: %(reason)s"
    status = 503
    retryable = True
    remedy = "Check the connection (ansible -m ping); the build goes to another host meanwhile."


class HypervisorUnavailable(BootflowError):
    msg_fmt = "Connection to the hypervisor is broken on host: %(host)s (%(reason)s)"
    status = 503
    retryable = True
    remedy = "Start libvirtd on that host, or disable the host."


class RescheduledException(BootflowError):
    msg_fmt = "Build of instance %(instance_uuid)s was re-scheduled: %(reason)s"
    retryable = True


class BuildAbortException(BootflowError):
    msg_fmt = "Build of instance %(instance_uuid)s aborted: %(reason)s"


# --- images and disks ----------------------------------------------------------------------------------------------


class ImageError(BootflowError):
    status = 400


class ImageUnacceptable(ImageError):
    msg_fmt = "Image %(image_id)s is unacceptable: %(reason)s"


class ImageNotActive(ImageError):
    msg_fmt = "Image %(image_id)s is not active."


class ImageChecksumMismatch(ImageUnacceptable):
    msg_fmt = "Image %(image_id)s is unacceptable: sha256 is %(actual)s, the catalogue says %(expected)s"
    remedy = "Fetch the image again, or correct its checksum in bootflow_images."


class ImageDownloadFailed(ImageError):
    msg_fmt = "Image %(image_id)s could not be fetched from %(url)s: %(reason)s"
    status = 503
    retryable = True
    remedy = "Check the URL and that this host reaches it."


class InvalidDiskFormat(ImageError):
    msg_fmt = "Disk format %(disk_format)s is not acceptable"


class InvalidDiskInfo(ImageError):
    msg_fmt = "Disk info file is invalid: %(reason)s"


class FlavorDiskSmallerThanImage(ImageError):
    msg_fmt = (
        "Flavor's disk is too small for requested image. Flavor disk is %(flavor_size)i bytes, "
        "image is %(image_size)i bytes."
    )
    remedy = "Take a flavor with a larger root_gb."


class VolumeSmallerThanMinDisk(ImageError):
    msg_fmt = (
        "Volume is too small for requested image. Volume is %(volume_size)i bytes, minimum is %(image_min_disk)i bytes."
    )
    remedy = "Ask for a larger volume_size."


class FlavorDiskSmallerThanMinDisk(ImageError):
    msg_fmt = (
        "Flavor's disk is smaller than the minimum size specified in image metadata. "
        "Flavor disk is %(flavor_size)i bytes, minimum size is %(image_min_disk)i bytes."
    )
    remedy = "Take a flavor with a larger root_gb."


class FlavorMemoryTooSmall(ImageError):
    msg_fmt = "Flavor's memory is too small for requested image."
    remedy = "Take a flavor with more memory_mb than the image's min_ram."


class AutoDiskConfigDisabledByImage(ImageError):
    msg_fmt = "Requested image %(image)s has automatic disk resize disabled."


class ConfigDriveUnknownFormat(InvalidInput):
    msg_fmt = "Unknown config drive format %(format)s. Select one of iso9660 or vfat."


class DiskFull(BootflowError):
    msg_fmt = "No space left on %(host)s at %(path)s: %(reason)s"
    status = 503
    retryable = True
    remedy = "Free space there, or lower the host's disk_allocation_ratio."


# --- the guest's hardware ------------------------------------------------------------------------------------------


class UnsupportedHardware(InvalidInput):
    msg_fmt = "Requested hardware '%(model)s' is not supported by the '%(virt)s' virt driver"


class HostLacksHardware(UnsupportedHardware):
    """The wish is sound, but not on this host."""

    msg_fmt = "Host %(host)s has no %(model)s: %(reason)s"
    status = 503
    retryable = True


class ImageVCPUTopologyRangeExceeded(InvalidInput):
    msg_fmt = (
        "Image vCPU topology %(image_sockets)d:%(image_cores)d:%(image_threads)d exceeds permitted "
        "%(max_sockets)d:%(max_cores)d:%(max_threads)d"
    )


class ImageVCPULimitsRangeImpossible(InvalidInput):
    msg_fmt = (
        "Requested vCPU limits %(sockets)d:%(cores)d:%(threads)d are impossible to satisfy for vcpus count %(vcpus)d"
    )
    remedy = "Choose maxima whose product reaches the flavor's vcpus."


# --- block devices -------------------------------------------------------------------------------------------------


class InvalidBDM(InvalidInput):
    msg_fmt = "Block Device Mapping is Invalid: %(reason)s"


class InvalidBDMBootSequence(InvalidBDM):
    msg_fmt = "Block Device Mapping is Invalid: Boot sequence for the instance and image/block device mapping combination is not valid."


class InvalidBDMFormat(InvalidBDM):
    msg_fmt = "Block Device Mapping is Invalid: Unrecognized format: %(details)s"


class InvalidBDMEphemeralSize(InvalidBDM):
    msg_fmt = "Ephemeral disks requested are larger than the instance type allows."


class InvalidBDMSwapSize(InvalidBDM):
    msg_fmt = "Swap drive requested is larger than instance type allows."


class InvalidBDMLocalsLimit(InvalidBDM):
    msg_fmt = "Block Device Mapping is Invalid: You specified more local devices than the limit allows"


class InvalidBDMVolume(InvalidBDM):
    msg_fmt = "Block Device Mapping is Invalid: failed to get volume %(id)s."


class InvalidBDMSnapshot(InvalidBDM):
    msg_fmt = "Block Device Mapping is Invalid: failed to get snapshot %(id)s."


class InvalidBDMImage(InvalidBDM):
    msg_fmt = "Block Device Mapping is Invalid: failed to get image %(id)s."
    remedy = "Name an image of bootflow_images."


class InvalidBDMVolumeNotBootable(InvalidBDM):
    msg_fmt = "Block Device %(id)s is not bootable."
    remedy = "Boot from a volume that was made of an image, or attach this one without boot_index 0."


# --- networks ------------------------------------------------------------------------------------------------------


class NetworkError(BootflowError):
    status = 400


class NetworkAmbiguous(Conflict):
    msg_fmt = "Multiple possible networks found, use a network name to be more specific."


class InvalidFixedIpAndMaxCountRequest(InvalidInput):
    msg_fmt = "Failed to launch instances: %(reason)s"


class MultiplePortsNotApplicable(InvalidInput):
    msg_fmt = "Failed to launch instances: %(reason)s"


class FixedIpAlreadyInUse(NetworkError):
    msg_fmt = "IP address %(address)s already allocated in subnet %(subnet)s"
    remedy = "Choose another fixed_ip, or leave it out."


class InvalidIpForSubnet(NetworkError):
    msg_fmt = "IP address %(address)s is not a valid IP for the specified subnet %(subnet)s"


class InvalidIpForNetwork(NetworkError):
    msg_fmt = "IP address %(address)s is not a valid IP for any of the subnets on the specified network %(network)s"
    remedy = "Choose an address of one of its subnets."


class NetworkDuplicated(NetworkError):
    msg_fmt = "Duplicate networks (%(network_id)s) are not allowed"
    remedy = "Name each network once, or set bootflow_allow_duplicate_networks: true."


class InvalidIpForAllocationPools(NetworkError):
    msg_fmt = "IP address %(ip_address)s is not in the allocation pools of subnet %(subnet)s"
    remedy = "Choose an address of the pools, or set enforce_allocation_pools: false on the network."


class InvalidAllocationPool(NetworkError):
    msg_fmt = "The allocation pool %(pool)s is not valid: %(reason)s"


class NoMoreFixedIps(NetworkError):
    msg_fmt = "No fixed IP addresses available for network: %(net)s"


class NoMoreNetworks(NetworkError):
    msg_fmt = "No more available networks."


class FixedIpLimitExceeded(NetworkError):
    msg_fmt = "Maximum number of fixed IPs exceeded"


class PortInUse(Conflict):
    msg_fmt = "Port %(port_id)s is still in use."


class VirtualInterfaceCreateException(NetworkError):
    msg_fmt = "Virtual Interface creation failed: %(reason)s"
    status = 500


class VirtualInterfaceMacAddressException(NetworkError):
    msg_fmt = "Creation of virtual interface with unique mac address failed"
    status = 500


class PortBindingFailed(NetworkError):
    msg_fmt = "Binding failed for port %(port_id)s: %(reason)s"
    status = 500


# --- ledger, libraries, the rest -----------------------------------------------------------------------------------


class LedgerError(BootflowError):
    msg_fmt = "The ledger %(url)s cannot be used: %(reason)s"
    status = 503


class LedgerMissing(LedgerError):
    msg_fmt = "There is no ledger yet at %(url)s"
    status = 404
    remedy = "Boot something, or run the playbook bootflow.compute.ledger."


class LedgerTooNew(LedgerError):
    msg_fmt = (
        "The ledger %(url)s is at revision %(revision)s, which this version does not know (its newest is %(head)s)"
    )
    remedy = "Upgrade bootflow.compute on this controller."


class LedgerTooOld(LedgerError):
    msg_fmt = "The ledger %(url)s is at revision %(revision)s, this version needs %(head)s"
    remedy = "Run bootflow.compute.ledger with state: migrated (playbook bootflow.compute.ledger)."


class MissingLibrary(BootflowError):
    msg_fmt = "%(name)s is missing on the %(where)s"

    def __init__(self, message: str | None = None, remedy: str | None = None, **details: t.Any):
        if remedy is None and details:
            tool = "pip install" if details.get("where") == "controller" else "apt-get install"
            remedy = "%s %s" % (tool, details.get("package", details.get("name")))
        super().__init__(message, remedy, **details)


class CommandFailed(BootflowError):
    """A program on a host ended badly."""

    msg_fmt = "%(cmd)s failed with exit code %(rc)s: %(stderr)s"
    retryable = True


class LibvirtError(BootflowError):
    msg_fmt = "libvirt: %(reason)s"
    retryable = True


class WaitTimeout(BootflowError):
    msg_fmt = "%(what)s did not happen within %(seconds)s s on %(host)s"
    status = 504
    retryable = True


class RemoteError(BootflowError):
    msg_fmt = "%(reason)s"
    retryable = True


class UnsupportedPolicyException(InvalidInput):
    """A server group's policy, but not what enforces it (source: Nova's scheduler utils)."""

    msg_fmt = "ServerGroup policy is not supported: %(reason)s"


# --- PCI devices ---------------------------------------------------------------------------------------------------


class PciInvalidAlias(InvalidInput):
    msg_fmt = "Invalid PCI alias definition: %(reason)s"
    remedy = "Correct bootflow_pci_alias."


class PciRequestAliasNotDefined(InvalidInput):
    msg_fmt = "PCI alias %(alias)s is not defined"
    remedy = "Define it in bootflow_pci_alias."


class PciConfigInvalidWhitelist(InvalidInput):
    msg_fmt = "Invalid PCI devices Whitelist config: %(reason)s"
    remedy = "Correct bootflow_pci_device_spec of that host."


class PciDeviceWrongAddressFormat(InvalidInput):
    msg_fmt = "The PCI address %(address)s has an incorrect format."
    remedy = "Write domain:bus:slot.function (0000:0a:00.1), * for what may be anything, or a mapping of patterns."


class PciDeviceInvalidDeviceName(InvalidInput):
    msg_fmt = "Invalid PCI Whitelist: The PCI whitelist can specify devname or address, but not both"


class InvalidPCINUMAAffinity(InvalidInput):
    msg_fmt = "Invalid PCI NUMA affinity configured: %(policy)s"
    remedy = "Use one of required, legacy, preferred."


class ImagePCINUMAPolicyForbidden(InvalidInput):
    msg_fmt = (
        "Image property 'hw_pci_numa_affinity_policy' is not permitted to override the "
        "'hw:pci_numa_affinity_policy' flavor extra spec."
    )
    remedy = "Take another image or flavor."


# --- NUMA, pinning, huge pages (semantics 7; texts and names: Nova). All are the request's fault: 400 ---------------


class InvalidNUMANodesNumber(InvalidInput):
    msg_fmt = "The property 'numa_nodes' cannot be '%(nodes)s'. It must be a number greater than 0"


class ImageNUMATopologyIncomplete(InvalidInput):
    msg_fmt = "CPU and memory allocation must be provided for all NUMA nodes"
    remedy = "Give hw:numa_cpus.N and hw:numa_mem.N for each node from 0 on, or for none."


class ImageNUMATopologyForbidden(InvalidInput):
    msg_fmt = "Image property '%(name)s' is not permitted to override NUMA configuration set against the flavor"
    remedy = "Take a flavor that leaves this open, or an image without the property."


class ImageNUMATopologyAsymmetric(InvalidInput):
    msg_fmt = (
        "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. Explicit assignment "
        "of CPUs and memory to nodes is required"
    )


class ImageNUMATopologyCPUOutOfRange(InvalidInput):
    msg_fmt = "CPU number %(cpunum)d is larger than max %(cpumax)d"


class ImageNUMATopologyCPUDuplicates(InvalidInput):
    msg_fmt = "CPU number %(cpunum)d is assigned to two nodes"


class ImageNUMATopologyCPUsUnassigned(InvalidInput):
    msg_fmt = "CPU number %(cpuset)s is not assigned to any node"


class ImageNUMATopologyMemoryOutOfRange(InvalidInput):
    msg_fmt = "%(memsize)d MB of memory assigned, but expected %(memtotal)d MB"


class ImageCPUPinningForbidden(InvalidInput):
    msg_fmt = "Image property 'hw_cpu_policy' is not permitted to override CPU pinning policy set against the flavor"
    remedy = "Take a flavor with hw:cpu_policy dedicated or without one, or an image without the property."


class ImageCPUThreadPolicyForbidden(InvalidInput):
    msg_fmt = (
        "Image property 'hw_cpu_thread_policy' is not permitted to override CPU thread pinning policy set against "
        "the flavor"
    )
    remedy = "Take a flavor without hw:cpu_thread_policy, or an image without the property."


class InvalidCPUAllocationPolicy(InvalidInput):
    msg_fmt = "CPU policy requested from '%(source)s' is invalid, given: '%(requested)s', available: '%(available)s'."


class InvalidCPUThreadAllocationPolicy(InvalidInput):
    msg_fmt = (
        "CPU thread policy requested from '%(source)s' is invalid, given: '%(requested)s', available: '%(available)s'."
    )


class CPUThreadPolicyConfigurationInvalid(InvalidInput):
    msg_fmt = "Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy"
    remedy = "Set hw:cpu_policy to dedicated, or leave the thread policy out."


class InvalidEmulatorThreadsPolicy(InvalidInput):
    msg_fmt = "CPU emulator threads option requested is invalid, given: '%(requested)s', available: '%(available)s'."


class BadRequirementEmulatorThreadsPolicy(InvalidInput):
    msg_fmt = "An isolated CPU emulator threads option requires a dedicated CPU policy option."
    remedy = "Set hw:cpu_policy to dedicated, or leave hw:emulator_threads_policy out."


class RealtimeConfigurationInvalid(InvalidInput):
    msg_fmt = "Cannot set realtime policy in a non dedicated cpu pinning policy"
    remedy = "Set hw:cpu_policy to dedicated, or leave hw:cpu_realtime out."


class RealtimeMaskNotFoundOrInvalid(InvalidInput):
    msg_fmt = (
        "Realtime policy needs vCPU(s) mask configured with at least 1 RT vCPU and 1 ordinary vCPU. See "
        "hw:cpu_realtime_mask or hw_cpu_realtime_mask"
    )


class MemoryPageSizeInvalid(InvalidInput):
    msg_fmt = "Invalid memory page size '%(pagesize)s'"
    remedy = "hw:mem_page_size is small, large, any, or a size: 2048 (kB), 2MB, 1GB."


class MemoryPageSizeForbidden(InvalidInput):
    msg_fmt = "Page size %(pagesize)s forbidden against '%(against)s'"
    remedy = "An image may choose its pages where the flavor has hw:mem_page_size large or any."


class InvalidReservedMemoryPagesOption(InvalidInput):
    msg_fmt = "The format of the option 'reserved_huge_pages' is invalid. (found '%(conf)s')"
    remedy = "Give a list of {node: 0, size: 2048, count: 64}; size in kB, or as 2MB."


class CPUPinningUnknown(InvalidInput):
    msg_fmt = "CPU set to pin %(requested)s must be a subset of known CPU set %(cpuset)s"


class CPUUnpinningUnknown(InvalidInput):
    msg_fmt = "CPU set to unpin %(requested)s must be a subset of known CPU set %(cpuset)s"


class CPUPinningInvalid(InvalidInput):
    """Another guest has them: on another host it may go."""

    msg_fmt = "CPU set to pin %(requested)s must be a subset of free CPU set %(free)s"
    retryable = True


class CPUUnpinningInvalid(InvalidInput):
    msg_fmt = "CPU set to unpin %(requested)s must be a subset of pinned CPU set %(pinned)s"


class ComputeHostMetricNotFound(NotFound):
    msg_fmt = "Metric %(name)s could not be found on the compute host node %(host)s.%(node)s."
    remedy = "Enable MetricsFilter, let the host report it, or set metrics_required: false."


class NUMATopologyUnsupported(BootflowError):
    """The host lost the cells that a guest was fitted to; another one may have them."""

    msg_fmt = "Host does not support guests with NUMA topology set"
    status = 400
    retryable = True


# --- volumes (names, texts and codes: Cinder; semantics 11, 12, 14, 16, 18) -----------------------------------------


class InvalidVolume(InvalidInput):
    msg_fmt = "Invalid volume: %(reason)s"


class InvalidSnapshot(InvalidInput):
    msg_fmt = "Invalid snapshot: %(reason)s"


class InvalidVolumeType(InvalidInput):
    msg_fmt = "Invalid volume type: %(reason)s"


class InvalidVolumeMetadata(InvalidInput):
    msg_fmt = "Invalid metadata: %(reason)s"


class InvalidVolumeMetadataSize(InvalidInput):
    msg_fmt = "Invalid metadata size: %(reason)s"


class InvalidVolumeAttachMode(InvalidInput):
    msg_fmt = "Invalid attaching mode '%(mode)s' for volume %(volume_id)s."


class InvalidAvailabilityZone(InvalidInput):
    msg_fmt = "Availability zone '%(az)s' is invalid."
    remedy = "Name a zone that a backend of bootflow_storage is in, or set bootflow_allow_availability_zone_fallback."


class InvalidUUID(InvalidInput):
    msg_fmt = "Expected a UUID but received %(uuid)s."


class InvalidParameterValue(InvalidInput):
    msg_fmt = "%(err)s"


class VolumeExists(Conflict):
    """The project has a volume of that name, and it is another."""

    msg_fmt = "Volume %(name)s already exists with another definition: %(reason)s."
    remedy = "Delete it first, give the new one another name, extend it, or restore its definition."


class SnapshotExists(Conflict):
    msg_fmt = "Snapshot %(name)s already exists with another definition: %(reason)s."
    remedy = "Delete it first, give the new one another name, or restore its definition."


class VolumeLocked(Conflict):
    """Another live run works on the volume."""

    msg_fmt = "Volume %(name)s is being worked on by run %(run)s until %(until)s."
    remedy = "Wait for that run; if it is dead, its lease ends at the time named."


class VolumeAttached(InvalidInput):
    msg_fmt = "Volume %(volume_id)s is still attached, detach volume first."


class VolumeNotFound(NotFound):
    msg_fmt = "Volume %(volume_id)s could not be found."


class SnapshotNotFound(NotFound):
    msg_fmt = "Snapshot %(snapshot_id)s could not be found."


class CannotDetachRootVolume(Forbidden):
    """Nova's answer in the API; it has no name there."""

    msg_fmt = "Cannot detach a root device volume"
    remedy = "Delete the instance: without delete_on_termination its root volume stays."


class VolumeAttachmentNotFound(NotFound):
    msg_fmt = "Volume attachment could not be found with filter: %(filter)s."


class VolumeTypeNotFound(NotFound):
    msg_fmt = "Volume type %(volume_type_id)s could not be found."
    remedy = "Name a type of bootflow_volume_types."


class VolumeTypeNotFoundByName(VolumeTypeNotFound):
    msg_fmt = "Volume type with name %(volume_type_name)s could not be found."


class QuotaError(OverQuota):
    """A quota of volumes. Cinder answers 413 where Nova answers 403."""

    msg_fmt = "Quota exceeded: code=%(code)s"
    status = 413
    remedy = "Delete volumes or snapshots, ask for less, or raise bootflow_quotas."


class VolumeSizeExceedsAvailableQuota(QuotaError):
    msg_fmt = (
        "Requested volume or snapshot exceeds allowed %(name)s quota. Requested %(requested)sG, quota is %(quota)sG "
        "and %(consumed)sG has been consumed."
    )


class VolumeSizeExceedsLimit(QuotaError):
    msg_fmt = "Requested volume size %(size)dG is larger than maximum allowed limit %(limit)dG."
    remedy = "Ask for a smaller volume, or raise per_volume_gigabytes in bootflow_quotas."


class VolumeLimitExceeded(QuotaError):
    msg_fmt = "Maximum number of volumes allowed (%(allowed)d) exceeded for quota '%(name)s'."


class SnapshotLimitExceeded(QuotaError):
    msg_fmt = "Maximum number of snapshots allowed (%(allowed)d) exceeded"


class UnexpectedOverQuota(QuotaError):
    msg_fmt = "Unexpected over quota on %(name)s."


class NoValidBackend(BootflowError):
    msg_fmt = "No valid backend was found. %(reason)s"
    remedy = "Run the same with --check to see why each backend was turned down."


class DriverNotInitialized(BootflowError):
    msg_fmt = "Volume driver not ready."
    status = 503
    retryable = True
    remedy = "Prepare the backend: its volume group is missing or not active."


class VolumeBackendAPIException(BootflowError):
    msg_fmt = "Bad or unexpected response from the storage volume backend API: %(data)s"
    retryable = True


class ImageTooBig(ImageError):
    msg_fmt = "Image %(image_id)s size exceeded available disk space: %(reason)s"
    remedy = "Free space in the directory that images are converted in."


class ImageCopyFailure(BootflowError):
    msg_fmt = "Failed to copy image to volume: %(reason)s"
    status = 400


class MetadataCopyFailure(BootflowError):
    msg_fmt = "Failed to copy metadata to volume: %(reason)s"
    status = 400


class MetadataCreateFailure(BootflowError):
    msg_fmt = "Failed to create metadata for volume: %(reason)s"
    status = 400


class MetadataUpdateFailure(BootflowError):
    msg_fmt = "Failed to update metadata for volume: %(reason)s"
    status = 400


class VolumeNotCreated(BootflowError):
    """A boot waited for its volume in vain (Nova)."""

    msg_fmt = (
        "Volume %(volume_id)s did not finish being created even after we waited %(seconds)s seconds or %(attempts)s "
        "attempts. And its status is %(volume_status)s."
    )


class VolumeIsBusy(Conflict):
    """In use, or with snapshots that need it (Cinder)."""

    msg_fmt = "deleting volume %(volume_name)s that has snapshot"
    remedy = "Delete its snapshots first."


class SnapshotIsBusy(Conflict):
    msg_fmt = "deleting snapshot %(snapshot_name)s that has dependent volumes"


class ISCSITargetCreateFailed(BootflowError):
    msg_fmt = "Failed to create iscsi target for volume %(volume_id)s."
    retryable = True


class ISCSITargetRemoveFailed(BootflowError):
    msg_fmt = "Failed to remove iscsi target for volume %(volume_id)s."


class ISCSITargetAttachFailed(BootflowError):
    """Who may use a target could not be set (Cinder)."""

    msg_fmt = "Failed to attach iSCSI target for volume %(volume_id)s."


class ISCSITargetNotFoundForVolume(NotFound):
    msg_fmt = "No target id found for volume %(volume_id)s."


class FailedISCSITargetPortalLogin(BootflowError):
    """No portal of a target let the initiator in (os-brick)."""

    msg_fmt = "Unable to login to iSCSI Target Portal"
    retryable = True


class VolumeDeviceNotFound(BootflowError):
    """Logged in, and the disk did not appear (os-brick)."""

    msg_fmt = "Volume device not found at %(device)s."
    retryable = True


class VolumePathNotRemoved(BootflowError):
    """A disk of a volume is still on the host after its removal (os-brick)."""

    msg_fmt = "Volume path %(volume_path)s was not removed in time."


class DevicePathInUse(Conflict):
    """The guest has another disk of that name (Nova)."""

    msg_fmt = "The supplied device path (%(path)s) is in use."


class DeviceDetachFailed(BootflowError):
    """The guest did not let a disk go (Nova)."""

    msg_fmt = "Device detach failed for %(device)s: %(reason)s"
    remedy = "Unmount it in the guest, see that the guest runs and takes part in hot-unplug (ACPI), and detach again."
