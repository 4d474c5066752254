//! One timer for each client: a hierarchical wheel of six levels of 256 slots (Varghese and
//! Lauck, 1987), its lists threaded through one array, so that setting and cancelling are a few
//! writes and nothing is allocated. A timer never fires early and at most one tick late. Ticks
//! have 48 bits, which reach as far as nanoseconds do in 64. It knows clients by index only.

/// Length of a tick as a power of two: 65.5 µs.
const TICK_SHIFT: u32 = 16;
const SLOTS: usize = 256;
const LEVELS: usize = 6;
/// The last tick, which is never reached.
const TICK_MAX: u64 = (1 << (8 * LEVELS)) - 1;
const _: () = assert!(TICK_MAX == u64::MAX >> TICK_SHIFT);
const NONE: u32 = u32::MAX;
/// Slot of a client without a timer.
const IDLE: u16 = u16::MAX;

/// A client's place in the wheel, part of the memory budget of a client.
#[derive(Clone, Copy)]
pub struct Link {
    next: u32,
    previous: u32,
    tick_low: u32,
    tick_high: u16,
    slot: u16,
}

const _: () = assert!(size_of::<Link>() == 16);

/// The wheel.
pub struct Wheel {
    /// Instant of tick 0, in nanoseconds.
    origin_ns: u64,
    /// Last tick whose timers have fired.
    current: u64,
    heads: Box<[u32; SLOTS * LEVELS]>,
    /// One bit for each slot that is not empty.
    occupied: [[u64; SLOTS / 64]; LEVELS],
    links: Vec<Link>,
}

impl Wheel {
    /// A wheel without timers, for `clients` clients, that starts at `now_ns`.
    pub fn new(clients: usize, now_ns: u64) -> Self {
        Self {
            origin_ns: now_ns,
            current: 0,
            heads: Box::new([NONE; SLOTS * LEVELS]),
            occupied: [[0; SLOTS / 64]; LEVELS],
            links: vec![Link::IDLE; clients],
        }
    }

    /// Makes room for the timers of `clients` clients.
    pub fn reach(&mut self, clients: usize) {
        self.links.resize(clients.max(self.links.len()), Link::IDLE);
    }

    /// Sets the client's timer to `deadline_ns`, in place of any other.
    pub fn set(&mut self, client: u32, deadline_ns: u64) {
        self.cancel(client);
        let elapsed = deadline_ns.saturating_sub(self.origin_ns);
        let tick = elapsed.div_ceil(1 << TICK_SHIFT).min(TICK_MAX);
        self.insert(client, tick.max(self.current + 1));
    }

    /// Takes the client's timer away, if it has one.
    pub fn cancel(&mut self, client: u32) {
        let link = self.links[client as usize];
        if link.slot == IDLE {
            return;
        }
        match link.previous {
            NONE => self.heads[usize::from(link.slot)] = link.next,
            previous => self.links[previous as usize].next = link.next,
        }
        if link.next != NONE {
            self.links[link.next as usize].previous = link.previous;
        }
        if self.heads[usize::from(link.slot)] == NONE {
            self.mark(usize::from(link.slot), false);
        }
        self.links[client as usize].slot = IDLE;
    }

    /// Moves to `now_ns` and appends the clients whose timers fired to `due`.
    pub fn advance(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        let elapsed = now_ns.saturating_sub(self.origin_ns) >> TICK_SHIFT;
        let target = elapsed.min(TICK_MAX - 1);
        while self.current < target {
            self.current = self.next_tick().map_or(target, |tick| tick.min(target));
            self.cascade();
            self.fire((self.current & 0xff) as usize, due);
        }
    }

    /// An instant not after the next timer, in nanoseconds; `None` without timers.
    pub fn next_ns(&self) -> Option<u64> {
        self.next_tick().map(|tick| self.origin_ns.saturating_add(tick << TICK_SHIFT))
    }

