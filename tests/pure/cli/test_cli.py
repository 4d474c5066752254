"""The command line as its user sees it: exit code, stdout and stderr, word for word."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import pubstorm
from pubstorm import cli
from pubstorm.scenario.base import keys_of
from pubstorm.scenario.populations import MqttClients
from tests.kit.example_run import Shape, write_run
from tests.kit.example_series import write_series

GOOD = """\
description: a try
target: mqtt://127.0.0.1:1883
populations:
  device:
    clients: 2k
    subscriptions: ["a/{n}"]
    publications:
      - {topic: "a/{n}", interval: 2s, qos: 1}
thresholds:
  - device.lost == 0
"""
BAD = """\
target: mqtt://127.0.0.1:1883
populations:
  device:
    clients: 10 apples
    keepalive: 60s
stages:
  - connect: {rate: 10}
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str


class Shell:
    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capture = capture

    def __call__(self, *arguments: str) -> Outcome:
        code = cli.main(arguments)
        out, err = self.capture.readouterr()
        return Outcome(code, out, err)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(BAD)
    Path("empty.yaml").write_text("")
    return Shell(tmp_path, capsys)


def test_without_a_command_it_prints_its_help(shell: Shell) -> None:
    outcome = shell()
    assert outcome.code == 0
    assert outcome.stdout.startswith("Usage: pubstorm ")
    assert outcome.stderr == ""


def test_it_knows_its_version(shell: Shell) -> None:
    assert shell("--version") == Outcome(0, f"pubstorm {pubstorm.__version__}\n", "")


@pytest.mark.parametrize("command", ["run", "check"])
def test_every_mistake_of_a_scenario_is_reported_on_stderr(shell: Shell, command: str) -> None:
    keys = ", ".join(keys_of(MqttClients))
    assert shell(command, "bad.yaml") == Outcome(
        2,
        "",
        f"""\
error: bad.yaml:4: populations.device.clients: found '10 apples', allowed is a count such as \
1000, 10k or 1.5M
error: bad.yaml:5: populations.device.keepalive: found the unknown key 'keepalive', allowed are \
{keys}
  hint: did you mean 'keep_alive'?
error: bad.yaml:7: stages.0.connect.rate: found 10, allowed is a rate such as 10/s, 30/min or \
1/6 Hz
  hint: write 10/s
hint: every key, with its kind and default, is on the page "scenario" of the reference
""",
    )


@pytest.mark.parametrize(
    ("arguments", "stderr"),
    [
        (
            ["run", "none.yaml"],
            "error: none.yaml: found no such file\n"
            "  hint: pubstorm scenarios lists ready ones to start from\n",
        ),
        (
            ["run", "quickstrat"],
            "error: found no file and no ready scenario 'quickstrat'\n"
            "  hint: did you mean quickstart?\n",
        ),
        (
            ["check", "empty.yaml"],
            "error: empty.yaml:1: found an empty file\n"
            "  hint: pubstorm scenarios lists ready ones to start from\n",
        ),
        (
            ["check", "good.yaml", "--set", "populations.devise.clients=1"],
            "error: --set populations.devise.clients=1: populations.devise.clients: found "
            "'devise', allowed are the names device\n"
            "  hint: did you mean device?\n",
        ),
        (
            ["check", "good.yaml", "--target", "localhost"],
            "error: --target localhost: target: found 'localhost', allowed is "
            "mqtt[s]://HOST[:PORT], ws[s]://HOST[:PORT][/PATH] or zmq://HOST:PORT\n"
            "  hint: write mqtt://localhost\n",
        ),
        (
            ["run", "good.yaml", "--on", "ray://head"],
            "error: --on ray://head: found 'ray://head', allowed are local, ray and "
            "ray://HOST:PORT\n"
            "  hint: ray is the cluster that this host is in; an address is that of its head\n",
        ),
        (
            ["report", "."],
            "error: cannot read result.json: No such file or directory\n"
            "  hint: name a folder that `pubstorm run` has made\n",
        ),
        (
            ["change", ".", "rate", "2", "device"],
            "error: no run is active in .\n"
            "  hint: name the directory of an active run: its --out, or the newest in runs\n",
        ),
        (
            ["calibrate", "--seconds", "0"],
            "error: Invalid value for '--seconds': 0.0 is not in the range 0.5<=x<=600.\n"
            "  hint: pubstorm calibrate --help\n",
        ),
        (["run"], "error: Missing argument 'SCENARIO'.\n  hint: pubstorm run --help\n"),
        (["rnu"], "error: No such command 'rnu'. Did you mean 'run'?\n  hint: pubstorm --help\n"),
        (
            ["broker", "--port", "70000"],
            "error: Invalid value for '--port': 70000 is not in the range 0<=x<=65535.\n"
            "  hint: pubstorm broker --help\n",
        ),
    ],
)
def test_wrong_usage_ends_with_2_and_a_hint(
    shell: Shell, arguments: list[str], stderr: str
) -> None:
    assert shell(*arguments) == Outcome(2, "", stderr)


