//! One PUB socket and its schedule: what is due is handed to libzmq on an absolute schedule, or as
//! fast as libzmq takes it. It is never told what libzmq drops; what it counts is what it handed
//! over.

use agent::clock;
use agent::publication::{Moment, Sender};
use anyhow::Result;
use plan::{Pacer, Security, Tempo};
use zmq::{Context, Socket};

use crate::composer::Composer;
use crate::doorkeeper;
use crate::event_loop::{Player, Shared};
use crate::own::{Own, OwnError};
use crate::stage::{Stage, Task};

/// How long it sends without a look at anything else, in nanoseconds.
const TURN_NS: u64 = 1_000_000;
/// How often libzmq's own events are looked at, so that subscriptions reach the socket, in
/// nanoseconds. While messages are sent, libzmq does that by itself.
const LOOK_NS: u64 = 10_000_000;
/// Messages sent with one reading of the clock at most.
const BATCH_MAX: u32 = 16;
/// Time that these may take, in nanoseconds: the most by which a stamp's actual time is too early.
const BATCH_NS: u64 = 10_000;

/// The one publisher of an agent.
pub struct Publisher {
    socket: Socket,
    composer: Composer,
    /// Its schedule; `None`: as fast as it can.
    pacer: Option<Pacer>,
    skips_late: bool,
    client: u32,
    /// Messages handed over in the whole run.
    sent: u64,
    /// The publish stage that it takes part in.
    schedule: Option<Schedule>,
    /// When libzmq's events were last looked at, in nanoseconds.
    looked_ns: u64,
    /// Messages for one reading of the clock.
    batch: u32,
}

/// A publish stage.
struct Schedule {
    start_ns: u64,
    end_ns: u64,
    tempo: Tempo,
    /// Messages that are sent or skipped.
    scheduled: u64,
}

impl Publisher {
    /// Listens at the client's target.
    ///
    /// # Errors
    /// [`OwnError::Bind`] where that is not possible, and libzmq's.
    pub fn new(own: &Own) -> Result<Self> {
        let client = own.shard.global(0);
        let context = Context::new();
        context.set_io_threads(own.zmq.io_threads.cast_signed())?;
        let socket = context.socket(zmq::PUB)?;
        socket.set_sndhwm(i32::try_from(own.zmq.high_water_mark).unwrap_or(i32::MAX))?;
        socket.set_linger(0)?;
        if own.zmq.security == Security::Plain {
            let (username, password) = own.credentials(client);
            doorkeeper::start(&context, username, password)?;
            socket.set_zap_domain("pubstorm")?;
            socket.set_plain_server(true)?;
        }
        let target = own.target(client);
        let endpoint = format!("tcp://{}:{}", target.host, target.port);
        socket.bind(&endpoint).map_err(|error| OwnError::Bind { endpoint, error })?;
        let population = own.population();
        let ready = own.publications[own.population][0];
        let sender = Sender {
            client,
            n: population.first + u64::from(client),
            run_tag: own.plan.run_tag,
            since_1970_ns: clock::since_1970_ns(),
            first_sequence: 0,
        };
        Ok(Self {
            socket,
            composer: Composer::new(population.publications[0].clone(), ready, sender),
            pacer: ready.pacer,
            skips_late: ready.skips_late,
            client,
            sent: 0,
            schedule: None,
            looked_ns: 0,
            batch: 1,
        })
    }

    /// Lets the socket take subscriptions, and who has come or gone.
    fn look(&mut self, now_ns: u64) -> Result<()> {
        self.looked_ns = now_ns;
        self.socket.get_events()?;
        Ok(())
    }

    /// Sends what is due, for a turn at most; returns when the next message is due.
    fn send_due(&mut self, shared: &mut Shared) -> Result<u64> {
        let mut now_ns = clock::now_ns();
        let turn_end_ns = now_ns + TURN_NS;
        loop {
            for _ in 0..self.batch {
                let due_ns = self.next_due_ns(now_ns);
                if due_ns > now_ns {
                    return Ok(due_ns);
                }
                self.send(due_ns, now_ns, shared)?;
            }
            let before_ns = std::mem::replace(&mut now_ns, clock::now_ns());
            self.batch = match now_ns - before_ns {
                0..BATCH_NS => (2 * self.batch).min(BATCH_MAX),
                _ => (self.batch / 2).max(1),
            };
            if now_ns >= turn_end_ns {
                return Ok(now_ns);
            }
        }
    }

