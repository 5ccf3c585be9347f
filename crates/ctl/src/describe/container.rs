//! Container sections of a page.

use windlass_types::AllocatedResources;
use windlass_types::api_time;
use windlass_types::corev1::{Container, ContainerState, ContainerStatus, EnvVar};

use super::page::Page;
use super::{probe, sizes};

/// Adds a section with containers, if any.
pub(super) fn section(
    page: &mut Page,
    name: &str,
    containers: &[Container],
    statuses: Option<&[ContainerStatus]>,
    requested: Option<&AllocatedResources>,
) {
    if containers.is_empty() {
        return;
    }
    page.section(name);
    for container in containers {
        let mut statuses = statuses.unwrap_or_default().iter();
        let status = statuses.find(|s| s.name == container.name);
        one(page, container, status, requested);
    }
}

fn one(
    page: &mut Page,
    container: &Container,
    status: Option<&ContainerStatus>,
    requested: Option<&AllocatedResources>,
) {
    page.line(1, &format!("{}:", container.name));
    page.optional(
        2,
        "Container ID",
        status.and_then(|s| s.container_id.as_deref()),
    );
    page.optional(2, "Image", container.image.as_deref());
    page.optional(2, "Image ID", status.map(|s| s.image_id.as_str()));
    page.field(2, "Ports", &ports(container));
    list(page, "Command", container.command.as_deref());
    list(page, "Args", container.args.as_deref());
    if let Some(status) = status {
        state(page, "State", status.state.as_ref());
        if status
            .last_state
            .as_ref()
            .is_some_and(|last| last.terminated.is_some())
        {
            state(page, "Last State", status.last_state.as_ref());
        }
        // redundant with the state without a startup probe
        if container.startup_probe.is_some() {
            page.field(2, "Started", truth(status.started == Some(true)));
        }
        page.field(2, "Ready", truth(status.ready));
        page.field(2, "Restart Count", &status.restart_count.to_string());
    }
    sizes::fields(
        page,
        2,
        sizes::Sizes {
            allocated: container.resources.as_ref(),
            requested: requested.and_then(|all| all.containers.get(&container.name)),
            actual: status.and_then(|status| status.resources.as_ref()),
        },
    );
    probe::fields(page, container);
    environment(page, container);
    mounts(page, container);
}

fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn ports(container: &Container) -> String {
    let port = |port: &windlass_types::corev1::ContainerPort| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let host = port.host_port.filter(|host| *host != 0);
        let host = host.map_or_else(String::new, |host| format!(" (host {host})"));
        format!("{}/{protocol}{host}", port.container_port)
    };
    let ports: Vec<_> = container.ports.iter().flatten().map(port).collect();
    if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(", ")
    }
}

fn list(page: &mut Page, name: &str, words: Option<&[String]>) {
    let Some(words) = words.filter(|words| !words.is_empty()) else {
        return;
    };
    page.line(2, &format!("{name}:"));
    for line in words.iter().flat_map(|word| word.lines()) {
        page.line(3, line);
    }
}

fn state(page: &mut Page, name: &str, state: Option<&ContainerState>) {
    let Some(state) = state else { return };
    if let Some(running) = &state.running {
        page.field(2, name, "Running");
        page.optional(
            3,
            "Started",
            running
                .started_at
                .as_ref()
                .map(|t| api_time(t.0))
                .as_deref(),
        );
    } else if let Some(ended) = &state.terminated {
        page.field(2, name, "Terminated");
        page.optional(3, "Reason", ended.reason.as_deref());
        page.optional(3, "Message", ended.message.as_deref());
        page.field(3, "Exit Code", &ended.exit_code.to_string());
        if let Some(signal) = ended.signal.filter(|signal| *signal != 0) {
            page.field(3, "Signal", &signal.to_string());
        }
        page.optional(
            3,
            "Started",
            ended.started_at.as_ref().map(|t| api_time(t.0)).as_deref(),
        );
        page.optional(
            3,
            "Finished",
            ended.finished_at.as_ref().map(|t| api_time(t.0)).as_deref(),
        );
    } else if let Some(waiting) = &state.waiting {
        page.field(2, name, "Waiting");
        page.optional(3, "Reason", waiting.reason.as_deref());
        page.optional(3, "Message", waiting.message.as_deref());
    }
}

fn environment(page: &mut Page, container: &Container) {
    let Some(variables) = container.env.as_deref().filter(|env| !env.is_empty()) else {
        return page.field(2, "Environment", "<none>");
    };
    page.line(2, "Environment:");
    for variable in variables {
        page.field(3, &variable.name, &value(variable));
    }
}

fn value(variable: &EnvVar) -> String {
    let Some(from) = &variable.value_from else {
        return variable.value.clone().unwrap_or_default();
    };
    if let Some(field) = &from.field_ref {
        return format!("({})", field.field_path);
    }
    if let Some(resource) = &from.resource_field_ref {
        return format!("({})", resource.resource);
    }
    "<from an API object>".to_owned()
}

fn mounts(page: &mut Page, container: &Container) {
    let Some(mounts) = container
        .volume_mounts
        .as_deref()
        .filter(|mounts| !mounts.is_empty())
    else {
        return page.field(2, "Mounts", "<none>");
    };
    page.line(2, "Mounts:");
    for mount in mounts {
        let mode = if mount.read_only == Some(true) {
            "ro"
        } else {
            "rw"
        };
        let path = mount
            .sub_path
            .as_ref()
            .map_or_else(String::new, |path| format!(", path={path:?}"));
        page.line(
            3,
            &format!("{} from {} ({mode}{path})", mount.mount_path, mount.name),
        );
    }
}
