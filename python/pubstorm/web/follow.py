"""Follows the run that the page shows: polls its directory once a second, evaluates it now and
then, and feeds the browsers. While no browser looks, files are read rarely and nothing is
evaluated."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from pubstorm.errors import PubstormError
from pubstorm.web.feed import Feed
from pubstorm.web.outcome import VerdictSoFar
from pubstorm.web.watch import Surroundings, Watch

POLL_S = 1.0
"""Time between two looks at the files while a browser looks."""
IDLE_S = 5.0
"""The same while none does."""
END_S = 1.0
"""Longest time for which the end waits for an evaluation."""


class RunFollower:
    """The run that the page shows, and what browsers get of it."""

    def __init__(self, around: Surroundings, *, has_controls: bool = False) -> None:
        self.around = around
        self.has_controls = has_controls
        """True if the page steers the run."""
        self.watch: Watch | None = None
        self.feed = Feed(self._whole)
        self._outcome: VerdictSoFar | None = None
        self._shape: tuple[object, ...] = ()
        self._evaluating: asyncio.Task[None] | None = None

    @property
    def report(self) -> Path | None:
        """The report of the run; None if there is none."""
        return None if self.watch is None else self.watch.report

    def show(self, path: Path) -> None:
        """Follows another run from now on."""
        self.watch = Watch(path, self.around, has_controls=self.has_controls)
        self._outcome = None

    async def follow(self) -> None:
        """Follows until it is cancelled."""
        while True:
            await self._read()
            if self.feed.viewers:
                self._push()
                self._evaluate()
            await self._pause()

    async def finish(self) -> None:
        """Sends the last state, and ends the streams."""
        if self._evaluating is not None:
            await asyncio.wait([self._evaluating], timeout=END_S)
        if self.watch is not None:
            self.watch.look_at_end()
        await self._read()
        self._push()
        self.feed.close()

    async def _read(self) -> None:
        while self.watch is not None and self.watch.poll():
            await asyncio.sleep(0)

    async def _pause(self) -> None:
        """Waits until the next look. The first browser is not kept waiting."""
        if self.feed.viewers:
            await asyncio.sleep(POLL_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await self.feed.arrived.wait()

    def _push(self) -> None:
        watch = self.watch
        shape: tuple[object, ...] = ()
        if watch is not None:
            shape = (watch.path, watch.history.width_s, len(watch.keys), watch.is_over)
        if shape != self._shape:
            self._shape = shape
            self.feed.begin_again()
        elif watch is not None:
            news = watch.news()
            # A run that is over has no more news.
            if not watch.is_over or news["values"] or news["events"]:
                self.feed.push(news)

    def _evaluate(self) -> None:
        watch = self.watch
        if watch is None or watch.is_over or watch.start is None or watch.plan is None:
            return
        if self._evaluating is not None and not self._evaluating.done():
            return
        try:
            if self._outcome is None:
                self._outcome = VerdictSoFar(watch.path)
        except PubstormError:
            return
        if self._outcome.is_due:
            self._evaluating = asyncio.create_task(self._evaluated(watch, self._outcome))

    async def _evaluated(self, watch: Watch, outcome: VerdictSoFar) -> None:
        at_s, verdict = watch.at_s, None
        try:
            verdict = await asyncio.to_thread(outcome.evaluate)
            watch.problem = ""
        except Exception as error:
            # The page shows everything else, and evaluates again later.
            watch.problem = f"{type(error).__name__}: {error}"
        if watch.result is None and verdict is not None:
            watch.verdict, watch.evaluated_s = verdict, at_s

    def _whole(self) -> dict[str, object]:
        if self.watch is None:
            return {"run": None, "step": self.around.step, "starting": self.around.starting}
        return self.watch.whole()
