//! Tables of texts, their values and errors.

use serde_json::Value;
use windlass_types::Pod;

use super::{decode, documents, documents_with_duplicates, from_slice, locate};

fn check(text: &str, expected: &str) {
    let line = match documents(text.as_bytes()) {
        Ok(values) => values
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(" | "),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(line, expected, "for {text:?}");
}

#[test]
fn scalars_are_read_as_in_the_go_kubelet() {
    check("mode: 0644", r#"{"mode":420}"#);
    check("mode: 420", r#"{"mode":420}"#);
    check("mode: \"0644\"", r#"{"mode":"0644"}"#);
    check("a: yes\nb: off", r#"{"a":true,"b":false}"#);
    check("a: 'yes'", r#"{"a":"yes"}"#);
    check("a: 1.5\nb: 1.5Gi", r#"{"a":1.5,"b":"1.5Gi"}"#);
    check("a:\nb: ~", r#"{"a":null,"b":null}"#);
}

#[test]
fn json_that_is_not_yaml_is_read() {
    check(r#"{"a":{"b":[1,"x"]}}"#, r#"{"a":{"b":[1,"x"]}}"#);
    check("{\n\t\"a\": 1\n}", r#"{"a":1}"#);
    check("{\"a\": \"\\ud83d\\ude00\"}", "{\"a\":\"😀\"}");
}

#[test]
fn documents_keep_order_and_empty_ones_are_skipped() {
    check(
        "---\na: 1\n---\n---\n# nothing\n---\nb: 2\n",
        r#"{"a":1} | {"b":2}"#,
    );
    check("", "");
    check("# only a comment\n", "");
}

#[test]
fn syntax_errors_name_line_and_column() {
    let line = documents(b"a: 1\nb: [1, 2\nc: 3\n")
        .expect_err("unclosed")
        .to_string();
    assert!(line.starts_with("line "), "{line}");
    let line = documents(b"a: 1\na: 2\n")
        .expect_err("duplicate")
        .to_string();
    assert_eq!(line, "line 2, column 1: duplicate mapping key: a");
    let line = documents(b"{\"a\": 1, \"a\": 2}")
        .expect_err("duplicate in JSON")
        .to_string();
    assert!(line.contains("duplicate"), "{line}");
}

#[test]
fn lenient_parser_takes_last_duplicate_and_returns_error() {
    let text = b"a: 1\nb: {c: 1, c: 2}\na: 3\n";
    let (values, error) = documents_with_duplicates(text).expect("accepted");
    assert_eq!(values, [serde_json::json!({"a": 3, "b": {"c": 2}})]);
    let error = error.map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("line 2, column 11: duplicate mapping key: c")
    );
    let position = locate(text, 0, "a").map(|position| position.to_string());
    assert_eq!(position.as_deref(), Some("line 3, column 4"));
    assert!(documents_with_duplicates(b"a: 1\na: [\n").is_err());
    assert!(matches!(
        documents_with_duplicates(b"a: 1\n"),
        Ok((_, None))
    ));
}

#[test]
fn binary_content_is_rejected_with_offset() {
    let error = documents(b"ab\xff\xfe\x00").expect_err("not text");
    assert_eq!(
        error.to_string(),
        "not UTF-8 text: invalid byte at offset 2"
    );
}

#[test]
fn alias_bomb_is_rejected() {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..9 {
        let parent = level - 1;
        let list = vec![format!("*a{parent}"); 10].join(",");
        text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    assert!(documents(text.as_bytes()).is_err());
}

#[test]
fn deep_nesting_is_rejected() {
    let text = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(documents(text.as_bytes()).is_err());
    let object = format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000));
    assert!(documents(object.as_bytes()).is_err());
}

#[test]
fn type_error_names_field_and_line() {
    let text = b"metadata:\n  name: web\nspec:\n  containers:\n  - name: a\n    image: [x]\n";
    let error = from_slice::<Pod>(text).expect_err("image is a list");
    assert_eq!(
        error.to_string(),
        "line 6, column 12: spec.containers[0].image: invalid type: sequence, expected a string"
    );
}

#[test]
fn unknown_fields_are_returned_with_paths() {
    let value = documents(
        b"metadata: {name: web, lables: {}}\nspec:\n  containers: [{name: a, imagee: x}]\n",
    )
    .expect("YAML");
    let (_, unknown) = decode::<Pod>(&value[0]).expect("a pod");
    assert_eq!(unknown, ["metadata.lables", "spec.containers[0].imagee"]);
}

#[test]
fn missing_field_is_located_at_deepest_ancestor() {
    let text = b"# head\nspec:\n  containers:\n  - name: a\n  - name: b\n";
    let line = |path| locate(text, 0, path).map(|p| p.line);
    assert_eq!(line("spec.containers[1].image"), Some(5));
    assert_eq!(line("spec.containers[0].name"), Some(4));
    assert_eq!(line("metadata.name"), Some(2));
    assert_eq!(locate(b"a: [", 0, "a"), None);
}

#[test]
fn keys_with_dots_are_located() {
    let text = b"metadata:\n  annotations:\n    example.com/a: x\n    example.com: y\n";
    let line = |path| locate(text, 0, path).map(|p| p.line);
    assert_eq!(line("metadata.annotations.example.com/a"), Some(3));
    assert_eq!(line("metadata.annotations[example.com]"), Some(4));
}
