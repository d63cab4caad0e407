# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidUUID
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import names

U = "11111111-1111-4111-8111-111111111111"
IQN = "iqn.2010-10.org.openstack:volume-" + U

addresses = st.ip_addresses().map(str)
ports = st.integers(1, 65535)


@given(st.uuids())
def test_names_and_ids_go_both_ways(made):
    assert names.volume_id_of(names.volume_name(str(made))) == str(made)


def test_names_as_cinder_writes_them():
    assert names.volume_name(U) == "volume-" + U
    assert names.target_iqn(names.volume_name(U)) == IQN


@pytest.mark.parametrize(
    "bad",
    ["", "x", "../../etc", U + "/x", U + "\n", U.replace("-", ""), "{%s}" % U, U.upper().replace("1", "A"), None, 5],
)
def test_only_a_uuid_becomes_a_name(bad):
    with pytest.raises(InvalidUUID):
        names.volume_name(bad)


@pytest.mark.parametrize(
    "other", ["volume-", "volume-x", "vol", "volume-%s\n" % U, "volume-%s.x" % U, "xvolume-" + U, "root"]
)
def test_names_of_other_things(other):
    assert names.volume_id_of(other) is None


@pytest.mark.parametrize(
    "good",
    [
        IQN,
        "iqn.1993-08.org.debian:01:abcDEF",
        "iqn.2010-10.org",
        "iqn.2010-12.a-b.c:x_y.z",
        "IQN.2010-10.org:x",
        "iqn.2010-10.Org:X",
    ],
)
def test_iqns(good):
    assert names.check_iqn(good) == good
    assert names.check_initiator(good) == good


@pytest.mark.parametrize(
    "bad",
    ["", "iqn", "iqn.2010-13.org:x", "iqn.2010-00.org:x", "iqn.201-10.org:x", "iqn.2010-10.org:", "iqn.2010-10.:x",
     IQN + "\n", IQN + " x", IQN + "/..", IQN + ";rm", "iqn.2010-10.or\u212a:x", "iqn.2010-10.-org:x",
     "iqn.2010-10.org:" + "x" * 223, None, 5, b"iqn", "iqn.2010-10.org:\u00e9"],
)  # fmt: skip
def test_no_iqns(bad):
    with pytest.raises(InvalidInput):
        names.check_iqn(bad)
    with pytest.raises(InvalidInput):
        names.check_initiator(bad)


@pytest.mark.parametrize(
    "good", ["eui.02004567A425678D", "naa.52004567BA64678D", "naa.62004567BA64678D0123456789ABCDEF"]
)
def test_other_initiators(good):
    assert names.check_initiator(good) == good
    with pytest.raises(InvalidInput):
        names.check_iqn(good)


def test_names_of_one_attachment():
    volume, attachment = str(uuid.uuid4()), str(uuid.uuid4())
    target = names.target_iqn("volume-" + volume)
    assert names.attachment_initiator(attachment) == names.INITIATOR_PREFIX + attachment
    secret = names.attachment_secret(target, attachment)
    assert names.check_iqn(secret) == secret == "%s:%s" % (target, attachment)
    assert names.target_of_secret(secret) == names.target_of_secret(target) == target
    assert names.volume_id_of_target(names.target_of_secret(secret), [names.IQN_PREFIX]) == volume
    for bad in ("", "x", attachment.upper()):
        with pytest.raises(InvalidUUID):
            names.attachment_initiator(bad)
        with pytest.raises(InvalidUUID):
            names.attachment_secret(target, bad)


def test_a_prefix_that_makes_no_iqn_is_refused():
    with pytest.raises(InvalidInput):
        names.target_iqn("volume-x", "my targets:")


# --- CHAP -------------------------------------------------------------------------------------------------------------


@given(st.integers())
def test_credentials_have_cinders_lengths(seed):
    made = names.generate_chap(random.Random(seed))
    assert (len(made.user), len(made.secret)) == (20, 16)
    for text in (made.user, made.secret):
        assert text.isalnum()
        assert text.isascii()
        assert any(c.isdigit() for c in text)
        assert any(c.isupper() for c in text)
        assert any(c.islower() for c in text)


def test_no_two_are_alike_and_no_secret_shows():
    rng = random.SystemRandom()
    made = [names.generate_chap(rng) for _each in range(20)]
    assert len({m.secret for m in made}) == len({m.user for m in made}) == 20
    assert made[0].secret not in repr(made[0]) + str(made[0]) + "%s" % made


# --- portals, paths ----------------------------------------------------------------------------------------


