# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the libvirt networks of this host, define and start managed networks, and remove unused managed networks."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import time
import typing as t

from ....core.errors import InvalidInput, NetworkError
from ....core.guest.domain.element import parse, to_text
from ....core.networks import dhcp
from ....core.networks.names import check_interface
from ....core.networks.on_hosts import ABSENT, INACTIVE, HostNetwork
from ....core.networks.types.network import LibvirtNetwork
from ....core.optional import optional_import, require
from ...os.batch import attempt, progress
from ...os.files import opened, remove_files
from ...os.locks import LOCK_ROOT, host_lock
from ...os.paths import make_dirs
from ..connection import is_code, libvirt, libvirt_errors, tolerating
from ..dhcp import find_network, range_of, reservations_of
from ..domain_waits import host_name
from ..taps import bridge_of, plug_in, unplugged
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork, Uplinks, found_as_it_is
from .used_networks import used_by_domains
from .used_ranges import check_unused, refused

etree = optional_import("lxml.etree")

#: Of the metadata of networks that this collection defined.
NETWORK_NAMESPACE = "urn:bootflow:compute:network:1"
#: The same of networks from before the first release: they are known and purged as well, and get the name above when they are defined again.
FORMER_NETWORK_NAMESPACE = "https://bootflow.example.org/xmlns/libvirt/network/1"
#: A file for each network, named by its UUID: its time is when a build last needed the network.
_NEEDED = os.path.join(LOCK_ROOT, "networks")
LOCK = "networks"

_DNSMASQ = "http://libvirt.org/schemas/network/dnsmasq/1.0"


class HostLibvirtNetwork:
    """The libvirt networks of this host."""

    kind = LibvirtNetwork()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        """Ensure that one network exists; {changed, type, source, bridge, defined, started}.

        Only managed libvirt networks are defined, started or set to autostart. An existing network keeps its definition. Interfaces of running
        guests that lost a network with its bridge are plugged in again when it starts.

        :raises InvalidInput: the spec is not valid.
        :raises NetworkError: the network does not exist or is not active, and is not managed; or the definition of a managed one does
            not serve DHCP as requested.
        :raises NetworkRangeInUse: the host already has the addresses of a managed network that has to be started.
        """
        self.kind.check_source(spec.real_name)
        if not spec.manage:
            return _check_network(find_network(connection, spec.real_name), spec)
        if check_mode:
            return _ensure_managed(connection, spec, True)
        with host_lock(LOCK_ROOT, LOCK):
            return _ensure_managed(connection, spec, False)

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        """Destroy and undefine the networks that this collection defined and no domain uses; {name, definition, changed, error}
        of each.

        :arg min_age: seconds since a build needed the network. :arg keep: names of networks to keep.
        """
        with contextlib.nullcontext() if check_mode else host_lock(LOCK_ROOT, LOCK):
            with libvirt_errors():
                networks = sorted(connection.listAllNetworks(0), key=lambda network: str(network.name()))
                ours = [n for n in networks if n.name() not in keep and is_ours(n)]
            used = used_by_domains(connection) if ours else set()
            for network in ours:
                outcome = attempt(lambda n: _purge(n, used, min_age, check_mode), network)
                if outcome["changed"] or outcome["error"]:
                    yield {"name": str(network.name()), **outcome}

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        networks = []
        for network in _all_networks(connection):
            with contextlib.suppress(InvalidInput):  # no catalogue can name it
                self.kind.check_source(str(network.name()))
                networks.append(tolerating(functools.partial(_as_found, network), "VIR_ERR_NO_NETWORK"))
        return [network for network in networks if network is not None]  # the others went meanwhile

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        networks = _all_networks(connection)
        return [ServedNetwork(str(network.name()), is_ours(network), reservations_of(network)) for network in networks]


def _as_found(network: t.Any) -> FoundNetwork:
    # A network that is not persistent has no such setting.
    autostart = bool(network.autostart()) if network.isPersistent() else None
    return FoundNetwork(str(network.name()), bool(network.isActive()), autostart)


def _all_networks(connection: t.Any) -> t.Sequence[t.Any]:
    """Return all libvirt networks. A libvirt without its driver of networks has none."""
    return tolerating(lambda: connection.listAllNetworks(0), "VIR_ERR_NO_SUPPORT") or ()


