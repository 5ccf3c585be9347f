//! The HttpSource actor.
//!
//! * owns: the last body and its pods
//! * receives: the completions of its fetches and its timer
//! * sends: `SourceSnapshot` to PodStorage, only when something changed
//! * invariant: one fetch at a time; a failure changes no pod
//! * bound and overflow: one fetch in flight; a full PodStorage delays this actor
//! * restart: the next fetch sends everything with the same UIDs

use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler, WrapFuture};
use bytes::Bytes;
use http::{HeaderMap, Uri};
use windlass_actors::SourceSnapshot;
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, MailboxSender, completions, spawn_io,
};
use windlass_types::PodSource;

use super::io::{FetchError, Fetcher};
use super::state::{HttpState, Report};

/// Configuration of an [`HttpSource`].
#[derive(Clone, Debug)]
pub struct HttpSourceConfig {
    /// `staticPodURL`.
    pub url: Uri,
    /// `staticPodURLHeader`.
    pub headers: HeaderMap,
    /// Name of this node.
    pub node_name: String,
    /// `httpCheckFrequency`.
    pub period: Duration,
    /// PodStorage.
    pub storage: MailboxSender<SourceSnapshot>,
}

/// The HttpSource actor.
#[derive(Debug)]
pub struct HttpSource {
    config: HttpSourceConfig,
    fetcher: Fetcher,
    state: HttpState,
    fetching: bool,
    completions: CompletionSender<Fetched>,
    stream: Option<Completions<Fetched>>,
}

/// Completion of a fetch.
type Fetched = Result<Bytes, FetchError>;

impl HttpSource {
    /// Creates a source.
    pub fn new(config: HttpSourceConfig) -> Self {
        let (sender, stream) = completions();
        Self {
            fetcher: Fetcher::new(config.url.clone(), config.headers.clone()),
            state: HttpState::new(config.url.to_string(), config.node_name.clone()),
            config,
            fetching: false,
            completions: sender,
            stream: Some(stream),
        }
    }

    fn fetch(&mut self) {
        if std::mem::replace(&mut self.fetching, true) {
            return;
        }
        let fetcher = self.fetcher.clone();
        let completions = self.completions.clone();
        spawn_io("fetch-manifest", async move {
            completions.send(fetcher.fetch().await);
        });
    }

    fn fetched(&mut self, fetched: Fetched, ctx: &mut Context<Self>) {
        self.fetching = false;
        let (output, reports) = self.state.apply(fetched);
        reports.iter().for_each(log);
        if let Some(output) = output {
            let storage = self.config.storage.clone();
            ctx.wait(output.send(PodSource::Http, storage).into_actor(self));
        }
    }
}

fn log(report: &Report) {
    match report {
        Report::Loaded { pods, warnings } => {
            tracing::info!(pods, "manifest fetched");
            for warning in warnings {
                tracing::warn!(%warning, "manifest");
            }
        }
        Report::Failed { error, last } => {
            tracing::warn!(%error, further_at_debug = last, "fetching manifest failed");
        }
        Report::StillFailing { error } => tracing::debug!(%error, "fetching manifest failed"),
        Report::Recovered => tracing::info!("fetching manifest recovered"),
    }
}

impl Actor for HttpSource {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(stream) = self.stream.take() else {
            return ctx.stop();
        };
        ctx.add_stream(stream);
        ctx.run_interval(self.config.period, |this, _| this.fetch());
        tracing::info!(url = %self.config.url, "fetching manifests");
        self.fetch();
    }
}

impl StreamHandler<Delivery<Fetched>> for HttpSource {
    fn handle(&mut self, delivery: Delivery<Fetched>, ctx: &mut Context<Self>) {
        delivery.open(|fetched| self.fetched(fetched, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
