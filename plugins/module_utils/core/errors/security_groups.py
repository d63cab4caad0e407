# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of security groups and their rules (names and texts: Neutron, and Nova for groups of instances)."""

from __future__ import annotations

from .base import Conflict, InvalidInput, NotFound


class SecurityGroupNotFound(NotFound):
    """The project has no such security group."""

    msg_fmt = "Security group %(id)s does not exist"
    remedy = "bootflow.compute.security_group_list shows the groups."


class SecurityGroupRuleNotFound(NotFound):
    """There is no rule with this id."""

    msg_fmt = "Security group rule %(id)s does not exist"
    remedy = "bootflow.compute.security_group_show shows the rules of a group."


class SecurityGroupExists(Conflict):
    """The project has a security group of this name that differs from the request."""

    msg_fmt = "Security group %(name)s already exists and differs: %(reason)s"
    remedy = "Change it with bootflow.compute.security_group_update, or choose another name."


class SecurityGroupInUse(Conflict):
    """A port has the security group."""

    msg_fmt = "Security Group %(id)s in use."
    remedy = "Take it from its ports first: port_update, or remove_security_group of their instances."


class SecurityGroupCannotRemoveDefault(Conflict):
    """The default group of a project stays as long as the project."""

    msg_fmt = "Insufficient rights for removing default security group."
    remedy = "Delete rules of it instead."


class SecurityGroupCannotUpdateDefault(Conflict):
    """The default group of a project keeps its name."""

    msg_fmt = "Updating default security group not allowed."
    remedy = "Change its description or its rules only."


class SecurityGroupDefaultAlreadyExists(Conflict):
    """Each project has a group of the name default already."""

    msg_fmt = "Default security group already exists."
    remedy = "Choose another name."


class SecurityGroupRuleExists(Conflict):
    """The group has a rule that means the same."""

    msg_fmt = "Security group rule already exists. Rule id is %(rule_id)s."
    remedy = "Leave this rule out, or delete the other one first."


class DuplicateSecurityGroupRuleInPost(Conflict):
    """The request has two rules that mean the same."""

    msg_fmt = "Duplicate Security Group Rule in POST."
    remedy = "Write each rule once."


class SecurityGroupInvalidPortRange(InvalidInput):
    """The first port of a range is above its last one, or one of them is missing."""

    msg_fmt = "For TCP/UDP protocols, port_range_min must be <= port_range_max"
    remedy = "Give both port_range_min and port_range_max, or none of them."


class SecurityGroupInvalidPortValue(InvalidInput):
    """A port is not a number from 1 to 65535."""

    msg_fmt = "Invalid value for port %(port)s"
    remedy = "Ports are numbers from 1 to 65535."


class SecurityGroupProtocolRequiredWithPorts(InvalidInput):
    """Ports are given without a protocol."""

    msg_fmt = "Must also specify protocol if port range is given."
    remedy = "Give the protocol: tcp, udp or sctp."


class SecurityGroupInvalidProtocolForPort(InvalidInput):
    """Ports are given for a protocol that has none."""

    msg_fmt = "Ports cannot be specified for protocol %(protocol)s. Ports are only supported for TCP, UDP, SCTP, DCCP, UDP-Lite."
    remedy = "Leave port_range_min and port_range_max out."


class SecurityGroupInvalidIcmpValue(InvalidInput):
    """Type or code of an ICMP rule is not a number from 0 to 255."""

    msg_fmt = "Invalid value for ICMP %(field)s (%(attr)s) %(value)s. It must be 0 to 255."
    remedy = "ICMP has no ports: port_range_min is the type of the messages, and port_range_max their code."


class SecurityGroupMissingIcmpType(InvalidInput):
    """An ICMP rule has a code without a type."""

    msg_fmt = "ICMP code (port-range-max) %(value)s is provided but ICMP type (port-range-min) is missing."
    remedy = "Give the type as port_range_min."


class SecurityGroupRuleInvalidProtocol(InvalidInput):
    """The protocol is unknown."""

    msg_fmt = "Security group rule protocol %(protocol)s not supported."
    remedy = "Write tcp, udp, sctp, icmp, icmpv6, another name of Neutron or a number from 0 to 255; leave it out for all protocols."


class SecurityGroupRuleParameterConflict(InvalidInput):
    """The range of a rule is of another IP version than its ethertype."""

    msg_fmt = "Conflicting value ethertype %(ethertype)s for CIDR %(cidr)s"
    remedy = "Without ethertype a rule is for IPv4: write ethertype: IPv6 for IPv6 ranges."


class SecurityGroupEthertypeConflictWithProtocol(InvalidInput):
    """A protocol of IPv6 is in a rule for IPv4."""

    msg_fmt = "Invalid ethertype %(ethertype)s for protocol %(protocol)s."
    remedy = "Write ethertype: IPv6, or another protocol."


class SecurityGroupRemoteGroupAndRemoteIpPrefix(InvalidInput):
    """A rule names both a range and a group as the other side."""

    msg_fmt = "Only remote_ip_prefix or remote_group_id may be provided."
    remedy = "Write one rule for each."


class SecurityGroupCannotBeApplied(InvalidInput):
    """Security groups are requested where no port can have them (Nova)."""

    msg_fmt = "Network requires port_security_enabled and subnet associated in order to apply security groups."
    remedy = "Leave security_groups out, or request a network with port security."


class HostDoesNotFilter(Conflict):
    """A port with security groups would be on a host that filters no ports."""

    msg_fmt = "Host %(host)s filters no ports, so security groups have no effect there"
    remedy = (
        "Set bootflow_firewall_driver: nftables for it, apply the role compute_host, and run bootflow.compute.heartbeat; or remove the groups with"
        " bootflow.compute.remove_security_group."
    )


class NetworkCannotBeFiltered(InvalidInput):
    """Port security is requested for a port of a network whose ports no host filters."""

    msg_fmt = (
        "Ports of network %(network)s have no port security: no host filters what is sent in a network of type %(type)s"
    )
    remedy = "Leave port_security_enabled out, or use a network of another type."


class PortSecurityPortHasSecurityGroup(Conflict):
    """A port without port security cannot have security groups (Neutron)."""

    msg_fmt = "Port has security group associated. Cannot disable port security or IP address until security group is removed."
    remedy = "Set security_groups: [] together with port_security_enabled: false."


class AddressPairAndPortSecurityRequired(Conflict):
    """Allowed address pairs need port security (Neutron)."""

    msg_fmt = "Port Security must be enabled in order to have allowed address pairs on a port."
    remedy = "Set allowed_address_pairs: [] together with port_security_enabled: false."


class AllowedAddressPairExhausted(InvalidInput):
    """A port has too many allowed address pairs (Neutron)."""

    msg_fmt = "The number of allowed address pair exceeds the maximum %(quota)s."
    remedy = "Write ranges instead of single addresses."


class DuplicateAddressPairInRequest(InvalidInput):
    """An allowed address pair is given twice (Neutron)."""

    msg_fmt = "Request contains duplicate address pair: mac_address %(mac_address)s ip_address %(ip_address)s."
    remedy = "Write each pair once."
