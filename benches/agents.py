"""Cases beyond one engine and its sink: a load on two agents, messages through a broker to one
subscriber, QoS 2, and the memory of clients with certificates."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

from benches import cases, plans
from benches.cases import CPU, Case, Load, Measure, Sample, Scale, Target
from benches.programs import EngineRun, ProgramError, Programs, run_engine, run_engines, sink

PUBLISHERS = 2000
START_S = 5.0


def engines_send(agents: int) -> Measure:
    """1000 clients, 20 messages a second each, on so many agents."""

    def measure(programs: Programs, scale: Scale) -> Sample:
        publications = [plans.publication(20)]
        populations = [plans.population(1000, publications=publications)]
        stages = [plans.connect(1), plans.publish(1, scale.seconds), plans.hold(1, cases.DRAIN_S)]
        with sink(programs) as peer:
            runs = run_engines(programs, plans.plan(populations, stages, peer.port), agents)
        sent = sum(run.counters["sent_total"] for run in runs)
        wrong: list[str] = []
        cases.expect(wrong, "messages sent", sent, round(1000 * 20 * scale.seconds))
        cases.expect(wrong, "messages at the sink", peer.counts["messages_qos0"], sent)
        cpu_ns = sum(run.cpu_ns[1] + run.cpu_ns[2] for run in runs)
        lateness_us = max(run.lateness_us(0.99) for run in runs)
        return Sample(cases.per_million(cpu_ns, sent), wrong, lateness_us)

    return measure


def engine_pairs(programs: Programs, scale: Scale) -> Sample:
    """2000 publishers of 2 messages a second at QoS 1, all to one subscriber, through a broker."""
    first = plans.FIRST_CLIENT
    publications = [plans.publication(2, qos=1)]
    populations = [
        plans.population(1, first=first + PUBLISHERS, filters=["bench/+/up"], qos=1),
        plans.population(PUBLISHERS, first=first, publications=publications),
    ]
    stages = [plans.connect(2), plans.publish(2, scale.seconds), plans.hold(2, cases.DRAIN_S)]
    with _broker(programs) as port:
        run = run_engine(programs, plans.plan(populations, stages, port))
    sent = round(PUBLISHERS * 2 * scale.seconds)
    wrong = [f"{count} times {reason}" for reason, count in run.outcomes.items()]
    for name in ("sent_total", "acked_total"):
        cases.expect(wrong, name, run.counters[name], sent)
    cases.expect(wrong, "deliveries", run.flows["received_total"], sent)
    return Sample(_publishing(run, sent), wrong, run.lateness_us(0.99))


def engine_qos2(programs: Programs, scale: Scale) -> Sample:
    """100 clients, 100 messages a second each, QoS 2."""
    load = Load(clients=100, rate_per_s=100, qos=2)
    return cases.engine_publishing(programs, load, scale.seconds)


def _publishing(run: EngineRun, messages: int) -> float:
    return cases.per_million(run.cpu_ns[1] + run.cpu_ns[2], messages)


@contextlib.contextmanager
def _broker(programs: Programs) -> Iterator[int]:
    """The embedded broker on a free port, ready to accept."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    broker = subprocess.Popen([programs.broker, "--port", str(port)])
    try:
        deadline_s = time.monotonic() + START_S
        while not _accepts(port):
            if broker.poll() is not None or time.monotonic() > deadline_s:
                raise ProgramError("pubstorm-broker does not accept connections")
            time.sleep(0.02)
        yield port
    finally:
        broker.kill()
        broker.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
    except OSError:
        return False
    return True


AGENT_CASES = (
    Case(
        name="two-agents",
        unit=CPU,
        load="the load of send on 2 agents",
        target=Target(1.1, relative=True),
        reference=engines_send(1),
        reference_name="1 agent",
        engine=engines_send(2),
    ),
    Case(
        name="pairs",
        unit=CPU,
        load="4000 msg/s at QoS 1 through a broker to 1 subscriber",
        target=Target(20, relative=False),
        engine=engine_pairs,
    ),
    Case(
        name="qos2",
        unit=CPU,
        load="100 publishers, 10 000 msg/s, QoS 2",
        target=Target(15, relative=False),
        engine=engine_qos2,
    ),
    Case(
        name="tls-certificate-state",
        unit=cases.BYTES,
        load=f"{cases.TLS_MANY} idle clients, certificate verified, TLS 1.3",
        target=Target(22_000, relative=False),
        reference=cases.baseline_tls_state("certificate"),
        engine=cases.engine_tls_state("certificate"),
        rounds_max=cases.ENOUGH,
    ),
)
