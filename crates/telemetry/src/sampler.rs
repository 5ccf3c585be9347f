//! Selects traces.

use windlass_types::TraceId;

/// Selects a share of all traces by their IDs (upstream `TraceIDRatioBased`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    per_million: u32,
}

impl Sampler {
    /// The rate of all traces.
    pub const ALL: u32 = 1_000_000;

    /// `samplingRatePerMillion`; values out of range select no or all traces.
    pub fn per_million(rate: i32) -> Self {
        let per_million = u32::try_from(rate).unwrap_or(0).min(Self::ALL);
        Self { per_million }
    }

    /// Returns whether this trace is selected, by the last 8 bytes of its ID without one bit.
    pub fn samples(self, trace: TraceId) -> bool {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the lower half of the ID is meant"
        )]
        let number = u128::from(trace.0 as u64 >> 1);
        number < (1_u128 << 63) * u128::from(self.per_million) / u128::from(Self::ALL)
    }
}

#[cfg(test)]
mod tests {
    use windlass_types::TraceId;

    use super::Sampler;

    #[test]
    fn trace_is_sampled_by_its_id() {
        let half = Sampler::per_million(500_000);
        assert!(half.samples(TraceId(u128::MAX << 64 | 0x7fff_ffff_ffff_ffff)));
        assert!(!half.samples(TraceId(0x8000_0000_0000_0000)));
        for trace in [1, u128::from(u64::MAX), u128::MAX].map(TraceId) {
            assert!(Sampler::per_million(1_000_000).samples(trace));
            assert!(!Sampler::per_million(0).samples(trace));
            assert!(!Sampler::per_million(-1).samples(trace));
        }
    }
}
