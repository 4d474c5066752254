//! One PUB socket and its schedule. The publisher hands messages to libzmq on an absolute schedule,
//! or as fast as libzmq takes them. libzmq does not report dropped messages: sent messages are
//! those that libzmq took.

use agent::clock;
use agent::publication::{Moment, Sender};
use plan::{Pacer, Resume, Security, SentAt, Tempo};
use zmq::{Context, Socket};

use crate::composer::Composer;
use crate::event_loop::{PopulationPlayer, Shared};
use crate::setup::{Result, ZmqSetup, ZmqSetupError};
use crate::stage::{BegunStage, Task};
use crate::zap_handler;

/// Time slice of sending, in nanoseconds.
const SLICE_NS: u64 = 1_000_000;
/// Interval of looks at libzmq's events, by which subscriptions reach the socket, in nanoseconds.
/// While messages are sent, libzmq does that by itself.
const LOOK_NS: u64 = 10_000_000;
/// Messages sent with one reading of the clock at most.
const BATCH_MAX: u32 = 16;
/// Longest time of such a batch, in nanoseconds: the largest error of the actual time in a stamp.
const BATCH_NS: u64 = 10_000;

/// The one publisher of an agent.
pub struct Publisher {
    socket: Socket,
    composer: Composer,
    /// The schedule; `None`: as fast as possible.
    pacer: Option<Pacer>,
    skips_late: bool,
    client: u32,
    /// The publisher should be connected.
    is_active: bool,
    /// Messages handed over in the whole run.
    sent: u64,
    /// The current publish stage.
    schedule: Option<Schedule>,
    /// Last look at libzmq's events, in nanoseconds.
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
    /// Instant until which nothing is sent, since the former process has ended; `None` afterwards.
    resume_ns: Option<u64>,
}

impl Publisher {
    /// Listens at the client's target.
    ///
    /// # Errors
    /// [`ZmqSetupError::Bind`], and libzmq's.
    pub fn new(setup: &ZmqSetup) -> Result<Self> {
        let client = setup.shard.global(0);
        let context = Context::new();
        context.set_io_threads(setup.zmq.io_threads.cast_signed())?;
        let socket = context.socket(zmq::PUB)?;
        socket.set_sndhwm(i32::try_from(setup.zmq.high_water_mark).unwrap_or(i32::MAX))?;
        socket.set_linger(0)?;
        if setup.zmq.security == Security::Plain {
            let (username, password) = setup.credentials(client);
            zap_handler::start(&context, username, password)?;
            socket.set_zap_domain("pubstorm")?;
            socket.set_plain_server(true)?;
        }
        let target = setup.target(client);
        let endpoint = format!("tcp://{}:{}", target.host, target.port);
        socket.bind(&endpoint).map_err(|error| ZmqSetupError::Bind { endpoint, error })?;
        let population = setup.population();
        let ready = setup.publications[setup.population][0].clone();
        let sender = Sender {
            client,
            n: population.first + u64::from(client),
            run_tag: setup.plan.run_tag,
            since_1970_ns: clock::since_1970_ns(),
            first_sequence: 0,
            node_number: 0,
        };
        Ok(Self {
            socket,
            pacer: ready.pacer.clone(),
            skips_late: ready.skips_late,
            composer: Composer::new(population.publications[0].clone(), ready, sender),
            client,
            is_active: true,
            sent: 0,
            schedule: None,
            looked_ns: 0,
            batch: 1,
        })
    }

    /// Lets the socket take subscriptions and connections.
    fn look(&mut self, now_ns: u64) -> Result<()> {
        self.looked_ns = now_ns;
        self.socket.get_events()?;
        Ok(())
    }

    /// Returns the instant until which a publisher that was started again sends nothing; `None`
    /// from then on. At that instant it skips what was scheduled since its former process ended.
    fn waits_until(&mut self, now_ns: u64, shared: &mut Shared) -> Option<u64> {
        let resume_ns = self.schedule.as_ref().and_then(|schedule| schedule.resume_ns)?;
        if now_ns < resume_ns {
            return Some(resume_ns);
        }
        let skipped = self.backlog(resume_ns);
        shared.tally.populations[shared.setup.population].counters.skipped_total += skipped;
        if let Some(schedule) = &mut self.schedule {
            schedule.scheduled += skipped;
            schedule.resume_ns = None;
        }
        None
    }

