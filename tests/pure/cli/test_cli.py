"""The command line as its user sees it: exit code, stdout and stderr, word for word."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import pubstorm
from pubstorm import cli
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
    return Shell(tmp_path, capsys)


def test_without_a_command_it_prints_its_help(shell: Shell) -> None:
    outcome = shell()
    assert outcome.code == 0
    assert outcome.stdout.startswith("Usage: pubstorm ")
    assert outcome.stderr == ""


def test_it_knows_its_version(shell: Shell) -> None:
    assert shell("--version") == Outcome(0, f"pubstorm {pubstorm.__version__}\n", "")


def test_check_warns_of_a_filter_that_nothing_matches(shell: Shell) -> None:
    outcome = shell("check", "good.yaml", "--set", "populations.device.subscriptions.0=b/{n}")
    assert outcome.code == shell("check", "good.yaml").code
    _, _, warnings = outcome.stdout.partition("\nwarnings\n")
    assert "populations.device.subscriptions.0: no publication matches the filter" in warnings
    assert "populations.device.publications.0: no subscriber receives its messages" in warnings


def test_check_prints_the_plan_in_words(shell: Shell) -> None:
    outcome = shell("check", "good.yaml")
    assert outcome.stderr == ""
    plan, _, needs = outcome.stdout.partition("\nneeds, with 1 agent\n")
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
  in_flight == 0 (default)
  abandoned == 0 (default)
  skipped == 0 (default)
"""
    )
    needs, _, tuning = needs.partition("\n\ntuning of the kernel\n")
    assert " of 18 settings suit this plan" in tuning
    _, _, there = tuning.partition("\nthe broker's own host should have")
    there, _, answer = there.partition("\nanswer: ")
    assert answer.startswith("this host can play 2,000 clients with 1 agent;")
    names = [line.split(":")[0].split("  ")[-1].strip() for line in needs.splitlines()]
    assert [name for name in names if "packet filter" not in name] == [
        "open files of an agent",
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
    assert "for the scenario good, as `pubstorm check` found them" in text
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
    for words in ("  hosts  ", "  agents  ", "ports to a target", "memory", " an hour are "):
        assert words in sizes
    assert "open files of a broker" in sizes
    _, _, answer = sizes.partition("\nanswer: it needs ")
    assert re.fullmatch(r"[\d,]+ hosts such as fleet.host .* and costs [\d,.]+\n", answer)


def test_fixes_are_for_this_host_only(shell: Shell) -> None:
    outcome = shell("check", "good.yaml", "--set", "fleet.on=ray", "--fixes", "fixes.sh")
    assert outcome.code == 2
    assert outcome.stderr.startswith("error: --fixes is for agents on this host")
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

    monkeypatch.setattr("pubstorm.play.one_run.run_scenario", interrupted)
    outcome = shell("run", "good.yaml")
    assert (outcome.code, outcome.stdout) == (130, "")
    assert "Traceback" not in outcome.stderr


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


def test_a_report_that_cannot_be_written_is_a_failure(shell: Shell) -> None:
    write_run(shell.folder / "run", Shape(duration_s=20))
    (shell.folder / "run" / "junit.xml").mkdir()
    outcome = shell("report", "run")
    assert outcome.code == 2
    assert outcome.stderr == "warning: there is no junit.xml: Is a directory\n"
