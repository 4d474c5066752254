//! The link of a client in user space: delay, jitter, rate and loss between a socket and what is
//! above it. Each direction is a queue of bytes with their instants of arrival. A queue that is
//! full takes no further bytes. Bytes never overtake each other, as in TCP, so a segment that the
//! link loses holds up all that follow until its retransmission arrives.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::clock;
use mio::net::TcpStream;
use plan::{LinkConditions, Random, SECOND_NS};

use super::quic::QuicConnection;
use super::{Halt, Wire, lost};

/// Bytes of a segment: those of TCP over Ethernet.
const SEGMENT_BYTES: usize = 1448;
/// Segments that must follow a lost one for its fast retransmission [RFC 5681, 3.2].
const FOLLOWING: usize = 3;
/// Least time beyond a round trip until a retransmission, as in Linux.
const RETRANSMISSION_NS: u64 = 200_000_000;
/// Time until the first retransmission of a SYN [RFC 6298, 2.1].
const SYN_NS: u64 = SECOND_NS;
/// Longest time until a retransmission [RFC 6298, 2.5].
const RETRANSMISSION_MAX_NS: u64 = 120 * SECOND_NS;
/// Losses of one segment in a row, after which it arrives: TCP would give up.
const LOSSES_MAX: u32 = 15;
/// Bytes read from a socket at once.
const PIECE_BYTES: usize = 16 * 1024;
/// Capacity that an empty queue keeps, in bytes.
const KEPT_BYTES: usize = 16 * 1024;

/// A socket with the clock of its machine.
pub trait TimedSocket: Read + Write {
    /// The present, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Returns `true` once the peer has answered.
    fn is_connected(&self) -> bool;
}

impl TimedSocket for TcpStream {
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn is_connected(&self) -> bool {
        self.peer_addr().is_ok()
    }
}

/// Conditions of the links of a population over the time of a stage.
pub struct LinkSchedule {
    conditions: Vec<LinkConditions>,
    /// Start of the current publish or hold stage, in nanoseconds; `u64::MAX` in other stages.
    since_ns: AtomicU64,
}

/// The link of one client, for one connection.
pub struct ClientLink {
    schedule: Arc<LinkSchedule>,
    random: Random,
    /// Random numbers drawn.
    draws: u64,
    /// Instant at which TCP has connected over the link, in nanoseconds; `u64::MAX` until the
    /// socket has connected.
    opens_ns: u64,
    /// Earliest instant at which the peer knows of the connection, in nanoseconds.
    accepted_ns: u64,
    is_open: bool,
    up: LinkQueue,
    down: LinkQueue,
    /// The end of the stream after all bytes: its instant, and the error if it is one.
    end: Option<(u64, Option<i32>)>,
    /// The socket had no room for bytes that have passed the link.
    waits_for_room: bool,
    /// The client has had notice of bytes that have arrived.
    is_announced: bool,
    figures: LinkFigures,
}

/// Events in a link since they were last taken.
#[derive(Default)]
pub struct LinkFigures {
    /// Segments that were lost, and came later.
    pub retransmissions: u64,
    /// Times that a direction was full.
    pub full: u64,
    /// Bytes that entered at once: their time in the link, and the part of it in which they waited
    /// for the rate, in nanoseconds.
    pub bursts: Vec<(u64, u64)>,
}

/// One direction of a link.
#[derive(Default)]
struct LinkQueue {
    bytes: VecDeque<u8>,
    /// Instants of arrival, each with a number of bytes.
    arrivals: VecDeque<(u64, usize)>,
    /// Instant at which the rate has passed all bytes, in nanoseconds.
    passed_ns: u64,
    /// Instant of the last arrival, in nanoseconds.
    last_ns: u64,
    /// The last attempt found no room.
    is_full: bool,
}

impl LinkSchedule {
    /// The schedule of a population; `None` without a link.
    pub fn new(conditions: &[LinkConditions]) -> Option<Arc<Self>> {
        let schedule =
            || Self { conditions: conditions.to_vec(), since_ns: AtomicU64::new(u64::MAX) };
        (!conditions.is_empty()).then(schedule).map(Arc::new)
    }

    /// Begins a stage; `None` if its conditions do not change.
    pub fn begin(&self, since_ns: Option<u64>) {
        self.since_ns.store(since_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn at(&self, now_ns: u64) -> LinkConditions {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed));
        let begun = self.conditions.partition_point(|each| each.after_ns <= elapsed_ns);
        self.conditions[begun.saturating_sub(1)]
    }
}

