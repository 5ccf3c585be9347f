//! Tables of environments, expansion and field references.

use serde_json::{Value, json};

use super::*;

#[test]
fn references_expand_as_upstream() {
    let check = |text: &str, expected: &str| {
        let value = expand(text, |name| match name {
            "A" => Some("1"),
            "EMPTY" => Some(""),
            "REF" => Some("$(A)"),
            _ => None,
        });
        assert_eq!(value, expected, "{text:?}");
    };
    check("plain", "plain");
    check("$(A)", "1");
    check("<$(A)$(A)>", "<11>");
    check("$(EMPTY)x", "x");
    check("$(REF)", "$(A)");
    check("$(NONE)", "$(NONE)");
    check("$()", "$()");
    check("$$(A)", "$(A)");
    check("$$$(A)", "$1");
    check("$$$$(A)", "$$(A)");
    check("$A ${A} 5$", "$A ${A} 5$");
    check("$(A", "$(A");
    check("$(A$(A)", "$(A$(A)");
    check("$é(A)", "$é(A)");
    check("$$", "$");
}

struct Case {
    pod: Pod,
    node: NodeFacts,
    sources: EnvSources,
    files: EnvFiles,
    ips: Vec<IpAddr>,
}

fn case(container: Value) -> Case {
    let pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u",
            "labels": {"app": "web"}, "annotations": {"a/b": "note"},
        },
        "spec": {
            "serviceAccountName": "robot",
            "containers": [container, {
                "name": "side",
                "resources": {"limits": {"cpu": "250m"}, "requests": {"memory": "1Gi"}},
            }],
        },
    }));
    Case {
        pod: pod.expect("pod"),
        node: NodeFacts {
            node_name: "node-1".to_owned(),
            node_ips: vec![
                "192.0.2.1".parse().expect("ip"),
                "2001:db8::1".parse().expect("ip"),
            ],
            allocatable_cpu_milli: 3500,
            allocatable_memory: 1 << 30,
            ..NodeFacts::default()
        },
        sources: EnvSources::default(),
        files: EnvFiles::default(),
        ips: vec![
            "10.0.0.7".parse().expect("ip"),
            "fd00::7".parse().expect("ip"),
        ],
    }
}

impl Case {
    fn line(&self) -> String {
        let env = environment(EnvInput {
            pod: &self.pod,
            container: &self.pod.containers()[0],
            pod_ips: &self.ips,
            node: &self.node,
            sources: &self.sources,
            files: &self.files,
        });
        match env {
            Ok(env) => env
                .iter()
                .map(|(n, v)| format!("{n}={v}"))
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        }
    }
}

fn check(container: Value, expected: &str) {
    assert_eq!(case(container).line(), expected);
}

