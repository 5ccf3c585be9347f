//! `/metrics/cadvisor`: a row for each cgroup, with the families and labels of cAdvisor.
//!
//! Rows are the host, its system containers, QoS classes, pods, sandboxes and containers. An absent
//! value is omitted, except memory values that upstream reports as 0.
//!
//! *bound* 12 MB of text for 250 pods with two containers each; in memory are the stats, 2 MiB, and
//! one part of the text, [`PART`].

mod disks;

use std::collections::BTreeMap;

use windlass_types::Timestamp;

use crate::cgroup::page_size_name;
use crate::exposition::Kind::{Counter, Gauge};
use crate::exposition::{Family, Text, counter, family, gauge};
use crate::usage::{
    CgroupUsage, CpuLimits, CpuUsage, DiskUsage, FsUsage, HugePages, InterfaceUsage, MemoryUsage,
    NetworkUsage, NodeUsage, OomKilledContainer, PodUsage, Pressure, ProcessUsage, Traffic,
};

/// Constant facts about the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// Logical processors.
    pub cpu_cores: u64,
    /// Physical processor cores; 0 if not known.
    pub physical_cores: u64,
    /// Processor sockets; 0 if not known.
    pub sockets: u64,
    /// Memory, bytes.
    pub memory: u64,
    /// Swap, bytes.
    pub swap: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// Firmware UUID of the host.
    pub system_uuid: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the operating system.
    pub os: String,
    /// Version of the agent.
    pub version: String,
}

/// Bytes of a part of the text: about 250 samples.
const PART: usize = 64 << 10;
/// Reserve for the samples that one row adds to a family: 300 bytes per interface or device.
const ROOM: usize = 4 << 10;

/// Table of families: name, help, and how to get the value.
type Figures<T, V, const N: usize> = [(&'static str, &'static str, fn(&T) -> V); N];

/// Labels of a row besides its path.
#[derive(Default)]
struct Names {
    container: String,
    image: String,
    name: String,
    namespace: String,
    pod: String,
}

/// One cgroup with its owner.
struct Row {
    names: Names,
    cgroup: CgroupUsage,
    started_at: Timestamp,
    network: Option<NetworkUsage>,
    fs: Option<FsUsage>,
    /// Disks of the host file systems by device.
    disks: BTreeMap<String, DiskUsage>,
    /// OOM kills of an exited container, which has no other samples.
    exited: Option<u64>,
}

impl Row {
    fn of(cgroup: CgroupUsage, started_at: Timestamp) -> Self {
        Self {
            names: Names::default(),
            cgroup,
            started_at,
            network: None,
            fs: None,
            disks: BTreeMap::new(),
            exited: None,
        }
    }

    /// Creates the row of an exited container.
    fn of_exited(container: OomKilledContainer, names: Names) -> Self {
        let cgroup = CgroupUsage {
            at: container.at,
            path: container.kills.cgroup,
            cpu: None,
            memory: None,
            io: None,
            processes: None,
            cpu_limits: CpuLimits::default(),
        };
        Self {
            names: Names {
                container: container.name,
                image: container.image,
                name: container.id.to_string(),
                ..names
            },
            exited: Some(container.kills.count),
            ..Self::of(cgroup, container.at)
        }
    }

    fn labels(&self) -> [(&'static str, &str); 6] {
        [
            ("container", &self.names.container),
            ("id", &self.cgroup.path),
            ("image", &self.names.image),
            ("name", &self.names.name),
            ("namespace", &self.names.namespace),
            ("pod", &self.names.pod),
        ]
    }
}

/// Writes the samples of a row for a family.
type Samples = Box<dyn Fn(&mut Text, &Row) + Send>;

/// A family, and how to write the samples of a row.
struct RowFamily {
    family: Family,
    samples: Samples,
}

/// The text in parts.
struct Parts {
    rows: Vec<Row>,
    families: Vec<RowFamily>,
    /// The next family and row.
    next: (usize, usize),
    /// Text after the rows: the error metric.
    lacking: Option<bool>,
    text: Text,
}

impl Iterator for Parts {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while let Some(shown) = self.families.get(self.next.0) {
            if self.next.1 == 0 {
                self.text.family(shown.family.clone());
            }
            for row in self.rows.iter().skip(self.next.1) {
                (shown.samples)(&mut self.text, row);
                self.next.1 += 1;
                if self.text.len() + ROOM > PART {
                    return Some(self.text.take(PART));
                }
            }
            self.next = (self.next.0 + 1, 0);
        }
        if let Some(lacking) = self.lacking.take() {
            self.text.family(gauge(
                "container_scrape_error",
                "1 if there was an error while getting container metrics, 0 otherwise",
            ));
            self.text.sample(&[], f64::from(u8::from(lacking)), None);
        }
        (self.text.len() > 0).then(|| self.text.take(0))
    }
}

