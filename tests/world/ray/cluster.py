"""A cluster of real Ray nodes on this machine. Each has a network, processes and a clock of its
own, so that a host can be killed, its cable pulled and its clock wrong. A bridge in a namespace of
its own joins them; nothing of it is reached from outside. `pubstorm ray-keys` makes their keys."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest

from pubstorm import cli

MARKS = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.concerns(
        "crates/agent/",
        "python/pubstorm/fleet/",
        "python/pubstorm/host/deputy/",
        "python/pubstorm/host/keys/nodes.py",
        "python/pubstorm/play/agent_failure.py",
        "tests/world/ray/",
    ),
]
"""Marks of all modules that use the cluster."""

NAMESPACES = Path("/run/netns")
PREFIX = "psray"
PROGRAMS = ("ip", "unshare", "setpriv")
PORT = 6379
ENGINE = "pubstorm-engine"
HOSTS = 4
"""Three and a spare one."""
AHEAD_S = {2: 5000, 3: -min(3000, int(time.monotonic() / 2))}
"""Lead of the monotonic clock of a host over this machine's. The kernel refuses a clock that would
be negative, as on a machine that has started less than 3000 s ago."""
DRIFT_PPB = {4: 100_000}
"""By how much engines of a host read its clock wrongly, as the parts of 10^9 that it gains."""
LABELS = {1: "load", 2: "broker", 3: "broker", 4: "load"}
"""Labels of hosts, which scenarios place brokers and agents by."""
OUTSIDE = "outside.conf"
"""Name of the settings of a broker that no run starts."""
SERVERS = (
    "mosquitto",
    "redis-server",
    "beam.smp",
    "pubstorm-broker",
    "pubstorm-proxy",
    "pubstorm-zmq",
)
COMMAND_TIMEOUT_S = 60.0
START_TIMEOUT_S = 180.0
GONE_TIMEOUT_S = 60.0
"""Longest waits, on a machine that does other work too."""
QUIET = ("--include-log-monitor=false", "--disable-usage-stats")
# Processors in name only: a host has room for all agents of the runs that are played side by side.
SMALL = ("--num-cpus=8", "--object-store-memory=80000000")
LEAN = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
"""No workers in advance: this machine plays four hosts."""
NODES = """\
import sys, time, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
end = time.monotonic() + float(sys.argv[2])
while True:
    alive = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
    if alive == sys.argv[3:] or time.monotonic() > end:
        break
    time.sleep(0.1)
