//! `describe pod`: details of a pod, in the layout of kubectl.

use std::io::{self, Write};

use windlass_node_proto::podresources_v1::ContainerResources;
use windlass_types::corev1::{Container, EphemeralContainer};
use windlass_types::{PodExt, Timestamp, api_time};

use crate::client::Client;
use crate::error::Error;
use crate::pod::{self, PodView};
use crate::status::summary;
use crate::{age, args, assigned, explain, get, table};

mod container;
mod page;
mod probe;
mod sizes;

use page::Page;
use sizes::Sizes;

pub(crate) async fn run(mut client: Client, args: &args::PodArgs) -> Result<(), Error> {
    let view = pod::find(&mut client, &args.namespace, &args.name).await?;
    // an agent without PodResources has nothing assigned
    let assigned = assigned::of_pod(&client, view.pod.namespace(), view.pod.name()).await;
    let assigned = assigned.unwrap_or_default();
    io::stdout()
        .lock()
        .write_all(text(&view, &assigned, crate::now()).as_bytes())?;
    Ok(())
}

/// Formats the page.
fn text(view: &PodView, assigned: &[ContainerResources], now: Timestamp) -> String {
    let mut page = Page::default();
    head(&mut page, view, now);
    let status = view.status();
    let requested = view.requested();
    let pod_level = Sizes {
        allocated: PodExt::spec(&view.pod).resources.as_ref(),
        requested: requested.as_ref().and_then(|all| all.pod.as_ref()),
        actual: status.resources.as_ref(),
    };
    if pod_level.allocated.is_some() || pod_level.requested.is_some() {
        page.section("Resources");
        sizes::fields(&mut page, 1, pod_level);
    }
    container::section(
        &mut page,
        "Init Containers",
        view.pod.init_containers(),
        status.init_container_statuses.as_deref(),
        requested.as_ref(),
    );
    container::section(
        &mut page,
        "Containers",
        view.pod.containers(),
        status.container_statuses.as_deref(),
        requested.as_ref(),
    );
    container::section(
        &mut page,
        "Ephemeral Containers",
        &ephemeral_containers(view),
        status.ephemeral_container_statuses.as_deref(),
        None,
    );
    assigned_resources(&mut page, assigned);
    conditions(&mut page, view);
    volumes(&mut page, view);
    start(&mut page, view);
    warnings(&mut page, view);
    events(&mut page, view, now);
    page.section("Blocker");
    for line in explain::text(&explain::from_view(view), now).lines() {
        page.line(1, line.trim_end());
    }
    page.into_text()
}

/// CPUs, memory, devices and claims of the containers that have some.
fn assigned_resources(page: &mut Page, containers: &[ContainerResources]) {
    let fields = containers.iter().map(|it| (&it.name, assigned::fields(it)));
    let fields: Vec<_> = fields.filter(|(_, fields)| !fields.is_empty()).collect();
    if fields.is_empty() {
        return;
    }
    page.section("Assigned Resources");
    for (container, fields) in fields {
        page.line(1, &format!("{container}:"));
        for (name, value) in fields {
            page.field(2, name, &value);
        }
    }
}

fn ephemeral_containers(view: &PodView) -> Vec<Container> {
    let list = PodExt::spec(&view.pod).ephemeral_containers.iter();
    let one = |e: &EphemeralContainer| Container {
        name: e.name.clone(),
        image: e.image.clone(),
        command: e.command.clone(),
        args: e.args.clone(),
        env: e.env.clone(),
        volume_mounts: e.volume_mounts.clone(),
        ..Container::default()
    };
    list.flatten().map(one).collect()
}