impl ClientLink {
    /// A link before its connection.
    pub fn new(schedule: &Arc<LinkSchedule>, random: Random) -> Self {
        Self {
            schedule: Arc::clone(schedule),
            random,
            draws: 0,
            opens_ns: u64::MAX,
            accepted_ns: 0,
            is_open: false,
            up: LinkQueue::default(),
            down: LinkQueue::default(),
            end: None,
            waits_for_room: false,
            is_announced: false,
            figures: LinkFigures::default(),
        }
    }

    /// Next instant at which bytes arrive, in nanoseconds; `u64::MAX` if there are none.
    fn deadline_ns(&self) -> u64 {
        if !self.is_open {
            return self.opens_ns;
        }
        let up_ns = if self.waits_for_room { u64::MAX } else { self.up.next_ns() };
        let down_ns = if self.is_announced { u64::MAX } else { self.down_ns() };
        up_ns.min(down_ns)
    }

    fn down_ns(&self) -> u64 {
        let end_ns = self.end.map_or(u64::MAX, |(end_ns, _)| end_ns);
        self.down.next_ns().min(end_ns)
    }

    /// Begins the handshake of TCP over the link: one round trip, unless a segment of it is lost.
    fn begin(&mut self, now_ns: u64) {
        let conditions = self.schedule.at(now_ns);
        self.opens_ns = now_ns;
        for _ in 0..2 {
            self.opens_ns += self.delay_ns(&conditions) + self.lost_ns(&conditions, SYN_NS, None);
        }
        self.accepted_ns = self.opens_ns + self.delay_ns(&conditions);
    }

    /// Takes bytes of the client, as many as there is room for. Returns their number.
    fn send(&mut self, bytes: &[u8], now_ns: u64) -> usize {
        let conditions = self.schedule.at(now_ns);
        let count = self.up.room(&conditions).min(bytes.len());
        self.note_room(true, count == 0);
        let mut queue = mem::take(&mut self.up);
        self.pass(&mut queue, &bytes[..count], now_ns, &conditions);
        self.up = queue;
        count
    }

    /// Takes bytes of the peer, for which there is room.
    fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        let now_ns = now_ns.max(self.accepted_ns);
        let conditions = self.schedule.at(now_ns);
        let mut queue = mem::take(&mut self.down);
        self.pass(&mut queue, bytes, now_ns, &conditions);
        self.down = queue;
        self.is_announced = false;
    }

    /// Takes the end of the peer's stream.
    fn end(&mut self, now_ns: u64, error: Option<i32>) {
        let conditions = self.schedule.at(now_ns);
        let arrives_ns = now_ns.max(self.accepted_ns) + self.delay_ns(&conditions);
        self.end = Some((arrives_ns.max(self.down.last_ns), error));
        self.is_announced = false;
    }

    /// Puts bytes into a direction: each segment takes its turn at the rate, and then its delay.
    fn pass(
        &mut self,
        queue: &mut LinkQueue,
        bytes: &[u8],
        now_ns: u64,
        conditions: &LinkConditions,
    ) {
        if bytes.is_empty() {
            return;
        }
        let waits_ns = queue.passed_ns.saturating_sub(now_ns);
        let segments = bytes.len().div_ceil(SEGMENT_BYTES);
        for (at, segment) in bytes.chunks(SEGMENT_BYTES).enumerate() {
            let takes_ns = conditions.bits_per_s.map_or(0, |bits_per_s| {
                let bits = segment.len() as u128 * 8 * u128::from(SECOND_NS);
                (bits / u128::from(bits_per_s)) as u64
            });
            queue.passed_ns = queue.passed_ns.max(now_ns) + takes_ns;
            let round_trip_ns = 2 * conditions.delay_ns;
            let by_timer_ns = round_trip_ns + RETRANSMISSION_NS;
            let quick_ns = (segments - at > FOLLOWING).then_some(round_trip_ns);
            let lost_ns = self.lost_ns(conditions, by_timer_ns, quick_ns);
            if lost_ns > 0 {
                queue.passed_ns += takes_ns;
            }
            let arrives_ns = queue.passed_ns + self.delay_ns(conditions) + lost_ns;
            queue.push(segment, arrives_ns);
        }
        self.figures.bursts.push((queue.last_ns - now_ns, waits_ns));
    }

    /// A delay, within the jitter.
    fn delay_ns(&mut self, conditions: &LinkConditions) -> u64 {
        let LinkConditions { delay_ns, jitter_ns, .. } = *conditions;
        if jitter_ns == 0 {
            return delay_ns;
        }
        delay_ns - jitter_ns + self.draw().below(2 * jitter_ns + 1)
    }

    /// Time that the retransmissions of a segment take, in nanoseconds; 0 if it is not lost. The
    /// first takes `quick_ns` if there is such a time, each further one twice as long as the last.
    fn lost_ns(
        &mut self,
        conditions: &LinkConditions,
        by_timer_ns: u64,
        quick_ns: Option<u64>,
    ) -> u64 {
        let (mut lost_ns, mut timer_ns, mut quick_ns) = (0, by_timer_ns, quick_ns);
        for _ in 0..LOSSES_MAX {
            if conditions.loss == 0.0 || self.draw().unit() >= conditions.loss {
                break;
            }
            self.figures.retransmissions += 1;
            lost_ns += quick_ns.take().unwrap_or(timer_ns);
            timer_ns = (2 * timer_ns).min(RETRANSMISSION_MAX_NS);
        }
        lost_ns
    }

    fn draw(&mut self) -> Random {
        self.draws += 1;
        self.random.of(self.draws)
    }

    /// Counts the times that a direction became full.
    fn note_room(&mut self, is_up: bool, is_full: bool) {
        let queue = if is_up { &mut self.up } else { &mut self.down };
        let was_full = mem::replace(&mut queue.is_full, is_full);
        self.figures.full += u64::from(is_full && !was_full);
    }
}

