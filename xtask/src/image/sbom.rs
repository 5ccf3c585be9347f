//! SBOM of an image, as SPDX 2.3 in JSON: crates resolved by cargo and packages installed by dpkg.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};
use windlass_testbed::node_images::DebianPackage;
use windlass_testbed::oci::Image;

use xtask_run as run;

const NO_ASSERTION: &str = "NOASSERTION";

/// A crate or a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    name: String,
    version: String,
    /// SPDX expression, if declared.
    license: Option<String>,
    /// Package URL.
    url: String,
}

/// Returns Rust's standard library, with the version of the compiler.
///
/// # Errors
/// `rustc --version` fails.
pub(super) fn standard_library() -> anyhow::Result<Part> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let version = String::from_utf8(output.context("cannot run rustc")?.stdout)?;
    let version = version
        .split_whitespace()
        .nth(1)
        .context("rustc --version")?;
    Ok(Part {
        name: "rust-std".to_owned(),
        version: version.to_owned(),
        license: Some("MIT OR Apache-2.0".to_owned()),
        url: format!("pkg:generic/rust-std@{}", encoded(version)),
    })
}

/// Returns the crates linked into these packages of the workspace.
///
/// # Errors
/// `cargo metadata` fails or its output is incomplete.
pub(super) fn crates(packages: &[&str], target: &str) -> anyhow::Result<Vec<Part>> {
    let said = run::cargo_output(&[
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        target,
    ])?;
    linked(&serde_json::from_str(&said)?, packages)
}

/// Follows normal dependencies, without build and dev dependencies and procedural macros.
fn linked(metadata: &Value, packages: &[&str]) -> anyhow::Result<Vec<Part>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut by_id = BTreeMap::new();
    let mut waiting = Vec::new();
    for package in list(&metadata["packages"]) {
        let id = text(&package["id"]).context("a package without an id")?;
        let of_workspace = package["source"].is_null();
        if of_workspace
            && package["name"]
                .as_str()
                .is_some_and(|name| packages.contains(&name))
        {
            waiting.push(id.clone());
        }
        by_id.insert(id, package);
    }
    let nodes = list(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<_, _> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut parts = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let package = by_id.get(&id).with_context(|| format!("no package {id}"))?;
        let is_macro = |target: &Value| list(&target["kind"]).contains(&json!("proc-macro"));
        if list(&package["targets"]).iter().any(is_macro) {
            continue;
        }
        let name = text(&package["name"]).context("a package without a name")?;
        let version = text(&package["version"]).context("a package without a version")?;
        parts.insert(Part {
            url: format!("pkg:cargo/{name}@{}", encoded(&version)),
            // old syntax for OR, not valid in SPDX
            license: text(&package["license"]).map(|it| it.replace('/', " OR ")),
            name,
            version,
        });
        let node = nodes
            .get(id.as_str())
            .with_context(|| format!("{id} is not resolved"))?;
        for dependency in list(&node["deps"]) {
            let ordinary = list(&dependency["dep_kinds"])
                .iter()
                .any(|it| it["kind"].is_null());
            waiting.extend(text(&dependency["pkg"]).filter(|_| ordinary));
        }
    }
    Ok(parts.into_iter().collect())
}

/// Returns the Debian packages of an image from the system with this `os-release`. Their licenses
/// are in
/// `/usr/share/doc/<name>/copyright` of the image.
pub(super) fn packages(
    packages: &BTreeMap<String, DebianPackage>,
    system: &str,
) -> impl Iterator<Item = Part> {
    let says = |name: &str| {
        let mut lines = system.lines().filter_map(|line| line.split_once('='));
        let found = lines.find(|(key, _)| *key == name);
        found
            .map_or("", |(_, value)| value)
            .trim_matches('"')
            .to_owned()
    };
    let (vendor, release) = (says("ID"), says("VERSION_ID"));
    packages.iter().map(move |(name, package)| Part {
        url: format!(
            "pkg:deb/{vendor}/{}@{}?arch={}&distro={vendor}-{release}",
            encoded(name),
            encoded(&package.version),
            package.architecture
        ),
        name: name.clone(),
        version: package.version.clone(),
        license: None,
    })
}

/// Escapes a name or version for package URLs.
fn encoded(text: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(letter).collect()
}