def test_check_warns_of_a_filter_that_nothing_matches(shell: Shell) -> None:
    outcome = shell("check", "good.yaml", "--set", "populations.device.subscriptions.0=b/{n}")
    assert outcome.code == shell("check", "good.yaml").code
    _, _, warnings = outcome.stdout.partition("\nwarnings\n")
    assert "populations.device.subscriptions.0: no publication matches the filter" in warnings
    assert "populations.device.publications.0: no subscriber receives its messages" in warnings


def test_check_prints_the_plan_in_words(shell: Shell) -> None:
    outcome = shell("check", "good.yaml")
    assert outcome.stderr == ""
    plan, _, needs = outcome.stdout.partition("\nneeds, with 1 engine\n")
    assert (
        plan
        == """\
good: a try

targets      127.0.0.1:1883

populations
  device: 2,000 clients, clean session, keep-alive 60s
    subscribes to a/{n} at QoS 0
    publishes to a/{n}: 100B at QoS 1, every 2s from each client

stages
  1. connect (device): 2,000 clients, 100 at once; ends when all are subscribed, 30s after \
the last start, or at most after 290s
  2. publish (device): 10s; ends when all has arrived, after 5s without progress, or at most \
100s later
       about 1,000 sent/s and 1,000 delivered/s: 10,000 sent and 10,000 delivered

thresholds
  device.lost == 0
  never_ready == 0 (default)
  skipped == 0 (default)
"""
    )
    needs, _, tuning = needs.partition("\n\ntuning of the kernel\n")
    assert " of 18 settings suit this plan" in tuning
    _, _, there = tuning.partition("\nthe broker's own host should have")
    names = [line.split(":")[0].split("  ")[-1].strip() for line in needs.splitlines()]
    assert [name for name in names if "packet filter" not in name] == [
        "open files of an engine",
        "open files of the system",
        "processes and threads of this user",
        "processes and threads of the system",
        "processes and threads that have a process id",
        "processes and threads of this control group",
        "ports from a source address to a target",
        "memory, about",
        "memory of TCP sockets, about",
        "connections waiting to be accepted",
        "connections in their handshake",
    ]
    assert (
        there
        == """\
, which is not looked at here
         open files of a broker: 2,200   (ulimit -n 2200)
         memory of a broker, about: 76 MiB
         connections waiting to be accepted: 100   (sysctl -w net.core.somaxconn=128)
         connections that a packet filter tracks: 4,000   (sysctl -w \
net.netfilter.nf_conntrack_max=4096, or no filter that tracks connections)
"""
    )


def test_check_prints_the_longest_time_in_whole_seconds(shell: Shell) -> None:
    few = ("populations.device.clients=51", "stages=[connect: {rate: 200/s}]")
    outcome = shell("check", "good.yaml", "--set", few[0], "--set", few[1])
    assert "30s after the last start, or at most after 96s\n" in outcome.stdout


def test_check_ends_with_3_where_the_host_has_too_little(shell: Shell) -> None:
    outcome = shell("check", "good.yaml", "--set", "populations.device.clients=100M")
    assert outcome.code == 3
    assert "  short  " in outcome.stdout
    assert "         fix: " in outcome.stdout


def test_check_writes_the_fixes_of_what_is_short(shell: Shell) -> None:
    many = ("--set", "populations.device.clients=100M", "--set", "fleet.agents=1")
    outcome = shell("check", "good.yaml", *many, "--fixes", "fixes.sh")
    assert outcome.code == 3
    text = Path("fixes.sh").read_text()
    assert "for the scenario good, as `pubstorm check` found it" in text
    assert "\nulimit -n 100000200\n" in text
    subprocess.run(["bash", "-n", "fixes.sh"], check=True)


