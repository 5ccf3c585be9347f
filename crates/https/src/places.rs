//! Who has a place, and who has to go for a newcomer.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::limits::Limits;

/// The places of one server.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By age.
    strangers: BTreeMap<u64, Stranger>,
    next: u64,
    known: usize,
}

#[derive(Debug)]
struct Stranger {
    network: IpAddr,
    busy: bool,
    evicted: CancellationToken,
}

/// A connection's place. It is free again when this is dropped.
pub(crate) struct Place {
    places: Places,
    id: u64,
    known: AtomicBool,
    evicted: CancellationToken,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared {
            limits,
            state: Mutex::default(),
        }))
    }

    /// A stranger's place. Another stranger may have to go for it.
    pub(crate) fn admit(&self, address: IpAddr) -> Place {
        let network = network(address, 32);
        let mut state = self.lock();
        if let Some(victim) = victim(&state.strangers, network, &self.0.limits)
            && let Some(stranger) = state.strangers.remove(&victim)
        {
            tracing::debug!(address = %stranger.network, newcomer = %address, "stranger sent away");
            stranger.evicted.cancel();
        }
        let id = state.next;
        state.next += 1;
        let evicted = CancellationToken::new();
        let stranger = Stranger {
            network,
            busy: true,
            evicted: evicted.clone(),
        };
        state.strangers.insert(id, stranger);
        Place {
            places: self.clone(),
            id,
            known: AtomicBool::new(false),
            evicted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Makes it the place of somebody who is no stranger, if there is one left.
    pub(crate) fn promote(&self) {
        if self.known.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.places.lock();
        if state.known >= self.places.0.limits.known {
            return;
        }
        // one that was sent away has no place to change
        if state.strangers.remove(&self.id).is_some() {
            state.known += 1;
            self.known.store(true, Ordering::Release);
        }
    }

    /// Says whether it works on a request: idle strangers go first.
    pub(crate) fn set_busy(&self, busy: bool) {
        if self.known.load(Ordering::Acquire) {
            return;
        }
        if let Some(stranger) = self.places.lock().strangers.get_mut(&self.id) {
            stranger.busy = busy;
        }
    }

    /// Whether it is the place of somebody who is no stranger.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Says that it has to go.
    pub(crate) fn send_away(&self) {
        self.evicted.cancel();
    }

    /// Waits until it has to go.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        match self.known.load(Ordering::Acquire) {
            true => state.known -= 1,
            false => drop(state.strangers.remove(&self.id)),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("id", &self.id).finish()
    }
}

/// Who has to go for a newcomer from `network`: one of its own if it has all it may have, one of
/// the network with the most if there is no place at all. Of these the oldest that is idle, or else
/// the oldest.
fn victim(strangers: &BTreeMap<u64, Stranger>, network: IpAddr, limits: &Limits) -> Option<u64> {
    let mut count: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for stranger in strangers.values() {
        *count.entry(stranger.network).or_default() += 1;
    }
    let own = count.get(&network).copied().unwrap_or_default();
    let most = count.values().copied().max().unwrap_or_default();
    let goes = |stranger: &Stranger| match own >= limits.strangers_of_one_address {
        true => stranger.network == network,
        false => count.get(&stranger.network) == Some(&most),
    };
    if own < limits.strangers_of_one_address && strangers.len() < limits.strangers {
        return None;
    }
    strangers
        .iter()
        .filter(|(_, stranger)| goes(stranger))
        .min_by_key(|(id, stranger)| (stranger.busy, **id))
        .map(|(id, _)| *id)
}

/// What counts as one address: an IPv6 client may have a whole /64 network, and an IPv4 one has
/// as much of its own as these leading bits say, 1 to 32.
pub(crate) fn network(address: IpAddr, bits_of_ipv4: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        IpAddr::V4(address) => {
            let rest = 32 - bits_of_ipv4;
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() >> rest << rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections as (address, busy) in the order in which they came, then a newcomer's address;
    /// who has to go, by position.
    #[track_caller]
    fn check(there: &[(&str, bool)], newcomer: &str, expected: Option<usize>) {
        let limits = Limits {
            strangers: 4,
            strangers_of_one_address: 2,
            ..Limits::default()
        };
        let places = Places::new(limits);
        let held: Vec<_> = there
            .iter()
            .map(|(address, busy)| {
                let place = places.admit(address.parse().expect("an address"));
                place.set_busy(*busy);
                place
            })
            .collect();
        assert!(held.iter().all(|place| !place.evicted.is_cancelled()));
        let _newcomer = places.admit(newcomer.parse().expect("an address"));
        let gone: Vec<_> = (0..held.len())
            .filter(|at| held[*at].evicted.is_cancelled())
            .collect();
        assert_eq!(gone, Vec::from_iter(expected), "{there:?} and {newcomer}");
    }

    #[test]
    fn a_newcomer_gets_in_and_the_oldest_idle_one_of_the_greediest_goes() {
        check(&[], "10.0.0.1", None);
        check(&[("10.0.0.1", false)], "10.0.0.1", None);
        let two = [("10.0.0.1", true), ("10.0.0.1", false)];
        check(&two, "10.0.0.1", Some(1));
        check(&two, "10.0.0.2", None);
        let busy = [("10.0.0.1", true), ("10.0.0.1", true)];
        check(&busy, "10.0.0.1", Some(0));
        let full = [
            ("10.0.0.9", false),
            ("10.0.0.1", true),
            ("10.0.0.2", false),
            ("10.0.0.1", true),
        ];
        check(&full, "10.0.0.3", Some(1));
        let six = [("2001:db8::1", false), ("2001:db8::2", false)];
        check(&six, "2001:db8::3", Some(0));
        check(&six, "2001:db8:0:1::3", None);
        let mapped = [("10.0.0.1", false), ("::ffff:10.0.0.1", false)];
        check(&mapped, "10.0.0.1", Some(0));
    }

    #[test]
    fn addresses_are_of_one_network_or_not() {
        let of = |address: &str| network(address.parse().expect("an address"), 24).to_string();
        assert_eq!(of("10.1.2.3"), "10.1.2.0");
        assert_eq!(of("::ffff:10.1.2.255"), "10.1.2.0");
        assert_eq!(of("2001:db8::1:2:3:4:5"), "2001:db8:0:1::");
    }

    #[test]
    fn one_who_is_known_takes_no_place_of_a_stranger_and_cannot_be_sent_away() {
        let limits = Limits {
            strangers: 1,
            known: 1,
            ..Limits::default()
        };
        let places = Places::new(limits);
        let address = IpAddr::from([10, 0, 0, 1]);
        let known = places.admit(address);
        known.promote();
        known.promote();
        let second = places.admit(address);
        // there is no place among the known for it
        second.promote();
        let third = places.admit(address);
        assert!(second.evicted.is_cancelled());
        assert!(!known.evicted.is_cancelled());
        drop(known);
        drop(second);
        third.promote();
        let fourth = places.admit(address);
        assert!(!third.evicted.is_cancelled());
        drop((third, fourth));
        let state = places.lock();
        assert_eq!((state.known, state.strangers.len()), (0, 0));
    }
}
