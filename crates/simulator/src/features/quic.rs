//! Connections over QUIC in simulated runs: how a case draws them, and what the server saw.

use plan::{Action, Change, ChangeAction, Counters, PlannedProtocol, PlannedTls, Population};
use testkit::{Rng, plans};

use crate::case::Case;
use crate::course::Run;
use crate::totals::Totals;
use crate::weather::{Climate, DatagramWeather, Fault, S};

/// Draws targets over QUIC, apart from the other draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x0901_cbad);
    let speaks_mqtt = |protocol: &PlannedProtocol| matches!(protocol, PlannedProtocol::Mqtt(_));
    if !case.plan.populations.iter().all(|each| speaks_mqtt(&each.protocol)) || !rng.chance(30) {
        return;
    }
    for target in case.plan.targets.iter_mut().filter(|_| rng.chance(80)) {
        (target.tls, target.quic, target.websocket) = (true, true, None);
    }
    for population in &mut case.plan.populations {
        population.tls =
            Some(PlannedTls { resume: rng.pick(&[0.0, 0.5, 1.0]), ..plans::unverified() });
        population.link.clear();
    }
    case.weather.datagrams = weather(&mut rng, case.climate);
    for _ in 0..rng.below(4) {
        let keeps = case.climate != Climate::Storm || rng.chance(50);
        let fault = Fault::Rebind { per_cent: 1 + rng.below(100), keeps };
        case.weather.faults.push((rng.bits() % (8 * S), fault));
    }
    for population in &mut case.plan.populations {
        let early = rng.chance(50);
        let tls = population.tls.as_mut().filter(|tls| tls.resume > 0.0);
        tls.into_iter().for_each(|tls| tls.early_data = early);
    }
    case.weather.datagrams.rejects_early = rng.pick(&[0, 0, 30, 100]);
    let populations = case.plan.populations.len();
    for stage in &mut case.plan.stages {
        if let Action::Publish { duration_ns, changes, .. }
        | Action::Hold { duration_ns, changes } = &mut stage.action
        {
            for _ in 0..rng.below(3) {
                changes.push(migration(&mut rng, *duration_ns, populations));
            }
            changes.sort_by_key(|change| change.after_ns);
        }
    }
}

fn migration(rng: &mut Rng, duration_ns: u64, populations: usize) -> Change {
    let after_ns = rng.bits() % duration_ns;
    let over_ns = rng.bits() % (duration_ns - after_ns);
    let action = ChangeAction::Migrate { clients: 1 + rng.below(6) as u32, over_ns };
    Change { name: "migration".into(), after_ns, population: rng.below(populations), action }
}

/// In fair weather datagrams arrive twice and out of order, and sockets have no room for a time.
fn weather(rng: &mut Rng, climate: Climate) -> DatagramWeather {
    let fair = DatagramWeather {
        doubled: rng.pick(&[0, 10]),
        full: rng.pick(&[0, 2]),
        ..DatagramWeather::FAIR
    };
    match climate {
        Climate::Fair => fair,
        Climate::Narrow => DatagramWeather { window: 1000 + rng.below(3000) as u32, ..fair },
        Climate::Storm => DatagramWeather {
            lost: rng.pick(&[0, 1, 10]),
            window: 64 + rng.below(4000) as u32,
            idle_s: rng.pick(&[0, 1, 5]),
            ..fair
        },
    }
}

/// The names of what happened to connections that migrated or had data in 0-RTT, with their counts.
pub fn seen(totals: &Totals) -> impl Iterator<Item = (&'static str, u64)> {
    let sum = |of: fn(&Counters) -> u64| totals.counters.iter().map(of).sum();
    let counts = [
        ("migration followed", sum(|counters| counters.migrations_followed_total)),
        ("migration lost", sum(|counters| counters.migrations_lost_total)),
        ("data in 0-RTT accepted", sum(|counters| counters.tls_early_accepted_total)),
        ("data in 0-RTT rejected", sum(|counters| counters.tls_early_rejected_total)),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0)
}

/// The server sees the migrations that it follows. In fair weather none ends a connection.
pub fn check(run: &Run, totals: &Totals) {
    let mut followed = 0;
    for (population, counters) in run.plan().populations.iter().zip(&totals.counters) {
        let (made, lost) = (counters.migrated_total, counters.migrations_lost_total);
        let what = format!("{}: {made} migrations, {lost} lost", population.name);
        assert!(counters.migrations_followed_total + lost <= made, "{what}");
        assert!(lost == 0 || run.case.climate != Climate::Fair, "{what}");
        followed += counters.migrations_followed_total;
    }
    assert!(followed <= run.network().migrations_total(), "{followed} were followed");
    check_handshakes(run, totals);
}

/// Clients over QUIC have no handshake of TCP. Each has one of TLS, and resumes a session only if
/// its population does.
fn check_handshakes(run: &Run, totals: &Totals) {
    let (plan, weather) = (run.plan(), &run.case.weather.datagrams);
    // A protocol with a port of its own has TCP there.
    let is_over_quic = |population: &Population| {
        plan.targets.iter().all(|each| each.quic && population.port_of(each) == each.port)
    };
    if !plan.populations.iter().all(is_over_quic) {
        return;
    }
    let own = run.snapshots.iter().flat_map(|snapshot| &snapshot.populations);
    assert_eq!(own.map(|own| own.connect_tcp.count()).sum::<u64>(), 0);
    for (p, (population, counters)) in plan.populations.iter().zip(&totals.counters).enumerate() {
        let own = run.snapshots.iter().map(|snapshot| &snapshot.populations[p]);
        let times = own.fold((0, 0, 0), |(full, resumed, early), own| {
            let (new_full, new_resumed) =
                (&own.connect_time_tls_full, &own.connect_time_tls_resumed);
            let new_early = own.connect_time_tls_early.count();
            (full + new_full.count(), resumed + new_resumed.count(), early + new_early)
        });
        let (full, resumed) = (counters.tls_full_total, counters.tls_resumed_total);
        let (accepted, rejected) =
            (counters.tls_early_accepted_total, counters.tls_early_rejected_total);
        let what = format!(
            "{}: {full} full, {resumed} resumed, {accepted} early, {rejected} not, {times:?}",
            population.name
        );
        assert_eq!(times.0 + times.1 + times.2, counters.connected_total, "{what}");
        assert!(times.0 <= full && times.1 + accepted <= resumed, "{what}");
        assert!(times.2 <= accepted && accepted + rejected <= full + resumed, "{what}");
        let offers = population.tls.as_ref().is_some_and(|tls| tls.early_data);
        assert!(offers || accepted + rejected == 0, "{what}");
        let accepts = run.case.climate == Climate::Fair && weather.rejects_early == 0;
        assert!(!accepts || rejected == 0, "{what}");
        assert!(counters.tls_resume_refused_total <= full, "{what}");
        let resumes = population.tls.as_ref().is_some_and(|tls| tls.resume > 0.0);
        assert!(resumes || resumed + counters.tls_resume_refused_total == 0, "{what}");
    }
}
