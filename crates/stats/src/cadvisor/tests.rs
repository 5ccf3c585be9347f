//! The rows and their labels, line by line, and what `/metrics/resource` makes of the same.

use super::{MachineFacts, PART};
use crate::cgroup::page_size_name;
use crate::resource::{ResourceUsage, resource_metrics};
use crate::test_figures::{node, pod};
use crate::usage::{NodeUsage, OomKilledContainer, PodUsage};

fn machine() -> MachineFacts {
    MachineFacts {
        cpu_cores: 2,
        memory: 1 << 20,
        boot_id: "boot".into(),
        kernel: "6.1".into(),
        os: "Debian".into(),
        version: "0.1.0".into(),
        ..MachineFacts::default()
    }
}

fn cadvisor_metrics(machine: &MachineFacts, measured: Option<(&NodeUsage, &[PodUsage])>) -> String {
    let measured = measured.map(|(node, pods)| (node.clone(), pods.to_vec()));
    super::cadvisor_metrics(machine, measured).collect()
}

/// Every line is a comment, or a name with labels, a number and perhaps a time; each family is
/// announced once and its samples stand together.
fn check_format(text: &str) {
    let mut announced = std::collections::BTreeSet::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("kind");
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            assert!(announced.insert(name), "{name} twice");
            family = name;
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().expect("name");
            assert_eq!(name, family, "{line}");
            let figures = line.rsplit('}').next().expect("figures");
            let mut figures = figures.trim_start_matches(name).split_whitespace();
            let value: f64 = figures.next().expect("value").parse().expect("number");
            assert!(value.is_finite());
            assert!(figures.all(|time| time.parse::<i64>().is_ok()), "{line}");
        }
    }
}

#[test]
fn row_has_cadvisor_labels() {
    let text = cadvisor_metrics(&machine(), Some((&node(), &[pod()])));
    check_format(&text);
    let rows = [
        ("", "/", "", "", "", "", "100000"),
        ("", "/kubepods", "", "", "", "", "50000"),
        ("", "/kubepods/podu1", "", "", "default", "web", "30000"),
        (
            "",
            "/kubepods/podu1/sb",
            "pause",
            "sb",
            "default",
            "web",
            "1000",
        ),
        (
            "app",
            "/kubepods/podu1/c1",
            "busybox",
            "c1",
            "default",
            "web",
            "20000",
        ),
    ];
    for (container, id, image, name, namespace, pod, value) in rows {
        let line = format!(
            "container_memory_working_set_bytes{{container=\"{container}\",id=\"{id}\",\
             image=\"{image}\",name=\"{name}\",namespace=\"{namespace}\",pod=\"{pod}\"}} \
             {value} 1000000\n"
        );
        assert!(text.contains(&line), "{line}in\n{text}");
    }
    for part in [
        "container_cpu_usage_seconds_total{container=\"app\",id=\"/kubepods/podu1/c1\",\
         image=\"busybox\",name=\"c1\",namespace=\"default\",pod=\"web\",cpu=\"total\"} 20 1000000\n",
        // the network is the sandbox', the machine's the root's
        "container_network_transmit_bytes_total{container=\"\",id=\"/kubepods/podu1/sb\",image=\"pause\",\
         name=\"sb\",namespace=\"default\",pod=\"web\",interface=\"eth0\"} 18 1000000\n",
        "pagesize=\"2MB\"} 2097152 1000000\n",
        "container_pressure_cpu_waiting_seconds_total{container=\"app\"",
        "container_fs_reads_bytes_total{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",\
         pod=\"\",device=\"/dev/vda\"} 51200 1000000\n",
        "machine_cpu_cores{boot_id=\"boot\",machine_id=\"\",system_uuid=\"\"} 2\n",
        "cadvisor_version_info{cadvisorRevision=\"\",cadvisorVersion=\"0.1.0\",dockerVersion=\"\",\
         kernelVersion=\"6.1\",osVersion=\"Debian\"} 1\n",
    ] {
        assert!(text.contains(part), "{part}in\n{text}");
    }
    assert!(!text.contains("machine_cpu_sockets"), "not known");
    assert!(text.ends_with("\ncontainer_scrape_error 0\n"), "{text}");
    let networks = text
        .lines()
        .filter(|it| it.starts_with("container_network_receive_bytes_total{"));
    assert_eq!(networks.count(), 2);
}

