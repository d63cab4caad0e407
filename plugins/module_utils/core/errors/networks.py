# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of networks, ports and addresses (names and texts: Neutron and Nova)."""

from __future__ import annotations

from .base import BootflowError, Conflict, InvalidInput, NotFound


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