print("alive", *alive)
"""


@dataclass
class Host:
    """A pretended host."""

    number: int
    name: str
    """Of its network namespace."""
    folder: Path
    """Its temporary files, and those of Ray."""
    keys: Path
    process: subprocess.Popen[bytes] | None = None
    """Parent of the host's processes: they end with it."""

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def environment(self) -> dict[str, str]:
        """Of everything on it: what `ray-keys` wrote, and a temporary folder of its own."""
        lines = (self.keys / "environment").read_text().splitlines()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        keys = dict(line.split("=", 1) for line in lines)
        drift = DRIFT_PPB.get(self.number)
        wrong = {} if drift is None else {"PUBSTORM_CLOCK_SKEW": f"0,{drift}"}
        return {**inherited, **keys, **LEAN, **wrong, "TMPDIR": str(self.folder / "tmp")}

    def within(self, *words: str) -> list[str]:
        """A command in the host's network."""
        return ["ip", "netns", "exec", self.name, *words]

    def start(self, role: Sequence[str]) -> None:
        """Starts Ray in processes and a time of its own; all of it ends with this program."""
        ray = str(Path(sys.executable).with_name("ray"))
        node = [f"--node-ip-address={self.address}", f"--temp-dir={self.folder}", *SMALL, *QUIET]
        label = f"--labels=pubstorm={LABELS.get(self.number, 'none')}"
        words = [ray, "start", "--block", *role, *node, label]
        words.append('--resources={"pubstorm_agent": 1}')
        time_of_its_own = ["--time", f"--monotonic={AHEAD_S.get(self.number, 0)}"]
        processes = ["--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        apart = ["unshare", *time_of_its_own, *processes]
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / "tmp").mkdir()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.within(*apart, *words)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Ends it at once, as when its power goes."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def is_up(self) -> bool:
        """True if the host has power."""
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"host-{self.number}.log")

    def listens(self, port: int) -> bool:
        """True if a process listens on this port of the host."""
        assert self.process is not None and self.is_up, self.log.read_text()
        sockets = [Path(f"/proc/{self.process.pid}/net/{name}") for name in ("tcp", "tcp6")]
        lines = [line.split() for path in sockets for line in path.read_text().splitlines()]
        return any(line[1].endswith(f":{port:04X}") and line[3] == "0A" for line in lines)

    def processes(self) -> list[psutil.Process]:
        """All that have its network, those of Ray too."""
        return _processes_in(self.name)

    def servers(self) -> list[psutil.Process]:
        """Brokers and the like that runs have on it, not the broker of the tests themselves."""
        return self._processes_of(lambda name, words: name in SERVERS and OUTSIDE not in words[-1])

    def engines(self, part: str = "") -> list[psutil.Process]:
        """Engines that play on it; `part`: of the fleet, such as 1/3."""
        return self._processes_of(
            lambda name, words: (
                name == ENGINE and "--clock" not in words and (not part or part in words)
            )
        )

    def _processes_of(self, is_meant: Callable[[str, list[str]], bool]) -> list[psutil.Process]:
        """Processes with such a name and such words."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if is_meant(process.name(), process.cmdline() or [""]):
                    found.append(process)
        return found


@dataclass
class Cluster:
    """All hosts, and the bridge between them. The first one is the head."""

    folder: Path
    hosts: list[Host] = field(default_factory=list)
    unplugged: list[Host] = field(default_factory=list)

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def address(self) -> str:
        """Of its GCS."""
        return f"{self.head.address}:{PORT}"

    @property
    def url(self) -> str:
        """Value for `--on`."""
        return f"ray://{self.address}"

    def up(self) -> None:
        """Makes the hosts, and starts Ray on each."""
        delete_leftovers()
        _ip("netns", "add", self._bridge)
        _ip("-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._bridge, "link", "set", "bridge", "up")
        for number in range(1, HOSTS + 1):
            self.hosts.append(self._host(number))
        make_keys(self.folder / "keys", [host.address for host in self.hosts])
        self.start(*self.hosts)

    def down(self) -> None:
        """Nothing of it is left."""
        for host in self.hosts:
            host.kill()
        for name in (self._bridge, *(host.name for host in self.hosts)):
            _delete(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *hosts: Host) -> None:
        """Starts Ray on hosts where it does not run, the head before the others."""
        for host in hosts:
            host.start(self._role(host))
            if host is self.head:
                until(partial(host.listens, PORT), START_TIMEOUT_S, "the head of the cluster")
        self.wait_for([host for host in self.hosts if host.is_up])

    def restore(self) -> None:
        """Repairs the damage of a test. Ray ends on a host that was cut off too long."""
        for host in self.unplugged:
            _ip("-n", self._bridge, "link", "set", f"port{host.number}", "up")
            host.kill()
        self.unplugged.clear()
        down = [host for host in self.hosts if not host.is_up]
        if self.head in down:
            down = self.hosts
        for host in down:
            host.kill()
        if down:
            self.start(*down)

    def unplug(self, host: Host) -> None:
        """Pulls the host's cable, without notice."""
        _ip("-n", self._bridge, "link", "set", f"port{host.number}", "down")
        self.unplugged.append(host)

    def wait_for(self, hosts: Sequence[Host]) -> None:
        """Waits until these and no others are nodes of the cluster."""
        addresses = sorted(host.address for host in hosts)
        words = [sys.executable, "-c", NODES, self.address, str(START_TIMEOUT_S), *addresses]
        found = subprocess.run(
            self.head.within(*words),
            env=self.head.environment,
            capture_output=True,
            text=True,
            timeout=2 * START_TIMEOUT_S,
            check=False,
        )
        lines = [line.split() for line in found.stdout.splitlines()]
        assert ["alive", *addresses] in lines, f"{found.stdout}{found.stderr}{self.logs()}"

    def logs(self) -> str:
        """Output of the nodes."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("host-*.log")))

    def until_clean(self) -> None:
        """Waits until runs have no process on any host, and no file on one that has power."""
        for host in self.hosts:
            until_ended(host.engines)
            until_ended(host.servers)
        until_none(self._left, GONE_TIMEOUT_S)

    def _left(self) -> list[Path]:
        folders = [host.folder / "tmp" for host in self.hosts if host.is_up]
        return [path for folder in folders for path in folder.rglob("*")]

    @property
    def _bridge(self) -> str:
        return f"{PREFIX}-{os.getpid()}-bridge"

    def _host(self, number: int) -> Host:
        """A host with a cable to the bridge."""
        name = f"{PREFIX}-{os.getpid()}-{number}"
        folder = self.folder / f"h{number}"
        folder.mkdir()
        host = Host(number, name, folder, self.folder / "keys" / f"node-10.77.0.{number}")
        port = f"port{number}"
        _ip("netns", "add", name)
        _ip("-n", self._bridge, "link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
        _ip("-n", self._bridge, "link", "set", port, "master", "bridge", "up")
        _ip("-n", name, "address", "add", f"{host.address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            _ip("-n", name, "link", "set", interface, "up")
        return host

    def _role(self, host: Host) -> Sequence[str]:
        if host is self.head:
            return ["--head", f"--port={PORT}", "--include-dashboard=false"]
        return [f"--address={self.address}"]


def why_not() -> str | None:
    """Why this machine plays no cluster, if it does not."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if not Path(sys.executable).with_name("ray").exists():
        return "ray is not installed (pip install pubstorm[ray])"
    for words in (["--net", "true"], ["--time", "--monotonic=1", "--pid", "--fork", "true"]):
        if subprocess.run(["unshare", *words], capture_output=True, check=False).returncode:
            return f"the kernel makes no namespace with unshare {words[0]}"
    return None


