//! Families of file systems, cgroup I/O by device, and host disks.

use std::collections::BTreeMap;

use super::{Figures, RowFamily, samples};
use crate::exposition::Kind::{Counter, Gauge};
use crate::exposition::{counter, family, gauge};
use crate::usage::{DeviceIo, DiskUsage, FsUsage, NodeUsage};

/// Returns the disks of the host file systems. A disk that the kernel does not count (an overlay)
/// has zeros, for the upstream conformance test.
pub(super) fn of_node(node: &NodeUsage) -> BTreeMap<String, DiskUsage> {
    let systems = [&node.fs, &node.image_fs, &node.container_fs];
    let devices = systems.into_iter().flatten().map(|fs| {
        let device = fs.device.clone().unwrap_or_default();
        let disk = node.disks.get(&device).copied().unwrap_or_default();
        (device, disk)
    });
    devices.collect()
}

pub(super) fn of_file_systems(all: &mut Vec<RowFamily>) {
    let figures: Figures<FsUsage, Option<u64>, 4> = rows! {
        "container_fs_inodes_free", "Number of available Inodes", |it| it.inodes_free;
        "container_fs_inodes_total", "Number of Inodes", |it| it.inodes;
        "container_fs_limit_bytes",
            "Number of bytes that can be consumed by the container on this filesystem.",
            |it| it.capacity;
        "container_fs_usage_bytes",
            "Number of bytes that are consumed by the container on this filesystem.", |it| it.used;
    };
    for (name, help, figure) in figures {
        samples(all, gauge(name, help), move |text, row| {
            let Some(fs) = &row.fs else { return };
            if let Some(value) = figure(fs) {
                let device = [("device", fs.device.as_deref().unwrap_or(""))];
                text.sample(&[&row.labels(), &device], value as f64, Some(fs.at));
            }
        });
    }
}

/// Families of cgroup I/O by device. The disks of the host file systems have no bytes, as upstream.
pub(super) fn of_devices(all: &mut Vec<RowFamily>) {
    type Io = fn(&DeviceIo) -> u64;
    type Disk = fn(&DiskUsage) -> Option<u64>;
    let io: [(_, _, Io, Disk); 4] = rows! {
        "container_fs_reads_bytes_total",
            "Cumulative count of bytes read", |it| it.read_bytes, |_| None;
        "container_fs_reads_total",
            "Cumulative count of reads completed", |it| it.reads, |it| Some(it.reads);
        "container_fs_writes_bytes_total",
            "Cumulative count of bytes written", |it| it.written_bytes, |_| None;
        "container_fs_writes_total",
            "Cumulative count of writes completed", |it| it.writes, |it| Some(it.writes);
    };
    for (name, help, of_cgroup, of_disk) in io {
        samples(all, counter(name, help), move |text, row| {
            let devices = || row.cgroup.io.iter().flat_map(|io| &io.devices);
            let in_cgroup = devices().map(|it| (it.device.as_str(), of_cgroup(it)));
            let disks = row.disks.iter().map(|(name, disk)| (name.as_str(), disk));
            // a disk without partitions is in both, but a device has one sample
            let disks = disks.filter(|(name, _)| devices().all(|it| it.device != *name));
            let disks = disks.filter_map(|(name, disk)| Some((name, of_disk(disk)?)));
            for (device, value) in in_cgroup.chain(disks) {
                let more = [("device", device)];
                text.sample(&[&row.labels(), &more], value as f64, Some(row.cgroup.at));
            }
        });
    }
    let bytes = counter(
        "container_blkio_device_usage_total",
        "Blkio Device bytes usage",
    );
    samples(all, bytes, |text, row| {
        for device in row.cgroup.io.iter().flat_map(|io| &io.devices) {
            let (major, minor) = device.number;
            let (major, minor) = (major.to_string(), minor.to_string());
            for (operation, bytes) in [("Read", device.read_bytes), ("Write", device.written_bytes)]
            {
                let more = [
                    ("device", device.device.as_str()),
                    ("major", &major),
                    ("minor", &minor),
                    ("operation", operation),
                ];
                text.sample(&[&row.labels(), &more], bytes as f64, Some(row.cgroup.at));
            }
        }
    });
}

/// Families of host I/O on the disks of its file systems.
pub(super) fn of_disks(all: &mut Vec<RowFamily>) {
    type Figure = fn(&DiskUsage) -> f64;
    let figures: [(_, _, _, Figure); 9] = rows! {
        "container_fs_sector_reads_total",
            "Cumulative count of sector reads completed", Counter, |it| it.sectors_read as f64;
        "container_fs_reads_merged_total",
            "Cumulative count of reads merged", Counter, |it| it.reads_merged as f64;
        "container_fs_read_seconds_total",
            "Cumulative count of seconds spent reading", Counter, |it| seconds(it.read_ms);
        "container_fs_sector_writes_total",
            "Cumulative count of sector writes completed", Counter, |it| it.sectors_written as f64;
        "container_fs_writes_merged_total",
            "Cumulative count of writes merged", Counter, |it| it.writes_merged as f64;
        "container_fs_write_seconds_total",
            "Cumulative count of seconds spent writing", Counter, |it| seconds(it.write_ms);
        "container_fs_io_current",
            "Number of I/Os currently in progress", Gauge, |it| it.in_progress as f64;
        "container_fs_io_time_seconds_total",
            "Cumulative count of seconds spent doing I/Os", Counter, |it| seconds(it.io_ms);
        "container_fs_io_time_weighted_seconds_total",
            "Cumulative weighted I/O time in seconds", Counter, |it| seconds(it.weighted_io_ms);
    };
    for (name, help, kind, figure) in figures {
        samples(all, family(name, help, kind), move |text, row| {
            for (device, disk) in &row.disks {
                let more = [("device", device.as_str())];
                text.sample(&[&row.labels(), &more], figure(disk), Some(row.cgroup.at));
            }
        });
    }
}

/// cAdvisor divides these milliseconds as if they were nanoseconds; the unit in the name is
/// seconds.
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}
