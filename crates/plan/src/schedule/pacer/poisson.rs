//! Poisson arrivals that can be read at any place, without state. Time is cut into blocks. The
//! number of arrivals in a block is a Poisson number, and they lie anywhere in it, independent of
//! each other. This is a Poisson process (Kingman: "Poisson Processes", 1993, 2.4).
//!
//! A place is block, index within the block, and index within the burst, packed into one number.

use super::Pacer;
use crate::schedule::random::Random;

/// Mean number of arrivals in a block. Larger blocks make the count of many messages cheaper, and
/// each message dearer.
const MEAN: f64 = 4.0;
/// exp(-[`MEAN`]), which `exp` gives only at run time.
const NONE: f64 = 0.018_315_638_888_734_18;
/// Most arrivals in a block: more have a probability of 10^-12.
const MOST: usize = 24;
/// Bits of the index within a block.
const INDEX_BITS: u32 = 5;
/// Element `n`: probability of at most `n` arrivals in a block, in units of 2^-64.
const AT_MOST: [u64; MOST] = at_most();

/// Arrivals of one client.
pub struct Train {
    random: Random,
    block_ns: f64,
    burst: u64,
}

/// Arrivals in a block.
struct Block {
    number: u64,
    random: Random,
    count: usize,
}

impl Train {
    #[inline]
    pub fn new(pacer: &Pacer, client: u32) -> Self {
        Self {
            random: pacer.random.of(u64::from(client)).of(2),
            block_ns: MEAN * pacer.burst as f64 * pacer.period_ns(client),
            burst: pacer.burst,
        }
    }

    pub fn due_ns(&self, place: u64) -> u64 {
        let (block, index, _) = self.unpack(place);
        self.instants_ns(&block)[index]
    }

    pub fn after(&self, place: u64) -> u64 {
        let (block, index, of_burst) = self.unpack(place);
        if of_burst + 1 < self.burst {
            place + 1
        } else if index + 1 < block.count {
            self.pack(&block, index + 1)
        } else {
            self.first_of(block.number + 1)
        }
    }

    pub fn first_from(&self, elapsed_ns: u64) -> u64 {
        // Rounding may put an arrival at the end of its block.
        let number = self.block_at(elapsed_ns).saturating_sub(1);
        for number in number..=number + 2 {
            let block = self.block(number);
            let instants = self.instants_ns(&block);
            let found = instants[..block.count].iter().position(|&ns| ns >= elapsed_ns);
            if let Some(index) = found {
                return self.pack(&block, index);
            }
        }
        self.first_of(number + 3)
    }

    pub fn count_before(&self, place: u64, elapsed_ns: u64) -> u64 {
        let (block, index, of_burst) = self.unpack(place);
        let passed = index as u64 * self.burst + of_burst;
        // All arrivals of earlier blocks lie before the instant.
        let last = self.block_at(elapsed_ns).saturating_sub(1);
        let whole: u64 = (block.number..last).map(|number| self.count_of(number) as u64).sum();
        let before = |number| {
            let block = self.block(number);
            let instants = self.instants_ns(&block);
            instants[..block.count].iter().filter(|&&ns| ns < elapsed_ns).count() as u64
        };
        let rest: u64 = (last.max(block.number)..=last + 2).map(before).sum();
        ((whole + rest) * self.burst).saturating_sub(passed)
    }

    /// First place in the block with this number, or in the next block that has an arrival.
    fn first_of(&self, mut number: u64) -> u64 {
        while self.count_of(number) == 0 {
            number += 1;
        }
        self.pack(&self.block(number), 0)
    }

    fn block_at(&self, elapsed_ns: u64) -> u64 {
        (elapsed_ns as f64 / self.block_ns) as u64
    }

    fn block(&self, number: u64) -> Block {
        Block { number, random: self.random.of(number), count: self.count_of(number) }
    }

    fn count_of(&self, number: u64) -> usize {
        let bits = self.random.of(number).bits();
        AT_MOST.iter().position(|&end| bits < end).unwrap_or(MOST)
    }

    /// Instants of the arrivals in a block, in order; `u64::MAX` behind the last one.
    fn instants_ns(&self, block: &Block) -> [u64; MOST] {
        let mut instants = [u64::MAX; MOST];
        for (index, instant) in instants[..block.count].iter_mut().enumerate() {
            let unit = block.random.of(index as u64).unit();
            *instant = ((block.number as f64 + unit) * self.block_ns) as u64;
        }
        instants[..block.count].sort_unstable();
        instants
    }

    fn pack(&self, block: &Block, index: usize) -> u64 {
        (block.number << INDEX_BITS | index as u64).saturating_mul(self.burst)
    }

    fn unpack(&self, place: u64) -> (Block, usize, u64) {
        let (arrival, of_burst) = (place / self.burst, place % self.burst);
        let index = (arrival & ((1 << INDEX_BITS) - 1)) as usize;
        (self.block(arrival >> INDEX_BITS), index.min(MOST - 1), of_burst)
    }
}

const fn at_most() -> [u64; MOST] {
    const ALL: f64 = 18_446_744_073_709_551_616.0;
    let mut ends = [0; MOST];
    let (mut each, mut sum, mut n) = (NONE, 0.0, 0);
    while n < MOST {
        sum += each;
        ends[n] = (sum * ALL) as u64;
        n += 1;
        each *= MEAN / n as f64;
    }
    ends
}

#[cfg(test)]
mod tests;
