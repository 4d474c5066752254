"""The display without a terminal: one line a second on stderr, as stdout is for data."""

from __future__ import annotations

from pubstorm.output import warn
from pubstorm.quantities import count_text, duration_text, rate_text, share_text, span_text
from pubstorm.run.display import Live, Summary


class PlainLive(Live):
    """One line for each summary."""

    def begin(self, name: str) -> None:
        """Names the run."""
        warn(f"run {name}")

    def step(self, text: str) -> None:
        """Prints the line."""
        warn(text)

    def starting(self, text: str) -> None:
        """Prints the line."""
        warn(text)

    def show(self, summary: Summary) -> None:
        """Prints one line."""
        warn(line_of(summary))

    def note(self, text: str) -> None:
        """Prints the note."""
        warn(f"! {text}")


def line_of(summary: Summary) -> str:
    """A summary in one line."""
    populations = summary.populations
    connected = sum(population.connected for population in populations)
    clients = sum(population.clients for population in populations)
    parts = [
        f"{span_text(summary.elapsed_s)}",
        f"{summary.stage} {share_text(round(summary.progress, 2))}",
        f"connected {count_text(connected)}/{count_text(clients)}",
        f"sent {rate_text(sum(p.sent_per_s for p in populations))}/s",
        f"acked {rate_text(sum(p.acked_per_s for p in populations))}/s",
        f"received {rate_text(sum(p.received_per_s for p in populations))}/s",
    ]
    if summary.latency.count:
        parts.append(f"p99 {duration_text(summary.latency.quantile_ns(0.99) / 1000)}")
    missing = sum(population.missing for population in populations)
    if missing:
        parts.append(f"missing {count_text(missing)}")
    parts += [f"{reason} {count_text(count)}" for reason, count in summary.outcomes.items()]
    parts.append(f"busy {share_text(round(summary.busy_share, 2))}")
    return "  ".join(parts)
