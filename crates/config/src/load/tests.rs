//! Files and flags and the configuration they become, or the error.

use std::ffi::OsString;
use std::path::Path;

use super::{Config, load};
use crate::fields;
use crate::flags::KubeletFlags;
use crate::kubelet::{KubeletConfiguration, Tracing};
use crate::layers;
use crate::tls::TlsNumbers;

const HEAD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

/// Writes `files` to a directory, loads with `args` (`@` stands for the directory), and compares
/// the fields at `paths` or the error (the directory shown as `@`).
fn check(files: &[(&str, &str)], args: &[&str], paths: &[&str], expected: &str) {
    let (directory, result) = attempt(files, args);
    let line = match result {
        Ok(config) => {
            let value = serde_json::to_value(&config.kubelet).expect("serialisable");
            let shown = paths.iter().map(|path| match layers::get(&value, path) {
                Some(found) => format!("{path}={found}"),
                None => format!("{path} absent"),
            });
            shown.collect::<Vec<_>>().join(" ")
        }
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(line.replace(&directory, "@"), expected);
}

fn check_warnings(files: &[(&str, &str)], args: &[&str], expected: &[&str]) {
    let (directory, result) = attempt(files, args);
    let warnings: Vec<_> = result
        .expect("valid")
        .warnings
        .iter()
        .map(|warning| warning.to_string().replace(&directory, "@"))
        .collect();
    assert_eq!(warnings, expected);
}

fn attempt(files: &[(&str, &str)], args: &[&str]) -> (String, Result<Config, super::ConfigError>) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let root = directory.path().to_str().expect("UTF-8").to_owned();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("directory");
        std::fs::write(path, text.replace("HEAD\n", HEAD)).expect("file");
    }
    let args =
        std::iter::once("windlass".to_owned()).chain(args.iter().map(|a| a.replace('@', &root)));
    let flags = KubeletFlags::from_args(args.map(OsString::from)).expect("flags");
    (root, load(&flags))
}

#[test]
fn each_layer_overrides_the_ones_before() {
    let main = (
        "kubelet.yaml",
        "HEAD\nmaxPods: 50\nsyncFrequency: 2m\nclusterDNS: [10.0.0.1]\n",
    );
    let files = [
        main,
        (
            "d/10-a.conf",
            "HEAD\nmaxPods: 60\nclusterDNS: [10.0.0.2, 10.0.0.3]\n",
        ),
        ("d/20-b/x.conf", "HEAD\nmaxPods: 65\n"),
        ("d/20-c.conf", "HEAD\nsyncFrequency: null\nhealthzPort: 0\n"),
        ("d/30-not.yaml", "HEAD\nmaxPods: 1\n"),
    ];
    let paths = ["maxPods", "syncFrequency", "clusterDNS", "healthzPort"];
    check(
        &files,
        &[],
        &paths,
        r#"maxPods=110 syncFrequency="1m0s" clusterDNS=[] healthzPort=10248"#,
    );
    check(
        &files,
        &["--config=@/kubelet.yaml"],
        &paths,
        r#"maxPods=50 syncFrequency="2m0s" clusterDNS=["10.0.0.1"] healthzPort=10248"#,
    );
    check(
        &files,
        &["--config=@/kubelet.yaml", "--config-dir=@/d"],
        &paths,
        r#"maxPods=65 syncFrequency="1m0s" clusterDNS=["10.0.0.2","10.0.0.3"] healthzPort=0"#,
    );
    check(
        &files,
        &[
            "--config=@/kubelet.yaml",
            "--config-dir=@/d",
            "--max-pods=70",
            "--cluster-dns=10.0.0.4",
        ],
        &paths,
        r#"maxPods=70 syncFrequency="1m0s" clusterDNS=["10.0.0.4"] healthzPort=0"#,
    );
}

