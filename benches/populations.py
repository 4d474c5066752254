"""Cases of plans with many populations: the whole run of an engine and of the controller, a stage,
and a plan. Costs must follow the number of populations and not its square."""

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benches import plans
from benches.cases import BYTES, ENOUGH, Case, Measure, Sample, Scale, Target, expect
from benches.controller import COMMAND, ENVIRONMENT, READ_EVERY_S, resident_bytes
from benches.programs import (
    STAGE_DELAY_NS,
    Child,
    ProgramError,
    Programs,
    anonymous_bytes,
    run_engine,
    sink,
)

MILLISECONDS, SECONDS = "CPU-ms", "CPU-s"
PER_POPULATION = BYTES.replace("client", "population")
LIFETIME_NS = 3600 * plans.SECOND_NS
MESSAGES_PER_S = 20
RUN_S = 1.0
HOLD_S, STAGES = 0.8, 6
IN_A_PLAN = 10_000
FEW, QUARTER_OF_A_PLAN = 10, 2_500
LIMITS_MS = {10: 20, 100: 60, 1000: 500}
"""Limit of an engine's run by its number of populations."""
RUN_LIMITS_S = {10: 1.5, 100: 3, 1000: 20}
"""Limit of a run with controller, broker and reports by its number of populations."""
SCENARIO = """\
topology: {{brokers: {{broker: {{kind: embedded}}}}}}
populations:
  feed: {{clients: 1, publications: [{{topic: bench, rate: 20/s}}]}}
{readers}
stages: [connect: {{}}, publish: 2s]
"""


def engine_run(count: int) -> Measure:
    """One publisher, and populations of one subscriber each with a session lifetime: all of a run,
    with the start of the engine."""

    def measure(programs: Programs, _: Scale) -> Sample:
        publisher = plans.population(1, publications=[plans.publication(MESSAGES_PER_S)])
        topic = plans.TOPIC.replace("{n}", str(plans.FIRST_CLIENT))
        populations = [publisher, *_brief(count - 1, filters=[topic])]
        stages = [plans.connect(count), plans.publish(count, RUN_S), plans.hold(count, 0.5)]
        with sink(programs) as peer:
            run = run_engine(programs, plans.plan(populations, stages, peer.port))
        wrong = [f"{times} times {reason}" for reason, times in run.outcomes.items()]
        deliveries = round(MESSAGES_PER_S * RUN_S) * (count - 1)
        for name in ("expected_total", "received_total"):
            expect(wrong, name, run.flows[name], deliveries)
        return Sample(run.kernel_cpu_ns / 1e6, wrong)

    return measure


def engine_stage(programs: Programs, _: Scale) -> Sample:
    """CPU time of the loop for a stage with 10 000 populations and no connection: its entry and its
    end, each with a snapshot."""
    stages, _bytes = _stages(programs, IN_A_PLAN)
    return Sample(statistics.median(entry_ms + end_ms for entry_ms, end_ms in stages))


def engine_entry(programs: Programs, _: Scale) -> Sample:
    """CPU time of the loop for the entry of this stage alone."""
    stages, _bytes = _stages(programs, IN_A_PLAN)
    return Sample(statistics.median(entry_ms for entry_ms, _ in stages))


def engine_memory(few: int, many: int) -> Measure:
    """Memory of the engine in a stage for each further population of a plan."""

    def measure(programs: Programs, _: Scale) -> Sample:
        small, large = (_stages(programs, count)[1] for count in (few, many))
        return Sample((large - small) / (many - few))

    return measure


def _stages(programs: Programs, count: int) -> tuple[list[tuple[float, float]], int]:
    """Plays stages of many populations without connections. Returns the CPU time of the loop for
    the entry and the end of each but the first, in milliseconds, and the engine's memory in them,
    in bytes."""
    plan = plans.plan(_brief(count), [plans.hold(count, HOLD_S)] * STAGES, port=9)
    plan["snapshot_interval_ns"] = 60 * plans.SECOND_NS
    found = []
    with Child(programs.engine) as child:
        child.write(plan)
        child.read("hello")
        for index in range(STAGES):
            before_ns = _loop_cpu_ns(child.pid)
            at_ns = time.monotonic_ns() + STAGE_DELAY_NS
            child.write({"command": "stage", "index": index, "at_ns": at_ns})
            time.sleep(HOLD_S / 2)  # the stage has begun, and lasts longer than that
            entered_ns, bytes_ = _loop_cpu_ns(child.pid), anonymous_bytes(child.pid)
            while not (snapshot := child.read("snapshot"))["settled"] or snapshot["stage"] != index:
                pass
            ended_ns = _loop_cpu_ns(child.pid)
            found.append(((entered_ns - before_ns) / 1e6, (ended_ns - entered_ns) / 1e6))
        child.write({"command": "stop"})
        while child.read("snapshot", "bye")["kind"] == "snapshot":
            pass
        child.wait()
    return found[1:], bytes_


