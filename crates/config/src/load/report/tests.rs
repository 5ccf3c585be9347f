//! Existing set-ups and what is said of each of their settings.

use std::ffi::OsString;

use super::report;
use crate::fields::FIELDS;

const HEAD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

/// Writes `config` to a file `@/c` (with its head), adds `flags`, and compares the lines, in which
/// the directory is shown as `@`.
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
fn a_field_is_supported_ignored_or_refused() {
    check(
        "maxPods: 50\nimageGCHighThresholdPercent: 90\nhealthzPort: 70000\nmaxPodz: 3\n\
         logging: {vmodule: [{filePattern: x, verbosity: 3}]}\n",
        &[],
        &[
            "refused healthzPort (@/c): 70000 is out of range, write 0 to 65535",
            "ignored imageGCHighThresholdPercent (@/c): accepted, but nothing follows from it in \
             this version, which lacks image garbage collection",
            "ignored logging.vmodule (@/c): accepted and ignored: use RUST_LOG to set a level for \
             a module",
            "ignored maxPodz (@/c): unknown field (line 6, column 10): it is ignored, remove or \
             correct it",
            "supported maxPods (@/c)",
        ],
    );
}

#[test]
fn what_the_agent_would_stop_at_hides_nothing_else() {
    check(
        "featureGates: {PodsAPI: true, NoSuchGate: true, InPlacePodVerticalScaling: false, \
         MemoryQoS: true, WatchList: false}\nport: -1\nserializeImagePulls: true\n",
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
            "refused --bootstrap-kubeconfig (command line): --kubeconfig is missing: name the \
             file that the credentials obtained from the cluster are to be written to",
            "refused --max-pods (command line): invalid value 'many' for '--max-pods <N>': not a \
             whole number",
            "refused --no-such (command line): the kubelet of this version has no such flag, \
             remove it",
            "refused --node-labels (command line): \"kubernetes.io/x\" is in a namespace of \
             Kubernetes that a node may not set: use kubelet.kubernetes.io/, node.kubernetes.io/ \
             or a domain of your own",
            "refused --other (command line): the kubelet of this version has no such flag, \
             remove it",
            "refused featureGates.InPlacePodVerticalScaling (@/c): cannot set feature gate \
             InPlacePodVerticalScaling to false: it is locked to true, remove it",
            "refused featureGates.NoSuchGate (@/c): unknown feature gate NoSuchGate: remove it",
            "refused port (@/c): -1 is out of range, write 1 to 65535",
            "ignored featureGates.MemoryQoS (@/c): set to true, but nothing follows from this \
             gate in this version",
            "ignored featureGates.WatchList (@/c): accepted, without effect in a kubelet",
            "supported --root-dir (command line)",
            "supported featureGates.PodsAPI (@/c)",
            "supported serializeImagePulls (@/c)",
        ],
    );
}

#[test]
fn a_flag_is_told_as_the_field_it_mirrors() {
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
            "ignored --exit-on-lock-contention (command line): accepted, but nothing follows from \
             it in this version, which lacks an end for the next holder: the lock is kept until \
             the agent ends",
            "ignored --image-gc-high-threshold (command line): accepted, but nothing follows from \
             it in this version, which lacks image garbage collection",
            "ignored --pod-infra-container-image (command line): accepted and ignored: it has no \
             meaning any more, remove it",
            "supported --hostname-override (command line)",
            "supported --max-pods (command line)",
            "supported featureGates.PodsAPI (--feature-gates)",
        ],
    );
}

#[test]
fn a_file_that_cannot_be_read_is_refused_as_a_whole() {
    check(
        "maxPods: [\n",
        &["--max-pods=60", "--config-dir=/nowhere"],
        &[
            "refused  (/nowhere): cannot be read: No such file or directory (os error 2)",
            "refused  (@/c): line 3, column 10: unclosed bracket '['",
            "supported --max-pods (command line)",
        ],
    );
}

#[test]
fn what_is_acted_upon_in_part_or_set_to_its_default_is_told_apart() {
    check(
        "evictionHard: {memory.available: 1Gi}\nkubeletCgroups: /kubelet\n\
         enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /k\n\
         cpuManagerPolicy: none\nimageMaximumGCAge: 0s\nlocalStorageCapacityIsolation: true\n\
         featureGates: {RotateKubeletServerCertificate: true}\nlogging: {flushFrequency: 0, \
         options: {json: {infoBufferSize: \"0\"}}}\nmaxPods: 10\nmaxPods: 20\n",
        &["--help"],
        &[
            "ignored  (@/c): line 13, column 1: duplicate mapping key: maxPods: the last one \
             counts, remove the others",
            "ignored kubeReservedCgroup (@/c): accepted, but nothing follows from it in this \
             version, which lacks node-wide limits and reservations",
            "partial enforceNodeAllocatable (@/c): kube-reserved is not enforced in this version, \
             only pods are",
            "partial evictionHard (@/c): acted upon in part: it counts for allocatable, nothing \
             is evicted",
            "partial kubeletCgroups (@/c): acted upon in part: statistics tell of this cgroup, \
             nothing is moved into it",
            "default cpuManagerPolicy (@/c): accepted, but nothing follows from it in this \
             version, which lacks the CPU, memory and topology managers",
            "default featureGates.RotateKubeletServerCertificate (@/c): nothing follows from this \
             gate in this version",
            "default imageMaximumGCAge (@/c): accepted, but nothing follows from it in this \
             version, which lacks image garbage collection",
            "default localStorageCapacityIsolation (@/c): acted upon in part: it says whether the \
             node has ephemeral-storage, nothing is evicted",
            "supported maxPods (@/c)",
        ],
    );
}

#[test]
fn what_is_in_an_object_that_nobody_knows_is_not_supported() {
    check(
        "imageGC: {highThreshold: 80}\nauthentication: {webhook: null, anonymus: {enabled: true}}\n",
        &[],
        &[
            "ignored authentication.anonymus (@/c): unknown field (line 4, column 43): it is \
             ignored, remove or correct it",
            "ignored imageGC (@/c): unknown field (line 3, column 10): it is ignored, remove or \
             correct it",
        ],
    );
}

#[test]
fn a_word_that_is_no_flag_is_told_from_a_flag_that_does_not_exist() {
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
            "refused  (command line): not a flag, remove it",
            "refused --manifest-url-header (command line): invalid value '<hidden>' for \
             '--manifest-url-header <NAME:VALUE>': each header is name:value",
            "refused --node-ipp (command line): the kubelet of this version has no such flag, \
             remove it or write --node-ip",
            "refused false (command line): not a flag, write --fail-swap-on=false",
            "supported --fail-swap-on (command line)",
            "supported --max-pods (command line)",
        ],
    );
}

#[test]
fn every_field_of_the_table_is_told_when_it_is_set() {
    let defaults = serde_json::to_value(crate::KubeletConfiguration {
        tracing: Some(crate::kubelet::Tracing::default()),
        ..Default::default()
    });
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("c");
    let mut object = defaults.expect("serialisable");
    // a null is an instruction of the merge, and such a field is absent
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
