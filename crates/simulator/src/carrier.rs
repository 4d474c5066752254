//! A model of the program that carries messages from one broker to another, under the names that a
//! plan declares: it takes them at once, publishes them after a delay, and deviates by a script. It
//! reads names as texts, independently of the engine, and notes what it has published.

use std::collections::BTreeMap;

use mqtt::QoS;
use plan::{Plan, Stamp};

use super::spoken::Spoken;

/// Payload of a message whose stamp the program has dropped.
pub const STRIPPED: &[u8] = b"a payload of the program's own";

/// Treatment of a message that the program takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierFate {
    /// Published once.
    Carry,
    /// Never published.
    Drop,
    /// Published twice.
    Double,
    /// Published after the next message of its name.
    Hold,
    /// Published so many nanoseconds later than others.
    Late(u64),
    /// Published with another payload.
    Strip,
}

/// Conduct of the program.
pub struct CarrierScript {
    /// Time between the two brokers, in nanoseconds.
    pub delay_ns: u64,
    /// QoS of the messages at a broker of MQTT.
    pub qos: QoS,
    /// `true` if a broker of MQTT retains the messages.
    pub retain: bool,
    /// After a restart of the brokers, the program publishes again what it has published in this
    /// time before it, in nanoseconds.
    pub again_ns: u64,
    /// Chooses the fate of the next message.
    pub fate: Box<dyn FnMut(&Stamp) -> CarrierFate>,
}

/// The program.
pub struct CarrierProgram {
    script: CarrierScript,
    rules: Vec<CarrierRule>,
    now_ns: u64,
    /// Messages to be published, by instant and number.
    waiting: BTreeMap<(u64, u64), CarriedMessage>,
    numbered: u64,
    /// Messages that wait for the next one of their name.
    held: BTreeMap<String, CarriedMessage>,
    /// Instant at which the network wakes the program, in nanoseconds.
    woken_ns: u64,
    /// Messages that it has published, in order.
    pub carried: Vec<CarriedMessage>,
    /// Number of messages by fate.
    pub seen: BTreeMap<&'static str, u64>,
}

/// A flow of the plan, as the program has been given it.
struct CarrierRule {
    from: (Spoken, String),
    to: (Spoken, String),
}

/// A message of the program.
#[derive(Clone)]
pub struct CarriedMessage {
    /// Index of its flow.
    pub flow: usize,
    /// The message that it repeats: its stream and its place there.
    pub place: (u64, u32),
    /// Protocol of the broker.
    pub to: Spoken,
    /// Name there.
    pub name: String,
    /// Payload.
    pub payload: Vec<u8>,
    /// Instant of its publication, in nanoseconds.
    pub at_ns: u64,
}

impl CarrierScript {
    /// A program that carries each message once, at once, with QoS 1.
    pub fn plain() -> Self {
        Self::with_fates(|_| CarrierFate::Carry)
    }

    /// The same with the fates that `fate` returns.
    pub fn with_fates(fate: impl FnMut(&Stamp) -> CarrierFate + 'static) -> Self {
        let qos = QoS::AtLeastOnce;
        Self { delay_ns: 0, qos, retain: false, again_ns: 0, fate: Box::new(fate) }
    }
}

