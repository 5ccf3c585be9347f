//! Log lines on stderr: klog text or JSON.
//!
//! A text line begins with the level's letter, month and day, the time in UTC, the process ID
//! and the module, as `I1121 04:05:06.123456   812 sync_loop] message field=value`, so that
//! parsers of kubelet logs work. klog verbosities map to five levels.

use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use std::sync::Arc;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};
use windlass_config::kubelet::Logging;
use windlass_node_api::Verbosity;
use windlass_types::Clock;

/// Log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One readable line for each event.
    Text,
    /// One JSON object for each event.
    Json,
}

/// Returns the configured format.
pub(crate) fn format(logging: &Logging) -> Format {
    match logging.format.as_str() {
        "json" => Format::Json,
        _ => Format::Text,
    }
}

/// Starts logging for the whole process.
///
/// A non-empty `RUST_LOG` overrides `verbosity` (`-v`) until [`Verbosity::set`] is called. Fails if
/// logging is initialized or `RUST_LOG` is malformed.
pub(crate) fn init(
    format: Format,
    verbosity: u32,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Verbosity>> {
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(text) if !text.trim().is_empty() => EnvFilter::try_new(text)?,
        _ => EnvFilter::try_new(directives(verbosity))?,
    };
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    let colored = std::io::stderr().is_terminal() && !unwanted;
    install(format, filter, colored, clock, std::io::stderr)
        .map_err(|error| anyhow::anyhow!("cannot initialize logging: {error}"))
}

/// Levels for a verbosity. Below 8, libraries stay at `info`: they trace every HTTP/2 frame.
fn directives(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "info,windlass=debug",
        6..=7 => "info,windlass=trace",
        8..=9 => "debug,windlass=trace",
        _ => "trace",
    }
}

fn install<W>(
    format: Format,
    filter: EnvFilter,
    colored: bool,
    clock: Arc<dyn Clock>,
    writer: W,
) -> Result<Arc<dyn Verbosity>, Box<dyn std::error::Error + Send + Sync>>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Text => registry
            .with(lines.with_ansi(false).event_format(Klog { clock, colored }))
            .try_init()?,
        Format::Json => registry
            .with(lines.json().flatten_event(true).with_span_list(false))
            .try_init()?,
    }
    Ok(Arc::new(Filter(handle)))
}

/// The reloadable level filter.
struct Filter<S>(reload::Handle<EnvFilter, S>);

impl<S> fmt::Debug for Filter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

impl<S: Subscriber + 'static> Verbosity for Filter<S> {
    fn set(&self, verbosity: u32) -> Result<(), String> {
        let filter = EnvFilter::try_new(directives(verbosity)).map_err(|it| it.to_string())?;
        self.0.reload(filter).map_err(|it| it.to_string())?;
        tracing::info!(verbosity, "log verbosity changed");
        Ok(())
    }
}

/// The text format.
struct Klog {
    clock: Arc<dyn Clock>,
    /// The header has the color of its level.
    colored: bool,
}

/// Escapes control characters, so that no text of a pod begins a line or changes a terminal.
struct OneLine<'a>(Writer<'a>);

impl fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (plain, tail) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = tail.chars();
            if let Some(control) = chars.next() {
                write!(self.0, "{}", control.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let (letter, color) = level(*metadata.level());
        let time = self.clock.now().strftime("%m%d %H:%M:%S.%6f");
        let (on, off) = match self.colored {
            true => (color, "\u{1b}[0m"),
            false => ("", ""),
        };
        let process = std::process::id();
        write!(
            writer,
            "{on}{letter}{time} {process:>7} {}]{off} ",
            module(metadata.target())
        )?;
        let mut line = OneLine(writer.by_ref());
        context
            .field_format()
            .format_fields(Writer::new(&mut line), event)?;
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions
                .get::<FormattedFields<N>>()
                .map(|f| f.fields.as_str());
            match fields {
                Some(fields) if !fields.is_empty() => write!(line, " {}{{{fields}}}", span.name())?,
                _ => write!(line, " {}", span.name())?,
            }
        }
        writeln!(writer)
    }
}

