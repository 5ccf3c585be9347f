//! Times of CRI calls from the runtime's log. The agent's part of a pod start is before the first
//! and after the last call.

use std::collections::BTreeMap;

use windlass_types::Timestamp;

/// Times of a pod's CRI calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimeTimes {
    /// RunPodSandbox arrived.
    pub(crate) sandbox_asked: Option<Timestamp>,
    /// StartContainer of its last container returned.
    pub(crate) container_started: Option<Timestamp>,
    /// StopContainer of its last container arrived.
    pub(crate) stop_asked: Option<Timestamp>,
    /// It returned.
    pub(crate) container_stopped: Option<Timestamp>,
}

/// Length of IDs of the runtime.
const ID: usize = 64;

/// Parses containerd's log for the pods with these UIDs.
pub(crate) fn read<'a>(
    log: &str,
    uids: impl Iterator<Item = &'a str> + Clone,
) -> BTreeMap<&'a str, RuntimeTimes> {
    let mut times: BTreeMap<&str, RuntimeTimes> = BTreeMap::new();
    // sandboxes, then containers, of the pods
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for line in log.lines() {
        let Some(at) = time(line) else { continue };
        if line.contains("msg=\"RunPodSandbox for ") {
            let Some(uid) = uids.clone().find(|uid| line.contains(uid)) else {
                continue;
            };
            match line.contains(" returns sandbox id ") {
                false => times.entry(uid).or_default().sandbox_asked = Some(at),
                true => owners.extend(ids(line).map(|id| (id, uid))),
            }
        } else if line.contains("msg=\"CreateContainer within sandbox ") {
            let uid = ids(line).find_map(|id| owners.get(id)).copied();
            owners.extend(ids(line).filter_map(|id| Some((id, uid?))));
        } else if line.contains("msg=\"StartContainer for ")
            && line.contains(" returns successfully")
            && let Some(uid) = ids(line).find_map(|id| owners.get(id))
        {
            times.entry(*uid).or_default().container_started = Some(at);
        } else if line.contains("msg=\"StopContainer for ")
            && let Some(uid) = ids(line).find_map(|id| owners.get(id))
        {
            let times = times.entry(*uid).or_default();
            match line.contains(" returns successfully") {
                false => times.stop_asked = Some(at),
                true => times.container_stopped = Some(at),
            }
        }
    }
    times
}

fn time(line: &str) -> Option<Timestamp> {
    let (time, _) = line.strip_prefix("time=\"")?.split_once('"')?;
    time.parse().ok()
}

fn ids(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_hexdigit())
        .filter(|part| part.len() == ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_call_and_the_last_answer_of_a_pod_are_found() {
        let (sandbox, container) = ("a".repeat(ID), "b".repeat(ID));
        let metadata = "&PodSandboxMetadata{Name:web,Uid:u-1,Namespace:default,Attempt:0,}";
        let log = format!(
            r#"time="2026-11-21T07:00:00.1Z" level=info msg="RunPodSandbox for {metadata}"
time="2026-11-21T07:00:00.2Z" level=info msg="RunPodSandbox for {metadata} returns sandbox id \"{sandbox}\""
time="2026-11-21T07:00:00.3Z" level=info msg="CreateContainer within sandbox \"{sandbox}\" for container &ContainerMetadata{{Name:main,Attempt:0,}}"
time="2026-11-21T07:00:00.4Z" level=info msg="CreateContainer within sandbox \"{sandbox}\" for &ContainerMetadata{{Name:main,Attempt:0,}} returns container id \"{container}\""
time="2026-11-21T07:00:00.5Z" level=info msg="StartContainer for \"{container}\""
time="2026-11-21T07:00:00.6Z" level=info msg="StartContainer for \"{container}\" returns successfully"
time="2026-11-21T07:00:00.7Z" level=info msg="StopContainer for \"{container}\" with timeout 30 (s)"
time="2026-11-21T07:00:00.8Z" level=info msg="StopContainer for \"{container}\" returns successfully"
no line of the log"#
        );
        let times = read(&log, ["u-2", "u-1"].into_iter());
        assert_eq!(times.len(), 1);
        let expected = RuntimeTimes {
            sandbox_asked: "2026-11-21T07:00:00.1Z".parse().ok(),
            container_started: "2026-11-21T07:00:00.6Z".parse().ok(),
            stop_asked: "2026-11-21T07:00:00.7Z".parse().ok(),
            container_stopped: "2026-11-21T07:00:00.8Z".parse().ok(),
        };
        assert_eq!(times["u-1"], expected);
    }
}
