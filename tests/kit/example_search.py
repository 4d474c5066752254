"""Makes the folder of a search by hand: it grows, fails, comes closer, looks anew; one trial was
not counted."""

from __future__ import annotations

from pathlib import Path

from pubstorm.result import (
    Cell,
    Estimate,
    LimitedBy,
    SearchAnswer,
    SearchResult,
    Status,
    ThresholdOutcome,
    Trial,
)

CONDITION = "subscriber.loss < 0.5%"
TRIED = (
    ("grow", 1, 10_000, 0.0),
    ("grow", 1, 20_000, 0.0),
    ("grow", 1, 40_000, 0.0),
    ("grow", 1, 80_000, 0.0008),
    ("grow", 1, 160_000, 0.16),
    ("bisect", 1, 113_000, 0.012),
    ("bisect", 1, 95_000, 0.003),
    ("bisect", 1, 104_000, 0.0066),
    ("repeat", 2, 98_900, 0.0047),
    ("repeat", 2, 101_000, 0.0071),
    ("most", 1, 160_000, 0.17),
    ("confirm", 1, 97_000, 0.0041),
)


def trials() -> tuple[Trial, ...]:
    played = [_trial(number, *tried) for number, tried in enumerate(TRIED, 1)]
    full = played[4].model_copy(
        update={
            "number": len(TRIED) + 1,
            "value": 320_000.0,
            "limited_by": LimitedBy.HOST,
            "counted": False,
            "why": "the host was the limit",
            "evidence": ("the host's processors were busy for 98 % of the time under load",),
        }
    )
    return (*played, full)


def _trial(number: int, phase: str, repetition: int, value: int, loss: float) -> Trial:
    passed = loss < 0.005
    outcome = ThresholdOutcome(
        expression=CONDITION,
        figure="subscriber.loss",
        limit=0.005,
        found=loss,
        unit="share",
        passed=passed,
        text=f"found {100 * loss:.2f} %",
    )
    return Trial.model_validate(
        {
            "number": number,
            "value": float(value),
            "written": f"{value}/s",
            "folder": f"trials/{number:03}-{value}",
            "phase": phase,
            "repetition": repetition,
            "figure": value * (1 - loss),
            "status": Status.PASS if passed else Status.FAIL,
            "limited_by": LimitedBy.NONE if passed else LimitedBy.PUBLISHER,
            "thresholds": (outcome,),
            "evidence": () if passed else ("feed dropped some at its high-water mark of 1000",),
            "duration_s": 11.2,
            "cells": (Cell(value=value), Cell(value=(30 + number) / 100, unit="share")),
        }
    )


def write_search(folder: Path, **changes: object) -> SearchResult:
    """Makes the folder; `changes` are fields of the search."""
    search = search_of(run_directory=str(folder), **changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "search.json").write_text(search.to_json())
    return search


def search_of(**changes: object) -> SearchResult:
    """Makes the result; `changes` are its fields."""
    best = Estimate(value=97_400, low=95_900, high=98_900, repeats=3, unit="per_s")
    most = Estimate(value=134_000, low=131_000, high=137_000, repeats=3, unit="per_s")
    return SearchResult(
        name="zmq-capacity",
        scenario="zmq-capacity.yaml",
        run_directory="runs/zmq-capacity",
        started="2026-11-21T12:00:00+00:00",
        ended="2026-11-21T12:04:00+00:00",
        vary="populations.feed.publications.0.rate",
        unit="per_s",
        figure="subscriber.received_each_per_s",
        figure_unit="per_s",
        thresholds=(CONDITION,),
        columns=("rate", "CPU of the publisher"),
        trials=trials(),
        answer=SearchAnswer(
            best=best,
            most=most,
            limited_by=LimitedBy.PUBLISHER,
            confirmed=True,
            trials=13,
            headline="97 400 messages/s in all; at 98 900/s loss was 0.71 %",
            text="It passes up to 97 400/s ± 1 500/s; beyond that the publisher is the limit.",
        ),
        complete=True,
    ).model_copy(update=changes)
