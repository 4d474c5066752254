//! One timer for each client: a hierarchical wheel of four levels of 256 slots (Varghese and
//! Lauck, 1987), its lists threaded through one array, so that setting and cancelling are a few
//! writes and nothing is allocated. A timer never fires early and at most one tick late. It knows
//! clients by index only.

/// Length of a tick as a power of two: 65.5 µs.
const TICK_SHIFT: u32 = 16;
const SLOTS: usize = 256;
const LEVELS: usize = 4;
const NONE: u32 = u32::MAX;
/// Where a client without a timer points.
const IDLE: u16 = u16::MAX;

/// A client's place in the wheel, part of the memory budget of a client.
#[derive(Clone, Copy)]
pub struct Link {
    next: u32,
    previous: u32,
    tick: u32,
    slot: u16,
}

/// The wheel.
pub struct Wheel {
    /// Instant of tick 0, in nanoseconds.
    origin_ns: u64,
    /// Last tick whose timers have fired.
    current: u32,
    heads: Box<[u32; SLOTS * LEVELS]>,
    /// One bit for each slot that is not empty.
    occupied: [[u64; SLOTS / 64]; LEVELS],
    links: Vec<Link>,
}

impl Wheel {
    /// A wheel without timers, for `clients` clients, that starts at `now_ns`.
    pub fn new(clients: usize, now_ns: u64) -> Self {
        let idle = Link { next: NONE, previous: NONE, tick: 0, slot: IDLE };
        Self {
            origin_ns: now_ns,
            current: 0,
            heads: Box::new([NONE; SLOTS * LEVELS]),
            occupied: [[0; SLOTS / 64]; LEVELS],
            links: vec![idle; clients],
        }
    }

    /// Sets the client's timer to `deadline_ns`, in place of any other.
    pub fn set(&mut self, client: u32, deadline_ns: u64) {
        self.cancel(client);
        let elapsed = deadline_ns.saturating_sub(self.origin_ns);
        let tick = elapsed.div_ceil(1 << TICK_SHIFT).min(u64::from(u32::MAX)) as u32;
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
        let target = elapsed.min(u64::from(u32::MAX - 1)) as u32;
        while self.current < target {
            let block_end = self.current | 0xff;
            match self.next_slot(0, (self.current & 0xff) as usize + 1) {
                Some(slot) => {
                    let tick = (self.current & !0xff) + slot as u32;
                    if tick > target {
                        self.current = target;
                        return;
                    }
                    self.current = tick;
                    self.fire(slot, due);
                }
                None if block_end >= target => self.current = target,
                None => {
                    self.current = block_end + 1;
                    self.cascade();
                    self.fire(0, due);
                }
            }
        }
    }

    /// An instant not after the next timer, in nanoseconds; `None` without timers.
    pub fn next_ns(&self) -> Option<u64> {
        (0..LEVELS).find_map(|level| {
            let shift = 8 * level as u32;
            let digit = (self.current >> shift & 0xff) as usize;
            self.next_slot(level, digit + 1).map(|slot| {
                let above = u64::from(self.current) >> shift >> 8 << 8 << shift;
                let tick = above + ((slot as u64) << shift);
                self.origin_ns + (tick << TICK_SHIFT)
            })
        })
    }

    fn insert(&mut self, client: u32, tick: u32) {
        let level = (31 - (tick ^ self.current).max(1).leading_zeros()) as usize / 8;
        let slot = level * SLOTS + (tick >> (8 * level as u32) & 0xff) as usize;
        let next = std::mem::replace(&mut self.heads[slot], client);
        if next != NONE {
            self.links[next as usize].previous = client;
        }
        self.links[client as usize] = Link { next, previous: NONE, tick, slot: slot as u16 };
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
            if self.current & ((1 << shift) - 1) != 0 {
                continue;
            }
            let mut client = self.empty(level * SLOTS + (self.current >> shift & 0xff) as usize);
            while client != NONE {
                let Link { next, tick, .. } = self.links[client as usize];
                self.insert(client, tick);
                client = next;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK_NS: u64 = 1 << TICK_SHIFT;

    proptest! {
        #[test]
        fn timers_fire_never_early_and_at_most_a_tick_late(
            deadlines in prop::collection::vec(0u64..40_000_000_000, 1..100),
            steps in prop::collection::vec(1u64..3_000_000_000, 1..60),
            cancelled in prop::collection::hash_set(0u32..100, 0..20),
        ) {
            let start = 12_345;
            let mut wheel = Wheel::new(deadlines.len(), start);
            for (client, &deadline) in deadlines.iter().enumerate() {
                wheel.set(client as u32, start + deadline / 2);
                wheel.set(client as u32, start + deadline);
            }
            let known = |c: &&u32| (**c as usize) < deadlines.len();
            cancelled.iter().filter(known).for_each(|&c| wheel.cancel(c));
            let mut waiting: std::collections::BTreeMap<u32, u64> = (0u32..)
                .zip(deadlines.iter().map(|d| start + d))
                .filter(|(client, _)| !cancelled.contains(client))
                .collect();
            let (mut now, mut due) = (start, Vec::new());
            for step in steps {
                if let Some(next) = wheel.next_ns() {
                    let earliest = waiting.values().min().copied().unwrap();
                    prop_assert!(next <= earliest + TICK_NS, "{next} after {earliest}");
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
            }
        }
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