/// Families expected by `container_metrics_test.go` of the upstream NodeConformance: of a
/// container, and what may be of any row.
const CONFORMANCE: (&[&str], &[&str]) = (
    &[
        "container_blkio_device_usage_total",
        "container_cpu_system_seconds_total",
        "container_cpu_usage_seconds_total",
        "container_cpu_user_seconds_total",
        "container_file_descriptors",
        "container_fs_reads_bytes_total",
        "container_fs_reads_total",
        "container_fs_usage_bytes",
        "container_fs_writes_bytes_total",
        "container_fs_writes_total",
        "container_last_seen",
        "container_memory_cache",
        "container_memory_failcnt",
        "container_memory_failures_total",
        "container_memory_mapped_file",
        "container_memory_max_usage_bytes",
        "container_memory_rss",
        "container_memory_swap",
        "container_memory_usage_bytes",
        "container_memory_working_set_bytes",
        "container_oom_events_total",
        "container_processes",
        "container_sockets",
        "container_spec_cpu_period",
        "container_spec_cpu_shares",
        "container_spec_memory_limit_bytes",
        "container_spec_memory_reservation_limit_bytes",
        "container_spec_memory_swap_limit_bytes",
        "container_start_time_seconds",
        "container_threads",
        "container_threads_max",
        "container_ulimits_soft",
    ],
    &[
        "container_fs_inodes_free",
        "container_fs_inodes_total",
        "container_fs_io_current",
        "container_fs_io_time_seconds_total",
        "container_fs_io_time_weighted_seconds_total",
        "container_fs_limit_bytes",
        "container_fs_read_seconds_total",
        "container_fs_reads_merged_total",
        "container_fs_sector_reads_total",
        "container_fs_sector_writes_total",
        "container_fs_write_seconds_total",
        "container_fs_writes_merged_total",
        "container_network_receive_bytes_total",
        "container_network_receive_errors_total",
        "container_network_receive_packets_dropped_total",
        "container_network_receive_packets_total",
        "container_network_transmit_bytes_total",
        "container_network_transmit_errors_total",
        "container_network_transmit_packets_dropped_total",
        "container_network_transmit_packets_total",
    ],
);

#[test]
fn families_of_upstream_conformance_test_are_present() {
    let mut node = node();
    let check = |node: &NodeUsage| {
        let text = cadvisor_metrics(&machine(), Some((node, &[pod()])));
        check_format(&text);
        for name in CONFORMANCE.0 {
            let of_container = format!("\n{name}{{container=\"app\"");
            assert!(text.contains(&of_container), "{name} in\n{text}");
        }
        for name in CONFORMANCE.1 {
            assert!(text.contains(&format!("\n{name}{{")), "{name} in\n{text}");
        }
        // at most 100 inodes and 10 000 free ones, if any
        for name in ["container_fs_inodes_total", "container_fs_inodes_free"] {
            let of_container = format!("{name}{{container=\"app\"");
            assert!(!text.contains(&of_container), "{name} in\n{text}");
        }
    };
    check(&node);
    // on an overlay, say in a container
    if let Some(fs) = &mut node.fs {
        fs.device = None;
    }
    node.image_fs = None;
    check(&node);
}