    /// Sends scheduled messages for a time slice at most; returns the instant of the next message.
    fn send_due(&mut self, shared: &mut Shared) -> Result<u64> {
        let mut now_ns = clock::now_ns();
        if let Some(resume_ns) = self.waits_until(now_ns, shared) {
            return Ok(resume_ns);
        }
        let slice_end_ns = now_ns + SLICE_NS;
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
            if now_ns >= slice_end_ns {
                return Ok(now_ns);
            }
        }
    }

    /// Returns the instant of the next message; `u64::MAX`: none is scheduled.
    fn next_due_ns(&self, now_ns: u64) -> u64 {
        let Some(schedule) = &self.schedule else { return u64::MAX };
        let due_ns = match &self.pacer {
            Some(pacer) => {
                let after_ns =
                    schedule.tempo.real_ns(pacer.due_ns(self.client, schedule.scheduled));
                schedule.start_ns.saturating_add(after_ns)
            }
            None if schedule.tempo.factor_at(now_ns.saturating_sub(schedule.start_ns)) == 0.0 => {
                u64::MAX
            }
            None => now_ns.max(schedule.start_ns),
        };
        if due_ns < schedule.end_ns { due_ns } else { u64::MAX }
    }

    /// Hands over the next message, or skips a message that is too late.
    fn send(&mut self, due_ns: u64, now_ns: u64, shared: &mut Shared) -> Result<()> {
        let Some(schedule) = &mut self.schedule else { return Ok(()) };
        schedule.scheduled += 1;
        let late_ns = now_ns - due_ns;
        let counters = &mut shared.tally.populations[shared.setup.population].counters;
        if let Some(pacer) = &self.pacer {
            let factor = schedule.tempo.factor_at(due_ns.saturating_sub(schedule.start_ns));
            let late = late_ns as f64 * factor;
            if self.skips_late && late > pacer.period_ns(self.client) {
                counters.skipped_total += 1;
                return Ok(());
            }
            shared.tally.lateness.record(late_ns.cast_signed());
        }
        self.composer.compose(Moment {
            number: self.sent,
            intended_ns: due_ns,
            sent: SentAt::plain(now_ns),
        });
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

    /// Returns the number of messages scheduled before `until_ns` that are neither sent nor
    /// skipped.
    fn backlog(&self, until_ns: u64) -> u64 {
        let (Some(schedule), Some(pacer)) = (&self.schedule, &self.pacer) else { return 0 };
        let until_ns = until_ns.min(schedule.end_ns).saturating_sub(schedule.start_ns);
        let due = pacer.due_before(self.client, schedule.tempo.schedule_before(until_ns));
        due.saturating_sub(schedule.scheduled)
    }
}

impl PopulationPlayer for Publisher {
    fn enter(&mut self, stage: &BegunStage, shared: &mut Shared) -> Result<()> {
        match stage.task {
            Task::Connect { .. } => self.is_active = true,
            Task::Disconnect => self.is_active = false,
            Task::Publish => {
                self.look(shared.now_ns)?;
                let end_ns = stage.end_ns.unwrap_or(u64::MAX);
                let (start_ns, mut tempo) = (stage.start_ns, Tempo::default());
                if shared.tally.held_since_ns.is_some() {
                    tempo.hold(0, true);
                }
                let (scheduled, resume_ns) = (0, None);
                self.schedule = Some(Schedule { start_ns, end_ns, tempo, scheduled, resume_ns });
            }
            Task::Stay => {}
        }
        Ok(())
    }

    fn resume(&mut self, resume: Resume) {
        self.sent = resume.sent;
        if let Some(schedule) = &mut self.schedule {
            schedule.scheduled = resume.scheduled;
            schedule.resume_ns = Some(resume.from_ns);
        }
    }

    fn change_rate(&mut self, at_ns: u64, factor: f64) {
        if let Some(schedule) = &mut self.schedule {
            schedule.tempo.change(at_ns.saturating_sub(schedule.start_ns), factor);
        }
    }

    fn hold(&mut self, at_ns: u64, is_held: bool) {
        if let Some(schedule) = &mut self.schedule {
            schedule.tempo.hold(at_ns.saturating_sub(schedule.start_ns), is_held);
        }
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
            // Messages scheduled since the last slice are not late.
            self.send_due(shared)?;
        }
        let skipped = self.backlog(u64::MAX);
        shared.tally.populations[shared.setup.population].counters.skipped_total += skipped;
        self.schedule = None;
        Ok(())
    }

    fn note(&self, shared: &mut Shared) {
        let backlog = self.backlog(shared.now_ns);
        let gauges = &mut shared.tally.populations[shared.setup.population].gauges;
        let active = u64::from(self.is_active);
        (gauges.connected, gauges.ready, gauges.backlog) = (active, active, backlog);
    }

    fn stop(&mut self, _: &mut Shared) {
        self.is_active = false;
    }
}
