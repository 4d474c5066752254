"""Cases of plans with many populations: the whole run of an engine, and a stage, whose
cost must follow the number of populations and not its square."""

from pathlib import Path

from benches import plans
from benches.cases import Case, Measure, Sample, Scale, Target, expect
from benches.programs import Child, EngineRun, Programs, play_stage, run_engine, sink

MILLISECONDS = "CPU-ms"
LIFETIME_NS = 3600 * plans.SECOND_NS
MESSAGES_PER_S = 20
RUN_S = 1.0
IN_A_PLAN = 10_000
LIMITS_MS = {10: 20, 100: 60, 1000: 500}
"""Limit of a run by its number of populations."""


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
    populations = _brief(IN_A_PLAN)
    stages = [plans.hold(IN_A_PLAN, 0.1), plans.hold(IN_A_PLAN, 0.1)]
    plan = plans.plan(populations, stages, port=9)
    plan["snapshot_interval_ns"] = 60 * plans.SECOND_NS
    with Child(programs.engine) as child:
        child.write(plan)
        child.read("hello")
        play_stage(child, 0, EngineRun())
        before_ns = _loop_cpu_ns(child.pid)
        play_stage(child, 1, EngineRun())
        cost_ns = _loop_cpu_ns(child.pid) - before_ns
        child.write({"command": "stop"})
        while child.read("snapshot", "bye")["kind"] == "snapshot":
            pass
        child.wait()
    return Sample(cost_ns / 1e6)


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
    Case(
        name="stage",
        unit=MILLISECONDS,
        load=f"{IN_A_PLAN} populations with lifetimes enter and end a stage",
        target=Target(10, relative=False),
        engine=engine_stage,
    ),
)
