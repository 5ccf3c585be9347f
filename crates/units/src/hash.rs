//! FNV-1a as in Go's `hash/fnv`, and the hashes that upstream builds on it.
//!
//! Upstream hashes a Go debug dump of an object (`DeepHashObject`). Here the object is always JSON
//! text, whose dump is the Go type of a byte slice and the bytes as decimal numbers.

use windlass_types::corev1::Container;

/// FNV-1a, 32 bit.
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, b| {
        (h ^ u32::from(*b)).wrapping_mul(0x0100_0193)
    })
}

/// FNV-1a, 64 bit.
pub fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// FNV-1a, 128 bit; Go prints its sum as 32 hex digits, high byte first.
pub fn fnv1a_128(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |h, b| {
            (h ^ u128::from(*b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
}

/// Returns the hash of a container definition (upstream `HashContainer`): of name and image only.
/// The runtime stores it in `io.kubernetes.container.hash`.
pub fn container_hash(container: &Container) -> u32 {
    let image = go_json_string(container.image.as_deref().unwrap_or_default());
    let name = go_json_string(&container.name);
    deep_hash_32(format!("{{\"image\":{image},\"name\":{name}}}").as_bytes())
}

/// Returns [`container_hash`] as in the annotation: lower-case hex without padding.
pub fn container_hash_text(container: &Container) -> String {
    format!("{:x}", container_hash(container))
}

/// FNV-1a-32 over Go's dump of a byte slice (upstream `DeepHashObject(fnv.New32a(), []byte)`).
pub(crate) fn deep_hash_32(bytes: &[u8]) -> u32 {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    fnv1a_32(format!("([]uint8)[{}]", numbers.join(" ")).as_bytes())
}

/// Returns a JSON string as Go's `json.Marshal`: safe to embed in HTML and JavaScript.
pub fn go_json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    // a &str always serializes
    let json = serde_json::to_string(text).unwrap_or_default();
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, image: &str) -> Container {
        Container {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            ..Container::default()
        }
    }

    #[test]
    fn container_hash_matches_upstream() {
        // from the upstream test of HashContainer
        let c = container("test_container", "foo/image:v1");
        assert_eq!(container_hash(&c), 0x8e45_cbd0);
        assert_eq!(container_hash_text(&c), "8e45cbd0");
    }

    #[test]
    fn container_hash_covers_name_and_image_only() {
        let mut c = container("test_container", "foo/image:v1");
        c.args = Some(vec!["changed".into()]);
        c.working_dir = Some("/elsewhere".into());
        assert_eq!(container_hash(&c), 0x8e45_cbd0);
        assert_ne!(
            container_hash(&container("test_container", "foo/image:v2")),
            0x8e45_cbd0
        );
    }

    #[test]
    fn json_strings_are_escaped_as_in_go() {
        assert_eq!(
            go_json_string("a<b>&\"\\\u{2028}\n\u{1}ä"),
            "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\u2028\\n\\u0001ä\""
        );
    }

    #[test]
    fn fnv_matches_the_published_vectors() {
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
