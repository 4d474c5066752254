"""Measures cases with MQTT 5: the same load as with MQTT 3.1.1, and the memory of a client beyond
that."""

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
    connecting,
    engine_connect,
    engine_publishing,
    engine_receive,
    engine_send,
    idle_clients,
    receiving,
)
from benches.programs import Programs


def engine_mqtt5_send(programs: Programs, scale: Scale) -> Sample:
    """1000 clients of MQTT 5, 20 messages a second each, QoS 0."""
    load = Load(clients=1000, rate_per_s=20, variant=plans.mqtt5)
    return engine_publishing(programs, load, scale.seconds)


def engine_mqtt5_properties(programs: Programs, scale: Scale) -> Sample:
    """The same clients, with three user properties in each message."""
    load = Load(clients=1000, rate_per_s=20, variant=plans.mqtt5_properties)
    return engine_publishing(programs, load, scale.seconds)


def engine_mqtt5_receive(programs: Programs, scale: Scale) -> Sample:
    """500 subscribers of MQTT 5 and one publisher of 100 messages a second."""
    return receiving(programs, scale, variant=plans.mqtt5)


def engine_mqtt5_connect(programs: Programs, _: Scale) -> Sample:
    """5000 clients of MQTT 5."""
    return connecting(programs, plans.mqtt5)


def engine_mqtt5_state(programs: Programs, _: Scale) -> Sample:
    """Memory that the engine allocates for each further client, beyond that of MQTT 3.1.1."""
    older, newer = client_state(programs), client_state(programs, variant=plans.mqtt5)
    return Sample(newer.cost - older.cost, older.wrong + newer.wrong)


MQTT5_CASES = (
    Case(
        name="mqtt5-send",
        unit=CPU,
        load="1000 clients × 20 msg/s, QoS 0, MQTT 5",
        target=Target(1.05, relative=True),
        reference=engine_send,
        reference_name="engine 3.1.1",
        engine=engine_mqtt5_send,
    ),
    Case(
        name="mqtt5-properties",
        unit=CPU,
        load="the same, three user properties",
        target=Target(1.3, relative=True),
        reference=engine_send,
        reference_name="engine 3.1.1",
        engine=engine_mqtt5_properties,
    ),
    Case(
        name="mqtt5-receive",
        unit=CPU,
        load="1 → 500, 50 000 deliveries/s, MQTT 5",
        target=Target(1.05, relative=True),
        reference=engine_receive,
        reference_name="engine 3.1.1",
        engine=engine_mqtt5_receive,
    ),
    Case(
        name="mqtt5-connect",
        unit=CPU,
        load="5000 clients, MQTT 5",
        target=Target(1.1, relative=True),
        reference=engine_connect,
        reference_name="engine 3.1.1",
        engine=engine_mqtt5_connect,
    ),
    Case(
        name="mqtt5-state",
        unit=BYTES,
        load=f"{idle_clients()} idle clients, beyond 3.1.1",
        target=Target(40, relative=False),
        engine=engine_mqtt5_state,
        rounds_max=ENOUGH,
    ),
)
