"""Settings of the kernel for many connections: the value that a plan wants, and the reason."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe import tuning_in_words
from pubstorm.contract.plan import Plan
from pubstorm.host.preflight import HostLimits, needs
from pubstorm.host.preflight.need import script
from pubstorm.host.preflight.tuning import TUNED, Setting, tuning, tuning_in_need
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.topology.adapters import appetite_of

SETTINGS = {
    "ulimit -n": "20000",
    "net.core.netdev_max_backlog": "1000",
    "net.core.somaxconn": "128",
    "net.ipv4.ip_local_port_range": "32768 60999",
    "net.ipv4.tcp_fin_timeout": "60",
    "net.ipv4.tcp_max_tw_buckets": "4096",
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait": "120",
}
HOST = HostLimits(
    descriptors=20_000,
    system_descriptors=10**7,
    ports=28_232,
    memory_bytes=2**34,
    cores=4,
    accept_backlog=128,
    tracked_connections=40_000,
    settings=SETTINGS,
)


def plan_of(clients: int, lifetime: str = "never", leave: str = "100/s") -> Plan:
    text = f"""\
topology: {{brokers: {{b: embedded}}}}
populations:
  c:
    clients: {clients}
    lifetime: {lifetime}
    publications: [{{topic: t, rate: 1/s}}]
stages: [{{connect: {{rate: 5k/s}}}}, {{publish: 10s}}, {{disconnect: {{rate: {leave}}}}}]
"""
    return provisional_plan(parse_scenario(text, "s.yaml"))


def found(plan: Plan, host: HostLimits = HOST) -> dict[str, Setting]:
    needed = needs(plan, host, agents=1, brokers={appetite_of("embedded"): 1})
    return {setting.name: setting for setting in tuning(plan, host, needed)}


def test_all_eighteen_settings_have_a_value_and_a_reason() -> None:
    every = found(plan_of(1000))
    assert len(every) == 18
    assert every.keys() == {tuned.name for tuned in TUNED}
    assert all(setting.reason for setting in every.values())
    lines = [*tuning_in_words([*every.values()], every=True)]
    assert sum(" wanted: " in line for line in lines) == 18
    unknown = next(line for line in lines if "fs.nr_open" in line)
    assert "fs.nr_open = not on this kernel" in unknown


@pytest.mark.parametrize(
    ("plan", "name", "wanted"),
    [
        (plan_of(1000), "net.core.somaxconn", 500),
        (plan_of(1000), "ulimit -n", 1200),
        (plan_of(1000), "net.ipv4.tcp_max_tw_buckets", 1000),
        (plan_of(19_000), "net.ipv4.tcp_max_tw_buckets", 6000),
        (plan_of(19_000, leave="1000/s"), "net.ipv4.tcp_max_tw_buckets", 19_000),
        (plan_of(1000), "net.ipv4.tcp_fin_timeout", None),
        # 950 clients leave each second, and of two addresses 2 * 28 232 - 19 000 ports are spare.
        (plan_of(19_000, "{from: 20s, offline: 0s}"), "net.ipv4.tcp_fin_timeout", 39),
        (
            plan_of(19_000, "{from: 20s, offline: 0s}"),
            "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
            22,
        ),
        # Two packets a message and eight a connection, in 10 ms.
        (plan_of(10_000), "net.core.netdev_max_backlog", 600),
        (plan_of(1000), "net.ipv4.tcp_rmem", None),
    ],
)
def test_the_wanted_value_follows_from_the_plan(plan: Plan, name: str, wanted: int | None) -> None:
    assert found(plan)[name].wanted == wanted


def test_a_setting_that_is_too_small_or_too_large_is_to_be_tuned() -> None:
    every = found(plan_of(19_000, "{from: 20s, offline: 0s}"))
    low = {name for name, setting in every.items() if not setting.is_met}
    assert low == {
        "net.core.somaxconn",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_max_tw_buckets",
        "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
    }
    lines = [*tuning_in_words([*every.values()], every=False)]
    assert lines[-1] == "  14 of 18 settings suit this plan; --tuning lists them"
    (line,) = (line for line in lines if line.startswith("  tune   net.ipv4.tcp_fin_timeout"))
    assert line.startswith(
        "  tune   net.ipv4.tcp_fin_timeout = 60, wanted: at most 39; clients that"
    )


def test_the_script_of_fixes_has_each_with_its_reason_once() -> None:
    plan = plan_of(19_000, "{from: 20s, offline: 0s}")
    settings = [*found(plan).values()]
    needed = needs(plan, HOST, agents=1, brokers={appetite_of("embedded"): 1})
    more = tuning_in_need(settings)
    covered = {tuned.name for tuned in TUNED if tuned.is_limit}
    assert not {need.command.name for need in more if need.command} & covered
    text = script("s", [*needed, *more])
    assert "\nsysctl -w net.ipv4.tcp_fin_timeout=39\n" in text
    assert "(clients that come and go leave half-closed connections" in text
    assert "39 needed, 60 there" in text
    assert text.count("sysctl -w net.core.somaxconn=") == 1


def test_this_machine_is_read() -> None:
    here = HostLimits.here(each.name for each in TUNED).settings
    assert int(here["ulimit -n"]) > 0
    assert here["net.ipv4.ip_local_port_range"].count(" ") == 1
