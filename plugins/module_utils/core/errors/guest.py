# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of the guest's hardware."""

from __future__ import annotations

from .base import InvalidInput


class ConfigDriveUnknownFormat(InvalidInput):
    """The config drive's format is neither iso9660 nor vfat."""

    msg_fmt = "Unknown config drive format %(format)s. Select one of iso9660 or vfat."


class UnsupportedHardware(InvalidInput):
    """The hypervisor does not support the requested hardware model."""

    msg_fmt = "Requested hardware '%(model)s' is not supported by the '%(virt)s' virt driver"


class HostLacksHardware(UnsupportedHardware):
    """The request is valid, but this host lacks the hardware or software for it."""

    msg_fmt = "Host %(host)s has no %(model)s: %(reason)s"
    status = 503
    retryable = True


class FlavorImageConflict(InvalidInput):
    """Flavor and image contradict each other."""

    msg_fmt = "Conflicting values for %(setting)s found in the flavor (%(flavor_val)s) and the image (%(image_val)s)."
    remedy = "Choose another flavor or image, or give both the same value."


class LockMemoryForbidden(InvalidInput):
    """Locked memory is requested without a size of memory pages."""

    msg_fmt = "locked_memory value in image or flavor is forbidden when mem_page_size is not set."
    remedy = "Set hw:mem_page_size in the flavor, or leave hw:locked_memory out."


class ImageSerialPortNumberInvalid(InvalidInput):
    """The number of serial ports that flavor or image request is not a number."""

    msg_fmt = "Number of serial ports specified in flavor is invalid: expected an integer, got '%(num_ports)s'"
    remedy = (
        "Set hw:serial_port_count of the flavor, or hw_serial_port_count of the image, to a whole number from 1 to 4."
    )


class ImageSerialPortNumberExceedFlavorValue(InvalidInput):
    """The image requests more serial ports than the flavor has."""

    msg_fmt = "Forbidden to exceed flavor value of number of serial ports passed in image meta."
    remedy = (
        "Lower hw_serial_port_count of the image, or choose a flavor with a higher hw:serial_port_count, or with none."
    )


class SerialPortNumberLimitExceeded(InvalidInput):
    """More serial ports are requested than QEMU has."""

    msg_fmt = "Maximum number of serial port exceeds %(allowed)d for %(virt_type)s"
    remedy = "Lower hw:serial_port_count of the flavor, or hw_serial_port_count of the image."


class RequestedVRamTooHigh(InvalidInput):
    """The image requests more video memory than the flavor permits."""

    msg_fmt = (
        "The requested amount of video memory %(req_vram)d is higher than the maximum allowed by flavor %(max_vram)d."
    )
    remedy = "Set hw_video:ram_max_mb in the flavor, or lower the image's hw_video_ram."


class ImageVCPULimitsRangeExceeded(InvalidInput):
    """The image has higher maxima of sockets, cores or threads than the flavor."""

    msg_fmt = (
        "Image vCPU topology limits (sockets=%(image_sockets)d, cores=%(image_cores)d, threads=%(image_threads)d) "
        "exceeds the limits of the flavor (sockets=%(max_sockets)d, cores=%(max_cores)d, threads=%(max_threads)d)"
    )
    remedy = "Choose another flavor, or lower the image's hw_cpu_max_* properties."


class ImageVCPUTopologyRangeExceeded(InvalidInput):
    """The image requests more sockets, cores or threads than the flavor permits."""

    msg_fmt = (
        "Image vCPU topology %(image_sockets)d:%(image_cores)d:%(image_threads)d exceeds permitted "
        "%(max_sockets)d:%(max_cores)d:%(max_threads)d"
    )


class ImageVCPULimitsRangeImpossible(InvalidInput):
    """The maxima of sockets, cores and threads cannot hold the flavor's vcpus."""

    msg_fmt = (
        "Requested vCPU limits %(sockets)d:%(cores)d:%(threads)d are impossible to satisfy for vcpus count %(vcpus)d"
    )
    remedy = "Choose maxima whose product reaches the flavor's vcpus."
