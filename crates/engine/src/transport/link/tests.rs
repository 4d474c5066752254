//! A link over a socket without delay, in virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use plan::Reason;
use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const START_NS: u64 = 5 * SECOND_NS;

/// The other end of a socket, and the clock.
#[derive(Default)]
struct FarEnd {
    now_ns: u64,
    /// Bytes for the client.
    down: VecDeque<u8>,
    has_ended: bool,
    /// Bytes of the client, with their instants.
    up: Vec<(u64, u8)>,
    /// Room for bytes of the client.
    room: usize,
    error: Option<ErrorKind>,
}

struct NearEnd(Rc<RefCell<FarEnd>>);

impl Read for NearEnd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut far = self.0.borrow_mut();
        let count = far.down.len().min(buffer.len());
        if count == 0 {
            return if far.has_ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        buffer.iter_mut().zip(far.down.drain(..count)).for_each(|(to, from)| *to = from);
        Ok(count)
    }
}

impl Write for NearEnd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut far = self.0.borrow_mut();
        if let Some(kind) = far.error {
            return Err(kind.into());
        }
        let count = bytes.len().min(far.room);
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        far.room -= count;
        let now_ns = far.now_ns;
        far.up.extend(bytes[..count].iter().map(|&byte| (now_ns, byte)));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TimedSocket for NearEnd {
    fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    fn is_connected(&self) -> bool {
        true
    }
}

fn conditions(delay_ms: u64, jitter_ms: u64, loss: f64, rate: Option<u64>) -> LinkConditions {
    let (delay_ns, jitter_ns) = (delay_ms * MS, jitter_ms * MS);
    LinkConditions { after_ns: 0, delay_ns, jitter_ns, loss, bits_per_s: rate }
}

/// A socket under a link.
struct Bench {
    far: Rc<RefCell<FarEnd>>,
    wire: Wire<NearEnd>,
    schedule: Arc<LinkSchedule>,
    /// Bytes that the client has read, with their instants.
    read: Vec<(u64, u8)>,
}

impl Bench {
    /// A link that is still closed.
    fn closed(conditions: &[LinkConditions]) -> Self {
        let far = FarEnd { now_ns: START_NS, room: usize::MAX, ..FarEnd::default() };
        let far = Rc::new(RefCell::new(far));
        let schedule = LinkSchedule::new(conditions).unwrap();
        let link = ClientLink::new(&schedule, Random::new(7, 7));
        let wire = Wire::new(NearEnd(Rc::clone(&far)), Some(Box::new(link)));
        Self { far, wire, schedule, read: Vec::new() }
    }

    /// A link whose handshake is over, with the time at 0 of its conditions.
    fn open(conditions: &[LinkConditions]) -> Self {
        let mut bench = Self::closed(conditions);
        while bench.wire.open().is_err() {
            let next_ns = bench.wire.deadline_ns();
            bench.far.borrow_mut().now_ns = next_ns;
        }
        bench
    }

    fn now_ns(&self) -> u64 {
        self.far.borrow().now_ns
    }

    /// Plays the link's timer up to an instant. The client reads whatever has arrived.
    fn play(&mut self, until_ns: u64) {
        loop {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = self.wire.read(&mut buffer) {
                let now_ns = self.now_ns();
                self.read.extend(buffer[..count].iter().map(|&byte| (now_ns, byte)));
            }
            let next_ns = self.wire.deadline_ns();
            let has_ended = matches!(self.wire.read(&mut buffer), Ok(0));
            if next_ns > until_ns || has_ended {
                break;
            }
            self.far.borrow_mut().now_ns = next_ns.max(self.now_ns());
            self.wire.pass_on();
        }
        self.far.borrow_mut().now_ns = until_ns;
    }

