//! The connection limiter and its eviction policy.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;

/// Limits the connections of one server.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By age.
    unauthenticated: BTreeMap<u64, UnauthenticatedConnection>,
    next: u64,
    authenticated: usize,
}

#[derive(Debug)]
struct UnauthenticatedConnection {
    network: IpAddr,
    busy: bool,
    evicted: CancellationToken,
}

/// The permit of a connection, released on drop.
pub(crate) struct ConnectionPermit {
    limiter: ConnectionLimiter,
    id: u64,
    authenticated: AtomicBool,
    evicted: CancellationToken,
}

impl ConnectionLimiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared {
            limits,
            state: Mutex::default(),
        }))
    }

    /// Returns a permit for an unauthenticated connection. This may evict another one.
    pub(crate) fn admit(&self, address: IpAddr) -> ConnectionPermit {
        let network = network(address, 32);
        let mut state = self.0.state.lock();
        if let Some(eviction_candidate) =
            eviction_candidate(&state.unauthenticated, network, &self.0.limits)
            && let Some(connection) = state.unauthenticated.remove(&eviction_candidate)
        {
            tracing::debug!(address = %connection.network, new = %address, "connection evicted");
            connection.evicted.cancel();
        }
        let id = state.next;
        state.next += 1;
        let evicted = CancellationToken::new();
        let connection = UnauthenticatedConnection {
            network,
            busy: true,
            evicted: evicted.clone(),
        };
        state.unauthenticated.insert(id, connection);
        ConnectionPermit {
            limiter: self.clone(),
            id,
            authenticated: AtomicBool::new(false),
            evicted,
        }
    }
}

impl ConnectionPermit {
    /// Marks the connection as authenticated, within the limit of authenticated connections.
    pub(crate) fn mark_authenticated(&self) {
        if self.authenticated.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.limiter.0.state.lock();
        if state.authenticated >= self.limiter.0.limits.authenticated_connections {
            return;
        }
        // an evicted connection has no permit to change
        if state.unauthenticated.remove(&self.id).is_some() {
            state.authenticated += 1;
            self.authenticated.store(true, Ordering::Release);
        }
    }

    /// Sets whether a request is in progress: idle connections are evicted first.
    pub(crate) fn set_busy(&self, busy: bool) {
        if self.authenticated.load(Ordering::Acquire) {
            return;
        }
        if let Some(connection) = self
            .limiter
            .0
            .state
            .lock()
            .unauthenticated
            .get_mut(&self.id)
        {
            connection.busy = busy;
        }
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Acquire)
    }

    /// Closes the connection.
    pub(crate) fn close(&self) {
        self.evicted.cancel();
    }

    /// Waits until the connection is evicted or closed.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.limiter.0.state.lock();
        match self.authenticated.load(Ordering::Acquire) {
            true => state.authenticated -= 1,
            false => drop(state.unauthenticated.remove(&self.id)),
        }
    }
}

impl fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPermit")
            .field("id", &self.id)
            .finish()
    }
}

/// Returns the connection to evict for a new one from `network`. At the limit of its network that
/// is one of the same network, at the total limit one of the network with the most. The oldest
/// idle one is chosen, else the oldest.
fn eviction_candidate(
    unauthenticated: &BTreeMap<u64, UnauthenticatedConnection>,
    network: IpAddr,
    limits: &Limits,
) -> Option<u64> {
    let mut count: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for connection in unauthenticated.values() {
        *count.entry(connection.network).or_default() += 1;
    }
    let own = count.get(&network).copied().unwrap_or_default();
    let most = count.values().copied().max().unwrap_or_default();
    let eligible =
        |connection: &UnauthenticatedConnection| match own >= limits.unauthenticated_per_network {
            true => connection.network == network,
            false => count.get(&connection.network) == Some(&most),
        };
    if own < limits.unauthenticated_per_network
        && unauthenticated.len() < limits.unauthenticated_connections
    {
        return None;
    }
    unauthenticated
        .iter()
        .filter(|(_, connection)| eligible(connection))
        .min_by_key(|(id, connection)| (connection.busy, **id))
        .map(|(id, _)| *id)
}

/// Returns the network that counts as one client: /64 of IPv6, and these leading bits (1 to 32) of
/// IPv4.
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

    /// Checks which connection is evicted: connections as (address, busy) by age, the new address,
    /// the expected position.
    #[track_caller]
    fn check(there: &[(&str, bool)], newcomer: &str, expected: Option<usize>) {
        let limits = Limits {
            unauthenticated_connections: 4,
            unauthenticated_per_network: 2,
            ..Limits::default()
        };
        let limiter = ConnectionLimiter::new(limits);
        let held: Vec<_> = there
            .iter()
            .map(|(address, busy)| {
                let permit = limiter.admit(address.parse().expect("an address"));
                permit.set_busy(*busy);
                permit
            })
            .collect();
        assert!(held.iter().all(|permit| !permit.evicted.is_cancelled()));
        let _newcomer = limiter.admit(newcomer.parse().expect("an address"));
        let gone: Vec<_> = (0..held.len())
            .filter(|at| held[*at].evicted.is_cancelled())
            .collect();
        assert_eq!(gone, Vec::from_iter(expected), "{there:?} and {newcomer}");
    }

    #[test]
    fn new_connection_evicts_the_oldest_idle_of_the_largest_network() {
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
    fn network_masks_ipv4_and_ipv6_addresses() {
        let of = |address: &str| network(address.parse().expect("an address"), 24).to_string();
        assert_eq!(of("10.1.2.3"), "10.1.2.0");
        assert_eq!(of("::ffff:10.1.2.255"), "10.1.2.0");
        assert_eq!(of("2001:db8::1:2:3:4:5"), "2001:db8:0:1::");
    }

    #[test]
    fn authenticated_connection_is_limited_apart_and_not_evicted() {
        let limits = Limits {
            unauthenticated_connections: 1,
            authenticated_connections: 1,
            ..Limits::default()
        };
        let limiter = ConnectionLimiter::new(limits);
        let address = IpAddr::from([10, 0, 0, 1]);
        let authenticated = limiter.admit(address);
        authenticated.mark_authenticated();
        authenticated.mark_authenticated();
        let second = limiter.admit(address);
        // the limit of authenticated connections is reached
        second.mark_authenticated();
        let third = limiter.admit(address);
        assert!(second.evicted.is_cancelled());
        assert!(!authenticated.evicted.is_cancelled());
        drop(authenticated);
        drop(second);
        third.mark_authenticated();
        let fourth = limiter.admit(address);
        assert!(!third.evicted.is_cancelled());
        drop((third, fourth));
        let state = limiter.0.state.lock();
        assert_eq!((state.authenticated, state.unauthenticated.len()), (0, 0));
    }
}
