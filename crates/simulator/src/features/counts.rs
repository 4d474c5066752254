//! Numbers of messages of publish stages in simulated runs: no population sends more.

use plan::{Action, Late, Pace, PlannedStage, Publication, quota};
use testkit::Rng;

use crate::case::Case;
use crate::course::Run;
use crate::totals::Totals;

/// Draws numbers of messages, apart from the other draws: for stages that no client joins or leaves
/// by a change, which the controller refuses there. Each agent ends such a stage by itself, so that
/// some would make the change and others not.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x0c00_4715);
    let Case { plan, changes: beyond, .. } = case;
    for (index, stage) in plan.stages.iter_mut().enumerate() {
        let populations = stage.populations.len();
        let moved = beyond.iter().any(|change| change.0 == index && change.3.moves_clients());
        if let Action::Publish { messages, changes, .. } = &mut stage.action
            && rng.chance(25)
        {
            let most = rng.pick(&[3, 40, 1000]);
            let numbers = (0..populations).map(|_| rng.below(most) as u64).collect();
            let is_moved = moved || changes.iter().any(|change| change.action.moves_clients());
            *messages = (!is_moved).then_some(numbers);
        }
    }
}

/// A population sends at most the messages of a stage in it. Answers are no messages of the stage.
pub fn check(run: &Run, _: &Totals) {
    for (index, stage) in run.plan().stages.iter().enumerate() {
        for (&population, &most) in stage.populations.iter().zip(numbers(stage)) {
            let own = run.snapshots.iter().filter(|snapshot| snapshot.stage == Some(index));
            let counters = own.map(|snapshot| &snapshot.populations[population].counters);
            let sent = counters.map(|counters| counters.sent_total - counters.answers_total);
            let (sent, name) = (sent.sum::<u64>(), &run.plan().populations[population].name);
            assert!(sent <= most, "{name}: {sent} of {most} messages in stage {index}");
        }
    }
}

/// Messages of each population of a stage; empty without numbers.
fn numbers(stage: &PlannedStage) -> &[u64] {
    match &stage.action {
        Action::Publish { messages, .. } => messages.as_deref().unwrap_or_default(),
        _ => &[],
    }
}

/// Messages of a client of a population in a stage at most.
pub fn most(run: &Run, stage: &PlannedStage, population: usize, client: u32) -> u64 {
    let numbers = stage.populations.iter().zip(numbers(stage));
    let clients = run.plan().populations[population].clients;
    let own = numbers.into_iter().find(|(p, _)| **p == population);
    own.map_or(u64::MAX, |(_, &messages)| quota(messages, clients, client))
}

/// Returns `true` if a stage has a number of messages of a population.
pub fn are_counted(run: &Run, population: usize) -> bool {
    let counted = |stage: &PlannedStage| {
        !numbers(stage).is_empty() && stage.populations.contains(&population)
    };
    run.plan().stages.iter().any(counted)
}

/// Returns `true` if the messages of a population depend on the instants at which they are sent: a
/// number of messages is made up with those of a later schedule, or with those of another
/// publication.
pub fn depend_on_time(run: &Run, population: usize) -> bool {
    let publications = &run.plan().populations[population].publications;
    let skips = |publication: &Publication| {
        matches!(publication.pace, Pace::Open { late: Late::Skip, .. } | Pace::Closed)
    };
    are_counted(run, population) && (publications.len() > 1 || publications.iter().any(skips))
}
