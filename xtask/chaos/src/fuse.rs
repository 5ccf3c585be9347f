//! A FUSE file system that answers only the handshake: every access to it hangs until it is ended.
//!
//! Its server does not read later requests either. The kernel ends a killed process only when no
//! request of it is with the server, so the agent could not be killed while one is.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::Context;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Size of the buffer for requests; the kernel requires at least 8 KiB.
const BUFFER: usize = 64 << 10;
/// Bytes of `fuse_in_header`, and where the number of the request is.
const IN_HEADER: usize = 40;
const UNIQUE: std::ops::Range<usize> = 8..16;
/// `FUSE_INIT`.
const INIT: u32 = 26;
/// Protocol version of the answer; fields of later ones are optional.
const VERSION: (u32, u32) = (7, 31);
/// Bytes of `fuse_out_header` and `fuse_init_out`.
const ANSWER: usize = 16 + 64;

/// The mounted file system. The drop ends it: hanging accesses fail with ENOTCONN.
#[derive(Debug)]
pub(crate) struct HungMount {
    place: PathBuf,
    /// Its close would end the connection.
    _device: File,
    server: Option<JoinHandle<()>>,
}

impl HungMount {
    /// Mounts it at `place`.
    ///
    /// # Errors
    /// The host has no FUSE.
    pub(crate) fn mount(place: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(place)?;
        let options = File::options().read(true).write(true).open("/dev/fuse");
        let device = options.context("/dev/fuse")?;
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0",
            device.as_raw_fd()
        );
        let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes())?;
        mount("windlass-chaos", place, "fuse", MountFlags::empty(), data)?;
        let mut requests = device.try_clone()?;
        let server = std::thread::spawn(move || {
            let mut buffer = vec![0; BUFFER];
            // ends with ENODEV after the unmount
            while let Ok(length) = requests.read(&mut buffer) {
                if let Some(answer) = answer(&buffer[..length]) {
                    // fails if the kernel has dropped the request
                    let _ = requests.write_all(&answer);
                    return;
                }
            }
        });
        Ok(Self {
            place: place.to_owned(),
            _device: device,
            server: Some(server),
        })
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        // force ends the connection, and with it the hanging requests; a mount in use only detaches
        let _ = unmount(&self.place, UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Answer to a request; `None` to let it hang.
fn answer(request: &[u8]) -> Option<[u8; ANSWER]> {
    let opcode = u32::from_ne_bytes(request.get(4..8)?.try_into().ok()?);
    if opcode != INIT || request.len() < IN_HEADER {
        return None;
    }
    let mut answer = [0; ANSWER];
    let length = u32::try_from(ANSWER).ok()?;
    answer[..4].copy_from_slice(&length.to_ne_bytes());
    answer[8..16].copy_from_slice(request.get(UNIQUE)?);
    answer[16..20].copy_from_slice(&VERSION.0.to_ne_bytes());
    answer[20..24].copy_from_slice(&VERSION.1.to_ne_bytes());
    // max_write
    answer[36..40].copy_from_slice(&4096_u32.to_ne_bytes());
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_handshake_is_answered() {
        let mut request = [0; IN_HEADER];
        request[4..8].copy_from_slice(&INIT.to_ne_bytes());
        request[UNIQUE].copy_from_slice(&7_u64.to_ne_bytes());
        let init = answer(&request).unwrap();
        assert_eq!(init[8..16], 7_u64.to_ne_bytes());
        assert_eq!(init[4..8], [0; 4], "no error");
        request[4..8].copy_from_slice(&3_u32.to_ne_bytes());
        assert_eq!(answer(&request), None);
        assert_eq!(answer(&[]), None);
    }
}
