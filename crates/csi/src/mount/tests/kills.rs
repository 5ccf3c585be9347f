//! `kill -9` between any two steps, and what the next agent makes of it.

use std::collections::BTreeSet;

use windlass_volume_plan::volume_source::PodVolume;
use windlass_types::{Pod, PodExt};

use super::world::{World, inline, persistent, pod};
use crate::port::NodeAbility;

/// More steps than any of these lives has.
const ENOUGH: usize = 200;

/// From nothing to a mounted volume and back; `None` if the agent was killed on the way.
fn life(world: &World, pod: &Pod, volume: &PodVolume) -> Option<()> {
    world.try_stage(pod, volume)?.unwrap();
    world.try_set_up(pod, volume)?.unwrap();
    world.try_tear_down(&pod.uid(), volume)?.unwrap();
    if let Some(device) = volume.device() {
        world.try_unstage(&device)?.unwrap();
    }
    Some(())
}

/// What a new agent does with what it finds and nobody wants: by what lies on the node alone.
fn clean_up(world: &World, pod: &Pod, volume: &PodVolume) {
    let dir = volume.dir(&world.dir.path().join("pods").join(pod.uid().as_str()));
    if dir.unwrap().symlink_metadata().is_ok() {
        world.tear_down(pod, volume).unwrap();
    }
    for device in world.paths().staged_devices().unwrap() {
        world.try_unstage(&device).unwrap().unwrap();
    }
}

/// Kills the agent at each step in turn; how many steps there were.
fn kill_everywhere(volume: &PodVolume, after: impl Fn(&World, &Pod, usize)) -> usize {
    let pod = pod("uid-1");
    for step in 1..ENOUGH {
        let mut world = World::new(&[NodeAbility::Stage]);
        world.kill_at(step);
        if life(&world, &pod, volume).is_some() {
            return step - 1;
        }
        world.restart();
        after(&world, &pod, step);
    }
    panic!("a life without end");
}

fn volumes() -> [PodVolume; 3] {
    [
        persistent(|_| {}),
        persistent(|csi| csi.block = true),
        inline(),
    ]
}

#[test]
fn whoever_is_killed_is_followed_by_an_agent_that_takes_everything_back() {
    for volume in volumes() {
        let steps = kill_everywhere(&volume, |world, pod, step| {
            clean_up(world, pod, &volume);
            let state = world.state();
            let what = format!("{} killed at {step}", volume.dir_name());
            assert_eq!(state.published, BTreeSet::new(), "{what}");
            assert_eq!(state.staged, BTreeSet::new(), "{what}");
            assert_eq!(state.mounts, BTreeSet::new(), "{what}");
        });
        assert!(steps > 10, "{steps}");
    }
}

#[test]
fn whoever_is_killed_is_followed_by_an_agent_that_brings_the_volume_up_and_leaves_nothing() {
    for volume in volumes() {
        let steps = kill_everywhere(&volume, |world, pod, step| {
            world.stage(pod, &volume).unwrap();
            let mounted = world.set_up(pod, &volume).unwrap();
            let what = format!("{} killed at {step}", volume.dir_name());
            let state = world.state();
            assert_eq!(state.published.len(), 1, "{what}");
            let published = state.published.iter().next().unwrap().1.clone();
            drop(state);
            let path = mounted.path().unwrap();
            let shown = path.read_link().unwrap_or_else(|_| path.to_owned());
            assert_eq!(shown, published, "{what}");
            world.tear_down(pod, &volume).unwrap();
            if volume.device().is_some() {
                world.unstage(&volume).unwrap();
            }
            world.assert_clean(&what);
        });
        assert!(steps > 10, "{steps}");
    }
}

#[test]
fn taking_back_what_is_not_there_is_fine() {
    let world = World::new(&[NodeAbility::Stage]);
    for volume in volumes() {
        world.tear_down(&pod("uid-1"), &volume).unwrap();
        if volume.device().is_some() {
            world.unstage(&volume).unwrap();
        }
    }
    assert_eq!(world.journal(), "");
}
