//! Image references: validation, the default tag, and the decision whether to pull.
//!
//! The grammar is that of the distribution `reference` package (upstream `parsers.ParseImageName`).
//! The runtime gets the reference unchanged, short names included, except for a missing tag.

use std::fmt;

use windlass_types::Reason;
use windlass_types::corev1::Container;

const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// A valid image reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    /// The text, with `:latest` appended if it has neither tag nor digest.
    pub reference: String,
    /// Registry host and port; `docker.io` by default.
    pub registry: String,
    /// Repository; one-word names on `docker.io` get the prefix `library/`.
    pub repository: String,
    /// Tag; `latest` without tag and digest.
    pub tag: Option<String>,
    /// Digest, with its algorithm.
    pub digest: Option<String>,
}

/// The text is not an image reference (`InvalidImageName`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image reference {image:?}: {kind}")]
pub struct ImageNameError {
    /// The text.
    pub image: String,
    /// The kind of error.
    pub kind: ImageNameErrorKind,
}

/// Kind of an [`ImageNameError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageNameErrorKind {
    /// Not in the grammar.
    Format,
    /// Upper-case letters in the repository.
    Uppercase,
    /// The hash of an image.
    BareId,
    /// Repository longer than 255 characters.
    TooLong,
    /// Digest with an unknown algorithm or a wrong length.
    Digest,
}

impl fmt::Display for ImageNameErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "invalid reference format",
            Self::Uppercase => "invalid reference format: repository name must be lowercase",
            Self::BareId => "invalid repository name, cannot specify 64-byte hexadecimal strings",
            Self::TooLong => "repository name must not be more than 255 characters",
            Self::Digest => "invalid or unsupported digest",
        })
    }
}

impl ImageNameError {
    /// Returns the waiting reason of the container.
    pub fn reason(&self) -> Reason {
        Reason::InvalidImageName
    }
}

/// `imagePullPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Pull at every start.
    Always,
    /// Pull if the image is not on the node.
    IfNotPresent,
    /// Never pull.
    Never,
}

/// What to do before a container starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullDecision {
    /// Pull it.
    Pull,
    /// Use the image on the node.
    UsePresent,
    /// Fail: the image is not present and must not be pulled.
    ErrImageNeverPull,
}

impl PullPolicy {
    /// Returns the policy of a container. The default is that of the API server: `Always` for the
    /// tag `latest`, else `IfNotPresent`.
    pub fn for_container(container: &Container) -> Self {
        let image = container.image.as_deref().unwrap_or_default();
        Self::for_image(container.image_pull_policy.as_deref(), image)
    }

    /// Returns the policy for an image: `explicit`, or the default as above.
    pub fn for_image(explicit: Option<&str>, image: &str) -> Self {
        match explicit {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ => {
                let name = ImageName::parse(image);
                match name {
                    Ok(name) if name.tag.as_deref() == Some(DEFAULT_TAG) => Self::Always,
                    _ => Self::IfNotPresent,
                }
            }
        }
    }
}

/// Decides whether to pull an image.
pub fn should_pull(policy: PullPolicy, present: bool) -> PullDecision {
    match (policy, present) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => PullDecision::Pull,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => PullDecision::UsePresent,
        (PullPolicy::Never, false) => PullDecision::ErrImageNeverPull,
    }
}

impl ImageName {
    /// Parses an image reference and adds the default tag.
    ///
    /// # Errors
    /// It is not a valid reference.
    pub fn parse(image: &str) -> Result<Self, ImageNameError> {
        parse(image).map_err(|kind| ImageNameError {
            image: image.to_owned(),
            kind,
        })
    }

    /// Returns registry and repository, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }
}

fn parse(image: &str) -> Result<ImageName, ImageNameErrorKind> {
    if image.len() == 64 && image.bytes().all(is_lower_hex) {
        return Err(ImageNameErrorKind::BareId);
    }
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let (registry, rest) = split_domain(named);
    // a colon after the last slash starts the tag; the port is in the domain
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(ImageNameErrorKind::Uppercase);
    }
    let domain_ok = registry.is_none_or(is_domain);
    if !domain_ok || !path.split('/').all(is_path_component) || !tag.is_none_or(is_tag) {
        return Err(ImageNameErrorKind::Format);
    }
    if let Some(digest) = digest {
        check_digest(digest)?;
    }
    let registry = registry.unwrap_or(DEFAULT_DOMAIN);
    let repository = if registry == DEFAULT_DOMAIN && !path.contains('/') {
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    if registry.len() + 1 + repository.len() > MAX_NAME {
        return Err(ImageNameErrorKind::TooLong);
    }
    let untagged = tag.is_none() && digest.is_none();
    Ok(ImageName {
        reference: if untagged {
            format!("{image}:{DEFAULT_TAG}")
        } else {
            image.to_owned()
        },
        registry: registry.to_owned(),
        repository,
        tag: if untagged {
            Some(DEFAULT_TAG.to_owned())
        } else {
            tag.map(str::to_owned)
        },
        digest: digest.map(str::to_owned),
    })
}

/// The first component is a registry if it cannot be part of a Docker Hub name.
fn split_domain(named: &str) -> (Option<&str>, &str) {
    match named.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            let first = if first == "index.docker.io" {
                DEFAULT_DOMAIN
            } else {
                first
            };
            (Some(first), rest)
        }
        _ => (None, named),
    }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => {
                let is_v6 = !address.is_empty()
                    && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
                return is_v6 && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
            }
            None => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let component = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.split('.').all(component) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Lower-case letters and digits, joined by one dot, one or two underscores, or any hyphens.
fn is_path_component(text: &str) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let separators_ok = bytes.split(alphanumeric).all(|separator| match separator {
        b"" | b"." | b"_" | b"__" => true,
        hyphens => hyphens.iter().all(|b| *b == b'-'),
    });
    alphanumeric(first) && alphanumeric(last) && separators_ok
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn check_digest(digest: &str) -> Result<(), ImageNameErrorKind> {
    let (algorithm, hex) = digest.split_once(':').ok_or(ImageNameErrorKind::Format)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ImageNameErrorKind::Digest),
    };
    if hex.len() != length || !hex.bytes().all(is_lower_hex) {
        return Err(ImageNameErrorKind::Digest);
    }
    Ok(())
}

fn is_lower_hex(b: u8) -> bool {
    b.is_ascii_digit() || (b'a'..=b'f').contains(&b)
}

#[cfg(test)]
mod tests;
