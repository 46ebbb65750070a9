//! Chance.

/// Random bits, for ids and jitter.
pub trait Entropy: Send + Sync + 'static {
    fn bits(&self) -> u128;

    /// Uniform in `[0, 1)`.
    fn unit(&self) -> f64 {
        // 53 bits are what an f64 holds exactly.
        let mantissa = u64::try_from(self.bits() & ((1 << 53) - 1)).unwrap_or(0);
        mantissa as f64 / (1_u64 << 53) as f64
    }
}
