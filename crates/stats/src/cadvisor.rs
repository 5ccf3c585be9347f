//! `/metrics/cadvisor`: a row for each cgroup, in cAdvisor's families and labels.
//!
//! Rows are the machine, its system containers, QoS classes, pods, sandboxes and containers. What a
//! row lacks is left out, never zero.

use windlass_types::Timestamp;

use crate::cgroup::page_size_name;
use crate::exposition::{Family, Kind, Text, counter, family, gauge};
use crate::usage::{
    CgroupUsage, CpuUsage, DeviceIo, FsUsage, HugePages, InterfaceUsage, MemoryUsage, NetworkUsage,
    NodeUsage, PodUsage, Pressure, ProcessUsage, Traffic,
};

/// Facts about the machine that do not change.
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
    /// The firmware's UUID of the machine.
    pub system_uuid: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the operating system.
    pub os: String,
    /// Version of the agent.
    pub version: String,
}

/// A table of families: name, meaning, and how the figure is got.
type Figures<T, V, const N: usize> = [(&'static str, &'static str, fn(&T) -> V); N];

/// One cgroup with what it belongs to.
struct Row<'a> {
    labels: [(&'static str, &'a str); 6],
    cgroup: &'a CgroupUsage,
    started_at: Timestamp,
    network: Option<&'a NetworkUsage>,
    fs: Option<&'a FsUsage>,
}

impl<'a> Row<'a> {
    fn of(cgroup: &'a CgroupUsage, started_at: Timestamp) -> Self {
        Self {
            labels: [
                ("container", ""),
                ("id", &cgroup.path),
                ("image", ""),
                ("name", ""),
                ("namespace", ""),
                ("pod", ""),
            ],
            cgroup,
            started_at,
            network: None,
            fs: None,
        }
    }

    fn label(mut self, name: &str, value: &'a str) -> Self {
        if let Some(label) = self.labels.iter_mut().find(|label| label.0 == name) {
            label.1 = value;
        }
        self
    }

    fn of_pod(self, pod: &'a PodUsage) -> Self {
        self.label("namespace", &pod.namespace)
            .label("pod", &pod.name)
    }
}

/// The text; without figures it tells the machine, and that they are lacking.
pub fn cadvisor_metrics(
    machine: &MachineFacts,
    measured: Option<(&NodeUsage, &[PodUsage])>,
) -> String {
    let rows = measured.map(|(node, pods)| rows(node, pods));
    let lacking = rows.is_none();
    let rows = rows.unwrap_or_default();
    // a row has some sixty lines of some 200 bytes
    let mut text = Text::with_capacity(4096 + rows.len() * 60 * 200);
    of_machine(&mut text, machine);
    of_processor(&mut text, &rows);
    of_memory(&mut text, &rows);
    of_file_systems(&mut text, &rows);
    of_networks(&mut text, &rows);
    of_processes(&mut text, &rows);
    of_specs(&mut text, &rows);
    text.family(gauge(
        "container_scrape_error",
        "1 if there was an error while getting container metrics, 0 otherwise",
    ));
    text.sample(&[], f64::from(u8::from(lacking)), None);
    text.finish()
}

fn rows<'a>(node: &'a NodeUsage, pods: &'a [PodUsage]) -> Vec<Row<'a>> {
    let mut rows = vec![Row {
        network: node.network.as_ref(),
        fs: node.fs.as_ref(),
        ..Row::of(&node.cgroup, node.started_at)
    }];
    for system in node.system.iter().chain(&node.classes) {
        // the machine's other processes have no cgroup of their own: they would be its second row
        if system.cgroup.path != node.cgroup.path {
            rows.push(Row::of(&system.cgroup, system.started_at));
        }
    }
    for pod in pods.iter().filter(|pod| pod.present) {
        if let Some(cgroup) = &pod.cgroup {
            rows.push(Row::of(cgroup, pod.started_at).of_pod(pod));
        }
        if let Some(sandbox) = &pod.sandbox
            && let Some(cgroup) = &sandbox.cgroup
        {
            let row = Row::of(cgroup, pod.started_at).of_pod(pod);
            rows.push(Row {
                network: pod.network.as_ref(),
                ..row.label("name", &sandbox.id)
            });
        }
        for container in &pod.containers {
            let Some(cgroup) = &container.cgroup else {
                continue;
            };
            let row = Row::of(cgroup, container.started_at)
                .of_pod(pod)
                .label("container", &container.name)
                .label("image", &container.image)
                .label("name", container.id.as_str());
            rows.push(Row {
                fs: container.rootfs.as_ref(),
                ..row
            });
        }
    }
    rows
}