fn head(page: &mut Page, view: &PodView, now: Timestamp) {
    let status = view.status();
    let spec = PodExt::spec(&view.pod);
    page.field(0, "Name", view.pod.name());
    page.field(0, "Namespace", view.pod.namespace());
    page.optional(0, "UID", view.pod.metadata.uid.as_deref());
    page.field(0, "Source", &view.entry.source);
    if let Some(priority) = spec.priority {
        page.field(0, "Priority", &priority.to_string());
    }
    let node = spec.node_name.as_deref().unwrap_or("<none>");
    match status.host_ip.as_deref() {
        Some(ip) => page.field(0, "Node", &format!("{node}/{ip}")),
        None => page.field(0, "Node", node),
    }
    if let Some(start) = &status.start_time {
        page.field(
            0,
            "Start Time",
            &format!(
                "{} ({} ago)",
                api_time(start.0),
                age::age(Some(start.0), now)
            ),
        );
    }
    page.map(0, "Labels", view.pod.metadata.labels.iter().flatten());
    page.map(
        0,
        "Annotations",
        view.pod.metadata.annotations.iter().flatten(),
    );
    page.field(0, "Status", &summary(view, now).status);
    page.optional(0, "Phase", status.phase.as_deref());
    page.field(0, "Worker", &view.entry.worker_state);
    page.optional(0, "Reason", status.reason.as_deref());
    page.optional(0, "Message", status.message.as_deref());
    page.field(0, "IP", status.pod_ip.as_deref().unwrap_or("<none>"));
    for ip in status.pod_ips.iter().flatten() {
        page.line(1, &format!("IP:  {}", ip.ip));
    }
    page.optional(0, "QoS Class", status.qos_class.as_deref());
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    page.field(0, "Restart Policy", policy);
}

fn conditions(page: &mut Page, view: &PodView) {
    let status = view.status();
    let rows: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|condition| {
            let why = [&condition.reason, &condition.message];
            let why = why.into_iter().flatten().filter(|text| !text.is_empty());
            let why = why.cloned().collect::<Vec<_>>().join(": ");
            vec![condition.type_.clone(), condition.status.clone(), why]
        })
        .collect();
    page.section("Conditions");
    page.table(&["Type", "Status", "Reason"], &rows);
}

fn volumes(page: &mut Page, view: &PodView) {
    page.section("Volumes");
    let volumes = PodExt::spec(&view.pod)
        .volumes
        .as_deref()
        .unwrap_or_default();
    if volumes.is_empty() {
        return page.line(1, "<none>");
    }
    for volume in volumes {
        page.line(1, &format!("{}:", volume.name));
        // the member besides the name is the volume type
        let value = serde_json::to_value(volume).unwrap_or_default();
        let kinds = value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "name");
        for (kind, settings) in kinds {
            page.field(2, "Type", kind);
            for (key, setting) in settings.as_object().into_iter().flatten() {
                let text = setting
                    .as_str()
                    .map_or_else(|| setting.to_string(), str::to_owned);
                page.field(2, key, &text);
            }
        }
    }
}

fn start(page: &mut Page, view: &PodView) {
    page.section("Start");
    for (phase, text) in get::phases(view) {
        page.field(1, phase, &text);
    }
}

fn warnings(page: &mut Page, view: &PodView) {
    if view.entry.unsupported_fields.is_empty() {
        return;
    }
    page.section("Warnings");
    for field in &view.entry.unsupported_fields {
        page.line(1, &format!("{field}: not supported by this version"));
    }
}

fn events(page: &mut Page, view: &PodView, now: Timestamp) {
    page.section("Events");
    let rows: Vec<_> = view
        .entry
        .events
        .iter()
        .map(|event| {
            let (first, last) = (
                event.first.and_then(pod::time),
                event.last.and_then(pod::time),
            );
            let when = match event.count {
                0 | 1 => age::age(last, now),
                count => format!(
                    "{} (x{count} over {})",
                    age::age(last, now),
                    age::age(first, now)
                ),
            };
            let container = event.container.as_ref();
            let message = match container {
                Some(container) => format!("{container}: {}", event.message),
                None => event.message.clone(),
            };
            vec![event.r#type.clone(), event.reason.clone(), when, message]
        })
        .collect();
    page.table(&["Type", "Reason", "Age", "Message"], &rows);
}

impl Page {
    /// Adds an indented table, or `<none>`.
    fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return self.line(1, "<none>");
        }
        for line in table::render(heading, rows).lines() {
            self.line(1, line);
        }
    }
}

#[cfg(test)]
mod tests;