@given(addresses, ports)
def test_portals_go_both_ways(address, port):
    text = names.portal(address, port)
    assert names.split_portal(text) == (address, port)
    assert ("[" in text) == (":" in address)
    assert names.portal("[%s]" % address if ":" in address else address, port) == text


NO_PORTALS = (
    "",
    "host:3260",
    "192.0.2.1",
    "192.0.2.1:",
    "192.0.2.1:0",
    "192.0.2.1:65536",
    "2001:db8::1:3260",
    "[2001:db8::1]",
    "192.0.2.1:x",
    "192.0.2.1:\u0663",
    "300.0.2.1:3260",
    "[fe80::1%../../x]:3260",
    "[fe80::1%eth0]:3260",
    "192.0.2.1;x:3260",
)


@pytest.mark.parametrize("bad", NO_PORTALS)
def test_no_portals(bad):
    with pytest.raises(InvalidInput):
        names.split_portal(bad)


@pytest.mark.parametrize(
    ("where", "lun", "path"),
    [
        ("192.0.2.1:3260", 1, "/dev/disk/by-path/ip-192.0.2.1:3260-iscsi-%s-lun-1" % IQN),
        ("[2001:db8::1]:3260", 0, "/dev/disk/by-path/ip-2001:db8::1:3260-iscsi-%s-lun-0" % IQN),
        ("192.0.2.1:860", 255, "/dev/disk/by-path/ip-192.0.2.1:860-iscsi-%s-lun-255" % IQN),
        ("192.0.2.1:860", 256, "/dev/disk/by-path/ip-192.0.2.1:860-iscsi-%s-lun-0x0100000000000000" % IQN),
    ],
)
def test_device_paths(where, lun, path):
    assert names.by_path(where, IQN, lun) == path
    assert names.by_path_names(where, IQN, lun)[0] == path
    assert names.by_path_names(where, IQN, lun)[-1].startswith("/dev/disk/by-path/*-ip-")


def test_the_other_spelling_of_an_ipv6_path():
    assert "/dev/disk/by-path/ip-[2001:db8::1]:3260-iscsi-%s-lun-0" % IQN in names.by_path_names(
        "[2001:db8::1]:3260", IQN, 0
    )
    assert len(names.by_path_names("192.0.2.1:3260", IQN, 0)) == 2


@pytest.mark.parametrize(
    ("where", "iqn"), [("../x:3260", IQN), ("192.0.2.1:3260", "../../x"), ("192.0.2.1:3260", IQN + "/../x")]
)
def test_nothing_else_becomes_a_path(where, iqn):
    with pytest.raises(InvalidInput):
        names.by_path(where, iqn, 0)


def test_the_luns_of_the_targets():
    assert names.LUN_OF_TARGET == {"tgt": 1, "lio": 0}


@pytest.mark.parametrize("bad", [None, 5, b"x", ["x"], {"a": 1}, "\ud800"])
@pytest.mark.parametrize(
    "call",
    [
        names.check_iqn,
        names.check_initiator,
        names.target_iqn,
        lambda value: names.target_iqn("x", value),
        names.portal,
        names.split_portal,
        lambda value: names.by_path(value, IQN, 1),
    ],
)
def test_what_is_no_text_is_refused_like_a_bad_one(call, bad):
    with pytest.raises(InvalidInput):
        call(bad)


@pytest.mark.parametrize("other", [None, 5, b"volume-" + U.encode(), ["x"]])
def test_what_is_no_text_names_nothing(other):
    assert names.volume_id_of(other) is None
    assert names.volume_id_of_target(other, [names.IQN_PREFIX]) is None


@pytest.mark.parametrize("lun", [None, -1, "1", 1.5, True, 2**32])
def test_no_luns(lun):
    with pytest.raises(InvalidInput, match="is not a valid LUN"):
        names.by_path("192.0.2.1:3260", IQN, lun)


def test_numbers_that_are_too_long():
    with pytest.raises(InvalidInput, match="is not a valid portal"):
        names.split_portal("192.0.2.1:" + "9" * 5000)


def test_names_are_one_whatever_their_case():
    prefix = "iqn.2001-05.Example.com:Cloud."
    iqn = names.target_iqn(names.volume_name(U), prefix)
    assert iqn == prefix.lower() + names.volume_name(U)
    for spelled in (iqn, prefix + names.volume_name(U), iqn.upper()):
        assert names.normal_name(spelled) == iqn
        assert names.volume_id_of_target(spelled, [prefix]) == names.volume_id_of_target(spelled, [prefix.upper()]) == U
    assert names.check_initiator("eui.02004567A425678D") == "eui.02004567A425678D"  # as the host sends it
    assert names.normal_name("eui.02004567A425678D") == "eui.02004567a425678d"
