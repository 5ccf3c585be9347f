//! Validation, and the decisions for a pod.

use std::fmt;

use super::super::read_providers;
use super::*;

impl fmt::Display for AccountPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithoutToken => f.write_str("without token"),
            Self::WithToken(account) => write!(f, "with token of {account}"),
            Self::Skip => f.write_str("skip"),
        }
    }
}

fn errors(version: &str, attributes: &str, gate: bool) -> Vec<String> {
    let text = format!(
        "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders:\n\
         - {{name: p, matchImages: [r.io], defaultCacheDuration: 1m, \
         apiVersion: credentialprovider.kubelet.k8s.io/{version}, tokenAttributes: {{{attributes}}}}}\n"
    );
    match read_providers(text.as_bytes(), &mut BTreeSet::new(), gate) {
        Ok(read) => read.warnings,
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn token_attributes_invalid_have_upstreams_texts() {
    let good = "serviceAccountTokenAudience: a, requireServiceAccount: true, cacheType: Token";
    let check = |attributes: &str, expected: &[&str]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|text| format!("providers[0].tokenAttributes{text}"))
            .collect();
        assert_eq!(errors("v1", attributes, true), expected, "{attributes}");
    };
    check(good, &[]);
    check(
        "",
        &[
            ".serviceAccountTokenAudience: Required value",
            ".requireServiceAccount: Required value",
            ".cacheType: Required value: cacheType is required to be set when tokenAttributes is \
             specified. Supported values are: ServiceAccount, Token",
        ],
    );
    check(
        &good
            .replace("Token", "None")
            .replace("serviceAccountNoneA", "serviceAccountTokenA"),
        &[
            ".cacheType: Unsupported value: \"None\": supported values: \"ServiceAccount\", \"Token\"",
        ],
    );
    let with = |more: &str| format!("{good}, {more}");
    check(
        &with(
            "requiredServiceAccountAnnotationKeys: [r.io/a, b], optionalServiceAccountAnnotationKeys: [c]",
        ),
        &[],
    );
    check(
        &with("requiredServiceAccountAnnotationKeys: [r.io/A, 'a b', a, a]"),
        &[
            ".requiredServiceAccountAnnotationKeys: Invalid value: \"a b\": must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character",
            ".requiredServiceAccountAnnotationKeys: Duplicate value: \"a\"",
        ],
    );
    check(
        &with("optionalServiceAccountAnnotationKeys: ['']"),
        &[
            ".optionalServiceAccountAnnotationKeys: Invalid value: \"\": name part must be non-empty",
        ],
    );
    check(
        &with(
            "requiredServiceAccountAnnotationKeys: [b, a, c], optionalServiceAccountAnnotationKeys: [c, b]",
        ),
        &[": Invalid value: [\"b\",\"c\"]: annotation keys cannot be both required and optional"],
    );
    check(
        &with("requiredServiceAccountAnnotationKeys: [a]").replace("true", "false"),
        &[
            ".requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be \
             false when requiredServiceAccountAnnotationKeys is set",
        ],
    );
    let beta = errors("v1beta1", good, true);
    assert_eq!(
        beta,
        [
            "providers[0].tokenAttributes: Forbidden: tokenAttributes is only supported for \
          credentialprovider.kubelet.k8s.io/v1 API version"
        ]
    );
}

#[test]
fn token_attributes_with_gate_off_are_rejected() {
    let good = "serviceAccountTokenAudience: a, requireServiceAccount: true, cacheType: Token";
    assert_eq!(
        errors("v1", good, false),
        [
            "providers[0].tokenAttributes: Forbidden: tokenAttributes is not supported when \
          KubeletServiceAccountTokenForCredentialProviders feature gate is disabled"
        ]
    );
}

fn attributes(require_account: bool) -> TokenAttributes {
    TokenAttributes {
        audience: "a".to_owned(),
        cache_type: CacheType::Token,
        require_account,
        required_keys: vec!["r".to_owned()],
        optional_keys: vec!["o".to_owned(), "p".to_owned()],
    }
}

#[test]
fn account_plan_by_attributes_and_pod() {
    let (required, optional) = (attributes(true), attributes(false));
    for (attributes, account, expected) in [
        (None, "", "without token"),
        (None, "robot", "without token"),
        (Some(&required), "robot", "with token of robot"),
        (Some(&required), "", "skip"),
        (Some(&optional), "robot", "with token of robot"),
        (Some(&optional), "", "without token"),
    ] {
        let plan = AccountPlan::new(attributes, account);
        assert_eq!(plan.to_string(), expected, "{attributes:?} {account}");
    }
}

#[test]
fn annotations_are_selected_by_required_and_optional_keys() {
    let of = |keys: &[&str]| -> BTreeMap<String, String> {
        let entry = |key: &&str| ((*key).to_owned(), format!("value of {key}"));
        keys.iter().map(entry).collect()
    };
    let attributes = attributes(true);
    assert_eq!(
        attributes.annotations(&of(&["r", "o", "x"])),
        Ok(of(&["r", "o"]))
    );
    assert_eq!(attributes.annotations(&of(&["r"])), Ok(of(&["r"])));
    let missing = attributes
        .annotations(&of(&["o"]))
        .expect_err("r is required");
    assert_eq!(missing.to_string(), "required annotation r not found");
}
