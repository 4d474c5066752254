//! Clients and brokers with a right and a wrong password.

use plan::{MqttVersion, Outcomes, PlannedProtocol, PlannedWill, Reason};
use testkit::{Broker, Script, StepAnswer};

use crate::case::case;
use crate::checks::check;
use crate::course::Run;
use crate::features::authentication::authenticate;
use crate::peer::Peer;
use crate::scram::{PASSWORD, right, wrong};
use crate::totals::Totals;
use crate::weather::{S, Weather};
use testkit::plans::{speaking, subscription, template};

/// A broker's answers.
type StepAnswers = fn(&[Vec<u8>]) -> StepAnswer;

/// Three clients with a password for a second, and a broker with these answers. Returns how many
/// clients the broker accepted, and the outcomes.
fn played(password: &str, answer: StepAnswers) -> (u64, Outcomes) {
    let mut population = speaking(MqttVersion::V5, "device", 3);
    authenticate(&mut population, "u{n}", password);
    population.reconnect = None;
    let script = Script { authenticate: Box::new(answer), ..Script::reliable() };
    let case = case(vec![population], S, Weather::fair());
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(script)));
    let totals = match password.starts_with(PASSWORD) {
        true => check(&run),
        false => Totals::of(&run),
    };
    (totals.counters[0].connected_total, totals.outcomes[0].clone())
}

#[test]
fn clients_and_brokers_with_the_password_prove_themselves() {
    assert_eq!(played("secret of u{n}", right), (3, Outcomes::new()));
}

#[test]
fn a_client_with_another_password_is_refused() {
    assert_eq!(played("guessed", right), (0, [(Reason::NotAuthorized, 3)].into()));
}

#[test]
fn the_will_of_a_client_whose_broker_proves_nothing_is_expected() {
    let mut device = speaking(MqttVersion::V5, "device", 3);
    authenticate(&mut device, "u{n}", "secret of u{n}");
    device.reconnect = None;
    if let PlannedProtocol::Mqtt(mqtt) = &mut device.protocol {
        mqtt.will = Some(Box::new(PlannedWill {
            topic: template("will/0/{n}"),
            payload: template("gone"),
            qos: 1,
            retain: false,
            properties: Vec::new(),
        }));
    }
    let mut watcher = speaking(MqttVersion::V5, "watcher", 1);
    watcher.subscriptions = vec![subscription("will/#", 1)];
    let mut case = case(vec![device, watcher], S, Weather::fair());
    // The watcher connects before the devices.
    case.plan.stages.insert(0, case.plan.stages[0].clone());
    case.plan.stages[0].populations = vec![1];
    let authenticate = Box::new(|_: &[Vec<u8>]| StepAnswer::Accept(Vec::new()));
    let script = Script { authenticate, ..Script::reliable() };
    let totals = check(&Run::play(case, 1, 1, Peer::new(Broker::new(script))));
    assert_eq!(totals.outcomes[0], [(Reason::ServerUnproved, 3)].into());
    let flow = totals.flow(0, 1);
    assert_eq!((flow.wills_expected_total, flow.wills_received_total), (3, 3));
}

#[test]
fn every_error_of_a_broker_in_an_authentication_has_its_reason() {
    use Reason::{AuthenticationInvalid, ConnectTimeout, NotAuthorized, ServerUnproved};
    /// Errs in the second step.
    fn late<const ERROR: usize>(steps: &[Vec<u8>]) -> StepAnswer {
        if steps.len() == 1 { right(steps) } else { wrong(steps).swap_remove(ERROR) }
    }
    fn early<const ERROR: usize>(steps: &[Vec<u8>]) -> StepAnswer {
        wrong(steps).swap_remove(ERROR)
    }
    let brokers: [[StepAnswers; 2]; 6] = [
        [early::<0>, late::<0>],
        [early::<1>, late::<1>],
        [early::<2>, late::<2>],
        [early::<3>, late::<3>],
        [early::<4>, late::<4>],
        [early::<5>, late::<5>],
    ];
    let reasons = [
        ConnectTimeout,
        NotAuthorized,
        ServerUnproved,
        ServerUnproved,
        ServerUnproved,
        AuthenticationInvalid,
    ];
    for (error, (brokers, reason)) in brokers.into_iter().zip(reasons).enumerate() {
        for broker in brokers {
            let found = played("secret of u{n}", broker);
            assert_eq!(found, (0, [(reason, 3)].into()), "error {error}");
        }
    }
}
