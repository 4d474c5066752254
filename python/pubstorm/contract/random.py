"""Chance as a pure function, as `crates/plan/src/schedule/random.rs` has it: the value number
`index` of a stream named by a seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm.contract.value import U64_MAX


@dataclass(frozen=True, slots=True)
class Random:
    """A stream of random values that can be read at any index."""

    bits: int
    """The value itself: 64 uniform bits."""

    @classmethod
    def new(cls, seed: int, purpose: int) -> Random:
        """The stream of one purpose; different purposes are independent."""
        return cls(mix(seed ^ mix(purpose)))

    def of(self, index: int) -> Random:
        """A sub-stream, such as that of one client."""
        return Random(mix(self.bits ^ mix(index)))

    def below(self, end: int) -> int:
        """Uniform below `end`."""
        return self.bits * end >> 64


def mix(value: int) -> int:
    """The finaliser of SplitMix64."""
    z = value + 0x9E3779B97F4A7C15 & U64_MAX
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & U64_MAX
    z = (z ^ z >> 27) * 0x94D049BB133111EB & U64_MAX
    return z ^ z >> 31
