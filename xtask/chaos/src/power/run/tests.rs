//! Runs against a machine in memory: what it loses must be in the table.

use serde_json::json;
use windlass_types::names::{ANN_CONFIG_HASH, ANN_CONFIG_MIRROR};

use super::*;
use crate::power::MachineFile;

/// Boots of a run of four cuts.
const BOOTS: usize = 5;

/// What the machine does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    LosesData,
    KeepsMounts,
    SetsFileAside,
    AgentExits,
    PodIsNotReady,
    PodStays,
    RestartsTwice,
    TaskRunsAgain,
    TornPayload,
    Hangs,
}

/// A machine whose kubelet acts within seconds.
struct Memory {
    kubelet: Kubelet,
    manifests: Vec<Pod>,
    /// The kubelet of this boot; none while the power is off.
    running: Option<JoinHandle<()>>,
    data: BTreeMap<String, String>,
}

/// What reports statuses.
#[derive(Clone)]
struct Kubelet {
    api: FakeApiServer,
    defect: Defect,
    boots: usize,
}

impl Kubelet {
    async fn run(self) {
        loop {
            self.sync();
            sleep(POLL * 10).await;
        }
    }

    fn has(&self, defect: Defect) -> bool {
        // a defect shows after a cut
        self.defect == defect && self.boots > 1
    }

    /// Removes deleted pods and reports the others as they are after this boot.
    fn sync(&self) {
        for pod in self.api.list::<Pod>() {
            let name = pod.metadata.name.clone().unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_some() {
                // in the last boot, in which all pods are deleted
                if !(self.defect == Defect::PodStays && self.boots == BOOTS) {
                    self.api.delete::<Pod>(Some(NAMESPACE), &name, Some(0));
                }
                continue;
            }
            let status = serde_json::from_value(self.status(&pod)).unwrap();
            self.api.modify::<Pod>(Some(NAMESPACE), &name, |pod| {
                pod.status = Some(status);
            });
        }
    }

    fn status(&self, pod: &Pod) -> Value {
        let commands = pod.spec.iter().flat_map(|spec| &spec.containers);
        let text: Vec<String> = commands
            .flat_map(|container| container.command.clone().unwrap_or_default())
            .collect();
        let text = text.join(" ");
        let is_loop = text.ends_with("exit 1");
        let is_task = pod.spec.as_ref().unwrap().restart_policy.as_deref() == Some("Never");
        let restarts = match self.has(Defect::RestartsTwice) {
            true => self.boots * 2,
            false => self.boots - 1,
        };
        let phase = match (is_task, is_loop) {
            (true, _) if self.has(Defect::TaskRunsAgain) => "Failed",
            (true, _) => "Succeeded",
            _ => "Running",
        };
        // in one boot, which then takes its whole timeout
        let is_unready = self.has(Defect::PodIsNotReady) && self.boots == 3;
        let ready = if is_unready { "False" } else { "True" };
        let state = match is_loop {
            true => json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
            false => json!({ "running": {} }),
        };
        json!({
            "phase": phase,
            "conditions": [{ "type": "Ready", "status": ready }],
            "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "i", "ready": true,
                "restartCount": if is_task { 0 } else { restarts },
                "containerID": format!("containerd://{}-{}", text.len(), self.boots),
                "state": state,
            }],
        })
    }
}