fn level(level: Level) -> (char, &'static str) {
    match level {
        Level::ERROR => ('E', "\u{1b}[31m"),
        Level::WARN => ('W', "\u{1b}[33m"),
        Level::INFO => ('I', "\u{1b}[32m"),
        Level::DEBUG => ('D', "\u{1b}[34m"),
        Level::TRACE => ('T', "\u{1b}[35m"),
    }
}

/// `windlass_sync_loop::actor` reads as `sync_loop::actor`.
fn module(target: &str) -> &str {
    target.strip_prefix("windlass_").unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;
    use windlass_mailboxes::spawn_io;
    use windlass_types::{Clock, Timestamp};

    use windlass_node_api::Verbosity;

    use super::{Filter, Klog, directives, module};

    #[derive(Debug)]
    struct FixedClock;

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            "2026-11-21T04:05:06.123456789Z".parse().expect("time")
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// What `log` writes in the text format, without the headers.
    fn logged(log: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("info,windlass=debug")
            .with_writer(lines.clone())
            .with_ansi(false)
            .event_format(Klog {
                clock: Arc::new(FixedClock),
                colored: false,
            })
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = String::from_utf8(lines.0.lock().expect("lock").clone()).expect("text");
        let process = format!("1121 04:05:06.123456 {:>7} ", std::process::id());
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|it| it.replace(&process, " ")).collect()
    }

    #[test]
    fn text_format_matches_klog() {
        let lines = logged(|| {
            let span = tracing::info_span!("sync", pod = "web_default");
            let _entered = span.enter();
            tracing::warn!(target: "windlass_runtime::pull", image = %"nginx", "pull failed");
            tracing::debug!(target: "h2::codec", "not shown");
        });
        let line = "W runtime::pull] pull failed image=nginx sync{pod=\"web_default\"}";
        assert_eq!(lines, [line]);
    }

    #[test]
    fn text_of_a_pod_begins_no_line() {
        let forged = "no\nE1121 04:05:06.123456     1 kubelet] forged\r";
        let escaped = "no\\nE1121 04:05:06.123456     1 kubelet] forged\\r";
        let lines = logged(|| {
            let span = tracing::info_span!("sync", pod = %forged);
            let _entered = span.enter();
            tracing::info!(target: "windlass_status::events", text = forged, "event");
            tracing::info!(target: "windlass_probes", error = %forged, "failed: {forged}");
        });
        let expected = [
            format!("I status::events] event text=\"{escaped}\" sync{{pod={escaped}}}"),
            format!("I probes] failed: {escaped} error={escaped} sync{{pod={escaped}}}"),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn io_task_lines_name_only_their_task() {
        let lines = logged(|| {
            let io = tokio::runtime::Builder::new_current_thread().build();
            io.expect("runtime").block_on(async {
                let second = async { tracing::debug!(target: "windlass_pleg", "second") };
                let first = async { spawn_io("sync-pod", second).await.expect("second") };
                spawn_io("sync-pod", first).await.expect("first");
            });
        });
        assert_eq!(lines, ["D pleg] second io{task=\"sync-pod\"}"]);
    }

    #[test]
    fn verbosity_can_be_changed_at_runtime() {
        use tracing_subscriber::layer::SubscriberExt;
        let lines = Lines::default();
        let (filter, handle) = tracing_subscriber::reload::Layer::new("info".into());
        let subscriber = tracing_subscriber::registry()
            .with(filter)
            .with(tracing_subscriber::fmt::layer().with_writer(lines.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let log = || tracing::debug!(target: "windlass_pleg", "decision");
            let shown = || lines.0.lock().expect("lock").len();
            log();
            assert_eq!(shown(), 0);
            Filter(handle).set(4).expect("set");
            let before = shown();
            log();
            assert!(shown() > before);
        });
    }

    #[test]
    fn verbosity_raises_windlass_levels_first() {
        assert_eq!(directives(0), "info");
        assert_eq!(directives(3), "info");
        assert_eq!(directives(4), "info,windlass=debug");
        assert_eq!(directives(6), "info,windlass=trace");
        assert_eq!(directives(10), "trace");
        assert_eq!(module("windlass_pleg::actor"), "pleg::actor");
        assert_eq!(module("h2::codec"), "h2::codec");
    }
}
