//! Image references: what is checked and completed before an image is pulled, and whether to pull.
//!
//! The grammar is that of the distribution project's `reference` package, which upstream uses
//! through `parsers.ParseImageName`. The reference handed to the runtime stays as the user wrote
//! it, short names included: only a missing tag is added.

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
    /// As the user wrote it, with `:latest` added if it had neither tag nor digest.
    pub reference: String,
    /// Registry host and port; `docker.io` if none was written.
    pub registry: String,
    /// Repository in the registry; `library/` is added for one-word names on `docker.io`.
    pub repository: String,
    /// Tag, `latest` if neither tag nor digest was written.
    pub tag: Option<String>,
    /// Digest with its algorithm.
    pub digest: Option<String>,
}

/// The text is no image reference (`InvalidImageName`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image reference {image:?}: {fault}")]
pub struct ImageNameError {
    /// What the user wrote.
    pub image: String,
    /// What is wrong with it.
    pub fault: ImageNameErrorKind,
}

/// What can be wrong with an image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageNameErrorKind {
    /// It does not follow the grammar.
    Format,
    /// It has capital letters in the repository.
    Uppercase,
    /// It is the bare hash of an image.
    BareId,
    /// The repository is longer than 255 characters.
    TooLong,
    /// The digest is not one of a known algorithm and length.
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
    /// The container's waiting reason.
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

/// What to do about an image before a container starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullDecision {
    /// Pull it.
    Pull,
    /// Use the one on the node.
    UsePresent,
    /// It is not on the node and must not be pulled.
    ErrImageNeverPull,
}

impl PullPolicy {
    /// The container's policy; if it has none, what the API server would have filled in:
    /// `Always` for the tag `latest`, else `IfNotPresent`.
    pub fn for_container(container: &Container) -> Self {
        let image = container.image.as_deref().unwrap_or_default();
        Self::for_image(container.image_pull_policy.as_deref(), image)
    }

    /// The policy `written` for an image, or its default as above.
    pub fn for_image(written: Option<&str>, image: &str) -> Self {
        match written {
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

/// Whether to pull an image.
pub fn should_pull(policy: PullPolicy, present: bool) -> PullDecision {
    match (policy, present) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => PullDecision::Pull,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => PullDecision::UsePresent,
        (PullPolicy::Never, false) => PullDecision::ErrImageNeverPull,
    }
}

impl ImageName {
    /// Checks an image reference and adds the default tag.
    ///
    /// # Errors
    /// It is not a valid reference.
    pub fn parse(image: &str) -> Result<Self, ImageNameError> {
        parse(image).map_err(|fault| ImageNameError {
            image: image.to_owned(),
            fault,
        })
    }

    /// Registry and repository, without tag and digest.
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
    // a colon after the last slash starts the tag; ports belong to the domain, which is gone
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

/// The first component is a registry if it could not be part of a Docker Hub name.
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