/// Returns the text in parts of about 64 KiB, created one by one. Without stats it has the host
/// facts and the error metric.
pub fn cadvisor_metrics(
    machine: &MachineFacts,
    measured: Option<(NodeUsage, Vec<PodUsage>)>,
) -> impl Iterator<Item = String> + Send + 'static {
    let lacking = measured.is_none();
    let mut text = Text::with_capacity(PART);
    of_machine(&mut text, machine);
    Parts {
        rows: measured.map_or(Vec::new(), |(node, pods)| rows(node, pods)),
        families: families(),
        next: (0, 0),
        lacking: Some(lacking),
        text,
    }
}

fn families() -> Vec<RowFamily> {
    let mut all = Vec::new();
    of_processor(&mut all);
    of_memory(&mut all);
    disks::of_file_systems(&mut all);
    disks::of_devices(&mut all);
    disks::of_disks(&mut all);
    of_networks(&mut all);
    of_processes(&mut all);
    of_specs(&mut all);
    all
}

fn rows(node: NodeUsage, pods: Vec<PodUsage>) -> Vec<Row> {
    let machine = node.cgroup.path.clone();
    let disks = disks::of_node(&node);
    let mut rows = vec![Row {
        disks,
        network: node.network,
        fs: node.fs,
        ..Row::of(node.cgroup, node.started_at)
    }];
    for system in node.system.into_iter().chain(node.classes) {
        // omitted: processes without their own cgroup would be a second row of the host
        if system.cgroup.path != machine {
            rows.push(Row::of(system.cgroup, system.started_at));
        }
    }
    for pod in pods.into_iter().filter(|pod| pod.present) {
        let names = || Names {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            ..Names::default()
        };
        if let Some(cgroup) = pod.cgroup {
            rows.push(Row {
                names: names(),
                ..Row::of(cgroup, pod.started_at)
            });
        }
        if let Some(sandbox) = pod.sandbox
            && let Some(cgroup) = sandbox.cgroup
        {
            rows.push(Row {
                names: Names {
                    image: sandbox.image,
                    name: sandbox.id.to_string(),
                    ..names()
                },
                network: pod.network,
                ..Row::of(cgroup, pod.started_at)
            });
        }
        for container in pod.containers {
            let Some(cgroup) = container.cgroup else {
                continue;
            };
            // only the row of the host has inodes, for the upstream conformance test; with
            // containerd cAdvisor reports no file system of a container
            let own = |fs| FsUsage {
                inodes: None,
                inodes_free: None,
                ..fs
            };
            rows.push(Row {
                names: Names {
                    container: container.name,
                    image: container.image,
                    name: container.id.to_string(),
                    ..names()
                },
                fs: container.rootfs.map(own),
                ..Row::of(cgroup, container.started_at)
            });
        }
        let exited = pod.oom_killed.into_iter();
        rows.extend(exited.map(|container| Row::of_exited(container, names())));
    }
    rows
}

/// Creates a family with at most one sample per row, with the time of its cgroup stats.
fn each(
    all: &mut Vec<RowFamily>,
    family: Family,
    value: impl Fn(&Row) -> Option<f64> + Send + 'static,
) {
    samples(all, family, move |text, row| {
        if let Some(value) = value(row) {
            text.sample(&[&row.labels()], value, Some(row.cgroup.at));
        }
    });
}

