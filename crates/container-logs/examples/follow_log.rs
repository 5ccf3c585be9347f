//! Follows a log file in the CRI format until Ctrl-C, like `tail -f`, also over its rotation:
//!
//! ```sh
//! cargo run -p windlass-container-logs --example follow_log /var/log/pods/POD/CONTAINER/0.log
//! ```

use std::io::Write;
use std::path::PathBuf;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use windlass_container_logs::{LogOptions, LogReader, LogSource};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = std::path::absolute(path.ok_or("usage: follow_log FILE")?)?;
    let root = path.parent().ok_or("no directory")?.to_owned();
    let done = CancellationToken::new();
    let interrupted = done.clone();
    tokio::spawn(async move {
        // without signals the log is followed until the program is killed
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.cancel();
        }
    });
    let options = LogOptions {
        follow: true,
        tail: Some(10),
        timestamps: true,
        ..LogOptions::default()
    };
    let reader = LogReader::default();
    let mut lines = reader.read(LogSource { root, path }, options, done).await?;
    while let Some(block) = lines.next().await {
        std::io::stdout().write_all(&block?)?;
    }
    Ok(())
}
