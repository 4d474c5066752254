"""The report of a run."""

from __future__ import annotations

from pubstorm.report.document import KEY_FIGURES_MAX, Case, Document
from pubstorm.report.key_figures import key_figures
from pubstorm.report.tables import detail_tables, facts, tables
from pubstorm.result import RunResult, Status


def run_document(result: RunResult) -> Document:
    """Builds the report of a run."""
    figures = tuple(key_figures(result))
    return Document(
        kind="run",
        title=result.name,
        started=result.started,
        run_directory=result.run_directory,
        status=result.verdict.status,
        limited_by=result.verdict.limited_by,
        headline=result.verdict.headline,
        key_figures=figures[:KEY_FIGURES_MAX],
        more_figures=figures[KEY_FIGURES_MAX:],
        verdict=result.verdict,
        facts=facts(result),
        tables=tuple(tables(result)),
        details=tuple(detail_tables(result)),
        cases=_cases(result),
        output=_output(result),
    )


def _cases(result: RunResult) -> tuple[Case, ...]:
    verdict = result.verdict
    evidence = "\n".join(verdict.evidence) or f"limited by {verdict.limited_by}"
    is_invalid = verdict.status is Status.INVALID
    missed = any(threshold.missed for threshold in verdict.thresholds)
    has_failed = verdict.status is Status.FAIL and not missed
    return (
        Case("run is valid", evidence if is_invalid else None, took_s=result.duration_s),
        Case("target did not fail", evidence if has_failed else None),
        *(
            Case(
                threshold.label,
                threshold.text if threshold.missed else None,
                threshold.text if threshold.undecided else None,
            )
            for threshold in verdict.thresholds
        ),
    )


def _output(result: RunResult) -> tuple[str, ...]:
    verdict = result.verdict
    return (
        *([verdict.headline] if verdict.headline else []),
        f"{str(verdict.status).upper()}, limited by {verdict.limited_by}",
        *verdict.evidence,
        *(f"{figure.name}: {figure.value} ({figure.note})" for figure in key_figures(result)),
        *(f"{problem.kind}: {problem.text}" for problem in result.problems),
        *(f"{event.at_s:.1f} s {event.kind}: {event.text}" for event in result.events),
    )
