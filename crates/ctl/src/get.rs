//! `get`: lists or watches pods as a table or as objects; lists devices and exclusive CPUs.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_node_proto::windlass_v1 as proto;
use windlass_types::{PodExt, Timestamp};

use crate::age::{age, span};
use crate::args::{GetArgs, GetKind, Output};
use crate::assigned::{self, Resource};
use crate::client::Client;
use crate::error::Error;
use crate::pod::{self, PodView};
use crate::status::summary;
use crate::table;

/// Clears the screen and moves the cursor to the top left.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// AGE has a resolution of seconds.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(mut client: Client, args: &GetArgs) -> Result<(), Error> {
    let resource = match args.kind {
        GetKind::Pods => None,
        GetKind::Devices => Some(Resource::Devices),
        GetKind::Cpus => Some(Resource::Cpus),
    };
    if let Some(resource) = resource {
        return assigned::run(&client, resource).await;
    }
    let namespace = (!args.all_namespaces).then_some(args.namespace.as_str());
    if args.watch {
        return watch(client, args, namespace).await;
    }
    if let Some(name) = &args.name {
        let found = pod::find(&mut client, &args.namespace, name).await?;
        return print(&one(&found, args, crate::now())?);
    }
    let pods = client.list(namespace).await?;
    print_rejected(&client.rejected().await?);
    if pods.is_empty() && matches!(args.output, None | Some(Output::Wide)) {
        let scope = namespace.map_or_else(String::new, |name| format!(" in namespace {name}"));
        eprintln!("No pods found{scope}.");
        return Ok(());
    }
    print(&many(&pods, args, crate::now())?)
}

/// Prints the rejected manifests, which have no pod in the list.
fn print_rejected(rejected: &[String]) {
    match rejected.len() {
        0 => return,
        1 => eprintln!("1 manifest rejected:"),
        count => eprintln!("{count} manifests rejected:"),
    }
    for line in rejected {
        eprintln!("  {line}");
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Watches the pods: redraws the table on a terminal, else prints one row or object per change.
async fn watch(mut client: Client, args: &GetArgs, namespace: Option<&str>) -> Result<(), Error> {
    let live = io::stdout().is_terminal() && matches!(args.output, None | Some(Output::Wide));
    let mut stream = client.watch(namespace).await?;
    let mut pods: BTreeMap<String, PodView> = BTreeMap::new();
    let mut headed = false;
    let mut redraw = tokio::time::interval(REDRAW_INTERVAL);
    loop {
        let message = tokio::select! {
            message = stream.message() => message?,
            _ = redraw.tick(), if live => {
                draw(&pods, args)?;
                continue;
            }
        };
        let Some(message) = message else {
            return Err(tonic::Status::unavailable("").into());
        };
        let changed = apply(&mut pods, message, args)?;
        if live {
            draw(&pods, args)?;
        } else if !changed.is_empty() {
            print(&changes(&changed, args, headed, crate::now())?)?;
            headed = true;
        }
    }
}

/// Formats changes as rows below one heading, or as objects.
fn changes(
    pods: &[PodView],
    args: &GetArgs,
    headed: bool,
    now: Timestamp,
) -> Result<String, Error> {
    match args.output {
        Some(Output::Json) => pods.iter().map(|view| one(view, args, now)).collect(),
        Some(Output::Yaml) => pods
            .iter()
            .map(|view| Ok(format!("---\n{}", one(view, args, now)?)))
            .collect(),
        Some(Output::Name) => many(pods, args, now),
        None | Some(Output::Wide) => {
            let text = many(pods, args, now)?;
            let heading = text.find('\n').map_or(0, |end| end + 1);
            Ok(text[if headed { heading } else { 0 }..].to_owned())
        }
    }
}

fn draw(pods: &BTreeMap<String, PodView>, args: &GetArgs) -> Result<(), Error> {
    let mut pods: Vec<_> = pods.values().cloned().collect();
    pods.sort_by_key(PodView::path);
    print(&format!("{CLEAR}{}", many(&pods, args, crate::now())?))
}

/// Applies a message to `pods` (by UID) and returns the changed pods.
fn apply(
    pods: &mut BTreeMap<String, PodView>,
    message: proto::WatchPodsResponse,
    args: &GetArgs,
) -> Result<Vec<PodView>, Error> {
    if message.snapshot {
        pods.clear();
    }
    for uid in message.removed {
        pods.remove(&uid);
    }
    let mut changed = Vec::new();
    for entry in message.pods {
        let view = PodView::decode(entry)?;
        let name = args.name.as_deref();
        if name.is_none_or(|name| pod::choose(std::slice::from_ref(&view), name).is_some()) {
            pods.insert(view.pod.uid().to_string(), view.clone());
            changed.push(view);
        }
    }
    Ok(changed)
}

fn one(view: &PodView, args: &GetArgs, now: Timestamp) -> Result<String, Error> {
    match args.output {
        Some(Output::Json) => json_text(&object(view)?),
        Some(Output::Yaml) => yaml_text(&object(view)?),
        _ => many(std::slice::from_ref(view), args, now),
    }
}

fn many(pods: &[PodView], args: &GetArgs, now: Timestamp) -> Result<String, Error> {
    match args.output {
        None => Ok(rows(pods, args.all_namespaces, false, now)),
        Some(Output::Wide) => Ok(rows(pods, args.all_namespaces, true, now)),
        Some(Output::Name) => Ok(pods
            .iter()
            .map(|v| format!("pod/{}\n", v.pod.name()))
            .collect()),
        Some(Output::Json) => json_text(&list(pods)?),
        Some(Output::Yaml) => yaml_text(&list(pods)?),
    }
}

fn object(view: &PodView) -> Result<Value, Error> {
    serde_json::to_value(&view.pod).map_err(|error| Error::InvalidResponse(error.to_string()))
}

fn list(pods: &[PodView]) -> Result<Value, Error> {
    let items = pods.iter().map(object).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
}

fn json_text(value: &Value) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n")
        .map_err(|error| Error::InvalidResponse(error.to_string()))
}

fn yaml_text(value: &Value) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|error| Error::InvalidResponse(error.to_string()))
}