/// Writes one family with at most one sample for each row.
fn each(
    text: &mut Text,
    rows: &[Row<'_>],
    family: Family,
    value: impl Fn(&Row<'_>) -> Option<f64>,
) {
    text.family(family);
    for row in rows {
        if let Some(value) = value(row) {
            text.sample(&[&row.labels], value, Some(row.cgroup.at));
        }
    }
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
    let figures = [
        (
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            machine.cpu_cores,
        ),
        (
            "machine_cpu_physical_cores",
            "Number of physical CPU cores.",
            machine.physical_cores,
        ),
        (
            "machine_cpu_sockets",
            "Number of CPU sockets.",
            machine.sockets,
        ),
        (
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            machine.memory,
        ),
    ];
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

fn of_processor(text: &mut Text, rows: &[Row<'_>]) {
    let times: Figures<CpuUsage, u64, 2> = [
        (
            "container_cpu_user_seconds_total",
            "Cumulative user cpu time consumed in seconds.",
            |cpu| cpu.user_ns,
        ),
        (
            "container_cpu_system_seconds_total",
            "Cumulative system cpu time consumed in seconds.",
            |cpu| cpu.system_ns,
        ),
    ];
    for (name, help, figure) in times {
        each(text, rows, counter(name, help), |row| {
            Some(seconds(figure(row.cgroup.cpu.as_ref()?)))
        });
    }
    text.family(counter(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed in seconds.",
    ));
    for row in rows {
        if let Some(cpu) = &row.cgroup.cpu {
            let all = [("cpu", "total")];
            text.sample(
                &[&row.labels, &all],
                seconds(cpu.total_ns),
                Some(row.cgroup.at),
            );
        }
    }
    let throttling: Figures<CpuUsage, f64, 3> = [
        (
            "container_cpu_cfs_periods_total",
            "Number of elapsed enforcement period intervals.",
            |cpu| cpu.periods as f64,
        ),
        (
            "container_cpu_cfs_throttled_periods_total",
            "Number of throttled period intervals.",
            |cpu| cpu.throttled_periods as f64,
        ),
        (
            "container_cpu_cfs_throttled_seconds_total",
            "Total time duration the container has been throttled.",
            |cpu| seconds(cpu.throttled_ns),
        ),
    ];
    for (name, help, figure) in throttling {
        each(text, rows, counter(name, help), |row| {
            row.cgroup.cpu_limits.quota_us?;
            Some(figure(row.cgroup.cpu.as_ref()?))
        });
    }
    pressures(text, rows);
}

fn pressures(text: &mut Text, rows: &[Row<'_>]) {
    type Of = fn(&CgroupUsage) -> Option<Pressure>;
    let resources: [([_; 4], Of); 3] = [
        (
            [
                "container_pressure_cpu_waiting_seconds_total",
                "Total time duration tasks in the container have waited due to CPU congestion.",
                "container_pressure_cpu_stalled_seconds_total",
                "Total time duration no tasks in the container could make progress due to CPU congestion.",
            ],
            |cgroup| cgroup.cpu.as_ref()?.pressure,
        ),
        (
            [
                "container_pressure_memory_waiting_seconds_total",
                "Total time duration tasks in the container have waited due to memory congestion.",
                "container_pressure_memory_stalled_seconds_total",
                "Total time duration no tasks in the container could make progress due to memory congestion.",
            ],
            |cgroup| cgroup.memory.as_ref()?.pressure,
        ),
        (
            [
                "container_pressure_io_waiting_seconds_total",
                "Total time duration tasks in the container have waited due to IO congestion.",
                "container_pressure_io_stalled_seconds_total",
                "Total time duration no tasks in the container could make progress due to IO congestion.",
            ],
            |cgroup| cgroup.io.as_ref()?.pressure,
        ),
    ];
    for ([waiting, waiting_help, stalled, stalled_help], of) in resources {
        each(text, rows, counter(waiting, waiting_help), |row| {
            Some(seconds(of(row.cgroup)?.some.total_ns))
        });
        each(text, rows, counter(stalled, stalled_help), |row| {
            Some(seconds(of(row.cgroup)?.full.total_ns))
        });
    }
}

/// A figure of memory: name, help, kind, value.
type MemoryFigure = (
    &'static str,
    &'static str,
    Kind,
    fn(&MemoryUsage) -> Option<u64>,
);

const MEMORY: [MemoryFigure; 12] = [
    (
        "container_memory_cache",
        "Number of bytes of page cache memory.",
        Kind::Gauge,
        |it| Some(it.cache),
    ),
    (
        "container_memory_rss",
        "Size of RSS in bytes.",
        Kind::Gauge,
        |it| Some(it.rss),
    ),
    (
        "container_memory_kernel_usage",
        "Size of kernel memory allocated in bytes.",
        Kind::Gauge,
        |it| it.kernel,
    ),
    (
        "container_memory_mapped_file",
        "Size of memory mapped files in bytes.",
        Kind::Gauge,
        |it| Some(it.mapped_file),
    ),
    (
        "container_memory_swap",
        "Container swap usage in bytes.",
        Kind::Gauge,
        |it| it.swap,
    ),
    (
        "container_memory_failcnt",
        "Number of memory usage hits limits",
        Kind::Counter,
        |it| it.failures,
    ),
    (
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        Kind::Gauge,
        |it| Some(it.usage),
    ),
    (
        "container_memory_max_usage_bytes",
        "Maximum memory usage recorded in bytes",
        Kind::Gauge,
        |it| it.max_usage,
    ),
    (
        "container_memory_working_set_bytes",
        "Current working set in bytes.",
        Kind::Gauge,
        |it| Some(it.working_set),
    ),
    (
        "container_memory_total_active_file_bytes",
        "Current total active file in bytes.",
        Kind::Gauge,
        |it| Some(it.active_file),
    ),
    (
        "container_memory_total_inactive_file_bytes",
        "Current total inactive file in bytes.",
        Kind::Gauge,
        |it| Some(it.inactive_file),
    ),
    (
        "container_oom_events_total",
        "Count of out of memory events observed for the container",
        Kind::Counter,
        |it| it.oom_kills,
    ),
];

fn of_memory(text: &mut Text, rows: &[Row<'_>]) {
    for (name, help, kind, figure) in MEMORY {
        each(text, rows, family(name, help, kind), |row| {
            Some(figure(row.cgroup.memory.as_ref()?)? as f64)
        });
    }
    text.family(counter(
        "container_memory_failures_total",
        "Cumulative count of memory allocation failures.",
    ));
    for row in rows {
        let Some(memory) = &row.cgroup.memory else {
            continue;
        };
        for scope in ["container", "hierarchy"] {
            let faults = [
                ("pgfault", memory.page_faults),
                ("pgmajfault", memory.major_page_faults),
            ];
            for (failure, count) in faults {
                let more = [("failure_type", failure), ("scope", scope)];
                text.sample(&[&row.labels, &more], count as f64, Some(row.cgroup.at));
            }
        }
    }
    let huge: Figures<HugePages, u64, 2> = [
        (
            "container_hugetlb_usage_bytes",
            "Current hugepage usage in bytes",
            |it| it.usage,
        ),
        (
            "container_hugetlb_max_usage_bytes",
            "Maximum hugepage usage recorded in bytes",
            |it| it.max_usage,
        ),
    ];
    for (name, help, figure) in huge {
        text.family(gauge(name, help));
        for row in rows {
            for pages in row.cgroup.memory.iter().flat_map(|it| &it.huge_pages) {
                let size = page_size_name(pages.page_size);
                let more = [("pagesize", size.as_str())];
                text.sample(
                    &[&row.labels, &more],
                    figure(pages) as f64,
                    Some(row.cgroup.at),
                );
            }
        }
    }
}

fn of_file_systems(text: &mut Text, rows: &[Row<'_>]) {
    let figures: Figures<FsUsage, Option<u64>, 4> = [
        (
            "container_fs_inodes_free",
            "Number of available Inodes",
            |it| it.inodes_free,
        ),
        ("container_fs_inodes_total", "Number of Inodes", |it| {
            it.inodes
        }),
        (
            "container_fs_limit_bytes",
            "Number of bytes that can be consumed by the container on this filesystem.",
            |it| it.capacity,
        ),
        (
            "container_fs_usage_bytes",
            "Number of bytes that are consumed by the container on this filesystem.",
            |it| it.used,
        ),
    ];
    for (name, help, figure) in figures {
        text.family(gauge(name, help));
        for row in rows {
            let Some(fs) = row.fs else { continue };
            if let Some(value) = figure(fs) {
                let device = [("device", fs.device.as_deref().unwrap_or(""))];
                text.sample(&[&row.labels, &device], value as f64, Some(fs.at));
            }
        }
    }
    let io: Figures<DeviceIo, u64, 4> = [
        (
            "container_fs_reads_bytes_total",
            "Cumulative count of bytes read",
            |it| it.read_bytes,
        ),
        (
            "container_fs_reads_total",
            "Cumulative count of reads completed",
            |it| it.reads,
        ),
        (
            "container_fs_writes_bytes_total",
            "Cumulative count of bytes written",
            |it| it.written_bytes,
        ),
        (
            "container_fs_writes_total",
            "Cumulative count of writes completed",
            |it| it.writes,
        ),
    ];
    for (name, help, figure) in io {
        text.family(counter(name, help));
        for row in rows {
            for device in row.cgroup.io.iter().flat_map(|io| &io.devices) {
                let more = [("device", device.device.as_str())];
                text.sample(
                    &[&row.labels, &more],
                    figure(device) as f64,
                    Some(row.cgroup.at),
                );
            }
        }
    }
}

fn of_networks(text: &mut Text, rows: &[Row<'_>]) {
    let figures: Figures<Traffic, u64, 4> = [
        ("bytes", "Cumulative count of bytes", |it| it.bytes),
        ("packets", "Cumulative count of packets", |it| it.packets),
        (
            "packets_dropped",
            "Cumulative count of packets dropped while",
            |it| it.dropped,
        ),
        (
            "errors",
            "Cumulative count of errors encountered while",
            |it| it.errors,
        ),
    ];
    type Side = fn(&InterfaceUsage) -> &Traffic;
    let directions: [(_, _, _, Side); 2] = [
        ("receive", "received", "receiving", |it| &it.received),
        ("transmit", "transmitted", "transmitting", |it| &it.sent),
    ];
    for (direction, done, doing, traffic) in directions {
        for (what, help, figure) in figures {
            let verb = if help.ends_with("while") { doing } else { done };
            text.family(counter(
                format!("container_network_{direction}_{what}_total"),
                format!("{help} {verb}"),
            ));
            for row in rows {
                for interface in row.network.iter().flat_map(|it| &it.interfaces) {
                    let more = [("interface", interface.name.as_str())];
                    let value = figure(traffic(interface)) as f64;
                    text.sample(&[&row.labels, &more], value, Some(row.cgroup.at));
                }
            }
        }
    }
}

fn of_processes(text: &mut Text, rows: &[Row<'_>]) {
    let figures: Figures<ProcessUsage, Option<u64>, 5> = [
        (
            "container_processes",
            "Number of processes running inside the container.",
            |it| Some(it.processes),
        ),
        (
            "container_threads",
            "Number of threads running inside the container",
            |it| Some(it.threads),
        ),
        (
            "container_threads_max",
            "Maximum number of threads allowed inside the container, infinity if value is zero",
            |it| Some(it.threads_max.unwrap_or(0)),
        ),
        (
            "container_file_descriptors",
            "Number of open file descriptors for the container.",
            |it| it.descriptors,
        ),
        (
            "container_sockets",
            "Number of open sockets for the container.",
            |it| it.sockets,
        ),
    ];
    for (name, help, figure) in figures {
        each(text, rows, gauge(name, help), |row| {
            Some(figure(row.cgroup.processes.as_ref()?)? as f64)
        });
    }
    text.family(gauge(
        "container_ulimits_soft",
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
    ));
    for row in rows {
        let processes = row.cgroup.processes.as_ref();
        if let Some(limit) = processes.and_then(|it| it.open_files_max) {
            let more = [("ulimit", "max_open_files")];
            text.sample(&[&row.labels, &more], limit as f64, Some(row.cgroup.at));
        }
    }
    let seen = gauge(
        "container_last_seen",
        "Last time a container was seen by the exporter",
    );
    each(text, rows, seen, |row| {
        Some(row.cgroup.at.as_second() as f64)
    });
}

fn of_specs(text: &mut Text, rows: &[Row<'_>]) {
    let untimed = |text: &mut Text, name, help, value: &dyn Fn(&Row<'_>) -> Option<u64>| {
        text.family(gauge(name, help));
        for row in rows {
            if let Some(value) = value(row) {
                text.sample(&[&row.labels], value as f64, None);
            }
        }
    };
    let memory = |row: &Row<'_>, figure: fn(&MemoryUsage) -> Option<u64>| {
        // no limit is 0 here, as cAdvisor says it
        Some(figure(row.cgroup.memory.as_ref()?).unwrap_or(0))
    };
    untimed(
        text,
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds.",
        &|row| u64::try_from(row.started_at.as_second()).ok(),
    );
    untimed(
        text,
        "container_spec_cpu_period",
        "CPU period of the container.",
        &|row| row.cgroup.cpu_limits.period_us,
    );
    untimed(
        text,
        "container_spec_cpu_quota",
        "CPU quota of the container.",
        &|row| row.cgroup.cpu_limits.quota_us,
    );
    untimed(
        text,
        "container_spec_cpu_shares",
        "CPU share of the container.",
        &|row| row.cgroup.cpu_limits.shares,
    );
    untimed(
        text,
        "container_spec_memory_limit_bytes",
        "Memory limit for the container.",
        &|row| memory(row, |it| it.limit),
    );
    untimed(
        text,
        "container_spec_memory_swap_limit_bytes",
        "Memory swap limit for the container.",
        &|row| memory(row, |it| it.swap_limit),
    );
    untimed(
        text,
        "container_spec_memory_reservation_limit_bytes",
        "Memory reservation limit for the container.",
        &|row| memory(row, |it| it.reservation),
    );
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests;
