//! Runs a containerd of its own beside whatever else runs on this machine, until Ctrl-C, and leaves
//! nothing behind. Other examples take the socket that it prints.
//!
//! `sudo cargo run -p windlass-testbed --example run_containerd`
//!
//! Needs root, containerd, runc, cc and busybox-static; what is missing is said.

use windlass_testbed::containerd::PrivateContainerd;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // an interrupt drops what is under way, and with it what was started so far
    let containerd = tokio::select! {
        containerd = PrivateContainerd::start("example", |step| eprintln!("{step}")) => containerd?,
        interrupted = tokio::signal::ctrl_c() => return Ok(interrupted?),
    };
    println!("socket  {}", containerd.socket().display());
    for image in containerd.ctr(&["images", "list", "-q"]).await?.lines() {
        println!("image   {image}");
    }
    println!(
        "try     crictl --runtime-endpoint {} info",
        containerd.endpoint()
    );
    println!("Ctrl-C removes it");
    tokio::signal::ctrl_c().await?;
    containerd.stop().await
}
