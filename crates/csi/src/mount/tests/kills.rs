//! `kill -9` between any two steps, followed by a new agent run.

use std::collections::BTreeSet;

use windlass_types::{Pod, PodExt};
use windlass_volume_plan::volume_source::PodVolume;

use super::fixture::{Fixture, inline, persistent, pod};
use crate::port::NodeCapability;

/// More steps than any of these runs has.
const MAX_STEPS: usize = 200;

/// Mounts and unmounts a volume; `None` if the agent was killed meanwhile.
fn mount_and_unmount(fixture: &Fixture, pod: &Pod, volume: &PodVolume) -> Option<()> {
    fixture.try_stage(pod, volume)?.unwrap();
    fixture.try_set_up(pod, volume)?.unwrap();
    fixture.try_tear_down(&pod.uid(), volume)?.unwrap();
    if let Some(device) = volume.device() {
        fixture.try_unstage(&device)?.unwrap();
    }
    Some(())
}

/// Removes undesired volumes, as a new agent run does from the state of the node.
fn clean_up(fixture: &Fixture, pod: &Pod, volume: &PodVolume) {
    let dir = volume.dir(&fixture.dir.path().join("pods").join(pod.uid().as_str()));
    if dir.unwrap().symlink_metadata().is_ok() {
        fixture.tear_down(pod, volume).unwrap();
    }
    for device in fixture.paths().staged_devices().unwrap() {
        fixture.try_unstage(&device).unwrap().unwrap();
    }
}

/// Kills the agent at each step in turn; returns the number of steps.
fn kill_everywhere(volume: &PodVolume, after: impl Fn(&Fixture, &Pod, usize)) -> usize {
    let pod = pod("uid-1");
    for step in 1..MAX_STEPS {
        let mut fixture = Fixture::new(&[NodeCapability::Stage]);
        fixture.kill_at(step);
        if mount_and_unmount(&fixture, &pod, volume).is_some() {
            return step - 1;
        }
        fixture.restart();
        after(&fixture, &pod, step);
    }
    panic!("too many steps");
}

fn volumes() -> [PodVolume; 3] {
    [
        persistent(|_| {}),
        persistent(|csi| csi.block = true),
        inline(),
    ]
}

#[test]
fn csi_volumes_are_removed_after_agent_kill() {
    for volume in volumes() {
        let steps = kill_everywhere(&volume, |fixture, pod, step| {
            clean_up(fixture, pod, &volume);
            let state = fixture.state();
            let what = format!("{} killed at {step}", volume.dir_name());
            assert_eq!(state.published, BTreeSet::new(), "{what}");
            assert_eq!(state.staged, BTreeSet::new(), "{what}");
            assert_eq!(state.mounts, BTreeSet::new(), "{what}");
        });
        assert!(steps > 10, "{steps}");
    }
}

#[test]
fn csi_mount_completes_after_agent_kill() {
    for volume in volumes() {
        let steps = kill_everywhere(&volume, |fixture, pod, step| {
            fixture.stage(pod, &volume).unwrap();
            let mounted = fixture.set_up(pod, &volume).unwrap();
            let what = format!("{} killed at {step}", volume.dir_name());
            let state = fixture.state();
            assert_eq!(state.published.len(), 1, "{what}");
            let published = state.published.iter().next().unwrap().1.clone();
            drop(state);
            let path = mounted.path().unwrap();
            let shown = path.read_link().unwrap_or_else(|_| path.to_owned());
            assert_eq!(shown, published, "{what}");
            fixture.tear_down(pod, &volume).unwrap();
            if volume.device().is_some() {
                fixture.unstage(&volume).unwrap();
            }
            fixture.assert_clean(&what);
        });
        assert!(steps > 10, "{steps}");
    }
}

#[test]
fn unmounting_a_missing_volume_makes_no_call() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    for volume in volumes() {
        fixture.tear_down(&pod("uid-1"), &volume).unwrap();
        if volume.device().is_some() {
            fixture.unstage(&volume).unwrap();
        }
    }
    assert_eq!(fixture.journal(), "");
}
