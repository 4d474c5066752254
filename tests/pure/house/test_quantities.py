"""Quantities: accepted spellings, and messages for wrong ones."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.quantities import (
    KINDS,
    QuantityField,
    UnfitError,
    bits_per_s,
    count,
    duration_ns,
    rate_per_s,
    share,
    size_bytes,
    write_bytes,
    write_count,
    write_duration,
    write_rate,
)

MS = 10**6
S = 10**9


@pytest.mark.parametrize(
    ("parse", "written", "number"),
    [
        (count, 1000, 1000),
        (count, "10k", 10_000),
        (count, "1.5M", 1_500_000),
        (count, "2_000", 2_000),
        (count, "1e3", 1_000),
        (size_bytes, "500B", 500),
        (size_bytes, "10 kB", 10_000),
        (size_bytes, "1MiB", 2**20),
        (duration_ns, "500us", 500_000),
        (duration_ns, "10ms", 10 * MS),
        (duration_ns, "6s", 6 * S),
        (duration_ns, "0.5s", 500 * MS),
        (duration_ns, "2min", 120 * S),
        (duration_ns, "1h30min", 5400 * S),
        (duration_ns, 0, 0),
        (rate_per_s, "10/s", 10.0),
        (rate_per_s, "1k/s", 1000.0),
        (rate_per_s, "30/min", 0.5),
        (rate_per_s, "1/6 Hz", 1 / 6),
        (rate_per_s, "0.166 Hz", 0.166),
        (rate_per_s, "2 kHz", 2000.0),
        (bits_per_s, "10Mbit/s", 10_000_000),
        (bits_per_s, "1.5 MB/s", 12_000_000),
        (bits_per_s, "1KiB/s", 8192),
        (share, "10%", 0.1),
        (share, 0.1, 0.1),
    ],
)
def test_a_quantity_becomes_one_number_in_one_unit(
    parse: Callable[[object], float], written: object, number: float
) -> None:
    assert parse(written) == pytest.approx(number, rel=1e-15)


@pytest.mark.parametrize(
    ("parse", "written", "hint"),
    [
        (count, "10K", "write 10k"),
        (size_bytes, 500, "write 500B"),
        (size_bytes, "5KB", "write 5kB"),
        (duration_ns, 5, "write 5s or 5ms"),
        (duration_ns, "100", "write 100s or 100ms"),
        (duration_ns, "5m", "write 5min or 5ms"),
        (duration_ns, "5 sec", "write 5s"),
        (rate_per_s, 10, "write 10/s"),
    ],
)
def test_a_wrong_unit_is_reported_with_the_right_one(
    parse: Callable[[object], float], written: object, hint: str
) -> None:
    with pytest.raises(UnfitError) as caught:
        parse(written)
    assert caught.value.hint == hint


@pytest.mark.parametrize("parse", list(KINDS))
@pytest.mark.parametrize(
    "written",
    [
        None,
        True,
        [],
        {},
        "",
        "x",
        "-",
        "10 apples",
        "1e999",
        "9" * 100,
        math.nan,
        math.inf,
        "1/0 Hz",
    ],
)
def test_what_is_no_quantity_is_refused_in_words(
    parse: Callable[[object], float], written: object
) -> None:
    with pytest.raises(UnfitError, match=r"^found .*, allowed "):
        parse(written)


def test_a_count_has_no_fraction() -> None:
    with pytest.raises(UnfitError, match="whole"):
        count("1.5")


@pytest.mark.parametrize(
    ("quantity", "written", "allowed"),
    [
        (QuantityField(count, 1, 100), 0, "1 to 100"),
        (QuantityField(duration_ns, 0, S, above_low=True), "0s", "more than 0s and at most 1s"),
        (QuantityField(share, 0, 1), "200%", "0% to 100%"),
        (QuantityField(duration_ns, 0, 9 * S, step=S), "1500ms", "a whole number of 1s"),
    ],
)
def test_bounds_are_reported_in_the_units_people_write(
    quantity: QuantityField, written: object, allowed: str
) -> None:
    with pytest.raises(UnfitError) as caught:
        quantity.read(written)
    assert str(caught.value).endswith(f"allowed is {allowed}")


@pytest.mark.parametrize(
    ("write", "parse", "numbers"),
    [
        (write_count, count, st.integers(0, 10**9)),
        (write_bytes, size_bytes, st.integers(0, 10**9)),
        (write_duration, duration_ns, st.integers(0, 10**6).map(lambda n: n * MS)),
        (write_rate, rate_per_s, st.integers(1, 10**5)),
    ],
)
def test_what_is_written_is_read_back(
    write: Callable[[Any], str], parse: Callable[[object], float], numbers: st.SearchStrategy[int]
) -> None:
    @given(numbers)
    def is_read_back(number: int) -> None:
        assert parse(write(number)) == pytest.approx(number)

    is_read_back()


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()))
def test_no_value_ends_otherwise_than_in_a_number_or_words(value: object) -> None:
    for parse in KINDS:
        try:
            number = parse(value)
        except UnfitError:
            continue
        assert math.isfinite(number)
