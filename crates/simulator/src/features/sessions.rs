//! Sessions and queued messages in simulated runs: a broker that does not forget loses none.

use crate::course::Run;
use crate::totals::Totals;

/// Only a broker that forgets loses sessions, and only clients with sessions have some to lose.
/// Each queued delivery has arrived or is lost.
pub fn check(run: &Run, totals: &Totals) {
    let forgot = run.network().weather.seen.contains_key("restart that forgets");
    let populations = run.plan().populations.iter().zip(&totals.counters);
    for ((population, counters), times) in populations.zip(&totals.resumed) {
        let (lost, resumed) = (counters.sessions_lost_total, counters.sessions_resumed_total);
        let what = format!("{}: {lost} lost, {resumed} resumed", population.name);
        assert!(times.count() <= resumed, "{what}");
        assert!(lost == 0 || forgot && population.keeps_session(), "{what}");
        assert!(resumed == 0 || population.keeps_session(), "{what}");
        // A broker that accepts a client and does not prove itself has connected none.
        assert!(lost + resumed <= counters.connect_attempts_total, "{what}");
    }
    let has_returned = totals.resumed.iter().any(|times| times.count() > 0);
    assert!(has_returned || totals.queued_latency.count() == 0, "queued for no session");
    for ((from, to), flow) in &totals.flows {
        let what = format!("flow {from} to {to}: {flow:?}");
        let arrived = flow.queued_received_total;
        assert_eq!(flow.queued_total, arrived + flow.queued_lost_total, "{what}");
        assert!(flow.queued_lost_total >= 0 && arrived >= 0, "{what}");
        assert!(arrived <= flow.received_total, "{what}");
        assert!(flow.queued_total == 0 || run.plan().populations[*to].keeps_session(), "{what}");
    }
}