impl CarrierProgram {
    /// A program that carries the messages of all flows of a plan.
    pub fn new(plan: &Plan, script: CarrierScript) -> Self {
        let rule = |flow: &plan::PlannedFlow| {
            let (from, at) = (&plan.populations[flow.population], &plan.populations[flow.at]);
            let topic = &from.publications[flow.publication].topic;
            CarrierRule {
                from: (Spoken::of(&from.protocol), topic.source().into()),
                to: (Spoken::of(&at.protocol), flow.to.source().into()),
            }
        };
        Self {
            script,
            rules: plan.flows.iter().map(rule).collect(),
            now_ns: 0,
            waiting: BTreeMap::new(),
            numbered: 0,
            held: BTreeMap::new(),
            woken_ns: u64::MAX,
            carried: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Sets the time, in nanoseconds.
    pub const fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Time between the two brokers, in nanoseconds.
    pub const fn delay_ns(&self) -> u64 {
        self.script.delay_ns
    }

    /// QoS and RETAIN of its messages at a broker of MQTT.
    pub const fn flags(&self) -> (QoS, bool) {
        (self.script.qos, self.script.retain)
    }

    /// A client has published a message at a broker.
    pub fn take(&mut self, spoken: Spoken, name: &str, payload: &[u8]) {
        let Some(stamp) = Stamp::read(payload).or_else(|| Stamp::find(payload)) else { return };
        for flow in 0..self.rules.len() {
            let CarrierRule { from, to } = &self.rules[flow];
            let values = captured(&from.1, name).filter(|_| from.0 == spoken);
            let Some(values) = values else { continue };
            let message = CarriedMessage {
                flow,
                place: (stamp.stream.key(), stamp.sequence),
                to: to.0,
                name: written(&to.1, &values),
                payload: payload.into(),
                at_ns: self.now_ns + self.script.delay_ns,
            };
            let fate = (self.script.fate)(&stamp);
            self.treat(message, fate);
        }
    }

    fn treat(&mut self, mut message: CarriedMessage, fate: CarrierFate) {
        *self.seen.entry(fate.name()).or_default() += 1;
        match fate {
            CarrierFate::Carry => {}
            CarrierFate::Drop => return,
            CarrierFate::Double => self.wait(message.clone()),
            CarrierFate::Hold if self.held.contains_key(&message.name) => {}
            CarrierFate::Hold => return drop(self.held.insert(message.name.clone(), message)),
            CarrierFate::Late(ns) => message.at_ns += ns,
            CarrierFate::Strip => message.payload = STRIPPED.into(),
        }
        let held = self.held.remove(&message.name);
        let at_ns = message.at_ns;
        self.wait(message);
        held.into_iter().for_each(|held| self.wait(CarriedMessage { at_ns, ..held }));
    }

    fn wait(&mut self, message: CarriedMessage) {
        self.numbered += 1;
        self.waiting.insert((message.at_ns, self.numbered), message);
    }

    /// The brokers end, and accept connections again at an instant: the program publishes again
    /// what they have perhaps not accepted.
    pub fn restart(&mut self, until_ns: u64) {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        let from_ns = self.now_ns.saturating_sub(self.script.again_ns);
        let again = self.carried.iter().rev().take_while(|own| own.at_ns > from_ns);
        let again: Vec<_> = again.cloned().collect();
        if !again.is_empty() {
            *self.seen.entry("carried again after a restart").or_default() += again.len() as u64;
        }
        for message in again.into_iter().rev().chain(waiting) {
            let at_ns = message.at_ns.max(until_ns);
            self.wait(CarriedMessage { at_ns, ..message });
        }
    }

    /// Instant of the next publication, unless the network wakes the program earlier.
    pub fn next_ns(&mut self) -> Option<u64> {
        let ((at_ns, _), _) = self.waiting.first_key_value()?;
        let is_new = *at_ns < self.woken_ns;
        self.woken_ns = self.woken_ns.min(*at_ns);
        is_new.then_some(*at_ns)
    }

    /// Takes the messages to be published now.
    pub fn take_due(&mut self) -> Vec<CarriedMessage> {
        self.woken_ns = u64::MAX;
        let rest = self.waiting.split_off(&(self.now_ns + 1, 0));
        let due: Vec<_> = std::mem::replace(&mut self.waiting, rest).into_values().collect();
        let now = |own: &CarriedMessage| CarriedMessage { at_ns: self.now_ns, ..own.clone() };
        self.carried.extend(due.iter().map(now));
        due
    }
}

impl CarrierFate {
    /// Its name in the counts.
    const fn name(self) -> &'static str {
        match self {
            Self::Carry => "message carried",
            Self::Drop => "message not carried",
            Self::Double => "message carried twice",
            Self::Hold => "message carried after a later one",
            Self::Late(_) => "message carried late",
            Self::Strip => "message carried without its stamp",
        }
    }
}

impl CarriedMessage {
    /// Returns `true` if the program has dropped its stamp.
    pub fn is_stripped(&self) -> bool {
        self.payload == STRIPPED
    }
}

/// The variables of a template and their texts in a name; `None` if it is another name.
fn captured<'a>(source: &'a str, name: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let Some((front, rest)) = source.split_once('{') else {
        return (source == name).then(Vec::new);
    };
    let (variable, rest) = rest.split_once('}')?;
    let name = name.strip_prefix(front)?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    let (value, name) = name.split_at(end);
    let mut values = captured(rest, name).filter(|_| !value.is_empty())?;
    values.push((variable, value));
    Some(values)
}

/// A template with these texts of its variables.
fn written(source: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(source.to_owned(), |name, (variable, value)| {
        name.replace(&format!("{{{variable}}}"), value)
    })
}

#[test]
fn names_are_written_with_the_values_of_the_names_that_were_read() {
    for (from, name, to, expected) in [
        ("t", "t", "s", Some("s")),
        ("t", "t/1", "s", None),
        ("d/{n}/state", "d/7/state", "d.{n}.state", Some("d.7.state")),
        ("d/{n}/state", "d//state", "all", None),
        ("d/{n}/{1..3}", "d/7/2", "v-{n}/e/{1..3}.{n}", Some("v-7/e/2.7")),
        ("v-{n}/e/{a|b}", "v-4/e/b", "all/{a|b}", Some("all/b")),
        ("d/{n}", "d/7/1", "all", None),
    ] {
        let found = captured(from, name).map(|values| written(to, &values));
        assert_eq!(found.as_deref(), expected, "{from} {name}");
    }
}
