# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of a snapshot: the name and properties of the image, and whether the guest's file systems stand still meanwhile.

source: Nova's createImage, API.snapshot and the libvirt driver's snapshot
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import (
    HostUnreachable,
    ImageExists,
    InvalidAnswer,
    InvalidInput,
    InvalidMetadata,
    MetadataLimitExceeded,
    QemuGuestAgentNotEnabled,
)
from ..guest.constraints import is_true
from ..instances import states
from ..instances.quotas import METADATA_ITEMS
from ..reading.formats import check_name
from ..reading.limits import UNLIMITED
from .image import StoredImage
from .quiesce import NO, REQUIRE, TRY
from .snapshot_properties import NON_INHERITABLE, SNAPSHOT, inherited, properties_of_instance
from .stores.store_kind import ImageStore

#: Of an answer: false where its host has said that the store has nothing of a failed image.
LEFT = "left"
#: Of an answer: ids of deleted images whose files are gone from the store.
REMOVED = "removed"

#: Of a snapshot's name: the name of the instance.
INSTANCE_NAME = "%(name)s"
Answer = t.Mapping[str, t.Any]
Answers = t.Dict[str, Answer]  # by the uuids of instances
LONGEST = 255  # characters of a name, and of the key and the value of a property


@dataclass(frozen=True)
class SnapshotRequest:
    """The snapshots of one run. ``name``: of the images, with INSTANCE_NAME where there are several. ``extra``: properties that a person gives"""

    name: str
    store: ImageStore
    extra: t.Mapping[str, str]
    non_inheritable: t.Sequence[str] = NON_INHERITABLE

    variable: t.ClassVar[str] = "bootflow_snapshot_name"
    noun: t.ClassVar[str] = "snapshot"

    def name_of(self, instance_name: str) -> str:
        """Return the name of the image of an instance. :raises InvalidInput: it cannot be one"""
        name = self.name.replace(INSTANCE_NAME, instance_name)
        try:
            if not 1 <= len(name) <= LONGEST:
                raise ValueError("must have 1 to %d characters, has %d" % (LONGEST, len(name)))
            check_name(name)
        except ValueError as error:
            raise InvalidInput(
                message="%s of instance %s: %s" % (self.variable, instance_name, error),
                remedy="Give a name of printable characters.",
            ) from None
        return name

    def check_count(self, count: int) -> None:
        """:raises InvalidInput: several images would have the same name."""
        if count > 1 and INSTANCE_NAME not in self.name:
            raise InvalidInput(
                message="%d instances are selected, and %s is one name" % (count, self.variable),
                remedy="Write %s in it, as in '%s-before-upgrade': that is the name of the instance."
                % (INSTANCE_NAME, INSTANCE_NAME),
            )

    def check_quota(self, limits: t.Mapping[str, int]) -> None:
        """:arg limits: of a project, see instances.quotas.limits_of(). :raises MetadataLimitExceeded: too many properties are given."""
        allowed = limits[METADATA_ITEMS]
        if allowed != UNLIMITED and len(self.extra) > allowed:
            raise MetadataLimitExceeded(allowed=allowed)

    def check_volume_backed(self, instance_name: str, instance_uuid: str, vm_state: str) -> None:
        """Check that there may be an image of an instance whose root is a volume. :raises InstanceInvalidState: it is paused"""
        states.check_action("snapshot_volume_backed", vm_state, None, True, False, instance_uuid)

    def existing_of(self, named: t.Sequence[StoredImage], instance_name: str, instance_uuid: str) -> StoredImage | None:
        """Return the image of the instance that need not be made again. :arg named: active images of its name in the project

        :raises ImageExists: the name is that of another image.
        """
        if len(named) == 1 and is_of(named[0], instance_uuid, SNAPSHOT):
            return named[0]
        if named:
            raise self.exists(named[0], instance_name)
        return None

    def exists(self, image: StoredImage, instance_name: str) -> ImageExists:
        """Return the error of a name that another image has."""
        return ImageExists(
            name=image.name,
            image_id=image.id,
            has="other content",
            wanted="a %s of instance %s" % (self.noun, instance_name),
        )

    def properties_of(
        self, inherited_properties: t.Mapping[str, t.Any], instance_uuid: str, user: str
    ) -> dict[str, t.Any]:
        """Return the properties of an image."""
        return properties_of_instance(inherited_properties, instance_uuid, user, self.extra)

    def image_of(
        self,
        image_id: str,
        instance_name: str,
        instance_uuid: str,
        project: str,
        user: str,
        spec: t.Mapping[str, t.Any],
    ) -> StoredImage:
        """Return the image of an instance, without bytes. :arg spec: the instance's request: ``image`` and ``flavor``"""
        own = inherited(spec["image"], int(spec["flavor"]["root_gb"]), self.non_inheritable)
        return StoredImage(
            id=image_id,
            name=self.name_of(instance_name),
            project=project,
            user=user,
            min_disk=own.min_disk,
            min_ram=own.min_ram,
            properties=self.properties_of(own.properties, instance_uuid, user),
            instance_uuid=instance_uuid,
        )