    /// When the next message is due; `u64::MAX`: none is, as far as can be told.
    fn next_due_ns(&self, now_ns: u64) -> u64 {
        let Some(schedule) = &self.schedule else { return u64::MAX };
        let due_ns = match &self.pacer {
            Some(pacer) => {
                let after_ns =
                    schedule.tempo.real_ns(pacer.due_ns(self.client, schedule.scheduled));
                schedule.start_ns.saturating_add(after_ns)
            }
            None if schedule.tempo.factor() == 0.0 => u64::MAX,
            None => now_ns.max(schedule.start_ns),
        };
        if due_ns < schedule.end_ns { due_ns } else { u64::MAX }
    }

    /// Hands over the next message, or skips it where it is too late.
    fn send(&mut self, due_ns: u64, now_ns: u64, shared: &mut Shared) -> Result<()> {
        let Some(schedule) = &mut self.schedule else { return Ok(()) };
        schedule.scheduled += 1;
        let late_ns = now_ns - due_ns;
        let counters = &mut shared.tally.populations[shared.own.population].counters;
        if let Some(pacer) = &self.pacer {
            let late = late_ns as f64 * schedule.tempo.factor();
            if self.skips_late && late > pacer.period_ns(self.client) {
                counters.skipped_total += 1;
                return Ok(());
            }
            shared.tally.lateness.record(late_ns.cast_signed());
        }
        self.composer.compose(Moment { number: self.sent, intended_ns: due_ns, actual_ns: now_ns });
        let mut bytes = self.composer.payload().len();
        if let Some(topic) = self.composer.topic() {
            self.socket.send(topic, zmq::SNDMORE)?;
            bytes += topic.len();
        }
        self.socket.send(self.composer.payload(), 0)?;
        self.sent += 1;
        counters.sent_total += 1;
        counters.packets_sent_total += 1;
        counters.bytes_sent_total += bytes as u64;
        Ok(())
    }

    /// Messages due before `until_ns` that are neither sent nor skipped.
    fn backlog(&self, until_ns: u64) -> u64 {
        let (Some(schedule), Some(pacer)) = (&self.schedule, &self.pacer) else { return 0 };
        let until_ns = until_ns.min(schedule.end_ns).saturating_sub(schedule.start_ns);
        let due = pacer.due_before(self.client, schedule.tempo.schedule_before(until_ns));
        due.saturating_sub(schedule.scheduled)
    }
}

impl Player for Publisher {
    fn start(&mut self, shared: &mut Shared) -> Result<()> {
        is_there(shared, true);
        Ok(())
    }

    fn enter(&mut self, stage: &Stage, shared: &mut Shared) -> Result<()> {
        match stage.task {
            Task::Connect { .. } => is_there(shared, true),
            Task::Disconnect => is_there(shared, false),
            Task::Publish => {
                self.look(shared.now_ns)?;
                let end_ns = stage.end_ns.unwrap_or(u64::MAX);
                let (start_ns, tempo) = (stage.start_ns, Tempo::default());
                self.schedule = Some(Schedule { start_ns, end_ns, tempo, scheduled: 0 });
            }
            Task::Stay => {}
        }
        Ok(())
    }

    fn change_rate(&mut self, at_ns: u64, factor: f64) {
        if let Some(schedule) = &mut self.schedule {
            schedule.tempo.change(at_ns.saturating_sub(schedule.start_ns), factor);
        }
    }

    fn readable(&mut self, _: usize, _: &mut Shared) -> Result<()> {
        Ok(())
    }

    fn work(&mut self, shared: &mut Shared) -> Result<u64> {
        let due_ns = self.send_due(shared)?;
        let now_ns = clock::now_ns();
        if now_ns >= self.looked_ns + LOOK_NS {
            self.look(now_ns)?;
        }
        Ok(due_ns.min(self.looked_ns + LOOK_NS))
    }

    fn close(&mut self, end_ns: u64, shared: &mut Shared) -> Result<()> {
        if let Some(schedule) = &mut self.schedule {
            schedule.end_ns = schedule.end_ns.min(end_ns);
            // What became due since the last look is not late.
            self.send_due(shared)?;
        }
        let skipped = self.backlog(u64::MAX);
        shared.tally.populations[shared.own.population].counters.skipped_total += skipped;
        self.schedule = None;
        Ok(())
    }

    fn is_settled(&self, _: &Shared) -> bool {
        true
    }

    fn note(&self, shared: &mut Shared) {
        let backlog = self.backlog(shared.now_ns);
        shared.tally.populations[shared.own.population].gauges.backlog = backlog;
    }

    fn stop(&mut self, shared: &mut Shared) {
        is_there(shared, false);
    }
}

/// Says whether the publisher takes part in the run.
fn is_there(shared: &mut Shared, there: bool) {
    let gauges = &mut shared.tally.populations[shared.own.population].gauges;
    (gauges.connected, gauges.ready) = (u64::from(there), u64::from(there));
}
