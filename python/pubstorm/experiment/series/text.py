"""The conclusion of a series in one line, or in one for each variant: the last step that passed,
the first that failed, and the limit. A pure function of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pubstorm.result import LimitedBy, SeriesStep, Status
from pubstorm.result.series import NOT_PASSED


def text_of(steps: Sequence[SeriesStep], is_ladder: bool) -> str:
    """The line for steps in the order of playing; of a ladder, where a value grows from step to
    step and none is a search, it says how far it passed. With variants a line for each."""
    is_ladder = is_ladder and not any(step.answer for step in steps)
    variants = dict.fromkeys(step.variant for step in steps)
    return "\n".join(_of_variant(variant, steps, is_ladder) for variant in variants)


def _of_variant(variant: str | None, steps: Sequence[SeriesStep], is_ladder: bool) -> str:
    if variant is None:
        return _line(steps, is_ladder)
    own = [s.model_copy(update={"label": s.base}) for s in steps if s.variant == variant]
    return f"{variant}: {_line(own, is_ladder)}"


def _line(steps: Sequence[SeriesStep], is_ladder: bool) -> str:
    unfit = [f"{step.name} not run: {step.unfit}" for step in steps if step.unfit is not None]
    played = [step for step in steps if step.was_played]
    if not played:
        return "; ".join(["no step was played", *unfit])
    parts = [_ladder(played) if is_ladder else _counts(played), _first_failed(played)]
    left = len(steps) - len(played) - len(unfit)
    parts += [f"{left} of {len(steps)} steps not played"] if left else []
    parts += unfit
    return "; ".join(part for part in parts if part)


def _ladder(played: Sequence[SeriesStep]) -> str:
    """Returns the last step up to which every repeat passed."""
    groups = [list(group) for _, group in groupby(played, key=lambda step: step.label)]
    failed = next((n for n, group in enumerate(groups) if not all(map(_passed, group))), None)
    if failed == 0:
        return "not even the first step passed"
    last = groups[-1 if failed is None else failed - 1][0].label
    passed = f"passed up to {last}"
    if failed is None:
        return f"{passed}, the last step played"
    after = groups[failed + 1 :]
    again = sum(all(map(_passed, group)) for group in after)
    return f"{passed}, and in {again} of {len(after)} steps beyond the failure" if again else passed


def _counts(played: Sequence[SeriesStep]) -> str:
    total = len(played)
    noun = "step" if total == 1 else "steps"
    outcomes = [step.outcome for step in played]
    parts = [f"{outcomes.count('pass')} of {total} {noun} passed"]
    parts += [f"{outcomes.count(o)} {word}" for o, word in NOT_PASSED.items() if o in outcomes]
    return ", ".join(parts)


def _first_failed(played: Sequence[SeriesStep]) -> str:
    step = next((step for step in played if not _passed(step)), None)
    if step is None:
        return ""
    if step.status is None:
        problem = (step.problem or "").partition("\n")[0]
        return f"{step.name} came to no measurement: {problem}"
    word = {Status.FAIL: "failed", Status.OPEN: "is open"}.get(step.status, "is invalid")
    is_unlimited = step.limited_by in {None, LimitedBy.NONE}
    limit = "" if is_unlimited else f": limited by {step.limited_by}"
    evidence = f": {step.evidence[0]}" if step.evidence else ""
    return f"{step.name} {word}{limit}{evidence}"


def _passed(step: SeriesStep) -> bool:
    return step.status is Status.PASS
