//! What a certificate says, as far as the agent cares.

use std::net::IpAddr;

use windlass_types::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::csr::ServingNames;
use crate::rotation::plan::Validity;

/// Validity and names of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// From when to when it counts.
    pub validity: Validity,
    /// Names and addresses that it is for.
    pub names: ServingNames,
}

impl Certificate {
    /// Reads the first certificate of a PEM text; `None` if there is no readable one.
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

    /// True if it is for all these names and addresses; further ones do no harm.
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