#[test]
fn feature_gates_merge_by_name_across_all_layers() {
    let files = [
        (
            "k.yaml",
            "HEAD\nfeatureGates: {EventedPLEG: true, PodsAPI: true}\n",
        ),
        ("d/a.conf", "HEAD\nfeatureGates: {PodsAPI: false}\n"),
    ];
    check(
        &files,
        &[
            "--config=@/k.yaml",
            "--config-dir=@/d",
            "--feature-gates=MemoryQoS=true",
        ],
        &["featureGates"],
        r#"featureGates={"EventedPLEG":true,"MemoryQoS":true,"PodsAPI":false}"#,
    );
    check(
        &files,
        &["--feature-gates=Nope=true,NodeSwap=false"],
        &[],
        "error: invalid configuration:\
         \n  --feature-gates: featureGates.NodeSwap: cannot set feature gate NodeSwap to false: it is locked to true, remove it\
         \n  --feature-gates: featureGates.Nope: unknown feature gate Nope: remove it",
    );
}

#[test]
fn without_a_configuration_file_the_old_defaults_hold() {
    let paths = [
        "authentication.anonymous.enabled",
        "authorization.mode",
        "readOnlyPort",
    ];
    check(
        &[],
        &[],
        &paths,
        r#"authentication.anonymous.enabled=true authorization.mode="AlwaysAllow" readOnlyPort=10255"#,
    );
    check(
        &[("k.yaml", "HEAD\n")],
        &["--config=@/k.yaml"],
        &paths,
        r#"authentication.anonymous.enabled=false authorization.mode="Webhook" readOnlyPort=0"#,
    );
}

#[test]
fn tls_that_is_not_possible_here_is_a_fault_that_names_field_and_fix() {
    let files = [(
        "k.yaml",
        "HEAD\ntlsMinVersion: VersionTLS11\ntlsCertFile: a.crt\ntlsCipherSuites: [\
         TLS_RSA_WITH_AES_128_GCM_SHA256, TLS_NOPE]\ntlsCurvePreferences: [29, 25, 29, 7]\nreadOnlyPort: 10250\n",
    )];
    check(
        &files,
        &["--config=@/k.yaml"],
        &[],
        "error: invalid configuration:\
         \n  @/k.yaml: tlsMinVersion: VersionTLS11 is too old for this agent's TLS library, write VersionTLS12 or VersionTLS13\
         \n  @/k.yaml: tlsCipherSuites: \"TLS_NOPE\" is not known, write a name such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\
         \n  @/k.yaml: tlsCipherSuites: none of them is possible, TLS_RSA_WITH_AES_128_GCM_SHA256: no forward secrecy or no authenticated encryption, which this agent's TLS library requires, write a name such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\
         \n  @/k.yaml: tlsCurvePreferences: 25 (P-521) is not in this agent's TLS library, remove it\
         \n  @/k.yaml: tlsCurvePreferences: 29 is there twice, remove one\
         \n  @/k.yaml: tlsCurvePreferences: 7 is no known group, write for example 29 (X25519)\
         \n  default: tlsPrivateKeyFile: must be set, since \"@/a.crt\" is of no use without it\
         \n  @/k.yaml: readOnlyPort: 10250 is the port of the HTTPS server, write 0 or another",
    );
}

#[test]
fn suites_that_are_too_old_are_left_out_and_named_as_long_as_one_is_possible() {
    // the list of the CIS benchmark
    let files = [(
        "k.yaml",
        "HEAD\ntlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, \
         TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305, \
         TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305, \
         TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_256_GCM_SHA384, \
         TLS_RSA_WITH_AES_128_GCM_SHA256]\n",
    )];
    let (_, config) = attempt(&files, &["--config=@/k.yaml"]);
    let config = config.expect("valid");
    let suites = TlsNumbers::of(&config.kubelet).suites;
    assert_eq!(suites, [0xc02b, 0xc02f, 0xcca8, 0xc030, 0xcca9, 0xc02c]);
    let [warning] = config.warnings.as_slice() else {
        panic!("{:?}", config.warnings);
    };
    let warning = warning.to_string();
    assert!(
        warning.ends_with(
            "k.yaml: tlsCipherSuites: left out are TLS_RSA_WITH_AES_256_GCM_SHA384, \
             TLS_RSA_WITH_AES_128_GCM_SHA256: no forward secrecy or no authenticated encryption, \
             which this agent's TLS library requires, remove them"
        ),
        "{warning}"
    );
}