#[test]
fn host_disks_and_devices_have_samples() {
    let text = cadvisor_metrics(&machine(), Some((&node(), &[pod()])));
    let root = "container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"";
    for (name, value) in [
        ("reads_merged_total", "113000"),
        ("sector_reads_total", "128600000"),
        ("read_seconds_total", "1620"),
        ("writes_merged_total", "3138000"),
        ("sector_writes_total", "1083366000"),
        ("write_seconds_total", "11234"),
        ("io_current", "2"),
        ("io_time_seconds_total", "1107"),
        ("io_time_weighted_seconds_total", "13598"),
    ] {
        let line =
            format!("\ncontainer_fs_{name}{{{root},device=\"/dev/vda1\"}} {value} 1000000\n");
        assert!(text.contains(&line), "{line}in\n{text}");
        let samples = text.matches(&format!("\ncontainer_fs_{name}{{")).count();
        assert_eq!(samples, 1, "{name}: of file systems' devices, each once");
    }
    for line in [
        "pod=\"web\",device=\"/dev/vda\",major=\"254\",minor=\"0\",operation=\"Read\"} 10240 1000000\n",
        "pod=\"web\",device=\"/dev/vda\",major=\"254\",minor=\"0\",operation=\"Write\"} 5120 1000000\n",
    ] {
        assert!(text.contains(line), "{line}in\n{text}");
    }
}

#[test]
fn root_has_reads_and_writes_of_host_disks() {
    let mut node = node();
    let root = "container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"";
    let samples = |node: &NodeUsage, name: &str| {
        let text = cadvisor_metrics(&machine(), Some((node, &[])));
        let head = format!("container_fs_{name}_total{{{root},device=");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&head));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let of_disk = |name: &str, expected: &str| {
        let found = samples(&node, name);
        assert_eq!(found, ["\"/dev/vda\"} 0 1000000", expected], "{name}");
    };
    of_disk("reads", "\"/dev/vda1\"} 881000 1000000");
    of_disk("writes", "\"/dev/vda1\"} 4140000 1000000");
    // bytes are of cgroups only
    assert_eq!(samples(&node, "reads_bytes").len(), 1);
    assert_eq!(samples(&node, "writes_bytes").len(), 1);
    // a device that the cgroup counts has one sample
    for fs in [&mut node.fs, &mut node.image_fs].into_iter().flatten() {
        fs.device = Some("/dev/vda".into());
    }
    assert_eq!(samples(&node, "reads"), ["\"/dev/vda\"} 0 1000000"]);
}

#[test]
fn absent_values_are_omitted() {
    let mut pod = pod();
    pod.containers[0].cgroup = None;
    pod.sandbox = None;
    if let Some(cgroup) = &mut pod.cgroup {
        cgroup.memory = None;
        cgroup.cpu_limits.quota_us = None;
    }
    let text = cadvisor_metrics(&machine(), Some((&node(), &[pod])));
    check_format(&text);
    assert!(!text.contains("container=\"app\""), "{text}");
    let of_pod = |name: &str| {
        let mut lines = text.lines();
        lines.any(|it| it.starts_with(name) && it.contains("pod=\"web\""))
    };
    assert!(of_pod("container_cpu_usage_seconds_total{"));
    assert!(!of_pod("container_memory_rss{"));
    assert!(!of_pod("container_cpu_cfs_periods_total{"), "no quota");
}

#[test]
fn full_node_text_has_each_row_once_in_parts() {
    let pods: Vec<_> = (0..250)
        .map(|at| {
            let mut pod = pod();
            pod.uid = format!("u{at}").as_str().into();
            pod.name = format!("web-{at}");
            pod
        })
        .collect();
    let parts: Vec<_> = super::cadvisor_metrics(&machine(), Some((node(), pods))).collect();
    assert!(parts.len() > 20, "{} parts", parts.len());
    assert!(parts.iter().all(|part| part.capacity() <= PART));
    let text = parts.concat();
    check_format(&text);
    for at in 0..250 {
        let pod = format!("pod=\"web-{at}\"");
        for (family, rows) in [("container_memory_rss{", 3), ("container_last_seen{", 3)] {
            let lines = text.lines();
            let of_pod = lines.filter(|it| it.starts_with(family) && it.contains(&pod));
            assert_eq!(of_pod.count(), rows, "{family} {pod}");
        }
    }
}

