//! A timeline as bars: where each begins and how long it is, on the scale of its episode.

use std::fmt;
use std::time::Duration;

use windlass_types::Timestamp;
use windlass_types::explain::TimelineRecord;

/// After so long without anything the next touch begins an episode: on one scale with what happened
/// hours ago everything would be a point.
const QUIET: Duration = Duration::from_secs(5);

/// Touches that follow each other, on one scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Episode<'a> {
    /// When its first touch began.
    pub began: Timestamp,
    /// From there to the end of its last.
    pub length: Duration,
    /// Its touches in the order in which they began.
    pub bars: Vec<Bar<'a>>,
}

/// A touch on the scale of its episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar<'a> {
    /// The touch.
    pub touch: &'a TimelineRecord,
    /// When it began, counted from the beginning of the episode.
    pub after: Duration,
    /// The cell in which it begins.
    pub from: usize,
    /// How many cells it has; none for what takes no time.
    pub cells: usize,
}

impl fmt::Display for Bar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.3}s ", self.after.as_secs_f64())?;
        write!(f, "[{}+{}] {}", self.from, self.cells, self.touch)
    }
}

/// Lays `touches`, which are in the order in which they began, out on lines of `width` cells.
pub fn waterfall(touches: &[TimelineRecord], width: usize) -> Vec<Episode<'_>> {
    let mut rest = touches;
    let mut episodes = Vec::new();
    while let Some(first) = rest.first() {
        let mut end = first.started_at;
        let quiet = |touch: &TimelineRecord| {
            let pause = since(end, touch.started_at) > QUIET;
            end = end.max(over(touch));
            pause
        };
        let count = rest.iter().position(quiet).unwrap_or(rest.len());
        let (these, later) = rest.split_at(count);
        episodes.push(episode(first.started_at, these, width));
        rest = later;
    }
    episodes
}

fn episode(began: Timestamp, touches: &[TimelineRecord], width: usize) -> Episode<'_> {
    let end = touches.iter().map(over).max().unwrap_or(began);
    let length = since(began, end);
    let cell = |time: Duration| {
        let cells = time.as_nanos() * width as u128 / length.as_nanos().max(1);
        usize::try_from(cells).unwrap_or(width).min(width)
    };
    let bars = touches.iter().map(|touch| {
        let after = since(began, touch.started_at);
        let from = cell(after).min(width.saturating_sub(1));
        let to = cell(since(began, over(touch)));
        Bar {
            touch,
            after,
            from,
            // what took its time is seen, however short it was
            cells: touch
                .duration_seconds
                .map_or(0, |_| (to - from.min(to)).max(1)),
        }
    });
    Episode {
        began,
        length,
        bars: bars.collect(),
    }
}

fn over(touch: &TimelineRecord) -> Timestamp {
    let took = touch.duration_seconds.unwrap_or_default();
    let took = Duration::try_from_secs_f64(took).unwrap_or_default();
    windlass_types::later(touch.started_at, took)
}

fn since(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