impl Memory {
    fn new(api: FakeApiServer, defect: Defect) -> Self {
        Self {
            kubelet: Kubelet {
                api,
                defect,
                boots: 0,
            },
            manifests: Vec::new(),
            running: None,
            data: BTreeMap::new(),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.kubelet.has(defect)
    }

    fn snapshot(&self) -> String {
        let lines = |name: &str, lines: Vec<String>| format!("@{name}\n{}\n", lines.join("\n"));
        let mut text = String::from("@service\nActiveState=active\n");
        let exits = usize::from(self.has(Defect::AgentExits));
        text.push_str(&format!("NRestarts={exits}\n"));
        if self.has(Defect::KeepsMounts) && self.kubelet.boots == BOOTS {
            text.push_str("@mounts\n/var/lib/kubelet/pods/gone/volumes/v\n");
        }
        if self.has(Defect::SetsFileAside) {
            text.push_str("@state\nbackoff\nbackoff.corrupt-1\n");
        }
        if self.has(Defect::TornPayload) {
            text.push_str("@payload\n/x \n");
        }
        if !self.has(Defect::LosesData) {
            let data = self.data.iter();
            let data = data
                .map(|(uid, number)| format!("{uid} {number}"))
                .collect();
            text.push_str(&lines("data", data));
        }
        text.push_str("@end\n");
        text.replace("\n\n", "\n")
    }

    /// Numbers in `echo N >/var/lib/kubelet/pods/UID/…`.
    fn write(&mut self, script: &str) {
        for line in script.lines() {
            let uid = line
                .split("/pods/")
                .nth(1)
                .and_then(|it| it.split('/').next());
            let number = line.split(' ').nth(1);
            if let (Some(uid), Some(number)) = (uid, number) {
                self.data.insert(uid.to_owned(), number.to_owned());
            }
        }
    }
}

impl Machine for Memory {
    async fn prepare(&mut self, _agent: &Path, files: &[MachineFile]) -> anyhow::Result<()> {
        let manifests = files
            .iter()
            .filter(|file| file.path.starts_with(pods::MANIFESTS));
        for file in manifests {
            let mut pod: Value = serde_json::from_str(&file.text)?;
            let name = pod["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            pod["metadata"]["name"] = json!(format!("{name}-{NODE_NAME}"));
            let hash = format!("hash-{name}");
            pod["metadata"]["annotations"] =
                json!({ ANN_CONFIG_MIRROR: hash, ANN_CONFIG_HASH: hash });
            self.manifests.push(serde_json::from_value(pod)?);
        }
        Ok(())
    }

    async fn power_on(&mut self) -> anyhow::Result<()> {
        assert!(self.running.is_none(), "it is on");
        self.kubelet.boots += 1;
        if self.kubelet.boots == 1 {
            for pod in &self.manifests {
                self.kubelet.api.create(pod);
            }
        }
        self.running = Some(tokio::spawn(self.kubelet.clone().run()));
        Ok(())
    }

    async fn system_started(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run(&mut self, script: &str) -> anyhow::Result<String> {
        assert!(self.running.is_some(), "it is off");
        if self.kubelet.has(Defect::Hangs) {
            anyhow::bail!("no answer");
        }
        if let Some(path) = script.strip_prefix("rm ") {
            let name = path.rsplit('/').next().unwrap_or_default();
            let name = format!("{}-{NODE_NAME}", name.trim_end_matches(".yaml"));
            let api = &self.kubelet.api;
            api.delete::<Pod>(Some(NAMESPACE), &name, Some(0));
        } else if script.contains("@service") {
            return Ok(self.snapshot());
        } else if script.contains("/token") {
            self.write(script);
        } else if script.starts_with("systemctl is-active") {
            return Ok("active\n".to_owned());
        }
        Ok(String::new())
    }

    async fn cut(&mut self) -> anyhow::Result<()> {
        if let Some(running) = self.running.take() {
            running.abort();
        }
        Ok(())
    }

    fn hung_boots(&self) -> usize {
        0
    }
}

/// Runs some cuts and returns what exceeds its budget.
async fn over_budget(defect: Defect) -> Vec<String> {
    let stages = [Stage::Rest, Stage::Start, Stage::Create, Stage::Delete];
    let plan = stages.map(|stage| Cut { stage, part: 0.5 });
    let control_plane = ControlPlane::start().await.unwrap();
    let mut machine = Memory::new(control_plane.api.clone(), defect);
    let agent = Path::new("windlass");
    let members = pods::members(6);
    let run = run_plan(&plan, members, control_plane, agent, &mut machine);
    let report = run.await.unwrap();
    let boots = if defect == Defect::Hangs { 2 } else { BOOTS };
    assert_eq!(machine.kubelet.boots, boots);
    let over = report.over_budget();
    over.into_iter().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn machine_that_loses_nothing_is_within_all_budgets() {
    assert_eq!(over_budget(Defect::None).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn every_defect_of_a_machine_is_over_its_budget() {
    let cases = [
        (Defect::LosesData, "emptyDirs without their synced data"),
        (Defect::KeepsMounts, "left behind: mounts"),
        (Defect::SetsFileAside, "state files set aside"),
        (Defect::AgentExits, "exits of the agent"),
        (Defect::PodIsNotReady, "of them not converged"),
        (Defect::PodStays, "left behind: pods in the API server"),
        (
            Defect::RestartsTwice,
            "containers restarted more often than the power was cut",
        ),
        (Defect::TaskRunsAgain, "terminal phases that were left"),
        (
            Defect::TornPayload,
            "ConfigMap volumes with other content than the ConfigMap",
        ),
        (Defect::Hangs, "ended early: no answer"),
    ];
    for (defect, expected) in cases {
        let over = over_budget(defect).await;
        assert!(over.iter().any(|it| it == expected), "{defect:?}: {over:?}");
    }
}
