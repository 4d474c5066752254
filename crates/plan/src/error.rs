//! Errors of a plan that an agent cannot play.

use crate::model::Plan;
use crate::text::template::TemplateError;

/// Reason why an agent cannot play a plan. The controller checks more and has better messages. An
/// agent makes only the checks on which its code relies.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not the JSON of a plan.
    #[error("the plan is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// A plan of another version of Pubstorm.
    #[error("the plan has format {found}, this engine reads format {}", Plan::FORMAT)]
    Format {
        /// Format of the plan.
        found: u32,
    },
    /// A template that its place does not allow.
    #[error("{path}: {source}")]
    Template {
        /// Path in the plan.
        path: String,
        /// Error in the template.
        source: TemplateError,
    },
    /// A value outside its range.
    #[error("{path}: {what}")]
    Range {
        /// Path in the plan.
        path: String,
        /// Value found and values allowed.
        what: String,
    },
}

/// Returns an error with `what` unless the condition `holds`.
pub(crate) fn require(
    holds: bool,
    path: &str,
    what: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(PlanError::Range { path: path.to_owned(), what: what() }) }
}
