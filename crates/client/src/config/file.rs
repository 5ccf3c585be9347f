//! The format of a kubeconfig. As upstream, unknown fields are ignored.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Kubeconfig {
    pub(crate) current_context: Option<String>,
    #[serde(default)]
    pub(crate) contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    pub(crate) clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    pub(crate) users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
pub(crate) struct NamedContext {
    pub(crate) name: String,
    pub(crate) context: Context,
}

#[derive(Deserialize)]
pub(crate) struct NamedCluster {
    pub(crate) name: String,
    pub(crate) cluster: Cluster,
}

#[derive(Deserialize)]
pub(crate) struct NamedUser {
    pub(crate) name: String,
    pub(crate) user: Option<User>,
}

#[derive(Deserialize)]
pub(crate) struct Context {
    pub(crate) cluster: String,
    pub(crate) user: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Cluster {
    pub(crate) server: Option<String>,
    pub(crate) certificate_authority: Option<String>,
    pub(crate) certificate_authority_data: Option<String>,
    #[serde(default)]
    pub(crate) insecure_skip_tls_verify: bool,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) proxy_url: Option<String>,
}

/// Credentials of a user; no `Debug`, most are secrets.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct User {
    pub(crate) client_certificate: Option<String>,
    pub(crate) client_certificate_data: Option<String>,
    pub(crate) client_key: Option<String>,
    pub(crate) client_key_data: Option<String>,
    pub(crate) token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub(crate) token_file: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) exec: Option<Exec>,
    #[serde(rename = "as")]
    pub(crate) impersonate: Option<String>,
    pub(crate) auth_provider: Option<serde_json::Value>,
}

/// A credential plugin.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exec {
    pub(crate) api_version: String,
    pub(crate) command: String,
    pub(crate) args: Option<Vec<String>>,
    pub(crate) env: Option<Vec<ExecEnv>>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct ExecEnv {
    pub(crate) name: String,
    pub(crate) value: String,
}
