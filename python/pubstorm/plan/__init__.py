"""Plan: a scenario with every choice made, the same for every agent."""

from pubstorm.plan.compile import (
    compile_plan,
    placed_plan,
    planned_targets,
    planned_tls,
    provisional_plan,
    targets_by_name,
)

__all__ = [
    "compile_plan",
    "placed_plan",
    "planned_targets",
    "planned_tls",
    "provisional_plan",
    "targets_by_name",
]
