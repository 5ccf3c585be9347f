//! Service environment variables of a container (upstream package `envvars`).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use windlass_types::corev1::Service;

/// Namespace and name of the service that every pod gets variables for.
const MASTER_SERVICE: (&str, &str) = ("default", "kubernetes");

/// Fields of a service with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceLink {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.clusterIP`.
    pub cluster_ip: String,
    /// `spec.ports`.
    pub ports: Vec<PortLink>,
}

/// One port of a [`ServiceLink`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLink {
    /// Name; optional if the service has one port.
    pub name: Option<String>,
    /// Port number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

impl ServiceLink {
    /// Returns `None` for a service without a cluster IP: headless or external.
    pub fn from_service(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let cluster_ip = spec.cluster_ip.as_deref().unwrap_or_default();
        if cluster_ip.is_empty() || cluster_ip == "None" {
            return None;
        }
        let ports = spec.ports.iter().flatten().map(|port| PortLink {
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: port.port,
            protocol: match port.protocol.as_deref() {
                None | Some("") => "TCP".to_owned(),
                Some(protocol) => protocol.to_owned(),
            },
        });
        Some(Self {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            name: service.metadata.name.clone().unwrap_or_default(),
            cluster_ip: cluster_ip.to_owned(),
            ports: ports.collect(),
        })
    }
}

/// Returns the variables for a pod of `namespace`: of `default/kubernetes`, and of the services in
/// its namespace with `enable_service_links`. A service `kubernetes` in the namespace takes
/// precedence.
///
/// If two services have the same variable (`a` and `a-service`), the name that sorts first wins;
/// upstream depends on the order of a map.
pub fn service_env<'a>(
    services: impl IntoIterator<Item = &'a ServiceLink>,
    namespace: &str,
    enable_service_links: bool,
) -> BTreeMap<String, String> {
    let mut chosen: BTreeMap<&str, &ServiceLink> = BTreeMap::new();
    for service in services {
        let name = service.name.as_str();
        if enable_service_links && service.namespace == namespace {
            chosen.insert(name, service);
        } else if (service.namespace.as_str(), name) == MASTER_SERVICE {
            chosen.entry(name).or_insert(service);
        }
    }
    let mut env = BTreeMap::new();
    for service in chosen.into_values() {
        add_variables(service, &mut env);
    }
    env
}

