//! Which traces are taken.

use windlass_types::TraceId;

/// Takes a share of all traces, the same ones wherever they are asked about (upstream
/// `TraceIDRatioBased`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    per_million: u32,
}

impl Sampler {
    /// One million is all.
    pub const ALL: u32 = 1_000_000;

    /// `samplingRatePerMillion`; what is out of range is none or all.
    pub fn per_million(rate: i32) -> Self {
        let per_million = u32::try_from(rate).unwrap_or(0).min(Self::ALL);
        Self { per_million }
    }

    /// Whether this trace is one of them: the last 8 bytes of its name decide, but for one bit.
    pub fn samples(self, trace: TraceId) -> bool {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the lower half of the name is meant"
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
    fn a_trace_is_taken_by_its_name() {
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