fn field(path: &str) -> Value {
    json!({"name": "c", "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]})
}

fn resource(selector: Value) -> Value {
    json!({
        "name": "c",
        "resources": {"limits": {"memory": "100Mi"}, "requests": {"cpu": "1500m"}},
        "env": [{"name": "X", "valueFrom": {"resourceFieldRef": selector}}],
    })
}

#[test]
fn redefined_variable_keeps_position() {
    check(
        json!({"name": "c", "env": [
            {"name": "LATE", "value": "$(A)"},
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)$(A)"},
            {"name": "A", "value": "2$(A)"},
            {"name": "C", "value": "$(A)"},
            {"name": "NONE"},
        ]}),
        "LATE=$(A) A=21 B=11 C=21 NONE=",
    );
}

#[test]
fn pod_ips_start_with_primary_family_of_node() {
    let mut case = case(field("status.podIPs"));
    case.node.node_ips.reverse();
    case.ips.push("10.0.0.8".parse().expect("ip"));
    assert_eq!(case.line(), "X=fd00::7,10.0.0.7");
    case.pod.spec.as_mut().expect("spec").containers[0] =
        serde_json::from_value(field("status.podIP")).expect("container");
    assert_eq!(case.line(), "X=fd00::7");
    case.ips.remove(1);
    assert_eq!(case.line(), "X=10.0.0.7");
}

#[test]
fn downward_api_fields_have_values_of_pod_and_node() {
    check(field("metadata.name"), "X=p");
    check(field("metadata.namespace"), "X=ns");
    check(field("metadata.uid"), "X=u");
    check(field("metadata.labels['app']"), "X=web");
    check(field("metadata.labels['none']"), "X=");
    check(field("metadata.annotations['a/b']"), "X=note");
    check(field("spec.nodeName"), "X=node-1");
    check(field("spec.serviceAccountName"), "X=robot");
    check(field("status.hostIP"), "X=192.0.2.1");
    check(field("status.hostIPs"), "X=192.0.2.1,2001:db8::1");
    check(field("status.podIP"), "X=10.0.0.7");
    check(field("status.podIPs"), "X=10.0.0.7,fd00::7");
    check(
        field("status.phase"),
        "env[X].valueFrom.fieldRef: unsupported field \"status.phase\"",
    );
    check(
        field("spec.containers['x']"),
        "env[X].valueFrom.fieldRef: unsupported field \"spec.containers['x']\"",
    );
}

#[test]
fn host_network_pod_has_address_of_node() {
    let mut case = case(field("status.podIP"));
    case.ips.clear();
    assert_eq!(case.line(), "X=");
    if let Some(spec) = &mut case.pod.spec {
        spec.host_network = Some(true);
    }
    assert_eq!(case.line(), "X=192.0.2.1");
}

#[test]
fn resource_fields_use_divisor_and_default_to_node() {
    check(
        resource(json!({"resource": "limits.memory"})),
        "X=104857600",
    );
    check(
        resource(json!({"resource": "limits.memory", "divisor": "1Mi"})),
        "X=100",
    );
    check(
        resource(json!({"resource": "requests.memory", "divisor": "1Mi"})),
        "X=100",
    );
    check(resource(json!({"resource": "requests.cpu"})), "X=2");
    check(
        resource(json!({"resource": "requests.cpu", "divisor": "1m"})),
        "X=1500",
    );
    check(resource(json!({"resource": "limits.cpu"})), "X=4");
    check(
        resource(json!({"resource": "limits.cpu", "divisor": "1m"})),
        "X=3500",
    );
    check(
        resource(json!({"resource": "requests.hugepages-2Mi"})),
        "X=0",
    );
    check(
        resource(json!({"resource": "limits.cpu", "containerName": "side", "divisor": "1m"})),
        "X=250",
    );
    check(
        resource(json!({"resource": "limits.memory", "containerName": "side"})),
        "X=1073741824",
    );
    check(
        resource(json!({"resource": "limits.cpu", "containerName": "none"})),
        "env[X].valueFrom.resourceFieldRef: container none not found",
    );
    check(
        resource(json!({"resource": "limits.gpu"})),
        "env[X].valueFrom.resourceFieldRef: unsupported container resource \"limits.gpu\"",
    );
    check(
        resource(json!({"resource": "limits.cpu", "divisor": "one"})),
        "env[X].valueFrom.resourceFieldRef: quantity \"one\" does not start with a decimal number",
    );
}

#[test]
fn missing_limit_defaults_to_pod_level_then_node() {
    let check = |pod: Value, selector: &str, expected: &str| {
        let mut case = case(resource(json!({"resource": selector, "divisor": "1m"})));
        if let Some(spec) = &mut case.pod.spec {
            spec.resources = Some(serde_json::from_value(pod).expect("resources"));
        }
        assert_eq!(case.line(), expected);
    };
    check(json!({"limits": {"cpu": "1250m"}}), "limits.cpu", "X=1250");
    check(json!({"limits": {"cpu": "0"}}), "limits.cpu", "X=3500");
    check(json!({"limits": {"memory": "1Gi"}}), "limits.cpu", "X=3500");
    // the request of the container takes precedence over the pod-level limit
    check(json!({"limits": {"cpu": "9"}}), "requests.cpu", "X=1500");
    // bytes are rounded up to whole ones
    check(
        json!({"limits": {"memory": "1Ki"}}),
        "limits.memory",
        "X=104857600",
    );
}

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn config_map(pairs: &[(&str, &str)]) -> Arc<ConfigMapContent> {
    let data = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).into()));
    Arc::new(ConfigMapContent {
        data: data.collect(),
        ..ConfigMapContent::default()
    })
}

fn secret(pairs: &[(&str, &[u8])]) -> Arc<SecretContent> {
    let data = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).into()));
    Arc::new(SecretContent {
        data: data.collect(),
        ..SecretContent::default()
    })
}

fn from_objects() -> Case {
    let mut case = case(json!({
        "name": "c",
        "envFrom": [
            {"configMapRef": {"name": "conf"}, "prefix": "CM_"},
            {"secretRef": {"name": "gone", "optional": true}},
        ],
        "env": [
            {"name": "CM_B", "value": "own-$(CM_A)-$(SVC_HOST)"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "pw", "key": "k"}}},
            {"name": "SKIPPED", "valueFrom":
                {"configMapKeyRef": {"name": "conf", "key": "z", "optional": true}}},
        ],
    }));
    case.sources
        .config_maps
        .insert("conf".to_owned(), config_map(&[("A", "1"), ("B", "2")]));
    case.sources
        .secrets
        .insert("pw".to_owned(), secret(&[("k", b"s3cret")]));
    case.sources.services = data(&[("KEY", "not-this"), ("SVC_HOST", "10.96.0.1")]);
    case
}