def make_keys(folder: Path, addresses: Sequence[str]) -> None:
    """Keys of nodes, which stay in the folder where they are made."""
    for address in addresses:
        at = folder / f"node-{address}"
        words = ["ray-keys", "--node", address, "--out", str(folder), "--at", str(at)]
        assert cli.main(words) == 0


def until(holds: Callable[[], object], limit_s: float, what: str) -> None:
    """Waits for a condition."""
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, f"waited {limit_s:.0f} s for {what}"
        time.sleep(0.05)


def until_none(found: Callable[[], Collection[object]], limit_s: float) -> None:
    """Waits until nothing is found any more."""
    end_s = time.monotonic() + limit_s
    while left := found():
        assert time.monotonic() < end_s, f"after {limit_s:.0f} s there are still {left}"
        time.sleep(0.05)


def until_ended(found: Callable[[], Collection[psutil.Process]]) -> None:
    """Waits for the ends of processes, and of those that are found then, until there are none."""
    end_s = time.monotonic() + GONE_TIMEOUT_S
    while processes := found():
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(process.pid)
                try:
                    ended, _, _ = select.select([descriptor], [], [], end_s - time.monotonic())
                finally:
                    os.close(descriptor)
                assert ended, f"after {GONE_TIMEOUT_S:.0f} s there is still {process}"


def delete_leftovers() -> None:
    """Ends what sessions have left that were killed."""
    for path in NAMESPACES.glob(f"{PREFIX}-*"):
        owner = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", path.name)
        if owner and not psutil.pid_exists(int(owner[1])):
            _delete(path.name)


def _delete(name: str) -> None:
    """Ends the processes of a namespace, and deletes it."""
    for process in _processes_in(name):
        with contextlib.suppress(psutil.Error):
            process.kill()
    _ip("netns", "delete", name)


def _processes_in(name: str) -> list[psutil.Process]:
    network = (NAMESPACES / name).stat().st_ino
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process.pid}/ns/net").stat().st_ino == network:
                found.append(process)
    return found


def _ip(*words: str) -> None:
    done = subprocess.run(
        ["ip", *words], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
