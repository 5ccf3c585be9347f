//! Lists the OOM kills in the kernel log, or in a copy of it with the format of `/dev/kmsg`.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use windlass_oom_watcher::{OomDetector, container_cgroup, records};

/// `O_NONBLOCK` of Linux: the end of the log is an error, not a wait.
const NONBLOCK: i32 = 0o4000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or("/dev/kmsg".to_owned());
    let mut options = std::fs::OpenOptions::new();
    let mut log = options.read(true).custom_flags(NONBLOCK).open(path)?;
    let mut detector = OomDetector::default();
    let mut buffer = [0; 8192];
    loop {
        let length = match log.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            // overwritten before it was read
            Err(error) if error.kind() == ErrorKind::BrokenPipe => continue,
            Err(error) => return Err(error.into()),
        };
        for record in records(&buffer[..length]) {
            if let Some(kill) = detector.push(&record) {
                let cgroup = kill.cgroup.as_deref().map(container_cgroup);
                let cgroup = cgroup.unwrap_or("unknown cgroup");
                let seconds = record.at_us / 1_000_000;
                println!("{seconds} s: {kill} ({cgroup})");
            }
        }
    }
}
