//! Deaths of clients and their wills, in virtual time: the broker publishes what is expected.

use plan::{
    Action, End, Lifetime, MqttVersion, Plan, PlannedProtocol, PlannedWill, Population, Property,
    PropertyValue,
};
use testkit::{Broker, Script};

use crate::case::Case;
use crate::checks;
use crate::course::Run;
use crate::peer::Peer;
use crate::totals::Totals;
use crate::weather::{Climate, MS, S, Weather};
use crate::wire;
use testkit::plans::{self, stage, subscription, template};

const CLIENTS: u32 = 6;

/// Clients that die, and the session that the broker keeps of them.
struct Dying {
    end: End,
    delay_s: u32,
    keeps_session: bool,
    /// Time offline between two sessions of 200 ms.
    offline_ns: Option<u64>,
}

impl Dying {
    const fn by(end: End) -> Self {
        Self { end, delay_s: 0, keeps_session: false, offline_ns: None }
    }

    fn population(&self) -> Population {
        let number = |name: &str, number| Property {
            name: name.into(),
            key: None,
            value: PropertyValue::Number(number),
        };
        let mut population = plans::population("device", CLIENTS);
        population.end = self.end;
        population.keep_alive_s = 1;
        population.lifetime = self.offline_ns.map(|offline_ns| Lifetime {
            min_ns: 200 * MS,
            max_ns: 200 * MS,
            offline_ns: Some(offline_ns),
            recorded: None,
        });
        if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
            mqtt.version = MqttVersion::V5;
            mqtt.clean_session = !self.keeps_session;
            if self.keeps_session {
                mqtt.properties = vec![number("session_expiry_interval", u32::MAX)];
            }
            mqtt.will = Some(Box::new(PlannedWill {
                topic: template("will/0/{n}"),
                payload: template("gone"),
                qos: 1,
                retain: false,
                properties: vec![number("will_delay_interval", self.delay_s)],
            }));
        }
        population
    }

    /// Plays half a second of lives, ends them, and waits for wills.
    fn play(&self) -> (Run, Totals) {
        let mut watcher = plans::population("watcher", 1);
        watcher.subscriptions = vec![subscription("will/#", 1)];
        let connect =
            Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
        let hold = |duration_ns| Action::Hold { duration_ns, changes: Vec::new() };
        let disconnect = Action::Disconnect { rate_per_s: None };
        let stages = vec![
            stage(connect, &[0, 1]),
            stage(hold(500 * MS), &[0, 1]),
            stage(disconnect.clone(), &[0]),
            stage(hold(S), &[1]),
            stage(disconnect, &[1]),
        ];
        let populations = vec![self.population(), watcher];
        let plan = Plan { populations, stages, ..plans::empty(1) };
        let weather = Weather { keep_alive_check_ns: 50 * MS, ..Weather::fair() };
        let case = Case::playing(plan, Climate::Fair, weather);
        let run = Run::play(case, 1, 1, Peer::new(Broker::new(Script::reliable())));
        let totals = checks::check(&run);
        (run, totals)
    }

    /// Wills that the broker has published, after checking that the watcher received just these.
    fn wills(&self) -> u64 {
        let (run, totals) = self.play();
        let network = run.network();
        let accepted = network.peer.broker.accepted().iter();
        let published = accepted.filter(|message| wire::will_of(&message.topic).is_some()).count();
        let flow = totals.flows.get(&(0, 1)).copied().unwrap_or_default();
        let found = (flow.wills_expected_total, flow.wills_received_total);
        assert_eq!(found, (published as i64, published as i64));
        published as u64
    }

    /// Longest latency of a will of clients that do not return, in nanoseconds.
    fn longest_ns(&self) -> u64 {
        let (run, _) = self.play();
        let mut latency = plan::Histogram::default();
        let flows = run.snapshots.iter().flat_map(|snapshot| &snapshot.flows);
        flows.for_each(|flow| latency.add(&flow.will_latency));
        // Negative latencies are not among these.
        assert_eq!(latency.count(), u64::from(CLIENTS));
        latency.quantile_ns(1.0)
    }
}

#[test]
fn each_end_but_a_plain_disconnect_publishes_a_will() {
    let all = u64::from(CLIENTS);
    for (end, wills) in [
        (End::Disconnect, 0),
        (End::DisconnectWithWill, all),
        (End::Abort, all),
        (End::Vanish, all),
    ] {
        assert_eq!(Dying::by(end).wills(), wills, "{end:?}");
    }
}

#[test]
fn the_latency_of_a_will_begins_when_it_is_due() {
    for end in [End::DisconnectWithWill, End::Abort, End::Vanish] {
        for (delay_s, keeps_session) in [(0, false), (1, true), (1, false)] {
            let dying = Dying { delay_s, keeps_session, ..Dying::by(end) };
            let longest_ns = dying.longest_ns();
            assert!(longest_ns < 200 * MS, "{end:?}, {delay_s} s: {longest_ns} ns");
        }
    }
}

