//! Prints the support of each setting of a kubelet configuration.
//!
//! `cargo run -p windlass-config --example read_configuration -- /var/lib/kubelet/config.yaml`
//! accepts kubelet flags after the file; without arguments it uses a built-in file.

use std::error::Error;
use std::ffi::OsString;

use windlass_config::load::report::report;
use windlass_config::{KubeletFlags, load};

const EXAMPLE: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 60
syncFrequency: 30s
cpuManagerPolicy: static
crashLoopBackOff: {maxContainerRestartPeriod: 1h}
featureGates: {HostnameOverride: true}
";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut arguments = std::env::args_os().skip(1);
    let file = match arguments.next() {
        Some(file) => file,
        None => {
            let file = folder.path().join("config.yaml");
            std::fs::write(&file, EXAMPLE)?;
            file.into_os_string()
        }
    };
    let mut flags = vec![OsString::from("--config"), file];
    flags.extend(arguments);

    for setting in report(flags.clone()) {
        println!("{setting}");
    }
    // as the agent loads it: valid as a whole, or an error
    flags.insert(0, "kubelet".into());
    let flags = KubeletFlags::from_args(flags)?;
    match load(&flags) {
        Ok(config) => {
            let kubelet = &config.kubelet;
            println!("the agent starts: at most {} pods", kubelet.max_pods);
            println!("pods are synced every {}", kubelet.sync_frequency);
            for warning in &config.warnings {
                println!("warning: {warning}");
            }
        }
        Err(error) => println!("the agent does not start: {error}"),
    }
    Ok(())
}
