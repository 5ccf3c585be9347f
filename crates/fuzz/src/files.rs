//! Files of the administrator, the container runtime and the kernel.

use std::str;
use std::time::Duration;

use windlass_config::gates::FeatureGates;
use windlass_config::kubelet::KubeletConfiguration;
use windlass_config::validate::validate;
use windlass_credentials::credentials::{DockerConfigFormat, Keyring};
use windlass_manifests::image_name::ImageName;
use windlass_manifests::manifest::Origin;
use windlass_manifests::{static_pod, yaml};
use windlass_oom_watcher::{OomDetector, container_cgroup, records};
use windlass_pod_inputs::resources::QosClass;
use windlass_pod_lifecycle::cri_log;
use windlass_resource_managers::devices::{Checkpoint, Devices};
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_runtime_config::dns;
use windlass_stats::parse;
use windlass_types::cri::CgroupDriver;
use windlass_types::{PodExt, PodUid};

/// A manifest: an accepted pod has a UID and a name, and is accepted again.
pub(crate) fn manifest(data: &[u8]) {
    let origin = Origin::File("/manifests/a.yaml".to_owned());
    let Ok(loaded) = static_pod::load(data, &origin, "node") else {
        return;
    };
    for pod in &loaded.pods {
        assert!(!pod.uid().as_str().is_empty() && !pod.name().is_empty());
    }
    let again = static_pod::load(data, &origin, "node");
    assert_eq!(again.ok(), Some(loaded));
}

/// The checkpoint of devices: what is accepted is written the same, also after a restart.
pub(crate) fn device_checkpoint(data: &[u8]) {
    let Some(checkpoint) = str::from_utf8(data).ok().map(Checkpoint::parse) else {
        return;
    };
    let Ok(checkpoint) = checkpoint else { return };
    assert_eq!(
        Checkpoint::parse(&checkpoint.to_text()),
        Ok(checkpoint.clone())
    );
    let (devices, _) = Devices::restore(checkpoint, Duration::ZERO);
    let text = devices.checkpoint().to_text();
    assert_eq!(Checkpoint::parse(&text), Ok(devices.checkpoint()));
}

/// One file of a KubeletConfiguration, with validation.
pub(crate) fn configuration(data: &[u8]) {
    let Ok((config, _)) = yaml::from_slice::<KubeletConfiguration>(data) else {
        return;
    };
    if let Ok(gates) = FeatureGates::new(&config.feature_gates) {
        for fault in validate(&config, &gates, &|_| String::new()) {
            assert!(!fault.to_string().is_empty());
        }
    }
}

/// Records of the kernel log; a victim is in the cgroup whose limit was reached, and processes
/// report no kills.
pub(crate) fn kernel_log(data: &[u8]) {
    let mut detector = OomDetector::default();
    for record in records(data) {
        let Some(kill) = detector.push(&record) else {
            continue;
        };
        assert!(record.is_of_kernel());
        assert!(!kill.to_string().is_empty());
        if let (Some(cgroup), Some(limit)) = (&kill.cgroup, &kill.limit) {
            assert!(cgroup.starts_with(limit.trim_end_matches('/')), "{kill}");
        }
        if let Some(cgroup) = &kill.cgroup {
            let container = container_cgroup(cgroup);
            assert!(cgroup.starts_with(container), "{cgroup}");
            assert_eq!(container_cgroup(container), container);
        }
    }
}

/// A line of a container log; the content is unchanged.
pub(crate) fn log_line(data: &[u8]) {
    let Ok(line) = cri_log::split_line(data) else {
        return;
    };
    let text = data.strip_suffix(b"\n").unwrap_or(data);
    assert!(text.ends_with(line.content));
    if let (Ok(time), Ok(fixed)) = (line.time(), line.fixed_time()) {
        let same = cri_log::format_time(time);
        assert_eq!(same.as_bytes(), fixed, "{:?}", line.time);
    }
    let _ = cri_log::parse_line(data);
}

/// An image name; its normalized form names the same image.
pub(crate) fn image_name(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data)
        && let Ok(name) = ImageName::parse(text)
    {
        assert_eq!(ImageName::parse(&name.reference), Ok(name));
    }
}

/// Registry credentials in both formats, and `resolv.conf`.
pub(crate) fn credentials(data: &[u8]) {
    for format in [
        DockerConfigFormat::ConfigJson,
        DockerConfigFormat::Dockercfg,
    ] {
        let read = Keyring::from_file(format, data, "file");
        let _ = read.keyring.lookup("registry.example/a/b:1");
    }
    if let Ok(text) = str::from_utf8(data) {
        let _ = dns::parse_resolv_conf(text);
    }
}

/// A cgroup name; that of a pod maps back to the pod.
pub(crate) fn cgroup_name(data: &[u8]) {
    let Ok(name) = str::from_utf8(data) else {
        return;
    };
    let classes = [
        QosClass::Guaranteed,
        QosClass::Burstable,
        QosClass::BestEffort,
    ];
    let is_uid = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
        let layout = CgroupLayout::new(driver, "/a-b/c");
        for class in classes {
            let _ = layout.pod_of(class, name);
            if !name.is_empty() && name.bytes().all(is_uid) {
                let uid = PodUid::from(name);
                let path = layout.pod(class, &uid);
                let directory = path.rsplit('/').next().unwrap_or_default();
                assert_eq!(layout.pod_of(class, directory), Some(uid));
            }
        }
    }
}

/// Kernel files.
pub(crate) fn statistics(data: &[u8]) {
    let _ = parse::parse_number(data);
    let _ = parse::parse_limit(data);
    let _ = parse::parse_keyed(data, "oom_kill");
    let _ = parse::parse_memory_stat_v1(data);
    let _ = parse::parse_memory_stat_v2(data);
    let _ = parse::parse_cpu_stat(data);
    let _ = parse::parse_cpuacct_stat(data);
    let _ = parse::parse_cpu_max(data);
    let _ = parse::parse_pressure(data);
    let _ = parse::parse_io_stat(data);
    let _ = parse::parse_blkio(data);
    let _ = parse::parse_partitions(data);
    let _ = parse::parse_diskstats(data);
    let _ = parse::parse_procs(data);
    let _ = parse::parse_net_dev(data);
    let _ = parse::parse_default_route(data);
    let _ = parse::parse_meminfo(data);
    let _ = parse::parse_proc_stat(data);
    let _ = parse::parse_loadavg(data);
    let _ = parse::parse_open_files_limit(data);
    let _ = parse::parse_proc_cgroup(data, None);
    let _ = parse::parse_proc_cgroup(data, Some("memory"));
}
