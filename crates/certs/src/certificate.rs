//! The parsed certificate.

use std::net::IpAddr;

use windlass_types::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::csr::ServingNames;
use crate::rotation::plan::Validity;

/// Validity and names of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Validity.
    pub validity: Validity,
    /// DNS names and IP addresses.
    pub names: ServingNames,
}

impl Certificate {
    /// Reads the first certificate of a PEM text; `None` without a readable one.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        let pem = x509_parser::pem::Pem::iter_from_buffer(pem)
            .flatten()
            .find(|block| block.label == "CERTIFICATE")?;
        let certificate = pem.parse_x509().ok()?;
        let validity = certificate.validity();
        Some(Self {
            validity: Validity {
                not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
                not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
            },
            names: names(&certificate),
        })
    }

    /// Returns true if it has all these names and addresses; it may have more.
    pub fn covers(&self, wanted: &ServingNames) -> bool {
        wanted.dns.iter().all(|name| self.names.dns.contains(name))
            && wanted.ips.iter().all(|ip| self.names.ips.contains(ip))
    }
}

fn names(certificate: &X509Certificate<'_>) -> ServingNames {
    let mut names = ServingNames::default();
    let Ok(Some(alternative)) = certificate.subject_alternative_name() else {
        return names;
    };
    for name in &alternative.value.general_names {
        match name {
            GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => names.ips.extend(address(bytes)),
            _ => {}
        }
    }
    names
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}
