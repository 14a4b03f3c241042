"""What Pacemaker would do with the shipped configuration when something happens, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.simulated import Simulated

pytestmark = pytest.mark.tools
VIP = "understudy-vip"


def test_nothing_is_promoted_before_an_agent_has_said_that_its_copy_may_be(
    crmsh: tuple[Path, str], tmp_path: Path
) -> None:
    cluster = Simulated(crmsh[0], tmp_path)
    started = cluster.happens("--node-up", "a", "--node-up", "b")
    assert {"start understudy on a", "start understudy on b"} <= set(started.done)
    assert not [action for action in started.done if "promote" in action or f"start {VIP}" in action]
    cluster.scores(a="-INFINITY", b="-INFINITY")
    assert cluster.happens().done == []
    cluster.scores(a="-INFINITY", b=100)
    promoted = cluster.happens()
    assert promoted.done == ["promote understudy on b", f"start {VIP} on b"]
    assert promoted.comes_after(f"start {VIP} on b", "promote understudy on b")


def test_the_better_copy_is_promoted(crmsh: tuple[Path, str], tmp_path: Path) -> None:
    cluster = Simulated(crmsh[0], tmp_path)
    cluster.happens("--node-up", "a", "--node-up", "b")
    cluster.scores(a=100, b=110)
    assert cluster.happens().done == ["promote understudy on b", f"start {VIP} on b"]


def test_a_node_with_the_primary_is_lost(cluster: Simulated) -> None:
    lost = cluster.happens("--node-fail", "a")
    assert [step for step in lost.done if "fence-" not in step] == [
        "fence a", "promote understudy on b", f"start {VIP} on b"
    ]  # fmt: skip
    assert lost.comes_after("promote understudy on b", "fence a"), "not before the fencing has succeeded"
    assert lost.comes_after(f"start {VIP} on b", "promote understudy on b")
    assert (cluster.role("b"), cluster.place(VIP)) == ("Promoted", "b")


def test_the_node_with_the_primary_has_the_lead_in_a_partition(
    crmsh: tuple[Path, str], tmp_path: Path
) -> None:
    for lost, delay in (("a", "3"), ("b", "0")):
        cluster = Simulated(crmsh[0], tmp_path).whole()
        assert cluster.happens("--node-fail", lost).delays == {lost: delay}


def test_a_node_with_the_backup_is_lost(cluster: Simulated) -> None:
    lost = cluster.happens("--node-fail", "b")
    assert [step for step in lost.done if "fence-" not in step] == ["fence b"]
    assert (cluster.role("a"), cluster.place(VIP)) == ("Promoted", "a")


@pytest.mark.parametrize("code", [7, 1, 9])
def test_a_primary_that_dies_is_replaced_at_once_and_started_again(cluster: Simulated, code: int) -> None:
    cluster.scores(a="-INFINITY", b=500)
    died = cluster.happens("--op-inject", f"understudy_monitor_1000@a={code}")
    assert died.done == [
        f"stop {VIP} on a", "demote understudy on a", "promote understudy on b", f"start {VIP} on b"
    ]  # fmt: skip
    assert died.comes_after("demote understudy on a", f"stop {VIP} on a")
    assert died.comes_after("promote understudy on b", "demote understudy on a")
    assert (cluster.role("b"), cluster.place(VIP)) == ("Promoted", "b")
    cluster.scores(a="-INFINITY", b=1000)
    back = cluster.happens("--op-inject", "understudy_monitor_2000@a=7")
    assert back.done == ["stop understudy on a", "start understudy on a"]
    assert (cluster.role("a"), cluster.role("b")) == ("Unpromoted", "Promoted")


def test_a_primary_on_its_own_that_dies_is_started_and_promoted_again(cluster: Simulated) -> None:
    cluster.happens("--node-fail", "b")
    cluster.scores(a="-INFINITY")
    died = cluster.happens("--op-inject", "understudy_monitor_1000@a=7")
    assert died.done == [f"stop {VIP} on a", "demote understudy on a"]
    assert cluster.happens("--op-inject", "understudy_monitor_2000@a=7").done == [
        "stop understudy on a", "start understudy on a"
    ]  # fmt: skip
    cluster.scores(a=110)
    assert cluster.happens().done == ["promote understudy on a", f"start {VIP} on a"]


def test_the_only_copy_may_die_twice_within_a_minute(cluster: Simulated) -> None:
    """Each of its deaths counts twice, for its monitor as primary and for the one as backup."""
    cluster.happens("--node-fail", "b")
    for _death in range(2):
        cluster.scores(a="-INFINITY")
        assert "demote understudy on a" in cluster.happens("--op-inject", "understudy_monitor_1000@a=7").done
        cluster.happens("--op-inject", "understudy_monitor_2000@a=7")
        cluster.scores(a=110)
        assert cluster.happens().done == ["promote understudy on a", f"start {VIP} on a"]


def test_a_backup_that_dies_is_started_again_and_nothing_else_happens(cluster: Simulated) -> None:
    cluster.scores(a=1000, b="-INFINITY")
    died = cluster.happens("--op-inject", "understudy_monitor_2000@b=7")
    assert died.done == ["stop understudy on b", "start understudy on b"]


def test_an_undemotable_primary_is_stopped_before_the_other_is_promoted(cluster: Simulated) -> None:
    cluster.scores(a="-INFINITY", b=500)
    inject = ("--op-inject", "understudy_monitor_1000@a=1", "--op-fail", "understudy_demote_0@a=1")
    assert "promote understudy on b" not in cluster.happens(*inject).done
    then = cluster.happens()
    assert then.comes_after("promote understudy on b", "stop understudy on a")
    assert cluster.role("b") == "Promoted"


def test_a_primary_that_cannot_even_be_stopped_is_fenced_first(cluster: Simulated) -> None:
    cluster.scores(a="-INFINITY", b=500)
    inject = ("--op-inject", "understudy_monitor_1000@a=1", "--op-fail", "understudy_demote_0@a=1")
    cluster.happens(*inject)
    stuck = cluster.happens("--op-fail", "understudy_stop_0@a=1")
    assert "promote understudy on b" not in stuck.done
    then = cluster.happens()
    assert then.comes_after("promote understudy on b", "fence a")
    assert (cluster.role("b"), cluster.place(VIP)) == ("Promoted", "b")


@pytest.mark.parametrize("code", [1, 9])
def test_the_last_copy_is_not_restarted_for_a_promotion_that_has_failed(
    cluster: Simulated, code: int
) -> None:
    """Started again it would have all but what tells that it lacks nothing: nobody could be promoted without
    the node that is gone."""
    failed = cluster.happens("--node-fail", "a", "--op-fail", f"understudy_promote_0@b={code}")
    assert "promote understudy on b" in failed.done
    assert cluster.happens().done == ["demote understudy on b"]
    assert cluster.happens().done == ["promote understudy on b", f"start {VIP} on b"]


def test_nothing_moves_back_by_itself(cluster: Simulated) -> None:
    cluster.happens("--node-fail", "a")
    cluster.scores(b=1000)
    back = cluster.happens("--node-up", "a")
    assert not [action for action in back.done if "promote" in action or "demote" in action or VIP in action]
    for score in (500, 1000):
        cluster.scores(a=score, b=1000)
        assert cluster.happens().done == []
    assert (cluster.role("b"), cluster.place(VIP)) == ("Promoted", "b")


def test_a_planned_switchover_takes_the_address_down_first(cluster: Simulated) -> None:
    cluster.configured("crm_resource", "--ban", "--resource", "understudy-clone", "--promoted", "--node", "a")
    moved = cluster.happens()
    assert moved.done == [
        f"stop {VIP} on a", "demote understudy on a", "promote understudy on b", f"start {VIP} on b"
    ]  # fmt: skip
    assert moved.comes_after("demote understudy on a", f"stop {VIP} on a")
    cluster.scores(a=500, b=1000)
    cluster.configured("crm_resource", "--clear", "--resource", "understudy-clone")
    assert cluster.happens().done == []
    assert (cluster.role("a"), cluster.role("b")) == ("Unpromoted", "Promoted")


def test_nothing_is_done_in_maintenance_mode(cluster: Simulated) -> None:
    mode = ("crm_attribute", "--type", "crm_config", "--name", "maintenance-mode")
    cluster.configured(*mode, "--update", "true")
    cluster.scores(a="-INFINITY", b=500)
    assert cluster.happens("--op-inject", "understudy_monitor_1000@a=7").done == []
    cluster.configured(*mode, "--delete")
    assert "promote understudy on b" in cluster.happens().done


def test_a_node_on_standby_hands_over_and_stops_its_broker(cluster: Simulated) -> None:
    cluster.configured("crm_standby", "--node", "a", "--update", "on")
    left = cluster.happens()
    assert left.comes_after("stop understudy on a", "demote understudy on a")
    assert left.comes_after("promote understudy on b", "demote understudy on a")
    assert (cluster.role("a"), cluster.role("b")) == ("Stopped", "Promoted")
    cluster.scores(b=1000)
    cluster.configured("crm_standby", "--node", "a", "--delete")
    assert "start understudy on a" in cluster.happens().done
    assert (cluster.role("a"), cluster.role("b")) == ("Unpromoted", "Promoted")


def test_without_quorum_all_stops_and_nobody_is_fenced(cluster: Simulated) -> None:
    cut_off = cluster.happens("--quorum", "0", "--node-fail", "b")
    assert not [action for action in cut_off.done if action.startswith(("fence", "promote"))]
    assert {f"stop {VIP} on a", "demote understudy on a", "stop understudy on a"} <= set(cut_off.done)
