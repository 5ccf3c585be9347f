//! The VolumeManager actor.
//!
//! * owns: what volumes pods want and have
//! * hears: `SetUpVolumes`, `TearDownVolumes`, answers of its own operations
//! * says: `VolumesChanged` to the SyncLoop (coalesced per pod), `VolumesInUse` to NodeStatus
//! * invariant: a volume has one operation under way; nothing is released that nobody asked to
//! * bound and overflow: a request per pod's job; operations run in the pods' own lanes
//! * restart: nothing to restore; volumes are set up again by whoever needs them, which changes
//!   nothing, and found on the disk when they are to go

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, StreamHandler};
use windlass_actors::{
    Delivery, Mailbox, SetUpVolumes, SlotSender, TearDownVolumes, VolumeManagerMessage,
    VolumesChanged, spawn_io,
};
use windlass_core::volume_source::PodVolumes;
use windlass_types::{Clock, MountedVolumes, PodUid, Reason, SharedPod, VolumesNotReady};
use windlass_volumes::{VolumeError, VolumePlugins, VolumeRequest};

/// What the VolumeManager works with.
#[derive(Clone, Debug)]
pub struct VolumeManagerDeps {
    /// Sets up and releases single volumes.
    pub plugins: Arc<dyn VolumePlugins>,
    /// Dates what is written.
    pub clock: Arc<dyn Clock>,
    /// The way to the SyncLoop.
    pub changed: SlotSender<PodUid, VolumesChanged>,
}

/// See the module page.
#[derive(Debug)]
pub struct VolumeManager {
    deps: VolumeManagerDeps,
    mailbox: Option<Mailbox<VolumeManagerMessage>>,
}

impl VolumeManager {
    /// An actor that hears `mailbox` once it is started.
    pub fn new(deps: VolumeManagerDeps, mailbox: Mailbox<VolumeManagerMessage>) -> Self {
        Self {
            deps,
            mailbox: Some(mailbox),
        }
    }

    fn set_up(&self, request: SetUpVolumes) {
        let deps = self.deps.clone();
        spawn_io("set-up-volumes", async move {
            // an asker that has gone asks again
            let result = set_up(&deps, request.pod, &request.volumes).await;
            let _ = request.reply.send(result);
        });
    }

    fn tear_down(&self, request: TearDownVolumes) {
        let deps = self.deps.clone();
        spawn_io("tear-down-volumes", async move {
            let _ = request.reply.send(tear_down(&deps, &request.uid).await);
        });
    }
}

impl Actor for VolumeManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some(mailbox) = self.mailbox.take() {
            ctx.add_stream(mailbox);
        }
    }
}

impl StreamHandler<Delivery<VolumeManagerMessage>> for VolumeManager {
    fn handle(&mut self, delivery: Delivery<VolumeManagerMessage>, _: &mut Context<Self>) {
        delivery.open(|message| match message {
            VolumeManagerMessage::SetUp(request) => self.set_up(request),
            VolumeManagerMessage::TearDown(request) => self.tear_down(request),
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

async fn set_up(
    deps: &VolumeManagerDeps,
    pod: SharedPod,
    volumes: &PodVolumes,
) -> Result<Arc<MountedVolumes>, VolumesNotReady> {
    let mut mounted = MountedVolumes::new();
    for volume in volumes {
        let request = VolumeRequest {
            pod: SharedPod::clone(&pod),
            volume: volume.clone(),
            now: deps.clock.now(),
        };
        let name = volume.name.clone();
        let set_up = deps.plugins.set_up(&request).await;
        let set_up = set_up.map_err(|error| not_ready("MountVolume.SetUp", &name, &error))?;
        mounted.insert(name, set_up);
    }
    Ok(Arc::new(mounted))
}

async fn tear_down(deps: &VolumeManagerDeps, uid: &PodUid) -> Result<(), VolumesNotReady> {
    let failed = |error: VolumeError| not_ready("UnmountVolume.TearDown", "", &error);
    for found in deps.plugins.find(uid).await.map_err(failed)? {
        let released = deps.plugins.tear_down(uid, &found).await;
        released.map_err(|error| not_ready("UnmountVolume.TearDown", &found.name, &error))?;
    }
    Ok(())
}

fn not_ready(step: &str, volume: &str, error: &VolumeError) -> VolumesNotReady {
    VolumesNotReady {
        reason: Reason::FailedMount,
        message: format!("{step} failed for volume {volume:?} : {error}"),
        retry: error.retry(),
        retry_at: None,
    }
}