    /// The first tick of the next occupied slot.
    fn next_tick(&self) -> Option<u64> {
        (0..LEVELS).find_map(|level| {
            let shift = 8 * level as u32;
            let digit = (self.current >> shift & 0xff) as usize;
            self.next_slot(level, digit + 1).map(|slot| {
                let above = self.current >> shift >> 8 << 8 << shift;
                above + ((slot as u64) << shift)
            })
        })
    }

    fn insert(&mut self, client: u32, tick: u64) {
        let level = (63 - (tick ^ self.current).max(1).leading_zeros()) as usize / 8;
        let slot = level * SLOTS + (tick >> (8 * level as u32) & 0xff) as usize;
        let next = std::mem::replace(&mut self.heads[slot], client);
        if next != NONE {
            self.links[next as usize].previous = client;
        }
        let (tick_low, tick_high, slot_id) = (tick as u32, (tick >> 32) as u16, slot as u16);
        self.links[client as usize] =
            Link { next, previous: NONE, tick_low, tick_high, slot: slot_id };
        self.mark(slot, true);
    }

    /// Takes all timers of a slot of level 0 out.
    fn fire(&mut self, slot: usize, due: &mut Vec<u32>) {
        let mut client = self.empty(slot);
        while client != NONE {
            let link = &mut self.links[client as usize];
            link.slot = IDLE;
            due.push(client);
            client = link.next;
        }
    }

    /// Spreads the slots that have come near over the levels below.
    fn cascade(&mut self) {
        for level in (1..LEVELS).rev() {
            let shift = 8 * level as u32;
            if self.current & ((1u64 << shift) - 1) != 0 {
                continue;
            }
            let mut client = self.empty(level * SLOTS + (self.current >> shift & 0xff) as usize);
            while client != NONE {
                let link = self.links[client as usize];
                self.insert(client, link.tick());
                client = link.next;
            }
        }
    }

    fn empty(&mut self, slot: usize) -> u32 {
        self.mark(slot, false);
        std::mem::replace(&mut self.heads[slot], NONE)
    }

    fn mark(&mut self, slot: usize, occupied: bool) {
        let word = &mut self.occupied[slot / SLOTS][slot % SLOTS / 64];
        let bit = 1 << (slot % 64);
        *word = if occupied { *word | bit } else { *word & !bit };
    }

    /// The first occupied slot of a level at or after `from`.
    fn next_slot(&self, level: usize, from: usize) -> Option<usize> {
        let words = &self.occupied[level];
        (from / 64..words.len()).find_map(|w| {
            let below = if w == from / 64 { u64::MAX << (from % 64) } else { u64::MAX };
            let bits = words[w] & below;
            (bits != 0).then(|| w * 64 + bits.trailing_zeros() as usize)
        })
    }
}

impl Link {
    /// The place of a client without a timer.
    const IDLE: Self = Self { next: NONE, previous: NONE, tick_low: 0, tick_high: 0, slot: IDLE };