/// Creates a family with any number of samples per row.
fn samples(
    all: &mut Vec<RowFamily>,
    family: Family,
    samples: impl Fn(&mut Text, &Row) + Send + 'static,
) {
    all.push(RowFamily {
        family,
        samples: Box::new(move |text, row| {
            if row.exited.is_none() {
                samples(text, row);
            }
        }),
    });
}

fn of_machine(text: &mut Text, machine: &MachineFacts) {
    let labels = [
        ("boot_id", machine.boot_id.as_str()),
        ("machine_id", &machine.machine_id),
        ("system_uuid", &machine.system_uuid),
    ];
    text.family(gauge(
        "cadvisor_version_info",
        "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.",
    ));
    let versions = [
        ("cadvisorRevision", ""),
        ("cadvisorVersion", machine.version.as_str()),
        ("dockerVersion", ""),
        ("kernelVersion", &machine.kernel),
        ("osVersion", &machine.os),
    ];
    text.sample(&[&versions], 1.0, None);
    let figures = rows! {
        "machine_cpu_cores", "Number of logical CPU cores.", machine.cpu_cores;
        "machine_cpu_physical_cores", "Number of physical CPU cores.", machine.physical_cores;
        "machine_cpu_sockets", "Number of CPU sockets.", machine.sockets;
        "machine_memory_bytes", "Amount of memory installed on the machine.", machine.memory;
    };
    for (name, help, value) in figures {
        text.family(gauge(name, help));
        if value > 0 {
            text.sample(&[&labels], value as f64, None);
        }
    }
    let help = "Amount of swap memory available on the machine.";
    text.family(gauge("machine_swap_bytes", help));
    text.sample(&[&labels], machine.swap as f64, None);
}

fn of_processor(all: &mut Vec<RowFamily>) {
    let times: Figures<CpuUsage, u64, 2> = rows! {
        "container_cpu_user_seconds_total",
            "Cumulative user cpu time consumed in seconds.", |cpu| cpu.user_ns;
        "container_cpu_system_seconds_total",
            "Cumulative system cpu time consumed in seconds.", |cpu| cpu.system_ns;
    };
    for (name, help, figure) in times {
        each(all, counter(name, help), move |row| {
            Some(seconds(figure(row.cgroup.cpu.as_ref()?)))
        });
    }
    let usage = counter(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed in seconds.",
    );
    samples(all, usage, |text, row| {
        if let Some(cpu) = &row.cgroup.cpu {
            let value = seconds(cpu.total_ns);
            let more = [("cpu", "total")];
            text.sample(&[&row.labels(), &more], value, Some(row.cgroup.at));
        }
    });
    let throttling: Figures<CpuUsage, f64, 3> = rows! {
        "container_cpu_cfs_periods_total",
            "Number of elapsed enforcement period intervals.", |cpu| cpu.periods as f64;
        "container_cpu_cfs_throttled_periods_total",
            "Number of throttled period intervals.", |cpu| cpu.throttled_periods as f64;
        "container_cpu_cfs_throttled_seconds_total",
            "Total time duration the container has been throttled.",
            |cpu| seconds(cpu.throttled_ns);
    };
    for (name, help, figure) in throttling {
        each(all, counter(name, help), move |row| {
            row.cgroup.cpu_limits.quota_us?;
            Some(figure(row.cgroup.cpu.as_ref()?))
        });
    }
    pressures(all);
}

fn pressures(all: &mut Vec<RowFamily>) {
    type Of = fn(&CgroupUsage) -> Option<Pressure>;
    let resources: [(_, _, Of); 3] = [
        ("cpu", "CPU", |cgroup| cgroup.cpu.as_ref()?.pressure),
        ("memory", "memory", |cgroup| {
            cgroup.memory.as_ref()?.pressure
        }),
        ("io", "IO", |cgroup| cgroup.io.as_ref()?.pressure),
    ];
    for (resource, shown, of) in resources {
        let family = |state: &str, what: &str| {
            counter(
                format!("container_pressure_{resource}_{state}_seconds_total"),
                format!("Total time duration {what} due to {shown} congestion."),
            )
        };
        let waiting = family("waiting", "tasks in the container have waited");
        each(all, waiting, move |row| {
            Some(seconds(of(&row.cgroup)?.some.total_ns))
        });
        let stalled = family("stalled", "no tasks in the container could make progress");
        each(all, stalled, move |row| {
            Some(seconds(of(&row.cgroup)?.full.total_ns))
        });
    }
}