#[test]
fn a_collector_that_is_nowhere_is_a_warning() {
    let files = [(
        "k.yaml",
        "HEAD\ntracing: {endpoint: dns://google.com:4317}\n",
    )];
    let (_, config) = attempt(&files, &["--config=@/k.yaml"]);
    let warnings = config.expect("valid, as for upstream").warnings;
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    let warning = warning.to_string();
    let expected = "k.yaml: tracing.endpoint: \"dns://google.com:4317\" names no host or socket, \
                    so no traces are sent: write google.com:4317";
    assert!(warning.ends_with(expected), "{warning}");
}

#[test]
fn names_of_tls_become_their_numbers() {
    let files = [(
        "k.yaml",
        "HEAD\ntlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_AES_128_GCM_SHA256, \
         TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305]\ntlsCurvePreferences: [4588, 29]\n",
    )];
    let (_, config) = attempt(&files, &["--config=@/k.yaml"]);
    let expected = TlsNumbers {
        only_tls13: true,
        suites: vec![0x1301, 0xcca8],
        groups: vec![4588, 29],
    };
    assert_eq!(TlsNumbers::of(&config.expect("valid").kubelet), expected);
    let default = KubeletConfiguration::default();
    assert_eq!(TlsNumbers::of(&default), TlsNumbers::default());
}

#[test]
fn fields_that_depend_on_others_follow_them_unless_set() {
    let paths = ["serializeImagePulls", "nodeStatusReportFrequency"];
    check(
        &[(
            "k.yaml",
            "HEAD\nmaxParallelImagePulls: 3\nnodeStatusUpdateFrequency: 20s\n",
        )],
        &["--config=@/k.yaml"],
        &paths,
        r#"serializeImagePulls=false nodeStatusReportFrequency="20s""#,
    );
    check(
        &[
            ("k.yaml", "HEAD\nevictionHard: {memory.available: 1Gi}\n"),
            ("d/a.conf", "HEAD\nevictionHard: {pid.available: 5%}\n"),
        ],
        &["--config=@/k.yaml", "--config-dir=@/d"],
        &["evictionHard"],
        r#"evictionHard={"memory.available":"1Gi","pid.available":"5%"}"#,
    );
    check(
        &[(
            "k.yaml",
            "HEAD\nmergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n",
        )],
        &["--config=@/k.yaml"],
        &["evictionHard"],
        r#"evictionHard={"imagefs.available":"15%","imagefs.inodesFree":"5%","memory.available":"1Gi","nodefs.available":"10%","nodefs.inodesFree":"5%"}"#,
    );
}

#[test]
fn zero_in_the_main_file_means_the_default_where_upstream_says_so() {
    check(
        &[(
            "k.yaml",
            "HEAD\nmaxPods: 0\nsyncFrequency: 0s\nregistryPullQPS: 0\naddress: \"\"\n",
        )],
        &["--config=@/k.yaml"],
        &["maxPods", "syncFrequency", "registryPullQPS", "address"],
        r#"maxPods=110 syncFrequency="1m0s" registryPullQPS=0 address="0.0.0.0""#,
    );
}

#[test]
fn relative_paths_are_seen_from_their_file() {
    check(
        &[
            (
                "etc/k.yaml",
                "HEAD\nstaticPodPath: manifests\nresolvConf: \"\"\n",
            ),
            ("etc/d/a.conf", "HEAD\ntlsCertFile: a.crt\n"),
        ],
        &[
            "--config=@/etc/k.yaml",
            "--config-dir=@/etc/d",
            "--tls-private-key-file=a.key",
        ],
        &[
            "staticPodPath",
            "tlsCertFile",
            "tlsPrivateKeyFile",
            "resolvConf",
        ],
        r#"staticPodPath="@/etc/manifests" tlsCertFile="@/etc/d/a.crt" tlsPrivateKeyFile="a.key" resolvConf="""#,
    );
}

