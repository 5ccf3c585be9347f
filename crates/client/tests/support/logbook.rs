//! Everything that any crate logs on this thread, at any level.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Clones write to the same text.
#[derive(Clone, Default)]
pub(crate) struct Logbook(Arc<Mutex<String>>);

impl Logbook {
    pub(crate) fn text(&self) -> String {
        self.0.lock().expect("lock").clone()
    }
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(self.0, "{field}={value:?}").expect("a text");
    }
}

impl Subscriber for Logbook {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Line(&mut self.0.lock().expect("lock")));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Line(&mut self.0.lock().expect("lock")));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Line(&mut self.0.lock().expect("lock")));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
