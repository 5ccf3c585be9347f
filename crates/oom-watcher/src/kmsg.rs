//! Follows `/dev/kmsg`, from its end: older records belong to a previous agent run.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, SeekFrom, open as open_file, seek};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::events::OomReporter;

/// Maximum size of a record (`CONSOLE_EXT_LOG_MAX` of the kernel).
const RECORD_BYTES: usize = 8192;
/// Records before other tasks run: a fraction of a millisecond.
const BURST: usize = 128;

/// Opens the kernel log at its end.
pub(crate) fn open(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open_file(path, flags, Mode::empty())?;
    match seek(&file, SeekFrom::End(0)) {
        // tests use pipes
        Ok(_) | Err(Errno::SPIPE) => {}
        Err(error) => return Err(error.into()),
    }
    #[expect(deprecated, reason = "the descriptor of an OwnedFd does not change")]
    AsyncFd::with_interest(file, Interest::READABLE)
}

/// Reports what the kernel logs from now on. Ends with the error of a read.
pub(crate) async fn follow(log: &AsyncFd<OwnedFd>, reporter: &mut OomReporter) -> io::Error {
    let mut buffer = vec![0; RECORD_BYTES];
    loop {
        let mut ready = match log.readable().await {
            Ok(ready) => ready,
            Err(error) => return error,
        };
        for _ in 0..BURST {
            let read = ready.try_io(|log| Ok(rustix::io::read(log.get_ref(), &mut buffer)?));
            let Ok(read) = read else { break };
            match read {
                Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(length) => reporter.read(buffer.get(..length).unwrap_or_default()),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::PIPE) => reporter.lost(),
                    // longer than the buffer: the next read returns the next record
                    Some(Errno::INVAL) => reporter.lost(),
                    Some(Errno::INTR) => {}
                    _ => return error,
                },
            }
        }
        tokio::task::yield_now().await;
    }
}