#[test]
fn a_client_that_continues_its_session_within_the_delay_has_no_will() {
    let offline_ns = Some(100 * MS);
    for end in [End::DisconnectWithWill, End::Abort, End::Vanish] {
        let brief = |delay_s, keeps_session| {
            Dying { delay_s, keeps_session, offline_ns, ..Dying::by(end) }.wills()
        };
        // Only the last death of each client has a will.
        assert_eq!(brief(1, true), u64::from(CLIENTS), "{end:?}");
        // A client that returns before the broker has noticed its silence has its will too.
        assert!(brief(0, true) > u64::from(CLIENTS), "{end:?}");
        assert!(brief(1, false) > u64::from(CLIENTS), "{end:?}");
    }
}

/// Wills of clients without `reconnect` whose connections others took over, by will delay and kept
/// sessions of both.
fn wills_of_victims(version: MqttVersion, delay_s: u32, keeps_session: bool) -> i64 {
    let dying = Dying { delay_s, keeps_session, ..Dying::by(End::Disconnect) };
    let mut device = dying.population();
    device.reconnect = None;
    let mut thief = Population { name: "thief".into(), takes_over: Some(0), ..device.clone() };
    for population in [&mut device, &mut thief] {
        let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol else {
            unreachable!("it is MQTT")
        };
        mqtt.version = version;
    }
    if let PlannedProtocol::Mqtt(mqtt) = &mut thief.protocol {
        mqtt.will = None;
    }
    let mut watcher = plans::population("watcher", 1);
    watcher.subscriptions = vec![subscription("will/#", 1)];
    let connect =
        Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    let stages = vec![
        stage(connect.clone(), &[0, 2]),
        stage(connect, &[1]),
        stage(Action::Hold { duration_ns: 3 * S, changes: Vec::new() }, &[0, 1, 2]),
        stage(Action::Disconnect { rate_per_s: None }, &[0, 1, 2]),
    ];
    let plan = Plan { populations: vec![device, thief, watcher], stages, ..plans::empty(1) };
    let (changes, exclusions) = (Vec::new(), Vec::new());
    let (agents, climate, weather) = (2, Climate::Fair, Weather::fair());
    let case = Case { plan, changes, exclusions, agents, climate, weather, files: None };
    let run = Run::play(case, 1, agents, Peer::new(Broker::new(Script::reliable())));
    let totals = checks::check(&run);
    let victims = &totals.outcomes[0];
    let taken_over = match version {
        MqttVersion::V5 => plan::Reason::Answer(
            plan::AnswerCode::of(mqtt::PacketType::Disconnect, 0x8e).expect("it has the code"),
        ),
        _ => plan::Reason::ClosedByBroker,
    };
    assert_eq!(victims.get(&taken_over), Some(&u64::from(CLIENTS)), "{victims:?}");
    assert_eq!(totals.counters[1].disconnected_total, 0);
    let flow = totals.flows.get(&(0, 2)).copied().unwrap_or_default();
    assert_eq!(flow.wills_expected_total, flow.wills_received_total);
    flow.wills_expected_total
}

#[test]
fn victims_of_takeovers_have_their_wills() {
    let all = i64::from(CLIENTS);
    assert_eq!(wills_of_victims(MqttVersion::V311, 0, false), all);
    assert_eq!(wills_of_victims(MqttVersion::V5, 0, false), all);
    assert_eq!(wills_of_victims(MqttVersion::V5, 0, true), all);
    assert_eq!(wills_of_victims(MqttVersion::V5, 1, false), all);
    // A client that continues the session within the will delay cancels the will.
    assert_eq!(wills_of_victims(MqttVersion::V5, 1, true), 0);
}

#[test]
fn clients_that_return_hold_up_no_first_attempt_and_count_until_they_are_ready() {
    const COUNT: u32 = 40;
    let mut population = plans::population("device", COUNT);
    population.lifetime = Some(Lifetime {
        min_ns: 200 * MS,
        max_ns: 300 * MS,
        offline_ns: Some(20 * MS),
        recorded: None,
    });
    let connect = Action::Connect {
        rate_per_s: None,
        parallelism: Some(4),
        timeout_ns: 2 * S,
        clients: None,
    };
    let hold = Action::Hold { duration_ns: S, changes: Vec::new() };
    // The clients leave at the end of the last stage.
    let stages = vec![stage(connect, &[0]), stage(hold.clone(), &[0]), stage(hold, &[0])];
    let plan = Plan { populations: vec![population], stages, ..plans::empty(1) };
    let weather = Weather { latency_max_ns: 150 * MS, ..Weather::fair() };
    let case = Case::playing(plan, Climate::Fair, weather);
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(Script::reliable())));
    assert_eq!(run.overrun, [0; 0]);
    let held = run.snapshots.iter().filter(|snapshot| snapshot.stage == Some(1));
    let counts = held.map(|snapshot| {
        let gauges = &snapshot.populations[0].gauges;
        assert!(gauges.connected < u64::from(COUNT));
        gauges.ready + gauges.offline
    });
    assert_eq!(counts.min(), Some(u64::from(COUNT)));
}
