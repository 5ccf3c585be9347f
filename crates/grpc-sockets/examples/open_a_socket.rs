//! Opens a private Unix socket, and shows that it cannot be opened twice.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::os::unix::fs::PermissionsExt;

use windlass_grpc_sockets::bind_socket;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("open-a-socket-{}.sock", std::process::id()));
    let listener = bind_socket(&path)?;
    let mode = std::fs::metadata(&path)?.permissions().mode() & 0o777;
    println!("{}: mode {mode:o}", path.display());
    match bind_socket(&path) {
        Ok(_) => println!("opened twice"),
        Err(error) => println!("again: {error}"),
    }
    drop(listener);
    std::fs::remove_file(&path)?;
    Ok(())
}
