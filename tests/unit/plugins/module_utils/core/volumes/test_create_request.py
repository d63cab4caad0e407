# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.catalogue import (
    VolumeTypes,
    read_volume_types,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.create_request import (
    CreateOptions,
    Known,
    check_image,
    volume_request,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import Snapshot, Volume, VolumeType
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.request_values import (
    check_text,
    extract_size,
)

GIB = 1024**3
IMAGE = Image("cirros", "img-1", "qcow2", size=GIB, min_disk=1)
FAST = VolumeType("fast", {"volume_backend_name": "a"}, id="t-fast")
SLOW = VolumeType("slow", {"volume_backend_name": "b"}, id="t-slow")
TWIN = VolumeType("twin", {"volume_backend_name": "a"}, id="t-twin")
MULTI = VolumeType("multi", {"multiattach": "<is> True"}, id="t-multi")
HIDDEN = VolumeType("hidden", is_public=False, projects=("friends",), id="t-hidden")
SOURCE = Volume(
    "vol-1", 5, status="available", host="h@b#p", volume_type="fast", availability_zone="az1", bootable=True
)
SNAP = Snapshot("snap-1", 5, status="available", host="h@b#p", volume_type="fast", availability_zone="az1")
IMAGES = {"img-1": IMAGE, "cirros": IMAGE}


def find_image(name):
    if name not in IMAGES:
        raise errors.ImageNotFound(image_id=name)
    return IMAGES[name]


def known(**more):
    more.setdefault("volumes", {SOURCE.id: SOURCE})
    more.setdefault("snapshots", {SNAP.id: SNAP})
    more.setdefault("backends", 2)
    return Known(VolumeTypes([FAST, SLOW, TWIN, MULTI, HIDDEN]), find_image, zones=("nova", "az1"), **more)


def ask(wish=None, options=None, knows=None, project="default", **fields):
    return volume_request({**(wish or {}), **fields}, knows or known(), options, "v-new", project, "me")


def refused(error, status=400, **more):
    with pytest.raises(error) as caught:
        ask(**more)
    assert caught.value.status == status
    return caught.value.message


# --- what comes of a wish ---------------------------------------------------------------------------------------------


def test_an_empty_volume():
    found = ask(size=10, name=" data ", description="d", metadata={"a": "b"}, scheduler_hints={"same_host": "x"})
    assert (found.size, found.name, found.description, found.metadata) == (10, "data", "d", {"a": "b"})
    assert (found.volume_type, found.availability_zone, found.resource_backend) == (None, "nova", None)
    assert (found.project, found.user, found.volume_id) == ("default", "me", "v-new")
    assert found.scheduler_hints == {"same_host": "x"}
    assert not found.bootable


@pytest.mark.parametrize("alias", ["imageRef", "image", "image_id"])
def test_cinders_other_names(alias):
    found = ask({alias: "cirros", "display_name": "n", "display_description": "d"}, size=1)
    assert (found.image_id, found.name, found.description) == ("img-1", "n", "d")


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "size"),
    [
        ({"size": 7}, 7),
        ({"size": "7"}, 7),
        ({"snapshot_id": "snap-1"}, 5),
        ({"snapshot_id": "snap-1", "size": None}, 5),
        ({"snapshot_id": "snap-1", "size": 0}, 5),
        ({"snapshot_id": "snap-1", "size": 5}, 5),
        ({"snapshot_id": "snap-1", "size": 9}, 9),
        ({"source_volid": "vol-1"}, 5),
        ({"source_volid": "vol-1", "size": "6"}, 6),
        ({"image_id": "cirros", "size": 1}, 1),
    ],
)
def test_sizes(wish, size):
    assert ask(wish).size == size


