//! Memory shortage by either rule.

use windlass_units::quantity::Quantity;

use super::MemoryRule;
use crate::observation::Observations;
use crate::signal::Signal;
use crate::test_figures::{amount, observations};

fn is_short(rule: MemoryRule, needed: Quantity, all: &Observations) -> bool {
    let signal = Signal::MemoryAvailable;
    let observed = rule.observe(*all.get(signal).expect("memory"), &all.node_memory);
    rule.is_short(signal, needed, &observed, &all.node_memory)
}

/// Whether memory of the node is short of 100Mi, by upstream's rule and by ours.
fn check(observed: &str, expected: [bool; 2]) {
    let all = observations(observed, 0);
    let needed = Signal::MemoryAvailable.quantity(amount("100Mi"));
    let got = [MemoryRule::Upstream, MemoryRule::ReclaimableAware]
        .map(|rule| is_short(rule, needed, &all));
    assert_eq!(got, expected, "{observed}");
}

#[test]
fn rules_agree_without_page_cache() {
    check("memory.available=100Mi/1Gi", [false, false]);
    check("memory.available=99Mi/1Gi", [true, true]);
    check("memory.available=99Mi/1Gi memavail=2Gi", [true, true]);
}

#[test]
fn page_cache_counts_as_available() {
    check("memory.available=60Mi/1Gi cache=39Mi", [true, true]);
    check("memory.available=60Mi/1Gi cache=40Mi", [true, false]);
    // the kernel keeps a part of it
    check(
        "memory.available=60Mi/1Gi cache=1Gi memavail=99Mi",
        [true, true],
    );
    check(
        "memory.available=60Mi/1Gi cache=1Gi memavail=100Mi",
        [true, false],
    );
    check(
        "memory.available=60Mi/1Gi cache=1Gi memavail=0",
        [true, true],
    );
}

#[test]
fn stalls_make_page_cache_needed() {
    let cache = "memory.available=60Mi/1Gi cache=1Gi";
    check(&format!("{cache} full=10 some=40"), [true, false]);
    check(&format!("{cache} full=10.1"), [true, true]);
    check(&format!("{cache} some=40.1"), [true, true]);
    // stalls alone make no shortage
    check("memory.available=500Mi/1Gi full=90 some=90", [false, false]);
    check(&format!("{cache} some=NaN full=NaN"), [true, false]);
}

#[test]
fn memory_that_the_kernel_keeps_is_not_available() {
    check("memory.available=150Mi/4Gi memavail=99Mi", [false, true]);
    check("memory.available=150Mi/4Gi memavail=100Mi", [false, false]);
    check(
        "memory.available=150Mi/4Gi cache=1Gi memavail=99Mi",
        [false, true],
    );
}

#[test]
fn ours_is_short_when_upstream_or_the_kernel_is() {
    for available in ["0", "50Mi", "100Mi", "1Gi"] {
        for cache in ["0", "49Mi", "50Mi", "9223372036854775807"] {
            for memavail in ["0", "100Mi", "9223372036854775807"] {
                for stall in ["0", "100"] {
                    let text = format!(
                        "memory.available={available}/4Gi cache={cache} memavail={memavail} \
                         full={stall}"
                    );
                    let all = observations(&text, 0);
                    let needed = Signal::MemoryAvailable.quantity(amount("100Mi"));
                    let ours = is_short(MemoryRule::ReclaimableAware, needed, &all);
                    let upstream = is_short(MemoryRule::Upstream, needed, &all);
                    let kernel = memavail == "0";
                    assert!(upstream || kernel || !ours, "{text}");
                    assert!(!upstream || stall == "0" || ours, "{text}");
                    assert!(!kernel || ours, "{text}");
                }
            }
        }
    }
}

#[test]
fn rule_is_read_by_name() {
    assert_eq!("upstream".parse(), Ok(MemoryRule::Upstream));
    assert_eq!("reclaimable-aware".parse(), Ok(MemoryRule::default()));
    let error = "none".parse::<MemoryRule>().expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "must be reclaimable-aware or upstream, got \"none\""
    );
}
