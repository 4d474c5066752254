"""Costs of a client, a message and a connection for an engine and the kernel under it: measured by
`pubstorm calibrate` on this host, or the figures that Pubstorm comes with."""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm import __version__
from pubstorm.host.calibration import Calibration, CalibrationFigure, Fingerprint, find

SHIPPED = "shipped: AMD EPYC, Linux 6.18, November 2026"
"""Source of the figures of this file; docs/benchmarks.md has them."""
RULE = "a rule, on the high side"
MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """One figure with its source."""

    what: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Costs:
    """The figures from which preflight and sizing compute memory, CPU time and hosts. Times are CPU
    time of an engine, in microseconds; sizes are in bytes."""

    engine: Cost
    """Memory of an engine without clients."""
    further_engine: Cost
    """Memory of each further engine on a host, which shares the program with the first."""
    client: Cost
    """Memory of an idle client in its engine."""
    end: Cost
    """Memory of the kernel for the client's end of its connection: socket, file, inode, and entry
    of epoll, without caches that the kernel can reclaim."""
    tls_client: Cost
    """Memory that TLS adds to a client."""
    buffer: Cost
    """Memory for a message on its way."""
    pair: Cost
    """Memory of the ledger for one stream at one receiver."""
    sent: tuple[Cost, Cost]
    """Time for a message sent, at QoS 0 and 1."""
    received: tuple[Cost, Cost]
    """Time for a message received, at QoS 0 and 1."""
    ping: Cost
    """Time for a keep-alive."""
    connect: Cost
    """Time for a connection."""
    handshake: Cost
    """Time that TLS adds to a connection."""
    word: str
    """A remark for the user; empty if there is none."""

    def engines_bytes(self, engines: int) -> float:
        """Returns the memory of the engines of one host, without clients."""
        return self.engine.value + (engines - 1) * self.further_engine.value

    @classmethod
    def here(cls) -> Costs:
        """The costs on this host."""
        return cls.of(*find(Fingerprint.here(__version__)))

    @classmethod
    def of(cls, calibration: Calibration | None, word: str = "") -> Costs:
        """The costs of a calibration, with shipped figures for those that the calibration has not
        measured; `word` says why there is none."""
        source = SHIPPED
        if calibration is None:
            word = word or "run `pubstorm calibrate` on a host of that kind for its own figures"
        else:
            source = f"calibrated {calibration.calibrated[:10]} on this host"
            if calibration.received_qos1 is None:
                word = "the calibration is of an earlier Pubstorm: run `pubstorm calibrate` again"

        def cost(what: str, value: float, unit: str, name: str) -> Cost:
            figure: CalibrationFigure | None = getattr(calibration, name, None)
            if figure is None or not figure.median:
                return Cost(what, value, unit, SHIPPED)
            measured = MICROSECONDS / figure.median if unit == "µs" else figure.median
            return Cost(what, measured, unit, source)

        return cls(
            engine=Cost("engine without clients", 8 * 2**20, "B", SHIPPED),
            further_engine=Cost("further engine on a host", 2 * 2**20, "B", SHIPPED),
            client=cost("idle client, engine", 170, "B", "bytes_per_client"),
            end=cost("idle client, kernel", 4_100, "B", "kernel_bytes_per_end"),
            tls_client=Cost("TLS of a client", 22_000, "B", SHIPPED),
            buffer=Cost("message on its way", 4_096, "B", RULE),
            pair=Cost("stream at a receiver", 112, "B", RULE),
            sent=(
                cost("message sent, QoS 0", 7.2, "µs", "sent_qos0"),
                cost("message sent, QoS 1", 8.3, "µs", "sent_qos1"),
            ),
            received=(
                cost("message received, QoS 0", 5.2, "µs", "received"),
                cost("message received, QoS 1", 8.3, "µs", "received_qos1"),
            ),
            ping=cost("keep-alive", 11, "µs", "pinged"),
            connect=cost("connection", 31, "µs", "connected"),
            handshake=Cost("handshake of TLS", 380, "µs", SHIPPED),
            word=word,
        )
