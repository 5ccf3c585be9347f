//! A driver that changes its mind, on paused time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_volume_plan::volume_source::SecretRef;
use windlass_types::SharedPod;

use super::*;
use crate::drivers::RegisteredDriver;
use crate::port::{
    Attachment, CsiDriverSpec, CsiError, CsiNode, NodeAbility, ObjectError, PodToken,
    PublishRequest, StageRequest, TokenRequest, VolumeUsage,
};

/// A driver that only knows how many volumes fit.
#[derive(Debug)]
struct Driver {
    answer: Mutex<Option<NodeInfo>>,
    asked: watch::Sender<u32>,
}

fn nothing<T>() -> Result<T, CsiError> {
    Err(CsiError::Invalid {
        message: "not asked for".to_owned(),
    })
}

#[async_trait]
impl CsiNode for Driver {
    async fn info(&self) -> Result<NodeInfo, CsiError> {
        self.asked.send_modify(|asked| *asked += 1);
        let answer = self.answer.lock().unwrap().clone();
        match answer {
            Some(info) => Ok(info),
            None => std::future::pending().await,
        }
    }

    async fn abilities(&self) -> Result<BTreeSet<NodeAbility>, CsiError> {
        nothing()
    }

    async fn stage(&self, _: StageRequest) -> Result<(), CsiError> {
        nothing()
    }

    async fn unstage(&self, _: &str, _: &Path) -> Result<(), CsiError> {
        nothing()
    }

    async fn publish(&self, _: PublishRequest) -> Result<(), CsiError> {
        nothing()
    }

    async fn unpublish(&self, _: &str, _: &Path) -> Result<(), CsiError> {
        nothing()
    }

    async fn expand(&self, _: StageRequest, _: u64, _: PathBuf) -> Result<u64, CsiError> {
        nothing()
    }

    async fn usage(&self, _: &str, _: &Path, _: Option<&Path>) -> Result<VolumeUsage, CsiError> {
        nothing()
    }
}

/// CSIDrivers with a period, if they have one.
#[derive(Debug, Default)]
struct Objects(Mutex<Option<Duration>>);

#[async_trait]
impl CsiObjects for Objects {
    async fn driver(&self, _: &str) -> Result<Option<CsiDriverSpec>, ObjectError> {
        Ok(Some(CsiDriverSpec {
            allocatable_update: *self.0.lock().unwrap(),
            ..CsiDriverSpec::default()
        }))
    }

    async fn attachment(&self, _: &str) -> Result<Option<Attachment>, ObjectError> {
        Ok(None)
    }

    async fn secret(&self, _: &SecretRef) -> Result<BTreeMap<String, Vec<u8>>, ObjectError> {
        Ok(BTreeMap::new())
    }

    async fn token(&self, _: &SharedPod, _: &TokenRequest) -> Result<PodToken, ObjectError> {
        Err(ObjectError {
            message: "not asked for".to_owned(),
            retry: windlass_types::Retry::Never,
        })
    }
}

fn info(node_id: &str, max: i64) -> NodeInfo {
    NodeInfo {
        node_id: node_id.to_owned(),
        max_volumes: Some(max),
        ..NodeInfo::default()
    }
}

struct World {
    drivers: CsiDrivers,
    objects: Arc<Objects>,
    driver: Arc<Driver>,
}

impl World {
    /// A driver that said 10 when it registered and says 7 now.
    fn begin(period: Option<u64>) -> Self {
        let objects = Arc::new(Objects(Mutex::new(period.map(Duration::from_secs))));
        let driver = Arc::new(Driver {
            answer: Mutex::new(Some(info("i", 7))),
            asked: watch::channel(0).0,
        });
        let drivers = CsiDrivers::default();
        let known = RegisteredDriver {
            node: driver.clone(),
            info: info("i", 10),
        };
        drivers.add("d", known);
        tokio::spawn(keep_attach_limits(drivers.clone(), objects.clone()));
        Self {
            drivers,
            objects,
            driver,
        }
    }

    fn max(&self) -> Option<i64> {
        self.drivers.get("d").unwrap().info.max_volumes
    }

    fn asked(&self) -> u32 {
        *self.driver.asked.borrow()
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_asked_again_as_often_as_its_object_says() {
    let world = World::begin(Some(30));
    seconds(29).await;
    assert_eq!((world.max(), world.asked()), (Some(10), 0));
    seconds(2).await;
    assert_eq!((world.max(), world.asked()), (Some(7), 1));
    seconds(305).await;
    assert_eq!(world.asked(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_driver_whose_object_says_nothing_is_not_asked_until_it_does() {
    let world = World::begin(None);
    seconds(3600).await;
    assert_eq!((world.max(), world.asked()), (Some(10), 0));
    *world.objects.0.lock().unwrap() = Some(Duration::from_secs(10));
    seconds(80).await;
    assert_eq!(world.max(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_or_renames_the_node_keeps_what_it_said() {
    let world = World::begin(Some(30));
    *world.driver.answer.lock().unwrap() = None;
    seconds(100).await;
    assert!(world.asked() >= 2, "{}", world.asked());
    assert_eq!(world.max(), Some(10));
    *world.driver.answer.lock().unwrap() = Some(info("another", 3));
    seconds(100).await;
    assert_eq!(world.max(), Some(10));
    *world.driver.answer.lock().unwrap() = Some(info("i", 3));
    seconds(60).await;
    assert_eq!(world.max(), Some(3));
}