#[test]
fn variables_are_ordered_env_from_env_services() {
    let mut case = from_objects();
    assert_eq!(
        case.line(),
        "CM_A=1 CM_B=own-1-10.96.0.1 KEY=s3cret SVC_HOST=10.96.0.1"
    );
    case.sources
        .secrets
        .insert("pw".to_owned(), secret(&[("k", b"no\xfftext")]));
    assert!(case.line().contains("KEY=no\u{fffd}text"));
    case.sources.secrets.insert("pw".to_owned(), secret(&[]));
    assert_eq!(case.line(), "couldn't find key k in Secret ns/pw");
    case.sources.config_maps.clear();
    assert_eq!(case.line(), "configmap \"conf\" not found");
}

#[test]
fn commands_expand_from_environment() {
    let env = [("A".to_owned(), "1".to_owned())];
    let words = vec![
        "run".to_owned(),
        "--n=$(A)".to_owned(),
        "$(B)$$(A)".to_owned(),
    ];
    assert_eq!(
        expand_words("args", Some(&words), &env).expect("words"),
        ["run", "--n=1", "$(B)$(A)"]
    );
    assert_eq!(expand_words("args", None, &env), Ok(Vec::new()));
}

#[test]
fn doubling_variables_are_limited() {
    let double =
        |n: usize| json!({"name": format!("V{n}"), "value": format!("$(V{0})$(V{0})", n - 1)});
    let mut env = vec![json!({"name": "V0", "value": "0123456789"})];
    env.extend((1..64).map(double));
    let case = case(json!({"name": "c", "env": env}));
    let too_large = "env: larger than 8 MiB, the limit of Linux";
    assert_eq!(case.line(), too_large);
    let large = [("A".to_owned(), "x".repeat(1 << 20))];
    let error = |words: Vec<String>| {
        let words = expand_words("args", Some(&words), &large);
        words.expect_err("too large").to_string()
    };
    let too_large = "args: larger than 8 MiB, the limit of Linux";
    assert_eq!(error(vec!["$(A)".repeat(1 << 20)]), too_large);
    assert_eq!(error(vec!["$(A)".to_owned(); 1 << 20]), too_large);
}

#[test]
fn object_with_many_keys_is_fast() {
    let mut case = case(json!({"name": "c", "envFrom": [
        {"configMapRef": {"name": "conf"}}, {"configMapRef": {"name": "conf"}},
    ]}));
    let keys: Vec<_> = (0..150_000).map(|n| n.to_string()).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), "")).collect();
    let map = config_map(&pairs);
    case.sources.config_maps.insert("conf".to_owned(), map);
    // a quadratic algorithm would time out
    assert_eq!(case.line().split(' ').count(), keys.len());
}

#[test]
fn file_key_ref_reads_file_of_pod() {
    let variable = |key: &str, optional: bool| {
        json!({"name": "c", "env": [
            {"name": "A", "value": "before"},
            {"name": "X", "valueFrom": {"fileKeyRef": {
                "volumeName": "config", "path": "app.env", "key": key, "optional": optional,
            }}},
            {"name": "B", "value": "got $(X)"},
        ]})
    };
    let with_file = |container: Value, text: Result<&str, &str>| {
        let mut case = case(container);
        let key = EnvFileKey {
            volume: "config".to_owned(),
            path: "app.env".to_owned(),
        };
        let file = EnvFile {
            host_path: "/vol/config/app.env".to_owned(),
            text: text.map(str::to_owned).map_err(str::to_owned),
        };
        case.files.0.insert(key, file);
        case
    };
    let text = Ok("# by init\nKEY='va$(A)lue'\nEMPTY=''\n");
    let check = |key: &str, optional, text, expected: &str| {
        let case = with_file(variable(key, optional), text);
        assert_eq!(case.line(), expected, "{key}");
    };
    check("KEY", false, text, "A=before X=va$(A)lue B=got va$(A)lue");
    check("NONE", true, text, "A=before B=got $(X)");
    let missing = |key: &str| {
        format!("environment variable key {key:?} not found in file \"/vol/config/app.env\"")
    };
    check("NONE", false, text, &missing("NONE"));
    check("EMPTY", false, text, &missing("EMPTY"));
    // a missing file is an error even if the key is optional
    check("KEY", true, Err("no such file"), "couldn't parse env file");
    check("KEY", false, Ok("KEY=bare"), "couldn't parse env file");

    assert_eq!(
        case(variable("KEY", true)).line(),
        "cannot find the volume \"config\" referenced by FileKeyRef"
    );
    let mut gate_off = with_file(variable("KEY", false), text);
    gate_off.node.env_files = false;
    assert_eq!(gate_off.line(), "A=before X= B=got ");
}