def whole_run(count: int) -> Measure:
    """CPU seconds of `pubstorm run`: the controller with its reports, the broker and the engine."""

    def measure(programs: Programs, _: Scale) -> Sample:
        cpu_s, _bytes = _command(programs, count, "run", "--quiet", "--out", "run")
        return Sample(cpu_s)

    return measure


def plan_cpu(programs: Programs, _: Scale) -> Sample:
    """CPU seconds of `pubstorm check` for a plan of 10 000 populations."""
    return Sample(_command(programs, IN_A_PLAN, "check")[0])


def plan_memory(few: int, many: int) -> Measure:
    """Resident memory of `pubstorm check` for each further population of a plan."""

    def measure(programs: Programs, _: Scale) -> Sample:
        small, large = (_command(programs, count, "check")[1] for count in (few, many))
        return Sample((large - small) / (many - few))

    return measure


def _command(programs: Programs, count: int, name: str, *options: str) -> tuple[float, int]:
    """Plays a command about one publisher and many populations of one subscriber each. Returns CPU
    seconds with those of its programs, and its largest resident memory in bytes."""
    readers = [f"  p{n}: {{clients: 1, subscriptions: [bench]}}" for n in range(count - 1)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "scenario.yaml").write_text(SCENARIO.format(readers="\n".join(readers)))
        child = subprocess.Popen(
            [*COMMAND, name, "scenario.yaml", *options],
            stdout=subprocess.DEVNULL,
            cwd=folder,
            env={**ENVIRONMENT, "PUBSTORM_PROGRAMS": str(programs.directory.absolute())},
        )
        resident = 0
        while not (ended := os.wait4(child.pid, os.WNOHANG))[0]:
            resident = max(resident, resident_bytes(child.pid))
            time.sleep(READ_EVERY_S)
        usage, child.returncode = ended[2], 0
        if name == "run" and not Path(folder, "run", "report.html").exists():
            raise ProgramError("pubstorm run made no report")
    return usage.ru_utime + usage.ru_stime, resident


def _brief(count: int, *, filters: list[str] | None = None) -> list[plans.Json]:
    """Populations of one client each that stay longer than the run."""
    lifetime = {"min_ns": LIFETIME_NS, "max_ns": LIFETIME_NS, "offline_ns": None}
    firsts = range(plans.FIRST_CLIENT + 1, plans.FIRST_CLIENT + 1 + count)
    return [
        plans.population(1, first=first, filters=filters or []) | {"lifetime": lifetime}
        for first in firsts
    ]


def _loop_cpu_ns(pid: int) -> int:
    """CPU time of the first thread of an engine, which runs the loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


LINEAR = Target(1.2, relative=True)
"""Memory of one of many populations: as much as that of one of few. Tables grow by doubling."""
POPULATION_CASES = (
    *(
        Case(
            name=f"populations-{count}",
            unit=MILLISECONDS,
            load=f"a whole run, 1 → {count - 1} populations with lifetimes",
            target=Target(limit, relative=False),
            engine=engine_run(count),
        )
        for count, limit in LIMITS_MS.items()
    ),
    *(
        Case(
            name=f"run-populations-{count}",
            unit=SECONDS,
            load=f"pubstorm run, 1 → {count - 1} populations, with reports",
            target=Target(limit, relative=False),
            engine=whole_run(count),
            rounds_max=ENOUGH,
        )
        for count, limit in RUN_LIMITS_S.items()
    ),
    Case(
        name="stage",
        unit=MILLISECONDS,
        load=f"{IN_A_PLAN} populations with lifetimes enter and end a stage",
        target=Target(10, relative=False),
        engine=engine_stage,
    ),
    Case(
        name="stage-entry",
        unit=MILLISECONDS,
        load=f"{IN_A_PLAN} populations with lifetimes enter a stage",
        target=Target(5, relative=False),
        engine=engine_entry,
    ),
    Case(
        name="populations-memory",
        unit=PER_POPULATION,
        load=f"engine, {FEW} → {IN_A_PLAN} populations in a plan",
        target=LINEAR,
        reference=engine_memory(FEW, QUARTER_OF_A_PLAN),
        reference_name=f"{FEW} → {QUARTER_OF_A_PLAN}",
        engine=engine_memory(FEW, IN_A_PLAN),
        rounds_max=ENOUGH,
    ),
    Case(
        name="plan",
        unit=SECONDS,
        load=f"pubstorm check, {IN_A_PLAN} populations",
        target=Target(8, relative=False),
        engine=plan_cpu,
        rounds_max=ENOUGH,
    ),
    Case(
        name="plan-memory",
        unit=PER_POPULATION,
        load=f"pubstorm check, {FEW} → {IN_A_PLAN} populations",
        target=LINEAR,
        reference=plan_memory(FEW, QUARTER_OF_A_PLAN),
        reference_name=f"{FEW} → {QUARTER_OF_A_PLAN}",
        engine=plan_memory(FEW, IN_A_PLAN),
        rounds_max=ENOUGH,
    ),
)
