//! Writes a state file in the background, reads it as after a restart, then damages it.
//!
//! `cargo run -p windlass-store --example survive_damage` works in a temporary directory.
//!
//! Runs without a container runtime.

use std::error::Error;

use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable};
use windlass_store::{BackoffFile, Store};
use windlass_types::{PodUid, Timestamp};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let uid = PodUid::from("u1");
    let now: Timestamp = "2026-11-22T12:00:00Z".parse()?;

    let (file, _) = BackoffFile::open(Store::open(folder.path())?)?;
    let mut table = BackoffTable::default();
    for failure in 1..=4 {
        let delay = table.next("web", BackoffPolicy::DEFAULT, now);
        println!("failure {failure}: wait {} s", delay.as_secs());
        // returns immediately; four changes cause at most two writes
        file.record(&uid, &table);
    }
    file.flush().await?;
    let path = folder.path().join("backoff");
    println!("on the disk: {}", std::fs::read_to_string(&path)?.trim());

    let (_, tables) = BackoffFile::open(Store::open(folder.path())?)?;
    let delay = tables.get(&uid).and_then(|table| table.delay("web"));
    println!("after a restart: {delay:?}");

    let text = std::fs::read(&path)?;
    std::fs::write(&path, &text[..text.len() / 2])?;
    let (_, tables) = BackoffFile::open(Store::open(folder.path())?)?;
    println!(
        "after damage: {} tables; files in the directory:",
        tables.len()
    );
    for entry in std::fs::read_dir(folder.path())? {
        println!("  {}", entry?.file_name().display());
    }
    Ok(())
}
