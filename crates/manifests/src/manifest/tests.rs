//! Tables of manifests and their errors.

use windlass_types::PodExt;

use super::{MAX_MANIFEST_BYTES, Origin, parse};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: a, image: x}\n";

fn check(text: &[u8], expected: &str) {
    let origin = Origin::File("/etc/m/web.yaml".into());
    let line = match parse(text, &origin) {
        Ok(pods) => pods
            .iter()
            .map(|p| {
                let unknown = p.unknown_fields.join(",");
                format!("{}@{}:{} [{unknown}]", p.pod.name(), p.document, p.path)
            })
            .collect::<Vec<_>>()
            .join(" "),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(line, expected);
}

#[test]
fn pods_are_parsed_from_pod_list_and_documents() {
    check(POD.as_bytes(), "web@0: []");
    check(
        b"apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
        "a@0:items[0] [] b@0:items[1] []",
    );
    check(
        b"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n",
        "a@0:items[0] []",
    );
    check(
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n",
        "a@0: [] b@1: []",
    );
    check(
        br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"},"spec":{"containers":[]}}"#,
        "j@0: []",
    );
    check(b"apiVersion: v1\nkind: PodList\nitems: []\n", "");
}

#[test]
fn unknown_fields_are_listed_with_paths() {
    check(
        b"apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [], tolerationz: []}\n",
        "a@0:items[0] [items[0].spec.tolerationz]",
    );
}

#[test]
fn errors_name_file_line_field_and_fix() {
    check(
        b"",
        "error: /etc/m/web.yaml: contains no object (add a Pod, or remove the file)",
    );
    check(
        b"# nothing\n---\n",
        "error: /etc/m/web.yaml: contains no object (add a Pod, or remove the file)",
    );
    check(
        b"\x7fELF\x02\x01\xff",
        "error: /etc/m/web.yaml: not UTF-8 text: invalid byte at offset 6 (replace it with a Pod in YAML or JSON)",
    );
    check(
        b"apiVersion: apps/v1\nkind: Deployment\n",
        "error: /etc/m/web.yaml: line 1, column 13: apiVersion: found apiVersion \"apps/v1\" and kind \"Deployment\" (only apiVersion: v1 with kind: Pod, PodList or List of Pods can run without an API server)",
    );
    check(
        b"apiVersion: v1\nkind: pod\n",
        "error: /etc/m/web.yaml: line 2, column 7: kind: found apiVersion \"v1\" and kind \"pod\" (only apiVersion: v1 with kind: Pod, PodList or List of Pods can run without an API server)",
    );
    check(
        b"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service}\n",
        "error: /etc/m/web.yaml: line 4, column 26: items[0].kind: found apiVersion \"v1\" and kind \"Service\" (only apiVersion: v1 with kind: Pod, PodList or List of Pods can run without an API server)",
    );
    check(
        b"just words",
        "error: /etc/m/web.yaml: line 1, column 1: found a string, expected a mapping with kind: Pod (write the field as the Pod API defines it)",
    );
    check(
        b"apiVersion: v1\nkind: PodList\nitems: {}\n",
        "error: /etc/m/web.yaml: line 3, column 8: items: found a mapping, expected a list of pods (write the field as the Pod API defines it)",
    );
    check(
        b"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: 5\n",
        "error: /etc/m/web.yaml: line 5, column 11: spec.containers[0].name: invalid type: integer `5`, expected a string (quote the value: YAML does not parse numbers, and words such as yes, no, on, off, y and n, as strings)",
    );
}

#[test]
fn manifest_over_max_size_is_rejected() {
    let text = vec![b' '; MAX_MANIFEST_BYTES as usize + 1];
    check(
        &text,
        "error: /etc/m/web.yaml: 10485761 bytes exceed the limit of 10485760 bytes (split it, or move the data out of the manifest)",
    );
}
