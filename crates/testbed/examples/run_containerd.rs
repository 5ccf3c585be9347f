//! Runs a private containerd until Ctrl-C and prints its socket for other examples.
//!
//! `sudo cargo run -p windlass-testbed --example run_containerd`
//!
//! Requires root, containerd, runc, cc and busybox-static.

use windlass_testbed::containerd::PrivateContainerd;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // an interrupt drops the future and the started processes
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
