"""This machine, and what is read of files that another kernel may lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.host.counters import PAGE_BYTES, counters, datagrams_dropped
from pubstorm.measure.monitors.host import HostMonitor

SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RetransSegs InErrs
Tcp: 1 200 1234 0
"""
NETSTAT = """\
TcpExt: SyncookiesSent ListenOverflows ListenDrops
TcpExt: 0 77 78
IpExt: InNoRoutes
IpExt: 0
"""
SOCKSTAT = "sockets: used 160\nTCP: inuse 40 orphan 0 tw 3 alloc 50 mem 4\n"
KERNEL = {
    *("tcp_retransmits", "tcp_listen_overflows", "tcp_sockets", "tcp_buffer_bytes"),
    *("slab_bytes", "kernel_bytes", "conntrack", "conntrack_max"),
}


def read(host: HostMonitor) -> dict[str, float]:
    return {reading.metric: reading.value for reading in host.read()}


def test_the_machine_is_read_as_shares_of_all_cores_and_rates() -> None:
    host = HostMonitor()
    host.start()
    found: dict[str, float] = {}
    while "cpu" not in found:
        found = read(host)
    assert 0 <= found["cpu_user"] + found["cpu_system"] + found["cpu_softirq"] <= 1.001
    assert found["cpu"] <= 1
    assert found["memory_used_bytes"] > 0
    assert found["memory_available_bytes"] > 0
    assert found["load1"] >= 0
    assert found["net_sent_bytes_per_s"] >= 0


def test_the_kernels_counters_are_read_where_they_are(tmp_path: Path) -> None:
    net, filters = tmp_path / "net", tmp_path / "sys" / "net" / "netfilter"
    net.mkdir()
    filters.mkdir(parents=True)
    for name, text in {"snmp": SNMP, "netstat": NETSTAT, "sockstat": SOCKSTAT}.items():
        (net / name).write_text(text)
    (net / "sockstat6").write_text("TCP6: inuse 2\nUDP6: inuse 0\n")
    (filters / "nf_conntrack_count").write_text("17\n")
    meminfo = "MemTotal: 24000 kB\nSlab: 500 kB\nSReclaimable: 400 kB\nSUnreclaim: 100 kB\n"
    (tmp_path / "meminfo").write_text(meminfo)
    found = read(HostMonitor(count=lambda: counters(tmp_path)))
    assert found["tcp_retransmits"] == 1234
    assert found["tcp_listen_overflows"] == 77
    assert found["tcp_sockets"] == 42
    assert found["conntrack"] == 17
    assert found["slab_bytes"] == 512_000
    # Inodes and directory entries of 160 sockets count as reclaimable, though sockets hold them.
    assert found["kernel_bytes"] == 102_400 + 160 * 1057
    assert found["tcp_buffer_bytes"] == 4 * PAGE_BYTES
    assert "conntrack_max" not in found


def test_dropped_datagrams_of_both_families_add_up(tmp_path: Path) -> None:
    assert datagrams_dropped(tmp_path) is None
    (tmp_path / "net").mkdir()
    snmp = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 9 1 4 9 3\n"
    (tmp_path / "net" / "snmp").write_text(snmp)
    assert datagrams_dropped(tmp_path) == 3
    (tmp_path / "net" / "snmp6").write_text("Udp6InErrors 5\nUdp6RcvbufErrors\t4\n")
    assert datagrams_dropped(tmp_path) == 7


def test_disk_traffic_of_the_host_is_a_rate(tmp_path: Path) -> None:
    host, file = HostMonitor(count=lambda: counters(tmp_path)), tmp_path / "vmstat"
    file.write_text("nr_free_pages 7\npgpgin 100\npgpgout 200\n")
    assert "disk_read_bytes_per_s" not in read(host)
    file.write_text("nr_free_pages 7\npgpgin 100\npgpgout 4200\n")
    found = read(host)
    assert found["disk_read_bytes_per_s"] == 0
    assert found["disk_written_bytes_per_s"] >= 0
    file.unlink()
    assert "disk_read_bytes_per_s" not in read(host)


@pytest.mark.parametrize("text", [None, "", "Tcp: RetransSegs\n", "Tcp: Other\nTcp: 1\n"])
def test_what_a_kernel_does_not_show_is_left_out(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "net").mkdir()
        for name in ("snmp", "netstat", "sockstat"):
            (tmp_path / "net" / name).write_text(text)
    found = read(HostMonitor(count=lambda: counters(tmp_path)))
    assert not found.keys() & KERNEL
    assert "load1" not in found
