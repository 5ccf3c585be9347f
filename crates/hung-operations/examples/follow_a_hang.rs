//! Prints the list of hung operations while a mount hangs for three seconds.

use std::sync::Arc;
use std::time::Duration;

use windlass_hung_operations::{HungOperations, Operation, OperationKind};
use windlass_mailboxes::SystemClock;

const THRESHOLD: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let hung = HungOperations::new(Arc::new(SystemClock));
    let mut changes = hung.subscribe();
    let uid = "7c1f".into();
    let mount = || Operation::of_pod(OperationKind::Volume, &uid, "mount of volume data");
    let slow = tokio::time::sleep(3 * THRESHOLD);
    let mut mounted = std::pin::pin!(hung.track(THRESHOLD, mount, |()| true, slow));
    loop {
        tokio::select! {
            () = &mut mounted => break println!("mounted"),
            _ = changes.changed() => {
                for operation in hung.list() {
                    println!("pod {:?}: {operation}", operation.operation.pod);
                }
            }
        }
    }
}
