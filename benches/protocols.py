"""Cases of AMQP and NATS, compared with the same clients in MQTT at the same broker.

`python -m benches.protocols KIND` is the broker of a case: it prints its ports and ends with stdin.
Only the engine is measured. A broker that is not installed has no cases.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benches import cases, plans
from benches.cases import BYTES, CPU, Case, Measure, Sample, Scale, Target
from benches.programs import Child, EngineRun, Programs, peer_core, run_engine
from pubstorm.contract.target import Target as Place
from pubstorm.host.children import find
from pubstorm.plan import compile_plan
from pubstorm.scenario import parse_scenario
from pubstorm.topology import Topology

FEW, MANY = 200, 2000
RATE_PER_S = 20
CLIENTS = 100
TEXT = """\
topology: {{brokers: {{broker: {{kind: {kind}}}}}, streams: {streams}}}
populations: {{client: {{clients: {clients}, {flow}}}}}
stages: {stages}
"""
LOAD = f"rate: {RATE_PER_S}/s, size: {plans.PAYLOAD_BYTES}B"
FLOWS = {
    "mqtt": 'publications: [{topic: "bench/{n}/up", qos: 1, LOAD}]',
    "amqp": "protocol: amqp, publications: "
    '[{exchange: amq.topic, key: "bench.{n}.up", confirm: true, LOAD}]',
    "nats": "protocol: nats, publications: [{topic: 'bench.{n}.up', stream: BENCH, LOAD}]",
}
"""Keys of the clients of a protocol. The broker acknowledges each message, and nothing receives
it."""
STREAMS = {"nats": "{BENCH: {subjects: [bench.>], storage: memory}}"}


@dataclass(frozen=True)
class Spoken:
    """A protocol at a broker."""

    protocol: str
    kind: str
    """Kind of the broker."""

    def text(self, clients: int, stages: str) -> str:
        """Returns a scenario of these clients."""
        streams = STREAMS.get(self.protocol, "{}")
        flow = FLOWS[self.protocol].replace("LOAD", LOAD)
        return TEXT.format(
            kind=self.kind, streams=streams, clients=clients, flow=flow, stages=stages
        )


def sending(spoken: Spoken) -> Measure:
    """100 clients, 20 messages a second each, all confirmed by the broker."""

    def measure(programs: Programs, scale: Scale) -> Sample:
        stages = f"[connect, {{publish: {scale.seconds}s}}, {{hold: {cases.DRAIN_S}s}}]"
        run = _play(programs, spoken, CLIENTS, stages)
        wrong = _wrong(run, CLIENTS)
        sent = round(CLIENTS * RATE_PER_S * scale.seconds)
        for name in ("sent_total", "acked_total"):
            cases.expect(wrong, name, run.counters[name], sent)
        cost = cases.per_million(run.cpu_ns[1] + run.cpu_ns[2], sent)
        return Sample(cost, wrong, run.lateness_us(0.99))

    return measure


def state(spoken: Spoken) -> Measure:
    """Memory that the engine allocates for each further idle client."""

    def measure(programs: Programs, _: Scale) -> Sample:
        stages = "[connect, {hold: 1500ms}]"
        runs = {clients: _play(programs, spoken, clients, stages) for clients in (FEW, MANY)}
        wrong = [text for clients, run in runs.items() for text in _wrong(run, clients)]
        added = runs[MANY].anonymous_bytes[1] - runs[FEW].anonymous_bytes[1]
        return Sample(added / (MANY - FEW), wrong)

    return measure


def _play(programs: Programs, spoken: Spoken, clients: int, stages: str) -> EngineRun:
    scenario = parse_scenario(spoken.text(clients, stages), "bench.yaml")
    served = (sys.executable, "-m", "benches.protocols", spoken.kind)
    with Child(*served, cores=peer_core()) as broker:
        ready = broker.read("ready")
        place = Place(host="127.0.0.1", port=ready["port"], ports=ready["ports"])
        plan = compile_plan(scenario, (place,), run_tag=20_260_101)
        run = run_engine(programs, json.loads(plan.model_dump_json()))
        broker.close_stdin()
        broker.wait()
    return run


def _wrong(run: EngineRun, clients: int) -> list[str]:
    """Returns differences between the counts of the engine and those of the plan."""
    wrong = [f"{count} times {reason}" for reason, count in run.outcomes.items()]
    cases.expect(wrong, "clients connected", run.counters["connected_total"], clients)
    cases.expect(wrong, "clients connected at the end", run.connected, clients)
    return wrong


def _cases() -> Iterator[Case]:
    for protocol, kind, program in BROKERS:
        if find(program) is None:
            continue
        own, mqtt = Spoken(protocol, kind), Spoken("mqtt", kind)
        yield Case(
            name=f"{protocol}-send",
            unit=CPU,
            load=f"{CLIENTS} clients × {RATE_PER_S} msg/s, acknowledged by {program}",
            target=Target(1.3, relative=True),
            reference=sending(mqtt),
            reference_name="engine MQTT, QoS 1",
            engine=sending(own),
        )
        yield Case(
            name=f"{protocol}-state",
            unit=BYTES,
            load=f"{MANY} idle clients of {program}",
            target=Target(1000, relative=False),
            reference=state(mqtt),
            reference_name="engine MQTT",
            engine=state(own),
            rounds_max=cases.ENOUGH,
        )


BROKERS = (("amqp", "rabbitmq", "rabbitmq-server"), ("nats", "nats", "nats-server"))
PROTOCOL_CASES = (*_cases(),)


async def _serve(kind: str, folder: Path) -> None:
    text = TEXT.format(
        kind=kind, streams="{}", clients=1, flow="keep_alive: 0s", stages="[connect]"
    )
    topology = Topology(parse_scenario(text, "broker.yaml").topology, folder, lambda _event: None)
    try:
        await topology.start()
        ((_, port),), (ports,) = topology.addresses, topology.other_ports
        print(json.dumps({"kind": "ready", "port": port, "ports": {**ports}}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await topology.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="pubstorm-bench-") as made:
        asyncio.run(_serve(sys.argv[1], Path(made)))
