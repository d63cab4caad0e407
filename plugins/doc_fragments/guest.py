# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The parts of a guest on its host: of the module that makes each, and of instance_build, which makes all."""

    NETWORKS = r"""
options:
  networks:
    description: The networks of guests on this host.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the network, the key of its result.
        type: str
        required: true
      type:
        description: Type of the network, a libvirt network, a Linux bridge of the host, a bridge that V(vxlan) or V(vlan) joins with the
          other hosts', an interface of the host by V(macvtap), or the integration bridge of V(ovn).
        type: str
        choices: [network, bridge, vxlan, vlan, macvtap, ovn]  # types of networks
        default: network
      source:
        description: Name of the libvirt network or bridge on the host. By default O(networks[].name).
        type: str
      manage:
        description: Define and start the libvirt network, and start it with the host. Bridges of V(bridge) are never created.
        type: bool
        default: false
      forward:
        description: Forward mode of a managed libvirt network.
        type: str
        choices: [none, nat, route, open]
        default: none
      bridge:
        description: Name of the bridge of a managed libvirt network. By default libvirt chooses one.
        type: str
      mtu:
        description: MTU of a managed libvirt network, or of a VXLAN or VLAN network, for which it is by default the largest that fits.
        type: int
      vni:
        description: Number of a VXLAN network, 1 to 16777215. Required with O(networks[].type=vxlan).
        type: int
      vlan:
        description: Number of a VLAN, 1 to 4094. Required with O(networks[].type=vlan).
        type: int
      physical_network:
        description: Physical network of O(physical_interface_mappings). Required with O(networks[].type=vlan) and
          O(networks[].type=macvtap).
        type: str
      subnets:
        description:
          - Subnets with C(cidr), C(gateway_ip), C(enable_dhcp), C(dns_nameservers) and C(host_routes). In a managed libvirt network the
            host has the address of the gateway.
          - Of a subnet with C(enable_dhcp), the DHCP server of a managed libvirt network tells guests C(dns_nameservers), C(host_routes)
            and O(networks[].mtu). It gives away only the addresses that M(bootflow.compute.domain) reserves.
        type: list
        elements: dict
        default: []
  physical_interface_mappings:
    description: Physical network -> interface of this host in it, which gets the frames of VLANs with their tags. Required for VLAN and
      macvtap networks.
    type: dict
    default: {}
  vxlan_address:
    description: IP address of this host in the network between the compute hosts. Required for VXLAN networks.
    type: str
    default: ""
  vxlan_peers:
    description:
      - Such addresses of the other compute hosts, of the same IP version. O(vxlan_address) among them is left out.
      - The list of an existing VXLAN network is corrected, with hosts added and removed.
    type: list
    elements: str
    default: []
  refresh_vxlan:
    description:
      - Give O(vxlan_address) and O(vxlan_peers) to all VXLAN networks that this host has, also where O(networks) does not have them. The result of each has
        the name of the bridge.
      - No device is made where it is missing.
    type: bool
    default: false
  reservations:
    description:
      - Addresses that the DHCP server of libvirt has to give to existing guests, in addition to the ones that it gives already. They are lost when a network is
        removed and defined again.
      - One that is reserved for another MAC address is left alone, and is an error.
    type: list
    elements: dict
    default: []
    suboptions:
      network: {description: Name of the libvirt network., type: str, required: true}
      mac: {description: MAC address of the interface., type: str, required: true}
      address: {description: IPv4 address in a subnet of the network that has no DHCP range., type: str, required: true}
      name: {description: "Hostname of the guest, for the DNS server of the network.", type: str, default: ""}
"""

    DISKS = r"""
options:
  images:
    description: The images that the instances need.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: Id of the image, the key of its result.
        type: str
        required: true
      name:
        description: Name of the image.
        type: str
      url:
        description: URL from which this host fetches the image, C(http://), C(https://) or C(file://).
        type: str
      path_on_host:
        description: Path of the image on this host. Used instead of O(images[].url).
        type: path
      checksum:
        description:
          - Checksum of the file as it is published, also if it is compressed. C(sha256:), C(sha384:) or C(sha512:) with the digest, or with
            the address of a file with checksums. Digits alone are a sha256.
        type: str
        default: ""
      version:
        description: Version of the controller's file, for an image without a checksum. An image of another version is fetched again.
        type: str
        default: ""
      disk_format:
        description: Format of the image according to the catalogue, such as V(qcow2) or V(raw).
        type: str
        required: true
      size:
        description: Size of the file in bytes. A larger file is rejected.
        type: int
      validate_certs:
        description: Check the certificate of the web server.
        type: bool
        default: true
      ca_path:
        description: File on this host with the certificates of the authorities (PEM) that the web server's certificate is checked with.
        type: path
      client_cert:
        description: File on this host with the client certificate (PEM) for the web server; it may contain the key.
        type: path
      client_key:
        description: File on this host with the key of O(images[].client_cert).
        type: path
      url_username:
        description: User for the web server. Login, headers and client certificate are not sent to other servers that it redirects to.
        type: str
      url_password:
        description: Password of O(images[].url_username).
        type: str
      headers:
        description: Headers of the request to the web server, a dictionary.
        type: json
      use_proxy:
        description: Use the proxy that the environment of this host sets.
        type: bool
        default: true
      virtual_size_limit:
        description: Maximum virtual size in bytes; a larger image is rejected. By default only the disks set a limit.
        type: int
  instances:
    description: The instances and their disks.
    type: list
    elements: dict
    default: []
    suboptions:
      uuid:
        description: UUID of the instance, the key of its result.
        type: str
        required: true
      made_at:
        description:
          - When its build began, in seconds since the epoch. The folder of the instance keeps it, so that M(bootflow.compute.instance_cleanup) refuses a
            cleanup that was due before.
        type: float
        default: 0.0
      replacement:
        description:
          - The only one of O(instances[].disks), C(disk) of an image, is made as a replacement of the one that the instance has, in the same store and of the
            same size.
          - M(bootflow.compute.instance_disks_revert) exchanges them.
        type: bool
        default: false
      disks:
        description: Its disks.
        type: list
        elements: dict
        required: true
        suboptions:
          name:
            description: File name of the disk, such as V(disk), V(disk.eph0) or V(disk.swap).
            type: str
            required: true
          kind:
            description: Initial content, an image, an empty file system, or swap.
            type: str
            choices: [image, ephemeral, swap]
            required: true
          image_id:
            description: Id of one of the O(images). Required with O(instances[].disks[].kind=image).
            type: str
          size_gb:
            description: Size in GiB. With O(instances[].disks[].kind=image), V(0) means the size of the image.
            type: int
          size_mb:
            description: Size in MiB, instead of O(instances[].disks[].size_gb).
            type: int
          max_size_gb:
            description: Largest size in GiB of the image of a disk that has the size of the image; a larger image is rejected.
            type: int
          backend:
            description:
              - Storage of the disk. V(qcow2) is a file that is a layer over the cached image, V(raw) a file with a copy.
              - V(lvm) is a logical volume of O(volume_group) named C(UUID_NAME), with a copy.
              - With V(qcow2_on_lvm) the instance has a logical volume C(UUID_disk) with a file system that holds its disks as with V(qcow2). It is mounted
                on C(disk) in the directory of the instance, also when the host starts (C(/etc/fstab)).
                It is large enough for full disks.
              - V(rbd) is an image of O(disk_pool) named C(UUID_NAME), a clone of the image, which comes into the pool once.
              - With V(lvm), V(qcow2_on_lvm) or V(rbd), all disks of an instance must have the same backend.
            type: str
            choices: [qcow2, raw, lvm, qcow2_on_lvm, rbd]  # disk backends
            default: qcow2
          fs:
            description: File system of a disk with O(instances[].disks[].kind=ephemeral).
            type: str
            choices: [ext4, ext3, ext2, xfs, vfat, none]
            default: ext4
          label:
            description: Label of the file system or swap. By default C(ephemeral0) for V(disk.eph0).
            type: str
  volume_group:
    description:
      - Volume group of disks with O(instances[].disks[].backend=lvm) or O(instances[].disks[].backend=qcow2_on_lvm).
      - Logical volumes without the tag of the instance are never touched.
    type: str
  uploads:
    description:
      - Files on this host to which images were uploaded, a dictionary from image id to path.
      - An image that has neither O(images[].url) nor O(images[].path_on_host), is not in the cache and is not here is reported as missing.
    type: dict
    default: {}
  fetch:
    description: Fetch images that are not in the cache. Otherwise they are reported as missing.
    type: bool
    default: true
  allow_unverified:
    description: Accept images without a checksum.
    type: bool
    default: false
  image_max_gb:
    description: Largest image file in GiB; V(0) for no limit. A file that the file system has no room for is rejected anyway.
    type: int
    default: 1024
  image_fetch_timeout:
    description: Longest time to fetch an image, in seconds; V(0) for no limit. A server that stalls is given up earlier.
    type: float
    default: 3600.0
  vmdk_allowed_types:
    description: VMDK subformats (createType) that are accepted. All have their data in the file itself; without any, no VMDK image is accepted.
    type: list
    elements: str
    choices: [streamOptimized, monolithicSparse]
    default: [streamOptimized, monolithicSparse]
"""

    DRIVES = r"""
options:
  drives:
    description: The drives to create on this host.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance, the key of its result.
        type: str
        required: true
      path:
        description: Absolute path of the image file. A missing directory is created. Only the owner can read the file.
        type: path
        required: true
      format:
        description: Format of the file system.
        type: str
        choices: [iso9660, vfat]
        default: iso9660
      label:
        description: Label of the file system, by which the guest finds it. Cloud-init looks for C(config-2) (ConfigDrive) and C(cidata) (NoCloud).
        type: str
        choices: [config-2, cidata]
        default: config-2
        version_added: "0.9.0"
      files:
        description:
          - Files of the drive, a dictionary from relative path to the content in Base64.
          - The value C(@) followed by the path of another file of the drive means the content of that file.
        type: dict
        required: true
      keep:
        description:
          - Keep an existing drive of the same format, whatever its content is.
          - Use this for a build that is resumed, whose guest may have read the drive already.
        type: bool
        default: false
"""

    DOMAINS = r"""
options:
  domains:
    description: The domains.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance and of its domain, the key of its result.
        type: str
        required: true
      name:
        description: Name of the domain.
        type: str
        required: true
      spare_names:
        description:
          - Other names. A new domain takes the first free one where another domain of the host has O(domains[].name).
          - An existing domain with such names keeps the name that it has.
        type: list
        elements: str
        default: []
      xml:
        description: XML definition of the domain, with the same UUID and name.
        type: str
        required: true
      state:
        description:
          - Requested state.
          - V(paused) starts the domain with its CPUs stopped, V(running) resumes a paused domain. V(defined) and V(paused) do not stop a running domain.
        type: str
        choices: [running, paused, defined]
        default: running
      restart:
        description:
          - Take the power of a running guest, and the memory of one that is suspended, right before the domain is started.
          - Without effect with O(domains[].state=defined).
        type: bool
        default: false
      shutdown_timeout:
        description:
          - With O(domains[].restart), seconds that a running guest has to shut down, as by its power button, before it is defined again and loses its
            power.
        type: float
        default: 0
      keep_disks:
        description:
          - Whether disks in the instance's folder, and its logical volumes, keep the places and formats that they have in the domain's former definition, where
            that has them. The settings of the host may have changed since they were made.
          - A domain that has an overlay or a copy in place of one of its volumes is refused.
        type: bool
        default: false
      new_logins:
        description:
          - The targets, by their IQNs, whose credentials have changed. For all others of a domain that is defined again, the users in
            its former definition stay.
        type: list
        elements: str
        default: []
      wait_timeout:
        description: Seconds to wait until the domain runs.
        type: float
        default: 60
      wait_console:
        description: Wait for a pattern on the console.
        type: dict
        suboptions:
          pattern:
            description: A Python regular expression that a part of a line must match.
            type: str
            required: true
          timeout:
            description: Seconds to wait for it.
            type: float
            default: 300
          log:
            description: Log file of the console. By default that of the first serial port in the XML.
            type: path
      wait_address:
        description: Wait until an address of the guest responds to this host.
        type: dict
        suboptions:
          address:
            description: The IP address.
            type: str
            required: true
          port:
            description: A TCP port that must accept a connection. By default the address must respond to a ping.
            type: int
          mac_address:
            description:
              - Address of the guest's interface. It counts as a response, too, where it answers ARP or ND; a guest may drop pings.
              - Needs the program C(ip), and a host that is in the guest's network.
            type: str
            default: ""
          timeout:
            description: Seconds to wait for it.
            type: float
            default: 300
      vif_plugging_timeout:
        description:
          - Seconds to wait until every interface of the guest is up on the host; the CPUs of the guest are stopped until then.
          - V(0) starts the guest at once.
        type: float
        default: 300
      vif_plugging_is_fatal:
        description: Fail if an interface is missing after that time. Otherwise the guest runs without it.
        type: bool
        default: true
      wait_agent:
        description: Seconds to wait until the QEMU guest agent responds. V(0) does not wait.
        type: float
        default: 0
      wait_cloud_init:
        description: Wait until cloud-init has finished in the guest.
        type: dict
        suboptions:
          agent:
            description:
              - Read C(/run/cloud-init/result.json) by the QEMU guest agent. Errors in it fail the guest.
              - Otherwise the last line that cloud-init prints on the console by default is waited for.
            type: bool
            default: false
          timeout:
            description: Seconds to wait for it.
            type: float
            default: 300
          log:
            description: Log file of the console. By default that of the first serial port in the XML.
            type: path
      reservations:
        description:
          - Addresses that the DHCP server of libvirt gives only to the guest's interfaces, reserved before the guest starts.
          - M(bootflow.compute.instance_cleanup) removes them with the domain.
        type: list
        elements: dict
        default: []
        suboptions:
          network: {description: Name of the libvirt network., type: str, required: true}
          mac: {description: MAC address of the interface., type: str, required: true}
          address: {description: IPv4 address in a subnet of the network that has no DHCP range., type: str, required: true}
          name: {description: "Hostname of the guest, for the DNS server of the network.", type: str, default: ""}
      ends_build:
        description:
          - Whether the guest is built when its domain is as requested. Its folder keeps that, so that M(bootflow.compute.instance_cleanup) knows it from what a
            run left that died.
          - Use V(false) for a domain that is defined before all of its disks are there.
        type: bool
        default: true
"""