#[test]
fn a_file_that_is_no_configuration_is_named_with_the_place() {
    let config = ["--config=@/k.yaml"];
    check(
        &[("k.yaml", "maxPods: 1\n")],
        &config,
        &[],
        "error: @/k.yaml: kind is absent, it must be \"KubeletConfiguration\"",
    );
    check(
        &[(
            "k.yaml",
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1\n",
        )],
        &config,
        &[],
        "error: @/k.yaml: apiVersion is \"kubelet.config.k8s.io/v1\", it must be \"kubelet.config.k8s.io/v1beta1\"",
    );
    check(
        &[("k.yaml", "HEAD\nmaxPods: many\n")],
        &config,
        &[],
        "error: invalid configuration:\
         \n  @/k.yaml: maxPods: invalid type: string \"many\", expected a whole number of at most 32 bits (line 3, column 10)",
    );
    check(
        &[("k.yaml", "HEAD\nsyncFrequency: 10\n")],
        &config,
        &[],
        "error: invalid configuration:\
         \n  @/k.yaml: syncFrequency: invalid type: integer `10`, expected a string (line 3, column 16)",
    );
    check(
        &[],
        &config,
        &[],
        "error: @/k.yaml: cannot be read: No such file or directory (os error 2)",
    );
    check(
        &[("d/a.conf", "maxPods: 1\n")],
        &["--config-dir=@/d"],
        &[],
        "error: @/d/a.conf: kind is absent, it must be \"KubeletConfiguration\"",
    );
    check(
        &[],
        &["--config-dir=@/d"],
        &[],
        "error: @/d: cannot be read: No such file or directory (os error 2)",
    );
    check(
        &[],
        &["--max-pods=99999999999"],
        &[],
        "error: invalid configuration:\
         \n  --max-pods: maxPods: invalid value: integer `99999999999`, expected a whole number of at most 32 bits",
    );
}

#[test]
fn values_of_the_wrong_type_hide_nothing_else_and_no_password_is_shown() {
    check(
        &[(
            "k.yaml",
            "HEAD\nclusterDNS: x\nfailSwapOn: \"x\"\nauthentication: {anonymous: 5}\nport: -1\n\
             featureGates: {Nope: true}\nstaticPodURL: \"ftp://user:pw@x/y\"\n\
             staticPodURLHeader: {Authorization: \"Bearer s3cr3t\"}\n",
        )],
        &["--config=@/k.yaml"],
        &[],
        "error: invalid configuration:\
         \n  @/k.yaml: authentication.anonymous: invalid type: integer `5`, expected an object (line 5, column 29)\
         \n  @/k.yaml: clusterDNS: invalid type: string \"x\", expected a list (line 3, column 13)\
         \n  @/k.yaml: failSwapOn: invalid type: string \"x\", expected true or false (line 4, column 13)\
         \n  @/k.yaml: staticPodURLHeader.Authorization: write a list of values for each name, such as Accept: [text/plain] (line 9, column 37)\
         \n  @/k.yaml: featureGates.Nope: unknown feature gate Nope: remove it\
         \n  @/k.yaml: port: -1 is out of range, write 1 to 65535\
         \n  @/k.yaml: staticPodURL: is no URL of these kinds, write http://… or https://…",
    );
}

#[test]
fn of_a_key_that_comes_twice_the_last_counts_with_a_warning() {
    let files = [("k.yaml", "HEAD\nmaxPods: 50\nmaxPods: 60\n")];
    check(&files, &["--config=@/k.yaml"], &["maxPods"], "maxPods=60");
    check_warnings(
        &files,
        &["--config=@/k.yaml"],
        &[
            "@/k.yaml: line 4, column 1: duplicate mapping key: maxPods: the last one counts, remove the others",
        ],
    );
}

#[test]
fn a_file_without_an_end_is_refused() {
    check(
        &[],
        &["--config=/dev/zero"],
        &[],
        "error: /dev/zero: larger than 1048576 bytes, which no kubelet configuration is",
    );
}

#[test]
fn flags_of_the_node_are_refused_before_the_machine_is_asked() {
    for (flag, expected) in [
        (
            "--node-ip=foo",
            "error: --node-ip=\"foo\": write one IP address",
        ),
        (
            "--hostname-override=A_B",
            "error: node name \"a_b\" is not a DNS name",
        ),
        (
            "--cloud-provider=aws",
            "error: --cloud-provider: \"aws\" is built in no more, write external or remove it",
        ),
    ] {
        let (_, result) = attempt(&[], &[flag]);
        let error = result.err().map(|error| format!("error: {error}"));
        let error = error.unwrap_or_default();
        assert!(error.starts_with(expected), "{error}");
    }
    check(
        &[],
        &["--cloud-provider=external"],
        &["maxPods"],
        "maxPods=110",
    );
}

