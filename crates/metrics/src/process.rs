//! Families of this process, read from `/proc` on each scrape.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

use crate::Registrar;

/// USER_HZ, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Index of utime (stime follows) in `/proc/self/stat` after the name.
const UTIME: usize = 11;
const KIB: f64 = 1024.0;

/// `process_*` except the start time.
#[derive(Clone, Debug)]
struct ProcessCollector {
    cpu: Counter,
    received: Counter,
    sent: Counter,
    resident: Gauge,
    virtual_memory: Gauge,
    max_virtual_memory: Gauge,
    open_files: Gauge,
    max_files: Gauge,
}

pub(crate) fn register(r: &Registrar<'_>) -> Result<(), prometheus::Error> {
    let collector = ProcessCollector {
        cpu: Counter::new(
            "process_cpu_seconds_total",
            "User and system CPU time in seconds.",
        )?,
        resident: Gauge::new(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
        )?,
        virtual_memory: Gauge::new(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
        )?,
        max_virtual_memory: Gauge::new(
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
        )?,
        received: Counter::new(
            "process_network_receive_bytes_total",
            "Number of bytes received by the process over the network.",
        )?,
        sent: Counter::new(
            "process_network_transmit_bytes_total",
            "Number of bytes sent by the process over the network.",
        )?,
        open_files: Gauge::new("process_open_fds", "Number of open file descriptors.")?,
        max_files: Gauge::new(
            "process_max_fds",
            "Maximum number of open file descriptors.",
        )?,
    };
    r.add("gauge", collector)?;
    Ok(())
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = [
            &self.resident,
            &self.virtual_memory,
            &self.max_virtual_memory,
            &self.open_files,
            &self.max_files,
        ];
        let gauges = gauges.into_iter().flat_map(Collector::desc);
        let counters = [&self.cpu, &self.received, &self.sent];
        let counters = counters.into_iter().flat_map(Collector::desc);
        counters.chain(gauges).collect()
    }

    /// Collects all readable families.
    fn collect(&self) -> Vec<MetricFamily> {
        let text = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).ok();
        let status = text("status").unwrap_or_default();
        let mut families = Vec::new();
        let network = text("net/netstat").unwrap_or_default();
        let counters = [
            (&self.cpu, text("stat").and_then(|stat| cpu_seconds(&stat))),
            (&self.received, ip_octets(&network, "InOctets")),
            (&self.sent, ip_octets(&network, "OutOctets")),
        ];
        for (counter, value) in counters {
            if let Some(value) = value {
                // counters must not decrease
                counter.inc_by((value - counter.get()).max(0.0));
                families.extend(counter.collect());
            }
        }
        let limits = text("limits").unwrap_or_default();
        // without the descriptor of the directory
        let open = fs::read_dir("/proc/self/fd").map(|files| files.count().saturating_sub(1));
        let gauges = [
            (&self.resident, kib(&status, "VmRSS:")),
            (&self.virtual_memory, kib(&status, "VmSize:")),
            (&self.open_files, open.ok().map(|open| open as f64)),
            (&self.max_files, limit(&limits, "Max open files")),
            (
                &self.max_virtual_memory,
                limit(&limits, "Max address space"),
            ),
        ];
        for (gauge, value) in gauges {
            if let Some(value) = value {
                gauge.set(value);
                families.extend(gauge.collect());
            }
        }
        families
    }
}

/// Parses user and system time; the name may contain spaces and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_ascii_whitespace().skip(UTIME).take(2);
    let ticks: Vec<u64> = ticks.map(str::parse).collect::<Result<_, _>>().ok()?;
    (ticks.len() == 2).then(|| ticks.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
}

fn kib(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * KIB)
}

/// Returns a value of `IpExt` in `/proc/self/net/netstat`, for the network namespace as upstream.
fn ip_octets(netstat: &str, name: &str) -> Option<f64> {
    let mut lines = netstat
        .lines()
        .filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|it| it == name)?;
    numbers.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// Returns a soft limit; unlimited is `u64::MAX`, as upstream.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;

    #[test]
    fn proc_files_are_parsed_with_unusual_process_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 8 0 99 1 2";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
        let status = "Name:\ta\nVmSize:\t  2048 kB\nVmRSS:\t     4 kB\n";
        assert_eq!(kib(status, "VmRSS:"), Some(4096.0));
        assert_eq!(kib(status, "VmSwap:"), None);
        let limits = "Limit  Soft Limit\nMax open files  1024  4096 files\n\
            Max address space  unlimited  unlimited  bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        let memory = limit(limits, "Max address space");
        assert_eq!(memory, Some(u64::MAX as f64));
        assert_eq!(limit("", "Max open files"), None);
        let netstat = "TcpExt: InOctets\nTcpExt: 9\nIpExt: InNoRoutes InOctets OutOctets\n\
            IpExt: 0 3720992478 7\n";
        assert_eq!(ip_octets(netstat, "InOctets"), Some(3_720_992_478.0));
        assert_eq!(ip_octets(netstat, "OutOctets"), Some(7.0));
        assert_eq!(ip_octets("IpExt: InOctets\nIpExt:\n", "InOctets"), None);
    }

    #[test]
    fn scrape_collects_process_metrics() {
        let metrics = Metrics::new().expect("metrics");
        let value = |name: &str| -> f64 {
            let text = metrics.render().expect("text");
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.expect("the sample").parse().expect("a number")
        };
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 100_000.0, "{resident}");
        assert!(value("process_virtual_memory_bytes") > resident);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let open = value("process_open_fds");
        let more: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat")).collect();
        assert!(value("process_open_fds") > open, "{} more", more.len());
        assert!(value("process_max_fds") >= open + 50.0);
        assert!(value("process_virtual_memory_max_bytes") > resident);
        let received = value("process_network_receive_bytes_total");
        assert!(value("process_network_receive_bytes_total") >= received);
        assert!(value("process_network_transmit_bytes_total") >= 0.0);
    }
}
