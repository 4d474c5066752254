"""Ends the sessions that clients of a run have left: an engine connects each of them once more,
with a clean session, and disconnects it. So it is as fast as a run, and every client is itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pubstorm.contract.plan import ConnectAction, DisconnectAction, Plan, PlannedStage
from pubstorm.contract.protocol import Mqtt
from pubstorm.errors import PubstormError
from pubstorm.fleet import SnapshotReceived
from pubstorm.play.solo import play_alone
from pubstorm.quantities import SECOND_NS

PARALLELISM = 100
TIMEOUT_S = 5.0
"""Longest time for a broker to answer the last client."""
CLIENTS_PER_S = 1000
"""Rate that a slow broker can take."""


def persistent_clients(plan: Plan) -> int:
    """Clients whose sessions outlive their connection."""
    return sum(p.clients for p in plan.populations if p.keeps_session)


async def end_sessions(plan: Plan, engine: Path, log: Path) -> str | None:
    """Ends every persistent session of the plan; what went wrong, if anything did."""
    ending = _ending_plan(plan)
    connected = 0

    def count(received: SnapshotReceived) -> None:
        nonlocal connected
        populations = received.snapshot.populations
        connected += sum(population.counters.connected_total for population in populations)

    try:
        async with asyncio.timeout(3 * TIMEOUT_S + ending.clients / CLIENTS_PER_S):
            await play_alone(ending, engine, log, count)
    except PubstormError as error:
        return error.message
    except TimeoutError:
        return "the broker did not answer in time"
    missing = ending.clients - connected
    return f"{missing} of {ending.clients} clients could not connect" if missing else None


def _ending_plan(plan: Plan) -> Plan:
    """All clients with persistent sessions, each connected once with a clean one."""
    quiet = {"subscriptions": (), "publications": (), "reconnect": None}
    quiet |= {"lifetime": None, "flapping": None}
    populations = tuple(
        population.model_copy(update={**quiet, "protocol": _clean(mqtt)})
        for population in plan.populations
        if (mqtt := population.mqtt) is not None and not mqtt.clean_session
    )
    everybody = tuple(range(len(populations)))
    connect = ConnectAction(
        rate_per_s=None, parallelism=PARALLELISM, timeout_ns=round(TIMEOUT_S * SECOND_NS)
    )
    leave = DisconnectAction(rate_per_s=None)
    stages = (
        PlannedStage(name="connect", action=connect, populations=everybody),
        PlannedStage(name="disconnect", action=leave, populations=everybody),
    )
    return plan.model_copy(update={"populations": populations, "stages": stages})


def _clean(mqtt: Mqtt) -> Mqtt:
    """Returns the options of clients whose session ends with their connection: in MQTT 5, a session
    without an expiry interval does [MQTT-3.1.2.11.2]."""
    properties = tuple(each for each in mqtt.properties if each.name != "session_expiry_interval")
    clean = {"clean_session": True, "will": None, "properties": properties}
    return mqtt.model_copy(update=clean)