impl LinkQueue {
    fn room(&self, conditions: &LinkConditions) -> usize {
        (conditions.room_bytes() as usize).saturating_sub(self.bytes.len())
    }

    fn next_ns(&self) -> u64 {
        self.arrivals.front().map_or(u64::MAX, |&(arrives_ns, _)| arrives_ns)
    }

    fn push(&mut self, segment: &[u8], arrives_ns: u64) {
        self.bytes.extend(segment);
        self.last_ns = self.last_ns.max(arrives_ns);
        match self.arrivals.back_mut() {
            Some((last_ns, count)) if *last_ns == self.last_ns => *count += segment.len(),
            _ => self.arrivals.push_back((self.last_ns, segment.len())),
        }
    }

    /// Some of the bytes that have arrived; all of them if `until_ns` is `u64::MAX`.
    fn arrived(&self, until_ns: u64) -> &[u8] {
        let arrived = self.arrivals.iter().take_while(|(arrives_ns, _)| *arrives_ns <= until_ns);
        let count = arrived.map(|(_, count)| count).sum();
        let (front, _) = self.bytes.as_slices();
        &front[..front.len().min(count)]
    }

    /// Drops bytes at the front.
    fn advance(&mut self, mut count: usize) {
        self.bytes.drain(..count);
        while let Some((_, first)) = self.arrivals.front_mut().filter(|_| count > 0) {
            let part = count.min(*first);
            *first -= part;
            count -= part;
            if *first == 0 {
                self.arrivals.pop_front();
            }
        }
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = VecDeque::new();
        }
    }
}

/// The parts of a connection that its link needs, for every kind of socket.
pub trait LinkedWire {
    /// Instant of the link's timer, in nanoseconds; `u64::MAX` if there is none.
    fn deadline_ns(&self) -> u64;

    /// Passes bytes that have arrived on, in both directions.
    fn pass_on(&mut self);

    /// Passes all bytes of the client on, whether they have arrived or not.
    fn flush_link(&mut self);

    /// Instant at which the last byte of the client leaves the link, in nanoseconds; `None` if none
    /// is in it.
    fn sends_until_ns(&self) -> Option<u64>;

    /// Events in the link since the last call; `None` without a link.
    fn take_figures(&mut self) -> Option<LinkFigures>;

    /// Returns `true` once TCP is established.
    fn is_open(&self) -> bool;
}

/// Connections over QUIC have no links.
impl LinkedWire for QuicConnection {
    fn deadline_ns(&self) -> u64 {
        u64::MAX
    }

    fn pass_on(&mut self) {}

    fn flush_link(&mut self) {}

    fn sends_until_ns(&self) -> Option<u64> {
        None
    }

    fn take_figures(&mut self) -> Option<LinkFigures> {
        None
    }

    fn is_open(&self) -> bool {
        false
    }
}

impl<S: TimedSocket> LinkedWire for Wire<S> {
    fn deadline_ns(&self) -> u64 {
        self.link.as_ref().map_or(u64::MAX, |link| link.deadline_ns())
    }