@pytest.mark.parametrize(
    "size", [-1, 1.5, "1.0", " 1", "x", True, [], {"a": 1}, float("nan"), "0", 2**31, "99999999999"]
)
def test_sizes_that_are_none(size):
    refused(errors.InvalidInput, size=size)


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        ({}, "Volume size 'None' must be an integer and greater than 0"),
        ({"size": 0}, "Volume size '0' must be an integer and greater than 0"),
        ({"size": "x"}, "Invalid volume size provided for create request: x (size argument must be an integer"),
        ({"image_id": "cirros"}, "Volume size 'None' must be an integer"),
        (
            {"size": 4, "snapshot_id": "snap-1"},
            "Volume size '4'GB cannot be smaller than the snapshot size 5GB. They must be >=",
        ),
        ({"size": 4, "source_volid": "vol-1"}, "Volume size '4'GB cannot be smaller than original volume size  5GB."),
    ],
)
def test_texts_about_sizes(wish, text):
    assert text in refused(errors.InvalidInput, wish=wish)


@given(st.integers(-3, 12) | st.none(), st.integers(1, 8), st.sampled_from(["snapshot_id", "source_volid"]))
def test_never_smaller_than_the_source(size, of_source, field):
    knows = known(
        volumes={"vol-1": dataclasses.replace(SOURCE, size=of_source)},
        snapshots={"snap-1": dataclasses.replace(SNAP, volume_size=of_source)},
    )
    wish = {field: "snap-1" if field == "snapshot_id" else "vol-1", "size": size}
    if size and size < of_source:
        refused(errors.InvalidInput, wish=wish, knows=knows)
    else:
        assert ask(wish, knows=knows).size == (size or of_source)


@pytest.mark.parametrize(
    ("size", "expected"), [("2.5", 2), (2.9, 2), ("7", 7), (True, 1), (float("inf"), None), ("", None), ("x", None)]
)
def test_cinders_as_int_cuts_fractions(size, expected):
    if expected is not None:
        assert extract_size(size, None, None) == expected
        return
    with pytest.raises(errors.InvalidInput, match="must be an integer and greater than 0"):
        extract_size(size, None, None)


# --- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "size", "text"),
    [
        (IMAGE, 1, None),
        (dataclasses.replace(IMAGE, size=None), 1, None),
        (dataclasses.replace(IMAGE, size=0, min_disk=0), 1, None),
        (dataclasses.replace(IMAGE, status="queued"), 1, "Image img-1 is not active."),
        (dataclasses.replace(IMAGE, size=GIB + 1), 1, "Size of specified image 2GB is larger than volume size 1GB."),
        (dataclasses.replace(IMAGE, size=GIB + 1), 2, None),
        (dataclasses.replace(IMAGE, size=GIB + 1, disk_format="qcow2", properties={"image_type": "backup"}), 1, None),
        (
            dataclasses.replace(IMAGE, min_disk=3),
            2,
            "Volume size 2GB cannot be smaller than the image minDisk size 3GB.",
        ),
        (dataclasses.replace(IMAGE, min_disk=3), 3, None),
    ],
)
def test_images_against_the_size(image, size, text):
    if text is None:
        check_image(image, size)
        return
    with pytest.raises(errors.InvalidInput) as caught:
        check_image(image, size)
    assert caught.value.message == "Invalid input received: " + text


@pytest.mark.parametrize("name", ["", 5, [], {"id": "x"}])
def test_what_names_no_image(name):
    assert refused(errors.InvalidInput, size=1, image_id=name) == "Invalid imageRef provided."


def test_an_unknown_image():
    refused(errors.ImageNotFound, size=1, image_id="nothing")


# --- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wish",
    [
        {"snapshot_id": "snap-1", "source_volid": "vol-1"},
        {"snapshot_id": "snap-1", "image_id": "cirros"},
        {"source_volid": "vol-1", "image_id": "cirros"},
        {"source_volid": "vol-1", "image_id": "cirros", "snapshot_id": "snap-1"},
    ],
)
def test_only_one_source(wish):
    assert refused(errors.InvalidInput, wish=wish, size=9) == (
        "Invalid input received: May specify only one of backup, imageRef, snapshot, source volume"
    )


@pytest.mark.parametrize("status", ["available", "in-use", "creating", "error", "deleting", "error_extending"])
def test_a_source_volume_is_at_rest(status):
    knows = known(volumes={"vol-1": dataclasses.replace(SOURCE, status=status)})
    if status in ("available", "in-use"):
        assert ask(source_volid="vol-1", knows=knows).source_volid == "vol-1"
    else:
        assert refused(errors.InvalidVolume, source_volid="vol-1", knows=knows) == (
            "Invalid volume: Originating source volume status must be one of 'available, in-use' values"
        )