/// Creates the family of OOM kills: the count of the cgroup, or of the exited container.
fn oom_events() -> RowFamily {
    let family = counter(
        "container_oom_events_total",
        "Count of out of memory events observed for the container",
    );
    let samples: Samples = Box::new(|text, row| {
        let memory = row.cgroup.memory.as_ref();
        if let Some(kills) = row.exited.or_else(|| memory?.oom_kills) {
            text.sample(&[&row.labels()], kills as f64, Some(row.cgroup.at));
        }
    });
    RowFamily { family, samples }
}

fn of_memory(all: &mut Vec<RowFamily>) {
    type Figure = fn(&MemoryUsage) -> Option<u64>;
    let figures: [(_, _, _, Figure); 11] = rows! {
        "container_memory_cache",
            "Number of bytes of page cache memory.", Gauge, |it| Some(it.cache);
        "container_memory_rss", "Size of RSS in bytes.", Gauge, |it| Some(it.rss);
        "container_memory_kernel_usage",
            "Size of kernel memory allocated in bytes.", Gauge, |it| it.kernel;
        "container_memory_mapped_file",
            "Size of memory mapped files in bytes.", Gauge, |it| Some(it.mapped_file);
        "container_memory_swap", "Container swap usage in bytes.", Gauge, |it| Some(it.swap);
        "container_memory_failcnt",
            "Number of memory usage hits limits", Counter, |it| it.failures;
        "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            Gauge, |it| Some(it.usage);
        "container_memory_max_usage_bytes",
            "Maximum memory usage recorded in bytes", Gauge, |it| Some(it.max_usage);
        "container_memory_working_set_bytes",
            "Current working set in bytes.", Gauge, |it| Some(it.working_set);
        "container_memory_total_active_file_bytes",
            "Current total active file in bytes.", Gauge, |it| Some(it.active_file);
        "container_memory_total_inactive_file_bytes",
            "Current total inactive file in bytes.", Gauge, |it| Some(it.inactive_file);
    };
    for (name, help, kind, figure) in figures {
        each(all, family(name, help, kind), move |row| {
            Some(figure(row.cgroup.memory.as_ref()?)? as f64)
        });
    }
    all.push(oom_events());
    let failures = counter(
        "container_memory_failures_total",
        "Cumulative count of memory allocation failures.",
    );
    samples(all, failures, |text, row| {
        let Some(memory) = &row.cgroup.memory else {
            return;
        };
        for scope in ["container", "hierarchy"] {
            let faults = [
                ("pgfault", memory.page_faults),
                ("pgmajfault", memory.major_page_faults),
            ];
            for (failure, count) in faults {
                let more = [("failure_type", failure), ("scope", scope)];
                let value = count as f64;
                text.sample(&[&row.labels(), &more], value, Some(row.cgroup.at));
            }
        }
    });
    let huge: Figures<HugePages, u64, 2> = rows! {
        "container_hugetlb_usage_bytes", "Current hugepage usage in bytes", |it| it.usage;
        "container_hugetlb_max_usage_bytes",
            "Maximum hugepage usage recorded in bytes", |it| it.max_usage;
    };
    for (name, help, figure) in huge {
        samples(all, gauge(name, help), move |text, row| {
            for pages in row.cgroup.memory.iter().flat_map(|it| &it.huge_pages) {
                let size = page_size_name(pages.page_size);
                let more = [("pagesize", size.as_str())];
                let value = figure(pages) as f64;
                text.sample(&[&row.labels(), &more], value, Some(row.cgroup.at));
            }
        });
    }
}

