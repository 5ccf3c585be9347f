//! Loading files and flags into a configuration.

use std::ffi::OsString;
use std::path::Path;

use super::{Config, load};
use crate::fields;
use crate::flags::KubeletFlags;
use crate::kubelet::{KubeletConfiguration, Tracing};
use crate::layers;
use crate::tls::TlsNumbers;

const HEAD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

/// Loads `files` with `args` and compares the fields at `paths` or the error; `@` is the directory.
fn check(files: &[(&str, &str)], args: &[&str], paths: &[&str], expected: &str) {
    let (directory, result) = try_load(files, args);
    let line = match result {
        Ok(config) => {
            let value = serde_json::to_value(&config.kubelet).expect("serializable");
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
    let (directory, result) = try_load(files, args);
    let warnings: Vec<_> = result
        .expect("valid")
        .warnings
        .iter()
        .map(|warning| warning.to_string().replace(&directory, "@"))
        .collect();
    assert_eq!(warnings, expected);
}

fn try_load(files: &[(&str, &str)], args: &[&str]) -> (String, Result<Config, super::ConfigError>) {
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
fn later_layers_override_earlier_layers() {
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
         \n  --feature-gates: featureGates.NodeSwap: cannot set feature gate NodeSwap to false: locked to true; remove it\
         \n  --feature-gates: featureGates.Nope: unknown feature gate Nope; remove it",
    );
}

#[test]
fn legacy_defaults_apply_without_configuration_file() {
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
fn unsupported_tls_settings_are_rejected() {
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
         \n  @/k.yaml: tlsMinVersion: VersionTLS11 is not supported; set VersionTLS12 or VersionTLS13\
         \n  @/k.yaml: tlsCipherSuites: unknown suite \"TLS_NOPE\"; use for example TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\
         \n  @/k.yaml: tlsCipherSuites: no supported suite: TLS_RSA_WITH_AES_128_GCM_SHA256 lack forward secrecy or authenticated encryption; use for example TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\
         \n  @/k.yaml: tlsCurvePreferences: 25 (P-521) is not supported; remove it\
         \n  @/k.yaml: tlsCurvePreferences: duplicate 29; remove one\
         \n  @/k.yaml: tlsCurvePreferences: unknown group 7; use for example 29 (X25519)\
         \n  default: tlsPrivateKeyFile: must be set, required by \"@/a.crt\"\
         \n  @/k.yaml: readOnlyPort: must differ from port (10250); set 0 to disable",
    );
}

#[test]
fn unsupported_suites_are_skipped_with_warning() {
    // the list of the CIS benchmark
    let files = [(
        "k.yaml",
        "HEAD\ntlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, \
         TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305, \
         TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305, \
         TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_256_GCM_SHA384, \
         TLS_RSA_WITH_AES_128_GCM_SHA256]\n",
    )];
    let (_, config) = try_load(&files, &["--config=@/k.yaml"]);
    let config = config.expect("valid");
    let suites = TlsNumbers::from_config(&config.kubelet).suites;
    assert_eq!(suites, [0xc02b, 0xc02f, 0xcca8, 0xc030, 0xcca9, 0xc02c]);
    let [warning] = config.warnings.as_slice() else {
        panic!("{:?}", config.warnings);
    };
    let warning = warning.to_string();
    assert!(
        warning.ends_with(
            "k.yaml: tlsCipherSuites: skipping TLS_RSA_WITH_AES_256_GCM_SHA384, \
             TLS_RSA_WITH_AES_128_GCM_SHA256, which lack forward secrecy or authenticated \
             encryption; remove them"
        ),
        "{warning}"
    );
}

#[test]
fn unusable_collector_endpoint_is_a_warning() {
    let files = [(
        "k.yaml",
        "HEAD\ntracing: {endpoint: dns://google.com:4317}\n",
    )];
    let (_, config) = try_load(&files, &["--config=@/k.yaml"]);
    let warnings = config.expect("valid, as upstream").warnings;
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    let warning = warning.to_string();
    let expected = "k.yaml: tracing.endpoint: \"dns://google.com:4317\" has no host or socket, no \
                    traces are sent; use google.com:4317";
    assert!(warning.ends_with(expected), "{warning}");
}

#[test]
fn tls_names_are_converted_to_numbers() {
    let files = [(
        "k.yaml",
        "HEAD\ntlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_AES_128_GCM_SHA256, \
         TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305]\ntlsCurvePreferences: [4588, 29]\n",
    )];
    let (_, config) = try_load(&files, &["--config=@/k.yaml"]);
    let expected = TlsNumbers {
        only_tls13: true,
        suites: vec![0x1301, 0xcca8],
        groups: vec![4588, 29],
    };
    assert_eq!(
        TlsNumbers::from_config(&config.expect("valid").kubelet),
        expected
    );
    let default = KubeletConfiguration::default();
    assert_eq!(TlsNumbers::from_config(&default), TlsNumbers::default());
}

#[test]
fn unset_dependent_fields_follow_other_fields() {
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
fn zero_in_main_file_means_default_as_upstream() {
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
fn relative_paths_are_resolved_against_their_file() {
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
fn invalid_file_is_reported_with_position() {
    let config = ["--config=@/k.yaml"];
    check(
        &[("k.yaml", "maxPods: 1\n")],
        &config,
        &[],
        "error: @/k.yaml: kind must be \"KubeletConfiguration\", got absent",
    );
    check(
        &[(
            "k.yaml",
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1\n",
        )],
        &config,
        &[],
        "error: @/k.yaml: apiVersion must be \"kubelet.config.k8s.io/v1beta1\", got \"kubelet.config.k8s.io/v1\"",
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
        "error: @/k.yaml: cannot read: No such file or directory (os error 2)",
    );
    check(
        &[("d/a.conf", "maxPods: 1\n")],
        &["--config-dir=@/d"],
        &[],
        "error: @/d/a.conf: kind must be \"KubeletConfiguration\", got absent",
    );
    check(
        &[],
        &["--config-dir=@/d"],
        &[],
        "error: @/d: cannot read: No such file or directory (os error 2)",
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
fn type_errors_do_not_hide_others_or_show_passwords() {
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
         \n  @/k.yaml: staticPodURLHeader.Authorization: must be a list of values for each name, for example Accept: [text/plain] (line 9, column 37)\
         \n  @/k.yaml: featureGates.Nope: unknown feature gate Nope; remove it\
         \n  @/k.yaml: port: must be between 1 and 65535, got -1\
         \n  @/k.yaml: staticPodURL: must be an http:// or https:// URL",
    );
}

#[test]
fn duplicate_key_uses_last_value_with_warning() {
    let files = [("k.yaml", "HEAD\nmaxPods: 50\nmaxPods: 60\n")];
    check(&files, &["--config=@/k.yaml"], &["maxPods"], "maxPods=60");
    check_warnings(
        &files,
        &["--config=@/k.yaml"],
        &[
            "@/k.yaml: line 4, column 1: duplicate mapping key: maxPods; the last value is used, remove the others",
        ],
    );
}

#[test]
fn too_large_file_is_rejected() {
    check(
        &[],
        &["--config=/dev/zero"],
        &[],
        "error: /dev/zero: larger than 1048576 bytes",
    );
}

#[test]
fn invalid_node_flags_are_rejected_by_load() {
    for (flag, expected) in [
        (
            "--node-ip=foo",
            "error: --node-ip=\"foo\": must be one IP address",
        ),
        (
            "--hostname-override=A_B",
            "error: node name \"a_b\" is not a DNS name",
        ),
        (
            "--cloud-provider=aws",
            "error: --cloud-provider: in-tree cloud provider \"aws\" was removed; set external or remove \
             the flag",
        ),
    ] {
        let (_, result) = try_load(&[], &[flag]);
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
fn credential_provider_flags_require_each_other() {
    let (config, programs) = (
        "--image-credential-provider-config=/c.yaml",
        "--image-credential-provider-bin-dir=/bin",
    );
    let rejected = "error: --image-credential-provider-config: set both this flag and \
                   --image-credential-provider-bin-dir, or neither";
    check(&[], &[config], &[], rejected);
    check(&[], &[programs], &[], rejected);
    check(&[], &[config, programs], &["maxPods"], "maxPods=110");
}

#[test]
fn bootstrap_kubeconfig_requires_kubeconfig() {
    let bootstrap = "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf";
    check(
        &[],
        &[bootstrap],
        &[],
        "error: --bootstrap-kubeconfig: requires --kubeconfig, the file for the obtained credentials",
    );
    let kubeconfig = "--kubeconfig=/etc/kubernetes/kubelet.conf";
    check(&[], &[bootstrap, kubeconfig], &["maxPods"], "maxPods=110");
    check(&[], &["--kubeconfig="], &["maxPods"], "maxPods=110");
}

#[test]
fn reserved_node_labels_are_rejected() {
    let rejected = |label: &str| {
        format!(
            "error: --node-labels: {label:?} is in a reserved Kubernetes namespace; use \
             kubelet.kubernetes.io/, node.kubernetes.io/ or your own domain"
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
            &rejected(label),
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
fn unknown_and_unimplemented_fields_warn_once() {
    check_warnings(
        &[(
            "k.yaml",
            "HEAD\nmaxPodz: 3\nauthentication: {x509: {clientCA: a}}\nmaxPods: 50\niptablesDropBit: 14\nport: 10250\n\
             memoryThrottlingFactor: 0.8\nmemorySwap: {swapBehavior: LimitedSwap}\n",
        )],
        &[
            "--config=@/k.yaml",
            "--qos-reserved=memory=50%",
            "--exit-on-lock-contention",
            "--feature-gates=EventedPLEG=true,EnvFiles=true,WatchList=true,NFTablesProxyMode=true",
            "--pod-infra-container-image=pause",
        ],
        &[
            "@/k.yaml: authentication.x509.clientCA: unknown field (line 4, column 35) ignored; remove or correct it",
            "@/k.yaml: maxPodz: unknown field (line 3, column 10) ignored; remove or correct it",
            "@/k.yaml: iptablesDropBit: ignored: no effect in the Go kubelet either",
            "--qos-reserved: qosReserved: no effect without feature gate QOSReserved",
            "@/k.yaml: memoryThrottlingFactor: no effect without feature gate MemoryQoS",
            "--feature-gates: featureGates.EventedPLEG: set to true; not implemented in this version",
            "--feature-gates: featureGates: NFTablesProxyMode, WatchList: no effect in a kubelet",
            "--exit-on-lock-contention: not implemented: the agent keeps the lock until it exits",
            "--pod-infra-container-image: ignored: no longer has an effect; remove it",
        ],
    );
}

#[test]
fn all_violations_are_reported_with_their_origin() {
    check(
        &[(
            "k.yaml",
            "HEAD\nimageGCLowThresholdPercent: 90\nhairpinMode: maybe\nclusterDNS: [10.0.0.1, x]\nlogging: {format: xml}\n",
        )],
        &["--config=@/k.yaml", "--oom-score-adj=-2000"],
        &[],
        "error: invalid configuration:\
         \n  --oom-score-adj: oomScoreAdj: must be between -1000 and 1000, got -2000\
         \n  @/k.yaml: imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent (85), got 90\
         \n  @/k.yaml: hairpinMode: must be one of none, hairpin-veth, promiscuous-bridge, got \"maybe\"\
         \n  @/k.yaml: logging.format: must be one of text, json, got \"xml\"\
         \n  @/k.yaml: clusterDNS[1]: not an IP address: \"x\"",
    );
}

#[test]
fn each_validation_rule_is_enforced() {
    let rule = |body: &str, expected: &str| {
        let (_, result) = try_load(
            &[("k.yaml", &format!("HEAD\n{body}\n"))],
            &["--config=@/k.yaml"],
        );
        let error = result
            .err()
            .map_or_else(|| "accepted".to_owned(), |e| e.to_string());
        let last = error.lines().last().unwrap_or_default();
        assert!(
            last.contains(expected),
            "{body}: {error}\nexpected {expected}"
        );
    };
    rule("nodeLeaseDurationSeconds: -1", "must be 1 or more");
    rule("systemCgroups: /x", "systemCgroups: requires cgroupRoot");
    rule("kubeAPIQPS: -1", "kubeAPIQPS: must be 0 or more, got -1");
    rule("healthzPort: 70000", "between 0 and 65535");
    rule(
        "imageMaximumGCAge: 1m",
        "must be more than imageMinimumGCAge (2m0s), got 1m0s",
    );
    rule("iptablesMasqueradeBit: 32", "between 0 and 31");
    rule("nodeStatusMaxImages: -2", "must be -1 or more");
    rule("maxParallelImagePulls: 0", "must be 1 or more");
    rule(
        "maxParallelImagePulls: 2\nserializeImagePulls: true",
        "requires serializeImagePulls: false",
    );
    rule("runOnce: true", "run-once mode was removed");
    rule(
        "registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: now}]",
        "registerWithTaints[0].timeAdded: must not be set",
    );
    rule(
        "topologyManagerScope: node",
        "must be one of container, pod",
    );
    rule(
        "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {align: \"true\"}",
        "topologyManagerPolicyOptions: unknown Topology Manager Policy option: \"align\"",
    );
    rule(
        "cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}",
        "cpuManagerPolicyOptions: None policy: received unsupported \
         options=map[full-pcpus-only:true]; remove them, or set cpuManagerPolicy: static",
    );
    rule(
        "cpuManagerPolicy: static",
        "cpuManagerPolicy: [cpumanager] the static policy requires systemreserved.cpu + \
         kubereserved.cpu to be greater than zero; set cpu in systemReserved",
    );
    for (options, expected) in [
        (
            "x: word",
            "unknown CPU Manager Policy option: \"x\"; remove it",
        ),
        (
            "full-pcpus-only: \"on\"",
            "parsing \"on\": invalid syntax; set \"true\" or \"false\"",
        ),
        (
            "align-by-socket: \"true\"",
            "not enabled, but option \"align-by-socket\" provided; enable the feature gate \
             CPUManagerPolicyAlphaOptions",
        ),
        (
            "distribute-cpus-across-numa: \"true\", prefer-align-cpus-by-uncorecache: \"true\"",
            "can not be used at the same time; remove one of them",
        ),
    ] {
        rule(
            &format!(
                "cpuManagerPolicy: static\nkubeReserved: {{cpu: 100m}}\n\
                 cpuManagerPolicyOptions: {{{options}}}"
            ),
            expected,
        );
    }
    rule(
        "cpuManagerPolicy: static\nkubeReserved: {cpu: 100m}\n\
         featureGates: {CPUManagerPolicyAlphaOptions: true}\n\
         cpuManagerPolicyOptions: {align-by-socket: \"true\"}\n\
         topologyManagerPolicy: single-numa-node",
        "remove align-by-socket, or set another topologyManagerPolicy",
    );
    for (entries, expected) in [
        (
            "{numaNode: 0, limits: {cpu: 1m}}",
            "reservedMemory[0]: the limit type \"cpu\" for NUMA node 0 is not supported; set \
             memory or hugepages-<size>",
        ),
        (
            "{numaNode: 1, limits: {memory: 0Mi}}",
            "reservedMemory[0]: memory for NUMA node 1 must be more than 0, got 0",
        ),
        (
            "{numaNode: 1, limits: {memory: much}}",
            "reservedMemory[0]: memory: not a quantity: \"much\"",
        ),
        (
            "{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 0, limits: {memory: 1Gi}}",
            "reservedMemory[1]: duplicate value for NUMA node 0 and resource \"memory\"",
        ),
        (
            "{numaNode: -1, limits: {memory: 1Gi}}",
            "reservedMemory[0]: NUMA node -1 is negative",
        ),
    ] {
        rule(&format!("reservedMemory: [{entries}]"), expected);
    }
    rule(
        "memoryManagerPolicy: Static",
        "reservedMemory: the total amount \"0\" of type \"memory\" is not equal to the value \
         \"100Mi\" determined by Node Allocatable feature",
    );
    rule(
        "memoryManagerPolicy: Static\nsystemReserved: {memory: 1Gi}\n\
         reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, \
         {numaNode: 1, limits: {memory: 1Gi}}]",
        "reservedMemory: the total amount \"2Gi\" of type \"memory\" is not equal to the value \
         \"1124Mi\"",
    );
    rule("shutdownGracePeriod: 500ms", "must be 0s or at least 1s");
    rule(
        "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s",
        "must not be more than shutdownGracePeriod (10s)",
    );
    rule(
        "shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]",
        "cannot be set together with shutdownGracePeriod",
    );
    rule(
        "memorySwap: {swapBehavior: Much}",
        "must be one of NoSwap, LimitedSwap",
    );
    rule(
        "crashLoopBackOff: {maxContainerRestartPeriod: 10m}",
        "must be between 1s and 5m0s, got 10m0s",
    );
    rule("enforceNodeAllocatable: [pods, pods]", "duplicate \"pods\"");
    rule(
        "enforceNodeAllocatable: [none, pods]",
        "\"none\" must be the only entry",
    );
    rule(
        "enforceNodeAllocatable: [kube-reserved]",
        "requires kubeReservedCgroup",
    );
    rule("cgroupsPerQOS: false", "requires cgroupsPerQOS: true");
    rule(
        "preloadedImagesVerificationAllowlist: [a]",
        "requires imagePullCredentialsVerificationPolicy",
    );
    rule(
        "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n\
         preloadedImagesVerificationAllowlist: [\"r.io/a:1\"]",
        "neither tag nor digest is accepted in an image reference: r.io/a:1",
    );
    rule("reservedSystemCPUs: 3-1", "not a CPU list");
    rule("reservedSystemCPUs: 0-4000000000", "not a CPU list");
    rule("qosReserved: {cpu: 5%}", "cannot reserve \"cpu\"");
    rule(
        "qosReserved: {memory: \"101%\"}",
        "memory: must be between 0% and 100%, got \"101%\"",
    );
    rule(
        "qosReserved: {memory: \"50\"}",
        "must be between 0% and 100%",
    );
    rule(
        "reservedSystemCPUs: 0-1\nkubeReservedCgroup: /k",
        "cannot be set together with systemReservedCgroup",
    );
    rule("memoryThrottlingFactor: 1.5", "at most 1");
    rule(
        "memoryReservationPolicy: TieredReservation",
        "requires the feature gate MemoryQoS",
    );
    rule(
        "enableSystemLogQuery: true\nenableSystemLogHandler: false",
        "requires enableSystemLogHandler",
    );
    rule("containerLogMaxWorkers: 0", "must be 1 or more");
    rule("containerLogMonitorInterval: 1s", "must be 3s or more");
    rule("containerLogMaxFiles: 1", "must be 2 or more");
    rule("containerLogMaxSize: 10 MB", "set for example 10Mi");
    rule("containerLogMaxSize: 500m", "not a number of bytes");
    rule("podLogsDir: /var/log/../x", "must not contain");
    rule("podLogsDir: /var/log/p\u{f6}ds", "must be ASCII");
    rule(
        "reservedMemory: [{numaNode: 0, limits: {memory: 0}}]",
        "expected a string",
    );
    rule(
        "reservedMemory: [{numaNode: 0, limits: {memory: \"0\"}}]",
        "must be more than 0, got 0",
    );
    rule("userNamespaces: {idsPerPod: 100}", "multiple of 65536");
    rule(
        "tracing: {samplingRatePerMillion: 2000000}",
        "between 0 and 1000000",
    );
    rule(
        "tracing: {endpoint: \"http://localhost:4317\"}",
        "Options are none, dns, unix, or unix-abstract", // lang: keep
    );
    rule(
        "staticPodURL: ftp://x",
        "must be an http:// or https:// URL",
    );
    rule(
        "containerRuntimeEndpoint: tcp://1.2.3.4:5",
        "must be a Unix socket",
    );
    rule(
        "containerRuntimeEndpoint: unix://relative.sock",
        "must be a Unix socket",
    );
    rule(
        "allowedUnsafeSysctls: [\"!!\"]",
        "allowedUnsafeSysctls: \"!!\" is not a sysctl name",
    );
    rule(
        "systemReserved: {cpu: foo}",
        "systemReserved: cpu: not a quantity: \"foo\"",
    );
    rule(
        "kubeReserved: {memory: \"-1Gi\"}",
        "kubeReserved: memory: not a quantity: \"-1Gi\"",
    );
    rule(
        "evictionHard: {memory.available: lots}",
        "evictionHard: memory.available: invalid value \"lots\"",
    );
    rule(
        "evictionHard: {pid.available: 101%}",
        "invalid value \"101%\"",
    );
    rule("evictionHard: {bogus.signal: 5%}", "got \"bogus.signal\"");
    rule(
        "evictionHard: {memory.available: -1, bogus: 5%}\nevictionSoft: {pid.available: 5%}",
        "evictionSoft: pid.available requires a period in evictionSoftGracePeriod",
    );
    rule(
        "evictionSoft: {memory.available: 5%}",
        "memory.available requires a period in evictionSoftGracePeriod",
    );
    rule(
        "evictionSoftGracePeriod: {memory.available: soon}",
        "invalid value \"soon\"; set for example 90s",
    );
    rule(
        "evictionMinimumReclaim: {memory.available: 0%}",
        "invalid value \"0%\"",
    );
    rule(
        "evictionSoft: {memory.available: 5%, nodefs.available: 0%}\n\
         evictionSoftGracePeriod: {memory.available: 90s}\n\
         evictionMinimumReclaim: {imagefs.available: 0}\nevictionHard: {pid.available: 100%}"
            .replace("available: 0}", "available: \"0\"}")
            .as_str(),
        "accepted",
    );
    rule("cpuCFSQuotaPeriod: 2s", "between 1ms and 1s");
    rule("maxPods: 20", "accepted");
}

#[test]
fn field_table_lists_each_field_once() {
    let config = KubeletConfiguration {
        tracing: Some(Tracing::default()),
        ..KubeletConfiguration::default()
    };
    let mut have = fields::paths_of(&config).expect("serializable");
    let mut listed: Vec<_> = fields::FIELDS.iter().map(|f| f.path.to_owned()).collect();
    have.sort();
    listed.sort();
    assert_eq!(have, listed);
}

#[test]
fn defaults_are_valid_and_survive_round_trip() {
    let config = KubeletConfiguration::default();
    let text = serde_json::to_string(&config).expect("serializable");
    let back: KubeletConfiguration = serde_json::from_str(&text).expect("readable");
    assert_eq!(config, back);
    let (_, loaded) = try_load(&[("k.yaml", "HEAD\n")], &["--config=@/k.yaml"]);
    let loaded = loaded.expect("valid");
    assert_eq!(loaded.kubelet, config);
    assert_eq!(loaded.warnings, []);
}
