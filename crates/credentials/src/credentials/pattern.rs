//! Image patterns of credentials.

/// Host with optional port, where `*` matches within one label, and a path prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern(
    /// `host[:port][/path]`: upstream sorts by this text.
    String,
);

impl Pattern {
    /// Creates a pattern for a host.
    pub(super) fn host(host: &str) -> Self {
        Self(host.to_owned())
    }

    /// Parses a registry address, with or without a scheme; `None` if it is invalid.
    pub(super) fn parse(address: &str) -> Option<Self> {
        let rest = address
            .strip_prefix("https://")
            .or_else(|| address.strip_prefix("http://"))
            .unwrap_or(address);
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        // drop user information
        let host = host.rsplit('@').next().unwrap_or_default();
        let odd = |c: char| c.is_whitespace() || c.is_control();
        let (name, port) = split_port(host);
        if name.is_empty() || rest.contains(odd) || !port.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        // drop the version of the registry API
        let path = match path {
            _ if path.starts_with("/v1/") || path.starts_with("/v2/") => &path[3..],
            _ => path,
        };
        Some(Self(match path {
            "" | "/" => host.to_owned(),
            _ => format!("{host}{path}"),
        }))
    }

    /// Returns true if the credential is for this repository of the registry.
    pub(super) fn matches(&self, registry: &str, repository: &str) -> bool {
        let (host, path) = match self.0.split_once('/') {
            Some((host, path)) => (host, path),
            None => (self.0.as_str(), ""),
        };
        let (pattern, pattern_port) = split_port(host);
        let (name, port) = split_port(registry);
        let (patterns, labels) = (pattern.split('.'), name.split('.'));
        pattern_port == port
            && patterns.clone().count() == labels.clone().count()
            && patterns.zip(labels).all(|(p, label)| glob(p, label))
            && repository.starts_with(path)
    }
}

/// Splits host and port, which may be empty. An IPv6 address has brackets.
fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port),
        _ => (host, ""),
    }
}

/// Matches `*` with any characters, or none. Patterns are untrusted: backtracking is limited to the
/// last star, so the time is at most the product of the lengths.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // position of the last star, and the end of its match
    let mut star = None;
    while seen < text.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, seen));
                at += 1;
            }
            (Some(byte), _) if *byte == text[seen] => {
                at += 1;
                seen += 1;
            }
            (_, Some((place, reach))) => {
                star = Some((place, reach + 1));
                at = place + 1;
                seen = reach + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_as_upstream_documents() {
        let check = |address: &str, image: &str, expected: bool| {
            let pattern = Pattern::parse(address).expect(address);
            let (registry, repository) = image.split_once('/').expect("image");
            assert_eq!(
                pattern.matches(registry, repository),
                expected,
                "{address} {image}"
            );
        };
        check("r.io", "r.io/a/b", true);
        check("https://r.io", "r.io/a/b", true);
        check("http://r.io/v2/", "r.io/a/b", true);
        check("r.io/", "r.io/a/b", true);
        check("r.io/a", "r.io/a/b", true);
        check("r.io/v1/a", "r.io/a/b", true);
        check("r.io/a", "r.io/ab", true);
        check("r.io/a/", "r.io/ab", false);
        check("r.io/b", "r.io/a/b", false);
        check("r.io:5000", "r.io/a", false);
        check("r.io", "r.io:5000/a", false);
        check("r.io:5000", "r.io:5000/a", true);
        check("[::1]:5000", "[::1]:5000/a", true);
        check("[::1]", "[::1]:5000/a", false);
        check("*.r.io", "x.r.io/a", true);
        check("*.r.io", "r.io/a", false);
        check("*.r.io", "x.y.r.io/a", false);
        check("*.*.r.io", "x.y.r.io/a", true);
        check("pre*post.r.io", "pre-and-post.r.io/a", true);
        check("pre*post.r.io", "pre-and.r.io/a", false);
        check(
            "*.dkr.ecr.*.amazonaws.com",
            "1.dkr.ecr.eu.amazonaws.com/a",
            true,
        );
        check("a*b*c.r.io", "a-b-b-c.r.io/a", true);
        check("a*b*c.r.io", "a-b-b-cd.r.io/a", false);
        check("**.r.io", "x.r.io/a", true);
        check("x*.r.io", "x.r.io/a", true);
        check("*.r.io/team", "x.r.io/team/app", true);
        check("*.r.io/team", "x.r.io/other", false);
        check("user@r.io", "r.io/a", true);
        check("r.io?x=/y", "r.io/a", true);
    }

    #[test]
    fn pattern_with_many_stars_matches_in_bounded_time() {
        let pattern = Pattern::parse(&format!("{}b.io", "a*".repeat(60))).expect("pattern");
        // exponential backtracking would exceed the time limit of the test
        assert!(!pattern.matches(&format!("{}.io", "a".repeat(200)), "x"));
    }

    #[test]
    fn invalid_address_is_rejected() {
        for address in ["", "https://", "/path", "r io", "r.io:port", "r.io/\n"] {
            assert_eq!(Pattern::parse(address), None, "{address:?}");
        }
    }
}