#[test]
fn credential_providers_are_a_configuration_and_programs() {
    let (config, programs) = (
        "--image-credential-provider-config=/c.yaml",
        "--image-credential-provider-bin-dir=/bin",
    );
    let refused = "error: --image-credential-provider-config: it and \
                   --image-credential-provider-bin-dir need each other, give both or none";
    check(&[], &[config], &[], refused);
    check(&[], &[programs], &[], refused);
    check(&[], &[config, programs], &["maxPods"], "maxPods=110");
}

#[test]
fn bootstrap_credentials_need_a_place_for_those_they_are_exchanged_for() {
    let bootstrap = "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf";
    check(
        &[],
        &[bootstrap],
        &[],
        "error: --bootstrap-kubeconfig: --kubeconfig is missing: name the file that the \
         credentials obtained from the cluster are to be written to",
    );
    let kubeconfig = "--kubeconfig=/etc/kubernetes/kubelet.conf";
    check(&[], &[bootstrap, kubeconfig], &["maxPods"], "maxPods=110");
    check(&[], &["--kubeconfig="], &["maxPods"], "maxPods=110");
}

#[test]
fn a_node_labels_itself_only_where_it_may() {
    let refused = |label: &str| {
        format!(
            "error: --node-labels: {label:?} is in a namespace of Kubernetes that a node may not \
             set: use kubelet.kubernetes.io/, node.kubernetes.io/ or a domain of your own"
        )
    };
    for label in [
        "node-role.kubernetes.io/worker",
        "a.k8s.io/b",
        "kubernetes.io/x",
    ] {
        check(
            &[],
            &[&format!("--node-labels={label}=1")],
            &[],
            &refused(label),
        );
    }
    for label in [
        "zone",
        "example.com/a",
        "node.kubernetes.io/exclude",
        "x.node.kubernetes.io/y",
        "topology.kubernetes.io/zone",
        "notk8s.io/a",
    ] {
        let flag = format!("--node-labels={label}=1");
        check(&[], &[&flag], &["maxPods"], "maxPods=110");
    }
}

#[test]
fn unknown_and_inert_fields_are_warned_of_once() {
    check_warnings(
        &[(
            "k.yaml",
            "HEAD\nmaxPodz: 3\nauthentication: {x509: {clientCA: a}}\nmaxPods: 50\niptablesDropBit: 14\nport: 10250\n",
        )],
        &[
            "--config=@/k.yaml",
            "--kube-reserved-cgroup=/x",
            "--enforce-node-allocatable=pods,kube-reserved",
            "--exit-on-lock-contention",
            "--feature-gates=EventedPLEG=true,EnvFiles=true,WatchList=true,NFTablesProxyMode=true",
            "--pod-infra-container-image=pause",
        ],
        &[
            "@/k.yaml: authentication.x509.clientCA: unknown field (line 4, column 35): it is ignored, remove or correct it",
            "@/k.yaml: maxPodz: unknown field (line 3, column 10): it is ignored, remove or correct it",
            "@/k.yaml: iptablesDropBit: accepted and ignored: without effect upstream as well",
            "--kube-reserved-cgroup: kubeReservedCgroup: accepted, but nothing follows from it in this version, which lacks node-wide limits and reservations",
            "--enforce-node-allocatable: enforceNodeAllocatable: kube-reserved is not enforced in this version, only pods are",
            "--feature-gates: featureGates.EventedPLEG: set to true, but nothing follows from this gate in this version",
            "--feature-gates: featureGates: NFTablesProxyMode, WatchList: accepted, without effect in a kubelet",
            "--exit-on-lock-contention: accepted, but nothing follows from it in this version, which lacks an end for the next holder: the lock is kept until the agent ends",
            "--pod-infra-container-image: accepted and ignored: it has no meaning any more, remove it",
        ],
    );
}