def _ensure_managed(connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
    network = find_network(connection, spec.real_name)
    defined = network is None
    definition = network_xml(spec) if network is None else definition_of(network)
    if not defined:
        _check_dhcp(definition, spec)
    with libvirt_errors():
        start = network is None or not network.isActive()
        autostart = network is None or not network.autostart()
    if start:
        check_unused(connection, definition, spec.name, not defined)
    result = {
        "changed": start or autostart,
        "type": spec.type,
        "source": spec.real_name,
        "defined": defined,
        "started": start,
    }
    if defined:
        result["diff"] = {"before": "", "after": definition, "after_header": spec.real_name}
    if check_mode:
        result["bridge"] = spec.bridge if network is None else bridge_of(network)
        return result
    if result["changed"]:
        progress.mark_changed()
    with libvirt_errors():
        if network is None:
            network = define(connection, spec.real_name, definition)
        if start:
            _start(network, spec, definition, defined)
        if autostart:
            network.setAutostart(1)
    if start:  # guests that run have lost the former one
        plug_in(unplugged(connection, spec.real_name))
    mark_needed(network)
    result["bridge"] = bridge_of(network)
    return result


def definition_of(network: t.Any) -> str:
    """Return the persistent definition, or else the running one."""
    with libvirt_errors():
        return str(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE if network.isPersistent() else 0))


def define(connection: t.Any, name: str, xml: str) -> t.Any:
    """Define a network and return it, or the one that another process has defined meanwhile."""
    try:
        return connection.networkDefineXML(xml)
    except libvirt.libvirtError:
        # Another process may have defined it meanwhile.
        network = find_network(connection, name)
        if network is None:
            raise
        return network


def _start(network: t.Any, spec: NetworkSpec, definition: str, is_new: bool) -> None:
    """Start a network. :raises NetworkRangeInUse: libvirt found the range in use. Then a new network is not left behind."""
    try:
        network.create()
    except libvirt.libvirtError as error:
        if is_code(error, "VIR_ERR_OPERATION_INVALID") and network.isActive():
            return  # another process started it meanwhile
        in_use = refused(error, definition, spec.name, not is_new)
        if in_use is None:
            raise
        if is_new:
            network.undefine()
        raise in_use from None


def _check_network(network: t.Any | None, spec: NetworkSpec) -> dict[str, t.Any]:
    wanted = HostNetwork(HostLibvirtNetwork.kind.name, spec.real_name, spec.name)
    if network is None:
        raise wanted.refusal(ABSENT, host_name())
    with libvirt_errors():
        if not network.isActive():
            raise wanted.refusal(INACTIVE, host_name())
    return found_as_it_is(spec, bridge_of(network))


def network_xml(spec: NetworkSpec) -> str:
    """Return the definition of a managed libvirt network.

    The gateway of a subnet is the address of the host; with forward none and without a gateway the host has no address in the network.
    A DHCP range is never written: the ledger assigns the addresses, and each becomes a reservation (see .dhcp).

    :raises InvalidInput: a value, an address or a name is not valid.
    """
    require(etree, "lxml", "python3-lxml", "host")
    options = _dhcp_options(spec)
    root = etree.Element("network", nsmap={"dnsmasq": _DNSMASQ} if options else None)
    etree.SubElement(root, "name").text = spec.real_name
    add_mark(root)
    if spec.forward != "none":
        etree.SubElement(root, "forward", mode=spec.forward)
    bridge = etree.SubElement(root, "bridge", stp="on", delay="0")
    if spec.bridge:
        bridge.set("name", check_interface(spec.bridge))
    if spec.mtu is not None:
        if not 68 <= int(spec.mtu) <= 65535:
            raise InvalidInput(reason="mtu of network %s must be between 68 and 65535, got %s" % (spec.name, spec.mtu))
        etree.SubElement(root, "mtu", size=str(int(spec.mtu)))
    for subnet in spec.subnets:
        _add_subnet(root, spec, subnet)
    if options:
        parent = etree.SubElement(root, "{%s}options" % _DNSMASQ)
        for option in options:
            etree.SubElement(parent, "{%s}option" % _DNSMASQ, value=option)
    return to_text(root)


def add_mark(root: t.Any) -> None:
    """Mark the definition of a network as ours."""
    ours = etree.SubElement(root, "metadata")
    etree.SubElement(ours, "{%s}network" % NETWORK_NAMESPACE, nsmap={"bootflow": NETWORK_NAMESPACE})