fn of_networks(all: &mut Vec<RowFamily>) {
    let figures: Figures<Traffic, u64, 4> = rows! {
        "bytes", "Cumulative count of bytes", |it| it.bytes;
        "packets", "Cumulative count of packets", |it| it.packets;
        "packets_dropped", "Cumulative count of packets dropped while", |it| it.dropped;
        "errors", "Cumulative count of errors encountered while", |it| it.errors;
    };
    type Side = fn(&InterfaceUsage) -> &Traffic;
    let directions: [(_, _, _, Side); 2] = [
        ("receive", "received", "receiving", |it| &it.received),
        ("transmit", "transmitted", "transmitting", |it| &it.sent),
    ];
    for (direction, done, doing, traffic) in directions {
        for (what, help, figure) in figures {
            let verb = if help.ends_with("while") { doing } else { done };
            let family = counter(
                format!("container_network_{direction}_{what}_total"),
                format!("{help} {verb}"),
            );
            samples(all, family, move |text, row| {
                for interface in row.network.iter().flat_map(|it| &it.interfaces) {
                    let more = [("interface", interface.name.as_str())];
                    let value = figure(traffic(interface)) as f64;
                    text.sample(&[&row.labels(), &more], value, Some(row.cgroup.at));
                }
            });
        }
    }
}

fn of_processes(all: &mut Vec<RowFamily>) {
    let figures: Figures<ProcessUsage, Option<u64>, 5> = rows! {
        "container_processes",
            "Number of processes running inside the container.", |it| Some(it.processes);
        "container_threads",
            "Number of threads running inside the container", |it| Some(it.threads);
        "container_threads_max",
            "Maximum number of threads allowed inside the container, infinity if value is zero",
            |it| Some(it.threads_max.unwrap_or(0));
        "container_file_descriptors",
            "Number of open file descriptors for the container.", |it| it.descriptors;
        "container_sockets", "Number of open sockets for the container.", |it| it.sockets;
    };
    for (name, help, figure) in figures {
        each(all, gauge(name, help), move |row| {
            Some(figure(row.cgroup.processes.as_ref()?)? as f64)
        });
    }
    let limits = gauge(
        "container_ulimits_soft",
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
    );
    samples(all, limits, |text, row| {
        let processes = row.cgroup.processes.as_ref();
        if let Some(limit) = processes.and_then(|it| it.open_files_max) {
            let more = [("ulimit", "max_open_files")];
            let value = limit as f64;
            text.sample(&[&row.labels(), &more], value, Some(row.cgroup.at));
        }
    });
    let seen = gauge(
        "container_last_seen",
        "Last time a container was seen by the exporter",
    );
    each(all, seen, |row| Some(row.cgroup.at.as_second() as f64));
}

fn of_specs(all: &mut Vec<RowFamily>) {
    type Figure = fn(&Row) -> Option<u64>;
    let figures: [(_, _, Figure); 7] = rows! {
        "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds.",
            |row| u64::try_from(row.started_at.as_second()).ok();
        "container_spec_cpu_period",
            "CPU period of the container.", |row| row.cgroup.cpu_limits.period_us;
        "container_spec_cpu_quota",
            "CPU quota of the container.", |row| row.cgroup.cpu_limits.quota_us;
        "container_spec_cpu_shares",
            "CPU share of the container.", |row| row.cgroup.cpu_limits.shares;
        // no memory limit is 0, as in cAdvisor
        "container_spec_memory_limit_bytes",
            "Memory limit for the container.",
            |row| Some(row.cgroup.memory.as_ref()?.limit.unwrap_or(0));
        "container_spec_memory_swap_limit_bytes",
            "Memory swap limit for the container.",
            |row| Some(row.cgroup.memory.as_ref()?.swap_limit.unwrap_or(0));
        "container_spec_memory_reservation_limit_bytes",
            "Memory reservation limit for the container.",
            |row| Some(row.cgroup.memory.as_ref()?.reservation.unwrap_or(0));
    };
    for (name, help, figure) in figures {
        samples(all, gauge(name, help), move |text, row| {
            if let Some(value) = figure(row) {
                text.sample(&[&row.labels()], value as f64, None);
            }
        });
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests;
