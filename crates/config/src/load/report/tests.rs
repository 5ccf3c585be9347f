//! Reports of existing kubelet settings.

use std::ffi::OsString;

use super::report;
use crate::fields::FIELDS;

const HEAD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

/// Reports on `config` in the file `@/c` and on `flags`, and compares the lines; `@` is the
/// directory.
fn check(config: &str, flags: &[&str], expected: &[&str]) {
    let directory = tempfile::tempdir().expect("directory");
    let at = directory.path().display().to_string();
    let file = directory.path().join("c");
    std::fs::write(&file, format!("{HEAD}{config}")).expect("written");
    let args = ["--config", "@/c"].iter().chain(flags);
    let args = args.map(|arg| OsString::from(arg.replace('@', &at)));
    let lines: Vec<String> = report(args)
        .iter()
        .map(|setting| setting.to_string().replace(&at, "@"))
        .filter(|line| line != "supported --config (command line)")
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn fields_are_supported_ignored_or_rejected() {
    check(
        "maxPods: 50\nmakeIPTablesUtilChains: false\nhealthzPort: 70000\nmaxPodz: 3\n\
         logging: {vmodule: [{filePattern: x, verbosity: 3}]}\n",
        &[],
        &[
            "rejected healthzPort (@/c): must be between 0 and 65535, got 70000",
            "ignored logging.vmodule (@/c): ignored: use RUST_LOG to set the level of a module",
            "ignored makeIPTablesUtilChains (@/c): not implemented: requires iptables chains",
            "ignored maxPodz (@/c): unknown field (line 6, column 10) ignored; remove or correct \
             it",
            "supported maxPods (@/c)",
        ],
    );
}

#[test]
fn errors_do_not_hide_other_settings() {
    check(
        "featureGates: {PodsAPI: true, NoSuchGate: true, InPlacePodVerticalScaling: false, \
         EventedPLEG: true, WatchList: false}\nport: -1\nserializeImagePulls: true\n",
        &[
            "--no-such=1",
            "--other",
            "value",
            "--max-pods=many",
            "--node-labels=kubernetes.io/x=y",
            "--bootstrap-kubeconfig=/b",
            "--root_dir",
            "/r",
        ],
        &[
            "rejected --bootstrap-kubeconfig (command line): requires --kubeconfig, the \
             file for the obtained credentials",
            "rejected --max-pods (command line): invalid value 'many' for '--max-pods <N>': not a \
             whole number",
            "rejected --no-such (command line): unknown flag; remove it",
            "rejected --node-labels (command line): \"kubernetes.io/x\" is in a reserved \
             Kubernetes namespace; use kubelet.kubernetes.io/, node.kubernetes.io/ or your own \
             domain",
            "rejected --other (command line): unknown flag; remove it",
            "rejected featureGates.InPlacePodVerticalScaling (@/c): cannot set feature gate \
             InPlacePodVerticalScaling to false: locked to true; remove it",
            "rejected featureGates.NoSuchGate (@/c): unknown feature gate NoSuchGate; remove it",
            "rejected port (@/c): must be between 1 and 65535, got -1",
            "ignored featureGates.EventedPLEG (@/c): set to true; not implemented in this version",
            "ignored featureGates.WatchList (@/c): no effect in a kubelet",
            "supported --root-dir (command line)",
            "supported featureGates.PodsAPI (@/c)",
            "supported serializeImagePulls (@/c)",
        ],
    );
}

#[test]
fn mirror_flags_have_the_status_of_their_field() {
    check(
        "maxPods: 50\n",
        &[
            "--max-pods=60",
            "--image-gc-high-threshold=90",
            "--pod-infra-container-image=pause:3.10",
            "--exit-on-lock-contention",
            "--feature-gates=PodsAPI=true",
            "--hostname-override=n1",
        ],
        &[
            "ignored --exit-on-lock-contention (command line): not implemented: the agent keeps \
             the lock until it exits",
            "ignored --pod-infra-container-image (command line): ignored: no longer has an \
             effect; remove it",
            "supported --hostname-override (command line)",
            "supported --image-gc-high-threshold (command line)",
            "supported --max-pods (command line)",
            "supported featureGates.PodsAPI (--feature-gates)",
        ],
    );
}

#[test]
fn unreadable_file_is_rejected_as_a_whole() {
    check(
        "maxPods: [\n",
        &["--max-pods=60", "--config-dir=/nowhere"],
        &[
            "rejected  (/nowhere): cannot read: No such file or directory (os error 2)",
            "rejected  (@/c): line 3, column 10: unclosed bracket '['",
            "supported --max-pods (command line)",
        ],
    );
}

#[test]
fn partial_and_default_settings_are_distinguished() {
    check(
        "evictionHard: {memory.available: 1Gi}\nkubeletCgroups: /kubelet\n\
         enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /k\n\
         makeIPTablesUtilChains: true\nlocalStorageCapacityIsolation: true\n\
         featureGates: {RotateKubeletServerCertificate: true}\nlogging: {flushFrequency: 0, \
         options: {json: {infoBufferSize: \"0\"}}}\nmaxPods: 10\nmaxPods: 20\n",
        &["--help"],
        &[
            "ignored  (@/c): line 12, column 1: duplicate mapping key: maxPods; the last value \
             is used, remove the others",
            "partial kubeletCgroups (@/c): partially supported: used for statistics only; no \
             process is moved into the cgroup",
            "default featureGates.RotateKubeletServerCertificate (@/c): not implemented in this \
             version",
            "default makeIPTablesUtilChains (@/c): not implemented: requires iptables chains",
            "supported enforceNodeAllocatable (@/c)",
            "supported evictionHard (@/c)",
            "supported kubeReservedCgroup (@/c)",
            "supported localStorageCapacityIsolation (@/c)",
            "supported maxPods (@/c)",
        ],
    );
}

#[test]
fn fields_of_unknown_objects_are_ignored() {
    check(
        "imageGC: {highThreshold: 80}\nauthentication: {webhook: null, anonymus: {enabled: true}}\n",
        &[],
        &[
            "ignored authentication.anonymus (@/c): unknown field (line 4, column 43) \
             ignored; remove or correct it",
            "ignored imageGC (@/c): unknown field (line 3, column 10) ignored; remove or correct \
             it",
        ],
    );
}

#[test]
fn unknown_words_and_unknown_flags_are_distinguished() {
    check(
        "",
        &[
            "--fail-swap-on",
            "false",
            "--max-pods=60",
            "",
            "--node-ipp",
            "--manifest-url-header=Bearer s3cr3t",
        ],
        &[
            "rejected  (command line): not a flag; remove it",
            "rejected --manifest-url-header (command line): invalid value '<hidden>' for \
             '--manifest-url-header <NAME:VALUE>': headers must be name:value",
            "rejected --node-ipp (command line): unknown flag; remove it or write --node-ip",
            "rejected false (command line): not a flag; write --fail-swap-on=false",
            "supported --fail-swap-on (command line)",
            "supported --max-pods (command line)",
        ],
    );
}

#[test]
fn every_field_in_the_table_is_reported_when_set() {
    let defaults = serde_json::to_value(crate::KubeletConfiguration {
        tracing: Some(crate::kubelet::Tracing::default()),
        ..Default::default()
    });
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("c");
    let mut object = defaults.expect("serializable");
    // nulls delete a field in the merge
    let mut expected: Vec<&str> = Vec::new();
    for field in FIELDS {
        let value = crate::layers::get(&object, field.path);
        let gates = field.path == "featureGates";
        if !gates && value.is_some_and(|value| !value.is_null()) {
            expected.push(field.path);
        }
    }
    crate::layers::set(&mut object, "kind", "KubeletConfiguration".into());
    crate::layers::set(
        &mut object,
        "apiVersion",
        crate::kubelet::API_VERSION.into(),
    );
    std::fs::write(&file, object.to_string()).expect("written");
    let settings = report(["--config".into(), file.into_os_string()]);
    for path in expected {
        let found = settings.iter().any(|setting| setting.name == path);
        let zero = crate::fields::find(path).is_some_and(|field| field.zero_is_default);
        assert!(found || zero, "{path}");
    }
}
