# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of networks, ports and addresses (names and texts: Neutron and Nova)."""

from __future__ import annotations

import typing as t

from .base import BootflowError, Conflict, InvalidInput, NotFound


class NetworkNotFound(NotFound):
    """The network is not in bootflow_networks."""

    msg_fmt = "Network %(network_id)s could not be found."
    status = 400
    remedy = "Name a network of bootflow_networks."


class SubnetNotFound(NotFound):
    """The network has no such subnet."""

    msg_fmt = "Subnet %(subnet_id)s could not be found."
    status = 400


class NetworkError(BootflowError):
    """A network or an address cannot be used."""

    status = 400


class HostLacksNetwork(NetworkError):
    """The host does not have a bridge or libvirt network of the request, or it is not active there; or it has no address for VXLAN networks."""

    msg_fmt = "%(what)s on %(host)s"


class NetworkRangeInUse(NetworkError):
    """The host already has addresses in the range of a managed network. Another host may be free of them."""

    msg_fmt = "libvirt network %(network)s cannot have %(range)s on this host: %(reason)s"
    status = 409
    retryable = True


class NetworkAmbiguous(Conflict):
    """The request names no network and there are several."""

    msg_fmt = "Multiple possible networks found, use a network name to be more specific."


class InvalidFixedIpAndMaxCountRequest(InvalidInput):
    """A fixed address is requested for more than one instance."""

    msg_fmt = "Failed to launch instances: %(reason)s"


class MultiplePortsNotApplicable(InvalidInput):
    """A port or MAC address is requested for more than one instance."""

    msg_fmt = "Failed to launch instances: %(reason)s"


class FixedIpAlreadyInUse(NetworkError):
    """The requested address is allocated."""

    msg_fmt = "IP address %(address)s already allocated in subnet %(subnet)s"
    status = 409
    remedy = "Choose another fixed_ip, or leave it out."

    @classmethod
    def held_by(cls, holder: str, **details: t.Any) -> FixedIpAlreadyInUse:
        """Return the error with the holder of the address in its remedy."""
        return cls(remedy="%s has it. %s" % (holder, cls.remedy), **details)


class IpAddressInUse(NetworkError):
    """Something else than a port has the address: the gateway, or a DHCP server gave it away (Neutron)."""

    msg_fmt = "Unable to complete operation for network %(net_id)s. The IP address %(ip_address)s is in use."
    status = 409


class InvalidIpForSubnet(NetworkError):
    """The requested address is not in the subnet."""

    msg_fmt = "IP address %(address)s is not a valid IP for the specified subnet %(subnet)s"


class InvalidIpForNetwork(NetworkError):
    """The requested address is not in any subnet of the network."""

    msg_fmt = "IP address %(address)s is not a valid IP for any of the subnets on the specified network %(network)s"
    remedy = "Choose an address of one of its subnets."


class NetworkDuplicated(NetworkError):
    """The request names a network twice."""

    msg_fmt = "Duplicate networks (%(network_id)s) are not allowed"
    remedy = "Name each network once, or set bootflow_allow_duplicate_networks: true."


class InvalidIpForAllocationPools(NetworkError):
    """The requested address is outside the subnet's allocation pools."""

    msg_fmt = "IP address %(ip_address)s is not in the allocation pools of subnet %(subnet)s"
    remedy = "Choose an address of the pools, or set enforce_allocation_pools: false on the network."


class InvalidAllocationPool(NetworkError):
    """An allocation pool of the catalogue is invalid."""

    msg_fmt = "The allocation pool %(pool)s is not valid: %(reason)s"


class OverlappingAllocationPools(NetworkError):
    """Two allocation pools of a subnet have common addresses."""

    msg_fmt = "Found overlapping allocation pools: %(pool_1)s %(pool_2)s for subnet %(subnet_cidr)s."
    status = 409
    remedy = "Change the pools so that no address is in two of them."


class GatewayConflictWithAllocationPools(NetworkError):
    """The gateway of a subnet is in one of its allocation pools."""

    msg_fmt = "Gateway ip %(ip_address)s conflicts with allocation pool %(pool)s."
    status = 409
    remedy = "Leave the gateway's address out of the pool, or write another gateway_ip, or null for none."


class NoMoreFixedIps(NetworkError):
    """Every address of the network is allocated."""

    msg_fmt = "No fixed IP addresses available for network: %(net)s"
    status = 409


class VirtualInterfaceCreateException(NetworkError):
    """An interface of the guest could not be plugged in."""

    msg_fmt = "Virtual Interface creation failed: %(reason)s"
    status = 500


class VirtualInterfaceMacAddressException(NetworkError):
    """No free MAC address was found."""

    msg_fmt = "Creation of virtual interface with unique mac address failed"
    status = 500


class PortNotFound(NotFound):
    """There is no such port, or the instance has no such interface (Nova)."""

    msg_fmt = "Port id %(port_id)s could not be found."
    remedy = "bootflow.compute.port_list shows the ports."


class PortInUse(Conflict):
    """The port is bound to an instance (Nova)."""

    msg_fmt = "Port %(port_id)s is still in use."
    remedy = "Detach it from its instance, or delete the instance: the port is kept."


class PortNotUsable(NetworkError):
    """The port belongs to another project than the instance (Nova)."""

    msg_fmt = "Port %(port_id)s not usable for instance %(instance)s."
    remedy = "Name a port of the instance's project."


class PortExists(Conflict):
    """The project has a port of this name that differs from the request."""

    msg_fmt = "Port %(name)s already exists and differs: %(reason)s"
    remedy = "Change it with bootflow.compute.port_update, or choose another name."


class MacAddressInUse(Conflict):
    """Another port has the MAC address (Neutron)."""

    msg_fmt = "Unable to complete operation for network %(net_id)s. The mac address %(mac)s is in use."
    remedy = "Choose another mac_address, or leave it out."


class InterfaceAttachFailed(BootflowError):
    """An interface could not be attached to a guest (Nova)."""

    msg_fmt = "Failed to attach network adapter device to %(instance_uuid)s"


class InterfaceAttachFailedNoNetwork(InvalidInput):
    """An interface is requested without a network, and there is none (Nova)."""

    msg_fmt = "No specific network was requested and none are available for project '%(project_id)s'."
    remedy = "Add a network to bootflow_networks."


class HostCannotFilter(NetworkError):
    """The host cannot filter the ports of its guests: nft refuses the filters, which stay as they were."""

    msg_fmt = "%(host)s cannot filter the ports of its guests: %(reason)s"
    status = 500
    remedy = (
        "That host needs nftables 1.0.6 or later and a kernel with CONFIG_NF_TABLES_BRIDGE and CONFIG_NF_CONNTRACK_BRIDGE (modprobe nf_conntrack_bridge);"
        " Debian's kernels have them. Or set bootflow_firewall_driver: noop."
    )


class NorthboundError(NetworkError):
    """The northbound database of OVN does not answer, or refuses a transaction."""

    msg_fmt = "The northbound database of OVN cannot be used: %(reason)s"
    status = 503
    remedy = "Check bootflow_ovn_northbound and the central node. Guests keep their network; run the same command again, or the audit."