@pytest.mark.parametrize("status", ["creating", "error", "deleting"])
def test_a_snapshot_is_at_rest(status):
    knows = known(snapshots={"snap-1": dataclasses.replace(SNAP, status=status)})
    assert refused(errors.InvalidSnapshot, snapshot_id="snap-1", knows=knows) == (
        "Invalid snapshot: Originating snapshot status must be one of 'available' values"
    )


@pytest.mark.parametrize("wanted", ["nothing", "", 5, "../x"])
def test_sources_that_are_not_there(wanted):
    refused(errors.VolumeNotFound, 404, source_volid=wanted)
    refused(errors.SnapshotNotFound, 404, snapshot_id=wanted)


def test_a_copy_stays_on_its_sources_backend():
    assert ask(source_volid="vol-1").resource_backend == "h@b#p"
    assert ask(source_volid="vol-1").bootable
    assert ask(snapshot_id="snap-1").resource_backend == "h@b#p"
    assert ask(size=1).resource_backend is None


# --- zones ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "options", "zone"),
    [
        ({"size": 1}, {}, "nova"),
        ({"size": 1}, {"storage_availability_zone": "elsewhere"}, "elsewhere"),
        ({"size": 1, "availability_zone": "az1"}, {}, "az1"),
        ({"snapshot_id": "snap-1"}, {}, "az1"),
        ({"source_volid": "vol-1"}, {}, "az1"),
        ({"size": 1, "availability_zone": "mars"}, {"allow_availability_zone_fallback": True}, "nova"),
        (
            {"size": 1, "availability_zone": "mars"},
            {"allow_availability_zone_fallback": True, "storage_availability_zone": "az1"},
            "az1",
        ),
    ],
)
def test_zones(wish, options, zone):
    assert ask(wish, CreateOptions(**options)).availability_zone == zone


def test_zones_that_do_not_go():
    assert (
        refused(errors.InvalidAvailabilityZone, size=1, availability_zone="mars")
        == "Availability zone 'mars' is invalid."
    )
    refused(errors.InvalidAvailabilityZone, size=1, availability_zone=5)
    assert "same availability zone as the snapshot" in (
        refused(errors.InvalidInput, snapshot_id="snap-1", availability_zone="nova")
    )
    assert "same availability zone as the source volume" in (
        refused(errors.InvalidInput, source_volid="vol-1", availability_zone="nova")
    )


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "default", "name"),
    [
        ({"size": 9}, None, None),
        ({"size": 9}, "slow", "slow"),
        ({"size": 9, "volume_type": "fast"}, "slow", "fast"),
        ({"size": 9, "volume_type": "t-fast"}, "slow", "fast"),
        ({"source_volid": "vol-1"}, "slow", "fast"),
        ({"source_volid": "vol-1", "volume_type": "twin"}, None, "twin"),
        ({"snapshot_id": "snap-1"}, "slow", "fast"),
        ({"snapshot_id": "snap-1", "volume_type": "twin"}, None, "twin"),
    ],
)
def test_types(wish, default, name):
    found = ask(wish, CreateOptions(default_volume_type=default)).volume_type
    assert (found and found.name) == name


def test_an_image_may_name_a_type(monkeypatch):
    for named, expected in (("fast", "fast"), ("gone", "slow"), (None, "slow")):
        monkeypatch.setitem(IMAGES, "cirros", dataclasses.replace(IMAGE, properties={"cinder_img_volume_type": named}))
        found = ask(size=1, image="cirros", options=CreateOptions(default_volume_type="slow"))
        assert found.volume_type.name == expected
    assert ask(size=1, image="cirros", volume_type="twin").volume_type.name == "twin"