    fn tick(&self) -> u64 {
        u64::from(self.tick_high) << 32 | u64::from(self.tick_low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK_NS: u64 = 1 << TICK_SHIFT;

    /// Up to 2^`bits` - 1 nanoseconds, so that each level of the wheel is as likely as the others.
    fn up_to(bits: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = u64> {
        bits.prop_flat_map(|bits| 0..1u64 << bits)
    }

    proptest! {
        /// 2^33 ticks are 2^49 ns, 6.5 days; deadlines and steps reach up to 100 days.
        #[test]
        fn timers_fire_never_early_and_at_most_a_tick_late(
            start in up_to(0..=53),
            age in up_to(0..=53),
            deadlines in prop::collection::vec(up_to(0..=53), 1..100),
            steps in prop::collection::vec((up_to(0..=50), 0usize..100, up_to(0..=53)), 1..60),
            cancelled in prop::collection::hash_set(0u32..100, 0..20),
        ) {
            let mut wheel = Wheel::new(deadlines.len(), start);
            let (mut now, mut due) = (start + age, Vec::new());
            wheel.advance(now, &mut due);
            prop_assert!(due.is_empty());
            for (client, &deadline) in deadlines.iter().enumerate() {
                wheel.set(client as u32, now + deadline / 2);
                wheel.set(client as u32, now + deadline);
            }
            let known = |c: &&u32| (**c as usize) < deadlines.len();
            cancelled.iter().filter(known).for_each(|&c| wheel.cancel(c));
            let mut waiting: std::collections::BTreeMap<u32, u64> = (0u32..)
                .zip(deadlines.iter().map(|d| now + d))
                .filter(|(client, _)| !cancelled.contains(client))
                .collect();
            for (step, client, deadline) in steps {
                if let Some(next) = wheel.next_ns() {
                    let earliest = waiting.values().min().copied().unwrap();
                    prop_assert!(next <= earliest.max(now) + TICK_NS, "{next} after {earliest}");
                    prop_assert!(next + TICK_NS > now, "the loop would spin");
                } else {
                    prop_assert!(waiting.is_empty());
                }
                now += step;
                wheel.advance(now, &mut due);
                for client in due.drain(..) {
                    let deadline = waiting.remove(&client).unwrap();
                    prop_assert!(deadline <= now);
                }
                prop_assert!(waiting.values().all(|&deadline| deadline + 2 * TICK_NS > now));
                let client = (client % deadlines.len()) as u32;
                wheel.set(client, now + deadline);
                waiting.insert(client, now + deadline);
            }
        }
    }

    /// Sets each timer again when it fires, as a keep-alive does, and sleeps in between.
    #[test]
    fn timers_of_a_run_of_thirty_days_all_fire_and_the_loop_never_spins() {
        const PERIODS_S: [u64; 4] = [60, 300, 86_400, 14 * 86_400];
        const DAYS_30_NS: u64 = 30 * 86_400 * 1_000_000_000;
        let mut wheel = Wheel::new(PERIODS_S.len(), 0);
        let mut due = Vec::new();
        let mut fired = [0; PERIODS_S.len()];
        (0u32..).zip(PERIODS_S).for_each(|(c, period)| wheel.set(c, period * 1_000_000_000));
        let mut wakes = 0u64;
        while let Some(now) = wheel.next_ns().filter(|&now| now <= DAYS_30_NS) {
            wheel.advance(now, &mut due);
            wakes += 1;
            for client in due.drain(..) {
                fired[client as usize] += 1;
                let period_ns = PERIODS_S[client as usize] * 1_000_000_000;
                wheel.set(client, (fired[client as usize] + 1) * period_ns);
            }
            assert!(wakes < 10 * 30 * 86_400 / 60, "{wakes} wakes, {fired:?}");
        }
        assert_eq!(fired, PERIODS_S.map(|period| 30 * 86_400 / period));
    }

    #[test]
    fn the_end_of_time_is_a_deadline_like_others() {
        let mut wheel = Wheel::new(1, 1 << 63);
        let mut due = Vec::new();
        wheel.set(0, u64::MAX);
        wheel.advance(u64::MAX - 10 * TICK_NS, &mut due);
        assert!(due.is_empty());
        assert!(wheel.next_ns().is_some());
    }

    #[test]
    fn waiting_for_the_next_instant_reaches_every_timer() {
        let mut wheel = Wheel::new(3, 0);
        let deadlines = [3 * TICK_NS, 20_000 * TICK_NS, 300_000_000 * TICK_NS];
        (0u32..).zip(deadlines).for_each(|(client, deadline)| wheel.set(client, deadline));
        let mut due = Vec::new();
        let mut waits = 0;
        while let Some(next) = wheel.next_ns() {
            wheel.advance(next, &mut due);
            waits += 1;
        }
        assert_eq!(due, [0, 1, 2]);
        assert!(waits < 10, "{waits} waits");
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_the_next_tick() {
        let mut wheel = Wheel::new(1, 0);
        let mut due = Vec::new();
        wheel.advance(1000 * TICK_NS, &mut due);
        wheel.set(0, 5);
        wheel.advance(1001 * TICK_NS, &mut due);
        assert_eq!(due, [0]);
    }
}