fn add_variables(service: &ServiceLink, env: &mut BTreeMap<String, String>) {
    let prefix = variable_name(&service.name);
    let mut set = |name: String, value: String| {
        env.entry(name).or_insert(value);
    };
    set(format!("{prefix}_SERVICE_HOST"), service.cluster_ip.clone());
    let host = if service.cluster_ip.parse::<Ipv6Addr>().is_ok() {
        format!("[{}]", service.cluster_ip)
    } else {
        service.cluster_ip.clone()
    };
    for (index, link) in service.ports.iter().enumerate() {
        let port = link.port;
        let protocol = link.protocol.to_lowercase();
        let url = format!("{protocol}://{host}:{port}");
        if index == 0 {
            set(format!("{prefix}_SERVICE_PORT"), port.to_string());
            set(format!("{prefix}_PORT"), url.clone());
        }
        if let Some(name) = &link.name {
            let name = variable_name(name);
            set(format!("{prefix}_SERVICE_PORT_{name}"), port.to_string());
        }
        let full = format!("{prefix}_PORT_{port}_{}", link.protocol.to_uppercase());
        set(format!("{full}_PROTO"), protocol);
        set(format!("{full}_PORT"), port.to_string());
        set(format!("{full}_ADDR"), service.cluster_ip.clone());
        set(full, url);
    }
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(namespace: &str, name: &str, ip: &str, ports: Value) -> Option<ServiceLink> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": ip, "ports": ports},
        }))
        .expect("service");
        ServiceLink::from_service(&service)
    }

    fn lines(services: &[Option<ServiceLink>], namespace: &str, links: bool) -> Vec<String> {
        let env = service_env(services.iter().flatten(), namespace, links);
        env.iter().map(|(n, v)| format!("{n}={v}")).collect()
    }

    fn hosts(services: &[Option<ServiceLink>], namespace: &str, links: bool) -> String {
        let lines = lines(services, namespace, links);
        let hosts = lines.iter().filter(|l| l.contains("_SERVICE_HOST="));
        hosts.cloned().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn service_variables_match_upstream() {
        let web = service(
            "ns",
            "my-web",
            "10.0.0.1",
            json!([
                {"name": "http-alt", "port": 8080},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ]),
        );
        assert_eq!(
            lines(&[web], "ns", true),
            [
                "MY_WEB_PORT=tcp://10.0.0.1:8080",
                "MY_WEB_PORT_53_UDP=udp://10.0.0.1:53",
                "MY_WEB_PORT_53_UDP_ADDR=10.0.0.1",
                "MY_WEB_PORT_53_UDP_PORT=53",
                "MY_WEB_PORT_53_UDP_PROTO=udp",
                "MY_WEB_PORT_8080_TCP=tcp://10.0.0.1:8080",
                "MY_WEB_PORT_8080_TCP_ADDR=10.0.0.1",
                "MY_WEB_PORT_8080_TCP_PORT=8080",
                "MY_WEB_PORT_8080_TCP_PROTO=tcp",
                "MY_WEB_SERVICE_HOST=10.0.0.1",
                "MY_WEB_SERVICE_PORT=8080",
                "MY_WEB_SERVICE_PORT_DNS=53",
                "MY_WEB_SERVICE_PORT_HTTP_ALT=8080",
            ]
        );
    }

    #[test]
    fn ipv6_address_has_brackets_only_before_port() {
        let six = service("ns", "six", "fd00::1", json!([{"port": 80}]));
        assert_eq!(
            lines(&[six], "ns", true),
            [
                "SIX_PORT=tcp://[fd00::1]:80",
                "SIX_PORT_80_TCP=tcp://[fd00::1]:80",
                "SIX_PORT_80_TCP_ADDR=fd00::1",
                "SIX_PORT_80_TCP_PORT=80",
                "SIX_PORT_80_TCP_PROTO=tcp",
                "SIX_SERVICE_HOST=fd00::1",
                "SIX_SERVICE_PORT=80",
            ]
        );
    }

    #[test]
    fn services_depend_on_namespace_and_links() {
        let port = || json!([{"port": 443}]);
        let services = [
            service("default", "kubernetes", "10.0.0.1", port()),
            service("default", "web", "10.0.0.2", port()),
            service("ns", "web", "10.0.0.3", port()),
            service("ns", "headless", "None", port()),
            service("ns", "external", "", port()),
        ];
        let check = |namespace, links, expected: &str| {
            assert_eq!(hosts(&services, namespace, links), expected);
        };
        let master = "KUBERNETES_SERVICE_HOST=10.0.0.1";
        check("ns", false, master);
        check("ns", true, &format!("{master} WEB_SERVICE_HOST=10.0.0.3"));
        check("default", false, master);
        check(
            "default",
            true,
            &format!("{master} WEB_SERVICE_HOST=10.0.0.2"),
        );
        check("other", true, master);
    }

    #[test]
    fn kubernetes_service_of_namespace_takes_precedence() {
        let master = service("default", "kubernetes", "10.0.0.1", json!([]));
        let own = service("ns", "kubernetes", "10.0.0.9", json!([]));
        let services = [master.clone(), own.clone()];
        let reversed = [own, master];
        let expected = "KUBERNETES_SERVICE_HOST=10.0.0.9";
        assert_eq!(hosts(&services, "ns", true), expected);
        assert_eq!(hosts(&reversed, "ns", true), expected);
        let expected = "KUBERNETES_SERVICE_HOST=10.0.0.1";
        assert_eq!(hosts(&reversed, "ns", false), expected);
    }

    #[test]
    fn variable_of_two_services_is_of_first_name() {
        let a = service("ns", "a", "10.0.0.1", json!([{"port": 80}]));
        let a_service = service("ns", "a-service", "10.0.0.2", json!([{"port": 90}]));
        let lines = lines(&[a_service, a], "ns", true);
        assert!(lines.contains(&"A_SERVICE_PORT=80".to_owned()), "{lines:?}");
    }
}