def _dhcp_options(spec: NetworkSpec) -> list[str]:
    """Return dnsmasq's options for the guests of the network's subnet with DHCP, in addition to address and router."""
    return [option for s in spec.subnets if s.get("enable_dhcp") for option in dhcp.options(s, spec.forward, spec.mtu)]


def _check_dhcp(definition: str, spec: NetworkSpec) -> None:
    """Check DHCP. :raises NetworkError: the definition of an existing network cannot serve the subnets as requested"""
    served = [s for s in spec.subnets if s.get("enable_dhcp")]
    if not served:
        return
    root = parse(definition)
    element_of_subnet = {(range_of(e), e.get("address")): e for e in root.findall("ip")}
    announced_options = {e.get("value") for e in root.iter("{%s}option" % _DNSMASQ)}
    problems = ["it does not announce %s to guests" % o for o in _dhcp_options(spec) if o not in announced_options]
    for subnet in served:
        element = element_of_subnet.get((ipaddress.ip_network(str(subnet["cidr"])), subnet["gateway_ip"]))
        if element is None:
            problems.append("this host does not have the address %s in it" % subnet["gateway_ip"])
        elif element.find("dhcp/range") is not None:
            problems.append("it has a DHCP range, which hands out addresses that only the ledger may assign")
    if problems:
        raise NetworkError(
            message="libvirt network %s on this host does not serve DHCP as requested: %s"
            % (spec.real_name, "; ".join(problems)),
            remedy="When no guest on this host uses the network, remove it (virsh net-destroy %s, virsh net-undefine %s): the next boot"
            " defines it again. Or correct network %s in bootflow_networks."
            % (spec.real_name, spec.real_name, spec.name),
        )


def _add_subnet(root: t.Any, spec: NetworkSpec, subnet: t.Mapping[str, t.Any]) -> None:
    gateway = subnet.get("gateway_ip")
    if not gateway:
        return
    try:
        cidr = ipaddress.ip_network(str(subnet.get("cidr")), strict=False)
        address = ipaddress.ip_address(str(gateway))
    except ValueError as error:
        raise InvalidInput(reason="subnet of network %s is not valid: %s" % (spec.name, error)) from None
    if address not in cidr:
        raise InvalidInput(reason="gateway %s of network %s is not in %s" % (address, spec.name, cidr))
    etree.SubElement(root, "ip", family="ipv%d" % cidr.version, address=str(address), prefix=str(cidr.prefixlen))


# --- networks that nothing uses ---------------------------------------------------------------------------------------


def _purge(network: t.Any, used: t.Collection[str], min_age: float, check_mode: bool) -> dict[str, t.Any]:
    with libvirt_errors():
        names = {network.name(), bridge_of(network)}
        if not names.isdisjoint(used) or _has_ports(network) or _unneeded_for(network) < min_age:
            return {"changed": False}
        definition = str(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE))
        if not check_mode:
            if network.isActive():
                progress.mark_changed()
                network.destroy()
            network.undefine()
    if not check_mode:
        remove_files(_needed_file(network))
    return {"changed": True, "definition": definition}


def is_ours(network: t.Any) -> bool:
    """Return whether this collection defined the network."""
    if not network.isPersistent():
        return False
    xml = parse(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE))
    names = (NETWORK_NAMESPACE, FORMER_NETWORK_NAMESPACE)
    return any(xml.find("metadata/{%s}network" % name) is not None for name in names)


def _has_ports(network: t.Any) -> bool:
    """Return whether something other than a domain of this libvirt uses it: of another driver, or an interface in its bridge."""
    if network.isActive() and hasattr(network, "listAllPorts") and network.listAllPorts(0):
        return True
    bridge = bridge_of(network)
    try:
        return any(name != bridge + "-nic" for name in os.listdir("/sys/class/net/%s/brif" % bridge))
    except OSError:
        return False


def _needed_file(network: t.Any) -> str:
    return os.path.join(_NEEDED, network.UUIDString())


def mark_needed(network: t.Any) -> None:
    """Note that a build needs the network now."""
    make_dirs(_NEEDED, 0o700)
    with opened(_needed_file(network), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW) as fd:
        os.utime(fd)


def _unneeded_for(network: t.Any) -> float:
    """Return the seconds since a build needed the network; without one since the host started, the time since then."""
    try:
        return time.time() - os.stat(_needed_file(network)).st_mtime
    except FileNotFoundError:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
