"""The stream of events: a browser that comes back gets what it missed, a slow one skips."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pubstorm.result import Status
from pubstorm.web import now
from pubstorm.web.live import KEPT_MAX, Feed


def parsed(event: bytes) -> tuple[str, str, Any]:
    """Id, kind and content of an event."""
    name, kind, data, *rest = event.decode().split("\n")
    assert rest == ["", ""]
    content = json.loads(data.removeprefix("data: "))
    return name.removeprefix("id: "), kind.removeprefix("event: "), content


async def taken(stream: AsyncIterator[bytes], count: int) -> list[tuple[str, str, Any]]:
    return [parsed(await anext(stream)) for _ in range(count)]


def feed() -> Feed:
    made = Feed(lambda: {"all": True})
    made.begin_again()
    return made


async def test_a_browser_that_comes_back_gets_what_it_missed() -> None:
    own = feed()
    stream = own.stream("")
    (_, kind, content), *_ = await taken(stream, 1)
    assert (kind, content) == ("whole", {"all": True})
    for number in range(5):
        own.push({"n": number})
    seen = await taken(stream, 2)
    assert [content["n"] for _, _, content in seen] == [0, 1]
    again = own.stream(seen[-1][0])
    assert [content["n"] for _, _, content in await taken(again, 3)] == [2, 3, 4]


async def test_a_browser_gets_everything_once_more_if_its_place_is_forgotten() -> None:
    own = feed()
    stream = own.stream("")
    place = (await taken(stream, 1))[0][0]
    for number in range(KEPT_MAX + 1):
        own.push({"n": number})
    assert [kind for _, kind, _ in await taken(own.stream(place), 1)] == ["whole"]
    for strange in ("", "x", "7", "1.9999", "-1.2", "9" * 50):
        assert [kind for _, kind, _ in await taken(own.stream(strange), 1)] == ["whole"]


async def test_a_slow_browser_skips_and_delays_no_other() -> None:
    own = feed()
    slow, fast = own.stream(""), own.stream("")
    await taken(slow, 1)
    await taken(fast, 1)
    for number in range(3 * KEPT_MAX):
        own.push({"n": number})
        assert (await taken(fast, 1))[0][2] == {"n": number}
    ((_, kind, _),) = await taken(slow, 1)
    own.push({"n": "next"})
    ((_, _, content),) = await taken(slow, 1)
    assert (kind, content) == ("whole", {"n": "next"})


async def test_a_new_beginning_reaches_every_browser() -> None:
    own = feed()
    stream = own.stream("")
    place = (await taken(stream, 1))[0][0]
    own.push({"n": 0})
    own.begin_again()
    assert [kind for _, kind, _ in await taken(stream, 1)] == ["whole"]
    assert [kind for _, kind, _ in await taken(own.stream(place), 1)] == ["whole"]


async def test_the_end_of_the_feed_ends_every_stream() -> None:
    own = feed()
    stream = own.stream("")
    await taken(stream, 1)
    own.push({"n": "last"})
    own.close()
    rest = [parsed(event)[2] async for event in stream]
    assert rest == [{"n": "last"}]
    assert own.viewers == 0


def test_each_status_of_a_verdict_has_a_sign_on_the_page() -> None:
    script = Path(now.__file__).parent / "page" / "live.js"
    signs = re.search(r"const SIGNS = \{(.*?)\};", script.read_text(encoding="utf-8"))
    assert signs is not None
    assert set(re.findall(r"(\w+):", signs[1])) == {*map(str, Status), "none"}
