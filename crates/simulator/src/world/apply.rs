//! What each step does.

use std::time::Duration;

use serde_json::json;
use windlass_fake_api::Stored;
use windlass_testing::fake_runtime::ContainerView;
use windlass_types::corev1::{ConfigMap, Node, PersistentVolumeClaim};
use windlass_types::{ContainerState, Pod, PodExt, PodUid};

use super::{World, setup};
use crate::observation::Event;
use crate::pods;
use crate::step::{PodKind, Step};

const NAMESPACE: Option<&str> = Some("default");

impl World<'_> {
    /// Executes a step; false if it had no effect.
    pub(super) async fn apply(&mut self, step: &Step) -> bool {
        match step {
            Step::Create(kind, number) => return self.create(*kind, *number),
            Step::Delete(kind, number, grace) => return self.delete(*kind, *number, *grace),
            Step::Label(kind, number) => {
                let now = format!("{}", self.now().as_millis());
                return self.modify(*kind, *number, |pod| {
                    let labels = pod.metadata.labels.get_or_insert_default();
                    labels.insert("step".to_owned(), now);
                });
            }
            Step::Edit(kind, number) => {
                return self.modify(*kind, *number, |pod| {
                    if let Some(spec) = &mut pod.spec {
                        spec.containers[0].image = Some(pods::OTHER_IMAGE.to_owned());
                    }
                });
            }
            Step::Resize(kind, number, cpu) => {
                let size = serde_json::from_value(pods::size(*cpu)).ok();
                return self.modify(*kind, *number, |pod| {
                    if let Some(spec) = &mut pod.spec {
                        spec.containers[0].resources = size;
                    }
                });
            }
            Step::StaticAdd(name) | Step::StaticEdit(name) => {
                let is_there = self.statics.get(name).is_some_and(|(_, there)| *there);
                if is_there != matches!(step, Step::StaticEdit(_)) {
                    return false;
                }
                self.add_static(name);
                self.deliver_statics().await;
            }
            Step::StaticRemove(name) => {
                if !self.remove_static(name) {
                    return false;
                }
                self.deliver_statics().await;
            }
            Step::StaticRename(from, to) => {
                if !self.remove_static(from) {
                    return false;
                }
                self.add_static(to);
                self.deliver_statics().await;
            }
            Step::Exit(kind, number, code) => {
                let Some(container) = self.running(*kind, *number) else {
                    return false;
                };
                // before the consequences
                self.queue.push(Event::Step(step.clone()));
                self.sim.runtime.kill_container(&container.id, *code);
                return false;
            }
            Step::Oom(kind, number) => {
                let Some(container) = self.running(*kind, *number) else {
                    return false;
                };
                self.queue.push(Event::Step(step.clone()));
                self.sim.runtime.oom_kill(&container.id);
                return false;
            }
            Step::SandboxEnd(kind, number) => {
                let Some(container) = self.running(*kind, *number) else {
                    return false;
                };
                self.queue.push(Event::Step(step.clone()));
                self.sim.runtime.kill_sandbox(&container.sandbox);
                return false;
            }
            Step::LoseRemains(kind, number) => return self.lose_remains(*kind, *number),
            Step::DeleteMirror(name) => {
                return self.sim.api.delete::<Pod>(NAMESPACE, name, None);
            }
            Step::WriteConfig(number) => setup::write_config(self.sim, *number),
            Step::DeleteConfig(number) => {
                let name = pods::config_name(*number);
                return self.sim.api.delete::<ConfigMap>(NAMESPACE, &name, None);
            }
            Step::DeleteNode => return self.sim.api.delete::<Node>(None, pods::NODE, None),
            Step::Clock(seconds) => self.sim.step_clock(*seconds),
            Step::Kill(down) => {
                self.queue.push(Event::Step(step.clone()));
                self.kill(*down).await;
                return false;
            }
            Step::KillAt(calls, moment, down) => {
                if self.sim.agent().is_none() {
                    return false;
                }
                self.restart_after = *down;
                self.sim.kill_agent_at(*calls, *moment);
            }
            Step::Upgrade(down) => {
                self.queue.push(Event::Step(step.clone()));
                self.kill(*down).await;
                if let Some(disk) = &self.sim.state_disk {
                    disk.rewrite("admitted_pods", previous_format);
                }
                return false;
            }
            Step::Reboot(down) => {
                self.queue.push(Event::Step(step.clone()));
                self.reboot(*down).await;
                return false;
            }
            Step::Calm | Step::Converge(..) => {
                self.end_faults().await;
                for number in 0..crate::generate::CONFIGS {
                    if !self.has::<ConfigMap>(&pods::config_name(number)) {
                        setup::write_config(self.sim, number);
                    }
                }
            }
            Step::Respond(..)
            | Step::Api(..)
            | Step::Runtime(..)
            | Step::RuntimeRestart(_)
            | Step::Volume(..)
            | Step::Disk(..)
            | Step::Device(..)
            | Step::Pressure(..) => return self.inject(step),
        }
        true
    }

    fn has<K: Stored>(&self, name: &str) -> bool {
        self.sim.api.get::<K>(NAMESPACE, name).is_some()
    }

    fn create(&self, kind: PodKind, number: u32) -> bool {
        let pod = pods::pod(kind, number);
        let name = pod.name().to_owned();
        if self.has::<Pod>(&name) {
            return false;
        }
        if kind == PodKind::Claim && !self.has::<PersistentVolumeClaim>(&name) {
            let claim = self.sim.api.create(&pods::claim(&name));
            let uid = claim.metadata.uid.as_deref();
            self.sim.api.create(&pods::volume(&name, uid));
        }
        self.sim.api.create(&pod);
        true
    }

    fn delete(&self, kind: PodKind, number: u32, grace: Option<i64>) -> bool {
        let name = format!("{kind}-{number}");
        if !self.has::<Pod>(&name) {
            return false;
        }
        self.queue
            .push(Event::Step(Step::Delete(kind, number, grace)));
        self.sim.api.delete::<Pod>(NAMESPACE, &name, grace);
        false
    }

    fn lose_remains(&self, kind: PodKind, number: u32) -> bool {
        let Some(uid) = self.uid(kind, number) else {
            return false;
        };
        let containers = self.sim.runtime.containers(&uid).into_iter();
        let ended: Vec<_> = containers
            .filter(|c| c.state == ContainerState::Exited)
            .collect();
        for container in &ended {
            self.sim.runtime.lose_container(&container.id);
        }
        !ended.is_empty()
    }

    fn modify(&self, kind: PodKind, number: u32, change: impl FnOnce(&mut Pod)) -> bool {
        let name = format!("{kind}-{number}");
        if !self.has::<Pod>(&name) {
            return false;
        }
        self.sim.api.modify::<Pod>(NAMESPACE, &name, change);
        true
    }

    /// The running instance of a pod's first container.
    fn running(&self, kind: PodKind, number: u32) -> Option<ContainerView> {
        let uid = self.uid(kind, number)?;
        let containers = self.sim.runtime.containers(&uid).into_iter();
        let mut running = containers.filter(|c| c.state == ContainerState::Running);
        running.find(|c| c.name == kind.as_str())
    }

    fn uid(&self, kind: PodKind, number: u32) -> Option<PodUid> {
        let name = format!("{kind}-{number}");
        let pod = self.sim.api.get::<Pod>(NAMESPACE, &name)?;
        Some(PodExt::uid(&pod))
    }

    fn add_static(&mut self, name: &str) {
        let (version, is_there) = self.statics.entry(name.to_owned()).or_default();
        *version += 1;
        *is_there = true;
        let uid = pods::static_uid(name, *version).into();
        let pod = format!("default/{name}");
        self.queue.push(Event::StaticAdded(uid, pod));
    }

    fn remove_static(&mut self, name: &str) -> bool {
        let Some((_, is_there)) = self.statics.get_mut(name).filter(|(_, there)| *there) else {
            return false;
        };
        *is_there = false;
        self.queue
            .push(Event::StaticRemoved(format!("default/{name}")));
        true
    }

    /// Static pods that are desired.
    pub(crate) fn desired_statics(&self) -> Vec<Pod> {
        let desired = self.statics.iter().filter(|(_, (_, is_there))| *is_there);
        desired
            .map(|(name, (version, _))| pods::static_pod(name, *version))
            .collect()
    }

    async fn deliver_statics(&mut self) {
        let desired = self.desired_statics();
        self.sim.desire(desired).await;
    }

    async fn reboot(&mut self, down: Duration) {
        self.kill(down).await;
        self.sim.runtime.reboot();
        self.sim.volumes.reboot();
        if let Some(disk) = &self.sim.state_disk {
            disk.crash();
        }
        let boots = self.checker.coverage.get("reboot") + 1;
        self.sim.machine.boot_id = format!("boot-{boots}");
    }
}

/// A checkpoint as it was written before allocated resources had a value of their own: each entry
/// is the pod itself.
fn previous_format(content: &[u8]) -> Option<Vec<u8>> {
    let unchanged = content.to_vec();
    let Ok(envelope) = serde_json::from_slice::<serde_json::Value>(content) else {
        return Some(unchanged);
    };
    let Some(entries) = envelope["data"].as_object() else {
        return Some(unchanged);
    };
    let entries = entries.iter().map(|(uid, entry)| {
        let pod = entry.get("pod").unwrap_or(entry);
        (uid.clone(), pod.clone())
    });
    let data = serde_json::Value::Object(entries.collect());
    let checksum = windlass_units::hash::fnv1a_64(data.to_string().as_bytes());
    let envelope = json!({
        "version": envelope["version"],
        "checksum": format!("fnv1a-64:{checksum:016x}"),
        "data": data,
    });
    Some(envelope.to_string().into_bytes())
}
