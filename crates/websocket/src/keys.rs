//! Masking keys and nonces: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
//! generators", 2014). The keys protect proxies from pages of strangers in browsers [6455, 10.3];
//! a load generator sends nothing of strangers, so a seeded generator is enough.

/// A generator of masking keys and nonces.
#[derive(Clone, Copy, Debug)]
pub struct MaskingKeys(u64);

impl MaskingKeys {
    /// The generator of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next masking key.
    #[inline]
    pub const fn mask(&mut self) -> [u8; 4] {
        ((self.next() >> 32) as u32).to_ne_bytes()
    }

    /// Returns the next nonce of an upgrade.
    pub const fn nonce(&mut self) -> [u8; 16] {
        (((self.next() as u128) << 64) | self.next() as u128).to_ne_bytes()
    }

    #[inline]
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
