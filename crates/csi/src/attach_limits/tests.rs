//! A driver whose attach limit changes, on paused time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_types::SharedPod;
use windlass_volume_plan::volume_source::SecretRef;

use super::*;
use crate::drivers::RegisteredDriver;
use crate::port::{
    Attachment, CsiDriverSpec, CsiError, CsiNode, NodeCapability, ObjectError, PodToken,
    PublishRequest, StageRequest, TokenRequest, VolumeUsage,
};

/// A driver that implements only NodeGetInfo.
#[derive(Debug)]
struct Driver {
    info_response: Mutex<Option<NodeInfo>>,
    requests: watch::Sender<u32>,
}

fn nothing<T>() -> Result<T, CsiError> {
    Err(CsiError::Invalid {
        message: "not implemented".to_owned(),
    })
}

#[async_trait]
impl CsiNode for Driver {
    async fn info(&self) -> Result<NodeInfo, CsiError> {
        self.requests.send_modify(|requests| *requests += 1);
        let info_response = self.info_response.lock().unwrap().clone();
        match info_response {
            Some(info) => Ok(info),
            None => std::future::pending().await,
        }
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CsiError> {
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

/// CSIDriver objects with an optional period.
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
            message: "not implemented".to_owned(),
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

struct Fixture {
    drivers: CsiDrivers,
    objects: Arc<Objects>,
    driver: Arc<Driver>,
}

impl Fixture {
    /// A driver with limit 10 at registration and 7 now.
    fn begin(period: Option<u64>) -> Self {
        let objects = Arc::new(Objects(Mutex::new(period.map(Duration::from_secs))));
        let driver = Arc::new(Driver {
            info_response: Mutex::new(Some(info("i", 7))),
            requests: watch::channel(0).0,
        });
        let drivers = CsiDrivers::default();
        let known = RegisteredDriver {
            node: driver.clone(),
            info: info("i", 10),
        };
        drivers.add("d", known);
        tokio::spawn(run_attach_limit_refresh(drivers.clone(), objects.clone()));
        Self {
            drivers,
            objects,
            driver,
        }
    }

    fn max(&self) -> Option<i64> {
        self.drivers.get("d").unwrap().info.max_volumes
    }

    fn requests(&self) -> u32 {
        *self.driver.requests.borrow()
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn attach_limit_is_refreshed_at_the_period_of_the_object() {
    let fixture = Fixture::begin(Some(30));
    seconds(29).await;
    assert_eq!((fixture.max(), fixture.requests()), (Some(10), 0));
    seconds(2).await;
    assert_eq!((fixture.max(), fixture.requests()), (Some(7), 1));
    seconds(305).await;
    assert_eq!(fixture.requests(), 11);
}

#[tokio::test(start_paused = true)]
async fn attach_limit_is_not_refreshed_without_a_period() {
    let fixture = Fixture::begin(None);
    seconds(3600).await;
    assert_eq!((fixture.max(), fixture.requests()), (Some(10), 0));
    *fixture.objects.0.lock().unwrap() = Some(Duration::from_secs(10));
    seconds(80).await;
    assert_eq!(fixture.max(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn attach_limit_stays_if_driver_hangs_or_changes_node_id() {
    let fixture = Fixture::begin(Some(30));
    *fixture.driver.info_response.lock().unwrap() = None;
    seconds(100).await;
    assert!(fixture.requests() >= 2, "{}", fixture.requests());
    assert_eq!(fixture.max(), Some(10));
    *fixture.driver.info_response.lock().unwrap() = Some(info("another", 3));
    seconds(100).await;
    assert_eq!(fixture.max(), Some(10));
    *fixture.driver.info_response.lock().unwrap() = Some(info("i", 3));
    seconds(60).await;
    assert_eq!(fixture.max(), Some(3));
}
