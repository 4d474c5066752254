"""Limits of a broker as they are stored and read."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pubstorm.result.limits import Limit, LimitBound, LimitName, Limits

HOW = "in CONNACK"


@pytest.mark.parametrize(
    ("name", "value", "bound", "text"),
    [
        (LimitName.MQTT_5, True, "exact", "yes"),
        (LimitName.RETAINED, False, "exact", "no"),
        (LimitName.MAXIMUM_QOS, 1, "exact", "1"),
        (LimitName.TOPIC_ALIAS_MAXIMUM, 0, "exact", "0 aliases"),
        (LimitName.LARGEST_PACKET, 16_777_216, "at_least", "at least 16,777,216 bytes"),
        (LimitName.SESSION_EXPIRY, "unlimited", "exact", "unlimited"),
        (LimitName.SYS_TOPICS, None, "not_found", "not found"),
    ],
)
def test_a_limit_is_read_as_it_was_stored(
    name: LimitName, value: bool | int | str | None, bound: LimitBound, text: str
) -> None:
    limit = Limit(name=name, value=value, bound=bound, how=HOW)
    found = Limits.model_validate_json(
        Limits(limits=(limit,), interrupted=False).model_dump_json()
    ).limits[0]
    assert found == limit and type(found.value) is type(value)
    assert found.text == text


@pytest.mark.parametrize(
    ("value", "bound"), [(None, "exact"), (None, "at_least"), (3, "not_found"), (-1, "exact")]
)
def test_only_a_limit_that_was_found_has_a_value(value: int | None, bound: LimitBound) -> None:
    with pytest.raises(ValidationError):
        Limit(name=LimitName.MAXIMUM_QOS, value=value, bound=bound, how=HOW)