/// Returns the SBOM of an image with this digest.
///
/// # Errors
/// The time of the image is out of range.
pub(super) fn document(
    image: &Image,
    digest: &str,
    parts: impl Iterator<Item = Part>,
) -> anyhow::Result<Vec<u8>> {
    let (name, version) = image
        .name
        .rsplit_once(':')
        .context("an image without a tag")?;
    let created = windlass_types::Timestamp::from_second(i64::try_from(image.epoch)?)?;
    let mut packages = vec![json!({
        "SPDXID": "SPDXRef-image",
        "name": name,
        "versionInfo": version,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": false,
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{ "algorithm": "SHA256", "checksumValue": digest.trim_start_matches("sha256:") }],
    })];
    let mut relations = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image")];
    for (index, part) in parts.enumerate() {
        let id = format!("SPDXRef-part-{index}");
        relations.push(relation("SPDXRef-image", "CONTAINS", &id));
        packages.push(json!({
            "SPDXID": id,
            "name": part.name,
            "versionInfo": part.version,
            "downloadLocation": NO_ASSERTION,
            "filesAnalyzed": false,
            "licenseDeclared": part.license.as_deref().unwrap_or(NO_ASSERTION),
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": part.url,
            }],
        }));
    }
    Ok(serde_json::to_vec_pretty(&json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image.name,
        // unique for each image, as SPDX requires
        "documentNamespace": format!("https://{name}/spdx/{}", digest.replace(':', "-")),
        "creationInfo": { "created": created.to_string(), "creators": ["Tool: cargo xtask image"] },
        "packages": packages,
        "relationships": relations,
    }))?)
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_only_builds_or_tests_is_not_in_the_list() {
        let package = |id: &str, source: Option<&str>| {
            json!({
                "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source,
            })
        };
        let dependency =
            |id: &str, kind: Option<&str>| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let mut derive = package("derive", Some("r"));
        derive["targets"] = json!([{ "kind": ["proc-macro"] }]);
        let metadata = json!({
            "packages": [package("ours", None), package("used", Some("r")), package("deep", Some("r")), derive,
                package("build", Some("r")), package("test", Some("r")), package("other", None)],
            "resolve": { "nodes": [
                { "id": "ours", "deps": [dependency("used", None), dependency("build", Some("build")),
                    dependency("test", Some("dev"))] },
                { "id": "used", "deps": [dependency("deep", None), dependency("derive", None)] },
                { "id": "deep", "deps": [] },
            ] },
        });
        let parts = linked(&metadata, &["ours"]).expect("parts");
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["deep", "ours", "used"]);
        assert_eq!(parts[0].url, "pkg:cargo/deep@1.0.0");
        assert_eq!(parts[0].license.as_deref(), Some("MIT OR Apache-2.0"));
    }

    #[test]
    fn sbom_lists_each_part_once_with_contains_relation() {
        let package = DebianPackage {
            version: "1:1.2~x+b1-3".into(),
            architecture: "amd64".into(),
        };
        let image = Image {
            name: "windlass.dev/x:1".into(),
            layer: Default::default(),
            runtime_config: Value::Null,
            epoch: 1_700_000_000,
            platform: windlass_testbed::platform::Platform::Amd64,
        };
        let known = BTreeMap::from([("libc6".to_owned(), package)]);
        let known = packages(&known, "NAME=x\nID=debian\nVERSION_ID=\"12\"\n");
        let text = document(&image, "sha256:ab", known).expect("a document");
        let document: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(document["creationInfo"]["created"], "2023-11-14T22:13:20Z");
        assert_eq!(
            document["documentNamespace"],
            "https://windlass.dev/x/spdx/sha256-ab"
        );
        assert_eq!(document["packages"][1]["versionInfo"], "1:1.2~x+b1-3");
        let url = &document["packages"][1]["externalRefs"][0]["referenceLocator"];
        let expected = "pkg:deb/debian/libc6@1:1.2~x%2Bb1-3?arch=amd64&distro=debian-12";
        assert_eq!(url, expected);
        assert_eq!(
            document["relationships"][1],
            relation("SPDXRef-image", "CONTAINS", "SPDXRef-part-0")
        );
        assert_eq!(document["packages"].as_array().map(Vec::len), Some(2));
    }
}