@pytest.mark.parametrize(("project", "expected"), [("default", "slow"), ("friends", "hidden")])
def test_an_image_names_a_type_that_the_project_may_use(monkeypatch, project, expected):
    monkeypatch.setitem(IMAGES, "cirros", dataclasses.replace(IMAGE, properties={"cinder_img_volume_type": "hidden"}))
    found = ask(size=1, image="cirros", options=CreateOptions(default_volume_type="slow"), project=project)
    assert found.volume_type.name == expected


@pytest.mark.parametrize("named", [["fast"], {"a": 1}, 5])
def test_an_image_that_names_no_type_at_all(monkeypatch, named):
    monkeypatch.setitem(IMAGES, "cirros", dataclasses.replace(IMAGE, properties={"cinder_img_volume_type": named}))
    assert ask(size=1, image="cirros").volume_type is None


def test_types_that_do_not_go():
    assert refused(errors.VolumeTypeNotFound, 404, size=1, volume_type="gone") == (
        "Volume type with name gone could not be found."
    )
    refused(errors.VolumeTypeNotFound, 404, size=1, volume_type="hidden")
    assert ask(size=1, volume_type="hidden", project="friends").volume_type.name == "hidden"
    assert "(requested type is not compatible; either match source volume, or omit type argument)" in (
        refused(errors.InvalidInput, source_volid="vol-1", volume_type="slow")
    )
    assert "recommend omitting the type argument" in refused(
        errors.InvalidInput, snapshot_id="snap-1", volume_type="slow"
    )
    assert ask(source_volid="vol-1", volume_type="slow", knows=known(backends=1)).volume_type.name == "slow"


def test_a_source_of_a_type_that_is_gone_keeps_its_name():
    knows = known(volumes={"vol-1": dataclasses.replace(SOURCE, volume_type="gone")})
    assert ask(source_volid="vol-1", knows=knows).volume_type == VolumeType("gone")


@pytest.mark.parametrize(
    ("wish", "multiattach"),
    [({}, False), ({"multiattach": True}, True), ({"multiattach": "yes"}, True), ({"volume_type": "multi"}, True)],
)
def test_multiattach(wish, multiattach):
    assert ask(wish, size=1).multiattach is multiattach


# --- texts and metadata -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["name", "description"])
def test_names_and_descriptions(field):
    assert getattr(ask({field: "x" * 255}, size=1), field) == "x" * 255
    assert getattr(ask({field: None}, size=1), field) == ""
    assert "%s has 256 characters, more than 255." % field in refused(
        errors.InvalidInput, wish={field: "x" * 256}, size=1
    )
    assert "%s is not a string" % field in refused(errors.InvalidInput, wish={field: 5}, size=1)


@pytest.mark.parametrize(
    ("metadata", "error", "text"),
    [
        ([1], errors.InvalidInput, "Metadata should be a dict."),
        ({"": "x"}, errors.InvalidVolumeMetadata, "Metadata key:  has 0 characters, less than 1."),
        ({"k": 5}, errors.InvalidVolumeMetadata, "Value for metadata key: k is not a string"),
        ({5: "v"}, errors.InvalidVolumeMetadata, "Metadata key: 5 is not a string"),
        ({"k" * 256: "v"}, errors.InvalidVolumeMetadataSize, "greater than 255 characters"),
        (
            {"k": "v" * 256},
            errors.InvalidVolumeMetadataSize,
            "Metadata property key k value greater than 255 characters.",
        ),
    ],
)
def test_metadata_that_is_none(metadata, error, text):
    assert text in refused(error, size=1, metadata=metadata)


def test_metadata_at_its_limits():
    wish = {"k" * 255: "v" * 255, "empty": ""}
    assert ask(size=1, metadata=wish).metadata == wish


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"sice": 1}, errors.InvalidInput),
        ({"size": 1, "source_replica": "x"}, errors.InvalidInput),
        ({"size": 1, "backup_id": "x"}, errors.NotSupportedYet),
        ({"size": 1, "group_id": "x"}, errors.NotSupportedYet),
        ({"size": 1, "name": "a", "display_name": "b"}, errors.InvalidInput),
        ({"size": 1, "scheduler_hints": "x"}, errors.InvalidInput),
        ({"size": 1, "multiattach": "perhaps"}, errors.InvalidInput),
    ],
)
def test_fields_that_do_not_go(wish, error):
    refused(error, wish=wish)