/// Formats the table.
fn rows(pods: &[PodView], with_namespace: bool, wide: bool, now: Timestamp) -> String {
    let mut heading = vec!["NAME", "READY", "STATUS", "RESTARTS", "AGE"];
    if wide {
        heading.extend(["IP", "NODE", "SOURCE"]);
        heading.extend([
            "START",
            "WAIT",
            "SANDBOX",
            "IMAGE",
            "INIT",
            "CONTAINERS",
            "BLOCKER",
        ]);
    }
    if with_namespace {
        heading.insert(0, "NAMESPACE");
    }
    let rows: Vec<_> = pods
        .iter()
        .map(|view| row(view, with_namespace, wide, now))
        .collect();
    table::render(&heading, &rows)
}

fn row(view: &PodView, with_namespace: bool, wide: bool, now: Timestamp) -> Vec<String> {
    let summary = summary(view, now);
    let mut row = Vec::with_capacity(16);
    if with_namespace {
        row.push(view.pod.namespace().to_owned());
    }
    row.push(view.pod.name().to_owned());
    row.extend([summary.ready, summary.status, summary.restarts]);
    row.push(age(view.created(), now));
    if wide {
        let or_none = |text: Option<&str>| {
            text.filter(|t| !t.is_empty())
                .unwrap_or("<none>")
                .to_owned()
        };
        row.push(or_none(view.status().pod_ip.as_deref()));
        row.push(or_none(PodExt::spec(&view.pod).node_name.as_deref()));
        row.push(or_none(Some(&view.entry.source)));
        row.extend(phases(view).map(|(_, text)| text));
        row.push(blocker(view.entry.blocker.as_ref()));
    }
    row
}

/// Returns the durations of a pod start: the total, then its phases in order.
pub(crate) fn phases(view: &PodView) -> [(&'static str, String); 6] {
    let t = view.entry.timings.unwrap_or_default();
    let at = |time: Option<prost_types::Timestamp>| time.and_then(pod::time);
    let (seen, dispatched, sandbox) = (at(t.seen), at(t.dispatched), at(t.sandbox_ready));
    let (images, init, started) = (
        at(t.images_ready),
        at(t.init_done),
        at(t.containers_started),
    );
    // init containers wait for the images and the sandbox
    let prepared = images.map(|images| sandbox.map_or(images, |sandbox| images.max(sandbox)));
    [
        ("total", span(seen, at(t.running))),
        ("wait", span(seen, dispatched)),
        ("sandbox", span(dispatched, sandbox)),
        ("image", span(sandbox, images)),
        ("init", span(prepared, init)),
        ("containers", span(init.or(prepared), started)),
    ]
}

fn blocker(blocker: Option<&proto::Blocker>) -> String {
    match blocker {
        None => "<none>".to_owned(),
        Some(blocker) => match &blocker.container {
            Some(container) => format!("{} ({container})", blocker.reason),
            None => blocker.reason.clone(),
        },
    }
}

#[cfg(test)]
mod tests;