def test_check_writes_a_script_without_commands_where_nothing_is_short(shell: Shell) -> None:
    one = ("--set", "populations.device.clients=1")
    assert shell("check", "good.yaml", *one, "--fixes", "fixes.sh").code == 0
    assert Path("fixes.sh").read_text().splitlines()[-1] == "# Nothing is short."


def test_a_file_for_fixes_that_cannot_be_written_is_reported(shell: Shell) -> None:
    outcome = shell("check", "good.yaml", "--fixes", "none/fixes.sh")
    assert outcome.code == 2
    assert outcome.stderr == (
        "error: cannot write none/fixes.sh: No such file or directory\n  hint: name another file\n"
    )


def test_check_prints_the_sizes_of_a_cluster_and_ends_with_0(shell: Shell) -> None:
    many = ("--set", "populations.device.clients=10M", "--set", "fleet.on=ray")
    outcome = shell("check", "good.yaml", *many, "--set", "fleet.host.price=0.5")
    assert (outcome.code, outcome.stderr) == (0, "")
    plan, _, sizes = outcome.stdout.partition("\nsizes, on hosts with 4 processors, ")
    assert "10,000,000 clients" in plan
    assert "needs, with" not in outcome.stdout
    for words in ("  hosts  ", "  engines  ", "ports to a target", "memory", " an hour are "):
        assert words in sizes
    assert "open files of a broker" in sizes


def test_fixes_are_for_this_host_only(shell: Shell) -> None:
    outcome = shell("check", "good.yaml", "--set", "fleet.on=ray", "--fixes", "fixes.sh")
    assert outcome.code == 2
    assert outcome.stderr.startswith("error: --fixes is for engines on this host")
    assert not Path("fixes.sh").exists()


def test_ready_scenarios_are_listed_a_line_each(shell: Shell) -> None:
    outcome = shell("scenarios")
    lines = outcome.stdout.splitlines()
    assert outcome.code == 0
    assert all("  " in line for line in lines)
    assert {"quickstart", "ten-thousand"} <= {line.split()[0] for line in lines}


def test_every_ready_scenario_passes_its_check_on_a_large_host(shell: Shell) -> None:
    for name in [line.split()[0] for line in shell("scenarios").stdout.splitlines()]:
        outcome = shell("check", name)
        assert outcome.code in {0, 3}
        assert outcome.stderr == ""