#[test]
fn all_broken_rules_are_reported_together_with_who_broke_them() {
    check(
        &[(
            "k.yaml",
            "HEAD\nimageGCLowThresholdPercent: 90\nhairpinMode: maybe\nclusterDNS: [10.0.0.1, x]\nlogging: {format: xml}\n",
        )],
        &["--config=@/k.yaml", "--oom-score-adj=-2000"],
        &[],
        "error: invalid configuration:\
         \n  --oom-score-adj: oomScoreAdj: -2000 is out of range, write -1000 to 1000\
         \n  @/k.yaml: imageGCLowThresholdPercent: 90 must be less than imageGCHighThresholdPercent, which is 85\
         \n  @/k.yaml: hairpinMode: \"maybe\" is not known, write one of none, hairpin-veth, promiscuous-bridge\
         \n  @/k.yaml: logging.format: \"xml\" is not known, write one of text, json\
         \n  @/k.yaml: clusterDNS[1]: \"x\" is no IP address",
    );
}

#[test]
fn each_rule_of_the_specification_is_enforced() {
    let rule = |body: &str, expected: &str| {
        let (_, result) = attempt(
            &[("k.yaml", &format!("HEAD\n{body}\n"))],
            &["--config=@/k.yaml"],
        );
        let error = result
            .err()
            .map_or_else(|| "accepted".to_owned(), |e| e.to_string());
        let fault = error.lines().last().unwrap_or_default();
        assert!(
            fault.contains(expected),
            "{body}: {error}\nexpected {expected}"
        );
    };
    rule("nodeLeaseDurationSeconds: -1", "write 1 or more");
    rule("systemCgroups: /x", "systemCgroups: needs cgroupRoot");
    rule("kubeAPIQPS: -1", "kubeAPIQPS: -1 is out of range");
    rule("healthzPort: 70000", "write 0 to 65535");
    rule(
        "imageMaximumGCAge: 1m",
        "must be more than imageMinimumGCAge, which is 2m0s",
    );
    rule("iptablesMasqueradeBit: 32", "write 0 to 31");
    rule("nodeStatusMaxImages: -2", "write -1 or more");
    rule("maxParallelImagePulls: 0", "write 1 or more");
    rule(
        "maxParallelImagePulls: 2\nserializeImagePulls: true",
        "needs serializeImagePulls: false",
    );
    rule("runOnce: true", "run-once mode does not exist");
    rule(
        "registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: now}]",
        "registerWithTaints[0].timeAdded: must not be set",
    );
    rule("topologyManagerScope: node", "write one of container, pod");
    rule("shutdownGracePeriod: 500ms", "write 0s or at least 1s");
    rule(
        "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s",
        "is more than shutdownGracePeriod",
    );
    rule(
        "shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]",
        "excludes shutdownGracePeriod",
    );
    rule(
        "memorySwap: {swapBehavior: Much}",
        "write one of NoSwap, LimitedSwap",
    );
    rule(
        "crashLoopBackOff: {maxContainerRestartPeriod: 10m}",
        "10m0s is out of range, write 1s to 5m0s",
    );
    rule(
        "enforceNodeAllocatable: [pods, pods]",
        "\"pods\" comes twice",
    );
    rule(
        "enforceNodeAllocatable: [none, pods]",
        "\"none\" must stand alone",
    );
    rule(
        "enforceNodeAllocatable: [kube-reserved]",
        "needs kubeReservedCgroup",
    );
    rule("cgroupsPerQOS: false", "needs cgroupsPerQOS: true");
    rule(
        "preloadedImagesVerificationAllowlist: [a]",
        "needs imagePullCredentialsVerificationPolicy",
    );
    rule(
        "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n\
         preloadedImagesVerificationAllowlist: [\"r.io/a:1\"]",
        "neither tag nor digest is accepted in an image reference: r.io/a:1",
    );
    rule("reservedSystemCPUs: 3-1", "is no CPU list");
    rule(
        "reservedSystemCPUs: 0-1\nkubeReservedCgroup: /k",
        "excludes systemReservedCgroup",
    );
    rule("memoryThrottlingFactor: 1.5", "at most 1");
    rule(
        "memoryReservationPolicy: TieredReservation",
        "needs the feature gate MemoryQoS",
    );
    rule(
        "enableSystemLogQuery: true\nenableSystemLogHandler: false",
        "needs enableSystemLogHandler",
    );
    rule("containerLogMaxWorkers: 0", "write 1 or more");
    rule("containerLogMonitorInterval: 1s", "write 3s or more");
    rule("containerLogMaxFiles: 1", "write 2 or more");
    rule("containerLogMaxSize: 10 MB", "write for example 10Mi");
    rule("containerLogMaxSize: 500m", "is no number of bytes");
    rule("podLogsDir: /var/log/../x", "must not contain");
    rule("podLogsDir: /var/log/p\u{f6}ds", "must be ASCII");
    rule(
        "reservedMemory: [{numaNode: 0, limits: {memory: 0}}]",
        "expected a string",
    );
    rule(
        "reservedMemory: [{numaNode: 0, limits: {memory: \"0\"}}]",
        "memory must be more than 0",
    );
    rule("userNamespaces: {idsPerPod: 100}", "multiple of 65536");
    rule(
        "tracing: {samplingRatePerMillion: 2000000}",
        "write 0 to 1000000",
    );
    rule(
        "tracing: {endpoint: \"http://localhost:4317\"}",
        "Options are none, dns, unix, or unix-abstract",
    );
    rule("staticPodURL: ftp://x", "is no URL");
    rule(
        "containerRuntimeEndpoint: tcp://1.2.3.4:5",
        "is not a Unix socket",
    );
    rule(
        "containerRuntimeEndpoint: unix://relative.sock",
        "is not a Unix socket",
    );
    rule(
        "allowedUnsafeSysctls: [\"!!\"]",
        "allowedUnsafeSysctls: \"!!\" is no sysctl name",
    );
    rule(
        "systemReserved: {cpu: foo}",
        "systemReserved: cpu: \"foo\" is no amount",
    );
    rule(
        "kubeReserved: {memory: \"-1Gi\"}",
        "kubeReserved: memory: \"-1Gi\" is no amount",
    );
    rule(
        "evictionHard: {memory.available: lots}",
        "evictionHard: memory.available: \"lots\" is not usable",
    );
    rule(
        "evictionHard: {pid.available: 101%}",
        "\"101%\" is not usable",
    );
    rule(
        "evictionHard: {bogus.signal: 5%}",
        "\"bogus.signal\" is not known",
    );
    rule(
        "evictionSoft: {memory.available: 5%}",
        "memory.available needs a period in evictionSoftGracePeriod",
    );
    rule(
        "evictionSoftGracePeriod: {memory.available: soon}",
        "\"soon\" is not usable, write for example 90s",
    );
    rule(
        "evictionMinimumReclaim: {memory.available: 0%}",
        "\"0%\" is not usable",
    );
    rule(
        "evictionSoft: {memory.available: 5%, nodefs.available: 0%}\n\
         evictionSoftGracePeriod: {memory.available: 90s}\n\
         evictionMinimumReclaim: {imagefs.available: 0}\nevictionHard: {pid.available: 100%}"
            .replace("available: 0}", "available: \"0\"}")
            .as_str(),
        "accepted",
    );
    rule("cpuCFSQuotaPeriod: 2s", "write 1ms to 1s");
    rule("maxPods: 20", "accepted");
}

#[test]
fn the_table_of_fields_lists_each_field_of_the_structs_once() {
    let config = KubeletConfiguration {
        tracing: Some(Tracing::default()),
        ..KubeletConfiguration::default()
    };
    let mut have = fields::paths_of(&config).expect("serialisable");
    let mut listed: Vec<_> = fields::FIELDS.iter().map(|f| f.path.to_owned()).collect();
    have.sort();
    listed.sort();
    assert_eq!(have, listed);
}

#[test]
fn defaults_survive_a_round_trip_and_are_valid() {
    let config = KubeletConfiguration::default();
    let text = serde_json::to_string(&config).expect("serialisable");
    let back: KubeletConfiguration = serde_json::from_str(&text).expect("readable");
    assert_eq!(config, back);
    let (_, loaded) = attempt(&[("k.yaml", "HEAD\n")], &["--config=@/k.yaml"]);
    let loaded = loaded.expect("valid");
    assert_eq!(loaded.kubelet, config);
    assert_eq!(loaded.warnings, []);
}
