//! Keys, certificates and kubeconfig files of a control plane.

use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

/// DNS names of the API server.
const SERVER_NAMES: [&str; 7] = [
    "127.0.0.1",
    "10.96.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Certificate authority and its directory.
pub(super) struct Pki {
    dir: PathBuf,
    server: String,
    ca_pem: String,
    ca_der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// Subject of a client certificate.
pub(super) struct Subject {
    pub(super) name: String,
    /// Organization.
    pub(super) group: Option<String>,
}

impl Subject {
    /// A user in no group.
    pub(super) fn user(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: None,
        }
    }

    /// Name of its files.
    fn file(&self) -> String {
        self.name.replace(':', "-")
    }
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Pki {
    /// A new authority in `dir` (`ca.crt`, `ca.key`), the certificate of the API server at the
    /// URL `server` (`apiserver.crt`, `apiserver.key`) and the keys of service account tokens
    /// (`sa.key`, `sa.pub`).
    pub(super) fn create(dir: &Path, server: &str) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished("windlass-testbed", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key)?;
        let pki = Self {
            dir: dir.to_owned(),
            server: server.to_owned(),
            ca_pem: certificate.pem(),
            ca_der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        };
        pki.write("ca.crt", &pki.ca_pem)?;
        pki.write("ca.key", &pki.issuer.key().serialize_pem())?;
        let tokens = KeyPair::generate()?;
        pki.write("sa.key", &tokens.serialize_pem())?;
        pki.write("sa.pub", &tokens.public_key_pem())?;
        let names = SERVER_NAMES.map(str::to_owned).to_vec();
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name = distinguished("kube-apiserver", None);
        pki.issue("apiserver", server, ExtendedKeyUsagePurpose::ServerAuth)?;
        Ok(pki)
    }

    /// The authority's certificate, as TLS libraries take it.
    pub(super) fn ca_der(&self) -> &CertificateDer<'static> {
        &self.ca_der
    }

    /// Path of one of its files, for a command line.
    pub(super) fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// A new client certificate and its key, as files.
    pub(super) fn certificate(&self, subject: &Subject) -> anyhow::Result<(PathBuf, PathBuf)> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(&subject.name, subject.group.as_deref());
        let name = subject.file();
        self.issue(&name, params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A new serving certificate and its key, as files.
    pub(super) fn serving_pair(
        &self,
        name: &str,
        address: IpAddr,
    ) -> anyhow::Result<(PathBuf, PathBuf)> {
        let mut params = CertificateParams::new(vec![address.to_string()])?;
        params.distinguished_name = distinguished(name, None);
        self.issue(name, params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A kubeconfig file with a new client certificate.
    pub(super) fn kubeconfig(&self, subject: &Subject) -> anyhow::Result<PathBuf> {
        let (certificate, key) = self.certificate(subject)?;
        let user = json!({ "client-certificate": certificate, "client-key": key });
        self.write_kubeconfig(&subject.file(), &user)
    }

    /// A kubeconfig file with a bearer token.
    pub(super) fn token_kubeconfig(&self, token: &str) -> anyhow::Result<PathBuf> {
        self.write_kubeconfig("token", &json!({ "token": token }))
    }

    fn write_kubeconfig(&self, name: &str, user: &Value) -> anyhow::Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "testbed", "cluster": {
                "server": self.server,
                "certificate-authority": self.dir.join("ca.crt"),
            }}],
            "users": [{ "name": "user", "user": user }],
            "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": "user" }}],
            "current-context": "testbed",
        });
        // JSON is YAML too
        self.write(&format!("{name}.kubeconfig"), &config.to_string())
    }

    fn issue(
        &self,
        name: &str,
        mut params: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<(PathBuf, PathBuf)> {
        let key = KeyPair::generate()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((
            self.write(&format!("{name}.crt"), &certificate.pem())?,
            self.write(&format!("{name}.key"), &key.serialize_pem())?,
        ))
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

fn distinguished(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    if let Some(group) = group {
        full.push(DnType::OrganizationName, group);
    }
    full.push(DnType::CommonName, name);
    full
}