def read_request(
    name: str | None,
    store: ImageStore,
    extra: t.Mapping[str, t.Any] | None,
    non_inheritable: t.Sequence[str] = NON_INHERITABLE,
) -> SnapshotRequest:
    """The request of a run.

    :arg extra: bootflow_snapshot_properties
    :raises InvalidInput: the name is missing. :raises InvalidMetadata: a property is not a text, or is too long.
    """
    return SnapshotRequest(read_name(SnapshotRequest.variable, name), store, read_extra(extra), non_inheritable)


def read_name(variable: str, name: str | None) -> str:
    """Return the name of images. :raises InvalidInput: it is missing"""
    if not name:
        raise InvalidInput(
            message="%s is not set" % variable,
            remedy="Name the image; %s in the name is the name of the instance." % INSTANCE_NAME,
        )
    return str(name)


def read_extra(extra: t.Mapping[str, t.Any] | None) -> dict[str, str]:
    """Return the properties that a person gives. :raises InvalidMetadata: one is not a text, or is too long"""
    return {str(k): _text(k, v) for k, v in (extra or {}).items()}


def _text(key: t.Any, value: t.Any) -> str:
    """:raises InvalidMetadata: the key or the value is not a text of fitting length."""
    if not isinstance(value, (str, int, float)):
        raise InvalidMetadata(reason="bootflow_snapshot_properties: %s must be a text" % key)
    if not 1 <= len(str(key)) <= LONGEST or len(str(value)) > LONGEST:
        raise InvalidMetadata(
            reason="bootflow_snapshot_properties: %.40s: a key has 1 to %d characters, a value at most %d"
            % (key, LONGEST, LONGEST)
        )
    return str(value)


def is_of(image: StoredImage, instance_uuid: str, image_type: str) -> bool:
    """Whether an image is of this instance and of this type."""
    return image.instance_uuid == instance_uuid and image.properties.get("image_type") == image_type


def with_received(
    answers: Answers, outcomes: t.Mapping[str, Answer] | None, wanted: t.Collection[str], store_host: str
) -> Answers:
    """Return the answers of the instances' hosts, with what became of the files that the host of the store receives.

    :arg outcomes: of that host, by the uuids of instances; None: it answered nothing. :arg wanted: the instances whose files it was to receive
    """
    received = {uuid: (outcomes or {}).get(uuid) for uuid in wanted}
    merged = dict(answers)
    for uuid, outcome in received.items():
        if answers[uuid].get("error"):
            continue
        if outcome is None:
            error = HostUnreachable(host=store_host, reason="it returned no result about the image of its store")
            merged[uuid] = {**answers[uuid], "error": error.as_dict()}
        elif outcome.get("error"):
            known = {LEFT: False} if outcome.get(LEFT) is False else {}
            merged[uuid] = {**answers[uuid], **known, "error": outcome["error"]}
    return merged


def check_received(host: str, image_id: str, made: Answer, received: Answer) -> None:
    """Check the answer of the host of a store against that of the instance's host. :raises InvalidAnswer: it cannot have written this file"""
    for name in ("size", "checksum"):
        if received.get(name) != made.get(name):
            raise InvalidAnswer(
                host=host,
                module="image_file",
                path="outcomes[%s].%s" % (image_id, name),
                expects=str(made.get(name)),
                got=repr(received.get(name)),
            )


def quiesce_of(instance_name: str, properties: t.Mapping[str, t.Any], vm_state: str) -> str:
    """Return one of quiesce.QUIESCES. :arg properties: of the instance's image

    :raises QemuGuestAgentNotEnabled: the image requires it, and does not say that its guests have an agent.
    source: Nova's _set_quiesced and _can_quiesce
    """
    required, agent = is_true(properties.get("os_require_quiesce")), is_true(properties.get("hw_qemu_guest_agent"))
    if vm_state != states.ACTIVE:  # the agent of a guest that stands still does not answer
        return NO
    if required and not agent:
        raise QemuGuestAgentNotEnabled(message="QEMU guest agent is not enabled: %s" % instance_name)
    return REQUIRE if required else TRY if agent else NO