def test_a_missing_engine_is_reported_with_its_fix(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSTORM_BROKER", "nothing")
    assert shell("broker") == Outcome(
        3,
        "",
        "error: PUBSTORM_BROKER names 'nothing', which is no program\n"
        "  hint: unset PUBSTORM_BROKER, or correct it\n",
    )


def test_the_broker_takes_the_place_of_the_process(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = shell.folder / "pubstorm-broker"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PUBSTORM_BROKER", str(program))
    called: list[tuple[object, list[str]]] = []
    monkeypatch.setattr("os.execv", lambda path, words: called.append((path, words)))
    assert shell("broker", "--port", "0").code == 0
    assert called == [(program, ["pubstorm-broker", "--port", "0"])]


def test_an_interrupt_ends_with_130_and_no_traceback(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pubstorm.cli.run.run_scenario", interrupted)
    outcome = shell("run", "good.yaml")
    assert (outcome.code, outcome.stdout) == (130, "")
    assert "Traceback" not in outcome.stderr


def test_an_out_folder_that_is_not_empty_is_refused(shell: Shell) -> None:
    outcome = shell("run", "good.yaml", "--out", str(shell.folder))
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("error: ")
    assert "  hint: " in outcome.stderr


def test_wrong_expressions_are_reported_with_line_and_hint(shell: Shell) -> None:
    Path("asks.yaml").write_text(
        GOOD
        + """\
  - devise.latency.p99 < 100ms
  - device.latency < 100ms
  - broker.cpu < 80ms
  - broker.rsss < 500MB
  - device.acked_per_s@later >= 490/s
table:
  CPU: boker.cpu
"""
    )
    assert shell("check", "asks.yaml") == Outcome(
        2,
        "",
        """\
error: asks.yaml:11: thresholds.1: found the unknown population 'devise', allowed are device
  hint: did you mean device?
error: asks.yaml:12: thresholds.2: found 'latency', allowed are latency.mean, .min, .p50, .p90, \
.p99, .p999, .max and any percentile between p0 and p100 such as .p95 or .p99.99
  hint: for example latency.p99
error: asks.yaml:13: thresholds.3: found '80ms', allowed is a share such as 80% or 0.8
error: asks.yaml:14: thresholds.4: found 'rsss', allowed are the metrics of the reference
  hint: did you mean rss?
error: asks.yaml:17: table.CPU: found the unknown subject 'boker', allowed are device, host, \
broker, agent
  hint: did you mean broker?
hint: every key, with its kind and default, is on the page "scenario" of the reference
""",
    )


FLEET = """\
target: mqtt://127.0.0.1:1883
populations:
  device:
    clients: 20
    publications: [{topic: "up/{n}", rate: 1/s}]
    shares:
      brief: {part: 1%, lifetime: {from: 5min, to: 1min}}
      sure: {part: 20%, qos: 1}
stages:
  - connect: {populations: [device], clients: 50%}
  - publish: {for: 60s, changes: [{at: 5s, population: device, add: 10}]}
"""


def test_wrong_names_of_shares_are_reported_with_the_existing_ones(shell: Shell) -> None:
    wrong = FLEET.replace("[device]", "[device/bref]").replace("part: 20%", "part: 120%")
    Path("fleet.yaml").write_text(f"{wrong}thresholds: [device/sur.lost == 0]\n")
    assert (
        shell("check", "fleet.yaml").stderr
        == """\
error: fleet.yaml:8: populations.device.shares.sure.part: found '120%', allowed is 0% to 100%
error: fleet.yaml:10: stages.0.connect.populations.0: found the unknown population 'device/bref', \
allowed are device, device/rest, device/brief, device/sure
  hint: did you mean device/brief?
error: fleet.yaml:12: thresholds.0: found the unknown population 'device/sur', allowed are \
device, device/rest, device/brief, device/sure
  hint: did you mean device/sure?
hint: every key, with its kind and default, is on the page "scenario" of the reference
"""
    )


def test_shares_that_do_not_fit_are_reported_before_requests_for_them(shell: Shell) -> None:
    Path("fleet.yaml").write_text(FLEET)
    assert (
        shell("check", "fleet.yaml").stderr
        == """\
error: fleet.yaml:7: populations.device.shares.brief.lifetime.to: found 1min, allowed is at least \
5min
  hint: a life is at least as long as its shortest
error: fleet.yaml:7: populations.device.shares.brief.part: found 1% of 20 clients, which is no \
client, needed is one
  hint: play at least 100 clients, or leave the share out
"""
    )
    fits = FLEET.replace("clients: 20", "clients: 100").replace("to: 1min", "to: 10min")
    Path("fleet.yaml").write_text(fits)
    assert (
        shell("check", "fleet.yaml").stderr
        == """\
error: fleet.yaml:11: stages.1.publish.changes.0.add: found 10, allowed for a population with \
shares is a share of it in percent
  hint: write a share in percent, or one of device/rest, device/brief, device/sure
"""
    )


def test_a_stored_run_is_rendered_again_with_all_its_files(shell: Shell) -> None:
    write_run(shell.folder / "run", Shape(duration_s=20))
    outcome = shell("report", "run")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert "PASS" in outcome.stdout
    for file in ("report.html", "report.md", "junit.xml", "latencies.hlog"):
        assert (shell.folder / "run" / file).stat().st_size > 0


def test_a_stored_series_is_rendered_again(shell: Shell) -> None:
    write_series(shell.folder / "series")
    outcome = shell("report", "series")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert "limited by broker" in outcome.stdout
    assert "It passed up to 3000 clients." in (shell.folder / "series/report.html").read_text()


def test_a_run_that_measured_nothing_cannot_be_rendered(shell: Shell) -> None:
    (shell.folder / "run").mkdir()
    (shell.folder / "run" / "scenario.yaml").touch()
    outcome = shell("report", "run")
    assert outcome.code == 2
    assert outcome.stderr.startswith(
        "error: found no measurement in run: the run ended before its first stage\n  hint: "
    )


def test_a_report_that_cannot_be_written_is_a_warning(shell: Shell) -> None:
    write_run(shell.folder / "run", Shape(duration_s=20))
    (shell.folder / "run" / "junit.xml").mkdir()
    outcome = shell("report", "run")
    assert outcome.code == 0
    assert outcome.stderr == "warning: there is no junit.xml: Is a directory\n"
