//! The user that a client certificate names.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use windlass_types::{Timestamp, UserInfo};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The attribute of a subject that holds a UID (upstream `X509UID`).
const UID: &str = "1.3.6.1.4.1.57683.2";
/// Key of [`UserInfo::extra`] that distinguishes the certificates of one user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A verified certificate without a usable subject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// The certificate cannot be parsed.
    #[error("cannot parse the client certificate")]
    Unreadable,
    /// An unusable UID.
    #[error("the client certificate has more than one UID, or a UID that is not text")]
    Uid,
}

/// User and expiry of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateUser {
    /// `None` without a common name.
    pub user: Option<UserInfo>,
    /// Expiry.
    pub not_after: Timestamp,
}

/// Reads the user of a verified certificate.
///
/// # Errors
/// See [`SubjectError`].
pub fn user_from_certificate(der: &[u8]) -> Result<CertificateUser, SubjectError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| SubjectError::Unreadable)?;
    let subject = certificate.subject();
    let not_after = certificate.validity().not_after.timestamp();
    let not_after = Timestamp::from_second(not_after).unwrap_or(Timestamp::MAX);
    // as Go, the last one
    let name = subject
        .iter_common_name()
        .filter_map(|it| it.as_str().ok())
        .last();
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(CertificateUser {
            user: None,
            not_after,
        });
    };
    let mut uids = subject
        .iter_attributes()
        .filter(|attribute| attribute.attr_type().to_id_string() == UID);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => String::new(),
        (Some(uid), None) => match uid.as_str() {
            Ok(uid) if !uid.is_empty() => uid.to_owned(),
            _ => return Err(SubjectError::Uid),
        },
        (Some(_), Some(_)) => return Err(SubjectError::Uid),
    };
    let groups = subject
        .iter_organization()
        .filter_map(|it| it.as_str().ok())
        .map(str::to_owned)
        .collect();
    let digest = Sha256::digest(der);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = vec![format!("X509SHA256={hex}")];
    Ok(CertificateUser {
        user: Some(UserInfo {
            name: name.to_owned(),
            uid,
            groups,
            extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), id)]),
        }),
        not_after,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// A subject by its attributes, and the user it names.
    #[track_caller]
    fn check(subject: &[(DnType, &str)], expected: &str) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let line = match user_from_certificate(certificate.der()) {
            Ok(CertificateUser { user: None, .. }) => "no user".to_owned(),
            Ok(CertificateUser {
                user: Some(user), ..
            }) => {
                let ids = &user.extra[CREDENTIAL_ID];
                assert_eq!(ids[0].len(), "X509SHA256=".len() + 64, "{ids:?}");
                format!("{} {:?} {:?}", user.name, user.uid, user.groups)
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(line, expected, "{subject:?}");
    }

    #[test]
    fn name_groups_and_uid_come_from_the_subject() {
        let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let second = || DnType::CustomDnType(vec![2, 5, 4, 10]);
        check(&[(DnType::CommonName, "jane")], "jane \"\" []");
        let full = [
            (DnType::CommonName, "jane"),
            (DnType::OrganizationName, "ops"),
            (second(), "dev"),
            (uid(), "u-1"),
        ];
        check(&full, "jane \"u-1\" [\"ops\", \"dev\"]");
        check(&[(DnType::OrganizationName, "ops")], "no user");
        check(&[(DnType::CommonName, "")], "no user");
        let empty = [(DnType::CommonName, "jane"), (uid(), "")];
        check(
            &empty,
            "the client certificate has more than one UID, or a UID that is not text",
        );
        assert_eq!(
            user_from_certificate(b"junk"),
            Err(SubjectError::Unreadable)
        );
    }
}