    fn arrive(&mut self, bytes: &[u8]) {
        self.far.borrow_mut().down.extend(bytes);
        self.wire.wake(false);
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

#[test]
fn tcp_connects_after_a_round_trip() {
    let mut bench = Bench::closed(&[conditions(50, 0, 0.0, None)]);
    assert_eq!(bench.wire.deadline_ns(), u64::MAX);
    assert_eq!(bench.wire.open(), Err(Halt::Later));
    assert_eq!(bench.wire.deadline_ns(), START_NS + 100 * MS);
    assert_eq!(bench.wire.write(b"early").unwrap(), 5);
    bench.wire.flush_link();
    assert!(bench.far.borrow().up.is_empty());
    bench.far.borrow_mut().now_ns += 100 * MS;
    assert_eq!(bench.wire.open(), Ok(()));
}

#[test]
fn a_refused_connection_is_found_when_it_opens() {
    let mut bench = Bench::closed(&[conditions(50, 0, 0.0, None)]);
    bench.far.borrow_mut().error = Some(ErrorKind::ConnectionRefused);
    assert_eq!(bench.wire.open(), Err(Halt::Lost(Reason::ConnectRefused)));
}

#[test]
fn each_direction_has_the_delay_and_a_first_word_of_the_server_two_round_trips() {
    let mut bench = Bench::open(&[conditions(50, 0, 0.0, None)]);
    let open_ns = bench.now_ns();
    bench.arrive(b"hello");
    assert_eq!(bench.wire.write(b"up").unwrap(), 2);
    bench.play(open_ns + 100 * MS - 1);
    assert!(bench.read.is_empty());
    bench.play(open_ns + 300 * MS);
    assert_eq!(bench.read[0], (open_ns + 100 * MS, b'h'));
    assert_eq!(bench.far.borrow().up, [(open_ns + 50 * MS, b'u'), (open_ns + 50 * MS, b'p')]);
    bench.arrive(b"x");
    bench.play(open_ns + SECOND_NS);
    assert_eq!(bench.read.last(), Some(&(open_ns + 350 * MS, b'x')));
}

#[test]
fn a_rate_passes_as_many_bytes_as_it_says() {
    let mut bench = Bench::open(&[conditions(20, 0, 0.0, Some(1_000_000))]);
    let (open_ns, mut sent) = (bench.now_ns(), 0);
    for ms in 0..4000 {
        bench.play(open_ns + ms * MS);
        while let Ok(count) = bench.wire.write(&bytes(300)) {
            sent += count;
        }
    }
    let up = bench.far.borrow().up.len();
    // 20 ms of the 4 s are the delay of the first byte.
    assert!(up.abs_diff(497_500) <= SEGMENT_BYTES, "{up} bytes at 125,000 a second");
    let room = conditions(20, 0, 0.0, Some(1_000_000)).room_bytes() as usize;
    assert_eq!((sent - up, room), (room, 65_536 + 2_500));
    assert!(bench.wire.take_figures().unwrap().full > 100);
}

#[test]
fn a_full_link_leaves_the_bytes_of_the_peer_in_the_socket() {
    let mut bench = Bench::open(&[conditions(100, 0, 0.0, None)]);
    bench.play(START_NS + SECOND_NS);
    bench.arrive(&bytes(700_000));
    assert_eq!(bench.far.borrow().down.len(), 700_000 - 512 * 1024);
    bench.play(START_NS + 5 * SECOND_NS);
    let read: Vec<u8> = bench.read.iter().map(|&(_, byte)| byte).collect();
    assert_eq!(read, bytes(700_000));
    let (first_ns, last_ns) = (bench.read[0].0, bench.read.last().unwrap().0);
    assert!(last_ns - first_ns >= 100 * MS, "the rest passes the link after the first part");
}

#[test]
fn a_client_that_does_not_read_has_one_notice_of_what_has_arrived() {
    let mut bench = Bench::open(&[conditions(10, 0, 0.0, None)]);
    bench.arrive(b"x");
    let due_ns = bench.wire.deadline_ns();
    bench.far.borrow_mut().now_ns = due_ns;
    bench.wire.pass_on();
    assert_eq!(bench.wire.deadline_ns(), u64::MAX, "the loop would spin");
    assert_eq!(bench.wire.read(&mut [0; 8]).unwrap(), 1);
}

#[test]
fn a_socket_without_room_holds_bytes_that_have_passed_the_link() {
    let mut bench = Bench::open(&[conditions(10, 0, 0.0, None)]);
    let open_ns = bench.now_ns();
    bench.far.borrow_mut().room = 1;
    assert_eq!(bench.wire.write(b"abc").unwrap(), 3);
    bench.play(open_ns + 10 * MS);
    assert_eq!((bench.far.borrow().up.len(), bench.wire.deadline_ns()), (1, u64::MAX));
    assert_eq!(bench.wire.sends_until_ns(), Some(open_ns + 10 * MS));
    bench.far.borrow_mut().room = 9;
    bench.wire.pass_on();
    assert_eq!((bench.far.borrow().up.len(), bench.wire.sends_until_ns()), (3, None));
}

#[test]
fn the_end_of_a_stream_comes_after_its_bytes_and_a_failed_write_after_both() {
    let mut bench = Bench::open(&[conditions(50, 0, 0.0, None)]);
    bench.play(bench.now_ns() + SECOND_NS);
    let sent_ns = bench.now_ns();
    bench.far.borrow_mut().down.extend(b"refused");
    bench.far.borrow_mut().error = Some(ErrorKind::BrokenPipe);
    assert_eq!(bench.wire.write(b"late").unwrap(), 4);
    bench.play(sent_ns + 49 * MS);
    assert!(bench.read.is_empty());
    bench.play(sent_ns + 99 * MS);
    assert_eq!(bench.read.len(), 7);
    assert_eq!(bench.wire.receive(&mut [0; 8], false), Err(Halt::Later));
    bench.play(sent_ns + 100 * MS);
    assert_eq!(bench.wire.receive(&mut [0; 8], false), Err(Halt::Lost(Reason::ClosedByBroker)));

    let mut bench = Bench::open(&[conditions(50, 0, 0.0, None)]);
    bench.play(bench.now_ns() + SECOND_NS);
    bench.far.borrow_mut().has_ended = true;
    bench.arrive(b"bye");
    bench.wire.wake(true);
    bench.play(bench.now_ns() + 49 * MS);
    assert_eq!(bench.wire.receive(&mut [0; 8], false), Err(Halt::Later));
    bench.play(bench.now_ns() + MS);
    assert_eq!(bench.read.len(), 3);
    assert_eq!(bench.wire.receive(&mut [0; 8], false), Err(Halt::Lost(Reason::ClosedByBroker)));
}

#[test]
fn a_lost_segment_costs_a_timer_alone_and_a_round_trip_before_others() {
    let share = 0.2;
    for (count, lost_ns) in [(1, 300 * MS), (4, 100 * MS)] {
        let (mut least_ns, mut losses, mut passed) = (u64::MAX, 0, 0);
        for _ in 0..500 {
            let link = conditions(50, 0, share, None);
            let schedule = LinkSchedule::new(&[link]).unwrap();
            let mut lossy = ClientLink::new(&schedule, Random::new(passed, 1));
            lossy.send(&bytes(count * SEGMENT_BYTES), START_NS);
            let first_ns = lossy.up.next_ns() - START_NS - 50 * MS;
            passed += 1;
            losses += u64::from(first_ns > 0);
            if first_ns > 0 {
                least_ns = least_ns.min(first_ns);
                assert!(lossy.figures.retransmissions > 0);
            }
        }
        assert_eq!(least_ns, lost_ns, "{count} segments");
        assert!((70..=130).contains(&losses), "{losses} of 500 are lost at {share}");
    }
}

#[test]
fn conditions_change_with_the_time_of_a_stage() {
    let slow = LinkConditions { after_ns: SECOND_NS, ..conditions(300, 0, 0.0, None) };
    let back = LinkConditions { after_ns: 2 * SECOND_NS, ..conditions(10, 0, 0.0, None) };
    let mut bench = Bench::open(&[conditions(10, 0, 0.0, None), slow, back]);
    let schedule = Arc::clone(&bench.schedule);
    let mut delay_ms = |at_ns: u64| {
        bench.play(at_ns);
        let first = bench.far.borrow().up.len();
        assert_eq!(bench.wire.write(b"x").unwrap(), 1);
        bench.play(at_ns + 900 * MS);
        (bench.far.borrow().up[first].0 - at_ns) / MS
    };
    assert_eq!(delay_ms(10 * SECOND_NS), 10, "no stage has begun");
    schedule.begin(Some(20 * SECOND_NS));
    assert_eq!(delay_ms(20 * SECOND_NS), 10);
    assert_eq!(delay_ms(21 * SECOND_NS), 300);
    assert_eq!(delay_ms(22 * SECOND_NS), 10);
    schedule.begin(None);
    assert_eq!(delay_ms(23 * SECOND_NS), 10);
}

proptest! {
    #[test]
    fn bytes_keep_their_order_and_no_delay_is_shorter_than_the_link_says(
        delay_ms in 0u64..200,
        jitter in 0u64..=100,
        loss in prop_oneof![Just(0.0), 0.0..0.3],
        rate in proptest::option::of(100_000u64..10_000_000),
        writes in proptest::collection::vec((0u64..50, 1usize..20_000), 1..30),
    ) {
        let link = conditions(delay_ms, delay_ms * jitter / 100, loss, rate);
        let mut bench = Bench::open(&[link]);
        let (mut sent, mut intervals) = (Vec::new(), Vec::new());
        for (wait_ms, count) in writes {
            bench.play(bench.now_ns() + wait_ms * MS);
            let piece = bytes(sent.len() + count).split_off(sent.len());
            let taken = bench.wire.write(&piece).unwrap_or(0);
            let held = bench.wire.link.as_ref().unwrap().up.bytes.len() as u64;
            prop_assert!(held <= link.room_bytes());
            intervals.push((sent.len(), bench.now_ns()));
            sent.extend_from_slice(&piece[..taken]);
        }
        bench.play(bench.now_ns() + 4000 * SECOND_NS);
        let far = bench.far.borrow();
        let arrived: Vec<u8> = far.up.iter().map(|&(_, byte)| byte).collect();
        prop_assert_eq!(&arrived, &sent);
        prop_assert!(far.up.is_sorted_by_key(|&(at_ns, _)| at_ns));
        for (first, sent_ns) in intervals {
            if let Some(&(at_ns, _)) = far.up.get(first) {
                prop_assert!(at_ns >= sent_ns + link.delay_ns - link.jitter_ns);
            }
        }
    }
}
