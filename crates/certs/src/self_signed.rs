//! The self-signed serving certificate of a node without `tlsCertFile` and `serverTLSBootstrap`.
//! As upstream: `kubelet.crt` and `kubelet.key` in `--cert-dir`.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};
use windlass_types::Timestamp;

use crate::certificate::Certificate;
use crate::csr::ServingNames;
use crate::rotation::ServingPair;
use crate::store::{StoreError, read, write_beside};

/// Validity, upstream's.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Start before now, for clock skew, upstream's.
const BACKDATING: Duration = Duration::from_secs(3600);

/// No self-signed certificate.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    /// The files cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key or certificate cannot be created.
    #[error("a self-signed certificate for {host:?} cannot be made: {error}")]
    Make {
        /// The node's host name.
        host: String,
        /// Why.
        #[source]
        error: rcgen::Error,
    },
}

/// Returns the pair in `directory`, or creates it if it is missing or expired (upstream keeps an
/// expired one). `host` is a name or an address.
///
/// # Errors
/// The files cannot be read or written.
pub fn self_signed(
    directory: &Path,
    host: &str,
    names: &ServingNames,
    now: Timestamp,
) -> Result<ServingPair, SelfSignedError> {
    let (chain, key) = (directory.join("kubelet.crt"), directory.join("kubelet.key"));
    if let (Some(mut pem), Some(key)) = (read(chain.clone())?, read(key.clone())?)
        && Certificate::from_pem(&pem).is_some_and(|it| it.validity.is_current(now))
    {
        pem.push(b'\n');
        pem.extend(key);
        return Ok(ServingPair::new(pem));
    }
    let (certificate, made) = make(host, names, now).map_err(|error| SelfSignedError::Make {
        host: host.to_owned(),
        error,
    })?;
    // the key first: a certificate without its key would be used after a restart
    write_beside(&key, made.as_bytes(), 0o600)?;
    write_beside(&chain, certificate.as_bytes(), 0o644)?;
    tracing::info!(file = %chain.display(), "self-signed serving certificate made");
    Ok(ServingPair::new(
        format!("{certificate}\n{made}").into_bytes(),
    ))
}

fn make(
    host: &str,
    names: &ServingNames,
    now: Timestamp,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{host}@{}", now.as_second()));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let dns = std::iter::once(host).chain(names.dns.iter().map(String::as_str));
    for name in dns {
        let name = match name.parse::<IpAddr>() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(name.try_into()?),
        };
        if !params.subject_alt_names.contains(&name) {
            params.subject_alt_names.push(name);
        }
    }
    let ips = names.ips.iter().copied().map(SanType::IpAddress);
    params.subject_alt_names.extend(ips);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    params.not_before = epoch + now.saturating_sub(BACKDATING);
    params.not_after = epoch + now + LIFE;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn self_signed_certificate_is_created_once_a_year() {
        let files = tempfile::tempdir().expect("a directory");
        let directory = files.path().join("pki");
        let names = ServingNames {
            dns: Vec::new(),
            ips: vec![[10, 0, 0, 1].into()],
        };
        let made = |day: i64| {
            let now = Timestamp::from_second(1_767_225_600 + day * 86_400).expect("in range");
            self_signed(&directory, "n1", &names, now).expect("made")
        };
        let first = made(0);
        let certificate = Certificate::from_pem(first.pem()).expect("readable");
        assert_eq!(certificate.names.dns, ["n1"]);
        assert_eq!(certificate.names.ips, names.ips);
        let read = |pair: &ServingPair| Certificate::from_pem(pair.pem()).expect("readable");
        assert_eq!(read(&made(364)), certificate);
        assert_ne!(read(&made(365)), certificate);
        for (file, mode) in [("kubelet.crt", 0o644), ("kubelet.key", 0o600)] {
            let file = std::fs::metadata(directory.join(file)).expect("there");
            assert_eq!(file.permissions().mode() & 0o777, mode);
        }
    }
}
