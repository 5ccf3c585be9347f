//! Readings of this host, and layouts of file systems.

use async_trait::async_trait;
use windlass_cri::CriResult;
use windlass_types::ContainerId;

use super::*;

#[derive(Debug)]
struct Images(&'static str);

#[async_trait]
impl RuntimeStats for Images {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        Ok(ImageFsInfo {
            images: Some(RuntimeFs {
                mountpoint: self.0.to_owned(),
                ..RuntimeFs::default()
            }),
            containers: None,
        })
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        Ok(Vec::new())
    }
}

fn figures(images: &'static str) -> HostFigures {
    HostFigures::new(HostFiguresConfig {
        roots: KernelRoots::default(),
        cgroup_root: String::new(),
        root_dir: "/var/lib/kubelet".into(),
        split_images: true,
        images: Arc::new(Images(images)),
        clock: Arc::new(windlass_mailboxes::SystemClock),
    })
}

#[tokio::test]
async fn signals_of_this_host_are_read() {
    let figures = figures("/dev/shm");
    let mut reading = figures.read().await;
    // the runtime has answered in the meantime
    while reading.file_systems.is_none() {
        tokio::task::yield_now().await;
        reading = figures.read().await;
    }
    assert_eq!(reading.file_systems, Some(FileSystems::SeparateImages));
    let signals = &reading.observations.signals;
    for signal in [
        Signal::MemoryAvailable,
        Signal::NodeFsAvailable,
        Signal::ImageFsAvailable,
        Signal::ContainerFsAvailable,
        Signal::PidAvailable,
    ] {
        let observed = signals.get(&signal).unwrap_or_else(|| panic!("{signal}"));
        assert!(
            observed.available <= observed.capacity,
            "{signal} {observed:?}"
        );
        assert!(observed.capacity > 0, "{signal} {observed:?}");
    }
    let facts = &reading.observations.node_memory;
    assert!(facts.mem_available.is_some_and(|bytes| bytes > 0));
}

#[test]
fn layout_follows_the_devices() {
    let check = |devices: [u64; 3], split_images: bool, expected: &str| {
        let [node, images, containers] = devices.map(|device| {
            let space = DiskSpace {
                device,
                ..DiskSpace::default()
            };
            (device > 0).then_some((space, Timestamp::UNIX_EPOCH))
        });
        let layout = layout_of(node, images, containers, split_images);
        let layout = layout.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
        assert_eq!(layout, expected, "{devices:?}");
    };
    check([1, 1, 1], true, "shared");
    check([1, 2, 2], true, "separate images");
    check([1, 2, 1], true, "split images");
    check([1, 2, 1], false, "separate images");
    check([1, 0, 0], true, "unknown");
    check([0, 2, 2], true, "unknown");
}
