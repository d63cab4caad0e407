# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups and their rules, by whole playbooks."""

from __future__ import annotations

from simulated_site import Site

RULE = {"security_group": "web", "direction": "ingress", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80}


def test_groups_and_rules_are_made_shown_and_deleted(site: Site) -> None:
    groups = [{"name": "web", "description": "Web servers"}]
    assert "Would create:" in site.play("security_group_create", "--check", security_groups=groups)
    assert site.query("SELECT id FROM security_groups") == []
    assert "Create:" in site.play("security_group_create", security_groups=groups)
    assert "changed=0" in site.play("security_group_create", security_groups=groups)
    assert "tcp 80-80" in site.play("security_group_rule_create", security_group_rules=[RULE])
    assert "changed=0" in site.play("security_group_rule_create", security_group_rules=[RULE])
    same = {**RULE, "remote_ip_prefix": "0.0.0.0/0"}
    assert "SecurityGroupRuleExists" in site.play("security_group_rule_create", security_group_rules=[same], expect=2)
    assert "Web servers" in site.play("security_group_list")
    assert "tcp 80-80" in site.play("security_group_show", security_group_names=["web"])
    (rule,) = site.query("SELECT id FROM security_group_rules WHERE protocol = ?", "tcp")
    assert "Delete:" in site.play("security_group_rule_delete", security_group_rule_ids=[rule["id"]])
    change = [{"security_group": "web", "name": "front"}]
    assert "name: front" in site.play("security_group_update", security_groups=change)
    assert "front of project default" in site.play("security_group_delete", security_group_names=["front"])
    refused = site.play("security_group_delete", security_group_names=["default"], expect=2)
    assert "SecurityGroupCannotRemoveDefault" in refused
