//! Prints what a collection removes on a disk that is 90 % full.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_image_gc::ImageGcPolicy;
use windlass_image_gc::plan::{PassTime, SpaceDecision, detect, removal_order, used_images};
use windlass_stats::DiskSpace;
use windlass_store::ImageUses;
use windlass_types::Timestamp;
use windlass_types::cri::ImageInfo;

fn main() {
    let image = |id: &str, pinned: bool| ImageInfo {
        id: id.to_owned(),
        size: 50 << 20,
        pinned,
        ..ImageInfo::default()
    };
    let images = [
        image("web", false),
        image("db", false),
        image("pause", true),
    ];
    let policy = ImageGcPolicy::default();
    let mut uses = ImageUses::new();
    let start = Timestamp::UNIX_EPOCH;
    detect(&mut uses, &images, &used_images(&images, ["db"]), start);

    let time = PassTime {
        now: windlass_types::later(start, Duration::from_secs(600)),
        running: Duration::from_secs(600),
    };
    let disk = DiskSpace {
        capacity: 1 << 30,
        available: 100 << 20,
        ..DiskSpace::default()
    };
    println!("{}", SpaceDecision::new(disk, &policy));
    println!(
        "{}",
        removal_order(&uses, &images, &BTreeSet::new(), &policy, time)
    );
}