#[test]
fn exited_container_has_oom_kills_and_nothing_else() {
    let mut pod = pod();
    let at = pod.started_at;
    pod.oom_killed.push(OomKilledContainer {
        name: "app".into(),
        id: "c0".into(),
        image: "busybox".into(),
        kills: windlass_types::OomKills {
            cgroup: "/kubepods/podu1/c0".into(),
            count: 3,
            last: at,
        },
        at,
    });
    let text = cadvisor_metrics(&machine(), Some((&node(), &[pod])));
    check_format(&text);
    let lines: Vec<&str> = text.lines().filter(|it| it.contains("/c0\"")).collect();
    let expected = "container_oom_events_total{container=\"app\",id=\"/kubepods/podu1/c0\",\
                    image=\"busybox\",name=\"c0\",namespace=\"default\",pod=\"web\"} 3 20000";
    assert_eq!(lines, [expected]);
}

fn resource(pods: &[PodUsage]) -> String {
    let usage = ResourceUsage::of(&node(), pods.to_vec());
    resource_metrics(Some(usage)).collect()
}

#[test]
fn current_pod_of_same_name_has_series() {
    let mut old = pod();
    (old.uid, old.present) = ("u0".into(), false);
    let pods = [old, pod()];
    assert_eq!(resource(&pods), resource(&pods[1..]));
    let text = |pods: &[PodUsage]| cadvisor_metrics(&machine(), Some((&node(), pods)));
    assert_eq!(text(&pods), text(&pods[1..]));
}

#[test]
fn resource_metrics_match_upstream_with_times() {
    let text = resource(&[pod()]);
    check_format(&text);
    for line in [
        "container_cpu_usage_seconds_total{container=\"app\",namespace=\"default\",pod=\"web\"} 20 1000000\n",
        "container_memory_working_set_bytes{container=\"app\",namespace=\"default\",pod=\"web\"} 20000 1000000\n",
        "container_start_time_seconds{container=\"app\",namespace=\"default\",pod=\"web\"} 21\n",
        "container_swap_limit_bytes{container=\"app\",namespace=\"default\",pod=\"web\"} 200 1000000\n",
        "container_swap_usage_bytes{container=\"app\",namespace=\"default\",pod=\"web\"} 20 1000000\n",
        "node_cpu_usage_seconds_total 100 1000000\n",
        "node_memory_working_set_bytes 100000 1000000\n",
        "node_swap_usage_bytes 100 1000000\n",
        "pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"web\"} 30 1000000\n",
        "pod_memory_working_set_bytes{namespace=\"default\",pod=\"web\"} 30000 1000000\n",
        "pod_swap_usage_bytes{namespace=\"default\",pod=\"web\"} 30 1000000\n",
        "# TYPE resource_scrape_error gauge\nresource_scrape_error 0\n",
        "scrape_error 0\n",
    ] {
        assert!(text.contains(line), "{line}in\n{text}");
    }
}

#[test]
fn scrape_without_stats_reports_error() {
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    let error = |name: &str, level: &str| {
        format!("# HELP {name} {level}{help}\n# TYPE {name} gauge\n{name} 1\n")
    };
    let both = error("resource_scrape_error", "[STABLE] ")
        + &error("scrape_error", "[ALPHA] (Deprecated since 1.29.0) ");
    assert_eq!(resource_metrics(None).collect::<String>(), both);
    let text = cadvisor_metrics(&machine(), None);
    assert!(text.contains("\nmachine_cpu_cores{"), "{text}");
    assert!(
        text.ends_with(&error("container_scrape_error", "")),
        "{text}"
    );
}

#[test]
fn page_sizes_are_formatted_as_in_kernel() {
    let sizes = [2 << 20, 1 << 30, 64 << 10].map(page_size_name);
    assert_eq!(sizes, ["2MB", "1GB", "64KB"]);
}
