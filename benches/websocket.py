"""Measures cases over WebSocket: the same load as over TCP, and the memory of a client beyond that.

The sink speaks WebSocket on the same port, so that a case differs from its reference in nothing
else.
"""

from benches import plans
from benches.cases import (
    BYTES,
    CPU,
    ENOUGH,
    Case,
    Load,
    Sample,
    Scale,
    Target,
    client_state,
    engine_publishing,
    engine_receive,
    engine_send,
    idle_clients,
    receiving,
)
from benches.programs import Programs


def engine_websocket_send(programs: Programs, scale: Scale) -> Sample:
    """1000 clients over WebSocket, 20 messages a second each, QoS 0."""
    load = Load(clients=1000, rate_per_s=20, variant=plans.over_websocket)
    return engine_publishing(programs, load, scale.seconds)


def engine_websocket_receive(programs: Programs, scale: Scale) -> Sample:
    """500 subscribers and one publisher of 100 messages a second, over WebSocket."""
    return receiving(programs, scale, variant=plans.over_websocket)


def engine_websocket_blast(programs: Programs, scale: Scale) -> Sample:
    """100 clients over WebSocket that publish as fast as the sink reads."""
    load = Load(clients=100, rate_per_s=None, variant=plans.over_websocket)
    return engine_publishing(programs, load, scale.blast_seconds)


def engine_websocket_state(programs: Programs, _: Scale) -> Sample:
    """Memory that the engine allocates for each further client, beyond that of a client on TCP."""
    plain, framed = client_state(programs), client_state(programs, variant=plans.over_websocket)
    return Sample(framed.cost - plain.cost, plain.wrong + framed.wrong)


WEBSOCKET_CASES = (
    Case(
        name="websocket-send",
        unit=CPU,
        load="1000 clients × 20 msg/s, QoS 0, WebSocket",
        target=Target(1.3, relative=True),
        reference=engine_send,
        reference_name="engine TCP",
        engine=engine_websocket_send,
    ),
    Case(
        name="websocket-receive",
        unit=CPU,
        load="1 → 500, 50 000 deliveries/s, WebSocket",
        target=Target(1.3, relative=True),
        reference=engine_receive,
        reference_name="engine TCP",
        engine=engine_websocket_receive,
    ),
    Case(
        name="websocket-blast",
        unit=CPU,
        load="100 publishers, as fast as possible, WebSocket",
        target=Target(0.5, relative=False),
        engine=engine_websocket_blast,
    ),
    Case(
        name="websocket-state",
        unit=BYTES,
        load=f"{idle_clients()} idle clients, beyond TCP",
        target=Target(64, relative=False),
        engine=engine_websocket_state,
        rounds_max=ENOUGH,
    ),
)
