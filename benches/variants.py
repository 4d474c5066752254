"""Measures variants of connections: the same load as with MQTT 3.1.1 over TCP, and the memory of a
client beyond that. The sink speaks each variant on the same port."""

from dataclasses import replace

from benches import plans
from benches.cases import (
    BYTES,
    CPU,
    ENOUGH,
    Case,
    Load,
    Measure,
    Sample,
    Scale,
    Target,
    client_state,
    connecting,
    engine_connect,
    engine_publishing,
    engine_receive,
    engine_send,
    idle_clients,
    receiving,
)
from benches.programs import Programs

SEND = Load(clients=1000, rate_per_s=20)
BLAST = Load(clients=100, rate_per_s=None)


def sending(variant: plans.Variant) -> Measure:
    """1000 clients, 20 messages a second each, QoS 0."""
    load = replace(SEND, variant=variant)
    return lambda programs, scale: engine_publishing(programs, load, scale.seconds)


def blasting(variant: plans.Variant) -> Measure:
    """100 clients that publish as fast as the sink reads."""
    load = replace(BLAST, variant=variant)
    return lambda programs, scale: engine_publishing(programs, load, scale.blast_seconds)


def state_beyond(variant: plans.Variant) -> Measure:
    """Memory that the engine allocates for each further client, beyond that of MQTT 3.1.1 on
    TCP."""

    def measure(programs: Programs, _: Scale) -> Sample:
        plain, varied = client_state(programs), client_state(programs, variant=variant)
        return Sample(varied.cost - plain.cost, plain.wrong + varied.wrong)

    return measure


def compared(name: str, load: str, times: float, reference: Measure, engine: Measure) -> Case:
    """A case whose reference is the engine with MQTT 3.1.1 on TCP."""
    return Case(
        name=name,
        unit=CPU,
        load=load,
        target=Target(times, relative=True),
        reference=reference,
        reference_name="engine 3.1.1",
        engine=engine,
    )


def state(name: str, beyond: str, limit: float, variant: plans.Variant) -> Case:
    """The case of `state_beyond`."""
    return Case(
        name=name,
        unit=BYTES,
        load=f"{idle_clients()} idle clients, beyond {beyond}",
        target=Target(limit, relative=False),
        engine=state_beyond(variant),
        rounds_max=ENOUGH,
    )


def receive_with(variant: plans.Variant) -> Measure:
    """500 subscribers and one publisher of 100 messages a second."""
    return lambda programs, scale: receiving(programs, scale, variant=variant)


SENT, RECEIVED = "1000 clients × 20 msg/s, QoS 0", "1 → 500, 50 000 deliveries/s"
VARIANT_CASES = (
    compared(
        "websocket-send",
        f"{SENT}, WebSocket",
        1.3,
        engine_send,
        sending(plans.over_websocket),
    ),
    compared(
        "websocket-receive",
        f"{RECEIVED}, WebSocket",
        1.3,
        engine_receive,
        receive_with(plans.over_websocket),
    ),
    Case(
        name="websocket-blast",
        unit=CPU,
        load="100 publishers, as fast as possible, WebSocket",
        target=Target(0.5, relative=False),
        engine=blasting(plans.over_websocket),
    ),
    state("websocket-state", "TCP", 64, plans.over_websocket),
    compared("mqtt5-send", f"{SENT}, MQTT 5", 1.05, engine_send, sending(plans.mqtt5)),
    compared(
        "mqtt5-properties",
        "the same, three user properties",
        1.3,
        engine_send,
        sending(plans.mqtt5_properties),
    ),
    compared(
        "mqtt5-receive", f"{RECEIVED}, MQTT 5", 1.05, engine_receive, receive_with(plans.mqtt5)
    ),
    compared(
        "mqtt5-connect",
        "5000 clients, MQTT 5",
        1.1,
        engine_connect,
        lambda programs, _: connecting(programs, plans.mqtt5),
    ),
    state("mqtt5-state", "3.1.1", 40, plans.mqtt5),
)