    fn pass_on(&mut self) {
        if self.link.is_none() {
            return;
        }
        let now_ns = self.socket.now_ns();
        self.push(now_ns);
        self.pull();
        if let Some(link) = &mut self.link {
            link.is_announced = link.down_ns() <= now_ns;
        }
    }

    fn flush_link(&mut self) {
        self.push(u64::MAX);
    }

    fn sends_until_ns(&self) -> Option<u64> {
        let up = &self.link.as_ref()?.up;
        (!up.bytes.is_empty()).then_some(up.last_ns)
    }

    fn take_figures(&mut self) -> Option<LinkFigures> {
        self.link.as_mut().map(|link| mem::take(&mut link.figures))
    }

    fn is_open(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.is_open) && self.socket.is_connected()
    }
}

impl<S: TimedSocket> Wire<S> {
    /// Continues the handshake of TCP over the link, once the socket has connected.
    ///
    /// # Errors
    /// The reason why it has stopped.
    pub fn open(&mut self) -> Result<(), Halt> {
        let Some(link) = self.link.as_mut().filter(|link| !link.is_open) else { return Ok(()) };
        let now_ns = self.socket.now_ns();
        if link.opens_ns == u64::MAX {
            // A failed attempt is found by a write of nothing.
            if let Err(error) = self.socket.write(&[]) {
                let is_open =
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                if !is_open {
                    return Err(lost(&error, true));
                }
            }
            link.begin(now_ns);
        }
        link.is_open = link.opens_ns <= now_ns;
        if link.is_open { Ok(()) } else { Err(Halt::Later) }
    }

    /// Reads bytes that have passed the link.
    #[cold]
    pub(super) fn read_link(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pull();
        let now_ns = self.socket.now_ns();
        let Some(link) = &mut self.link else { return Ok(0) };
        link.is_announced = false;
        let arrived = link.down.arrived(now_ns);
        let count = arrived.len().min(buffer.len());
        if count > 0 {
            buffer[..count].copy_from_slice(&arrived[..count]);
            link.down.advance(count);
            return Ok(count);
        }
        match &mut link.end {
            Some((end_ns, error)) if *end_ns <= now_ns && link.down.bytes.is_empty() => {
                error.take().map_or(Ok(0), |error| Err(io::Error::from_raw_os_error(error)))
            }
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes bytes into the link.
    #[cold]
    pub(super) fn write_link(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now_ns = self.socket.now_ns();
        let Some(link) = &mut self.link else { return Ok(0) };
        if link.end.is_some() {
            // They would get lost on the way: the client finds the end when it arrives.
            return Ok(bytes.len());
        }
        let count = link.send(bytes, now_ns);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.push(now_ns);
        Ok(count)
    }

    /// Writes bytes that have arrived by `until_ns` into the socket.
    fn push(&mut self, until_ns: u64) {
        // Nothing passes before TCP has connected over the link.
        let Some(link) = self.link.as_mut().filter(|link| link.is_open) else { return };
        link.waits_for_room = false;
        let failure = loop {
            let arrived = link.up.arrived(until_ns);
            if arrived.is_empty() {
                return;
            }
            match self.socket.write(arrived).map_err(|error| (error.kind(), error)) {
                Ok(count) => link.up.advance(count),
                Err((ErrorKind::Interrupted, _)) => {}
                Err((ErrorKind::WouldBlock | ErrorKind::NotConnected, _)) => {
                    link.waits_for_room = true;
                    return;
                }
                Err((_, error)) => break error,
            }
        };
        link.up.advance(link.up.bytes.len());
        // Bytes that the peer sent before come before the end.
        self.empty = false;
        self.pull();
        let now_ns = self.socket.now_ns();
        if let Some(link) = self.link.as_mut().filter(|link| link.end.is_none()) {
            link.end(now_ns, failure.raw_os_error());
        }
    }

    /// Reads bytes of the socket into the link, as many as there is room for.
    pub(super) fn pull(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        let mut piece = [0; PIECE_BYTES];
        while link.is_open && link.end.is_none() {
            let now_ns = self.socket.now_ns();
            let room = link.down.room(&link.schedule.at(now_ns)).min(piece.len());
            link.note_room(false, room == 0 && !self.empty);
            if room == 0 {
                break;
            }
            match self.read_socket(&mut piece[..room]) {
                Ok(0) => link.end(now_ns, None),
                Ok(count) => link.receive(&piece[..count], now_ns),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => link.end(now_ns, error.raw_os_error()),
            }
        }
        self.link = Some(link);
    }
}

#[cfg(test)]
mod tests;