# --- the catalogue ----------------------------------------------------------------------------------------------------


def test_types_of_the_inventory():
    found = read_volume_types({"fast": {"extra_specs": {"medium": "ssd", "count": 5}}, "plain": None})
    assert list(found) == ["fast", "plain"]
    assert found.get("fast").extra_specs == {"medium": "ssd", "count": "5"}
    assert found.get(found.get("plain").id).name == "plain"
    assert len(read_volume_types(None)) == 0
    same = read_volume_types([{"name": "fast", "is_public": False, "projects": ["p"]}])
    assert same.get("fast", "p").id == found.get("fast").id


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ("x", "volume_types"),
        ([{"extra_specs": {}}], "volume_types[0].name"),
        ([{"name": "a"}, {"name": "a"}], "volume_types[a].name"),
        ([{"name": "a", "id": "1"}, {"name": "b", "id": "1"}], "volume_types[b].id"),
        ([{"name": "a", "extra_spec": {}}], "volume_types[a].extra_spec"),
        ({"a": {"extra_specs": {"provisioning:type": "fat"}}}, "volume_types[a].extra_specs"),
        ({"a": {"extra_specs": {"k": []}}}, "volume_types[a].extra_specs"),
        ({"a": {"is_public": "perhaps"}}, "volume_types[a].is_public"),
    ],
)
def test_a_wrong_catalogue_is_refused_with_its_place(data, path):
    with pytest.raises(errors.InvalidRequest) as caught:
        read_volume_types(data)
    assert [e["path"] for e in caught.value.errors] == [path]


# --- multiattach ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["default", "image", "source_volid", "snapshot_id"])
def test_multiattach_wherever_the_type_comes_from(monkeypatch, origin):
    monkeypatch.setitem(IMAGES, "multi", dataclasses.replace(IMAGE, properties={"cinder_img_volume_type": "multi"}))
    knows = known(
        volumes={"vol-1": dataclasses.replace(SOURCE, volume_type="multi")},
        snapshots={"snap-1": dataclasses.replace(SNAP, volume_type="multi")},
    )
    wish = {"size": 9}
    if origin != "default":
        wish[origin] = {"image": "multi", "source_volid": "vol-1", "snapshot_id": "snap-1"}[origin]
    default = "multi" if origin == "default" else None
    assert ask(wish, CreateOptions(default_volume_type=default), knows).multiattach


def test_no_multiattach_may_be_written_as_null():
    assert ask(size=1, multiattach=None).multiattach is False


# --- bad data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [None, [], "x", 5])
def test_an_entry_is_a_mapping(entry):
    with pytest.raises(errors.InvalidInput, match="a volume must be a mapping of its fields"):
        volume_request(entry, known())


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_texts_that_no_database_keeps(text):
    with pytest.raises(errors.InvalidInput, match="name has a NUL or half a surrogate pair in it"):
        check_text(text, "name")
    refused(errors.InvalidInput, size=1, description=text)
    refused(errors.InvalidVolumeMetadata, size=1, metadata={"a": text})
    refused(errors.InvalidVolumeMetadata, size=1, metadata={text: "a"})


@pytest.mark.parametrize("wanted", [[], {}, 5, True, ["fast"], {"name": "fast"}])
def test_what_names_no_type(wanted):
    if wanted:
        refused(errors.VolumeTypeNotFound, 404, size=1, volume_type=wanted)
    else:
        assert ask(size=1, volume_type=wanted).volume_type is None


def test_extra_specs_have_at_most_255_characters():
    assert read_volume_types([{"name": "a", "extra_specs": {"k" * 255: "v" * 255}}])
    for specs in ({"k": "v" * 256}, {"k" * 256: "v"}):
        with pytest.raises(errors.InvalidRequest):
            read_volume_types([{"name": "a", "extra_specs": specs}])


def test_a_type_of_a_bad_name_is_an_error_like_others():
    with pytest.raises(errors.InvalidRequest, match="not printable"):
        read_volume_types([{"name": "\ud800"}])
